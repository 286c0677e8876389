//! Instructions, counted by the software machine. They are no time, but they repeat to the digit.

use crate::{
    gemv::run,
    machine::{Gpu, Rng},
};
use gpu_kernels::{
    cases::{Product, Tensor},
    format::Format,
};

#[test]
fn a_weight_costs_few_instructions() {
    // Deterministic, so a change for the worse is seen here before any GPU sees it.
    let (mut gpu, mut rng) = (Gpu::new(), Rng(6));
    for (format, most) in [
        (Format::F32, 3.1),
        (Format::F16, 4.8),
        (Format::Q8_0, 5.5),
        (Format::Q4_0, 5.5),
        (Format::Q1_0, 6.0),
        (Format::TQ2_0_G128, 6.0),
        (Format::Q4_K, 6.0),
        (Format::Q6_K, 7.0),
        (Format::IQ4_NL, 8.0),
    ] {
        let mut line = format!("{format}: instructions a weight");
        for (rows, cols) in [(128, 256), (32, 1024), (16, 4096), (16, 16384)] {
            let t = Tensor::random(&mut rng, format, rows, cols);
            let x = rng.floats(cols);
            let mut cost = |product| {
                run(&mut gpu, &t, &x, product);
                gpu.counters.lane_instructions as f64 / (rows * cols) as f64
            };
            let v2 = cost(Product::Gemv);
            line += &format!("; k = {cols}: {v2:.2}");
            if Product::of(format).contains(&Product::Naive) {
                line += &format!(" (v1 {:.2})", cost(Product::Naive));
            }
            assert!(cols < 16384 || v2 <= most, "{line}: more than {most}");
        }
        println!("{line}");
    }
}
