//! A model that an option names: the shape of a published one, or a file.

use std::path::{Path, PathBuf};

use warpsmith_host::gpu_kernels::format::Format;
use warpsmith_host::model::ModelShape;

use crate::failure::Failure;

/// What `--model` and `--format` say together.
pub enum Named {
    /// All of its matrices are in that format.
    Shape(&'static ModelShape, Format),
    /// A GGUF model or a folder of Hugging Face.
    File(PathBuf),
}

impl Named {
    /// Of the two options.
    pub fn of(model: &str, format: Option<Format>) -> Result<Named, Failure> {
        let shape = ModelShape::find(model);
        if let (Some(shape), Some(format)) = (shape, format) {
            return Ok(Named::Shape(shape, format));
        }
        if Path::new(model).exists() {
            return match format {
                None => Ok(Named::File(PathBuf::from(model))),
                Some(_) => Err(Failure::usage("--format is for shapes; a file has its own formats")),
            };
        }
        if shape.is_some() {
            let formats = Format::ALL.map(Format::name).join("|");
            return Err(Failure::usage(format!("a shape needs the format of its weights: --format {formats}")));
        }
        let names: Vec<&str> = ModelShape::all().map(|s| s.name).collect();
        Err(Failure::usage(format!("{model} is no file, and no shape: there are {}", names.join(", "))))
    }
}
