//! Rotary position embedding of queries and keys, with or without a norm of each head before it.
//!
//! Pair `i < n_rot / 2` of a head turns by `theta_i = position / linear * base^(-2i / n_rot) / factor_i`:
//! `a' = a cos - b sin`, `b' = b cos + a sin`. [`Yarn`] scales some pairs only, and multiplies cosine and sine; that is all
//! in the tables.
//!
//! | | |
//! |---|---|
//! | `qk` | f32 `[columns]` of `[q_heads + k_heads, head_dim]`, in place: all query heads, then all key heads |
//! | `q_weight`, `k_weight` | f32 `[head_dim]`; [`QkNormRope`] first takes `x / sqrt(mean x^2 + eps) * weight` over each head |
//! | `cos`, `sin` | f32 `[context, n_rot / 2]` from [`rope_tables`] |
//! | `columns` | a [`Column`] for each; its position is read when the kernel runs |
//! | `stride` | where column `c` of `qk` starts: `c * stride` |
//! | `n_rot` | even, up to `head_dim`; elements past it pass through (after the norm) |
//! | `neox` | 1: the pair is `(x[i], x[i + n_rot / 2])` (Qwen, GPT-NeoX); 0: `(x[2i], x[2i + 1])` (Llama in GGUF) |
//!
//! A warp takes a head. A position at or past `context` changes nothing.
//! Source: Su et al., arXiv 2104.09864; the conventions are those of GGUF files.

#[cfg(not(target_arch = "nvptx64"))]
use crate::state;
use crate::state::Column;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::{
    head::{Turn, turned},
    load::warp_index,
};
use warpsmith_device::prelude::*;

/// Heads that a block takes: one a warp.
pub const HEADS_PER_BLOCK: u32 = 4;

/// Cosines and sines of every position and pair.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Debug, PartialEq)]
pub struct RopeTables {
    /// `[context, n_rot / 2]`
    pub cos: Vec<f32>,
    /// `[context, n_rot / 2]`
    pub sin: Vec<f32>,
}

/// YaRN: pairs that turn often within the original context keep their angles, those that turn less than once are scaled,
/// those between are mixed, and all are stretched a little. Source: Peng et al., arXiv 2309.00071; names, limits and the
/// stretch as in ggml's `rope_yarn` and `ggml_rope_yarn_corr_dims`.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yarn {
    /// Positions that the model was first trained with.
    pub original_context: f64,
    /// How much of the unscaled angle the fast pairs take (1: all); 0: linear scaling without stretch.
    pub ext_factor: f64,
    /// Cosines and sines are multiplied by this, and by `1 + 0.1 ln(linear)`.
    pub attn_factor: f64,
    /// Pairs that turn more often than this are not scaled.
    pub beta_fast: f64,
    /// Pairs that turn less often than this are scaled fully.
    pub beta_slow: f64,
}

/// How far pair `i` turns from one position to the next, and what its cosine and sine are multiplied by, in f64.
#[cfg(not(target_arch = "nvptx64"))]
fn frequency(
    i: usize,
    n_rot: usize,
    base: f64,
    factors: Option<&[f32]>,
    linear: f64,
    yarn: Option<&Yarn>,
) -> (f64, f64) {
    let factor = factors.and_then(|f| f.get(i)).map_or(1.0, |f| f64::from(*f));
    let unscaled = base.powf(-2.0 * i as f64 / n_rot as f64) / factor;
    let Some(y) = yarn else { return (unscaled / linear, 1.0) };
    if y.ext_factor == 0.0 {
        return (unscaled / linear, y.attn_factor);
    }
    // The pair that turns `beta` times within the original context.
    let dims = n_rot as f64;
    let pair = |beta: f64| dims * (y.original_context / (beta * std::f64::consts::TAU)).ln() / (2.0 * base.ln());
    let (low, high) = (pair(y.beta_fast).floor().max(0.0), pair(y.beta_slow).ceil().min(dims - 1.0));
    let share = (1.0 - ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0)) * y.ext_factor;
    (unscaled * ((1.0 - share) / linear + share), y.attn_factor * (1.0 + 0.1 * linear.ln()))
}

