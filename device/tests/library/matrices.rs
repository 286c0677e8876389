//! Tensor-core products of every type, and matrices in shared memory.

use super::{
    all_device::matrices::*,
    gpu::{Gpu, noise},
};
use half::{bf16, f16};
use std::ops::Mul;
use warpsmith_device::fp8::{E4m3, E5m2};

/// Σ_i a[row, i] b[column, i] as wide numbers, and Σ |a b|.
fn reference<T: Copy, W: Copy + Mul<Output = W> + Into<f64>>(
    a: &[T],
    b: &[T],
    k: usize,
    wide: impl Fn(T) -> W,
) -> Vec<(f64, f64)> {
    (0..128)
        .map(|i| {
            let (row, column) = (i / 8, i % 8);
            let products = (0..k).map(|j| (wide(a[row * k + j]) * wide(b[column * k + j])).into());
            products.fold((0.0, 0.0), |(s, m), p: f64| (s + p, m + p.abs()))
        })
        .collect()
}

fn near(ours: &[f32], exact: &[(f64, f64)], one: f64, what: &str) {
    for (i, (v, (sum, size))) in ours.iter().zip(exact).enumerate() {
        // Tensor cores truncate what is added up in a step, to 24 bits of the largest at worst.
        assert!((f64::from(*v) - sum - one).abs() <= 1e-6 * (size + 1.0), "{what}[{i}]: {v} for {}", sum + one);
    }
}

#[test]
fn fragments_multiply_elements_of_every_type() {
    let unit = |v: u64| ((v >> 11) as f64 / (1u64 << 53) as f64 - 0.5) as f32;
    for k in [32usize, 96] {
        let n = |rows: usize, seed: u64| noise(seed).take(rows * k);
        let (ha, hb): (Vec<f16>, Vec<f16>) =
            (n(16, 1).map(|v| f16::from_f32(unit(v))).collect(), n(8, 2).map(|v| f16::from_f32(unit(v))).collect());
        let (ba, bb): (Vec<bf16>, Vec<bf16>) =
            (n(16, 3).map(|v| bf16::from_f32(unit(v))).collect(), n(8, 4).map(|v| bf16::from_f32(unit(v))).collect());
        let (ia, ib): (Vec<i8>, Vec<i8>) = (n(16, 5).map(|v| v as i8).collect(), n(8, 6).map(|v| v as i8).collect());
        let (ua, ub): (Vec<u8>, Vec<u8>) = (n(16, 7).map(|v| v as u8).collect(), n(8, 8).map(|v| v as u8).collect());
        let f16s = reference(&ha, &hb, k, f64::from);
        let bf16s = reference(&ba, &bb, k, f64::from);
        let i8s = reference(&ia, &ib, k, i32::from);
        let u8s = reference(&ua, &ub, k, i32::from);
        let (ea, eb): (Vec<E4m3>, Vec<E4m3>) =
            (n(16, 9).map(|v| E4m3::from_f32(unit(v))).collect(), n(8, 10).map(|v| E4m3::from_f32(unit(v))).collect());
        let (fa, fb): (Vec<E5m2>, Vec<E5m2>) =
            (n(16, 11).map(|v| E5m2::from_f32(unit(v))).collect(), n(8, 12).map(|v| E5m2::from_f32(unit(v))).collect());
        let e4m3s = reference(&ea, &eb, k, |v| f64::from(v.to_f32()));
        let e5m2s = reference(&fa, &fb, k, |v| f64::from(v.to_f32()));
        // Those of sm_120 have an instruction for eight-bit floats.
        for gpu in Gpu::all().into_iter().chain([Gpu::new(120)]) {
            let mut c = gpu.alloc::<f32>(128);
            gpu.check(ProductE4m3 { a: &gpu.upload(&ea), b: &gpu.upload(&eb), c: &mut c, k: k as u32 }, [1, 1, 1]);
            near(&c.read(), &e4m3s, 1.0, "e4m3");
            let mut c = gpu.alloc::<f32>(128);
            gpu.check(ProductE5m2 { a: &gpu.upload(&fa), b: &gpu.upload(&fb), c: &mut c, k: k as u32 }, [1, 1, 1]);
            near(&c.read(), &e5m2s, 1.0, "e5m2");
            let mut c = gpu.alloc::<f32>(128);
            gpu.check(ProductF16 { a: &gpu.upload(&ha), b: &gpu.upload(&hb), c: &mut c, k: k as u32 }, [1, 1, 1]);
            near(&c.read(), &f16s, 1.0, "f16");
            let mut c = gpu.alloc::<f32>(128);
            gpu.check(ProductBf16 { a: &gpu.upload(&ba), b: &gpu.upload(&bb), c: &mut c, k: k as u32 }, [1, 1, 1]);
            near(&c.read(), &bf16s, 1.0, "bf16");
            let exact = |s: &[(f64, f64)]| s.iter().map(|s| s.0 as i32 + 1).collect::<Vec<i32>>();
            let mut c = gpu.alloc::<i32>(128);
            gpu.check(ProductI8 { a: &gpu.upload(&ia), b: &gpu.upload(&ib), c: &mut c, k: k as u32 }, [1, 1, 1]);
            assert_eq!(c.read(), exact(&i8s));
            let mut c = gpu.alloc::<i32>(128);
            gpu.check(ProductU8 { a: &gpu.upload(&ua), b: &gpu.upload(&ub), c: &mut c, k: k as u32 }, [1, 1, 1]);
            assert_eq!(c.read(), exact(&u8s));
        }
    }
}

