//! The entry points: two a decoder, all of one signature.

#[cfg(not(target_arch = "nvptx64"))]
use super::parts;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use super::{COLUMNS, arguments::Arguments, frame};
use crate::format;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::load::Launched;
use warpsmith_device::prelude::*;

macro_rules! entry {
    (
        ($(#[$doc:meta])* $F:ident, $N:expr, $UNITS:literal, $min_blocks:literal, $shared:ident, $name:ident $Name:ident)
        $($argument:ident: ($($ty:tt)*),)*
    ) => {
        $(#[$doc])*
        #[kernel(block = 256, min_blocks = $min_blocks, family = "gemv")]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name($($argument: $($ty)*,)*) {
            const N: usize = $N;
            let xs = shared_array!($shared: [F32x4; $N * $UNITS * 8]);
            let args = frame::GemvArgs::of(Arguments { $($argument),* });
            frame::begin::<format::$F>(&args);
            frame::run::<format::$F, N, $UNITS>(&args, Launched, xs);
        }

        #[cfg(not(target_arch = "nvptx64"))]
        convert! { $Name: gemv::arguments, Given Seen, $($argument)* }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                let columns = match $N {
                    1 => self.columns,
                    _ if self.flags & super::EXPERTS != 0 => crate::experts::group::tiles(self.columns, self.matrices),
                    _ => self.columns.div_ceil(super::COLUMNS as u32),
                };
                let blocks = parts(self.rows, self.cols, self.flags & super::SWIGLU != 0);
                super::contract::grid(blocks, columns)
            }
            fn check(&self) -> Result<(), ContractError> {
                super::contract::check::<format::$F>(Self::META, $N, &self.seen())
            }
        }
    };
}

macro_rules! entries {
    (() $(
        $F:ident { $blocks:literal: $gemv:ident $Gemv:ident $s1:ident, $gemm:ident $Gemm:ident $s2:ident } $formats:tt
    )*) => { $(
        arguments! { f32 entry (
            /// A matrix times a vector.
            $F, 1, 128, $blocks, $s1, $gemv $Gemv
        ) }
        arguments! { f32 entry (
            /// A matrix times many vectors, eight a block.
            $F, super::COLUMNS, 32, 1, $s2, $gemm $Gemm
        ) }
    )* };
}

crate::formats! { product entries () }
