use crate::machine::{Gpu, Rng, assert_close};
use gpu_kernels::norm::{self, RmsNorm};
use warpsmith_device::Launcher;

fn check(gpu: &mut Gpu, rng: &mut Rng, rows: usize, cols: usize, size: f32, eps: f32) {
    let x: Vec<f32> = rng.floats(rows * cols).iter().map(|v| v * size).collect();
    let w = rng.floats(cols);
    let want = norm::reference(&x, &w, eps);
    let (dx, dw) = (gpu.upload(&x), gpu.upload(&w));
    let mut y = gpu.poisoned::<f32>(rows * cols);
    gpu.launch(RmsNorm { x: &dx, w: &dw, y: &mut y, cols: cols as u32, eps }).unwrap();
    let what = format!("rms_norm {rows} x {cols}");
    assert_close(&what, &gpu.read(&y), &want, |i| 2e-6 * want[i].abs() + 1e-30);
}

#[test]
fn large_small_and_zero_values() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(11));
    check(&mut gpu, &mut rng, 2, 256, 65504.0, 1e-6);
    check(&mut gpu, &mut rng, 2, 256, 1e-4, 1e-5);
    check(&mut gpu, &mut rng, 1, 256, 0.0, 1e-6);
}
