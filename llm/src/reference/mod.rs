//! The forward pass on the CPU in f64: what the kernels are compared with.
//!
//! Weights are the exact f32 values of the stored blocks, decoded row by row from the file;
//! everything else is f64 and nothing is rounded, except keys and values if [`KvRounding::F16`] asks for
//! it. With the rounding that the device's cache uses, a comparison shows arithmetic errors alone; without
//! it, it shows them together with the cache's.
//!
//! A [`Reference`] is one sequence with its own cache. It never reads anything of the device path but
//! the file.

mod attention;
mod delta;
mod experts;
mod math;

use crate::model::{Config, LayerTensors, Matrix, ModelFile};
use attention::attend;
use experts::{Routed, feed_forward, shared_expert};
use gpu_kernels::kv::KvType;
use math::{capped, layer_norm, rms_norm, rope};
use rayon::prelude::*;
use std::ops::Range;

/// Whether keys and values are rounded when they are cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvRounding {
    /// Kept as f64.
    None,
    /// To f32, as a cache of f32 does.
    F32,
    /// To f32 and then to f16, both to nearest even, as the kernels do.
    F16,
    /// To codes of -127 to 127 with a scale of f32 for each head of each position: `max |x| / 127`.
    Int8,
}

impl From<KvType> for KvRounding {
    /// What a cache of this type does.
    fn from(kv: KvType) -> KvRounding {
        match kv {
            KvType::F16 => KvRounding::F16,
            KvType::F32 => KvRounding::F32,
            KvType::Int8 => KvRounding::Int8,
        }
    }
}

impl KvRounding {
    /// Rounds one head.
    fn apply(self, head: &mut [f64]) {
        match self {
            KvRounding::None => {}
            KvRounding::F32 => head.iter_mut().for_each(|x| *x = f64::from(*x as f32)),
            KvRounding::F16 => head.iter_mut().for_each(|x| *x = half::f16::from_f32(*x as f32).to_f64()),
            KvRounding::Int8 => {
                let largest = head.iter().fold(0f32, |m, x| m.max((*x as f32).abs()));
                let scale = largest / 127.0;
                for x in head {
                    let code =
                        if scale > 0.0 { (*x as f32 / scale).round_ties_even().clamp(-127.0, 127.0) } else { 0.0 };
                    *x = f64::from(code) * f64::from(scale);
                }
            }
        }
    }
}

/// Why a token cannot be fed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReferenceError {
    /// A tensor cannot be read any more.
    #[error("{problem}")]
    Tensor {
        /// What the file says.
        problem: String,
    },
    /// The token is not in the vocabulary.
    #[error("token {token} is not in the vocabulary of {vocab}")]
    Token {
        /// The token.
        token: u32,
        /// Number of tokens.
        vocab: usize,
    },
    /// A rollback forward.
    #[error("cannot roll back to {to} positions: the sequence has {length}")]
    Rollback {
        /// Positions asked for.
        to: usize,
        /// Positions there are.
        length: usize,
    },
}

/// What a token gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// One number per token of the vocabulary.
    pub logits: Vec<f64>,
    /// The residual stream, in the [scale](Config::embedding_scale) that steps have it in: the embedding, after every layer, and last the normed input of the output
    /// projection, times what logits are scaled with. `layers + 2` vectors of `hidden`.
    pub hidden: Vec<Vec<f64>>,
    /// Layers whose given experts were not taken: others are more fitting by more than the tolerance.
    pub wrong_routes: usize,
}

/// The experts that somebody else gave a position to.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// For each layer, as many as are used.
    pub routes: &'a [Vec<u32>],
    /// How much smaller their products with the router may be than those of the experts that the definition chooses, in standard
    /// deviations of the layer's products.
    pub tolerance: f64,
}

impl Step {
    /// The token of the greatest logit, the lowest among equals.
    pub fn argmax(&self) -> u32 {
        let mut best = 0;
        for (i, v) in self.logits.iter().enumerate() {
            if *v > self.logits[best] {
                best = i;
            }
        }
        best as u32
    }
}

#[derive(Clone, Debug, Default)]
struct LayerCache {
    /// `[position][kv_dim]`, flat.
    k: Vec<f64>,
    v: Vec<f64>,
}

