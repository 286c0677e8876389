//! The gated delta rule, and the gated norm of its results; the formula is the [module's](super).
//!
//! | | |
//! |---|---|
//! | `mixed` | f32, column `n` from `n * mixed_stride` on: queries `[key_heads, dim]`, keys `[key_heads, dim]`, values `[value_heads, dim]`, as [`conv`](super::conv) writes them |
//! | `projected` | f32, column `n` from `n * stride` on: behind [`channels`](Net::channels) elements that are not read, `z` `[value_heads, dim]`, `b` `[value_heads]`, `alpha` `[value_heads]` |
//! | `a`, `dt` | f32 `[value_heads]` |
//! | `norm` | f32 `[dim]` |
//! | `runs` | a [`Run`] for each sequence; those in chunks are passed over, and their columns not written |
//! | `y` | f32, column `n` from `n * y_stride` on: `[value_heads, dim]`; NaN in columns of no sequence |
//! | `quant_format`, `quantized`, `group_counters` | `y` as [quantized activations](crate::gemv::quant_format), if they are asked for |
//! | `columns` | columns of the step: those of all runs are below |
//!
//! A block takes a head of a run, and holds its state in registers over all columns: it is read once and written once. Eight lanes
//! have a row of the transposed state, that of an element of the values, so that a sum over keys is three shuffles. What a token gives is
//! `decay S^T q + (k . q) beta (v - decay S^T k)`, so that nothing of it waits for the new state, and the next token's queries, keys and values are
//! loaded meanwhile; norms are those of [`BATCH`] tokens at a time, a warp each. A sum is formed in an
//! order that depends on `dim` alone. Per token the state is off by `3e-7 dim` of the largest of `|S|` and `|v|` at most, and less than that is
//! handed on, as the state decays. A NaN of a column stays in its sequence.
//!
//! Tokens of a prompt pass one after the other here, so that a sequence has the bits that it has from steps, wherever it is cut. Runs with
//! [`CHUNKS`](super::CHUNKS) are passed over: [`chunk`](super::chunk) takes 16 of their tokens at a time, with the same sums in another order.
//! So it has other bits than steps, and others again where chunks begin elsewhere, which only prompts whose bits may be their own can have.

use super::{Net, Run};
use warpsmith_device::prelude::*;

/// Threads of a block: a head of a run.
pub const THREADS: u32 = 256;
/// Rows of the state that a lane has a part of, of the largest heads.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
const ROWS: usize = 4;
/// Tokens whose results are normed at a time, a warp each.
pub const BATCH: u32 = THREADS / 32;
/// Elements of the largest heads.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
const MAX_DIM: usize = 128;

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
const _: () = assert!(BATCH as usize * MAX_DIM == 1024, "the results of a batch in shared memory");
/// From one of these to the next: so many rows the lanes of the block have at a time.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
const STEP: usize = THREADS as usize / 8;