/// The tables that the kernels read: angles in f64, rounded once.
///
/// `factors` are the model's `rope_freqs` (`n_rot / 2` of them), `linear` its linear scaling factor
/// (1: none). Factors past the end of a list that is too short count as 1.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn rope_tables(context: usize, n_rot: usize, base: f64, factors: Option<&[f32]>, linear: f64) -> RopeTables {
    yarn_tables(context, n_rot, base, factors, linear, None)
}

/// As [`rope_tables`], with `linear` applied as YaRN does.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn yarn_tables(
    context: usize,
    n_rot: usize,
    base: f64,
    factors: Option<&[f32]>,
    linear: f64,
    yarn: Option<&Yarn>,
) -> RopeTables {
    let pairs: Vec<(f64, f64)> = (0..n_rot / 2).map(|i| frequency(i, n_rot, base, factors, linear, yarn)).collect();
    let len = context * pairs.len();
    let mut tables = RopeTables { cos: Vec::with_capacity(len), sin: Vec::with_capacity(len) };
    for position in 0..context {
        for (frequency, stretch) in &pairs {
            let (sin, cos) = (position as f64 * frequency).sin_cos();
            tables.cos.push((cos * stretch) as f32);
            tables.sin.push((sin * stretch) as f32);
        }
    }
    tables
}

/// What the reference needs to know besides the data.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy, Debug)]
pub struct Rotation<'a> {
    /// Elements of a head.
    pub head_dim: usize,
    /// Elements of a head that turn.
    pub n_rot: usize,
    /// Which elements form a pair.
    pub neox: bool,
    /// Base of the frequencies.
    pub base: f64,
    /// Divisors of the angles.
    pub factors: Option<&'a [f32]>,
    /// Linear scaling of positions.
    pub linear: f64,
    /// How it is applied, if not to all pairs alike.
    pub yarn: Option<Yarn>,
}

/// The definition in f64: every head of `x` turned, after the norm with `(weight, eps)` if there is one.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn reference(x: &[f32], position: usize, norm: Option<(&[f32], f32)>, r: &Rotation<'_>) -> Vec<f64> {
    let mut y = Vec::with_capacity(x.len());
    for head in x.chunks_exact(r.head_dim) {
        let mut v: Vec<f64> = head.iter().map(|v| f64::from(*v)).collect();
        if let Some((weight, eps)) = norm {
            let mean = v.iter().map(|v| v * v).sum::<f64>() / v.len() as f64;
            let scale = 1.0 / (mean + f64::from(eps)).sqrt();
            v.iter_mut().zip(weight).for_each(|(v, w)| *v *= scale * f64::from(*w));
        }
        for i in 0..r.n_rot / 2 {
            let (frequency, stretch) = frequency(i, r.n_rot, r.base, r.factors, r.linear, r.yarn.as_ref());
            let (sin, cos) = (position as f64 * frequency).sin_cos();
            let (sin, cos) = (sin * stretch, cos * stretch);
            let (ia, ib) = if r.neox { (i, i + r.n_rot / 2) } else { (2 * i, 2 * i + 1) };
            let (a, b) = (v[ia], v[ib]);
            (v[ia], v[ib]) = (a * cos - b * sin, b * cos + a * sin);
        }
        y.extend(v);
    }
    y
}

/// The head of this warp, where it starts, and its position; `None` for warps past the last head, and where the
/// position is past the tables.
#[device]
unsafe fn place(
    columns: In<Column>,
    stride: u32,
    heads: u32,
    head_dim: usize,
    context: u32,
) -> Option<(u32, usize, usize)> {
    let head = block::idx_x() * HEADS_PER_BLOCK + warp_index() as u32;
    let column = block::idx_y() as usize;
    // SAFETY: the grid has a row for each column.
    let position = unsafe { columns.at(column) }.position;
    let at = column * stride as usize + head as usize * head_dim;
    if head < heads && position < context { Some((head, at, position as usize)) } else { None }
}

