//! Products of many columns of activations of eight or 16 bits, on tensor cores: what [`int8`](super::int8) computes, to the bit.
//!
//! A large block of threads has 128 rows of weights and 64 or 128 columns. Codes of weights are taken apart once for all of its
//! columns: they become bytes in shared memory, and the scales f32. Each of the eight warps multiplies 32 or 64 rows with 32 columns
//! (`mma.m16n8k32` of bytes, one or two a unit of 32 columns of weights). What it loads for two units is in registers while two others
//! are multiplied. A small block has 32 rows and 16, 32 or 64 columns, for launches that would have few large ones. Each of its warps has
//! some units and all rows and columns, and takes codes apart in registers, once for all of its columns.
//!
//! The integers of a unit are the same whatever adds them up. What is rounded, the sum over a row's units, is formed in the order
//! that a warp of [`int8`](super::int8) has: for each of its 32 lanes one unit after the other, `l`, `l + 32`, …, and then the
//! sums of the lanes, from the first on. So a column's results do not depend on how many others there are.
//!
//! The arguments are those of [`int8`](super::int8); [`Gemv::quantized`](super::Gemv::quantized) takes these entry points from
//! [`FROM`] columns on, or [`FROM_TABLES`].
//!
//! The instruction: PTX ISA, `mma` with `.s8` operands.

use super::quant_format::BLOCK_ROWS;
#[cfg(not(target_arch = "nvptx64"))]
use super::quant_format::int8::len;
use super::quant_format::int8::{I8Vector, I16Vector};
use crate::format;
use warpsmith_device::prelude::*;

/// Columns from which on products take these entry points. Up to eight cost as many issue slots as two or three of
/// [`int8`](super::int8), or as four where weights are bytes, but as much time as five: on an H200, steps of 12 layers of Qwen3 8B in Q4_K
/// took 0.83 ms with one column, 1.28 with two of `int8`, and 2.60 with four and 2.94 with eight of these.
pub const FROM: u32 = 5;
/// The same for weights that are looked up in a table, which is most of what one column costs.
pub const FROM_TABLES: u32 = 2;
/// Rows of weights of a block of threads.
pub const ROWS: u32 = 128;
/// Columns of a block of threads.
pub const COLUMNS: u32 = 64;
/// Threads of a block.
const THREADS: u32 = 256;
const _: () = assert!(crate::experts::group::TILE <= COLUMNS);

/// Columns of a block of threads with few rows and columns.
const FEW_COLUMNS: u32 = 16;
/// Columns that one with few rows has at most.
const SOME_COLUMNS: u32 = 64;
/// With more columns than this all blocks are large.
#[cfg(not(target_arch = "nvptx64"))]
const MOST_OF_FEW: u32 = 512;
/// Bytes of shared memory of a block with few columns, by which it knows what it is: the sums of half of the classes of units, of which
/// neighbouring columns begin in other banks.
const FEW_SHARED: u32 = 4 * 16 * FEW_COLUMNS * (BLOCK_ROWS + 8);
/// Those of one with more columns, for each of them: the sums of a class of units for each warp.
const SOME_SHARED: u32 = THREADS / 32 * 4 * BLOCK_ROWS;

