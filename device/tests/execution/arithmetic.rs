//! Values, arithmetic, conversions.

use super::all_device::{arithmetic::*, memory::*};
use super::gpu::{Gpu, noise};
use super::{floats, same};
use half::{bf16, f16};
use warpsmith_device::{F32x4, U32x2, convert, math};
use warpsmith_simt::FaultKind;

#[test]
fn values_of_every_kind() {
    // Not in the forms for rust-cuda: rustc's own generator widens small arguments of functions, which entries are there.
    for gpu in Gpu::stock() {
        let pairs: Vec<[f32; 2]> = (0..40).map(|i| [i as f32, 0.25]).collect();
        let (bx, mut y) = (gpu.upload(&pairs), gpu.upload(&[1.0f32; 34]));
        gpu.run(
            Values {
                x: &bx,
                y: &mut y,
                p: Affine { scale: 2.0, shift: -1.0, start: 3, unused: 0, count: 20 },
                a: 200,
                b: -300,
                c: 4_000_000,
                d: -5_000_000,
                e: 0.5,
                f: f16::from_f32(1.5),
                g: bf16::from_f32(-0.25),
            },
            [1, 1, 1],
        );
        let mut expected: Vec<f32> =
            (0..32).map(|t| if t < 20 { ((t + 3) as f32 + 0.25).mul_add(2.0, -1.0) + 1.0 } else { 1.0 }).collect();
        expected.extend([(200.0 - 300.0 + 4_000_000.0 - 5_000_000.0 + 0.5) as f32, 1.25]);
        same(&y.read(), &expected, "values");
    }
}

#[test]
fn assertions_trap_at_their_line() {
    let gpu = Gpu::new(80);
    let mut y = gpu.alloc::<u32>(32);
    gpu.run(Asserts { y: &mut y, limit: 32 }, [1, 1, 1]);
    assert_eq!(y.read(), (0..32).collect::<Vec<u32>>());
    let fault = gpu.try_run(Asserts { y: &mut y, limit: 16 }, [1, 1, 1], 0).unwrap_err();
    assert_eq!((&fault.kind, fault.thread), (&FaultKind::Trap, [16, 0, 0]), "{fault}");
    let source = include_str!("../fixtures/all-device/src/memory.rs");
    let line = 1 + source.lines().position(|l| l.contains("device_assert!(t < limit)")).unwrap();
    // rust-cuda's generator writes no lines.
    if !super::common::other_generator() {
        assert!(fault.source.as_deref().is_some_and(|s| s.contains(&format!("memory.rs:{line}"))), "{fault}");
    }
    let mut y = gpu.alloc::<u64>(1);
    gpu.run(Clocks { y: &mut y }, [1, 1, 1]);
    assert_ne!(y.read()[0], 0xa5a5_a5a5_a5a5_a5a5);
}

#[test]
fn exact_arithmetic_is_that_of_the_host() {
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.5,
        2.5,
        -2.5,
        0.5,
        1e-42,
        -1e-42,
        3e9,
        -3e9,
        1e38,
        f32::MIN_POSITIVE,
        f32::MAX,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    let mut a: Vec<f32> = special.iter().flat_map(|_| special).collect();
    let mut b: Vec<f32> = special.iter().flat_map(|v| [*v; 17]).collect();
    a.extend(noise(20).take(20_000).map(|v| f32::from_bits(v as u32)));
    b.extend(noise(21).take(20_000).map(|v| f32::from_bits(v as u32)));
    let n = a.len();
    let (ia, ib): (Vec<u32>, Vec<u32>) =
        (noise(22).take(n).map(|v| v as u32).collect(), noise(23).take(n).map(|v| v as u32).collect());
    let map = |f: &dyn Fn(f32, f32) -> f32| a.iter().zip(&b).map(|(&u, &v)| f(u, v)).collect::<Vec<f32>>();
    let columns = [
        ("fma", map(&|u, v| u.mul_add(v, 1.0))),
        ("sqrt", map(&|u, _| u.sqrt())),
        ("max", map(&math::max)),
        ("min", map(&math::min)),
        ("round_even", map(&|u, _| u.round_ties_even())),
        ("floor", map(&|u, _| u.floor())),
        ("ceil", map(&|u, _| u.ceil())),
        ("trunc", map(&|u, _| u.trunc())),
        ("round_to_i32", map(&|u, _| f32::from_bits(u.round_ties_even() as i32 as u32))),
        ("fma_f64", map(&|u, v| f64::from(u).mul_add(f64::from(v), 1.0) as f32)),
    ];
    for gpu in Gpu::all() {
        let (ba, bb) = (gpu.upload(&a), gpu.upload(&b));
        let mut y = gpu.alloc::<f32>(10 * n);
        let blocks = [n.div_ceil(128) as u32, 1, 1];
        gpu.run(Exact { a: &ba, b: &bb, y: &mut y, n: n as u32 }, blocks);
        for (column, (name, expected)) in y.read().chunks(n).zip(&columns) {
            same(column, expected, &format!("sm_{} {name}", gpu.sm));
        }
        let (ba, bb) = (gpu.upload(&ia), gpu.upload(&ib));
        let mut y = gpu.alloc::<u32>(5 * n);
        gpu.run(Bytes { a: &ba, b: &bb, y: &mut y, n: n as u32 }, blocks);
        let y = y.read();
        for i in 0..n {
            let (u, v) = (ia[i], ib[i]);
            assert_eq!(y[i], math::dp4a(u as i32, v as i32, 1000) as u32);
            assert_eq!(y[n + i], math::dp4a_u(u, v, 1000));
            assert_eq!(y[2 * n + i], math::permute_bytes(u, v, u ^ v));
            assert_eq!(y[3 * n + i], math::dp4a_us(u, v as i32, 1000) as u32);
            assert_eq!(y[4 * n + i], math::dp2a(u as i32, v as i32, 1000) as u32);
        }
    }
}

