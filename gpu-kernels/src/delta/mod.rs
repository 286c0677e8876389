//! Gated delta nets: attention in which a sequence's past is a matrix for each head, and not a cache that grows.
//!
//! With `q`, `k`, `v` of a token (of `dim` elements each head), a state `S` of `[dim, dim]` and two gates of the head,
//!
//! ```text
//! S = exp(g) S;   S = S + k (beta (v - S^T k))^T;   o = S^T q / sqrt(dim)
//! beta = 1 / (1 + e^-b),   g = a ln(1 + e^(alpha + dt)),   a < 0
//! ```
//!
//! `q`, `k` and `v` come out of a causal convolution over the last [`KERNEL`] tokens, channel by channel, and SiLU ([`conv`]); `q` and
//! `k` are then divided by their length, which counts as `eps` at least, as ggml has it. What follows is a norm of each head times a
//! gate: `o / sqrt(mean o^2 + eps) * w * silu(z)`. Everything behind the convolution is one launch ([`rule`]), and for long prompts whose
//! bits may be their own two more, on tensor cores ([`chunk`], [`norm`]). There are as many heads of
//! values as of states, and fewer of queries and keys: head `h` has key head `h / together mod key_heads`. [`gate`] is for the layers of full
//! attention between such nets. Sources: Yang, Kautz and Hatamizadeh, arXiv 2412.06464; the convolution and the gates as in Qwen3-Next.
//!
//! A step's columns are tokens of several sequences: a [`Run`] says which are of one, one behind the other, and where its states are before
//! them and shall be after them. Those are two places, so that a step that fails, or whose tokens turn out wrong, has changed nothing.
//! A column's results depend on nothing but its sequence: not on the columns beside it, nor on how its sequence is cut into runs, unless it is
//! in chunks.

pub mod chunk;
pub mod conv;
pub mod gate;
pub mod norm;
pub mod rule;

#[cfg(not(target_arch = "nvptx64"))]
pub mod cases;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod memory;

#[cfg(not(target_arch = "nvptx64"))]
pub use {chunk::DeltaChunks, conv::DeltaConv, gate::GateHeads, norm::DeltaNorm, rule::DeltaRule};

use warpsmith_device::prelude::*;

/// Tokens that a convolution sees: a token and those before it.
pub const KERNEL: u32 = 4;
/// Elements of heads that there are kernels for.
pub const DIMS: [u32; 4] = [32, 64, 96, 128];

/// Flag of a run: nothing came before it, so its states are zeros, and `from` is not read.
pub const FRESH: u32 = 1;
/// Flag of a run: its columns are taken by [`chunk`] and [`norm`], and not by [`rule`].
pub const CHUNKS: u32 = 2;

/// Columns of one sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Element)]
#[repr(C)]
pub struct Run {
    /// The states of all layers before its first column: f32, [`Net::layer_len`] elements a layer; a multiple of 16.
    pub from: DeviceAddress,
    /// Where they go, laid out as `from` and another place; null: the columns are of no sequence, and their results NaN.
    pub to: DeviceAddress,
    /// The first column. The others but the last follow it.
    pub first: u32,
    /// How many there are; none: the run is nothing.
    pub count: u32,
    /// The last column; not read where there is one alone.
    pub last: u32,
    /// [`FRESH`], [`CHUNKS`], and how many tokens of a chunk lie before the first column ([`Run::from_position`]).
    pub flags: u32,
}

/// Where in the flags of a run those tokens are.
const OFFSET: u32 = 8;

const _: () = assert!(size_of::<Run>() == 32 && align_of::<Run>() == 8);

impl Run {
    /// The flags of a run in chunks whose first column is at a position of its sequence.
    #[inline(always)]
    #[must_use]
    pub const fn from_position(position: u32) -> u32 {
        CHUNKS | (position % chunk::CHUNK) << OFFSET
    }

    /// Tokens of a chunk that lie before the first column.
    #[inline(always)]
    #[must_use]
    pub const fn offset(&self) -> u32 {
        (self.flags >> OFFSET) % chunk::CHUNK
    }

