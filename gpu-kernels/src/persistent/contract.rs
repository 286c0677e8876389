//! What all entry points ask for.

use super::arguments::Seen;
use super::by_decoder;
use crate::attention::step::partials_len;
use crate::format;
use crate::gemv::{check_weights, parts};
use crate::layer::{self, FUSED};
use warpsmith_device::prelude::{ContractError, F32x4, KernelMeta, contract};

/// The contract of every entry point.
pub fn check(m: &'static KernelMeta, b: &Seen<'_>) -> Result<(), ContractError> {
    let Seen { layer: l, sizes: s, q_weight, k_weight, cos, sin, .. } = b;
    layer::check(m, l, Some(&layer::Tables { q_weight, k_weight, cos, sin }))?;
    contract::require(m, l.has(FUSED), "layer", "the flag FUSED: attention norms, turns and stores itself", l.flags)?;
    // Products of two of them stay below 2^32.
    let heads = u64::from(l.q_heads) + 2 * u64::from(l.kv_heads);
    contract::within(m, "layer", heads, 1u32, (1u32 << 20, "heads"))?;
    for (what, n) in [("hidden", s.hidden), ("feed_forward", s.feed_forward), ("parts", s.parts), ("blocks", s.blocks)]
    {
        contract::require(m, n > 0 && n <= 1 << 28, "sizes", format_args!("{what} of 1 to 2^28"), n)?;
    }
    contract::require(m, s.next_rows <= i32::MAX as u32 / 2, "sizes", "next_rows below 2^30", s.next_rows)?;
    contract::require(m, s.bias <= 1, "sizes", "bias 0 or 1", s.bias)?;
    contract::exactly(m, "columns", b.columns.len(), 1u32)?;

    let (q, qkv) = (l.q_heads * l.head_dim, l.qkv());
    let matrices = [
        ("qkv_weights", qkv.into(), s.hidden),
        ("output_weights", s.hidden.into(), q),
        ("gate_up_weights", 2 * u64::from(s.feed_forward), s.hidden),
        ("down_weights", s.hidden.into(), s.feed_forward),
    ];
    let weights = [b.qkv_weights, b.output_weights, b.gate_up_weights, b.down_weights];
    for (((name, rows, cols), records), weights) in matrices.into_iter().zip(s.matrices).zip(weights) {
        macro_rules! check {
            ($F:ident) => {
                check_weights::<format::$F>(m, (name, weights), rows, cols, records.block_units)
            };
        }
        let unknown = || contract::error(m, "sizes", "decoders that the kernel has", records.decoder);
        crate::formats!(persistent by_decoder (records.decoder, check, Err(unknown())))?;
        contract::exactly(m, name, weights.len(), (rows * u64::from(records.vectors), "rows * vectors"))?;
    }
    let next = contract::product(m, "next_weights", &[s.next_rows.into(), s.next_vectors.into()])?;
    contract::exactly(m, "next_weights", b.next_weights.len(), (next, "next_rows * next_vectors"))?;
    contract::require(m, s.next_rows == 0 || next > 0, "sizes", "next_vectors at least 1", s.next_vectors)?;
    let sums = s.parts.max(parts(s.hidden, q, false)).max(parts(s.hidden, s.feed_forward, false));
    let vectors = [
        ("bias", b.bias, if s.bias == 0 { 0 } else { qkv }, "all heads"),
        ("ffn_norm", b.ffn_norm, s.hidden, "hidden"),
        ("next_norm", b.next_norm, s.hidden, "hidden"),
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
    contract::at_least(m, "partials", b.partials.len(), (partials_len(1, l), "partials_len"))?;
    contract::at_least(m, "counters", b.counters.len(), (l.kv_heads, "kv_heads"))?;
    contract::exactly(m, "barrier", b.barrier.len(), 1u32)
}
