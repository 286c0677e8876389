//! Compiles the kernels of `gpu-kernels`, which this crate embeds.

fn main() {
    let kernels = warpsmith_builder::KernelCrate::dependency("gpu-kernels").archs(["sm_75", "sm_80", "sm_90"]);
    if let Err(error) = kernels.build() {
        error.exit();
    }
}
