use crate::machine::{Gpu, Rng};
use gpu_kernels::argmax::{self, Argmax, NONE};
use warpsmith_device::Launcher;

fn run(gpu: &mut Gpu, x: &[f32]) -> u32 {
    let (dx, mut y) = (gpu.upload(x), gpu.poisoned::<u32>(1));
    gpu.launch(Argmax { x: &dx, y: &mut y, n: x.len() as u32, stride: x.len() as u32 }).unwrap();
    let got = gpu.read(&y)[0];
    assert_eq!(got, argmax::reference(x), "n = {}", x.len());
    got
}

#[test]
fn ox_21_ties_and_nan() {
    let mut gpu = Gpu::new();
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    for n in [40, 1024, 3000] {
        // The same largest value in another warp, in the same thread's next step, everywhere.
        let mut x = vec![-1.0; n];
        for i in (7..n).step_by(32) {
            x[i] = 5.0;
        }
        assert_eq!(run(&mut gpu, &x), 7);
        assert_eq!(run(&mut gpu, &vec![2.5; n]), 0);
        assert_eq!(run(&mut gpu, &vec![nan; n]), NONE);
        let mut x = vec![nan; n];
        x[n - 2] = -inf;
        assert_eq!(run(&mut gpu, &x), n as u32 - 2);
        x[n - 1] = f32::MIN;
        assert_eq!(run(&mut gpu, &x), n as u32 - 1);
        let mut x = vec![-0.0; n];
        x[n - 1] = 0.0;
        assert_eq!(run(&mut gpu, &x), 0);
    }
}

#[test]
fn random_values_with_many_ties() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(41));
    for _ in 0..30 {
        let n = rng.within(1, 3000);
        let x: Vec<f32> = (0..n)
            .map(|_| match rng.within(0, 9) {
                0 => f32::NAN,
                k => k as f32,
            })
            .collect();
        run(&mut gpu, &x);
    }
}