/// The gated delta rule and the norm behind it; a head of a sequence a block, its state in registers.
#[kernel(block = THREADS, min_blocks = 1, family = "delta")]
#[allow(clippy::too_many_arguments)]
pub unsafe fn delta_rule(
    mixed: Awaited<f32>,
    projected: Awaited<f32>,
    a: In<f32>,
    dt: In<f32>,
    norm: In<f32>,
    runs: Awaited<Run>,
    y: InOut<f32>,
    quantized: Out<U32x4>,
    group_counters: InOut<u32>,
    columns: u32,
    mixed_stride: u32,
    stride: u32,
    y_stride: u32,
    quant_format: u32,
    net: Net,
) {
    let results = shared_array!(DELTA_RULE: [f32; 1024]);
    grid::wait_dependencies();
    grid::launch_dependents();
    // A bound of the columns of runs, for the contract.
    let _ = columns;
    let head = block::idx_x() as usize;
    let key_head = net.key_head(head as u32) as usize;
    let run = runs.buffer().at(block::idx_y() as usize);
    if run.flags & super::CHUNKS != 0 {
        return;
    }
    let quantizer = OutputQuantizer::asked(quant_format, quantized, group_counters);
    let dim = net.dim as usize;
    let (part, first_row) = (lane() % 8, 4 * warp_index() + lane() / 8);
    let of_sequence = !run.to.is_null();
    let at = net.before() + net.inputs() + head * dim * dim;
    // Row `first_row + STEP r` of the state, and of it the elements `4 part + 32 i` and the three behind it.
    let mut state: StateRows = [[[0.0; 4]; 4]; ROWS];
    if of_sequence && run.count > 0 && run.flags & super::FRESH == 0 {
        static_for!(r in 0..ROWS => {
            static_for!(i in 0..4 => {
                if first_row + STEP * r < dim && 32 * i < dim {
                    state[r][i] = load4(run.from, at + (first_row + STEP * r) * dim + 32 * i + 4 * part);
                }
            });
        });
    }
    let weights = DecayWeights { a: a.at(head), dt: dt.at(head) };
    let read = |t: u32| unsafe {
        let column = run.column(t);
        let x = mixed.buffer().from(column * mixed_stride as usize);
        let gates = projected.buffer().from(column * stride as usize + net.channels());
        TokenInputs::read((x, gates), &net, ([head, key_head], part, first_row))
    };
    let mut next = if of_sequence && run.count > 0 { read(0) } else { TokenInputs::NONE };
    let mut t = 0;
    while t < run.count {
        let end = if run.count - t < BATCH { run.count } else { t + BATCH };
        let mut i = t;
        while of_sequence && i < end {
            let now = next;
            if i + 1 < run.count {
                next = read(i + 1);
            }
            let o = token(&mut state, &now, &net, &weights);
            static_for!(r in 0..ROWS => {
                // One of the eight lanes of a row.
                if part == r && first_row + STEP * r < dim {
                    results.set((i - t) as usize * MAX_DIM + first_row + STEP * r, o[r]);
                }
            });
            i += 1;
        }
        sync::block();
        if t + (warp_index() as u32) < end {
            let column = run.column(t + warp_index() as u32);
            let to = y.from(column * y_stride as usize + head * dim);
            let z = projected.buffer().from(column * stride as usize + net.channels() + head * dim);
            if of_sequence {
                let mut own = [0.0f32; 4];
                static_for!(j in 0..4 => {
                    if 32 * j < dim {
                        own[j] = results.get(warp_index() * MAX_DIM + 32 * j + lane());
                    }
                });
                gated_norm(own, (z, to), &net, norm);
            } else {
                let mut row = lane();
                while row < dim {
                    to.set(row, f32::NAN);
                    row += 32;
                }
            }
        }
        sync::block();
        if let Some(quantizer) = quantizer {
            let mut i = t;
            while i < end {
                let column = run.column(i);
                let of_warp = (head, warp_index() as u32, THREADS / 32);
                quantize(quantizer, y.from(column * y_stride as usize), column, &net, of_warp);
                i += 1;
            }
        }
        t = end;
    }
    if of_sequence && run.count > 0 {
        static_for!(r in 0..ROWS => {
            static_for!(i in 0..4 => {
                if first_row + STEP * r < dim && 32 * i < dim {
                    store4(run.to, at + (first_row + STEP * r) * dim + 32 * i + 4 * part, state[r][i]);
                }
            });
        });
    }
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use super::{
    memory::{load4, store4},
    norm::{gated_norm, quantize},
};
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::{
    gemv::quantizer::OutputQuantizer,
    load::{lane, warp_index},
};
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use warpsmith_device::{static_for, warp::reduce_group};

/// What of a layer's weights a block reads.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[derive(Clone, Copy)]
struct DecayWeights {
    a: f32,
    dt: f32,
}

/// The part of a lane of some rows of a state.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
type StateRows = [[[f32; 4]; 4]; ROWS];

/// What a token brings, the part of a lane.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[derive(Clone, Copy)]
struct TokenInputs {
    /// Elements `4 part + 32 i` and the three behind it of query and key; zeros behind the last.
    q: [[f32; 4]; 4],
    k: [[f32; 4]; 4],
    /// Of the lane's rows; zeros for rows that there are not.
    value: [f32; ROWS],
    /// What beta and the decay are made of.
    b: f32,
    alpha: f32,
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
impl TokenInputs {
    const NONE: TokenInputs =
        TokenInputs { q: [[0.0; 4]; 4], k: [[0.0; 4]; 4], value: [0.0; ROWS], b: 0.0, alpha: 0.0 };

    #[inline(always)]
    unsafe fn read(
        (x, gates): (In<f32>, In<f32>),
        net: &Net,
        ([head, key_head], part, first_row): ([usize; 2], usize, usize),
    ) -> TokenInputs {
        let (dim, key_heads) = (net.dim as usize, net.key_heads as usize);
        let (values, heads) = (net.values(), net.value_heads as usize);
        let mut of = TokenInputs::NONE;
        unsafe {
            static_for!(i in 0..4 => {
                if 32 * i < dim {
                    of.q[i] = x.load4(key_head * dim + 32 * i + 4 * part).0;
                    of.k[i] = x.load4((key_heads + key_head) * dim + 32 * i + 4 * part).0;
                }
            });
            static_for!(r in 0..ROWS => {
                let row = first_row + STEP * r;
                if row < dim {
                    of.value[r] = x.at((2 * key_heads + head) * dim + row);
                }
            });
            of.b = gates.at(values + head);
            of.alpha = gates.at(values + heads + head);
        }
        of
    }
}

/// Takes a token into the state; the results of the lane's rows.
///
/// All threads of the block make this call.
#[device]
unsafe fn token(state: &mut StateRows, now: &TokenInputs, net: &Net, weights: &DecayWeights) -> [f32; ROWS] {
    let TokenInputs { q, k, value, b, alpha } = *now;
    let (mut q_square, mut k_square, mut both) = (0.0f32, 0.0f32, 0.0f32);
    static_for!(i in 0..4 => {
        q_square = dot(q[i], q[i], q_square);
        k_square = dot(k[i], k[i], k_square);
        both = dot(k[i], q[i], both);
    });
    let q_square = reduce_group::<8, f32>(q_square, |a, b| a + b);
    let k_square = reduce_group::<8, f32>(k_square, |a, b| a + b);
    let both = reduce_group::<8, f32>(both, |a, b| a + b);
    let q_factor = 1.0 / (longer(math::sqrt(q_square), net.eps) * math::sqrt(net.dim as f32));
    let k_factor = 1.0 / longer(math::sqrt(k_square), net.eps);
    let beta = math::sigmoid(b);
    let decay = math::exp(weights.a * softplus(alpha + weights.dt));
    let mut results = [0.0f32; ROWS];
    static_for!(r in 0..ROWS => {
        let (mut known, mut read) = (0.0, 0.0);
        static_for!(i in 0..4 => {
            known = dot(state[r][i], k[i], known);
            read = dot(state[r][i], q[i], read);
        });
        let known = reduce_group::<8, f32>(known, |a, b| a + b);
        let read = reduce_group::<8, f32>(read, |a, b| a + b);
        let missing = beta * (value[r] - decay * k_factor * known) * k_factor;
        static_for!(i in 0..4 => {
            for e in 0..4 {
                state[r][i][e] = math::fma(k[i][e], missing, decay * state[r][i][e]);
            }
        });
        results[r] = math::fma(both, missing, decay * read) * q_factor;
    });
    results
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[inline(always)]
fn dot(a: [f32; 4], b: [f32; 4], sum: f32) -> f32 {
    math::fma(a[0], b[0], math::fma(a[1], b[1], math::fma(a[2], b[2], math::fma(a[3], b[3], sum))))
}

/// A length, or the least that counts. Not `max`, which would drop a NaN.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[inline(always)]
fn longer(length: f32, least: f32) -> f32 {
    if length < least { least } else { length }
}

/// `ln(1 + e^x)`; from 20 on that is `x` in f32.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[inline(always)]
pub(super) fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { math::ln(1.0 + math::exp(x)) }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for DeltaRule<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::grid(self.net.value_heads, self.runs.len() as u64, 1u32)
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
        contract::exactly(m, "dt", self.dt.len(), heads)?;
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
        let launch = |lens: [usize; 3], vectors: [usize; 3], runs, columns, stride, net| unsafe {
            DeltaRule {
                mixed: DeviceSlice::from_raw(0x10000, lens[0]),
                projected: DeviceSlice::from_raw(0x20000, lens[1]),
                a: DeviceSlice::from_raw(0x1000, vectors[0]),
                dt: DeviceSlice::from_raw(0x2000, vectors[1]),
                norm: DeviceSlice::from_raw(0x3000, vectors[2]),
                runs: DeviceSlice::<Run>::from_raw(0x4000, runs),
                y: DeviceSlice::from_raw_mut(0x30000, lens[2]),
                quantized: DeviceSlice::empty_mut(),
                group_counters: DeviceSlice::empty_mut(),
                columns,
                mixed_stride: 128,
                stride,
                y_stride: 64,
                quant_format: 0,
                net,
            }
            .check()
        };
        let (lens, vectors) = ([256, 396, 128], [2, 2, 32]);
        assert_eq!(net.projected(), 196);
        assert!(launch(lens, vectors, 1, 2, 200, net).is_ok());
        for (got, argument) in [
            (launch([255, 396, 128], vectors, 1, 2, 200, net), "mixed"),
            (launch([256, 395, 128], vectors, 1, 2, 200, net), "projected"),
            (launch([256, 396, 127], vectors, 1, 2, 200, net), "y"),
            (launch(lens, [1, 2, 32], 1, 2, 200, net), "a"),
            (launch(lens, [2, 3, 32], 1, 2, 200, net), "dt"),
            (launch(lens, [2, 2, 31], 1, 2, 200, net), "norm"),
            (launch(lens, vectors, 0, 2, 200, net), "runs"),
            (launch(lens, vectors, 1, 0, 200, net), "columns"),
            (launch(lens, vectors, 1, 2, 192, net), "stride"),
            (launch(lens, vectors, 1, 2, 198, net), "stride"),
            (launch(lens, vectors, 1, 2, 200, Net { dim: 48, ..net }), "net"),
            (launch(lens, vectors, 1, 2, 200, Net { key_heads: 0, ..net }), "net"),
            (launch(lens, vectors, 1, 2, 200, Net { value_heads: 3, key_heads: 2, ..net }), "net"),
            (launch(lens, vectors, 1, 2, 200, Net { together: 0, ..net }), "net"),
            (launch(lens, vectors, 1, 2, 200, Net { together: 4, ..net }), "net"),
            (launch(lens, vectors, 1, 2, 200, Net { eps: f32::NAN, ..net }), "net"),
        ] {
            assert_eq!(got.unwrap_err().argument, argument);
        }
    }
}