/// Rotary embedding alone, a warp a head.
#[kernel(block = 32 * HEADS_PER_BLOCK, min_blocks = 4, addresses = "ignored")]
pub unsafe fn rope(
    qk: InOut<f32>,
    cos: In<f32>,
    sin: In<f32>,
    columns: In<Column>,
    stride: u32,
    heads: u32,
    head_dim: u32,
    n_rot: u32,
    neox: u32,
    context: u32,
) {
    if let Some((_, at, position)) = place(columns, stride, heads, head_dim as usize, context) {
        let (head_dim, n_rot) = (head_dim as usize, n_rot as usize);
        // Without a norm, the weight is not read.
        let (weight, norm, eps, neox) = (cos, false, 0.0, neox != 0);
        let turn = Turn { weight, norm, eps, cos, sin, position, head_dim, n_rot, neox };
        // SAFETY: within the head, of which this warp alone has hold.
        turned(&turn, |d| unsafe { qk.get(at + d) }, |d, v| unsafe { qk.set(at + d, v) });
    }
}

/// RMS norm of each head and rotary embedding, a warp a head.
#[kernel(block = 32 * HEADS_PER_BLOCK, min_blocks = 4, addresses = "ignored")]
pub unsafe fn qk_norm_rope(
    qk: InOut<f32>,
    q_weight: In<f32>,
    k_weight: In<f32>,
    cos: In<f32>,
    sin: In<f32>,
    columns: In<Column>,
    stride: u32,
    q_heads: u32,
    k_heads: u32,
    head_dim: u32,
    n_rot: u32,
    neox: u32,
    context: u32,
    eps: f32,
) {
    if let Some((head, at, position)) = place(columns, stride, q_heads + k_heads, head_dim as usize, context) {
        let (head_dim, n_rot) = (head_dim as usize, n_rot as usize);
        let (weight, norm, neox) = (if head < q_heads { q_weight } else { k_weight }, true, neox != 0);
        let turn = Turn { weight, norm, eps, cos, sin, position, head_dim, n_rot, neox };
        // SAFETY: within the head, of which this warp alone has hold.
        turned(&turn, |d| unsafe { qk.get(at + d) }, |d, v| unsafe { qk.set(at + d, v) });
    }
}

#[cfg(not(target_arch = "nvptx64"))]
struct Shapes<'a> {
    qk: &'a DeviceSlice<f32>,
    cos: &'a DeviceSlice<f32>,
    sin: &'a DeviceSlice<f32>,
    columns: &'a DeviceSlice<Column>,
    stride: u32,
    heads: u64,
    head_dim: u32,
    n_rot: u32,
    neox: u32,
    context: u32,
}

#[cfg(not(target_arch = "nvptx64"))]
fn contract_of(m: &'static KernelMeta, heads: &'static str, s: &Shapes<'_>) -> Result<(), ContractError> {
    contract::within(m, heads, s.heads, 1u32, i32::MAX)?;
    contract::require(m, s.head_dim > 0, "head_dim", "at least 1", 0)?;
    contract::multiple_of(m, "n_rot", s.n_rot, 2u32)?;
    contract::within(m, "n_rot", s.n_rot, 0u32, (s.head_dim, "head_dim"))?;
    contract::within(m, "neox", s.neox, (0u32, "adjacent"), (1u32, "halves"))?;
    contract::require(m, s.context > 0, "context", "at least 1", 0)?;
    let qk = contract::product(m, "qk", &[s.heads, s.head_dim.into()])?;
    state::check_columns(m, s.columns)?;
    state::check_strided(m, "qk", s.qk.len(), (s.columns.len(), s.stride), (qk, "heads * head_dim"))?;
    let table = contract::product(m, "cos", &[s.context.into(), u64::from(s.n_rot / 2)])?;
    contract::exactly(m, "cos", s.cos.len(), (table, "context * n_rot / 2"))?;
    contract::exactly(m, "sin", s.sin.len(), (table, "context * n_rot / 2"))?;
    Ok(())
}

