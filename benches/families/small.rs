//! Norms, rotation, elementwise kernels, sampling.

use criterion::Criterion;
use gpu_kernels::sampling::sample::{Sample, Sampling};
use gpu_kernels::state::Column;
use gpu_kernels::{argmax, elementwise, norm, rope};
use warpsmith_device::Launcher;

use crate::harness::meter::Meter;
use crate::harness::{Bench, Failed, Group, Launches, Noise, Run, Work, launches};

type Setup<'a> = Box<dyn Fn(&Bench) -> Result<Vec<Launches>, Failed> + 'a>;

fn group(bench: &Bench, c: &mut Criterion<Meter>, id: String, names: &[&str], work: Work, setup: Setup<'_>) {
    let group = Group {
        key: id.clone(),
        id,
        variants: names.iter().map(|n| ((*n).to_owned(), work)).collect(),
        rows: None,
        setup: Box::new(move |bench, _| Ok(setup(bench)?.into_iter().map(Run::Launches).collect())),
    };
    bench.group(c, &group);
}

/// RMS norm of a hidden vector, and of heads.
pub fn norms(bench: &Bench, c: &mut Criterion<Meter>) {
    for (rows, cols) in [(1u32, 1024u32), (1, 4096), (32, 128)] {
        let n = (rows * cols) as usize;
        let work = Work { elements: n as u64, floor_bytes: (8 * n + 4 * cols as usize) as u64 };
        let eps = 1e-6;
        let setup = move |bench: &Bench| {
            let s = &bench.stream;
            let [x1, x2] = [s.upload(&Noise(1).floats(n))?, s.upload(&Noise(1).floats(n))?];
            let [w1, w2] = [s.upload(&Noise(2).floats(cols as usize))?, s.upload(&Noise(2).floats(cols as usize))?];
            let (mut y1, mut y2) = (s.zeros::<f32>(n)?, s.zeros::<f32>(n)?);
            Ok(vec![
                launches(move |on, _| on.launch(norm::RmsNormV1 { x: &x1, w: &w1, y: &mut y1, cols, eps })),
                launches(move |on, _| on.launch(norm::RmsNorm { x: &x2, w: &w2, y: &mut y2, cols, eps })),
            ])
        };
        group(bench, c, format!("norm/{rows}x{cols}"), &["v1", "v2"], work, Box::new(setup));
    }
}

/// The rest of a step's kernels.
pub fn rest(bench: &Bench, c: &mut Criterion<Meter>) {
    let (q_heads, k_heads, head_dim, context) = (32u32, 8u32, 128u32, 4096u32);
    let n = ((q_heads + k_heads) * head_dim) as usize;
    let work = Work { elements: n as u64, floor_bytes: 8 * n as u64 };
    let setup = move |bench: &Bench| {
        let s = &bench.stream;
        let mut qk = s.upload(&Noise(1).floats(n))?;
        let (q_weight, k_weight) = (s.upload(&Noise(2).floats(128))?, s.upload(&Noise(3).floats(128))?);
        let tables = rope::rope_tables(context as usize, head_dim as usize, 1e6, None, 1.0);
        let (cos, sin) = (s.upload(&tables.cos)?, s.upload(&tables.sin)?);
        let columns = s.upload(&[Column::at(0, 1000)])?;
        Ok(vec![launches(move |on, _| {
            on.launch(rope::QkNormRope {
                qk: &mut qk,
                q_weight: &q_weight,
                k_weight: &k_weight,
                cos: &cos,
                sin: &sin,
                columns: &columns,
                stride: n as u32,
                q_heads,
                k_heads,
                head_dim,
                n_rot: head_dim,
                neox: 1,
                context,
                eps: 1e-6,
            })
        })])
    };
    group(bench, c, "rope/32q8k-d128".to_owned(), &["qk_norm_rope"], work, Box::new(setup));

    for n in [3072usize, 12288] {
        let work = Work { elements: n as u64, floor_bytes: 12 * n as u64 };
        let setup = move |bench: &Bench| {
            let s = &bench.stream;
            let [g1, g2] = [s.upload(&Noise(4).floats(n))?, s.upload(&Noise(4).floats(n))?];
            let [u1, u2] = [s.upload(&Noise(5).floats(n))?, s.upload(&Noise(5).floats(n))?];
            let (mut y1, mut y2) = (s.zeros::<f32>(n)?, s.zeros::<f32>(n)?);
            let n = n as u32;
            Ok(vec![
                launches(move |on, _| on.launch(elementwise::Swiglu { gate: &g1, up: &u1, y: &mut y1, n })),
                launches(move |on, _| on.launch(elementwise::ResidualAdd { x: &g2, residual: &u2, y: &mut y2, n })),
            ])
        };
        group(bench, c, format!("elementwise/{n}"), &["swiglu", "residual_add"], work, Box::new(setup));
    }

    // The vocabulary of Qwen3; to count, a part of it is enough.
    let n = if bench.counts() { 16_384usize } else { 151_936 };
    let work = Work { elements: n as u64, floor_bytes: 4 * n as u64 };
    let setup = move |bench: &Bench| {
        let x = bench.stream.upload(&Noise(6).floats(n))?;
        let mut y = bench.stream.zeros::<u32>(1)?;
        Ok(vec![launches(move |on, _| on.launch(argmax::Argmax { x: &x, y: &mut y, n: n as u32, stride: n as u32 }))])
    };
    group(bench, c, format!("argmax/{n}"), &["v1"], work, Box::new(setup));
    let setup = move |bench: &Bench| {
        let s = &bench.stream;
        let logits = s.upload(&Noise(6).floats(n))?;
        let setting = Sampling { temperature: 0.8, top_k: 40, top_p: 0.95, seed_low: 1, ..Sampling::GREEDY };
        let (params, columns) = (s.upload(&[setting])?, s.upload(&[Column::at(0, 7)])?);
        let mut y = s.zeros::<u32>(1)?;
        Ok(vec![launches(move |on, _| {
            let (logits, params, columns, y) = (&*logits, &*params, &*columns, &mut *y);
            on.launch(Sample { logits, params, columns, y, n: n as u32, stride: n as u32 })
        })])
    };
    group(bench, c, format!("sample/{n}"), &["top-k, top-p"], work, Box::new(setup));
}
