//! How cases run, and what they compare.

use super::{Bench, Case, Failure, Rng, Subject, gemv};
use crate::attention::{self, AttnDecode, AttnDecodeF32, AttnScores, AttnSoftmax, AttnWeightedSum, Heads};
use crate::elementwise::{self, ResidualAdd, Swiglu};
use crate::kv::{self, KvStore, KvStoreF32};
use crate::norm::{self, AddRmsNorm, RmsNorm, RmsNormV1};
use crate::rope::{self, QkNormRope, Rope, Rotation, Yarn, yarn_tables};
use crate::state::Column;
use half::f16;

pub type Outcome = Result<(), Failure>;

pub fn run<B: Bench>(case: &Case, bench: &mut B) -> Outcome {
    // Shapes of their own numbers, whatever else runs.
    let mut rng = Rng(case.shape.iter().fold(1, |h: u64, n| h.wrapping_mul(31).wrapping_add(*n as u64)));
    match case.subject {
        Subject::Embed(format) => gemv::embedding(case, bench, &mut rng, format),
        Subject::RmsNorm { v1 } => rms_norm(case, bench, &mut rng, v1),
        Subject::AddRmsNorm => add_rms_norm(case, bench, &mut rng),
        Subject::Gemv { format, product } => gemv::product(case, bench, &mut rng, format, product),
        Subject::Rope | Subject::QkNormRope => rotation(case, bench, &mut rng),
        Subject::KvStore { f32 } => store(case, bench, &mut rng, f32),
        Subject::AttentionThree | Subject::Attention { .. } => attend(case, bench, &mut rng),
        Subject::QkvStore(kv) => super::attention::step(case, bench, &mut rng, kv, true),
        Subject::AttentionStep(kv) => super::attention::step(case, bench, &mut rng, kv, false),
        Subject::AttentionPrefill(kv) => super::attention::prefill(case, bench, &mut rng, kv),
        Subject::Layer(format) => super::layer::run(case, bench, &mut rng, format),
        Subject::ResidualAdd => residual_add(case, bench, &mut rng),
        Subject::Swiglu => swiglu(case, bench, &mut rng),
        Subject::Argmax => super::sampling::largest(case, bench, &mut rng, false),
        Subject::ArgmaxMasked => super::sampling::largest(case, bench, &mut rng, true),
        Subject::RepetitionPenalty => super::sampling::penalty(case, bench, &mut rng),
        Subject::Sample => super::sampling::sample(case, bench, &mut rng),
    }
}

/// `|got - want| <= bound` for every element; NaN fails.
pub fn close(got: &[f32], want: &[f64], bound: impl Fn(usize) -> f64) -> Outcome {
    if got.len() != want.len() {
        return Err(Failure::Wrong(format!("{} elements for {}", got.len(), want.len())));
    }
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let difference = (f64::from(*g) - w).abs();
        let allowed = bound(i);
        if difference.is_nan() || difference > allowed {
            return Err(Failure::Wrong(format!(
                "element {i}: {g} where the f64 reference gives {w}, off by {difference:e}, allowed {allowed:e}"
            )));
        }
    }
    Ok(())
}

pub fn same<T: PartialEq + std::fmt::Debug>(got: &[T], want: &[T]) -> Outcome {
    match got.iter().zip(want).position(|(g, w)| g != w) {
        Some(i) => Err(Failure::Wrong(format!("element {i}: {:?} where the reference gives {:?}", got[i], want[i]))),
        None if got.len() != want.len() => Err(Failure::Wrong(format!("{} elements for {}", got.len(), want.len()))),
        None => Ok(()),
    }
}

fn rms_norm<B: Bench>(case: &Case, bench: &mut B, rng: &mut Rng, v1: bool) -> Outcome {
    let (rows, cols, eps) = (case.size("rows"), case.size("cols"), 1e-6);
    let (x, w) = (rng.floats(rows * cols), rng.floats(cols));
    let want = norm::reference(&x, &w, eps);
    let (x, w, mut y) = (bench.upload(&x)?, bench.upload(&w)?, bench.output::<f32>(rows * cols)?);
    let cols = cols as u32;
    if v1 {
        bench.launch(RmsNormV1 { x: &x, w: &w, y: &mut y, cols, eps })?;
    } else {
        bench.launch(RmsNorm { x: &x, w: &w, y: &mut y, cols, eps })?;
    }
    close(&bench.read(&y)?, &want, |i| 2e-6 * want[i].abs() + 1e-30)
}

