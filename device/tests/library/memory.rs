//! Hints of loads and stores, and constant memory.

use super::{
    all_device::memory::*,
    common::build,
    gpu::{Gpu, noise},
};
use warpsmith_simt::FaultKind;

#[test]
fn hints_change_no_result() {
    let x: Vec<u32> = noise(1).take(6 * 128).map(|v| v as u32).collect();
    for gpu in Gpu::all() {
        let (bx, mut y, mut z) = (gpu.upload(&x), gpu.alloc::<u32>(6 * 128), gpu.alloc::<u32>(176));
        gpu.check(Hinted { x: &bx, y: &mut y, z: &mut z }, [1, 1, 1]);
        assert_eq!(y.read(), x);
        assert_eq!(z.read(), x[..176]);
    }
}

#[test]
fn constant_tables_hold_their_values() {
    let (taps, words) = ([0.25f32, -1.0 / 3.0, f32::INFINITY, 7.0], [1.0, 2.0, 4_294_967_295.0]);
    for gpu in Gpu::all() {
        for (n, sum) in [(0, 2f64.powi(40) - 2f64.powi(63)), (1, 1.0)] {
            let mut y = gpu.alloc::<f64>(128);
            gpu.check(Constants { y: &mut y, n }, [1, 1, 1]);
            for t in 0..32 {
                let at = |i: usize| y.read()[i];
                assert_eq!((at(t), at(32 + t)), (f64::from(taps[t % 4]), words[t % 3] - 5.0));
                assert_eq!((at(64 + t), at(96 + t)), (sum, [std::f64::consts::PI, -0.1][t & 1] * 0.5));
            }
        }
    }
}

#[test]
fn the_feature_checked_traps_outside_of_shared_and_constant_memory() {
    let checked = build(&[80], &["checked"]);
    let gpu = Gpu::of(80, checked.ptx(80));
    let x = gpu.upload(&[9u32]);
    for (way, inside) in [31, 77, 31, 9, 6].into_iter().enumerate() {
        let mut y = gpu.alloc::<u32>(1);
        let mut at = |i| gpu.try_run(Bounds { x: &x, y: &mut y, way: way as u32, i }, [1, 1, 1], 0);
        at(31).unwrap();
        assert_eq!(at(32).unwrap_err().kind, FaultKind::Trap, "way {way}");
        assert_eq!(y.read(), [inside]);
    }
}
