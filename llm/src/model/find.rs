//! The tensors of a file: found by name, with the shapes that keys tell, and read once to be validated.

use super::{Config, Matrix, ModelError, Presence};
use crate::gguf::{Gguf, Tensor, TensorType};
use gpu_kernels::format::{Format, FormatError};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

macro_rules! matrix_types {
    (() $($layout:ident {
        $($(#[$doc:meta])* $format:ident: $name:expr, $id:literal, $elems:literal, $bytes:literal, $units:literal;)*
    })*) => {
        matrix_types!($($($name,)*)*)
    };
    ($first:expr, $($name:expr,)*) => { concat!($first $(, ", ", $name)*) };
}

/// The types that [`Format`] has.
const MATRIX_TYPES: &str = gpu_kernels::formats!(stored matrix_types ());

/// The factors of longrope, for sequences within the context that the model was first trained with, and for longer ones.
pub(super) const LONGROPE: [&str; 2] = ["rope_factors_short.weight", "rope_factors_long.weight"];

/// Bytes of a matrix that are read and validated at a time.
const PIECE: usize = 1 << 20;

/// [`Format::validate`] of a tensor's rows, some at a time.
fn validate(tensor: &Tensor<'_>, format: Format, rows: Range<usize>, cols: usize) -> Result<(), ModelError> {
    let refuse = |source| ModelError::TensorData { tensor: tensor.info.name.clone(), source };
    let row_bytes = format.row_bytes(cols).map_err(refuse)?;
    let piece = (PIECE / row_bytes.max(1)).clamp(1, rows.len().max(1));
    let mut bytes = vec![0; piece * row_bytes];
    for first in rows.clone().step_by(piece) {
        let count = piece.min(rows.end - first);
        let bytes = &mut bytes[..count * row_bytes];
        tensor.data.read(first * row_bytes, bytes)?;
        format.validate(bytes, count, cols).map_err(|error| match error {
            FormatError::NotFinite { format, block, row, first: column, end, value } => {
                let block = block + first * (cols / format.block_elems());
                refuse(FormatError::NotFinite { format, block, row: row + first, first: column, end, value })
            }
            FormatError::RowScale { format, block, row, expected, value } => {
                let block = block + first * (cols / format.block_elems());
                refuse(FormatError::RowScale { format, block, row: row + first, expected, value })
            }
            other => refuse(other),
        })?;
    }
    Ok(())
}

/// The vectors that are no part of a layer.
#[derive(Clone)]
pub(super) struct Vectors {
    pub norm: Vec<f32>,
    pub norm_bias: Option<Vec<f32>>,
    /// Of the output projection.
    pub head_bias: Option<Vec<f32>>,
    /// Embeddings of positions.
    pub positions: Option<Vec<f32>>,
}

/// Finds the tensors of a file, with the shapes that its keys tell.
pub(super) struct Find<'a> {
    file: &'a Gguf,
    pub config: &'a Config,
    /// The names that were asked for.
    asked: RefCell<HashSet<String>>,
    /// The scales of matrices that have their own.
    scales: RefCell<HashMap<String, Vec<f32>>>,
    /// There is no file: every tensor that is asked for would be there, matrices in this format.
    described: Option<Format>,
}

impl<'a> Find<'a> {
    /// Tensors of `file`; or where there is none, those that it would have, with matrices in the format `described`.
    pub fn new(file: &'a Gguf, config: &'a Config, described: Option<Format>) -> Find<'a> {
        Find { file, config, asked: RefCell::default(), scales: RefCell::default(), described }
    }

    /// The scales of the matrices that were asked for and have their own, by name.
    pub fn into_scales(self) -> HashMap<String, Vec<f32>> {
        self.scales.into_inner()
    }

    pub fn has(&self, name: &str) -> bool {
        self.file.tensor(name).is_some()
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor<'_>, ModelError> {
        self.asked.borrow_mut().insert(name.to_owned());
        let why = "the architecture cannot be run without it";
        let tensor =
            self.file.tensor(name).ok_or_else(|| ModelError::MissingTensor { tensor: name.to_owned(), why })?;
        let expected: Vec<u64> = shape.iter().map(|&n| n as u64).collect();
        // Trailing dimensions of 1 say nothing.
        let given = tensor.info.dims.iter().rposition(|&d| d != 1).map_or(1, |last| last + 1).max(shape.len());
        if tensor.info.dims.get(..given) != Some(&expected[..]) {
            return Err(ModelError::TensorShape {
                tensor: name.to_owned(),
                expected,
                actual: tensor.info.dims.clone(),
                why: "from the metadata keys",
            });
        }
        Ok(tensor)
    }

    pub fn matrix(&self, name: &str, rows: usize, cols: usize) -> Result<Matrix, ModelError> {
        self.rows_of(name, 0..rows, &[cols, rows])
    }

    /// A tensor of one dimension, as the only row of a matrix.
    pub fn row(&self, name: &str, cols: usize) -> Result<Matrix, ModelError> {
        self.rows_of(name, 0..1, &[cols])
    }

    /// Some rows of a tensor of that shape.
    pub fn rows(&self, name: &str, rows: Range<usize>, [all, cols]: [usize; 2]) -> Result<Matrix, ModelError> {
        self.rows_of(name, rows, &[cols, all])
    }

    /// `count` matrices of one tensor, one behind the other.
    pub fn matrices(&self, name: &str, count: usize, rows: usize, cols: usize) -> Result<Matrix, ModelError> {
        // Fewer than 2^64, as both come from keys of 32 bits; that a tensor has them, its shape says.
        self.rows_of(name, 0..count * rows, &[cols, rows, count])
    }

    fn rows_of(&self, name: &str, rows: Range<usize>, shape: &[usize]) -> Result<Matrix, ModelError> {
        let cols = shape.first().copied().unwrap_or(0);
        let (first_row, count) = (rows.start, rows.len());
        let named = |format, columns| {
            let name = name.to_owned();
            Matrix { name, format, first_row, rows: count, cols, columns, cut: None }
        };
        if let Some(format) = self.described {
            return Ok(named(format, None));
        }
        let tensor = self.tensor(name, shape)?;
        let columns = tensor.data.columns().cloned();
        let Some(format) = tensor.info.kind.format() else {
            return Err(ModelError::TensorType {
                tensor: name.to_owned(),
                actual: tensor.info.kind.name(),
                supported: MATRIX_TYPES,
            });
        };
        let scales = if format == Format::NVFP4 { self.scales_of(name, shape)? } else { None };
        let Some(scales) = scales else {
            validate(&tensor, format, rows.clone(), cols)?;
            return Ok(named(format, columns));
        };
        let data = tensor.data.scaled(format.block_bytes(), &scales);
        validate(&Tensor { data, ..tensor }, Format::NVFP4_SCALED, rows.clone(), cols)?;
        self.scales.borrow_mut().insert(name.to_owned(), scales);
        Ok(named(Format::NVFP4_SCALED, columns))
    }

    /// What the products of a matrix of NVFP4 are multiplied with, one number or one for each of several matrices, where the file has a
    /// tensor of them; one for its activations says nothing here, where these are no floats of four bits.
    fn scales_of(&self, name: &str, shape: &[usize]) -> Result<Option<Vec<f32>>, ModelError> {
        let Some(matrix) = name.strip_suffix(".weight") else { return Ok(None) };
        self.asked.borrow_mut().insert(format!("{matrix}.input_scale"));
        let name = format!("{matrix}.scale");
        let count = shape.get(2).copied().unwrap_or(1);
        self.has(&name).then(|| self.vector(&name, count)).transpose()
    }

    pub fn vectors_of_the_whole(&self) -> Result<Vectors, ModelError> {
        let (c, architecture) = (self.config, self.config.architecture);
        let optional = |name: &str, presence: Presence, shape: &[usize]| {
            presence.asked(|| self.has(name)).then(|| self.floats(name, shape)).transpose()
        };
        let norm = match architecture.norm_weights() {
            true => self.vector("output_norm.weight", c.hidden)?,
            false => vec![1.0; c.hidden],
        };
        let learned = if architecture.learned_positions() { Presence::Always } else { Presence::Never };
        Ok(Vectors {
            norm,
            norm_bias: optional("output_norm.bias", architecture.norm_biases(), &[c.hidden])?,
            head_bias: optional("output.bias", architecture.head_bias(), &[c.vocab])?,
            positions: optional("position_embd.weight", learned, &[c.hidden, c.context])?,
        })
    }

    pub fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, ModelError> {
        self.floats(name, &[len])
    }

    /// A tensor of f32 of that shape.
    pub fn floats(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, ModelError> {
        if self.described.is_some() {
            return Ok(vec![1.0; shape.iter().product()]);
        }
        let tensor = self.tensor(name, shape)?;
        if tensor.info.kind != TensorType::F32 {
            return Err(ModelError::TensorType {
                tensor: name.to_owned(),
                actual: tensor.info.kind.name(),
                supported: "F32",
            });
        }
        let data = |source| ModelError::TensorData { tensor: name.to_owned(), source };
        let bytes = tensor.data.to_vec()?;
        let len = bytes.len() / 4;
        Format::F32.validate(&bytes, 1, len).map_err(data)?;
        Format::F32.decode(&bytes, 1, len).map_err(data)
    }

    /// What RoPE's angles are divided by.
    pub fn rope_freqs(&self) -> Result<Option<Vec<f32>>, ModelError> {
        let architecture = self.config.architecture;
        if architecture.longrope() && LONGROPE.iter().any(|name| self.has(name)) {
            // Both are checked, whichever is used.
            let [short, long] = LONGROPE.map(|name| self.divisors(name));
            let key = format!("{}.rope.scaling.original_context_length", architecture.name());
            let original = self.file.u32(&key)?.map_or(self.config.context, |n| n as usize);
            let (short, long) = (short?, long?);
            return Ok(Some(if self.config.context > original { long } else { short }));
        }
        let name = "rope_freqs.weight";
        self.has(name).then(|| self.divisors(name)).transpose()
    }

    fn divisors(&self, name: &str) -> Result<Vec<f32>, ModelError> {
        let freqs = self.vector(name, self.config.rope.dims / 2)?;
        match freqs.iter().find(|f| **f <= 0.0) {
            Some(f) => Err(ModelError::Config {
                key: name.into(),
                value: f.to_string(),
                reason: "angles are divided by it; expected numbers above zero".into(),
            }),
            None => Ok(freqs),
        }
    }

    /// Tensors that nobody asked for: those that would change the result are refused, others are named in a warning.
    pub fn refuse_unknown(&self) -> Result<(), ModelError> {
        for t in self.file.tensors() {
            let name = t.name.as_str();
            if self.asked.borrow().contains(name) {
                continue;
            }
            let in_layer = name.strip_prefix("blk.").and_then(|rest| {
                let (number, part) = rest.split_once('.')?;
                Some((number.parse::<usize>().ok()?, part))
            });
            let guesses = in_layer.is_some_and(|(n, _)| n >= self.config.layers) && self.config.architecture.guesses();
            let reason = match in_layer {
                // A layer behind the model's own, which guesses further tokens: no text depends on it.
                _ if guesses => None,
                Some((n, part)) if n < self.config.layers => {
                    changes_result(part).or(Some("it is not part of this architecture as implemented"))
                }
                _ => changes_result(name),
            };
            match reason {
                Some(reason) => {
                    return Err(ModelError::UnsupportedTensor { tensor: name.to_owned(), reason });
                }
                None => tracing::warn!("tensor `{name}` is not used by this architecture and is ignored"),
            }
        }
        Ok(())
    }
}

/// What a tensor with this name would add to the forward pass, as far as names tell.
fn changes_result(name: &str) -> Option<&'static str> {
    if name.ends_with(".bias") {
        Some("a bias here is not implemented")
    } else if name.ends_with(".scale") || name.ends_with(".input_scale") {
        Some("per-tensor scales of matrix products are not implemented")
    } else if name.contains("_exps") || name.contains("_shexp") || name.contains("gate_inp") {
        Some("mixtures of experts have no such part as implemented")
    } else if name.starts_with("rope_factors") {
        Some("long and short RoPE factors are not implemented")
    } else if name.contains("_norm") {
        Some("this norm is not implemented")
    } else if name.contains(".lora_") || name.starts_with("position_embd") || name.starts_with("token_types") {
        Some("it is not part of this architecture as implemented")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::GgufWriter;

    #[test]
    fn a_damaged_block_is_named_by_its_place_in_the_whole_matrix() {
        // Of 34 bytes a block, so that the matrix is read in two pieces.
        let (format, cols, rows) = (Format::Q8_0, 64, PIECE / 68 + 3);
        let mut data = vec![0; rows * 68];
        let (row, block) = (rows - 1, 2 * rows - 1);
        data[block * 34..][..2].copy_from_slice(&[0, 0x7e]);
        let mut w = GgufWriter::new();
        w.tensor("m", &[cols as u64, rows as u64], TensorType::Q8_0, data).unwrap();
        let file = Gguf::from_bytes(w.to_bytes()).unwrap();
        let refused = validate(&file.tensor("m").unwrap(), format, 0..rows, cols).unwrap_err();
        let ModelError::TensorData { tensor, source: FormatError::NotFinite { block: b, row: r, first, end, .. } } =
            refused
        else {
            panic!("{refused}")
        };
        assert_eq!((tensor.as_str(), b, r, first, end), ("m", block, row, 32, 64));
        // Another scale of a row in its last block.
        let (cols, rows) = (128, PIECE / 80 + 3);
        let mut data = vec![0; rows * 80];
        data[rows * 80 - 4..].copy_from_slice(&1f32.to_le_bytes());
        let mut w = GgufWriter::new();
        w.tensor("m", &[cols as u64, rows as u64], TensorType::NVFP4_SCALED, data).unwrap();
        let file = Gguf::from_bytes(w.to_bytes()).unwrap();
        let refused = validate(&file.tensor("m").unwrap(), Format::NVFP4_SCALED, 0..rows, cols).unwrap_err();
        let ModelError::TensorData { source: FormatError::RowScale { block, row, .. }, .. } = refused else {
            panic!("{refused}")
        };
        assert_eq!((block, row), (2 * rows - 1, rows - 1));
    }

    #[test]
    fn every_format_has_a_type_and_is_named() {
        let names: Vec<&str> = MATRIX_TYPES.split(", ").collect();
        let mut found = Vec::new();
        for &kind in TensorType::ALL {
            if let Some(format) = kind.format() {
                assert_eq!(format.name(), kind.name());
                assert_eq!(format.block_elems() as u64, kind.block_elements());
                assert_eq!(format.block_bytes() as u64, kind.block_bytes());
                assert!(names.contains(&format.name()));
                found.push(format);
            }
        }
        found.sort();
        assert_eq!(found, Format::ALL);
        assert_eq!(names.len(), Format::ALL.len());
    }
}
