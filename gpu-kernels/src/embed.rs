//! Embedding: the rows of the tokens that are fed, as f32.
//!
//! | | |
//! |---|---|
//! | `codes`, `scales` (`weights`) | the table `[vocab, cols]` in the planes of [`format`](crate::format) |
//! | `y` | f32 `[columns, cols]`, exactly the decoded weights |
//! | `columns` | [`Column`]; the tokens are read when the kernel runs |
//!
//! A thread takes an element. A token at or past `vocab` gives NaN throughout: the host refuses it
//! before, and no row of the table stands in for it in any case. [`Embed`] picks the entry point.

#[cfg(target_arch = "nvptx64")]
use crate::format::{F16, F32, Q1_0, Q4_0, Q8_0};
use crate::state::Column;
use warpsmith_device::prelude::*;

/// Threads of a block.
pub const THREADS: u32 = 256;

/// The definition: a row of the decoded table.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn reference(table: &[f32], token: usize, cols: usize) -> Vec<f32> {
    table.chunks_exact(cols).nth(token).map_or_else(|| vec![f32::NAN; cols], <[f32]>::to_vec)
}

#[cfg(target_arch = "nvptx64")]
mod frame {
    use super::{Column, THREADS};
    use crate::{
        format::{Block, padded_scales, padded_words, word_position},
        gemv::dense::Dense,
        load::word,
    };
    use warpsmith_device::prelude::*;

    /// Sets this thread's element by `weight(row, element)`.
    #[inline(always)]
    pub unsafe fn set(y: Out<f32>, columns: In<Column>, vocab: u32, cols: u32, weight: impl Fn(usize, usize) -> f32) {
        let c = block::idx_x() as usize * THREADS as usize + thread::idx_x() as usize;
        if c < cols as usize {
            // SAFETY: the grid has a row for each column, and `y` a row of `cols` elements.
            unsafe {
                let column = block::idx_y() as usize;
                let token = columns.at(column).token;
                y.set(column * cols as usize + c, if token < vocab { weight(token as usize, c) } else { f32::NAN });
            }
        }
    }

    #[inline(always)]
    pub unsafe fn of_blocks<F: Block>(codes: In<U32x4>, scales: In<f16>, row: usize, c: usize, cols: usize) -> f32 {
        let blocks = cols / F::ELEMS;
        let words = blocks * F::WORDS;
        let (b, e) = (c / F::ELEMS, c % F::ELEMS);
        let at = row * padded_words(words) + word_position(b * F::WORDS + F::place_of(e), words);
        // SAFETY: within the planes of `vocab` x `cols` that the contract asks for.
        unsafe { convert::f16_to_f32(scales.at(row * padded_scales(blocks) + b)) * F::code(word(codes, at), e) }
    }

    #[inline(always)]
    pub unsafe fn of_dense<F: Dense>(weights: In<U32x4>, row: usize, c: usize, cols: usize) -> f32 {
        let at = row * cols.div_ceil(F::PER_VECTOR) * 4 + F::word_of(c);
        // SAFETY: within the plane of `vocab` x `cols` that the contract asks for.
        F::weight(unsafe { word(weights, at) }, c)
    }
}

macro_rules! blocks {
    ($( $(#[$doc:meta])* $F:ident: $name:ident $Name:ident; )*) => { $(
        $(#[$doc])*
        #[kernel(block = THREADS, min_blocks = 4)]
        pub unsafe fn $name(codes: In<U32x4>, scales: In<f16>, y: Out<f32>, columns: In<Column>, vocab: u32, cols: u32) {
            // SAFETY: `row` is below `vocab` and `c` below `cols`.
            let weight = |row, c| unsafe { frame::of_blocks::<$F>(codes, scales, row, c, cols as usize) };
            frame::set(y, columns, vocab, cols, weight);
        }
        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                Geometry::grid(self.cols.div_ceil(THREADS), self.columns.len() as u64, 1u32)
            }
            fn check(&self) -> Result<(), ContractError> {
                let shape = (self.vocab, self.cols);
                launch::contract_of(Self::META, launch::Format::$F, self.codes, Some(self.scales), self.y, self.columns, shape)
            }
        }
    )* };
}
macro_rules! dense {
    ($( $(#[$doc:meta])* $F:ident: $name:ident $Name:ident; )*) => { $(
        $(#[$doc])*
        #[kernel(block = THREADS, min_blocks = 4)]
        pub unsafe fn $name(weights: In<U32x4>, y: Out<f32>, columns: In<Column>, vocab: u32, cols: u32) {
            // SAFETY: `row` is below `vocab` and `c` below `cols`.
            let weight = |row, c| unsafe { frame::of_dense::<$F>(weights, row, c, cols as usize) };
            frame::set(y, columns, vocab, cols, weight);
        }
        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                Geometry::grid(self.cols.div_ceil(THREADS), self.columns.len() as u64, 1u32)
            }
            fn check(&self) -> Result<(), ContractError> {
                let shape = (self.vocab, self.cols);
                launch::contract_of(Self::META, launch::Format::$F, self.weights, None, self.y, self.columns, shape)
            }
        }
    )* };
}