/// A sequence on the CPU. See the module's documentation.
#[derive(Clone, Debug)]
pub struct Reference {
    model: ModelFile,
    rounding: KvRounding,
    cache: Vec<LayerCache>,
    /// Of layers that are delta nets.
    states: Vec<delta::State>,
    length: usize,
    tokens: Vec<u32>,
    /// The states are not behind the last token.
    stale: bool,
}

impl Reference {
    /// An empty sequence.
    pub fn new(model: &ModelFile, rounding: KvRounding) -> Self {
        let cache = vec![LayerCache::default(); model.config().layers];
        let states = vec![delta::State::default(); model.config().layers];
        Reference { model: model.clone(), rounding, cache, states, length: 0, tokens: Vec::new(), stale: false }
    }

    /// Tokens fed so far.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        self.truncate(0);
    }

    /// Forgets all but the first `length` tokens.
    pub fn rollback(&mut self, length: usize) -> Result<(), ReferenceError> {
        if length > self.length {
            return Err(ReferenceError::Rollback { to: length, length: self.length });
        }
        self.truncate(length);
        Ok(())
    }

    /// Keeps the first `length` tokens. The states of delta nets are forgotten: these tokens are fed again before the next one.
    fn truncate(&mut self, length: usize) {
        self.tokens.truncate(length);
        self.states.fill(delta::State::default());
        self.stale = self.model.config().delta.is_some() && length > 0;
        let kept = length * self.model.config().kv_dim();
        for layer in &mut self.cache {
            layer.k.truncate(kept);
            layer.v.truncate(kept);
        }
        self.length = length;
    }

    /// Cached keys (or values) of a layer, `[position][kv_head][head_dim]`, flat.
    pub fn cached(&self, layer: usize) -> Option<(&[f64], &[f64])> {
        self.cache.get(layer).map(|c| (c.k.as_slice(), c.v.as_slice()))
    }

    /// Appends a token and gives the logits of the one after it. There is no limit but memory.
    pub fn feed(&mut self, token: u32) -> Result<Step, ReferenceError> {
        self.feed_routed(token, None)
    }

    /// The same with experts that somebody else chose, where these fit as well as those of the definition.
    pub fn feed_routed(&mut self, token: u32, given: Option<Given<'_>>) -> Result<Step, ReferenceError> {
        let model = self.model.clone();
        let c = model.config();
        if token as usize >= c.vocab {
            return Err(ReferenceError::Token { token, vocab: c.vocab });
        }
        if self.stale {
            self.feed_again()?;
        }
        let step = self.step(&model, c, token, given);
        match step {
            Ok(_) => {
                self.length += 1;
                self.tokens.push(token);
            }
            // Some layers have cached it already.
            Err(_) => self.truncate(self.length),
        }
        step
    }

    /// Brings the states behind the last token, from the first one on.
    fn feed_again(&mut self) -> Result<(), ReferenceError> {
        let tokens = self.tokens.clone();
        self.truncate(0);
        for &token in &tokens {
            if let Err(error) = self.feed(token) {
                // As it was, to be fed again.
                (self.length, self.stale) = (tokens.len(), true);
                self.tokens = tokens;
                return Err(error);
            }
        }
        Ok(())
    }

    fn step(
        &mut self,
        model: &ModelFile,
        c: &Config,
        token: u32,
        given: Option<Given<'_>>,
    ) -> Result<Step, ReferenceError> {
        let mut x = row(model, model.embedding(), token as usize)?;
        x.iter_mut().for_each(|x| *x *= c.embedding_scale);
        if let Some(place) = model.positions().and_then(|all| all.chunks_exact(c.hidden).nth(self.length)) {
            x.iter_mut().zip(place).for_each(|(x, p)| *x += f64::from(*p));
        }
        let mut hidden = vec![x.clone()];
        let mut wrong_routes = 0;
        for layer in 0..c.layers {
            let given = given.and_then(|given| Some((given.routes.get(layer)?, given.tolerance)));
            wrong_routes += usize::from(!self.layer(model, c, layer, &mut x, given)?);
            hidden.push(x.clone());
        }
        let mut h = norm(c, &x, model.output_norm(), model.output_norm_bias());
        let mut logits = product(model, model.output(), &h)?;
        logits.iter_mut().for_each(|x| *x = capped(*x * f64::from(c.logit_scale), c.logit_cap));
        logits.iter_mut().zip(model.output_bias().into_iter().flatten()).for_each(|(x, b)| *x += f64::from(*b));
        h.iter_mut().for_each(|x| *x *= f64::from(c.logit_scale));
        hidden.push(h);
        Ok(Step { logits, hidden, wrong_routes })
    }

    fn layer(
        &mut self,
        model: &ModelFile,
        c: &Config,
        index: usize,
        x: &mut [f64],
        given: Option<Routed<'_>>,
    ) -> Result<bool, ReferenceError> {
        // All of them: a tensor that the definition leaves out does not compile.
        let LayerTensors {
            qkv_bias: _,
            attn_norm,
            attn_norm_bias,
            q: _,
            k: _,
            v: _,
            q_norm: _,
            k_norm: _,
            delta_q: _,
            delta_k: _,
            delta_v: _,
            delta_gate: _,
            delta_beta: _,
            delta_alpha: _,
            delta_conv: _,
            delta_dt: _,
            delta_a: _,
            delta_norm: _,
            sinks: _,
            attn_output,
            attn_output_bias,
            post_attention_norm,
            ffn_norm,
            ffn_norm_bias,
            router,
            router_bias,
            choice_bias,
            shared_router,
            shared_gate,
            shared_up,
            shared_down,
            gate,
            up,
            gate_bias,
            up_bias,
            down,
            down_bias,
            post_ffw_norm,
        } = &model.layers()[index];
        let h = norm(c, x, attn_norm, attn_norm_bias.as_deref());
        // Where both parts read one residual stream, that before either has added to it.
        let before = c.parallel.then(|| x.to_vec());
        let recurrent = delta::attend(model, c, &model.layers()[index], &h, &mut self.states[index])?;
        let attended = recurrent.map_or_else(|| self.attended(model, c, index, &h), Ok)?;
        let mut attended = product(model, attn_output, &attended)?;
        add_bias(&mut attended, attn_output_bias, 0);
        add(x, &normed(attended, post_attention_norm, c));

        // Without a norm of its own the feed-forward part reads what attention read.
        let read = before.as_deref().unwrap_or(x);
        let h = ffn_norm.as_ref().map_or(h, |weight| norm(c, read, weight, ffn_norm_bias.as_deref()));
        let matrices = (gate.as_ref().map(|gate| (gate, gate_bias)), (up, up_bias), (down, down_bias));
        let router = router.as_ref().map(|router| (router, router_bias, choice_bias.as_deref().unwrap_or_default()));
        let (mut out, fits) = feed_forward(model, (c, c.feed_forward_of(index)), matrices, router, &h, given)?;
        if let (Some(gate), Some(up), Some(down)) = (shared_gate, shared_up, shared_down) {
            add(&mut out, &shared_expert(model, c, shared_router.as_ref(), [gate, up, down], &h)?);
        }
        add(x, &normed(out, post_ffw_norm, c));
        Ok(fits)
    }

    /// What a layer's query heads attend to, times their gates.
    fn attended(&mut self, model: &ModelFile, c: &Config, index: usize, h: &[f64]) -> Result<Vec<f64>, ReferenceError> {
        let LayerTensors { qkv_bias, q, k, v, q_norm, k_norm, sinks, .. } = &model.layers()[index];
        let of = |m: &Option<Matrix>| m.as_ref().map_or(Ok(Vec::new()), |m| product(model, m, h));
        let (mut q, mut k, mut v) = (of(q)?, of(k)?, of(v)?);
        let mut gates = Vec::new();
        if c.gate_dim() > 0 {
            // A head's queries, then its gates.
            let heads = q.chunks_exact(2 * c.head_dim);
            gates = heads.clone().flat_map(|head| head[c.head_dim..].to_vec()).collect();
            q = heads.flat_map(|head| head[..c.head_dim].to_vec()).collect();
        }
        if let Some(bias) = qkv_bias {
            let biased = q.iter_mut().chain(&mut k).chain(&mut v);
            biased.zip(bias).for_each(|(x, b)| *x += f64::from(*b));
        }
        for (heads, norm) in [(&mut q, q_norm), (&mut k, k_norm)] {
            for head in heads.chunks_exact_mut(c.head_dim) {
                let behind = c.architecture.norms_behind_rope();
                if let Some(norm) = norm.as_ref().filter(|_| !behind) {
                    head.copy_from_slice(&rms_norm(head, norm, c.eps));
                }
                if let Some(of) = c.rope_of(index) {
                    rope(head, self.length, of, model.rope_freqs().filter(|_| *of == c.rope));
                }
                if let Some(norm) = norm.as_ref().filter(|_| behind) {
                    head.copy_from_slice(&rms_norm(head, norm, c.eps));
                }
            }
        }
        let cache = &mut self.cache[index];
        for heads in [&mut k, &mut v] {
            heads.chunks_exact_mut(c.head_dim).for_each(|head| self.rounding.apply(head));
        }
        cache.k.extend(k);
        cache.v.extend(v);

        let mut attended: Vec<f64> = q
            .par_chunks_exact(c.head_dim)
            .enumerate()
            .flat_map_iter(|(head, q)| {
                let sink = sinks.as_ref().and_then(|sinks| sinks.get(head)).copied();
                attend(q, &self.cache[index], (head / c.group(), index), sink, c)
            })
            .collect();
        attended.iter_mut().zip(&gates).for_each(|(x, gate)| *x /= 1.0 + (-gate).exp());
        Ok(attended)
    }
}

