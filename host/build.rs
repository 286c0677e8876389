//! Compiles the kernels that come with this crate.

fn main() {
    #[cfg(feature = "llm")]
    {
        let kernels = warpsmith_builder::KernelCrate::dependency("gpu-kernels").archs(["sm_75", "sm_80", "sm_90"]);
        if let Err(error) = kernels.build() {
            error.exit();
        }
    }
}
