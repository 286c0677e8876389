//! The tests of the `gpu-kernels` crate once more, through the whole stack: builder, driver, typed
//! launches, streams; on a GPU where there is one. The bodies are those of `gpu-kernels/tests`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../gpu-kernels/tests/kernels/argmax.rs"]
mod argmax;
#[path = "../../gpu-kernels/tests/kernels/attention.rs"]
mod attention;
#[path = "../../gpu-kernels/tests/kernels/cases.rs"]
mod cases;
#[path = "../../gpu-kernels/tests/kernels/embed.rs"]
mod embed;
#[path = "../../gpu-kernels/tests/kernels/gemv.rs"]
mod gemv;
#[path = "../../gpu-kernels/tests/kernels/kv.rs"]
mod kv;
#[path = "kernels/machine.rs"]
mod machine;
#[path = "../../gpu-kernels/tests/kernels/norm.rs"]
mod norm;
#[path = "../../gpu-kernels/tests/kernels/rope.rs"]
mod rope;
#[path = "../../gpu-kernels/tests/kernels/step.rs"]
mod step;
#[path = "../../gpu-kernels/tests/kernels/support.rs"]
mod support;

/// Where the golden vectors are.
const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../gpu-kernels/tests/vectors");

/// Blocks that wait for one another have to be on the device at the same time: more than fit are refused, not started.
#[test]
fn a_layer_of_more_blocks_than_fit_is_refused() {
    use gpu_kernels::cases::{Failure, Subject};
    let case = Subject::Layers {
        instance: gpu_kernels::persistent::Instance::LayersF32,
        format: gpu_kernels::format::Format::Q1_0,
    }
    .parse("blocks=1000000")
    .unwrap();
    let Err(Failure::Launch(text)) = case.run(&mut machine::Gpu::new()) else { panic!("it was launched") };
    assert!(text.contains("layers_f32: 1000000 blocks in a cooperative launch, and "), "{text}");
}

/// The kernels that this crate embeds are those that the kernels crate lists, argument by argument.
#[test]
fn the_embedded_manifest_lists_every_kernel() {
    let mut listed: Vec<_> = gpu_kernels::catalogue().iter().map(|m| m.name).collect();
    let kernels = &warpsmith_host::kernels().unwrap().kernels;
    let mut embedded: Vec<_> = kernels.iter().map(|k| k.name.as_str()).collect();
    listed.sort_unstable();
    embedded.sort_unstable();
    assert_eq!(listed, embedded);
}