fn add_rms_norm<B: Bench>(case: &Case, bench: &mut B, rng: &mut Rng) -> Outcome {
    let (rows, cols, eps) = (case.size("rows"), case.size("cols"), 1e-6);
    let (x, r, w) = (rng.floats(rows * cols), rng.floats(rows * cols), rng.floats(cols));
    let sum: Vec<f32> = x.iter().zip(&r).map(|(x, r)| x + r).collect();
    let (dx, mut residual, w_) = (bench.upload(&x)?, bench.upload(&r)?, bench.upload(&w)?);
    let mut y = bench.output::<f32>(rows * cols)?;
    bench.launch(AddRmsNorm { x: &dx, residual: &mut residual, w: &w_, y: &mut y, cols: cols as u32, eps })?;
    // One addition, correctly rounded, whose result is what is normed.
    same(&bench.read(&residual)?, &sum)?;
    let want = norm::reference(&sum, &w, eps);
    close(&bench.read(&y)?, &want, |i| 2e-6 * want[i].abs() + 1e-30)
}

fn rotation<B: Bench>(case: &Case, bench: &mut B, rng: &mut Rng) -> Outcome {
    let normed = case.subject == Subject::QkNormRope;
    let (q_heads, k_heads) =
        if normed { (case.size("q_heads"), case.size("k_heads")) } else { (case.size("heads"), 0) };
    let (head_dim, n_rot, neox) = (case.size("head_dim"), case.size("n_rot"), case.size("neox") != 0);
    let (position, eps, base, linear) = (case.size("position"), 1e-6, 1e6, 2.0);
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
        let mut want = rope::reference(q, position, Some((&wq, eps)), &r);
        want.extend(rope::reference(k, position, Some((&wk, eps)), &r));
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
        rope::reference(&x, position, None, &r)
    };
    close(&bench.read(&qk)?, &want, |_| 2e-6)
}

fn store<B: Bench>(case: &Case, bench: &mut B, rng: &mut Rng, wide: bool) -> Outcome {
    let (heads, dim, capacity) = (case.size("kv_heads"), case.size("head_dim"), case.size("capacity"));
    let (position, n) = (case.size("position"), heads * dim);
    let (k, v) = (rng.floats(n), rng.floats(n));
    let mut want_k: Vec<f32> = rng.floats(n * capacity).iter().map(|v| f16::from_f32(*v).to_f32()).collect();
    let mut want_v = want_k.clone();
    let before = want_k.clone();
    kv::reference(&k, &mut want_k, position, heads, capacity, !wide);
    kv::reference(&v, &mut want_v, position, heads, capacity, !wide);
    let (k, v, columns) = (bench.upload(&k)?, bench.upload(&v)?, bench.upload(&[Column::at(9, position as u32)])?);
    let (k, v, columns) = (&*k, &*v, &*columns);
    let (kv_heads, head_dim, capacity) = (heads as u32, dim as u32, capacity as u32);
    if wide {
        let (mut k_cache, mut v_cache) = (bench.upload(&before)?, bench.upload(&before)?);
        let (to_k, to_v) = (&mut *k_cache, &mut *v_cache);
        bench.launch(KvStoreF32 { k, v, k_cache: to_k, v_cache: to_v, columns, kv_heads, head_dim, capacity })?;
        same(&bench.read(&k_cache)?, &want_k)?;
        return same(&bench.read(&v_cache)?, &want_v);
    }
    let before: Vec<f16> = before.iter().map(|v| f16::from_f32(*v)).collect();
    let (mut k_cache, mut v_cache) = (bench.upload(&before)?, bench.upload(&before)?);
    let (to_k, to_v) = (&mut *k_cache, &mut *v_cache);
    bench.launch(KvStore { k, v, k_cache: to_k, v_cache: to_v, columns, kv_heads, head_dim, capacity })?;
    let widen = |b: Vec<f16>| b.iter().map(|v| v.to_f32()).collect::<Vec<_>>();
    same(&widen(bench.read(&k_cache)?), &want_k)?;
    same(&widen(bench.read(&v_cache)?), &want_v)
}