    /// The column of token `i`.
    #[inline(always)]
    pub const fn column(&self, i: u32) -> usize {
        (if i > 0 && i + 1 == self.count { self.last } else { self.first + i }) as usize
    }
}

/// The sizes of a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
#[repr(C)]
pub struct Net {
    /// Its number among the layers that have states.
    #[varies]
    pub layer: u32,
    /// Heads of queries, and of keys.
    pub key_heads: u32,
    /// Heads of values, and of states; a multiple of `key_heads`.
    pub value_heads: u32,
    /// Elements of a head: one of [`DIMS`].
    pub dim: u32,
    /// The least length of a query or a key, and the epsilon of the norm.
    pub eps: f32,
    /// So many heads of values side by side have one key head, the next ones the next; behind the last key head comes the first one again.
    pub together: u32,
}

impl Net {
    /// The key head of a head of values.
    #[inline(always)]
    pub const fn key_head(&self, head: u32) -> u32 {
        head / self.together % self.key_heads
    }

    /// Elements of all values.
    #[inline(always)]
    pub const fn values(&self) -> usize {
        self.value_heads as usize * self.dim as usize
    }

    /// Elements of all queries, keys and values, which are what is convolved.
    #[inline(always)]
    pub const fn channels(&self) -> usize {
        2 * self.key_heads as usize * self.dim as usize + self.values()
    }

    /// Elements of a column as it is projected: queries, keys and values; `z`; `b` of each head; `alpha` of each head.
    #[inline(always)]
    pub const fn projected(&self) -> usize {
        self.channels() + self.values() + 2 * self.value_heads as usize
    }

    /// Elements of a layer's state: the last inputs of the convolution, `[KERNEL - 1, channels]`, and `[value_heads, dim, dim]`, the
    /// transposed state of each head.
    #[inline(always)]
    pub const fn layer_len(&self) -> usize {
        self.inputs() + self.values() * self.dim as usize
    }

    /// Elements of the first of these.
    #[inline(always)]
    pub(crate) const fn inputs(&self) -> usize {
        (KERNEL as usize - 1) * self.channels()
    }

    /// Elements before this layer's.
    #[inline(always)]
    pub(crate) const fn before(&self) -> usize {
        self.layer as usize * self.layer_len()
    }
}

#[cfg(not(target_arch = "nvptx64"))]
mod check {
    use super::{DIMS, Net, Run};
    use warpsmith_device::prelude::*;

    /// Sizes that the kernels take, and runs: at least one, and not more than a grid has rows.
    pub fn check(m: &'static KernelMeta, net: &Net, runs: &DeviceSlice<Run>) -> Result<(), ContractError> {
        contract::require(
            m,
            DIMS.contains(&net.dim),
            "net",
            format_args!("dim one of {DIMS:?}: a block holds a head's state in registers"),
            net.dim,
        )?;
        contract::require(m, net.key_heads > 0, "net", "at least 1 key head (key_heads)", 0)?;
        contract::require(m, net.together > 0, "net", "at least 1 value head a key head (together)", 0)?;
        let each = u64::from(net.key_heads) * u64::from(net.together);
        let whole = net.value_heads > 0 && u64::from(net.value_heads).is_multiple_of(each);
        let wanted = format_args!("value_heads a multiple of {each} (key_heads * together)");
        contract::require(m, whole, "net", wanted, net.value_heads)?;
        // Channels are counted in 32 bits.
        let most = 1 << 16;
        contract::require(
            m,
            net.value_heads <= most,
            "net",
            format_args!("at most {most} value_heads"),
            net.value_heads,
        )?;
        let eps = net.eps;
        contract::require(m, eps >= 0.0 && eps.is_finite(), "net", "eps finite, not negative", eps)?;
        contract::within(m, "runs", runs.len(), 1u32, (Geometry::MAX_GRID[1], "rows of a grid"))
    }

