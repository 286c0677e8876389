//! Attention of a query head over the cached positions of a sequence.

use super::LayerCache;
use super::math::{capped, dot, softmax};
use crate::model::Config;

/// What a head gives: `kv_head` is the key head that it shares, and a sink a score without a value.
pub(super) fn attend(
    q: &[f64],
    cache: &LayerCache,
    (kv_head, layer): (usize, usize),
    sink: Option<f32>,
    c: &Config,
) -> Vec<f64> {
    let (rows, window) = (cache.k.len() / c.kv_dim(), c.window_of(layer));
    let first = if window == 0 { 0 } else { rows.saturating_sub(window) };
    let place = |row: &[f64]| kv_head * c.head_dim..(kv_head * c.head_dim + q.len()).min(row.len());
    let mut scores: Vec<f64> = cache
        .k
        .chunks_exact(c.kv_dim())
        .skip(first)
        .map(|k| capped(dot(q, &k[place(k)]) * c.score_scale, c.score_cap))
        .collect();
    // A score like the others, behind the last of them, for which there is no value.
    scores.extend(sink.map(f64::from));
    softmax(&mut scores);
    let mut out = vec![0.0; q.len()];
    for (p, v) in scores.iter().zip(cache.v.chunks_exact(c.kv_dim()).skip(first)) {
        for (o, v) in out.iter_mut().zip(&v[place(v)]) {
            *o += p * v;
        }
    }
    out
}
