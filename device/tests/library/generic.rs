//! Kernels generic over types and constants, closures, and unrolling.

use super::{
    all_device::generic::*,
    common::fixture,
    gpu::{Gpu, noise},
};
use warpsmith_device::Kernel;

#[test]
fn a_generic_kernel_has_a_launch_for_each_instance() {
    let metas =
        [ScaleF32::META, ScaleU32::META, ScalePairs::META].map(|m| (m.name, m.variant, m.block[0], m.args[1].ty));
    assert_eq!(
        metas,
        [
            ("scale_f32", "f32, f32, 2", 64, "Out<<f32 as Scaled>::Product>"),
            ("scale_u32", "u32, u32, 4", 128, "Out<<u32 as Scaled>::Product>"),
            ("scale_pairs", "[i16; 2], i16, 1", 32, "Out<<[i16; 2] as Scaled>::Product>"),
        ]
    );
    let found = fixture().manifest.kernel("scale_u32").unwrap();
    assert_eq!((found.block, found.static_shared), ([128, 1, 1], 512));
    for n in [1usize, 130, 500] {
        let u: Vec<u32> = noise(n as u64).take(n).map(|v| v as u32 >> 8).collect();
        let f: Vec<f32> = u.iter().map(|&v| v as f32).collect();
        let p: Vec<[i16; 2]> = u.iter().map(|&v| [v as i16, (v >> 8) as i16]).collect();
        for gpu in Gpu::all() {
            let (mut yf, mut yu, mut yp) = (gpu.alloc::<f32>(n), gpu.alloc::<u32>(n), gpu.alloc::<[i16; 2]>(n));
            let blocks = |per: usize| [n.div_ceil(per) as u32, 1, 1];
            gpu.check(ScaleF32 { x: &gpu.upload(&f), y: &mut yf, by: 0.5, n: n as u32 }, blocks(128));
            gpu.check(ScaleU32 { x: &gpu.upload(&u), y: &mut yu, by: 3, n: n as u32 }, blocks(512));
            gpu.check(ScalePairs { x: &gpu.upload(&p), y: &mut yp, by: -7, n: n as u32 }, blocks(32));
            assert_eq!(yf.read(), f.iter().map(|v| v * 0.5 + 1.0).collect::<Vec<f32>>());
            assert_eq!(yu.read(), u.iter().map(|v| v * 3 + 1).collect::<Vec<u32>>());
            assert_eq!(yp.read(), p.iter().map(|v| v.map(|v| v.wrapping_mul(-7))).collect::<Vec<_>>());
        }
    }
}

#[test]
fn closures_work_in_kernels() {
    let x: Vec<u32> = noise(4).take(32).map(|v| (v % 1000) as u32).collect();
    let n = 77;
    for gpu in Gpu::all() {
        let (bx, mut y) = (gpu.upload(&x), gpu.alloc::<u32>(128));
        gpu.check(Closures { x: &bx, y: &mut y, n }, [1, 1, 1]);
        let y = y.read();
        let mut scan = None;
        for t in 0..32 {
            assert_eq!(y[t], (((x[t] ^ n) + 1) ^ n) + 2);
            assert_eq!(y[32 + t], x[t] + 1 + n + t as u32);
            let tile = &x[t / 8 * 8..][..8];
            assert_eq!(y[64 + t], tile.iter().fold(1u32, |p, v| p.wrapping_mul(v | 1)));
            scan = Some(scan.map_or(x[t], |s: u32| (s + x[t]) % n));
            // Sums of remainders are equal modulo n, though not in how often they were reduced.
            assert_eq!(y[96 + t] % n, scan.unwrap() % n);
        }
    }
}

#[test]
fn unrolled_loops_take_every_turn_once() {
    for n in [1usize, 31, 96, 97, 128, 500] {
        let x: Vec<f32> = noise(n as u64).take(n.max(16 * 32)).map(|v| (v % 64) as f32).collect();
        for gpu in Gpu::all() {
            let (bx, mut y) = (gpu.upload(&x), gpu.alloc::<f32>(96));
            gpu.check(Unrolled { x: &bx, y: &mut y, n: n as u32 }, [1, 1, 1]);
            let y = y.read();
            for t in 0..32 {
                assert_eq!(y[t], (t..n).step_by(32).map(|i| x[i] * 2.0).sum::<f32>(), "n = {n}, thread {t}");
                assert_eq!(y[32 + t], (0..n).step_by(2).map(|i| x[i]).sum::<f32>());
                assert_eq!(y[64 + t], (0..16).map(|i| x[i * t]).sum::<f32>());
            }
        }
    }
}