/// A norm of the residual stream.
fn norm(c: &Config, x: &[f64], weight: &[f32], bias: Option<&[f32]>) -> Vec<f64> {
    match c.architecture.layer_norm() {
        true => layer_norm(x, weight, bias, c.eps),
        false => rms_norm(x, weight, c.eps),
    }
}

/// What a part of a layer adds, normed where there is such a norm.
fn normed(y: Vec<f64>, norm: &Option<Vec<f32>>, c: &Config) -> Vec<f64> {
    norm.as_deref().map_or_else(|| y.clone(), |norm| rms_norm(&y, norm, c.eps))
}

/// Adds the bias of the matrix of that number among those of experts, where there is one.
fn add_bias(x: &mut [f64], bias: &Option<Vec<f32>>, number: usize) {
    let rows = x.len();
    let of_matrix = bias.iter().flat_map(|bias| bias.chunks_exact(rows).nth(number)).flatten();
    x.iter_mut().zip(of_matrix).for_each(|(x, b)| *x += f64::from(*b));
}

fn add(x: &mut [f64], y: &[f64]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

/// Bytes of a row. The file was checked: rows are whole blocks.
fn row_bytes(m: &Matrix) -> usize {
    m.cols / m.format.block_elems() * m.format.block_bytes()
}

/// Rows of a matrix, as stored.
fn rows(model: &ModelFile, m: &Matrix, first: usize, count: usize) -> Result<Vec<u8>, ReferenceError> {
    let mut bytes = vec![0; count * row_bytes(m)];
    let read = model.read_rows(m, first..first + count, &mut bytes);
    read.map(|()| bytes).map_err(|error| ReferenceError::Tensor { problem: error.to_string() })
}

fn row(model: &ModelFile, m: &Matrix, row: usize) -> Result<Vec<f64>, ReferenceError> {
    let mut out = vec![0f32; m.cols];
    m.format.decode_blocks(&rows(model, m, row, 1)?, &mut out);
    Ok(out.into_iter().map(f64::from).collect())
}

/// Matrix times vector.
fn product(model: &ModelFile, m: &Matrix, x: &[f64]) -> Result<Vec<f64>, ReferenceError> {
    product_of(model, m, 0..m.rows, x)
}

/// Rows of a matrix times a vector.
fn product_of(
    model: &ModelFile,
    m: &Matrix,
    Range { start, end }: Range<usize>,
    x: &[f64],
) -> Result<Vec<f64>, ReferenceError> {
    /// Rows that are read at a time.
    const PIECE: usize = 32;
    let of_column = |&i: &u32| x.get(i as usize).copied().unwrap_or(f64::NAN);
    let gathered: Option<Vec<f64>> = m.columns.as_ref().map(|columns| columns.iter().map(of_column).collect());
    let x = gathered.as_deref().unwrap_or(x);
    debug_assert_eq!(x.len(), m.cols);
    let pieces = (0..(end - start).div_ceil(PIECE)).into_par_iter().map(|piece| {
        let first = start + piece * PIECE;
        let bytes = rows(model, m, first, PIECE.min(end - first))?;
        Ok(m.format.multiply(&bytes, x))
    });
    Ok(pieces.collect::<Result<Vec<_>, _>>()?.concat())
}
