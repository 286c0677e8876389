//! What the kernels between the projections of a layer share: sizes of the heads, and what is done to them.

use warpsmith_device::prelude::*;

/// Pairs of a head are its halves (Qwen, GPT-NeoX); else neighbours (Llama in GGUF).
pub const NEOX: u32 = 1;
/// Queries and keys are normed, head by head, before they turn.
pub const QK_NORM: u32 = 2;
/// Attention norms and turns queries and keys itself, and stores keys and values; else that was done before.
pub const FUSED: u32 = 4;
/// Each query head has a sink: a score that takes a share of its softmax and gives no value.
pub const SINKS: u32 = 8;

/// The norms of [`QK_NORM`] come behind the turn.
pub const NORM_BEHIND: u32 = 16;

/// `head_dim` that the kernels for columns are made for: whole 16-byte vectors of every cache type, and as many lanes
/// as divide a warp.
pub const HEAD_DIMS: [u32; 7] = [32, 64, 80, 96, 128, 192, 256];
/// Most query heads that share a key head: those of a group are in one block.
pub const MAX_GROUP: u32 = 16;

/// Sizes and options of a layer's attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
#[repr(C)]
pub struct Layer {
    /// The layer's number in the caches.
    #[varies]
    pub index: u32,
    /// Query heads.
    pub q_heads: u32,
    /// Key and value heads; divides `q_heads`.
    pub kv_heads: u32,
    /// Elements of a head: one of [`HEAD_DIMS`].
    pub head_dim: u32,
    /// Elements of a head that turn; even.
    pub n_rot: u32,
    /// Positions that the tables of cosines and sines have.
    pub context: u32,
    /// Positions that a token attends to, its own among them; 0: all before it.
    pub window: u32,
    /// [`NEOX`], [`QK_NORM`], [`FUSED`], [`SINKS`], [`NORM_BEHIND`].
    pub flags: u32,
    /// The epsilon of the norms.
    pub eps: f32,
}

impl Layer {
    /// Whether a flag is set.
    #[inline(always)]
    pub const fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Query heads that share a key head.
    #[inline(always)]
    pub const fn group(&self) -> u32 {
        self.q_heads / self.kv_heads
    }

    /// Elements of all query heads, all key heads and all value heads.
    #[inline(always)]
    pub const fn qkv(&self) -> u32 {
        (self.q_heads + 2 * self.kv_heads) * self.head_dim
    }

    /// The first position that `position` attends to.
    #[inline(always)]
    pub const fn window_start(&self, position: u32) -> u32 {
        if self.window != 0 && position >= self.window { position - self.window + 1 } else { 0 }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
pub(crate) use check::{Tables, check, check_pairs, check_sinks};

#[cfg(not(target_arch = "nvptx64"))]
mod check {
    use super::{FUSED, HEAD_DIMS, Layer, MAX_GROUP, NEOX, NORM_BEHIND, QK_NORM, SINKS};
    use warpsmith_device::{DeviceAddress, prelude::*};

    /// Buffers that a layer's heads are normed and turned with.
    pub struct Tables<'a> {
        pub q_weight: &'a DeviceSlice<f32>,
        pub k_weight: &'a DeviceSlice<f32>,
        pub cos: &'a DeviceSlice<f32>,
        pub sin: &'a DeviceSlice<f32>,
    }

    /// A buffer of heads, `stride` elements apart, whose elements are loaded in pairs.
    pub fn check_pairs(
        m: &'static KernelMeta,
        name: &'static str,
        address: DeviceAddress,
        stride: Option<u32>,
    ) -> Result<(), ContractError> {
        contract::multiple_of(m, name, (address, "its address"), 8u32)?;
        contract::multiple_of(m, "stride", stride.unwrap_or(0), (2u32, "elements are loaded in pairs"))
    }

    /// The sinks, where there are any.
    pub fn check_sinks(m: &'static KernelMeta, l: &Layer, sinks: &DeviceSlice<f32>) -> Result<(), ContractError> {
        if !l.has(SINKS) {
            return Ok(());
        }
        contract::exactly(m, "sinks", sinks.len(), (l.q_heads, "q_heads"))
    }

    /// Sizes that the kernels can take, and buffers that fit them where they are read.
    pub fn check(m: &'static KernelMeta, l: &Layer, tables: Option<&Tables<'_>>) -> Result<(), ContractError> {
        contract::require(m, l.kv_heads > 0, "layer", "at least 1 key head (kv_heads)", 0)?;
        let whole = l.q_heads > 0 && l.q_heads.is_multiple_of(l.kv_heads);
        contract::require(
            m,
            whole,
            "layer",
            format_args!("q_heads a multiple of {} (kv_heads)", l.kv_heads),
            l.q_heads,
        )?;
        contract::require(
            m,
            l.group() <= MAX_GROUP,
            "layer",
            format_args!("at most {MAX_GROUP} query heads to a key head: a group is held by one block"),
            l.group(),
        )?;
        contract::require(
            m,
            HEAD_DIMS.contains(&l.head_dim),
            "layer",
            format_args!(
                "head_dim one of {HEAD_DIMS:?}: a row is split into 8 elements a lane, and 256 is the largest head that a block holds in registers"
            ),
            l.head_dim,
        )?;
        let known = NEOX | QK_NORM | FUSED | SINKS | NORM_BEHIND;
        contract::require(m, l.flags & !known == 0, "layer", "known flags", l.flags)?;
        contract::require(m, l.context > 0, "layer", "a context of at least 1", 0)?;
        let Some(t) = tables else { return Ok(()) };
        for (name, table) in [("q_weight", t.q_weight), ("k_weight", t.k_weight), ("cos", t.cos), ("sin", t.sin)] {
            // What is empty is nowhere.
            if !table.is_empty() {
                check_pairs(m, name, table.address(), None)?;
            }
        }
        let even = l.n_rot.is_multiple_of(2) && l.n_rot <= l.head_dim;
        contract::require(m, even, "layer", format_args!("n_rot even, at most {} (head_dim)", l.head_dim), l.n_rot)?;
        contract::require(m, l.eps >= 0.0 && l.eps.is_finite(), "layer", "eps finite, not negative", l.eps)?;
        let table = u64::from(l.context) * u64::from(l.n_rot / 2);
        contract::exactly(m, "cos", t.cos.len(), (table, "context * n_rot / 2"))?;
        contract::exactly(m, "sin", t.sin.len(), (table, "context * n_rot / 2"))?;
        if l.has(QK_NORM) {
            contract::exactly(m, "q_weight", t.q_weight.len(), (l.head_dim, "head_dim"))?;
            contract::exactly(m, "k_weight", t.k_weight.len(), (l.head_dim, "head_dim"))?;
        }
        Ok(())
    }
}