fn attend<B: Bench>(case: &Case, bench: &mut B, rng: &mut Rng) -> Outcome {
    let [q_heads, kv_heads, head_dim, capacity, position] =
        ["q_heads", "kv_heads", "head_dim", "capacity", "position"].map(|n| case.size(n) as u32);
    let heads = Heads { q_heads, kv_heads, head_dim, capacity };
    let cache = (kv_heads * capacity * head_dim) as usize;
    let query = rng.floats((q_heads * head_dim) as usize);
    let mut halves = || -> Vec<f16> { (0..cache).map(|_| f16::from_f32(rng.unit() * 2.0)).collect() };
    let (keys, values) = (halves(), halves());
    let widen = |v: &[f16]| -> Vec<f32> { v.iter().map(|v| v.to_f32()).collect() };
    let (wide_keys, wide_values) = (widen(&keys), widen(&values));
    let want = attention::reference(&query, &wide_keys, &wide_values, (position as usize).saturating_add(1), heads);
    let scale = wide_values.iter().fold(0.0f64, |m, v| m.max(f64::from(v.abs())));
    let (q, columns) = (bench.upload(&query)?, bench.upload(&[Column::at(0, position)])?);
    let (q, columns) = (&*q, &*columns);
    let mut out = bench.output::<f32>(query.len())?;
    let y = &mut *out;
    if case.subject == (Subject::Attention { f32: true }) {
        let (k, v) = (bench.upload(&wide_keys)?, bench.upload(&wide_values)?);
        let (k_cache, v_cache) = (&*k, &*v);
        bench.launch(AttnDecodeF32 { q, k_cache, v_cache, y, columns, q_heads, kv_heads, head_dim, capacity })?;
        return close(&bench.read(&out)?, &want, |_| 2e-5 * scale);
    }
    let (k, v) = (bench.upload(&keys)?, bench.upload(&values)?);
    let (k_cache, v_cache) = (&*k, &*v);
    if case.subject == (Subject::Attention { f32: false }) {
        bench.launch(AttnDecode { q, k_cache, v_cache, y, columns, q_heads, kv_heads, head_dim, capacity })?;
    } else {
        let mut scores = bench.output::<f32>((q_heads * capacity) as usize)?;
        let scores = &mut *scores;
        bench.launch(AttnScores { q, k_cache, scores, columns, q_heads, kv_heads, head_dim, capacity })?;
        bench.launch(AttnSoftmax { scores, columns, q_heads, capacity })?;
        bench.launch(AttnWeightedSum { scores, v_cache, y, columns, q_heads, kv_heads, head_dim, capacity })?;
    }
    close(&bench.read(&out)?, &want, |_| 2e-5 * scale)
}

fn residual_add<B: Bench>(case: &Case, bench: &mut B, rng: &mut Rng) -> Outcome {
    let n = case.size("n");
    let (a, b) = (rng.floats(n), rng.floats(n));
    let (x, residual, mut y) = (bench.upload(&a)?, bench.upload(&b)?, bench.output::<f32>(n)?);
    bench.launch(ResidualAdd { x: &x, residual: &residual, y: &mut y, n: n as u32 })?;
    let want = elementwise::residual_add_reference(&a, &b);
    close(&bench.read(&y)?, &want, |i| 6e-8 * want[i].abs())
}

fn swiglu<B: Bench>(case: &Case, bench: &mut B, rng: &mut Rng) -> Outcome {
    let n = case.size("n");
    let mut gate: Vec<f32> = rng.floats(n).iter().map(|v| v * 120.0).collect();
    if let Some(first) = gate.first_mut() {
        *first = -88.0;
    }
    let up = rng.floats(n);
    let (g, u, mut y) = (bench.upload(&gate)?, bench.upload(&up)?, bench.output::<f32>(n)?);
    bench.launch(Swiglu { gate: &g, up: &u, y: &mut y, n: n as u32 })?;
    let want = elementwise::swiglu_reference(&gate, &up);
    close(&bench.read(&y)?, &want, |i| 2e-6 * want[i].abs() + 2e-43)
}
