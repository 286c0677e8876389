//! The model of a projection: the shape of a published one, or a file.

use warpsmith_host::gpu_kernels::format::Format;
use warpsmith_host::model::{LayerTensors, ModelFile};

use crate::cli::ProjectionArgs;
use crate::commands::named::Named;
use crate::failure::Failure;

/// Milliseconds that a step of a shape in a format is to take on an H200 with 1024 positions, at most.
const GOALS: [(&str, Format, f64); 3] =
    [("8b", Format::Q1_0, 0.40), ("8b", Format::Q4_K, 1.15), ("0.6b", Format::Q8_0, 0.25)];

/// The model.
pub struct Subject {
    pub file: ModelFile,
    /// As reports have it.
    pub title: String,
    /// Milliseconds of a step, where that is known as a goal.
    pub goal: Option<f64>,
}

impl Subject {
    /// Of the options.
    pub fn of(args: &ProjectionArgs) -> Result<Subject, Failure> {
        match Named::of(&args.model, args.format)? {
            Named::Shape(shape, format) => {
                let file = ModelFile::described(shape.config(), format, shape.tied).map_err(Failure::input)?;
                let of = |g: &&(&str, Format, f64)| g.0 == shape.name && g.1 == format;
                let goal =
                    GOALS.iter().find(of).filter(|_| args.gpu.eq_ignore_ascii_case("h200") && args.context <= 1024);
                Ok(Subject { file, title: format!("{} in {format}", shape.title), goal: goal.map(|g| g.2) })
            }
            Named::File(path) => {
                let named = |e: &dyn std::fmt::Display| Failure::input(format!("{}: {e}", args.model));
                let file = ModelFile::open(path).map_err(|e| named(&e))?;
                file.check_kernels().map_err(|e| named(&e))?;
                Ok(Subject { file, title: args.model.clone(), goal: None })
            }
        }
    }

    /// Bytes that a step has to move, as the device stores them: all matrices of layers and the output projection, norms, a row of the
    /// embedding, the cosines and sines of a position, and all keys and values, those of the new position among them.
    pub fn needed(&self, args: &ProjectionArgs) -> u64 {
        let (file, c) = (&self.file, self.file.config());
        let matrices = file.layers().iter().flat_map(LayerTensors::matrices).chain([file.output()]);
        let vectors = |format: Format, rows, cols| format.tensor_vectors(rows, cols).map_or(0, |n| 16 * n as u64);
        let weights: u64 = matrices.map(|m| vectors(m.format, m.rows, m.cols)).sum();
        // Of embeddings of positions a row is read.
        let place = file.positions().map_or(0, |all| all.len() - c.hidden);
        let norms: u64 = file.vectors().map(|v| 4 * v.len() as u64).sum::<u64>() - 4 * place as u64;
        let row = vectors(file.embedding().format, 1, c.hidden) + 4 * c.rope.dims as u64;
        let windows = (0..c.layers).map(|layer| c.window_of(layer));
        let positions: usize = windows.map(|w| if w > 0 { args.context.min(w) } else { args.context }).sum();
        let of_head = c.head_dim * args.step.kv.bytes() + args.step.kv.scale_bytes();
        weights + norms + row + (2 * positions * c.kv_heads * of_head) as u64
    }
}
