//! Instructions, counted by the software machine. They are no time, but they repeat to the digit.

use crate::{
    gemv::{Variant, run},
    machine::{Gpu, Rng},
};
use gpu_kernels::{cases::Tensor, format::Format};

#[test]
fn a_weight_costs_few_instructions() {
    // Deterministic, so a change for the worse is seen here before any GPU sees it.
    let (mut gpu, mut rng) = (Gpu::new(), Rng(6));
    for (format, most) in
        [(Format::F32, 2.7), (Format::F16, 4.3), (Format::Q8_0, 5.2), (Format::Q4_0, 4.8), (Format::Q1_0, 4.0)]
    {
        let mut line = format!("{format}: instructions a weight");
        for cols in [256, 1024, 4096, 16384] {
            let t = Tensor::random(&mut rng, format, 8, cols);
            let x = rng.floats(cols);
            let mut cost = |variant| {
                run(&mut gpu, &t, &x, None, variant);
                gpu.counters.lane_instructions as f64 / (8 * cols) as f64
            };
            let (v1, v2) = (cost(Variant::V1), cost(Variant::Default));
            line += &format!("; k = {cols}: v1 {v1:.2}, v2 {v2:.2}");
            assert!(cols < 16384 || v2 <= most, "{line}: more than {most}");
        }
        println!("{line}");
    }
}
