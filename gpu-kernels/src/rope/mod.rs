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
pub mod cases;
#[cfg(not(target_arch = "nvptx64"))]
mod tables;

#[cfg(not(target_arch = "nvptx64"))]
pub use tables::{RopeTables, Rotation, Yarn, reference, rope_tables, yarn_tables};

#[cfg(not(target_arch = "nvptx64"))]
use crate::state;
use crate::state::Column;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::{
    head::{Turn, turned},
    load::warp_index,
    real::Real,
};
use warpsmith_device::prelude::*;

/// Heads that a block takes: one a warp.
pub const HEADS_PER_BLOCK: u32 = 4;

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

/// Cosines and sines, and how they are used.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[derive(Clone, Copy)]
pub(crate) struct Rotate {
    pub cos: In<f32>,
    pub sin: In<f32>,
    pub head_dim: u32,
    pub n_rot: u32,
    pub neox: u32,
    pub context: u32,
}

/// Turns this warp's head of `heads` in place, and norms it before by the `weight` of a head, where there are any.
#[device]
pub(crate) unsafe fn rotate<T: Real>(
    qk: InOut<T>,
    (columns, stride, heads): (In<Column>, u32, u32),
    r: Rotate,
    norm: Option<(impl Fn(u32) -> In<T>, f32)>,
) {
    if let Some((head, at, position)) = place(columns, stride, heads, r.head_dim as usize, r.context) {
        let (head_dim, n_rot, neox) = (r.head_dim as usize, r.n_rot as usize, r.neox != 0);
        let (weight, eps) = match &norm {
            Some((of, eps)) => (Some(of(head)), *eps),
            None => (None, 0.0),
        };
        let (cos, sin, normed) = (r.cos, r.sin, weight.is_some());
        let turn = Turn { weight: cos, norm: normed, behind: false, eps, cos, sin, position, head_dim, n_rot, neox };
        // SAFETY: within the weight, which is read with a norm alone, and the head, of which this warp alone has hold.
        unsafe {
            let weight = |d| weight.map_or(0.0, |w| w.at(d).widen());
            turned(&turn, weight, |d| qk.get(at + d).widen(), |d, v| qk.set(at + d, T::narrow(v)));
        }
    }
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
    let none: Option<(fn(u32) -> In<f32>, f32)> = None;
    rotate(qk, (columns, stride, heads), Rotate { cos, sin, head_dim, n_rot, neox, context }, none);
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
    let weight = |head| if head < q_heads { q_weight } else { k_weight };
    let turn = Rotate { cos, sin, head_dim, n_rot, neox, context };
    rotate(qk, (columns, stride, q_heads + k_heads), turn, Some((weight, eps)));
}

#[cfg(not(target_arch = "nvptx64"))]
pub(crate) struct Shapes<'a, T> {
    pub qk: &'a DeviceSlice<T>,
    pub cos: &'a DeviceSlice<f32>,
    pub sin: &'a DeviceSlice<f32>,
    pub columns: &'a DeviceSlice<Column>,
    pub stride: u32,
    pub heads: u64,
    pub head_dim: u32,
    pub n_rot: u32,
    pub neox: u32,
    pub context: u32,
}

#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn contract_of<T: Element>(
    m: &'static KernelMeta,
    heads: &'static str,
    s: &Shapes<'_, T>,
) -> Result<(), ContractError> {
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
pub(crate) fn geometry_of(heads: u64, columns: &DeviceSlice<Column>) -> Geometry {
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

#[cfg(test)]
mod tests {
    use super::*;

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