/// Whether a block with so many bytes of shared memory has few rows and more than few columns.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[inline(always)]
const fn is_some(bytes: usize) -> bool {
    bytes % (SOME_COLUMNS / 2 * SOME_SHARED) as usize == 0
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod few;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
pub(super) mod outputs;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod some;
pub(super) mod staging;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
pub(super) mod tiles;

/// A block's outputs: by its shared memory it knows what it is, and all that it may be end in the same code.
#[device]
unsafe fn product<F: format::decode::Packed, const BYTES: usize>(
    a: super::quantized::QuantizedArgs,
    memory: shared::Shared<U32x4>,
) {
    use super::quantized::{Invocation, QuantizedArgs};
    let few = shared::dynamic_bytes() == FEW_SHARED as usize;
    let small = few || is_some(shared::dynamic_bytes());
    let rows = if small { BLOCK_ROWS } else { ROWS };
    a.begin(THREADS / rows, F::record(a.cols as usize, a.block_units).vectors as u32, false);
    a.wait();
    let mut total = core::mem::MaybeUninit::uninit();
    // Columns with tables have large blocks.
    let one = QuantizedArgs { experts: None, ..a };
    let block = if few {
        few::product::<F, BYTES>(&one, memory.cast())
    } else if small {
        some::product::<F, BYTES>(&one, memory.cast())
    } else if let Some(block) = tiles::product::<F, BYTES>(&a, memory, &mut total) {
        block
    } else {
        return;
    };
    outputs::finish(&a, memory.cast(), block, |to, columns, half| {
        let part = tiles::WarpTile::of(columns, block.columns);
        // Large blocks have come here with their sums.
        outputs::store(total.assume_init_ref(), to, &part, half);
    });
}

#[cfg(not(target_arch = "nvptx64"))]
const fn len_of<const BYTES: u32>(cols: u32) -> u64 {
    len(cols, BYTES)
}

/// Blocks of threads for columns of a matrix of so many rows, with `shared` bytes of shared memory. Where large blocks would be few, a
/// matrix has many with few rows, and with the fewer columns the fewer rows it has: each takes weights apart for itself. Of large ones
/// those with twice as many columns are taken where they are more than half of what an H200 has multiprocessors.
#[cfg(not(target_arch = "nvptx64"))]
fn blocks_of(rows: u32, columns: u32, shared: u64) -> Geometry {
    use super::contract::grid;
    let blocks = |of_rows: u32, of_columns: u32| (rows.div_ceil(of_rows), columns.div_ceil(of_columns));
    let many = |(rows, columns): (u32, u32), least: u64| u64::from(rows) * u64::from(columns) >= least;
    let [some, most] = [COLUMNS, 2 * COLUMNS].map(|columns| blocks(ROWS, columns));
    if columns <= FEW_COLUMNS || columns <= MOST_OF_FEW && !many(some, 100) {
        let enough = |of: &u32| columns > *of / 2 && many(blocks(BLOCK_ROWS, *of), 100);
        let (of, shared) = match [SOME_COLUMNS, SOME_COLUMNS / 2].into_iter().find(enough) {
            Some(of) => (of, of * SOME_SHARED),
            None => (FEW_COLUMNS, FEW_SHARED),
        };
        let (rows, columns) = blocks(BLOCK_ROWS, of);
        return grid(rows, columns).shared(shared);
    }
    let (rows, columns) = if many(most, 67) { most } else { some };
    grid(rows, columns).shared(shared)
}

/// A product of many columns and its contract. `units`: what `block_units` may be; `blocks`: for rows of weights and columns.
macro_rules! gemm {
    (
        (
            $(#[$doc:meta])* $name:ident $Name:ident: $X:ident, $min_blocks:literal, $F:ty, units $units:expr, $len:expr,
            flags $flags:expr, blocks $blocks:path, dynamic $dynamic:expr, $memory:expr, |$args:ident, $m:ident| $body:expr
        )
        $($argument:ident: ($($ty:tt)*),)*
    ) => {
        $(#[$doc])*
        #[kernel(block = THREADS, min_blocks = $min_blocks, family = "gemm")]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name($($argument: $($ty)*,)*) {
            let $m = $memory;
            let $args = super::quantized::QuantizedArgs::of(super::arguments::QuantizedArguments { $($argument),* });
            $body
        }

        #[cfg(not(target_arch = "nvptx64"))]
        convert! { $Name: gemv::arguments, QuantizedGiven QuantizedSeen $X, $($argument)* }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                let stacked = self.rows << u32::from(self.flags & super::SWIGLU != 0);
                if self.flags & super::EXPERTS != 0 {
                    // Each with a tile of columns of one matrix; of blocks of several sizes the large ones.
                    let tiles = crate::experts::group::tiles(self.columns, self.matrices);
                    return super::contract::grid(stacked.div_ceil(ROWS), tiles).shared($dynamic);
                }
                $blocks(stacked, super::contract::pairs(self.columns, self.flags), $dynamic)
            }
            fn check(&self) -> Result<(), ContractError> {
                use super::contract::{Limits, Table, check_quantized};
                let limits = Limits { column: $len(self.cols), flags: $flags, units: $units, table: Table::Tiles };
                check_quantized::<$F, _>(Self::META, &self.seen(), &limits)
            }
        }
    };
}

macro_rules! entry {
    ($F:ident I8: $($rest:tt)*) => { entry! { $F, 1, I8Vector: $($rest)* } };
    ($F:ident I16: $($rest:tt)*) => { entry! { $F, 2, I16Vector: $($rest)* } };
    ($F:ident, $bytes:literal, $X:ident: $gemm:ident $Gemm:ident $shared:ident) => {
        arguments! { quantized $X gemm (
            /// A matrix times many columns of activations of eight or 16 bits.
            $gemm $Gemm: $X, 1, format::$F, units 0..=0, len_of::<$bytes>, flags 0, blocks blocks_of,
            dynamic 16 * staging::shared::<format::$F, $bytes>() as u64,
            shared::dynamic(0, staging::shared::<format::$F, $bytes>()),
            |a, memory| product::<format::$F, $bytes>(a, memory)
        ) }
    };
    ($($other:tt)*) => {};
}

macro_rules! entries {
    (() $($F:ident { $($quant_format:ident: $gemm:ident $Gemm:ident $shared:ident;)* } $formats:tt)*) => {
        $($(entry! { $F $quant_format: $gemm $Gemm $shared })*)*
    };
}

crate::formats! { tensor entries () }
