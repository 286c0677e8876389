//! The gated norm behind the rule, of what [`chunk`](super::chunk) gives: `o / sqrt(mean o^2 + eps) * w * silu(z)`, in place.
//!
//! | | |
//! |---|---|
//! | `projected` | f32, column `n` from `n * stride` on: behind [`channels`](Net::channels) elements that are not read, `z` `[value_heads, dim]` |
//! | `norm` | f32 `[dim]` |
//! | `runs` | a [`Run`] for each sequence; those without [`CHUNKS`](super::CHUNKS) are passed over |
//! | `y` | f32, column `n` from `n * y_stride` on: `[value_heads, dim]`, each head `o` before and the normed one after |
//! | `quant_format`, `quantized`, `group_counters` | `y` as [quantized activations](crate::gemv::quant_format), if they are asked for |
//! | `columns` | columns of the step: those of all runs are below |
//!
//! A warp takes a head of a column. A sum is formed in an order that depends on `dim` alone.

use super::{Net, Run};
use warpsmith_device::prelude::*;

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Tokens of a run that a block takes.
pub const TILE: u32 = 32;

/// The gated norm of what chunks give; a head of a column a warp.
#[kernel(block = THREADS, min_blocks = 4, family = "delta")]
#[allow(clippy::too_many_arguments)]
pub unsafe fn delta_norm(
    projected: Awaited<f32>,
    norm: In<f32>,
    runs: Awaited<Run>,
    y: InOut<f32>,
    quantized: Out<U32x4>,
    group_counters: InOut<u32>,
    columns: u32,
    stride: u32,
    y_stride: u32,
    quant_format: u32,
    net: Net,
) {
    grid::wait_dependencies();
    grid::launch_dependents();
    // The grid has them.
    let _ = columns;
    let run = runs.buffer().at(block::idx_z() as usize);
    let begin = block::idx_y() * TILE;
    if run.flags & super::CHUNKS == 0 || begin >= run.count {
        return;
    }
    let (head, dim) = (block::idx_x() as usize, net.dim as usize);
    let quantizer = OutputQuantizer::asked(quant_format, quantized, group_counters);
    let end = if run.count - begin < TILE { run.count } else { begin + TILE };
    let mut i = begin + warp_index() as u32;
    while i < end {
        let column = run.column(i);
        let row = y.from(column * y_stride as usize);
        let to = row.from(head * dim);
        let z = projected.buffer().from(column * stride as usize + net.channels() + head * dim);
        let mut own = [0.0f32; 4];
        static_for!(j in 0..4 => {
            if 32 * j < dim {
                own[j] = to.get(32 * j + lane());
            }
        });
        gated_norm(own, (z, to), &net, norm);
        if let Some(quantizer) = quantizer {
            quantize(quantizer, row, column, &net, (head, 0, 1));
        }
        i += THREADS / 32;
    }
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::{
    elementwise::silu,
    gemv::quantizer::OutputQuantizer,
    load::{lane, warp_index},
};
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use warpsmith_device::static_for;

/// The norm of a head's results, of which a lane has every 32nd, and its gate, into the column.
///
/// All threads of the warp make this call.
#[device]
pub(super) unsafe fn gated_norm(own: [f32; 4], (z, to): (In<f32>, InOut<f32>), net: &Net, norm: In<f32>) {
    let (dim, mut squares) = (net.dim as usize, 0.0f32);
    static_for!(j in 0..4 => {
        squares = math::fma(own[j], own[j], squares);
    });
    let factor = 1.0 / math::sqrt(warp::sum_f32(squares) / net.dim as f32 + net.eps);
    static_for!(j in 0..4 => {
        if 32 * j < dim {
            let row = 32 * j + lane();
            to.set(row, own[j] * factor * norm.at(row) * silu(z.at(row)));
        }
    });
}

/// Brings the results of a head to be quantized, a group a warp: those from its `first` one on, `step` apart.
///
/// All threads of the warp make this call, which wrote them, or behind a barrier of the block that did.
#[device]
pub(super) unsafe fn quantize(
    quantizer: OutputQuantizer,
    y: InOut<f32>,
    column: usize,
    net: &Net,
    (head, first, step): (usize, u32, u32),
) {
    let (from, to) = (head as u32 * net.dim, (head as u32 + 1) * net.dim);
    let size = quantizer.group();
    let mut group = from / size + first;
    while group * size < to {
        let first = if group * size < from { from } else { group * size };
        let end = if (group + 1) * size < to { (group + 1) * size } else { to };
        quantizer.bring(y.into(), column, net.values() as u32, first, end - first);
        group += step;
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for DeltaNorm<'_> {
    fn geometry(&self) -> Geometry {
        let tiles = u64::from(self.columns.div_ceil(TILE));
        Geometry::grid(self.net.value_heads, tiles, self.runs.len() as u64)
    }
    fn check(&self) -> Result<(), ContractError> {
        let (m, net) = (Self::META, &self.net);
        super::check(m, net, self.runs)?;
        let (columns, values) = (self.columns, (net.values(), "value_heads * dim"));
        super::check_columns(m, "projected", self.projected, (columns, self.stride), (net.projected(), "projected"))?;
        super::check_columns(m, "y", self.y, (columns, self.y_stride), values)?;
        contract::exactly(m, "norm", self.norm.len(), (net.dim, "dim"))?;
        let outputs = crate::gemv::QuantizedOutputs {
            quant_format: self.quant_format,
            quantized: self.quantized,
            group_counters: self.group_counters,
        };
        outputs.check(m, columns, (values.0 as u32, values.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_names_the_argument() {
        let net = Net { layer: 0, key_heads: 1, value_heads: 2, dim: 32, eps: 1e-6, together: 1 };
        // SAFETY: nothing is launched, so nothing reads or writes the memory.
        let launch = |lens: [usize; 3], runs, columns, stride, net| unsafe {
            DeltaNorm {
                projected: DeviceSlice::from_raw(0x20000, lens[0]),
                norm: DeviceSlice::from_raw(0x3000, lens[1]),
                runs: DeviceSlice::<Run>::from_raw(0x4000, runs),
                y: DeviceSlice::from_raw_mut(0x30000, lens[2]),
                quantized: DeviceSlice::empty_mut(),
                group_counters: DeviceSlice::empty_mut(),
                columns,
                stride,
                y_stride: 64,
                quant_format: 0,
                net,
            }
            .check()
        };
        let lens = [396, 32, 128];
        assert!(launch(lens, 1, 2, 200, net).is_ok());
        for (got, argument) in [
            (launch([395, 32, 128], 1, 2, 200, net), "projected"),
            (launch([396, 31, 128], 1, 2, 200, net), "norm"),
            (launch([396, 32, 127], 1, 2, 200, net), "y"),
            (launch(lens, 0, 2, 200, net), "runs"),
            (launch(lens, 1, 0, 200, net), "columns"),
            (launch(lens, 1, 2, 198, net), "stride"),
            (launch(lens, 1, 2, 200, Net { eps: f32::NAN, ..net }), "net"),
        ] {
            assert_eq!(got.unwrap_err().argument, argument);
        }
    }
}
