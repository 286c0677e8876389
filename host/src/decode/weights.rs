//! Weights on the device: uploaded once, as the records that the kernels read.

use super::DecodeError;
use crate::model::{Config, LayerTensors, Matrix, ModelFile};
use crate::{Buffer, Device, Stream};
use gpu_kernels::format::Format;
use std::ops::Range;
use std::sync::Arc;
use warpsmith_device::{DeviceSlice, U32x4};

/// A model on a device. Cheap to clone; sequences share its weights, which never change.
///
/// Loading takes memory for the weights alone, in the formats of the file; what a sequence takes is in
/// [`Sequence`](super::Sequence). Identity is that of the object: two loads of one file are two models,
/// and nothing anywhere is looked up by name, shape or address.
#[derive(Clone)]
pub struct Model(Arc<Inner>);

struct Inner {
    device: Device,
    file: ModelFile,
    weights: Weights,
    bytes: u64,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model").field("file", &self.0.file).field("bytes", &self.0.bytes).finish_non_exhaustive()
    }
}

impl Model {
    /// Uploads all weights. If they do not fit into free memory, nothing is allocated.
    pub fn load(device: &Device, file: &ModelFile) -> Result<Model, DecodeError> {
        let bytes = Self::device_bytes(file)?;
        let memory = device.memory_info()?;
        if bytes > memory.free {
            return Err(DecodeError::Memory {
                what: "the model",
                needed: bytes,
                parts: "its weights in the file's formats".into(),
                free: memory.free,
                total: memory.total,
                hint: "take a smaller model or a smaller format; WARPSMITH_MEMORY sizes the software device",
            });
        }
        let stream = device.stream()?;
        let weights = Weights::upload(&stream, file)?;
        // Other streams use the weights without waiting for this one.
        stream.synchronize()?;
        tracing::debug!(bytes, layers = file.config().layers, "weights uploaded");
        Ok(Model(Arc::new(Inner { device: device.clone(), file: file.clone(), weights, bytes })))
    }

    /// Device memory that the weights of a file take.
    pub fn device_bytes(file: &ModelFile) -> Result<u64, DecodeError> {
        let mut bytes = 0u64;
        for m in file.matrices() {
            bytes += padded(vectors(m)? as u64 * 16);
        }
        let vectors = file.layers().iter().flat_map(|l| {
            [Some(&l.attn_norm), Some(&l.ffn_norm), l.q_norm.as_ref(), l.k_norm.as_ref()].into_iter().flatten()
        });
        let norms: u64 = vectors.map(|v| padded(v.len() as u64 * 4)).sum();
        Ok(bytes + norms + padded(file.output_norm().len() as u64 * 4))
    }

    /// The device that holds it.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Its numbers.
    pub fn config(&self) -> &Config {
        self.0.file.config()
    }

    /// The file that it was loaded from.
    pub fn file(&self) -> &ModelFile {
        &self.0.file
    }

    /// Device memory that the weights take.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    pub(super) fn weights(&self) -> &Weights {
        &self.0.weights
    }

    /// A number that no other loaded model has or will have.
    pub(super) fn id(&self) -> u64 {
        self.0.weights.output_norm.id()
    }
}

/// Bytes as allocated: the driver gives whole 512-byte units.
pub(super) fn padded(bytes: u64) -> u64 {
    bytes.next_multiple_of(512)
}

/// 16-byte vectors of a matrix on the device.
fn vectors(m: &Matrix) -> Result<usize, DecodeError> {
    m.format.tensor_vectors(m.rows, m.cols).map_err(|source| DecodeError::Tensor { tensor: m.name.clone(), source })
}

/// One matrix, or several of equal format and width stacked on each other.
pub(super) struct Stack {
    pub format: Format,
    pub cols: u32,
    /// Where its outputs go in the output of the whole projection.
    pub outputs: Range<usize>,
    records: Buffer<U32x4>,
}

impl Stack {
    pub fn records(&self) -> &DeviceSlice<U32x4> {
        &self.records
    }

