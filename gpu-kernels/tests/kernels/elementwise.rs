use crate::machine::{Gpu, Rng, assert_close};
use gpu_kernels::elementwise::{self, ResidualAdd, Swiglu};
use warpsmith_device::Launcher;

#[test]
fn residual_add() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(20));
    for n in [1, 255, 256, 257, 1000, 4096] {
        let (a, b) = (rng.floats(n), rng.floats(n));
        let (x, residual, mut y) = (gpu.upload(&a), gpu.upload(&b), gpu.poisoned::<f32>(n));
        gpu.launch(ResidualAdd { x: &x, residual: &residual, y: &mut y, n: n as u32 }).unwrap();
        let want = elementwise::residual_add_reference(&a, &b);
        assert_close("residual_add", &gpu.read(&y), &want, |i| 6e-8 * want[i].abs());
    }
}

#[test]
fn swiglu() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(21));
    for n in [1, 255, 257, 1000] {
        let mut gate: Vec<f32> = rng.floats(n).iter().map(|v| v * 120.0).collect();
        gate[0] = -88.0;
        let up = rng.floats(n);
        let (g, u, mut y) = (gpu.upload(&gate), gpu.upload(&up), gpu.poisoned::<f32>(n));
        gpu.launch(Swiglu { gate: &g, up: &u, y: &mut y, n: n as u32 }).unwrap();
        let want = elementwise::swiglu_reference(&gate, &up);
        assert_close("swiglu", &gpu.read(&y), &want, |i| 2e-6 * want[i].abs() + 2e-43);
    }
}
