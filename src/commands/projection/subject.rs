//! The model of a projection: the shape of a published one, or a file.

use warpsmith_host::gpu_kernels::format::Format;
use warpsmith_host::model::{LayerTensors, ModelFile};

use crate::cli::ProjectionArgs;
use crate::commands::named::Named;
use crate::failure::Failure;

/// Milliseconds that a step of one token of a shape in a format is to take on an H200 with 1024 positions, at most.
const GOALS: [(&str, Format, f64); 3] =
    [("8b", Format::Q1_0, 0.40), ("8b", Format::Q4_K, 1.15), ("0.6b", Format::Q8_0, 0.25)];

/// Tokens of prompts a second that an H200 is to take, at least, 512 or more at a time.
const GOALS_OF_PROMPTS: [(&str, Format, f64); 2] = [("8b", Format::Q1_0, 30_000.0), ("8b", Format::Q4_K, 20_000.0)];

/// What a step is to take.
#[derive(Clone, Copy)]
pub enum Goal {
    /// Milliseconds, at most.
    Milliseconds(f64),
    /// Tokens a second, at least.
    Tokens(f64),
}

impl Goal {
    fn of(args: &ProjectionArgs, shape: &str, format: Format) -> Option<Goal> {
        let of = |goals: &[(&str, Format, f64)]| goals.iter().find(|g| g.0 == shape && g.1 == format).map(|g| g.2);
        if !args.gpu.eq_ignore_ascii_case("h200") || args.context > 1024 {
            return None;
        }
        match args.prompt {
            Some(tokens) => of(&GOALS_OF_PROMPTS).filter(|_| tokens >= 512).map(Goal::Tokens),
            None => of(&GOALS).filter(|_| args.sequences == 1).map(Goal::Milliseconds),
        }
    }

    /// Whether a step of so many tokens and microseconds meets it.
    pub fn is_met(self, tokens: usize, us: f64) -> bool {
        match self {
            Goal::Milliseconds(most) => us <= 1e3 * most,
            Goal::Tokens(least) => 1e6 * tokens as f64 / us >= least,
        }
    }
}

/// The model.
pub struct ProjectedModel {
    pub file: ModelFile,
    /// As reports have it.
    pub title: String,
    /// What the step is to take, where that is known.
    pub goal: Option<Goal>,
}

impl ProjectedModel {
    /// Of the options.
    pub fn of(args: &ProjectionArgs) -> Result<ProjectedModel, Failure> {
        match Named::of(&args.model, args.format)? {
            Named::Shape(shape, format) => {
                let file = ModelFile::described(shape.config(), format, shape.tied).map_err(Failure::input)?;
                let goal = Goal::of(args, shape.name, format);
                Ok(ProjectedModel { file, title: format!("{} in {format}", shape.title), goal })
            }
            Named::File(path) => {
                let named = |e: &dyn std::fmt::Display| Failure::input(format!("{}: {e}", args.model));
                let file = ModelFile::open(path).map_err(|e| named(&e))?;
                file.check_kernels().map_err(|e| named(&e))?;
                Ok(ProjectedModel { file, title: args.model.clone(), goal: None })
            }
        }
    }

    /// Bytes that a step has to move, as the device stores them: all matrices of layers and the output projection, norms, a row of the
    /// embedding, the cosines and sines of its positions, and all keys and values, those of new positions among them; of a prompt these
    /// twice, as one launch stores them and another reads them. Tokens are all the same.
    pub fn needed(&self, args: &ProjectionArgs) -> u64 {
        let (file, c) = (&self.file, self.file.config());
        let matrices = file.layers().iter().flat_map(LayerTensors::matrices).chain([file.output()]);
        let vectors = |format: Format, rows, cols| format.tensor_vectors(rows, cols).map_or(0, |n| 16 * n as u64);
        let weights: u64 = matrices.map(|m| vectors(m.format, m.rows, m.cols)).sum();
        // Of embeddings of positions a row is read.
        let place = file.positions().map_or(0, |all| all.len() - c.hidden);
        let norms: u64 = file.vectors().map(|v| 4 * v.len() as u64).sum::<u64>() - 4 * place as u64;
        let new = args.prompt.unwrap_or(1);
        let row = vectors(file.embedding().format, 1, c.hidden) + 4 * (new * c.rope.dims) as u64;
        let windows = (0..c.layers).map(|layer| c.window_of(layer));
        let seen = |window: usize| if window > 0 { args.context.min(window + new - 1) } else { args.context };
        let stored = args.prompt.map_or(0, |new| new * c.layers);
        let positions = windows.map(seen).sum::<usize>() * args.sequences + stored;
        let of_head = c.head_dim * args.step.kv.bytes() + args.step.kv.scale_bytes();
        weights + norms + row + (2 * positions * c.kv_heads * of_head) as u64
    }
}
