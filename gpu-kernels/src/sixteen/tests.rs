//! What contracts refuse, by the argument that they name.

use super::*;
use crate::elementwise::Glu;
use crate::kv::KvType;
use crate::layer::{Layer, NEOX, QK_NORM, SINKS};
use crate::state::Column;
use warpsmith_device::prelude::*;

fn a<T: Element>(len: usize) -> &'static DeviceSlice<T> {
    // SAFETY: nothing is launched, so nothing reads the memory.
    unsafe { DeviceSlice::from_raw(0x1000, len) }
}

fn out<T: Element>(len: usize) -> &'static mut DeviceSlice<T> {
    // SAFETY: nothing is launched, so nothing writes the memory.
    unsafe { DeviceSlice::from_raw_mut(0x8000, len) }
}

fn refused(kernel: impl Contract) -> &'static str {
    kernel.check().map_or_else(|e| e.argument, |()| "nothing")
}

#[test]
fn norms_ask_for_whole_rows_and_aligned_ones_where_they_are_loaded_at_once() {
    let rms = |x, w, y, cols, eps| refused(RmsNormF16 { x: a(x), w: a(w), y: out(y), cols, eps });
    assert_eq!(rms(512, 256, 512, 256, 1e-6), "nothing");
    assert_eq!(rms(0, 256, 0, 256, 1e-6), "x");
    assert_eq!(rms(500, 256, 500, 256, 1e-6), "x");
    assert_eq!(rms(512, 128, 512, 256, 1e-6), "w");
    assert_eq!(rms(512, 256, 511, 256, 1e-6), "y");
    assert_eq!(rms(512, 256, 512, 0, 1e-6), "cols");
    assert_eq!(rms(512, 256, 512, 256, f32::NAN), "eps");
    // Rows of an odd length are loaded one by one.
    let from_second = |cols: u32| {
        let x: &DeviceSlice<bf16> = &a(1 + 2 * cols as usize)[1..];
        refused(RmsNormBf16 { x, w: a(cols as usize), y: out(2 * cols as usize), cols, eps: 0.0 })
    };
    assert_eq!((from_second(256), from_second(255)), ("x", "nothing"));
    let add = |x, r| refused(AddRmsNormBf16 { x: a(x), residual: out(r), w: a(8), y: out(8), cols: 8, eps: 0.0 });
    assert_eq!((add(8, 8), add(7, 8), add(8, 16)), ("nothing", "x", "x"));
    let shadow = |x, added| {
        refused(AddRmsNormShadowF16 { x: a(x), residual: out(8), w: a(8), y: out(8), cols: 8, eps: 0.0, added })
    };
    assert_eq!((shadow(0, 0), shadow(0, 1), shadow(8, 1), shadow(8, 2)), ("nothing", "x", "nothing", "added"));
    let onto = |r| refused(RmsNormAddShadowF16 { x: a(16), w: a(8), residual: out(r), cols: 8, eps: 0.0 });
    assert_eq!((onto(16), onto(8)), ("nothing", "residual"));
    let layer =
        |bias, biased| refused(LayerNormBf16 { x: a(8), w: a(8), bias: a(bias), y: out(8), cols: 8, eps: 0.0, biased });
    assert_eq!((layer(0, 0), layer(0, 1), layer(8, 1), layer(8, 7)), ("nothing", "bias", "nothing", "biased"));
}

#[test]
fn sums_gates_and_casts_ask_for_whole_rows() {
    let sum = |addend, addend_stride, added, scale| {
        let (x, y, addend) = (a(12), out(12), a(addend));
        refused(ScaledAddF16 { x, addend, y, rows: 3, cols: 4, addend_stride, added, scale })
    };
    assert_eq!((sum(4, 0, 1, 1.0), sum(12, 4, 1, 1.0), sum(0, 9, 0, 2.0)), ("nothing", "nothing", "nothing"));
    assert_eq!((sum(3, 0, 1, 1.0), sum(11, 4, 1, 1.0), sum(12, 3, 1, 1.0)), ("addend", "addend", "addend_stride"));
    assert_eq!((sum(4, 0, 1, f32::INFINITY), sum(4, 0, 3, 1.0)), ("scale", "added"));
    let shadow = |x, n| refused(AddShadowBf16 { x: a(x), residual: out(9), n, scale: 1.0 });
    assert_eq!((shadow(9, 9), shadow(8, 9), shadow(10, 10), shadow(9, 0)), ("nothing", "x", "residual", "n"));
    let gates = |gate, up, rows, stride, function, gated| {
        let (gate, up, y) = (a(gate), a(up), out(100));
        refused(GluF16 { gate, up, y, rows, cols: 4, stride, y_stride: 4, function, gated })
    };
    let (silu, gelu, clamped) = (Glu::Silu as u32, Glu::Gelu as u32, Glu::Clamped as u32);
    assert_eq!((gates(12, 12, 2, 8, silu, 1), gates(12, 0, 2, 8, gelu, 0)), ("nothing", "nothing"));
    assert_eq!((gates(11, 12, 2, 8, silu, 1), gates(12, 11, 2, 8, silu, 1)), ("gate", "up"));
    assert_eq!((gates(12, 12, 2, 3, silu, 1), gates(12, 12, 0, 8, silu, 1)), ("stride", "rows"));
    assert_eq!((gates(12, 12, 2, 8, 3, 1), gates(12, 0, 2, 8, clamped, 0)), ("function", "gated"));
    assert_eq!(gates(12, 12, 70_000, 8, silu, 1), "rows");
    let cast = |x, y, n| refused(CastF32Bf16 { x: a(x), y: out(y), n });
    assert_eq!((cast(9, 9, 9), cast(8, 9, 9), cast(9, 8, 9), cast(9, 9, 0)), ("nothing", "x", "y", "n"));
}