    /// A buffer of columns that are loaded four elements at a time.
    pub fn check_columns(
        m: &'static KernelMeta,
        name: &'static str,
        slice: &DeviceSlice<f32>,
        (columns, stride): (u32, u32),
        part: (usize, &'static str),
    ) -> Result<(), ContractError> {
        contract::within(m, "columns", columns, 1u32, i32::MAX)?;
        crate::state::check_strided(m, name, slice.len(), (columns as usize, stride), (part.0 as u64, part.1))?;
        contract::multiple_of(m, name, (slice.address(), "its address"), 16u32)?;
        contract::multiple_of(m, "stride", stride, (4u32, "elements are loaded by fours"))
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub(crate) use check::{check, check_columns};

/// A layer of one sequence in f64: the definition, token by token.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Debug)]
pub struct Reference {
    /// Its sizes.
    pub net: Net,
    /// The last inputs of the convolution, `[KERNEL - 1, channels]`.
    pub inputs: Vec<f64>,
    /// The state of each head, `[value_heads, value element, key element]`.
    pub states: Vec<f64>,
}

/// The weights of a layer.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy, Debug)]
pub struct LayerVectors<'a> {
    /// `[channels, KERNEL]`; the last of a channel is the newest token's.
    pub conv: &'a [f32],
    /// `[value_heads]`.
    pub a: &'a [f32],
    /// `[value_heads]`.
    pub dt: &'a [f32],
    /// `[dim]`.
    pub norm: &'a [f32],
}

#[cfg(not(target_arch = "nvptx64"))]
impl Reference {
    /// Nothing came before.
    #[must_use]
    pub fn new(net: Net) -> Reference {
        Reference { net, inputs: vec![0.0; net.inputs()], states: vec![0.0; net.values() * net.dim as usize] }
    }

    /// What the convolution makes of a token's queries, keys and values, which it remembers.
    pub fn convolve(&mut self, x: &[f64], conv: &[f32]) -> Vec<f64> {
        let (channels, kernel) = (self.net.channels(), KERNEL as usize);
        let of = |c: usize| {
            let before = (0..kernel - 1).map(|j| f64::from(conv[c * kernel + j]) * self.inputs[j * channels + c]);
            let sum = before.sum::<f64>() + f64::from(conv[c * kernel + kernel - 1]) * x[c];
            sum / (1.0 + (-sum).exp())
        };
        let y = (0..channels).map(of).collect();
        self.inputs.drain(..channels);
        self.inputs.extend_from_slice(&x[..channels]);
        y
    }

    /// A token: its projected column in, the gated heads out.
    pub fn feed(&mut self, column: &[f64], weights: LayerVectors<'_>) -> Vec<f64> {
        let mixed = self.convolve(column, weights.conv);
        self.rule(&mixed, column, weights)
    }

    /// The same behind the convolution.
    pub fn rule(&mut self, mixed: &[f64], column: &[f64], weights: LayerVectors<'_>) -> Vec<f64> {
        let (net, dim) = (self.net, self.net.dim as usize);
        let (channels, values, heads) = (net.channels(), net.values(), net.value_heads as usize);
        let mut out = Vec::with_capacity(values);
        for h in 0..heads {
            let key_head = net.key_head(h as u32) as usize;
            let of = |at: usize| &mixed[at * dim..][..dim];
            let unit = |x: &[f64]| {
                let length = x.iter().map(|x| x * x).sum::<f64>().sqrt().max(f64::from(net.eps));
                x.iter().map(|x| x / length).collect::<Vec<_>>()
            };
            let (q, k) = (unit(of(key_head)), unit(of(net.key_heads as usize + key_head)));
            let v = of(2 * net.key_heads as usize + h);
            let beta = 1.0 / (1.0 + (-column[channels + values + h]).exp());
            let alpha = column[channels + values + heads + h] + f64::from(weights.dt[h]);
            // ln(1 + e^alpha), without its overflow.
            let softplus = alpha.max(0.0) + (-alpha.abs()).exp().ln_1p();
            let decay = (f64::from(weights.a[h]) * softplus).exp();
            let mut o = Vec::with_capacity(dim);
            for (value, row) in v.iter().zip(self.states[h * dim * dim..].chunks_exact_mut(dim)) {
                row.iter_mut().for_each(|s| *s *= decay);
                let known: f64 = row.iter().zip(&k).map(|(s, k)| s * k).sum();
                row.iter_mut().zip(&k).for_each(|(s, k)| *s += k * beta * (value - known));
                o.push(row.iter().zip(&q).map(|(s, q)| s * q).sum::<f64>() / (dim as f64).sqrt());
            }
            let scale = 1.0 / (o.iter().map(|o| o * o).sum::<f64>() / dim as f64 + f64::from(net.eps)).sqrt();
            for (i, o) in o.iter().enumerate() {
                let z = column[channels + h * dim + i];
                out.push(o * scale * f64::from(weights.norm[i]) * z / (1.0 + (-z).exp()));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One head of 32 elements of which only the first are not zero: what is left is arithmetic of a few numbers.
    #[test]
    fn reference_is_the_definition() {
        let net = Net { layer: 0, key_heads: 1, value_heads: 1, dim: 32, eps: 0.0, together: 1 };
        let mut reference = Reference::new(net);
        let mut mixed = vec![0.0; 96];
        // q = (3, 4) of length 5, k = (0, 2), v = (10, 1).
        (mixed[0], mixed[1], mixed[33], mixed[64], mixed[65]) = (3.0, 4.0, 2.0, 10.0, 1.0);
        let mut column = vec![0.0; net.projected()];
        // z = 0 of all but the first two; b = 0, so beta is a half; alpha + dt = 0, so softplus is ln 2.
        (column[96], column[97]) = (1.0, 2.0);
        let (a, norm, conv) = ([-1.0f32], [2.0f32; 32], [0.0f32; 384]);
        let weights = LayerVectors { conv: &conv, a: &a, dt: &[0.0], norm: &norm };
        let once = reference.rule(&mixed, &column, weights);
        // S^T is (0, 5; 0, 0.5) after the first token, and o = S^T q / sqrt(32) = (4, 0.4) / sqrt(32).
        let silu = |z: f64| z / (1.0 + (-z).exp());
        let root = ((4.0f64.powi(2) + 0.4f64.powi(2)) / 32.0).sqrt();
        assert!((once[0] - 2.0 * 4.0 / root * silu(1.0)).abs() < 1e-12, "{}", once[0]);
        assert!((once[1] - 2.0 * 0.4 / root * silu(2.0)).abs() < 1e-12);
        assert_eq!((reference.states[1], reference.states[33], reference.states[0]), (5.0, 0.5, 0.0));
        // exp(-ln 2) halves it: 2.5, and half of what is missing to 10 is added.
        reference.rule(&mixed, &column, weights);
        assert!((reference.states[1] - 6.25).abs() < 1e-12, "{}", reference.states[1]);
    }

    #[test]
    fn the_convolution_sees_the_last_four_tokens() {
        let net = Net { layer: 0, key_heads: 1, value_heads: 1, dim: 32, eps: 0.0, together: 1 };
        let mut reference = Reference::new(net);
        let mut conv = vec![0.0f32; 4 * net.channels()];
        conv[20..24].copy_from_slice(&[1.0, 10.0, 100.0, 1000.0]);
        let sums: Vec<f64> = (1..=6)
            .map(|t| {
                let mut x = vec![0.0; net.channels()];
                x[5] = f64::from(t);
                reference.convolve(&x, &conv)[5]
            })
            .collect();
        // SiLU of numbers so large is the number.
        assert_eq!(sums, [1000.0, 2100.0, 3210.0, 4321.0, 5432.0, 6543.0]);
    }

    #[test]
    fn heads_of_values_share_key_heads_in_turn_or_side_by_side() {
        let net = Net { key_heads: 2, value_heads: 8, together: 1, ..Net::default() };
        let of = |net: Net| (0..8).map(|h| net.key_head(h)).collect::<Vec<_>>();
        assert_eq!(of(net), [0, 1, 0, 1, 0, 1, 0, 1]);
        assert_eq!(of(Net { together: 4, ..net }), [0, 0, 0, 0, 1, 1, 1, 1]);
    }

    #[test]
    fn a_run_ends_where_it_says() {
        let run = Run { first: 3, count: 4, last: 9, ..Run::default() };
        assert_eq!((0..4).map(|i| run.column(i)).collect::<Vec<_>>(), [3, 4, 5, 9]);
        assert_eq!(Run { count: 1, ..run }.column(0), 3);
    }
}
