//! A causal convolution over the last [`KERNEL`] tokens, channel by channel, and SiLU: `y[t, c] = silu(sum_j w[c, j] x[t - 3 + j, c])`.
//!
//! | | |
//! |---|---|
//! | `x` | f32, column `n` from `n * x_stride` on: its first [`channels`](Net::channels) elements |
//! | `weight` | f32 `[channels, KERNEL]`; the last of a channel is the newest token's |
//! | `runs` | a [`Run`] for each sequence |
//! | `y` | f32, column `n` from `n * y_stride` on: `[channels]` |
//! | `columns` | columns of the step: those of all runs are below |
//!
//! Of the states it reads and writes the last inputs. Columns of no sequence are not written. A thread takes a channel of up to
//! [`TILE`] tokens of a run; results are off by `2^-20` of the sum of the products' magnitudes.

use super::{KERNEL, Net, Run};
use warpsmith_device::prelude::*;

/// Threads of a block: so many channels.
pub const THREADS: u32 = 256;
/// Tokens of a run that a block takes.
pub const TILE: u32 = 32;

const _: () = assert!(TILE >= KERNEL - 1, "a block finds what it needs of the tile before among the columns");

/// A convolution over the last four tokens and SiLU; a channel a thread.
#[kernel(block = THREADS, min_blocks = 4, family = "delta")]
#[allow(clippy::too_many_arguments)]
pub unsafe fn delta_conv(
    x: Awaited<f32>,
    weight: In<f32>,
    runs: Awaited<Run>,
    y: Out<f32>,
    columns: u32,
    x_stride: u32,
    y_stride: u32,
    net: Net,
) {
    grid::wait_dependencies();
    grid::launch_dependents();
    // The grid has them.
    let _ = columns;
    let (x, run) = (x.buffer(), runs.buffer().at(block::idx_z() as usize));
    let channel = (block::idx_x() * THREADS + thread::idx_x()) as usize;
    let begin = block::idx_y() * TILE;
    if channel < net.channels() && begin < run.count && !run.to.is_null() {
        let end = if run.count - begin < TILE { run.count } else { begin + TILE };
        let w = weight.load4(KERNEL as usize * channel).0;
        let at = net.before() + channel;
        let input = |i: u32| unsafe { x.at(run.column(i) * x_stride as usize + channel) };
        // The three inputs before, the oldest first.
        let mut last = [0.0f32; 3];
        if begin > 0 {
            last = [input(begin - 3), input(begin - 2), input(begin - 1)];
        } else if run.flags & super::FRESH == 0 {
            let before = |j: usize| unsafe { load(run.from, at + j * net.channels()) };
            last = [before(0), before(1), before(2)];
        }
        let mut i = begin;
        while i < end {
            let new = input(i);
            let sum = math::fma(w[0], last[0], math::fma(w[1], last[1], math::fma(w[2], last[2], w[3] * new)));
            y.set(run.column(i) * y_stride as usize + channel, silu(sum));
            last = [last[1], last[2], new];
            i += 1;
        }
        if end == run.count {
            for j in 0..3 {
                store(run.to, at + j * net.channels(), last[j]);
            }
        }
    }
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use super::memory::{load, store};
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::elementwise::silu;

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for DeltaConv<'_> {
    fn geometry(&self) -> Geometry {
        let blocks = (self.net.channels() as u64).div_ceil(THREADS.into());
        Geometry::grid(blocks, u64::from(self.columns.div_ceil(TILE)), self.runs.len() as u64)
    }
    fn check(&self) -> Result<(), ContractError> {
        let (m, channels) = (Self::META, self.net.channels());
        super::check(m, &self.net, self.runs)?;
        super::check_columns(m, "x", self.x, (self.columns, self.x_stride), (channels, "channels"))?;
        super::check_columns(m, "y", self.y, (self.columns, self.y_stride), (channels, "channels"))?;
        contract::exactly(m, "weight", self.weight.len(), (u64::from(KERNEL) * channels as u64, "KERNEL * channels"))?;
        contract::multiple_of(m, "weight", (self.weight.address(), "its address"), 16u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_names_the_argument() {
        let net = Net { layer: 0, key_heads: 1, value_heads: 2, dim: 32, eps: 1e-6, together: 1 };
        // SAFETY: nothing is launched, so nothing reads or writes the memory.
        let launch = |x, weight, y, runs, x_stride| unsafe {
            DeltaConv {
                x: DeviceSlice::from_raw(0x10000, x),
                weight: DeviceSlice::from_raw(0x1000, weight),
                runs: DeviceSlice::<Run>::from_raw(0x4000, runs),
                y: DeviceSlice::from_raw_mut(0x30000, y),
                columns: 2,
                x_stride,
                y_stride: 128,
                net,
            }
            .check()
        };
        assert!(launch(328, 512, 256, 1, 200).is_ok());
        for (got, argument) in [
            (launch(327, 512, 256, 1, 200), "x"),
            (launch(328, 511, 256, 1, 200), "weight"),
            (launch(328, 512, 255, 1, 200), "y"),
            (launch(328, 512, 256, 0, 200), "runs"),
            (launch(328, 512, 256, 1, 124), "stride"),
        ] {
            assert_eq!(got.unwrap_err().argument, argument);
        }
    }
}