#[cfg(not(target_arch = "nvptx64"))]
fn geometry_of(heads: u64, columns: &DeviceSlice<Column>) -> Geometry {
    Geometry::grid(heads.div_ceil(u64::from(HEADS_PER_BLOCK)), columns.len() as u64, 1u32)
}

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for Rope<'_> {
    fn geometry(&self) -> Geometry {
        geometry_of(self.heads.into(), self.columns)
    }
    fn check(&self) -> Result<(), ContractError> {
        let Rope { qk, cos, sin, columns, stride, heads, head_dim, n_rot, neox, context } = self;
        let (heads, stride, head_dim, n_rot, neox, context) =
            (u64::from(*heads), *stride, *head_dim, *n_rot, *neox, *context);
        contract_of(
            Self::META,
            "heads",
            &Shapes { qk, cos, sin, columns, stride, heads, head_dim, n_rot, neox, context },
        )
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for QkNormRope<'_> {
    fn geometry(&self) -> Geometry {
        geometry_of(u64::from(self.q_heads) + u64::from(self.k_heads), self.columns)
    }
    fn check(&self) -> Result<(), ContractError> {
        let QkNormRope { qk, cos, sin, columns, stride, head_dim, n_rot, neox, context, .. } = self;
        let (stride, head_dim, n_rot, neox, context) = (*stride, *head_dim, *n_rot, *neox, *context);
        let heads = u64::from(self.q_heads) + u64::from(self.k_heads);
        let m = Self::META;
        contract_of(m, "q_heads", &Shapes { qk, cos, sin, columns, stride, heads, head_dim, n_rot, neox, context })?;
        contract::exactly(m, "q_weight", self.q_weight.len(), (head_dim, "head_dim"))?;
        contract::exactly(m, "k_weight", self.k_weight.len(), (head_dim, "head_dim"))?;
        let eps = self.eps;
        contract::require(m, eps >= 0.0 && eps.is_finite(), "eps", "a finite number, not negative", eps)
    }
}

/// The cases of these kernels.
#[cfg(not(target_arch = "nvptx64"))]
pub mod cases {
    use super::{QkNormRope, Rope, Rotation, Yarn, reference, yarn_tables};
    use crate::cases::{Bench, Listed, Measured, NamedSizes, Outcome, Plain, Rng, Shape, close, why};
    use crate::state::Column;

    /// Heads of queries and of keys, elements of a head, and those of them that turn; whether pairs are halves; and a position.
    fn shapes() -> impl Iterator<Item = ([usize; 4], usize, usize)> {
        let heads = [
            [4, 2, 64, 64],
            [1, 1, 2, 2],
            [5, 1, 128, 64],
            [3, 3, 80, 80],
            [2, 1, 96, 20],
            [9, 3, 256, 256],
            [1, 0, 6, 0],
        ];
        let both = |(i, heads)| [0, 1].map(|neox| (heads, neox, (7 * i + 5 * neox) % 33));
        heads.into_iter().enumerate().flat_map(both)
    }

    /// Rotary embedding.
    pub struct Rotations;

    impl Plain for Rotations {
        const SIZES: NamedSizes = &[("heads", 16), ("head_dim", 128), ("n_rot", 128), ("neox", 1), ("position", 100)];

        fn kernels() -> Vec<Listed> {
            vec![Listed::unmeasured::<Rope<'_>>(why::SMALL)]
        }

        fn shapes() -> Vec<Vec<usize>> {
            shapes().map(|([q, k, dim, rot], neox, position)| vec![q + k, dim, rot, neox, position]).collect()
        }

        fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
            run(false, shape, bench, rng)
        }
    }

    /// Norm of each head and rotary embedding.
    pub struct NormedRotations;

    impl Plain for NormedRotations {
        const SIZES: NamedSizes =
            &[("q_heads", 16), ("k_heads", 8), ("head_dim", 128), ("n_rot", 128), ("neox", 1), ("position", 100)];

        fn kernels() -> Vec<Listed> {
            vec![Listed::new::<QkNormRope<'_>>(Measured::By("rope"), Measured::Not(why::SMALL))]
        }

        fn shapes() -> Vec<Vec<usize>> {
            shapes().map(|([q, k, dim, rot], neox, position)| vec![q, k, dim, rot, neox, position]).collect()
        }

        fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
            run(true, shape, bench, rng)
        }
    }

