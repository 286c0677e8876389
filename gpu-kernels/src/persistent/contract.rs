//! What all entry points ask for, of their arguments and of each layer's weights.

use super::{
    HEAD_DIMS, Instance, LayerParts, LayerWeights, LayoutNumber, MATRICES, Matrix, PARTS, Sizes, StoredMatrix,
    arguments::Seen,
};
use crate::attention::step::partials_len;
use crate::format;
use crate::gemv::{check_weights, parts_with, quant_format::groups};
use crate::layer::{self, FUSED, Layer};
use warpsmith_device::prelude::{ContractError, DeviceSlice, F32x4, KernelMeta, contract};

/// The contract of every entry point.
pub fn check(m: &'static KernelMeta, of: Instance, b: &Seen<'_>) -> Result<(), ContractError> {
    let Seen { layer: l, sizes: s, cos, sin, .. } = b;
    // Weights of the norms of heads are the layers'.
    let heads = Layer { flags: l.flags & !layer::QK_NORM, ..*l };
    let none = DeviceSlice::empty();
    layer::check(m, &heads, Some(&layer::Tables { q_weight: none, k_weight: none, cos, sin }))?;
    contract::require(m, l.has(FUSED), "layer", "the flag FUSED: attention norms, turns and stores itself", l.flags)?;
    contract::require(m, !l.has(layer::SINKS), "layer", "no sinks, which layers in one launch do not have", l.flags)?;
    let known = HEAD_DIMS.contains(&l.head_dim);
    contract::require(m, known, "layer", format_args!("head_dim one of {HEAD_DIMS:?}"), l.head_dim)?;
    // Products of two of them stay below 2^32.
    let heads = u64::from(l.q_heads) + 2 * u64::from(l.kv_heads);
    contract::within(m, "layer", heads, 1u32, (1u32 << 20, "heads"))?;
    for (what, n) in [
        ("hidden", s.hidden),
        ("feed_forward", s.feed_forward),
        ("parts", s.parts),
        ("blocks", s.blocks),
        ("layers", s.layers),
    ] {
        contract::require(m, n > 0 && n <= 1 << 28, "sizes", format_args!("{what} of 1 to 2^28"), n)?;
    }
    contract::require(m, s.next_rows <= i32::MAX as u32 / 2, "sizes", "next_rows below 2^30", s.next_rows)?;
    contract::require(m, s.quantize_last <= 1, "sizes", "quantize_last 0 or 1", s.quantize_last)?;
    contract::exactly(m, "columns", b.columns.len(), 1u32)?;
    contract::exactly(m, "layers", b.layers.len(), (s.layers, "layers"))?;
    let next = contract::product(m, "next_weights", &[s.next_rows.into(), s.next_vectors.into()])?;
    contract::exactly(m, "next_weights", b.next_weights.len(), (next, "next_rows * next_vectors"))?;
    contract::require(m, s.next_rows == 0 || next > 0, "sizes", "next_vectors at least 1", s.next_vectors)?;

    let (q, qkv) = (l.q_heads * l.head_dim, l.qkv());
    let parts = |cols| parts_with(of.quant_format(), s.hidden, cols, false);
    let sums = s.parts.max(parts(q)).max(parts(s.feed_forward));
    let vectors = [
        ("x", b.x, s.hidden, "hidden"),
        ("y", b.y, s.hidden, "hidden"),
        ("scaled", b.scaled, s.hidden, "hidden"),
        ("sums", b.sums, sums, "parts of a sum of squares"),
        ("qkv", b.qkv, qkv, "all heads"),
        ("attended", b.attended, q, "q_heads * head_dim"),
        ("inner", b.inner, s.feed_forward, "feed_forward"),
    ];
    for (name, vector, len, what) in vectors {
        contract::at_least(m, name, vector.len(), (len, what))?;
    }
    for (name, vector) in [("scaled", b.scaled), ("attended", b.attended), ("inner", b.inner)] {
        contract::multiple_of(m, name, (vector.address(), "its address"), align_of::<F32x4>() as u32)?;
    }
    if let Some(format) = of.quant_format() {
        for n in [(s.hidden, "hidden"), (q, "q_heads * head_dim"), (s.feed_forward, "feed_forward")] {
            contract::multiple_of(m, n.1, n.0, (format.block(), "a block of the quantized"))?;
        }
        let inner = format.len(q).max(format.len(s.feed_forward));
        contract::at_least(m, "quantized_scaled", b.quantized_scaled.len(), (format.len(s.hidden), "all blocks"))?;
        contract::at_least(m, "quantized_inner", b.quantized_inner.len(), (inner, "all blocks"))?;
        let groups = groups(s.hidden.max(q).max(s.feed_forward));
        contract::at_least(m, "group_counters", b.group_counters.len(), (groups, "groups"))?;
    }
    contract::at_least(m, "partials", b.partials.len(), (partials_len(1, l), "partials_len"))?;
    contract::multiple_of(m, "partials", (b.partials.address(), "its address"), 16u32)?;
    contract::at_least(m, "counters", b.counters.len(), (l.kv_heads, "kv_heads"))?;
    contract::exactly(m, "barrier", b.barrier.len(), 1u32)
}

