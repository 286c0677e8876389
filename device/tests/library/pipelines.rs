//! Asynchronous copies and split barriers.

use super::{
    all_device::pipelines::*,
    gpu::{Gpu, noise},
};
use warpsmith_device::F32x4;

#[test]
fn a_ring_of_copies_moves_elements_of_every_width() {
    for n in [1usize, 63, 64, 200, 64 * 9 + 5] {
        let b: Vec<u64> = noise(n as u64).take(n).collect();
        let a: Vec<u32> = b.iter().map(|&v| v as u32).collect();
        let c: Vec<F32x4> = b.iter().map(|&v| F32x4([0, 16, 32, 48].map(|s| (v >> s & 0xff) as f32))).collect();
        for gpu in Gpu::all() {
            let (ba, bb, bc) = (gpu.upload(&a), gpu.upload(&b), gpu.upload(&c));
            let (mut ya, mut yb, mut yc) = (gpu.alloc(64), gpu.alloc(64), gpu.alloc(64));
            let launch = Ring { a: &ba, b: &bb, c: &bc, ya: &mut ya, yb: &mut yb, yc: &mut yc, n: n as u32 };
            gpu.check(launch, [1, 1, 1]);
            for t in 0..64 {
                let mine = || (63 - t..n).step_by(64);
                assert_eq!(ya.read()[t], mine().fold(0, |s, i| a[i].wrapping_add(s)), "n = {n}, thread {t}");
                assert_eq!(yb.read()[t], mine().fold(0, |s, i| b[i].wrapping_add(s)));
                let sum = mine().fold([0.0; 4], |s, i| std::array::from_fn(|j| s[j] + c[i].0[j]));
                assert_eq!(yc.read()[t], F32x4(sum));
            }
        }
    }
}

#[test]
fn a_thread_waits_for_its_own_copies() {
    let x: Vec<u32> = noise(1).take(64).map(|v| v as u32).collect();
    for gpu in Gpu::all() {
        let (bx, mut y) = (gpu.upload(&x), gpu.alloc::<u32>(32));
        gpu.check(OwnCopies { x: &bx, y: &mut y }, [1, 1, 1]);
        assert_eq!(y.read(), (0..32).map(|t| x[t] ^ x[32 + t]).collect::<Vec<u32>>());
    }
}

#[test]
fn arrival_and_wait_are_two_calls() {
    // rust-cuda's generator never has the forms of newer architectures.
    if super::common::other_generator() {
        return;
    }
    let x: Vec<u32> = noise(2).take(96).map(|v| v as u32).collect();
    for rounds in [0u32, 1, 7] {
        let mut v = x[..64].to_vec();
        for _ in 0..rounds {
            v = (0..64).map(|t| v[t].rotate_left(3) ^ v[(t * 5 + 1) & 63]).collect();
        }
        let expected: Vec<u32> = (0..64).map(|t| v[t] ^ x[64 + t % 32]).collect();
        for gpu in Gpu::all().into_iter().filter(|gpu| gpu.sm >= 80) {
            let (bx, mut y) = (gpu.upload(&x), gpu.alloc::<u32>(64));
            gpu.check(SplitBarriers { x: &bx, y: &mut y, rounds }, [1, 1, 1]);
            assert_eq!(y.read(), expected, "{rounds} rounds");
        }
    }
}

#[test]
fn a_copy_that_is_not_waited_for_is_found() {
    // rust-cuda's generator never has the forms of newer architectures.
    if super::common::other_generator() {
        return;
    }
    let x: Vec<u32> = noise(3).take(32).map(|v| v as u32).collect();
    for gpu in Gpu::all() {
        let (bx, mut y) = (gpu.upload(&x), gpu.alloc::<u32>(32));
        let found = gpu.inspect(UnwaitedCopy { x: &bx, y: &mut y }, [1, 1, 1], 0).findings;
        let rules: Vec<&str> = found.iter().map(|f| f.rule.name()).collect();
        // Before sm_80 the copy is a load and a store, done when the call returns.
        assert_eq!(rules, if gpu.sm >= 80 { vec!["async::missing-wait"] } else { vec![] }, "sm_{}", gpu.sm);
    }
}
