//! Whole steps of the models that ship with the project, and what a launch costs.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use gpu_kernels::elementwise::ResidualAdd;
use warpsmith_bench::{Bench, Failed, Group, Output, Run, Work, gpu, numbered};
use warpsmith_device::Launcher;
use warpsmith_host::decode::{DecoderOptions, KvType, Mode, Model, SequenceOptions, Session, SessionOptions};
use warpsmith_host::model::ModelFile;
use warpsmith_host::reference::{KvRounding, Reference};

/// Position of the token that is measured.
const POSITION: usize = 32;
/// The token, at every position.
const TOKEN: u32 = 72;
/// How far a logit may be off, in standard deviations of all.
const BOUND: f64 = 1e-3;

/// The logits at that position, in f64.
fn reference(file: &ModelFile) -> Result<Vec<f64>, Failed> {
    let mut reference = Reference::new(file, KvRounding::F16);
    for _ in 0..POSITION {
        reference.feed(TOKEN)?;
    }
    Ok(reference.feed(TOKEN)?.logits)
}

fn standard_deviation(values: &[f64]) -> f64 {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt()
}

fn shipped() -> Result<Vec<PathBuf>, Failed> {
    let folder = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("models"))?;
    let mut all: Vec<PathBuf> = folder.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
    all.retain(|p| p.extension().is_some_and(|e| e == "gguf"));
    all.sort();
    Ok(all)
}

/// Weights of the layers and of the output projection, and the bytes that a token cannot do without.
fn work(file: &ModelFile) -> Work {
    let c = file.config();
    let layers = file.layers().iter().flat_map(|l| l.matrices());
    let matrices: Vec<_> = layers.chain([file.output()]).collect();
    let row = (c.head_dim * KvType::F16.bytes()) as u64;
    let cache = 2 * POSITION as u64 * (c.layers * c.kv_heads) as u64 * row;
    Work {
        elements: matrices.iter().map(|m| (m.rows * m.cols) as u64).sum(),
        floor_bytes: matrices.iter().map(|m| file.data(m).len() as u64).sum::<u64>() + cache,
    }
}

/// A step at [`POSITION`], eager, as a graph, as one of programmatic launches, and as one of layers in one launch each.
pub fn whole(bench: &Bench) -> Result<(), Failed> {
    for path in shipped()? {
        let file = ModelFile::open(&path)?;
        let id = format!("step/{}", path.file_stem().unwrap_or_default().to_string_lossy());
        let work = work(&file);
        let file = Rc::new(file);
        let setup = move |bench: &Bench, _, wanted: &[usize]| {
            let model = Model::load(&bench.device, &file)?;
            let logits = reference(&file)?;
            let mut runs = Vec::new();
            for (mode, programmatic, persistent) in [
                (Mode::Eager, false, false),
                (Mode::Graph, false, false),
                (Mode::Graph, true, false),
                (Mode::Graph, false, true),
            ]
            .into_iter()
            .enumerate()
            .filter(|(number, _)| wanted.contains(number))
            .map(|(_, variant)| variant)
            {
                let capacity = Some(2 * POSITION);
                let sequence = SequenceOptions { capacity, ..Default::default() };
                let decoder = DecoderOptions { mode, programmatic, persistent, ..Default::default() };
                let mut session = Session::new(&model, SessionOptions { sequence, decoder })?;
                for _ in 0..POSITION {
                    session.feed(TOKEN)?;
                }
                let want = logits.clone();
                runs.push(Run::whole(
                    session,
                    |session| {
                        session.sequence_mut().rollback(POSITION)?;
                        session.feed(TOKEN)?;
                        Ok(())
                    },
                    move |session, _| {
                        let allowed = BOUND * standard_deviation(&want);
                        Ok(vec![Output::near("logits", &session.logits()?, &want, |_| allowed)])
                    },
                ));
            }
            Ok(runs)
        };
        let group = Group {
            key: id.clone(),
            id,
            variants: ["eager", "graph", "programmatic", "persistent"].map(|v| (v.to_owned(), work)).to_vec(),
            rows: None,
            setup: Box::new(setup),
        };
        bench.measure(&group);
    }
    Ok(())
}

/// Dependent launches of a kernel that does next to nothing, one by one and as nodes of a graph.
pub fn overhead(bench: &Bench) {
    const LAUNCHES: usize = 200;
    if !bench.times() {
        return;
    }
    let setup = |bench: &Bench, _, wanted: &[usize]| {
        let buffers = || -> Result<_, Failed> {
            let s = &bench.stream;
            Ok((s.zeros::<f32>(32)?, s.zeros::<f32>(32)?, s.zeros::<f32>(32)?))
        };
        let stream = Rc::new(bench.device.stream()?);
        let (x, residual, mut y) = buffers()?;
        let on = Rc::clone(&stream);
        let eager = Run::timed(move || {
            let all = gpu::between_events(&on, || {
                (0..LAUNCHES).try_for_each(|_| {
                    let (x, residual, y) = (&x, &residual, &mut y);
                    on.launch(ResidualAdd { x, residual, y, n: 32 })
                })
            })?;
            Ok(all / LAUNCHES as f64)
        });
        let (x, residual, mut y) = buffers()?;
        let graph = gpu::captured(&stream, LAUNCHES, |on, _| {
            let (x, residual, y) = (&x, &residual, &mut y);
            on.launch(ResidualAdd { x, residual, y, n: 32 })
        })?;
        let node = Run::timed(move || Ok(gpu::between_events(&stream, || graph.launch(&stream))? / LAUNCHES as f64));
        Ok(numbered(vec![eager, node], wanted))
    };
    let group = Group {
        id: "overhead/launch".to_owned(),
        variants: ["stream", "graph node"]
            .map(|v| (v.to_owned(), Work { elements: 32, floor_bytes: 12 * 32 }))
            .to_vec(),
        rows: None,
        key: "overhead/launch".to_owned(),
        setup: Box::new(setup),
    };
    bench.measure(&group);
}