#[test]
fn fragments_come_from_shared_memory_without_bank_conflicts() {
    let small = |seed, n| noise(seed).take(n).map(|v| (v % 17) as i8 - 8).collect::<Vec<i8>>();
    let (ba, bb) = (small(1, 16 * 64), small(2, 8 * 64));
    let halves = |v: &[i8]| v.iter().map(|&v| f16::from_f32(v.into())).collect::<Vec<f16>>();
    let (ha, hb) = (halves(&ba), halves(&bb));
    let exact = reference(&ba, &bb, 64, i32::from);
    let rows: Vec<f16> = (0..128).map(|i| hb[i % 8 * 64 + i / 8]).collect();
    let left: Vec<f16> = (0..256).map(|i| ha[i / 16 * 64 + i % 16]).collect();
    let of_rows = reference(&left, &(0..128).map(|i| rows[i % 16 * 8 + i / 16]).collect::<Vec<_>>(), 16, f64::from);
    for gpu in Gpu::all() {
        let (mut h, mut g, mut b) = (gpu.alloc::<f32>(128), gpu.alloc::<f32>(128), gpu.alloc::<i32>(128));
        let launch = StagedProducts {
            ha: &gpu.upload(&ha),
            hb: &gpu.upload(&hb),
            ba: &gpu.upload(&ba),
            bb: &gpu.upload(&bb),
            h: &mut h,
            g: &mut g,
            b: &mut b,
        };
        assert_eq!(gpu.check(launch, [1, 1, 1]).shared_bank_conflicts, 0);
        for (i, (sum, _)) in exact.iter().enumerate() {
            assert_eq!((h.read()[i], g.read()[i], b.read()[i]), (*sum as f32, *sum as f32, *sum as i32), "{i}");
        }
        let mut c = gpu.alloc::<f32>(128);
        let launch = RowsProduct { a: &gpu.upload(&left), b: &gpu.upload(&rows), c: &mut c };
        assert_eq!(gpu.check(launch, [1, 1, 1]).shared_bank_conflicts, 0);
        assert_eq!(c.read(), of_rows.iter().map(|s| s.0 as f32).collect::<Vec<f32>>());
    }
}

#[test]
fn columns_of_strided_matrices_have_no_bank_conflicts() {
    let d: Vec<u64> = noise(3).take(1024).collect();
    let c: Vec<u32> = d.iter().map(|&v| v as u32).collect();
    let b: Vec<u16> = d.iter().map(|&v| v as u16).collect();
    let a: Vec<u8> = d.iter().map(|&v| v as u8).collect();
    for gpu in Gpu::all() {
        let (mut ya, mut yb, mut yc, mut yd) = (gpu.alloc(1024), gpu.alloc(1024), gpu.alloc(1024), gpu.alloc(1024));
        let bc = gpu.upload(&c);
        let launch = Turns {
            a: &gpu.upload(&a),
            b: &gpu.upload(&b),
            c: &bc,
            d: &gpu.upload(&d),
            ya: &mut ya,
            yb: &mut yb,
            yc: &mut yc,
            yd: &mut yd,
        };
        assert_eq!(gpu.check(launch, [1, 1, 1]).shared_bank_conflicts, 0);
        for i in 0..1024 {
            let from = i % 32 * 32 + i / 32;
            assert_eq!((ya.read()[i], yb.read()[i], yc.read()[i], yd.read()[i]), (a[from], b[from], c[from], d[from]));
        }
        let mut slow = gpu.alloc::<u32>(1024);
        assert_eq!(gpu.check(SlowTurn { c: &bc, yc: &mut slow }, [1, 1, 1]).shared_bank_conflicts, 32 * 31);
        assert_eq!(slow.read(), yc.read());
    }
}
