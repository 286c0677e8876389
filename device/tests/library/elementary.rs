//! Elementary functions on the device: logarithms have the host's bits, and what contains `exp` keeps its bound.

use super::{
    all_device::arithmetic::Elementary,
    gpu::{Gpu, noise},
};
use warpsmith_device::math;

#[test]
fn elementary_functions_are_the_hosts() {
    let mut a: Vec<f32> =
        vec![0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-45, f32::MAX, -100.0];
    a.extend(noise(1).take(500).map(|v| (v >> 40) as f32 / (1 << 20) as f32 - 8.0));
    a.extend(noise(2).take(500).map(|v| f32::from_bits(v as u32)));
    let n = a.len();
    for gpu in Gpu::all() {
        let (ba, mut y) = (gpu.upload(&a), gpu.alloc::<f32>(5 * n));
        gpu.check(Elementary { a: &ba, y: &mut y, n: n as u32 }, [n.div_ceil(128) as u32, 1, 1]);
        let y = y.read();
        for (i, &u) in a.iter().enumerate() {
            for (column, host) in [math::ln(u), math::log2(u)].into_iter().enumerate() {
                let ours = y[column * n + i];
                assert!(
                    ours.to_bits() == host.to_bits() || (ours.is_nan() && host.is_nan()),
                    "{u:e}: {ours} for {host}"
                );
            }
            // `ex2.approx` may be off by two units more than the host's.
            for (column, host) in [math::tanh(u), math::sigmoid(u), math::erf(u)].into_iter().enumerate() {
                let ours = y[(2 + column) * n + i];
                let same =
                    (ours.is_nan() && host.is_nan()) || (ours - host).abs() <= host.abs() * 2f32.powi(-21) + 1e-44;
                assert!(same, "function {column} of {u:e}: {ours} for {host}");
            }
        }
    }
}
