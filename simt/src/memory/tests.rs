use super::*;

#[test]
fn addresses_come_again_where_that_is_asked_for_and_nowhere_else() {
    let m = Memory::new(1 << 24);
    let first = m.alloc(1000, 1).unwrap();
    m.free(first).unwrap();
    assert_ne!(m.alloc(1000, 1).unwrap(), first, "a use after free is seen");
    m.reuse(true);
    let sizes = [1000, 70_000, 500, 200_000];
    let all = || sizes.map(|bytes| m.alloc(bytes, 256).unwrap());
    let before = all();
    m.write(before[1], &[7; 70_000]).unwrap();
    // In another order than they were allocated in, and others are there.
    for at in [2, 0, 3, 1] {
        m.free(before[at]).unwrap();
    }
    assert!(m.describe(before[1]).contains("has been freed"));
    let other = m.alloc(150_000, 1).unwrap();
    assert_eq!(all(), before);
    let mut byte = [0];
    m.read(before[1] + 69_999, &mut byte).unwrap();
    assert_eq!(byte, [POISON], "fresh all the same");
    assert!(m.describe(before[1]).starts_with("byte 0 of the allocation of 70000 bytes"), "{}", m.describe(before[1]));
    assert_eq!((m.find(before[2]).unwrap().size, m.find(other).unwrap().size), (500, 150_000));
    m.reuse(false);
    m.free(before[0]).unwrap();
    assert!(m.read(before[0], &mut byte).is_err() && m.alloc(1000, 1).unwrap() != before[0]);
}

#[test]
fn fresh_memory_is_poison_and_round_trips() {
    let m = Memory::new(1 << 20);
    let a = m.alloc(1003, 1).unwrap();
    assert_eq!(a % 256, 0);
    let mut out = vec![0; 1003];
    m.read(a, &mut out).unwrap();
    assert!(out.iter().all(|&b| b == POISON));
    let data: Vec<u8> = (0..1003).map(|i| i as u8).collect();
    m.write(a, &data).unwrap();
    m.read(a, &mut out).unwrap();
    assert_eq!(out, data);
    m.read(a + 1001, &mut out[..2]).unwrap();
    assert_eq!(out[..2], data[1001..]);
}

#[test]
fn neighbours_never_touch_and_freed_memory_is_named() {
    let m = Memory::new(1 << 20);
    let a = m.alloc(100, 256).unwrap();
    let b = m.alloc(100, 256).unwrap();
    assert!(b - a >= 65536 + 100);
    assert!(matches!(m.read(a + 99, &mut [0; 2]), Err(MemoryError::OutOfBounds { .. })));
    m.free(a).unwrap();
    let e = m.write(a + 4, &[1]).unwrap_err().to_string();
    assert!(e.contains("byte 4 of an allocation of 100 bytes") && e.contains("freed"), "{e}");
    assert!(matches!(m.free(a), Err(MemoryError::NotAnAllocation { .. })));
    assert!(matches!(m.free(b + 1), Err(MemoryError::NotAnAllocation { .. })));
    assert_eq!(m.live_allocations(), 1);
    let c = m.alloc(100, 256).unwrap();
    assert!(c > b, "freed addresses are not reused");
}

#[test]
fn room_is_limited_and_comes_back() {
    let m = Memory::new(4096);
    let a = m.alloc(4096, 256).unwrap();
    assert_eq!(m.used(), 4096);
    assert!(matches!(m.alloc(1, 1), Err(MemoryError::OutOfMemory { requested: 1, used: 4096, total: 4096 })));
    m.free(a).unwrap();
    assert_eq!(m.used(), 0);
    assert!(m.alloc(u64::MAX, 1).is_err());
    assert_eq!(m.alloc(0, 1), Err(MemoryError::ZeroSize));
    assert_eq!(m.alloc(1, 3), Err(MemoryError::BadAlignment(3)));
}

#[test]
fn fills_and_copies() {
    let m = Memory::new(1 << 20);
    let a = m.alloc(64, 256).unwrap();
    m.fill(a + 4, &[1, 2, 3, 4], 5).unwrap();
    let mut out = [0; 64];
    m.read(a, &mut out).unwrap();
    assert_eq!(out[..4], [POISON; 4]);
    assert_eq!(out[4..24], [1, 2, 3, 4].repeat(5));
    assert_eq!(out[24], POISON);
    m.copy(a + 8, a + 4, 20).unwrap();
    m.read(a, &mut out).unwrap();
    assert_eq!(out[8..28], [1, 2, 3, 4].repeat(5));
    assert!(m.fill(a, &[1, 2, 3], 1).is_err());
    assert!(m.fill(a, &[1, 2, 3, 4], u64::MAX).is_err());
    assert!(m.copy(a, a + 60, 5).is_err());
}

#[test]
fn undefined_bytes_are_known_and_copied_along() {
    let m = Memory::new(1 << 20);
    let before = m.alloc(64, 256).unwrap();
    assert_eq!(m.undefined(before, 64), None, "allocated before tracking");
    m.keep_definedness(true);
    let (a, b) = (m.alloc(64, 256).unwrap(), m.alloc(100, 256).unwrap());
    assert_eq!(m.undefined(a, 64), Some((0, 64)));
    m.write(a + 8, &[0; 8]).unwrap();
    m.fill(a + 32, &[1, 2], 4).unwrap();
    assert_eq!(m.undefined(a, 64), Some((0, 48)));
    assert_eq!(m.undefined(a + 8, 12), Some((8, 4)));
    m.copy(b + 50, a, 40).unwrap();
    assert_eq!(m.undefined(b + 58, 8), None);
    assert_eq!(m.undefined(b + 82, 8), None);
    assert_eq!(m.undefined(b, 100), Some((0, 84)));
    m.write(b, &[0; 100]).unwrap();
    assert_eq!(m.undefined(b, 100), None);
    m.copy(b + 1, a, 2).unwrap();
    assert_eq!(m.undefined(b, 100), Some((1, 2)), "a defined range becomes undefined by a copy");
    m.copy(b, before, 64).unwrap();
    assert_eq!(m.undefined(b, 100), None);
}

#[test]
fn host_memory_can_be_mapped() {
    let m = Memory::new(1 << 20);
    let mut host = vec![7u8; 32];
    let p = NonNull::new(host.as_mut_ptr()).unwrap();
    // SAFETY: `host` outlives the mapping.
    unsafe { m.map_host(p, 32).unwrap() };
    let a = m.alloc(32, 256).unwrap();
    m.copy(a, p.as_ptr() as u64, 32).unwrap();
    m.write(p.as_ptr() as u64 + 1, &[9]).unwrap();
    let mut out = [0; 32];
    m.read(a, &mut out).unwrap();
    assert_eq!(out, [7; 32]);
    assert!(m.free(p.as_ptr() as u64).is_err());
    m.unmap_host(p.as_ptr() as u64).unwrap();
    assert_eq!(host[..2], [7, 9]);
}