/// Checks a matrix that an instance is to multiply with, of so many outputs and columns; `gated`: each has two rows.
fn matrix(
    of: Instance,
    (name, m): (&'static str, &Matrix<'_>),
    (rows, cols): (u32, u32),
    gated: bool,
) -> Result<StoredMatrix, ContractError> {
    let (meta, format) = (of.meta(), m.format);
    contract::require(meta, of.takes(format), "layers", format_args!("{name} in a format of the kernel"), format)?;
    let stored = u64::from(rows) << u32::from(gated);
    contract::require(meta, u64::from(m.rows) == stored, "layers", format_args!("{name} of {stored} rows"), m.rows)?;
    macro_rules! check {
        (() $($F:ident $part:tt $formats:tt)*) => {
            match format.layout() { $(
                format::Layout::$F => check_weights::<format::$F>(meta, (name, m.records), stored, cols, format.block_units()),
            )* }
        };
    }
    crate::formats!(product check ())?;
    if let Some(bias) = m.bias {
        contract::at_least(meta, "bias", bias.len(), (rows, "rows"))?;
        contract::multiple_of(meta, "bias", (bias.address(), "its address"), 4u32)?;
    }
    Ok(StoredMatrix {
        records: m.records.address(),
        bias: m.bias.map_or_else(Default::default, DeviceSlice::address),
        layout: LayoutNumber::from(format.layout()) as u32,
        block_units: format.block_units(),
        rows,
        vectors: m.vectors(),
    })
}

/// The addresses of a layer's weights, once they are as an instance takes them.
pub fn weights(of: Instance, parts: &LayerParts<'_>, l: &Layer, s: &Sizes) -> Result<LayerWeights, ContractError> {
    let (m, q) = (of.meta(), l.q_heads * l.head_dim);
    let qkv: u64 = parts.qkv.iter().map(|part| u64::from(part.rows)).sum();
    contract::require(m, qkv == u64::from(l.qkv()), "layers", format_args!("qkv of {} rows", l.qkv()), qkv)?;
    let n = parts.qkv.len();
    contract::require(m, n <= PARTS, "layers", format_args!("queries, keys and values in at most {PARTS} parts"), n)?;
    let mut matrices = [StoredMatrix::default(); MATRICES];
    for (to, part) in matrices.iter_mut().zip(parts.qkv) {
        contract::require(m, part.rows > 0, "layers", "parts of qkv of a row at least", part.rows)?;
        *to = matrix(of, ("qkv", part), (part.rows, s.hidden), false)?;
    }
    let others = [
        ("output", s.hidden, q, false),
        ("gate_up", s.feed_forward, s.hidden, true),
        ("down", s.hidden, s.feed_forward, false),
    ];
    for ((to, (name, rows, cols, gated)), part) in matrices[PARTS..].iter_mut().zip(others).zip(&parts.matrices) {
        contract::require(m, part.bias.is_none(), "layers", format_args!("{name} without a bias"), "one")?;
        *to = matrix(of, (name, part), (rows, cols), gated)?;
    }
    let head = if l.has(layer::QK_NORM) { l.head_dim } else { 0 };
    let vectors = [
        ("ffn_norm", parts.ffn_norm, s.hidden),
        ("next_norm", parts.next_norm, s.hidden),
        ("q_weight", parts.q_weight, head),
        ("k_weight", parts.k_weight, head),
    ];
    for (name, vector, len) in vectors {
        contract::at_least(m, name, vector.len(), (len, "elements"))?;
        // Attention loads them in pairs.
        let pairs = name.ends_with("_weight") && len > 0;
        contract::multiple_of(m, name, (vector.address(), "its address"), if pairs { 8u32 } else { 4 })?;
    }
    Ok(LayerWeights {
        matrices,
        ffn_norm: parts.ffn_norm.address(),
        next_norm: parts.next_norm.address(),
        q_weight: parts.q_weight.address(),
        k_weight: parts.k_weight.address(),
    })
}
