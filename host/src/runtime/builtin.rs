//! The kernels that come with this crate: `gpu-kernels`, compiled by the build script.

use super::{Error, KernelImage, Manifest};
use std::sync::OnceLock;

static BUILTIN: KernelImage = crate::include_kernels!("gpu_kernels");

/// The image of this library, if it is the one that comes with this crate.
pub fn image(library: &str) -> Option<&'static KernelImage> {
    (library == BUILTIN.library()).then_some(&BUILTIN)
}

/// What the builder says about the kernels that come with this crate. Needs no device.
pub fn kernels() -> Result<&'static Manifest, Error> {
    static MANIFEST: OnceLock<Manifest> = OnceLock::new();
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