dense! {
    /// A row of an F32 table.
    F32: embed_f32 EmbedF32;
    /// A row of an F16 table.
    F16: embed_f16 EmbedF16;
}
blocks! {
    /// A row of a Q8_0 table.
    Q8_0: embed_q8_0 EmbedQ80;
    /// A row of a Q4_0 table.
    Q4_0: embed_q4_0 EmbedQ40;
    /// A row of a Q1_0 table.
    Q1_0: embed_q1_0 EmbedQ10;
}

#[cfg(not(target_arch = "nvptx64"))]
pub use launch::Embed;

#[cfg(not(target_arch = "nvptx64"))]
mod launch {
    use super::{EmbedF16, EmbedF32, EmbedQ10, EmbedQ40, EmbedQ80};
    pub use crate::format::Format;
    use crate::state::{self, Column};
    use warpsmith_device::prelude::*;

    /// The contract that all entry points share.
    pub fn contract_of(
        m: &'static KernelMeta,
        format: Format,
        codes: &DeviceSlice<U32x4>,
        scales: Option<&DeviceSlice<f16>>,
        y: &DeviceSlice<f32>,
        columns: &DeviceSlice<Column>,
        (vocab, cols): (u32, u32),
    ) -> Result<(), ContractError> {
        contract::require(m, vocab > 0, "vocab", "at least 1", 0)?;
        contract::require(m, cols > 0, "cols", "at least 1", 0)?;
        contract::multiple_of(m, "cols", cols, (format.block_elems(), "a block"))?;
        let sizes = format
            .plane_sizes(vocab as usize, cols as usize)
            .map_err(|e| contract::error(m, "cols", "a shape that the format allows", e))?;
        let name = if scales.is_some() { "codes" } else { "weights" };
        contract::exactly(m, name, codes.len(), (sizes.codes, "16-byte vectors of vocab * cols"))?;
        if let Some(scales) = scales {
            contract::exactly(m, "scales", scales.len(), (sizes.scales, "rows of blocks, padded to 8"))?;
        }
        state::check_columns(m, columns)?;
        let all = contract::product(m, "y", &[columns.len() as u64, cols.into()])?;
        contract::at_least(m, "y", y.len(), (all, "columns * cols"))
    }

    /// The rows of the tokens of `columns`, from a table of any format.
    pub struct Embed<'a> {
        /// The table's format.
        pub format: Format,
        /// Its codes plane.
        pub codes: &'a DeviceSlice<U32x4>,
        /// Its scales plane; empty for F32 and F16.
        pub scales: &'a DeviceSlice<f16>,
        /// The rows.
        pub y: &'a mut DeviceSlice<f32>,
        /// The tokens.
        pub columns: &'a DeviceSlice<Column>,
        /// Rows of the table.
        pub vocab: u32,
        /// Columns of the table.
        pub cols: u32,
    }

    impl Embed<'_> {
        /// Launches the format's entry point.
        pub fn launch<L: Launcher>(self, launcher: &mut L) -> Result<(), L::Error> {
            let Embed { format, codes, scales, y, columns, vocab, cols } = self;
            match format {
                Format::F32 => launcher.launch(EmbedF32 { weights: codes, y, columns, vocab, cols }),
                Format::F16 => launcher.launch(EmbedF16 { weights: codes, y, columns, vocab, cols }),
                Format::Q8_0 => launcher.launch(EmbedQ80 { codes, scales, y, columns, vocab, cols }),
                Format::Q4_0 => launcher.launch(EmbedQ40 { codes, scales, y, columns, vocab, cols }),
                Format::Q1_0 => launcher.launch(EmbedQ10 { codes, scales, y, columns, vocab, cols }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_is_a_row() {
        assert_eq!(reference(&[1.0, 2.0, 3.0, 4.0], 1, 2), [3.0, 4.0]);
        assert!(reference(&[1.0, 2.0, 3.0, 4.0], 2, 2).iter().all(|v| v.is_nan()));
    }

    #[test]
    fn contract_names_the_argument() {
        // SAFETY: nothing is launched, so nothing reads or writes the memory.
        let launch = |codes, scales, y, columns, cols| unsafe {
            EmbedQ40 {
                codes: DeviceSlice::from_raw(0x1000, codes),
                scales: DeviceSlice::from_raw(0x1000, scales),
                y: DeviceSlice::from_raw_mut(0x8000, y),
                columns: DeviceSlice::from_raw(0x4000, columns),
                vocab: 3,
                cols,
            }
            .check()
        };
        assert!(launch(6, 24, 64, 1, 64).is_ok());
        assert_eq!(launch(7, 24, 64, 1, 64).unwrap_err().argument, "codes");
        assert_eq!(launch(6, 6, 64, 1, 64).unwrap_err().argument, "scales");
        assert_eq!(launch(6, 24, 63, 1, 64).unwrap_err().argument, "y");
        assert_eq!(launch(6, 24, 64, 0, 64).unwrap_err().argument, "columns");
        assert_eq!(launch(6, 24, 64, 1, 48).unwrap_err().argument, "cols");
    }
}
