//! kernels/ to PTX, which `include_kernels!` embeds.

fn main() {
    // Code for sm_75 runs on every GPU since Turing. A kernel that needs more names it here: `["sm_75", "sm_90"]`.
    let kernels = warpsmith_builder::KernelCrate::new("kernels").archs(["sm_75"]);
    if let Err(error) = kernels.build() {
        error.exit();
    }
}
