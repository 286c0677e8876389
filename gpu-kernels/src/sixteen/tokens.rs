//! From tokens to tensors of f16 and of bf16, and back.
//!
//! [`EmbeddingF16`]: `y[n, c] = table[ids[n], c]`, of a table `[vocab, cols]` as files of models hold it. Ids are read when the kernel runs; one
//! at or past `vocab` gives NaN throughout, and no row of the table stands in for it. Places are counted in 64 bits.
//!
//! [`ArgmaxF16`]: `y[r]` is the index of the largest of `n` logits from `r * stride` on, by the rules of
//! [`argmax`]: the lowest index of equal ones, never a NaN, [`NONE`](crate::sampling::NONE) where all are.

#[cfg(not(target_arch = "nvptx64"))]
use super::SPAN;
use super::THREADS;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::real::Real;
use crate::sampling::argmax;
use warpsmith_device::prelude::*;

/// This thread's elements of the row of a token.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[device]
unsafe fn look_up<T: Real>(table: In<T>, ids: In<u32>, y: Out<T>, vocab: u32, cols: u32) {
    let column = block::idx_y() as usize;
    let id = ids.at(column);
    let known = id < vocab;
    let from = table.ptr().add(if known { id as usize * cols as usize } else { 0 });
    let to = y.ptr().add(column * cols as usize);
    // SAFETY: eight elements of the row, of addresses that are multiples of 16. An unknown token reads the first and drops it.
    let eight = |i: usize| unsafe {
        let row = (*from.add(i).cast::<U32x4>()).0;
        // Two elements of a word are NaN in both types.
        *to.add(i).cast::<U32x4>() = U32x4(row.map(|word| if known { word } else { 0x7fff_7fff }));
    };
    // SAFETY: an element of the row.
    let one = |i: usize| unsafe { *to.add(i) = if known { *from.add(i) } else { T::narrow(f32::NAN) } };
    super::spread::spread(cols, from.addr() | to.addr(), eight, one);
}

macro_rules! kernels {
    ($($T:ident: $embedding:ident $Embedding:ident, $argmax:ident $Argmax:ident;)*) => { $(
        /// The rows of tokens.
        #[kernel(block = THREADS, min_blocks = 4, family = "sixteen")]
        pub unsafe fn $embedding(table: In<$T>, ids: In<u32>, y: Out<$T>, vocab: u32, cols: u32) {
            look_up(table, ids, y, vocab, cols);
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Embedding<'_> {
            fn geometry(&self) -> Geometry {
                Geometry::grid(self.cols.div_ceil(SPAN), self.ids.len() as u64, 1u32)
            }
            fn check(&self) -> Result<(), ContractError> {
                let (m, ids) = (Self::META, self.ids.len());
                contract::within(m, "cols", self.cols, 1u32, i32::MAX)?;
                contract::require(m, self.vocab > 0, "vocab", "at least 1", 0)?;
                contract::within(m, "ids", ids, 1u32, (Geometry::MAX_GRID[1], "rows of a grid"))?;
                let table = contract::product(m, "table", &[self.vocab.into(), self.cols.into()])?;
                contract::exactly(m, "table", self.table.len(), (table, "vocab * cols"))?;
                let rows = contract::product(m, "y", &[ids as u64, self.cols.into()])?;
                contract::exactly(m, "y", self.y.len(), (rows, "a row for each of `ids`"))
            }
        }

        /// Index of the largest of each row, a block a row.
        #[kernel(block = argmax::THREADS, min_blocks = 1, family = "sixteen")]
        pub unsafe fn $argmax(x: In<$T>, y: Out<u32>, n: u32, stride: u32) {
            argmax::column(x, y, n, stride);
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Argmax<'_> {
            fn geometry(&self) -> Geometry {
                Geometry::blocks(self.y.len() as u64)
            }
            fn check(&self) -> Result<(), ContractError> {
                contract::at_least(Self::META, "y", self.y.len(), 1u32)?;
                argmax::check_rows(Self::META, "x", self.x, (self.y.len(), self.n, self.stride))
            }
        }
    )* };
}

kernels! {
    f16: embedding_f16 EmbeddingF16, argmax_f16 ArgmaxF16;
    bf16: embedding_bf16 EmbeddingBf16, argmax_bf16 ArgmaxBf16;
}
