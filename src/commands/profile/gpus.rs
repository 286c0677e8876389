//! The GPU that a projection is for.

use warpsmith_arch::Gpu;

/// The GPU of that name.
pub fn find(name: &str) -> Result<&'static Gpu, String> {
    Gpu::find(&name.to_lowercase()).ok_or_else(|| {
        let names: Vec<&str> = Gpu::ALL.iter().map(|g| g.name).collect();
        format!("no figures of `{name}`: known are {}", names.join(", "))
    })
}
