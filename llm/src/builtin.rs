//! The kernels of `gpu-kernels`, compiled by this crate's build script.

use std::sync::{Arc, OnceLock};
use warpsmith_runtime::{Error, KernelImage, Manifest, SHIPPED};

static BUILTIN: KernelImage = warpsmith_runtime::include_kernels!("gpu_kernels");

/// So that no program has to call [`Device::load`](warpsmith_runtime::Device::load) for them.
#[linkme::distributed_slice(SHIPPED)]
static SHIPPED_HERE: &KernelImage = &BUILTIN;

/// What the builder says about the kernels that come with this crate. Needs no device.
pub fn kernels() -> Result<&'static Manifest, Error> {
    static MANIFEST: OnceLock<Arc<Manifest>> = OnceLock::new();
    match MANIFEST.get() {
        Some(manifest) => Ok(manifest),
        None => {
            let manifest = BUILTIN.manifest()?;
            Ok(MANIFEST.get_or_init(|| manifest))
        }
    }
}

/// The kernels that come with this crate, as PTX: `gpu-kernels`. Needs no device.
pub fn builtin_image() -> &'static KernelImage {
    &BUILTIN
}
