//! The entry points: one for each kind of activations, all of one signature.

#[cfg(not(target_arch = "nvptx64"))]
use super::contract::check;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use super::{ATTEND, at::At, frame, products, quant_of};
use super::{LayerWeights, Sizes, THREADS};
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::format;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::kv::cached::Narrow;
use crate::{layer::Layer, state::Column};
use warpsmith_device::prelude::*;

/// The product of a kind of activations.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
macro_rules! multiply {
    (F32 $args:tt) => { products::multiply $args };
    (I8 $args:tt) => { products::multiply_bytes::<{ quant_of!(I8) }> $args };
    (I16 $args:tt) => { products::multiply_bytes::<{ quant_of!(I16) }> $args };
    (F16 $args:tt) => { products::multiply_halves::<{ quant_of!(F16) }> $args };
    (F16x2 $args:tt) => { products::multiply_halves::<{ quant_of!(F16x2) }> $args };
    (PlanesI8 $args:tt) => { products::multiply_planes::<format::Q1_0, 1, 1, { quant_of!(PlanesI8) }> $args };
    (PlanesI16 $args:tt) => { products::multiply_planes::<format::Q1_0, 2, 1, { quant_of!(PlanesI16) }> $args };
    (PlanesQ2I8 $args:tt) => { products::multiply_planes::<format::Q2_0, 1, 2, { quant_of!(PlanesQ2I8) }> $args };
    (PlanesQ2I16 $args:tt) => { products::multiply_planes::<format::Q2_0, 2, 2, { quant_of!(PlanesQ2I16) }> $args };
}

macro_rules! entry {
    (
        ($kind:ident, $blocks:literal, $name:ident $Name:ident $shared:ident)
        $($argument:ident: ($($ty:tt)*),)*
    ) => {
        /// Layers of a decoding step, for one column over f16 caches.
        #[kernel(block = THREADS, min_blocks = $blocks, family = "layers")]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name($($argument: $($ty)*,)*) {
            let shared = shared_array!($shared: [F32x4; frame::SHARED / size_of::<F32x4>()]);
            let args = super::arguments::Arguments { $($argument),* };
            At { layer: 0, phase: 0, part: 0 }.keep(shared);
            loop {
                let (now, args) = (At::kept(shared), args.anew());
                // The same choice in every thread of the grid.
                if now.phase == ATTEND {
                    frame::attend::<Narrow<f16>, { quant_of!($kind) }>(&args, now, shared);
                } else {
                    multiply! { $kind (&args, now, shared) }
                }
                let (now, args) = (At::kept(shared), args.anew());
                // What is in several parts, a block goes through without a barrier.
                if args.has_behind(now) {
                    now.behind().keep(shared);
                    continue;
                }
                args.ask::<Narrow<f16>, { quant_of!($kind) }>(now);
                now.next().keep(shared);
                if now.next().layer == args.sizes.layers {
                    break;
                }
                grid::sync(args.barrier.ptr_at(0));
            }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        convert! { $Name: persistent::arguments, Given Seen, $($argument)* }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                Geometry::blocks(self.sizes.blocks).cooperative()
            }
            fn check(&self) -> Result<(), ContractError> {
                check(Self::META, super::Instance::$Name, &self.seen())
            }
        }
    };
}

macro_rules! entries {
    (() $($kind:ident: $blocks:literal, $name:ident $Name:ident $shared:ident;)*) => {
        $(arguments! { entry ($kind, $blocks, $name $Name $shared) })*
    };
}

super::kinds! { entries () }
