//! Norms, rotation, elementwise kernels, sampling.

use gpu_kernels::sampling::sample::{self, Sample, Sampling};
use gpu_kernels::state::Column;
use gpu_kernels::{argmax, elementwise, norm, rope};
use warpsmith_bench::{Bench, Failed, Group, Noise, Output, Run, Work, numbered};
use warpsmith_device::Launcher;
use warpsmith_host::Stream;

type Setup<'a> = Box<dyn Fn(&Stream) -> Result<Vec<Run>, Failed> + 'a>;

fn group(bench: &Bench, id: String, names: &[&str], work: Work, setup: Setup<'_>) {
    bench.measure(&Group {
        key: id.clone(),
        id,
        variants: names.iter().map(|n| ((*n).to_owned(), work)).collect(),
        rows: None,
        setup: Box::new(move |bench, _, wanted| Ok(numbered(setup(&bench.stream)?, wanted))),
    });
}

/// RMS norm of a hidden vector, and of heads.
pub fn norms(bench: &Bench) {
    for (rows, cols) in [(1u32, 1024u32), (1, 4096), (32, 128)] {
        let n = (rows * cols) as usize;
        let work = Work { elements: n as u64, floor_bytes: (8 * n + 4 * cols as usize) as u64 };
        let eps = 1e-6;
        let setup = move |s: &Stream| {
            let (x, w) = (Noise(1).floats(n), Noise(2).floats(cols as usize));
            let want = norm::reference(&x, &w, eps);
            Ok(vec![Run::launches(
                (s.upload(&x)?, s.upload(&w)?, s.zeros::<f32>(n)?),
                move |(x, w, y), on, _| on.launch(norm::RmsNorm { x, w, y, cols, eps }),
                move |(_, _, y), s| Ok(vec![Output::near("y", &s.read(y)?, &want, |i| 2e-6 * want[i].abs() + 1e-30)]),
            )])
        };
        group(bench, format!("norm/{rows}x{cols}"), &["rms_norm"], work, Box::new(setup));
    }
}

/// Norm and rotation of heads.
fn rotation(bench: &Bench) {
    let (q_heads, k_heads, head_dim, context, position) = (32u32, 8u32, 128u32, 4096u32, 1000u32);
    let n = ((q_heads + k_heads) * head_dim) as usize;
    let work = Work { elements: n as u64, floor_bytes: 8 * n as u64 };
    let setup = move |s: &Stream| {
        let (x, wq, wk) = (Noise(1).floats(n), Noise(2).floats(128), Noise(3).floats(128));
        let (dim, base, eps) = (head_dim as usize, 1e6, 1e-6);
        let r = rope::Rotation { head_dim: dim, n_rot: dim, neox: true, base, factors: None, linear: 1.0, yarn: None };
        let (q, k) = x.split_at(q_heads as usize * dim);
        let mut want = rope::reference(q, position as usize, Some((&wq, eps)), &r);
        want.extend(rope::reference(k, position as usize, Some((&wk, eps)), &r));
        let tables = rope::rope_tables(context as usize, dim, base, None, 1.0);
        let weights = (s.upload(&wq)?, s.upload(&wk)?);
        let tables = (s.upload(&tables.cos)?, s.upload(&tables.sin)?, s.upload(&[Column::at(0, position)])?);
        Ok(vec![Run::launches(
            (s.upload(&x)?, weights, tables),
            move |(qk, (q_weight, k_weight), (cos, sin, columns)), on, _| {
                on.launch(rope::QkNormRope {
                    qk,
                    q_weight,
                    k_weight,
                    cos,
                    sin,
                    columns,
                    stride: n as u32,
                    q_heads,
                    k_heads,
                    head_dim,
                    n_rot: head_dim,
                    neox: 1,
                    context,
                    eps,
                })
            },
            // Sines and cosines of angles of many turns are rounded to f32, and so is what they are multiplied with.
            move |(qk, ..), s| Ok(vec![Output::near("qk", &s.read(qk)?, &want, |_| 2e-6)]),
        )])
    };
    group(bench, "rope/32q8k-d128".to_owned(), &["qk_norm_rope"], work, Box::new(setup));
}

/// The rest of a step's kernels.
pub fn rest(bench: &Bench) {
    rotation(bench);
    for n in [3072usize, 12288] {
        let work = Work { elements: n as u64, floor_bytes: 12 * n as u64 };
        let setup = move |s: &Stream| {
            let (a, b) = (Noise(4).floats(n), Noise(5).floats(n));
            let (swiglu, sum) = (elementwise::swiglu_reference(&a, &b), elementwise::residual_add_reference(&a, &b));
            let buffers = || -> Result<_, Failed> { Ok((s.upload(&a)?, s.upload(&b)?, s.zeros::<f32>(n)?)) };
            let n = n as u32;
            Ok(vec![
                Run::launches(
                    buffers()?,
                    move |(gate, up, y), on, _| on.launch(elementwise::Swiglu { gate, up, y, n }),
                    move |(_, _, y), s| {
                        Ok(vec![Output::near("y", &s.read(y)?, &swiglu, |i| 2e-6 * swiglu[i].abs() + 2e-43)])
                    },
                ),
                Run::launches(
                    buffers()?,
                    move |(x, residual, y), on, _| on.launch(elementwise::ResidualAdd { x, residual, y, n }),
                    move |(_, _, y), s| Ok(vec![Output::near("y", &s.read(y)?, &sum, |i| 6e-8 * sum[i].abs())]),
                ),
            ])
        };
        group(bench, format!("elementwise/{n}"), &["swiglu", "residual_add"], work, Box::new(setup));
    }
    tokens(bench);
}

/// The next token out of logits.
fn tokens(bench: &Bench) {
    // The vocabulary of Qwen3; to count, a part of it is enough.
    let n = if bench.counts() { 16_384u32 } else { 151_936 };
    let work = Work { elements: n.into(), floor_bytes: 4 * u64::from(n) };
    let setup = move |s: &Stream| {
        let x = Noise(6).floats(n as usize);
        let want = [argmax::reference(&x)];
        Ok(vec![Run::launches(
            (s.upload(&x)?, s.zeros::<u32>(1)?),
            move |(x, y), on, _| on.launch(argmax::Argmax { x, y, n, stride: n }),
            move |(_, y), s| Ok(vec![Output::same("token", &s.read(y)?, &want)]),
        )])
    };
    group(bench, format!("argmax/{n}"), &["v1"], work, Box::new(setup));
    let setup = move |s: &Stream| {
        let logits = Noise(6).floats(n as usize);
        let setting = Sampling { temperature: 0.8, top_k: 40, top_p: 0.95, seed_low: 1, ..Sampling::GREEDY };
        let want = [sample::reference(&logits, &setting, 7, None, None)];
        let given = (s.upload(&logits)?, s.upload(&[setting])?, s.upload(&[Column::at(0, 7)])?);
        let work = s.zeros::<u64>(sample::work_len(1) as usize)?;
        let buffers = (given, (work, s.zeros::<u32>(1)?), s.zeros::<u32>(1)?);
        Ok(vec![Run::launches(
            buffers,
            move |((logits, params, columns), (work, tickets), y), on, _| {
                let sample = Sample { logits, params, columns, y, work, tickets, n, stride: n };
                // SAFETY: it holds no addresses but null ones.
                unsafe { sample.launch(on, true, false) }
            },
            move |(.., y), s| Ok(vec![Output::same("token", &s.read(y)?, &want)]),
        )])
    };
    group(bench, format!("sample/{n}"), &["top-k, top-p"], work, Box::new(setup));
}
