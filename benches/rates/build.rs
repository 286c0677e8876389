//! Compiles the loops. Tensor cores have their instructions from sm_80 on.

fn main() {
    if let Err(error) = warpsmith_builder::KernelCrate::new("kernels").archs(["sm_80", "sm_90"]).build() {
        error.exit();
    }
}
