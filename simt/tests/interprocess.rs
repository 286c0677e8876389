//! Memory that several processes use at once: two machines over one storage, each on a thread, stand for two processes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::ptr::NonNull;
use std::sync::{Arc, Barrier};

use common::{load, module_text};
use warpsmith_simt::{Counters, Instance, Interprocess, Launch, Machine, MachineConfig};

const BYTES: usize = 4096;

#[repr(align(64))]
struct Room(#[allow(dead_code)] [u8; BYTES]);

/// Storage on the heap of the test.
struct Storage(NonNull<Room>);

// SAFETY: nothing but the machines reaches it, by raw pointers.
unsafe impl Send for Storage {}
// SAFETY: as above.
unsafe impl Sync for Storage {}

impl Storage {
    fn new() -> Arc<Storage> {
        Arc::new(Storage(NonNull::from(Box::leak(Box::new(Room([0; BYTES]))))))
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        // SAFETY: it was leaked, and is freed once, here.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

// SAFETY: the room is there as long as the value.
unsafe impl Interprocess for Storage {
    fn host(&self) -> NonNull<u8> {
        self.0.cast()
    }
    fn is_freed(&self) -> bool {
        false
    }
    fn has_others(&self) -> bool {
        true
    }
}

/// A machine with a kernel, over the storage.
struct Side {
    machine: Machine,
    instance: Instance,
    at: u64,
}

impl Side {
    fn new(storage: &Arc<Storage>, text: &str) -> Side {
        // However late the other begins, it comes.
        let machine = Machine::new(MachineConfig { threads: 1, spin_limit: 0, ..MachineConfig::default() });
        let instance = machine.instantiate(Arc::new(load(text))).unwrap();
        // SAFETY: it has so many bytes.
        let at = unsafe { machine.memory().attach(storage.clone(), BYTES as u64) }.unwrap();
        Side { machine, instance, at }
    }

    fn launch(&self, blocks: u32, threads: u32) -> Counters {
        let out = self.machine.memory().alloc(1024, 256).unwrap();
        let params: Vec<u8> = [self.at, out].iter().flat_map(|p| p.to_le_bytes()).collect();
        let launch = Launch::new([blocks, 1, 1], [threads, 1, 1]);
        self.machine.launch(&self.instance, "k", &launch, &params).unwrap()
    }

    fn words(&self, n: usize) -> Vec<u64> {
        let mut bytes = vec![0; 8 * n];
        self.machine.memory().read(self.at, &mut bytes).unwrap();
        bytes.chunks(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect()
    }
}

/// What both sides have made of storage that was zero, when each has run `body` in a loop of `times`, 32 threads at once, from when all
/// threads of both have begun.
fn both(body: &str, times: u32) -> Vec<u64> {
    let text = module_text(
        ".param .u64 at, .param .u64 out",
        &format!(
            ".reg .b16 %h<9>; .reg .b32 %r<20>; .reg .b64 %rd<30>; .reg .f32 %f<4>; .reg .f64 %d<4>; .reg .b128 %q<9>; .reg .pred %p<4>;
            .shared .align 16 .b8 tile[64];
            ld.param.u64 %rd1, [at]; ld.param.u64 %rd2, [out]; mov.u32 %r1, 0; mov.u64 %rd9, 0; mov.f32 %f1, 0f3F800000;
            atom.global.sys.add.u32 %r3, [%rd1+512], 1;
            WAIT: ld.acquire.sys.global.u32 %r3, [%rd1+512]; setp.lt.u32 %p1, %r3, 64; @%p1 bra WAIT;
            LOOP: {body}
            add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, {times}; @%p1 bra LOOP; ret;"
        ),
    );
    // The first version with 128 bits.
    let text = text.replace(".version 8.2", ".version 8.3");
    let storage = Storage::new();
    let sides = [Side::new(&storage, &text), Side::new(&storage, &text)];
    sides[0].machine.memory().fill(sides[0].at, &[0], BYTES as u64).unwrap();
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        for side in &sides {
            scope.spawn(|| {
                start.wait();
                side.launch(1, 32)
            });
        }
    });
    sides[1].words(8)
}

/// Whoever replaces a value by one more adds nothing that another adds meanwhile.
#[test]
fn no_sum_of_two_processes_loses_a_part() {
    let n = 2 * 32 * 100_000;
    for (what, body, expected) in [
        ("red.u32", "red.global.add.u32 [%rd1], 1;", n),
        ("atom.u32, with its result", "atom.global.sys.add.u32 %r2, [%rd1], 1; st.global.u32 [%rd2], %r2;", n),
        ("atom.u64, generic", "atom.sys.add.u64 %rd3, [%rd1], 1; st.global.u64 [%rd2], %rd3;", n),
        // The lower half of a word of 64 bits.
        (
            "atom.f32",
            "atom.global.sys.add.f32 %f2, [%rd1], %f1; st.global.f32 [%rd2], %f2;",
            f32::to_bits(n as f32).into(),
        ),
        ("atom.f64", "mov.f64 %d1, 0d3FF0000000000000; red.sys.global.add.f64 [%rd1], %d1;", f64::to_bits(n as f64)),
        ("atom.inc", "atom.global.sys.inc.u32 %r2, [%rd1], 2147483647; st.global.u32 [%rd2], %r2;", n),
    ] {
        assert_eq!(both(body, 100_000)[0], expected, "{what}");
    }
}

#[test]
fn no_exchange_of_two_processes_loses_a_part() {
    // A loop of `cas` for each lane: the value becomes one more.
    let n = 2 * 32 * 20_000;
    let cas = |ty: &str, load: &str, reg: &str, zero: &str| {
        format!(
            "CAS: ld.relaxed.sys.global.{load} {reg}1, [%rd1]; add.{ty} {reg}2, {reg}1, 1;
             atom.cas.sys.global.b{} {reg}3, [%rd1], {reg}1, {reg}2; setp.ne.{ty} %p2, {reg}3, {reg}1; @%p2 bra CAS; {zero}",
            &load[1..]
        )
    };
    let narrow = cas("u16", "b16", "%h", "");
    assert_eq!(both(&narrow, 20_000)[0], n & 0xffff, "b16");
    let body = cas("u32", "b32", "%r1", "");
    assert_eq!(both(&body, 20_000)[0], n, "b32");
    let body = cas("u64", "b64", "%rd1", "");
    assert_eq!(both(&body, 20_000)[0], n, "b64");
}

#[test]
fn exchanges_of_128_bits_are_whole() {
    // Both halves go up by one and by three; torn, they would not fit together.
    let body = "CAS: ld.global.relaxed.sys.v2.b64 {%rd3, %rd4}, [%rd1]; add.u64 %rd5, %rd3, 1; add.u64 %rd6, %rd4, 3;
        mov.b128 %q1, {%rd3, %rd4}; mov.b128 %q2, {%rd5, %rd6};
        atom.cas.sys.global.b128 %q3, [%rd1], %q1, %q2; mov.b128 {%rd7, %rd8}, %q3;
        setp.ne.u64 %p2, %rd7, %rd3; @%p2 bra CAS; setp.ne.u64 %p2, %rd8, %rd4; @%p2 bra CAS;";
    let n = 2 * 32 * 60_000;
    assert_eq!(both(body, 60_000)[..2], [n, 3 * n]);
}

#[test]
fn bulk_reductions_of_two_processes_lose_no_part() {
    let body = "mov.u32 %r3, tile; st.shared.v4.u32 [%r3], {1, 2, 3, 4};
        cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r3], 16; cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 0;";
    let n = 2 * 32 * 10_000;
    assert_eq!(both(body, 10_000)[..2], [n | ((2 * n) << 32), (3 * n) | ((4 * n) << 32)]);
}

/// What a kernel does of volatile, relaxed, acquiring and releasing accesses is the same with and without other processes: results, and
/// what is counted.
#[test]
fn strong_accesses_are_as_ever() {
    let body = ".reg .b16 %h<9>; .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .pred %p<3>;
        .shared .align 4 .b8 tile[256];
        ld.param.u64 %rd1, [at]; mov.u32 %r1, %tid.x;
        mul.wide.u32 %rd2, %r1, 16; add.u64 %rd3, %rd1, %rd2;
        st.volatile.global.v4.u32 [%rd3], {%r1, %r1, %r1, %r1};
        ld.volatile.global.v2.u32 {%r2, %r3}, [%rd3+8]; add.u32 %r2, %r2, %r3;
        setp.lt.u32 %p1, %r1, 21; @%p1 st.release.sys.global.u32 [%rd3+4], %r2;
        @%p1 ld.acquire.gpu.u32 %r4, [%rd3+4]; add.u32 %r4, %r4, 5; st.relaxed.sys.u32 [%rd3+12], %r4;
        fence.acq_rel.sys; membar.gl; fence.sc.gpu;
        ld.relaxed.sys.global.u8 %h1, [%rd3]; st.relaxed.sys.global.b16 [%rd3+2], %h1;
        ld.relaxed.sys.global.b64 %rd6, [%rd1+16]; st.volatile.global.u64 [%rd3], %rd6;
        mov.u32 %r6, tile; mul.lo.u32 %r7, %r1, 4; add.u32 %r6, %r6, %r7; cvt.u64.u32 %rd7, %r6; cvta.shared.u64 %rd7, %rd7;
        st.volatile.u32 [%rd7], %r1; ld.volatile.u32 %r8, [%rd7]; st.global.u32 [%rd3+8], %r8; ret;";
    let text = module_text(".param .u64 at, .param .u64 out", body);
    let storage = Storage::new();
    let side = Side::new(&storage, &text);
    let alone = Machine::new(MachineConfig { threads: 1, ..MachineConfig::default() });
    let instance = alone.instantiate(Arc::new(load(&text))).unwrap();
    let at = alone.memory().alloc(BYTES as u64, 256).unwrap();
    for (machine, at) in [(&side.machine, side.at), (&alone, at)] {
        machine.memory().fill(at, &[0], BYTES as u64).unwrap();
    }
    for threads in [64, 40, 1] {
        let counters = side.launch(1, threads);
        let params: Vec<u8> = [at, 0].iter().flat_map(|p: &u64| p.to_le_bytes()).collect();
        let expected = alone.launch(&instance, "k", &Launch::new([1, 1, 1], [threads, 1, 1]), &params).unwrap();
        assert_eq!(counters, expected, "{threads} threads");
        let (mut a, mut b) = ([0; BYTES], [0; BYTES]);
        side.machine.memory().read(side.at, &mut a).unwrap();
        alone.memory().read(at, &mut b).unwrap();
        assert!(a == b && a[..64].iter().any(|&x| x != 0), "{threads} threads");
    }
    // Bounds hold for it as for other memory.
    let params: Vec<u8> = [side.at + 4096 - 1008, 0].iter().flat_map(|p: &u64| p.to_le_bytes()).collect();
    let fault = side.machine.launch(&side.instance, "k", &Launch::new([1, 1, 1], [64, 1, 1]), &params).unwrap_err();
    assert!(fault.to_string().contains("past the end of the nearest allocation, 4096 bytes"), "{fault}");
}
