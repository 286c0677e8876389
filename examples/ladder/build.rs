//! Compiles the kernels of the ladder.

fn main() {
    if let Err(error) = warpsmith_builder::KernelCrate::new("kernels").archs(["sm_75", "sm_80"]).build() {
        error.exit();
    }
}
