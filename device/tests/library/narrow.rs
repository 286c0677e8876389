//! Arithmetic on 16-bit and 8-bit floats, and random numbers: the device gives the host's bits, which unit tests compare with
//! exact arithmetic.

use super::{
    all_device::narrow::*,
    gpu::{Gpu, noise},
};
use half::{bf16, f16};
use warpsmith_device::{
    F32x4, U32x4,
    fp8::{E4m3, E5m2},
    packed::{Bf16x2, F16x2},
    random::Philox,
};

/// Whether two pairs of halves are the same bits, any NaN for any.
fn same(a: u32, b: u32, is_nan: fn(u16) -> bool) -> bool {
    [0, 16].iter().all(|s| {
        let (a, b) = ((a >> s) as u16, (b >> s) as u16);
        a == b || (is_nan(a) && is_nan(b))
    })
}

#[test]
fn pairs_of_halves_are_the_hosts() {
    let special = [0x0000_8000u32, 0x7c00_fc00, 0x7e00_0001, 0x7f80_ff80, 0x7fc0_0080, 0x3c00_bc00, 0x3f80_bf80];
    let mut x: Vec<u32> = special.iter().flat_map(|&a| special.iter().flat_map(move |&b| [a, b, a ^ 0x8000])).collect();
    // Exponents near each other, so that sums matter.
    x.extend(noise(1).take(900).map(|v| v as u32 & 0x8fff_8fff | 0x3000_3000));
    x.extend(noise(2).take(600).map(|v| v as u32));
    let n = x.len() / 3;
    let f16_nan = |v: u16| v & 0x7fff > 0x7c00;
    let bf16_nan = |v: u16| v & 0x7fff > 0x7f80;
    for gpu in Gpu::all() {
        let (bx, mut y) = (gpu.upload(&x), gpu.alloc::<u32>(16 * n));
        gpu.check(Pairs { x: &bx, y: &mut y, n: n as u32 }, [4, 1, 1]);
        for (t, y) in y.read().chunks(16).enumerate() {
            let [a, b, c] = [x[3 * t], x[3 * t + 1], x[3 * t + 2]];
            let [p, q, r] = [a, b, c].map(F16x2::from_bits);
            let f = [p.fma(q, r), p + q, p - q, p * q, p.max(q), p.min(q), (-p).abs(), F16x2::new(q.high(), p.low())];
            let [p, q, r] = [a, b, c].map(Bf16x2::from_bits);
            let g = [p.fma(q, r), p + q, p - q, p * q, p.max(q), p.min(q), -p, Bf16x2::new(q.high(), p.low())];
            for i in 0..8 {
                let what = format!("sm_{}, operation {i} of {a:#x}, {b:#x}, {c:#x}", gpu.sm);
                assert!(same(y[i], f[i].to_bits(), f16_nan), "f16, {what}: {:#x} for {:#x}", y[i], f[i].to_bits());
                let (ours, host) = (y[8 + i], g[i].to_bits());
                assert!(same(ours, host, bf16_nan), "bf16, {what}: {ours:#x} for {host:#x}");
            }
        }
    }
}

#[test]
fn bytes_of_floats_are_the_hosts() {
    let mut x = vec![0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-30, 448.0, 464.0, 57344.0, 61440.0];
    x.extend((0..502).map(|i| f32::from_bits(0x3600_0000 + i * 0x0009_8765) * if i % 2 == 0 { 1.0 } else { -1.0 }));
    for gpu in Gpu::all() {
        let bx = gpu.upload(&x);
        let (mut y, mut wide) = (gpu.alloc::<u32>(x.len() / 2), gpu.alloc::<f32>(2 * x.len()));
        gpu.check(BytesOfFloats { x: &bx, y: &mut y, wide: &mut wide, n: x.len() as u32 }, [2, 1, 1]);
        for (i, (v, wide)) in y.read().iter().zip(wide.read().chunks(4)).enumerate() {
            let (a, b) = (x[2 * i], x[2 * i + 1]);
            let (p, q) = (E4m3::pack(a, b), E5m2::pack(a, b));
            assert_eq!(*v, u32::from(p) | u32::from(q) << 16, "{a:e}, {b:e}");
            let ((c, d), (e, f)) = (E4m3::unpack(p), E5m2::unpack(q));
            for (ours, host) in wide.iter().zip([c, d, e, f]) {
                assert!(ours.to_bits() == host.to_bits() || (ours.is_nan() && host.is_nan()), "{ours} for {host}");
            }
        }
    }
}

#[test]
fn random_numbers_are_the_hosts() {
    let (seed, stream, n) = (0x299f_31d0_a409_3822, 0x0370_7344_1319_8a2e, 200u32);
    let host = Philox::new(seed, stream);
    for gpu in Gpu::all() {
        let (mut bits, mut uniform, mut normal) = (gpu.alloc(256), gpu.alloc(256), gpu.alloc(256));
        gpu.check(Random { bits: &mut bits, uniform: &mut uniform, normal: &mut normal, seed, stream, n }, [4, 1, 1]);
        let (bits, uniform, normal): (Vec<U32x4>, Vec<F32x4>, Vec<F32x4>) =
            (bits.read(), uniform.read(), normal.read());
        for i in 0..n as usize {
            assert_eq!((bits[i].0, uniform[i].0), (host.bits(i as u64), host.uniform(i as u64)));
            for (a, b) in normal[i].0.iter().zip(host.normal(i as u64)) {
                assert!((a - b).abs() < 2e-6 * b.abs().max(1.0), "{a} for {b}");
            }
        }
    }
}

#[test]
fn scalars_have_the_hosts_operators() {
    let unit = |v: u64| (v >> 40) as f32 / (1 << 23) as f32 + 0.01;
    let a: Vec<f16> = noise(5).take(32).map(|v| f16::from_f32(unit(v))).collect();
    let b: Vec<f16> = noise(6).take(32).map(|v| f16::from_f32(unit(v) - 1.0)).collect();
    let c: Vec<bf16> = noise(7).take(32).map(|v| bf16::from_f32(unit(v))).collect();
    let d: Vec<bf16> = noise(8).take(32).map(|v| bf16::from_f32(unit(v) - 1.0)).collect();
    for gpu in Gpu::all() {
        let (ba, bb, bc, bd) = (gpu.upload(&a), gpu.upload(&b), gpu.upload(&c), gpu.upload(&d));
        let (mut y, mut z, mut less) = (gpu.alloc(32), gpu.alloc(32), gpu.alloc(32));
        let launch = Scalars { a: &ba, b: &bb, c: &bc, d: &bd, y: &mut y, z: &mut z, less: &mut less };
        gpu.check(launch, [1, 1, 1]);
        let (y, z): (Vec<f16>, Vec<bf16>) = (y.read(), z.read());
        for t in 0..32 {
            assert_eq!((y[t], z[t]), ((a[t] + b[t]) * a[t] - b[t] / a[t], (c[t] + d[t]) * c[t] - d[t] / c[t]));
            assert_eq!(less.read()[t], u8::from(-a[t] < b[t]) | u8::from(-c[t] < d[t]) << 1);
        }
    }
}