#[test]
fn heads_that_no_warp_holds_and_caches_of_no_type_are_refused() {
    let rope = |weight, table, flags, n_rot| {
        refused(QkNormRopeF16 {
            qk: out(6 * 64),
            q_weight: a(weight),
            k_weight: a(weight),
            cos: a(table),
            sin: a(table),
            columns: a(1),
            stride: 384,
            q_heads: 4,
            k_heads: 2,
            head_dim: 64,
            n_rot,
            context: 10,
            flags,
            eps: 1e-6,
        })
    };
    assert_eq!((rope(0, 320, NEOX, 64), rope(64, 160, QK_NORM, 32)), ("nothing", "nothing"));
    assert_eq!((rope(63, 320, QK_NORM, 64), rope(64, 319, 0, 64), rope(64, 320, 4, 64)), ("q_weight", "cos", "flags"));
    let append = |columns, head_dim: u32, cache| {
        let n = 4 * head_dim as usize;
        let (k, v, columns, stride) = (a(n), a(n), a::<Column>(columns), 2 * head_dim);
        refused(KvAppendBf16 { k, v, columns, stride, layer: 0, kv_heads: 2, head_dim, cache })
    };
    let int8 = KvType::Int8 as u32;
    assert_eq!((append(2, 256, int8), append(3, 64, 0), append(0, 64, 0)), ("nothing", "k", "columns"));
    // OX-15, FE-12
    assert_eq!((append(2, 258, 0), append(2, 63, 0), append(2, 64, 3)), ("head_dim", "head_dim", "cache"));
    let attend = |head_dim: u32, q: usize, sinks, cap, flags| {
        let layer = Layer { q_heads: 4, kv_heads: 2, head_dim, context: 9, flags, ..Layer::default() };
        let (stride, y_stride, q, sinks) = (4 * head_dim, 4 * head_dim, a(q), a(sinks));
        let y = out(4 * head_dim as usize);
        refused(AttnF16 { q, columns: a(1), sinks, y, stride, y_stride, scale: 0.1, cap, layer })
    };
    assert_eq!((attend(256, 1024, 0, 0.0, 0), attend(64, 256, 4, 30.0, SINKS)), ("nothing", "nothing"));
    assert_eq!((attend(512, 2048, 0, 0.0, 0), attend(64, 255, 0, 0.0, 0)), ("layer", "q"));
    assert_eq!((attend(64, 256, 3, 0.0, SINKS), attend(64, 256, 0, -1.0, 0)), ("sinks", "cap"));
}

#[test]
fn tables_and_logits_have_whole_rows() {
    let look_up =
        |table, ids, y, vocab| refused(EmbeddingF16 { table: a(table), ids: a(ids), y: out(y), vocab, cols: 4 });
    assert_eq!((look_up(40, 3, 12, 10), look_up(36, 3, 12, 10), look_up(40, 3, 8, 10)), ("nothing", "table", "y"));
    assert_eq!((look_up(40, 0, 0, 10), look_up(0, 1, 4, 0)), ("ids", "vocab"));
    let largest = |x, y, n, stride| refused(ArgmaxBf16 { x: a(x), y: out(y), n, stride });
    assert_eq!((largest(13, 2, 5, 8), largest(12, 2, 5, 8), largest(5, 1, 0, 5)), ("nothing", "x", "n"));
    assert_eq!((largest(12, 2, 5, 4), largest(5, 0, 5, 5)), ("stride", "y"));
}