    pub fn rows(&self) -> u32 {
        // Checked when it was uploaded.
        self.outputs.len() as u32
    }

    fn upload(stream: &Stream, file: &ModelFile, matrices: &[&Matrix], first: usize) -> Result<Stack, DecodeError> {
        let (format, cols) = matrices.first().map_or((Format::F32, 0), |m| (m.format, m.cols));
        let (mut len, mut rows) = (0, 0);
        for m in matrices {
            len += vectors(m)?;
            rows += m.rows;
        }
        for (what, size) in [("rows", rows), ("columns", cols)] {
            if u32::try_from(size).is_err() {
                let what = format!("the number of {what} of `{}`", matrices.first().map_or("", |m| &m.name));
                return Err(DecodeError::Size { what, size: size as u64, limit: u32::MAX.into() });
            }
        }
        let mut records = stream.device().alloc::<U32x4>(len)?;
        let mut at = 0;
        for m in matrices {
            let part = m
                .format
                .repack(file.data(m), m.rows, m.cols)
                .map_err(|source| DecodeError::Tensor { tensor: m.name.clone(), source })?;
            stream.write(&mut records[at..at + part.len()], &part)?;
            at += part.len();
        }
        Ok(Stack { format, cols: cols as u32, outputs: first..first + rows, records })
    }
}

/// Matrices that are applied to one input, one below the other. Neighbours of equal format are one
/// stack, and so one launch.
pub(super) struct Projection {
    pub stacks: Vec<Stack>,
}

impl Projection {
    fn upload(stream: &Stream, file: &ModelFile, matrices: &[&Matrix]) -> Result<Projection, DecodeError> {
        let mut stacks = Vec::new();
        let mut first = 0;
        for run in matrices.chunk_by(|a, b| a.format == b.format && a.cols == b.cols) {
            let stack = Stack::upload(stream, file, run, first)?;
            first = stack.outputs.end;
            stacks.push(stack);
        }
        Ok(Projection { stacks })
    }
}

pub(super) struct LayerWeights {
    pub attn_norm: Buffer<f32>,
    pub qkv: Projection,
    /// Norms of query and key heads.
    pub head_norms: Option<(Buffer<f32>, Buffer<f32>)>,
    pub attn_output: Projection,
    pub ffn_norm: Buffer<f32>,
    pub gate_up: Projection,
    pub down: Projection,
}

pub(super) struct Weights {
    pub embedding: Stack,
    pub layers: Vec<LayerWeights>,
    pub output_norm: Buffer<f32>,
    /// `None`: the embeddings serve.
    output: Option<Stack>,
}

impl Weights {
    pub fn output(&self) -> &Stack {
        self.output.as_ref().unwrap_or(&self.embedding)
    }

    fn upload(stream: &Stream, file: &ModelFile) -> Result<Weights, DecodeError> {
        let embedding = Stack::upload(stream, file, &[file.embedding()], 0)?;
        let layers = file.layers().iter().map(|l| Self::layer(stream, file, l)).collect::<Result<_, _>>()?;
        let output_norm = stream.upload(file.output_norm())?;
        let output = match file.tied() {
            true => None,
            false => Some(Stack::upload(stream, file, &[file.output()], 0)?),
        };
        Ok(Weights { embedding, layers, output_norm, output })
    }

    fn layer(stream: &Stream, file: &ModelFile, l: &LayerTensors) -> Result<LayerWeights, DecodeError> {
        let project = |matrices: &[&Matrix]| Projection::upload(stream, file, matrices);
        let head_norms = match (&l.q_norm, &l.k_norm) {
            (Some(q), Some(k)) => Some((stream.upload(q)?, stream.upload(k)?)),
            _ => None,
        };
        Ok(LayerWeights {
            attn_norm: stream.upload(&l.attn_norm)?,
            qkv: project(&[&l.q, &l.k, &l.v])?,
            head_norms,
            attn_output: project(&[&l.attn_output])?,
            ffn_norm: stream.upload(&l.ffn_norm)?,
            gate_up: project(&[&l.gate, &l.up])?,
            down: project(&[&l.down])?,
        })
    }
}
