//! The gated delta rule of prompts, 16 tokens at a time, on tensor cores; what it gives is normed by [`norm`](super::norm).
//!
//! | | |
//! |---|---|
//! | `mixed` | f32, column `n` from `n * mixed_stride` on: queries `[key_heads, dim]`, keys `[key_heads, dim]`, values `[value_heads, dim]`, as [`conv`](super::conv) writes them |
//! | `projected` | f32, column `n` from `n * stride` on: behind [`channels`](Net::channels) elements and `z`, which are not read, `b` `[value_heads]`, `alpha` `[value_heads]` |
//! | `a`, `dt` | f32 `[value_heads]` |
//! | `runs` | a [`Run`] for each sequence; those without [`CHUNKS`](super::CHUNKS) are passed over |
//! | `y` | f32, column `n` from `n * y_stride` on: `o` of all heads, `[value_heads, dim]` |
//! | `columns` | columns of the step: those of all runs are below |
//!
//! With the state `S` before a chunk, its tokens' `k` and `q` of length 1, and `D_i` the product of the decays up to token `i`,
//!
//! ```text
//! u_i = beta_i (v_i - D_i S^T k_i - sum_{j < i} D_i / D_j (k_i . k_j) u_j)
//! o_i = (D_i S^T q_i + sum_{j <= i} D_i / D_j (q_i . k_j) u_j) / sqrt(dim)
//! S = D_16 S + sum_j D_16 / D_j k_j u_j^T
//! ```
//!
//! which is the rule, token by token, with its sums in another order (Yang, Kautz and Hatamizadeh, arXiv 2412.06464, section 3.3; the
//! triangular system is solved for each element of the values, and not inverted). `D_i / D_j` is the product of the decays between
//! them: it is formed as such, so that no logarithm and no quotient is, and decays may be as small as they like.
//!
//! Columns of the state, an element of the values each, have nothing to do with one another: a block takes [`SLICE`] of a head's, so that
//! a head of 128 elements is four blocks, and each of its four warps has 32 keys of them in registers. What a warp's keys give of
//! `S^T k`, `S^T q`, `k . k` and `q . k` are products of tensor cores, as is what a chunk adds to the state; they are added up over warps,
//! and a warp solves the system, an element of the values a lane, in f32. The next chunk is loaded meanwhile.
//!
//! Factors of tensor cores are of f16, and an f32 is two of these, the second of which is what the first leaves of it; what is left
//! out is the product of the two second ones. Keys and queries are multiplied by 2^8, and states and what is added to them by a power of two
//! that follows from the largest of a warp, which nobody sees: it cancels. So a factor is off by 2^-22 of itself, or 2^-27 of the largest of its
//! warp, and a product by 2^-20 of its factors' lengths at most. Per chunk the state and the results are off by `3e-7 dim` of the largest of
//! `|S|` and `|v|` at most, as those of [`rule`](super::rule) per token, and less than that is handed on, as the state decays and a token takes from it what it
//! has of the token's key. Over 4096 tokens, of which one head keeps 99.9 %
//! and another 93 % each, results are off by 1.7e-6 at most, in the last quarter as in the first, and states by 9e-7 where the largest is 1.2.
//!
//! Of a prompt of 512 tokens, 16 heads of keys and 32 of values of 128 elements, that is 28.3 M instructions of warps, the norm among them, in place of
//! 92.9 M, and sectors of 138 MB in place of 188 MB, in 128 blocks in place of 32, counted by the software driver.
//!
//! A run's chunks begin where its sequence has a multiple of [`CHUNK`] tokens, and at its first token. So what a sequence gets depends on where it is
//! cut into runs, but for cuts at these multiples, and on nothing beside it. A NaN stays in its sequence, and leaves what is before it as it was.

use super::{Net, Run};
use warpsmith_device::prelude::*;

/// Threads of a block.
pub const THREADS: u32 = 128;
/// Tokens of a chunk.
pub const CHUNK: u32 = 16;
/// Elements of the values that a block takes.
pub const SLICE: u32 = 32;

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod device;