#[test]
fn approximations_keep_their_bounds() {
    let mut a: Vec<f32> = floats(24, 4000, 80.0);
    a.extend(floats(25, 4000, 2.0));
    a.extend(floats(26, 2000, 1e-3));
    a.extend([0.0, 1.0, 2.0, 0.5, 88.7, -87.3, -103.0, -126.0, -126.01, -140.0]);
    let b: Vec<f32> = floats(27, a.len(), 50.0);
    let n = a.len();
    for gpu in Gpu::all() {
        let (ba, bb) = (gpu.upload(&a), gpu.upload(&b));
        let mut y = gpu.alloc::<f32>(13 * n);
        gpu.run(Approximate { a: &ba, b: &bb, y: &mut y, n: n as u32 }, [n.div_ceil(128) as u32, 1, 1]);
        let y = y.read();
        for i in 0..n {
            let (u, v) = (f64::from(a[i]), f64::from(b[i]));
            let p = |e: f64| 2f64.powf(e);
            let close = |column: usize, truth: f64, bound: f64, name: &str| {
                let ours = f64::from(y[column * n + i]);
                let ok = if truth.is_nan() { ours.is_nan() } else { ours == truth || (ours - truth).abs() <= bound };
                assert!(ok, "sm_{} {name}({u}, {v}) = {ours}, not {truth}", gpu.sm);
            };
            // A subnormal result is rounded to a multiple of 2^-149.
            let relative =
                |column, truth: f64, bound: f64, name| close(column, truth, truth.abs() * bound + p(-149.0), name);
            relative(0, u.exp2(), p(-22.0), "exp2_approx");
            close(1, u.log2(), p(-22.0) * u.log2().abs().max(1.0), "log2_approx");
            relative(2, 1.0 / u.sqrt(), p(-22.9), "rsqrt_approx");
            relative(3, 1.0 / u, p(-23.0), "rcp_approx");
            relative(4, u.sqrt(), p(-23.0), "sqrt_approx");
            relative(5, u.tanh(), p(-11.0), "tanh_approx");
            relative(6, u.exp(), p(-21.0) + u.abs() * p(-23.0), "exp_approx");
            close(7, u.ln(), p(-22.0) * u.ln().abs().max(1.0), "ln_approx");
            relative(8, u / v, p(-22.0), "div_approx");
            close(9, u.exp(), u.exp() * p(-21.0) + 2.0 * p(-149.0), "exp");
            close(10, u.sin(), p(-23.0), "sin");
            close(11, u.cos(), p(-23.0), "cos");
            close(12, if u < -126.0 { 0.0 } else { u.exp2() }, u.exp2() * p(-22.0), "exp2_approx_ftz");
        }
    }
}

#[test]
fn conversions_agree_with_half() {
    let n = 65536;
    for gpu in Gpu::all() {
        let (mut halves, mut brains, mut pairs) = (gpu.alloc::<f32>(n), gpu.alloc::<f32>(n), gpu.alloc::<F32x4>(n));
        gpu.run(Widen { halves: &mut halves, brains: &mut brains, pairs: &mut pairs }, [256, 1, 1]);
        let h = |bits: u16| f16::from_bits(bits).to_f32();
        let b = |bits: u16| bf16::from_bits(bits).to_f32();
        same(&halves.read(), &(0..=u16::MAX).map(h).collect::<Vec<_>>(), "f16");
        same(&brains.read(), &(0..=u16::MAX).map(b).collect::<Vec<_>>(), "bf16");
        for (i, F32x4(v)) in (0..=u16::MAX).zip(pairs.read()) {
            same(&v, &[h(i), h(i ^ 0x5555), b(i), b(i ^ 0x5555)], "pairs");
        }
        let mut x: Vec<f32> = noise(28).take(20_000).map(|v| f32::from_bits(v as u32)).collect();
        x.extend((0..u16::MAX).step_by(7).flat_map(|i| {
            let middle = h(i) / 2.0 + h(i + 1) / 2.0;
            [h(i), middle, f32::from_bits(middle.to_bits() + 1), f32::from_bits(u32::from(i) << 16 | 0x8000)]
        }));
        let n = x.len();
        let bx = gpu.upload(&x);
        let (mut halves, mut brains, mut pairs) = (gpu.alloc::<f16>(n), gpu.alloc::<bf16>(n), gpu.alloc::<U32x2>(n));
        gpu.run(
            Narrow { x: &bx, halves: &mut halves, brains: &mut brains, pairs: &mut pairs, n: n as u32 },
            [n.div_ceil(128) as u32, 1, 1],
        );
        let (halves, brains, pairs) = (halves.read(), brains.read(), pairs.read());
        for (i, &v) in x.iter().enumerate() {
            let U32x2([hh, bb]) = pairs[i];
            if v.is_nan() {
                assert!(halves[i].is_nan() && brains[i].is_nan());
                assert!(f16::from_bits(hh as u16).is_nan() && bf16::from_bits((bb >> 16) as u16).is_nan());
            } else {
                assert_eq!(
                    (halves[i].to_bits(), brains[i].to_bits()),
                    (f16::from_f32(v).to_bits(), bf16::from_f32(v).to_bits()),
                    "{v:e}"
                );
                assert_eq!((hh, bb), (convert::pack_f16x2(v, -v), convert::pack_bf16x2(v, -v)), "{v:e}");
            }
        }
    }
}
