//! What the devices of each architecture have: the limits of its compute capability, and a GPU that stands for it.

use warpsmith_arch::{Architecture, Gpu};

/// The figures of one architecture.
#[derive(Clone, Copy)]
pub(crate) struct Spec {
    /// Its limits.
    pub arch: &'static Architecture,
    /// The GPU that stands for it.
    pub gpu: &'static Gpu,
}

impl Spec {
    /// The number of the architecture.
    pub fn sm(self) -> u32 {
        self.arch.sm
    }
}

/// Architectures that devices can be of.
pub(crate) fn all() -> impl Iterator<Item = Spec> {
    Gpu::standing().filter_map(|gpu| Some(Spec { arch: gpu.architecture()?, gpu }))
}

pub(crate) fn find(sm: u32) -> Option<Spec> {
    all().find(|s| s.sm() == sm)
}

/// The largest arrays under textures and surfaces (Programming Guide, technical specifications; the same from compute capability
/// 7.5 to 12): device attributes from this one on, and their values.
const ARRAYS: [(i32, &[u32]); 16] = [
    (TEXTURE_1D, &[131_072]),
    (TEXTURE_2D, &[131_072, 65_536]),
    (TEXTURE_3D, &[16_384, 16_384, 16_384]),
    (TEXTURE_2D_LAYERED, &[32_768, 32_768, 2048]),
    (TEXTURE_1D_LAYERED, &[32_768, 2048]),
    (TEXTURE_2D_GATHER, &[32_768, 32_768]),
    (TEXTURE_3D_ALTERNATE, &[8192, 8192, 32_768]),
    (TEXTURE_CUBEMAP, &[32_768]),
    (TEXTURE_CUBEMAP_LAYERED, &[32_768, 2046]),
    (SURFACE_1D, &[32_768]),
    (SURFACE_2D, &[131_072, 65_536]),
    (SURFACE_3D, &[16_384, 16_384, 16_384]),
    (SURFACE_1D_LAYERED, &[32_768, 2048]),
    (SURFACE_2D_LAYERED, &[32_768, 32_768, 2048]),
    (SURFACE_CUBEMAP, &[32_768]),
    (SURFACE_CUBEMAP_LAYERED, &[32_768, 2046]),
];

pub(crate) const TEXTURE_1D: i32 = 21;
pub(crate) const TEXTURE_2D: i32 = 22;
pub(crate) const TEXTURE_3D: i32 = 24;
pub(crate) const TEXTURE_2D_LAYERED: i32 = 27;
pub(crate) const TEXTURE_1D_LAYERED: i32 = 42;
pub(crate) const TEXTURE_2D_GATHER: i32 = 45;
pub(crate) const TEXTURE_3D_ALTERNATE: i32 = 47;
pub(crate) const TEXTURE_CUBEMAP: i32 = 52;
pub(crate) const TEXTURE_CUBEMAP_LAYERED: i32 = 53;
pub(crate) const SURFACE_1D: i32 = 55;
pub(crate) const SURFACE_2D: i32 = 56;
pub(crate) const SURFACE_3D: i32 = 58;
pub(crate) const SURFACE_1D_LAYERED: i32 = 61;
pub(crate) const SURFACE_2D_LAYERED: i32 = 63;
pub(crate) const SURFACE_CUBEMAP: i32 = 66;
pub(crate) const SURFACE_CUBEMAP_LAYERED: i32 = 67;

/// The limits of one kind of array: of width, height and depth, or of width and layers, as far as it has them.
pub(crate) fn array_limits(kind: i32) -> &'static [u32] {
    ARRAYS.iter().find(|(first, _)| *first == kind).map_or(&[], |(_, most)| most)
}

/// The value of an attribute that is one of these limits.
pub(crate) fn array_limit(attribute: i32) -> Option<u32> {
    ARRAYS.iter().find_map(|(first, most)| most.get(usize::try_from(attribute - first).ok()?).copied())
}