/// The gated delta rule of prompts, without a norm; a slice of a head of a sequence a block, its state in registers.
#[kernel(block = THREADS, min_blocks = 2, family = "delta")]
#[allow(clippy::too_many_arguments)]
pub unsafe fn delta_chunks(
    mixed: Awaited<f32>,
    projected: Awaited<f32>,
    a: In<f32>,
    dt: In<f32>,
    runs: Awaited<Run>,
    y: Out<f32>,
    columns: u32,
    mixed_stride: u32,
    stride: u32,
    y_stride: u32,
    net: Net,
) {
    let memory = device::ChunkMemory::declared();
    grid::wait_dependencies();
    grid::launch_dependents();
    // A bound of the columns of runs, for the contract.
    let _ = columns;
    let run = runs.buffer().at(block::idx_y() as usize);
    if run.flags & super::CHUNKS == 0 || run.count == 0 {
        return;
    }
    let place = device::HeadSlice::of(&net);
    let given = device::BlockInputs {
        mixed: mixed.buffer(),
        mixed_stride: mixed_stride as usize,
        gates: projected.buffer().from(net.channels() + net.values()),
        stride: stride as usize,
        a: a.at(place.head),
        dt: dt.at(place.head),
        net,
        run,
        place,
    };
    device::all(&given, &memory, y, y_stride as usize);
}

/// Whether a device of compute capability `sm` has what the kernel is made of; those before would refuse it.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn on_tensor_cores(sm: u32) -> bool {
    sm >= 75
}

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for DeltaChunks<'_> {
    fn geometry(&self) -> Geometry {
        let slices = u64::from(self.net.value_heads) * u64::from(self.net.dim / SLICE);
        Geometry::grid(slices, self.runs.len() as u64, 1u32)
    }
    fn check(&self) -> Result<(), ContractError> {
        let (m, net) = (Self::META, &self.net);
        super::check(m, net, self.runs)?;
        let (columns, values) = (self.columns, (net.values(), "value_heads * dim"));
        super::check_columns(m, "mixed", self.mixed, (columns, self.mixed_stride), (net.channels(), "channels"))?;
        super::check_columns(m, "projected", self.projected, (columns, self.stride), (net.projected(), "projected"))?;
        super::check_columns(m, "y", self.y, (columns, self.y_stride), values)?;
        let heads = (net.value_heads, "value_heads");
        contract::exactly(m, "a", self.a.len(), heads)?;
        contract::exactly(m, "dt", self.dt.len(), heads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_names_the_argument() {
        let net = Net { layer: 0, key_heads: 1, value_heads: 2, dim: 64, eps: 1e-6, together: 1 };
        // SAFETY: nothing is launched, so nothing reads or writes the memory.
        let launch = |lens: [usize; 3], vectors: [usize; 2], runs, columns, stride, net| unsafe {
            DeltaChunks {
                mixed: DeviceSlice::from_raw(0x10000, lens[0]),
                projected: DeviceSlice::from_raw(0x20000, lens[1]),
                a: DeviceSlice::from_raw(0x1000, vectors[0]),
                dt: DeviceSlice::from_raw(0x2000, vectors[1]),
                runs: DeviceSlice::<Run>::from_raw(0x4000, runs),
                y: DeviceSlice::from_raw_mut(0x30000, lens[2]),
                columns,
                mixed_stride: 256,
                stride,
                y_stride: 128,
                net,
            }
            .check()
        };
        let (lens, vectors) = ([512, 780, 256], [2, 2]);
        assert_eq!(net.projected(), 388);
        assert!(launch(lens, vectors, 1, 2, 392, net).is_ok());
        for (got, argument) in [
            (launch([511, 780, 256], vectors, 1, 2, 392, net), "mixed"),
            (launch([512, 779, 256], vectors, 1, 2, 392, net), "projected"),
            (launch([512, 780, 255], vectors, 1, 2, 392, net), "y"),
            (launch(lens, [1, 2], 1, 2, 392, net), "a"),
            (launch(lens, [2, 3], 1, 2, 392, net), "dt"),
            (launch(lens, vectors, 0, 2, 392, net), "runs"),
            (launch(lens, vectors, 1, 0, 392, net), "columns"),
            (launch(lens, vectors, 1, 2, 390, net), "stride"),
            (launch(lens, vectors, 1, 2, 392, Net { dim: 48, ..net }), "net"),
        ] {
            assert_eq!(got.unwrap_err().argument, argument);
        }
    }
}
