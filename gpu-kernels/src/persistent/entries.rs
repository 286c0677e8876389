//! The entry points: one a type of cache, all of one signature.

#[cfg(not(target_arch = "nvptx64"))]
use super::contract::check;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use super::frame;
use super::{Sizes, THREADS};
use crate::{layer::Layer, state::Column};
use warpsmith_device::prelude::*;

macro_rules! entry {
    (($(#[$doc:meta])* $T:ty, $name:ident $Name:ident $shared:ident) $($argument:ident: ($($ty:tt)*),)*) => {
        $(#[$doc])*
        #[kernel(block = THREADS, min_blocks = 2, family = "layer")]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name($($argument: $($ty)*,)*) {
            let shared = shared_array!($shared: [F32x4; frame::SHARED / size_of::<F32x4>()]);
            frame::layer::<$T>(super::arguments::Arguments { $($argument),* }, shared);
        }

        #[cfg(not(target_arch = "nvptx64"))]
        convert! { $Name: persistent::arguments, Given Seen, $($argument)* }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                Geometry::blocks(self.sizes.blocks).cooperative()
            }
            fn check(&self) -> Result<(), ContractError> {
                check(Self::META, &self.seen())
            }
        }
    };
}

macro_rules! entries {
    ($($(#[$doc:meta])* $T:ty: $name:ident $Name:ident $shared:ident;)*) => {
        $(arguments! { entry ($(#[$doc])* $T, $name $Name $shared) })*
    };
}

entries! {
    /// A layer of a decoding step, for one column over f16 caches.
    f16: layer_f16 LayerF16 LAYER_F16;
}