    fn run<B: Bench>(normed: bool, shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        let [q_heads, k_heads] = if normed { shape.sizes(["q_heads", "k_heads"])? } else { [shape.size("heads")?, 0] };
        let [head_dim, n_rot, neox, position] = shape.sizes(["head_dim", "n_rot", "neox", "position"])?;
        let (neox, eps, base, linear) = (neox != 0, 1e-6, 1e6, 2.0);
        let context = (position + 1).max(33);
        let factors: Vec<f32> = (0..n_rot / 2).map(|_| 1.0 + rng.unit().abs() * 7.0).collect();
        let yarn = neox.then_some(Yarn {
            original_context: 512.0,
            ext_factor: 0.9,
            attn_factor: 1.1,
            beta_fast: 32.0,
            beta_slow: 1.0,
        });
        let r = Rotation { head_dim, n_rot, neox, base, factors: Some(&factors), linear, yarn };
        let tables = yarn_tables(context, n_rot, base, Some(&factors), linear, yarn.as_ref());
        let x: Vec<f32> = rng.floats((q_heads + k_heads) * head_dim).iter().map(|v| v * 3.0).collect();
        let (cos, sin) = (bench.upload(&tables.cos)?, bench.upload(&tables.sin)?);
        let columns = bench.upload(&[Column::at(0, position as u32)])?;
        let (mut qk, stride) = (bench.upload(&x)?, x.len() as u32);
        let (head_dim32, n_rot, neox, context) = (head_dim as u32, n_rot as u32, u32::from(neox), context as u32);
        let want = if normed {
            let (wq, wk) = (rng.floats(head_dim), rng.floats(head_dim));
            let (q_weight, k_weight) = (bench.upload(&wq)?, bench.upload(&wk)?);
            bench.launch(QkNormRope {
                qk: &mut qk,
                q_weight: &q_weight,
                k_weight: &k_weight,
                cos: &cos,
                sin: &sin,
                columns: &columns,
                stride,
                q_heads: q_heads as u32,
                k_heads: k_heads as u32,
                head_dim: head_dim32,
                n_rot,
                neox,
                context,
                eps,
            })?;
            let (q, k) = x.split_at(q_heads * head_dim);
            let mut want = reference(q, position, Some((&wq, eps)), &r);
            want.extend(reference(k, position, Some((&wk, eps)), &r));
            want
        } else {
            let heads = q_heads as u32;
            let columns = &columns;
            bench.launch(Rope {
                qk: &mut qk,
                cos: &cos,
                sin: &sin,
                columns,
                stride,
                heads,
                head_dim: head_dim32,
                n_rot,
                neox,
                context,
            })?;
            reference(&x, position, None, &r)
        };
        close(&bench.read(&qk)?, &want, |_| 2e-6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn vector<const N: usize, T>(name: &str, read: fn([u8; N]) -> T) -> Vec<T> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(name);
        std::fs::read(path).unwrap().chunks_exact(N).map(|b| read(b.try_into().unwrap())).collect()
    }

    #[test]
    fn reference_equals_the_golden_vectors() {
        let x = vector("rope.x.f32", f32::from_le_bytes);
        for (neox, name) in [(true, "rope.neox.f64"), (false, "rope.norm.f64")] {
            let want = vector(name, f64::from_le_bytes);
            let r = Rotation { head_dim: 64, n_rot: 64, neox, base: 10000.0, factors: None, linear: 1.0, yarn: None };
            for (i, position) in [0, 1, 7, 100, 4095].into_iter().enumerate() {
                let range = i * 128..(i + 1) * 128;
                for (got, want) in reference(&x[range.clone()], position, None, &r).iter().zip(&want[range]) {
                    assert!((got - want).abs() < 1e-11, "{name} position {position}: {got} for {want}");
                }
            }
        }
    }

    #[test]
    fn tables_hold_the_angles() {
        let t = rope_tables(10, 8, 10000.0, Some(&[1.0, 2.0, 1.0, 4.0]), 2.0);
        assert_eq!(t.cos.len(), 40);
        assert_eq!((t.cos[0], t.sin[0]), (1.0, 0.0));
        // Position 6 / 2, pair 1 with factor 2: 3 * 10000^(-1/4) / 2 = 0.15.
        assert!((f64::from(t.sin[6 * 4 + 1]) - 0.15f64.sin()).abs() < 1e-8);
        assert!((f64::from(t.cos[6 * 4 + 3]) - (3.0 * 1e-3 / 4.0f64).cos()).abs() < 1e-7);
    }

    #[test]
    fn yarn_scales_the_slow_pairs() {
        // From the formulas of ggml's `rope_yarn` in Python, f64; positions, pairs and scalings on each side of the limits.
        let usual = |i, position, want| (i, position, 128, 1e6, 4.0, 1.0, (32768.0, 1.0, 1.0, 32.0, 1.0), want);
        let cases = [
            usual(0, 1000, (0.640341370518, 0.941509384968)),
            usual(20, 1000, (0.818350198206, 0.791694351298)),
            usual(25, 40000, (-0.375320984087, 1.074993558904)),
            usual(40, 40000, (-0.234554953634, 1.114208672784)),
            usual(63, 40000, (1.138541766953, 0.014129319986)),
            (7, 77, 64, 10000.0, 8.0, 1.5, (2048.0, 0.5, 0.8, 16.0, 2.0), (-0.733507726855, -0.629133551466)),
            (12, 77, 64, 10000.0, 8.0, 1.0, (2048.0, 0.0, 0.8, 16.0, 2.0), (0.763228944231, 0.239753161999)),
        ];
        for (i, position, n_rot, base, linear, factor, (original, ext, attn, fast, slow), want) in cases {
            let y = Yarn {
                original_context: original,
                ext_factor: ext,
                attn_factor: attn,
                beta_fast: fast,
                beta_slow: slow,
            };
            let (frequency, stretch) = frequency(i, n_rot, base, Some(&vec![factor; n_rot / 2]), linear, Some(&y));
            let (sin, cos) = (f64::from(position) * frequency).sin_cos();
            let (cos, sin): (f64, f64) = (cos * stretch, sin * stretch);
            let (c, s): (f64, f64) = want;
            // Angles of up to 4e4 lose five digits.
            assert!((cos - c).abs() < 1e-10 && (sin - s).abs() < 1e-10, "pair {i}: {cos} {sin} for {c} {s}");
        }
    }

    #[test]
    fn part_of_a_head_passes_through_after_the_norm() {
        let r = Rotation { head_dim: 6, n_rot: 2, neox: true, base: 10000.0, factors: None, linear: 1.0, yarn: None };
        let y = reference(&[3.0, 4.0, 0.0, 0.0, 5.0, -2.0], 0, Some((&[2.0; 6], 0.0)), &r);
        let scale = 2.0 / (54.0f64 / 6.0).sqrt();
        for (y, x) in y.iter().zip([3.0, 4.0, 0.0, 0.0, 5.0, -2.0]) {
            assert!((y - x * scale).abs() < 1e-12);
        }
    }

    #[test]
    fn contract_names_the_argument() {
        // SAFETY: nothing is launched, so nothing reads or writes the memory.
        let launch = |qk: usize, table: usize, head_dim, n_rot, neox, weight: usize| unsafe {
            let a = |len| DeviceSlice::from_raw(0x1000, len);
            QkNormRope {
                qk: DeviceSlice::from_raw_mut(0x8000, qk),
                q_weight: a(weight),
                k_weight: a(weight),
                cos: a(table),
                sin: a(table),
                columns: DeviceSlice::from_raw(0x4000, 1),
                stride: 384,
                q_heads: 4,
                k_heads: 2,
                head_dim,
                n_rot,
                neox,
                context: 10,
                eps: 1e-6,
            }
            .check()
        };
        assert!(launch(384, 320, 64, 64, 1, 64).is_ok());
        assert!(launch(384, 160, 64, 32, 0, 64).is_ok());
        assert_eq!(launch(383, 320, 64, 64, 1, 64).unwrap_err().argument, "qk");
        assert_eq!(launch(384, 325, 65, 64, 1, 65).unwrap_err().argument, "stride");
        assert_eq!(launch(384, 319, 64, 64, 1, 64).unwrap_err().argument, "cos");
        assert_eq!(launch(384, 320, 64, 66, 1, 64).unwrap_err().argument, "n_rot");
        assert_eq!(launch(384, 320, 64, 31, 1, 64).unwrap_err().argument, "n_rot");
        assert_eq!(launch(384, 320, 64, 64, 2, 64).unwrap_err().argument, "neox");
        assert_eq!(launch(384, 320, 64, 64, 1, 63).unwrap_err().argument, "q_weight");
    }
}
