//! Weights on the device: uploaded once, in the records that the kernels read.

use super::DecodeError;
use super::delta::DeltaVectors;
use super::stack::{Bias, ColumnOrder, Projection, Records, Stack, biases_of};
use crate::model::{LayerTensors, Matrix, ModelFile};
use gpu_kernels::format::Format;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;
use warpsmith_device::{DeviceSlice, U32x4};
use warpsmith_runtime::{Buffer, Pinned, Stream};

/// How far an upload is.
#[derive(Clone, Copy, Debug)]
pub struct LoadProgress<'a> {
    /// The tensor that is being uploaded.
    pub tensor: &'a str,
    /// Bytes of device memory written so far.
    pub done: u64,
    /// Bytes in all.
    pub total: u64,
}

/// Bytes as allocated: the driver gives whole 512-byte units.
pub(super) fn padded(bytes: u64) -> u64 {
    bytes.next_multiple_of(512)
}

/// Device memory that the weights of a file take.
pub(super) fn device_bytes(file: &ModelFile) -> Result<u64, DecodeError> {
    let mut bytes = 0u64;
    for m in file.matrices() {
        bytes += padded(vectors(m)? as u64 * 16);
    }
    let of_layers = file.layers().iter().map(|l| orders(l.matrices())).chain([orders([file.output()])]);
    let ordered: u64 = of_layers.flatten().map(|columns| padded(columns.len() as u64 * 4)).sum();
    Ok(bytes + ordered + file.vectors().map(|v| padded(v.len() as u64 * 4)).sum::<u64>())
}

/// The orders that columns of matrices are in, each once.
fn orders<'a>(matrices: impl IntoIterator<Item = &'a Matrix>) -> Vec<&'a Arc<[u32]>> {
    let mut all = Vec::new();
    for columns in matrices.into_iter().filter_map(|m| m.columns.as_ref()) {
        if !all.contains(&columns) {
            all.push(columns);
        }
    }
    all
}

/// Whether matrices can be one stack: of one format, and multiplied with the same elements in one order.
fn alike(a: &Matrix, b: &Matrix) -> bool {
    a.format == b.format && a.cols == b.cols && a.columns == b.columns
}

/// 16-byte vectors that a matrix takes on the device.
fn vectors(m: &Matrix) -> Result<usize, DecodeError> {
    m.format.tensor_vectors(m.rows, m.cols).map_err(|source| DecodeError::Tensor { tensor: m.name.clone(), source })
}

/// A norm of the residual stream.
pub(super) struct Norm {
    pub weight: Buffer<f32>,
    /// What some layer norms add.
    pub bias: Option<Buffer<f32>>,
}

/// Two vectors that come together.
type Pair = (Buffer<f32>, Buffer<f32>);

/// Makes a layer's weights on the device, and their upload, from one list: a field, how [`Upload`] makes it, and of which
/// tensors of the file, those that every layer has behind those that it may lack, and biases behind the others.
macro_rules! layer_weights {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $upload:ident($($tensor:ident),+ $(| $always:ident)? $(; $($bias:ident),*)?);)*) => {
        /// The weights of one layer on the device.
        pub(super) struct LayerWeights {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl<P: FnMut(LoadProgress<'_>)> Upload<'_, P> {
            fn layer(&mut self, l: &LayerTensors) -> Result<LayerWeights, DecodeError> {
                // All of them: a tensor that a file has to hold and nobody uploads does not compile.
                let LayerTensors { $($($tensor,)+ $($always,)? $($($bias,)*)?)* } = l;
                Ok(LayerWeights {
                    $($field: self.$upload(stringify!($field), [$($tensor),+] $(, $always)? $(, [$($bias),*])?)?,)*
                })
            }
        }
    };
}

layer_weights! {
    /// Norms of query and key heads.
    head_norms: Option<Pair> = heads(q_norm, k_norm);
    /// Where the matrices behind it are those of experts.
    router: Option<Projection> = optional_projection(router, shared_router; router_bias);
    /// What choosing adds to each expert.
    choice_bias: Option<Buffer<f32>> = optional(choice_bias);
    attn_norm: Norm = norm(attn_norm; attn_norm_bias);
    /// Of a delta net what it projects.
    qkv: Projection = inputs(q, k, v, delta_q, delta_k, delta_v, delta_gate, delta_beta, delta_alpha; qkv_bias);
    /// Where the layer is a delta net.
    delta: Option<DeltaVectors> = delta(delta_conv, delta_dt, delta_a, delta_norm);
    /// A score of each query head.
    sinks: Option<Buffer<f32>> = optional(sinks);
    attn_output: Stack = matrix(attn_output; attn_output_bias);
    /// None, where the feed-forward part reads what attention reads.
    ffn_norm: Option<Norm> = optional_norm(ffn_norm; ffn_norm_bias);
    gate_up: Projection = gates_and_ups(gate | up; gate_bias, up_bias);
    down: Stack = experts_matrix(down; down_bias);
    /// The expert that all tokens are given to.
    shared_gate_up: Option<Projection> = optional_projection(shared_gate, shared_up;);
    shared_down: Option<Stack> = optional_matrix(shared_down);
    /// Norms of what attention and the feed-forward part add.
    post_norms: Option<Pair> = pair(post_attention_norm, post_ffw_norm);
}

pub(super) struct Weights {
    pub embedding: Stack,
    pub layers: Vec<LayerWeights>,
    pub output_norm: Norm,
    /// Embeddings of positions.
    pub positions: Option<Buffer<f32>>,
    /// The first token whose logit its head gives.
    pub first_token: usize,
    /// `None`: the embeddings serve.
    output: Option<Stack>,
}

impl Weights {
    /// Those of a file, which take so many bytes; where they are not filled, matrices are only given a place.
    pub fn upload(
        stream: &Stream,
        file: &ModelFile,
        (total, fill): (u64, bool),
        progress: impl FnMut(LoadProgress<'_>),
    ) -> Result<Weights, DecodeError> {
        Upload::new(stream, file, (total, fill), progress)?.weights()
    }

    pub fn output(&self) -> &Stack {
        self.output.as_ref().unwrap_or(&self.embedding)
    }

    /// Elements of the longest column that is gathered; 0, where none is.
    pub fn gathered(&self) -> usize {
        let of_layer = |l: &'_ LayerWeights| {
            let shared = l.shared_gate_up.iter().flat_map(|p| &p.stacks).chain(&l.shared_down);
            let own = l.qkv.stacks.iter().chain(&l.gate_up.stacks).chain([&l.attn_output, &l.down]);
            own.chain(shared).map(Stack::gathered).max().unwrap_or(0)
        };
        self.layers.iter().map(of_layer).chain([self.output().gathered()]).max().unwrap_or(0)
    }
}

/// Bytes of a staging area: large enough for the bus, small beside any model.
const STAGE_BYTES: usize = 8 << 20;

/// The way of weights to the device: rows are re-arranged into one of two staging areas while the other is copied.
struct Upload<'a, P> {
    stream: &'a Stream,
    file: &'a ModelFile,
    stages: [Pinned<U32x4>; 2],
    stage: usize,
    /// The number of the layer that is uploaded.
    layer: usize,
    /// The orders of its matrices' columns that are uploaded.
    orders: Vec<(Arc<[u32]>, ColumnOrder)>,
    done: u64,
    total: u64,
    /// Matrices are written, not only given a place.
    fill: bool,
    progress: P,
}

impl<'a, P: FnMut(LoadProgress<'_>)> Upload<'a, P> {
    fn new(
        stream: &'a Stream,
        file: &'a ModelFile,
        (total, fill): (u64, bool),
        progress: P,
    ) -> Result<Self, DecodeError> {
        let (mut widest, mut largest) = (1, 1);
        for m in file.matrices() {
            let all = vectors(m)?;
            largest = largest.max(all);
            widest = widest.max(all / m.rows.max(1));
        }
        let len = (STAGE_BYTES / size_of::<U32x4>()).min(largest).max(widest);
        let device = stream.device();
        let stages = [device.pinned(len)?, device.pinned(len)?];
        Ok(Upload { stream, file, stages, stage: 0, layer: 0, orders: Vec::new(), done: 0, total, fill, progress })
    }

    fn advance(&mut self, tensor: &str, bytes: usize) {
        self.done += bytes as u64;
        let (done, total) = (self.done.min(self.total), self.total);
        (self.progress)(LoadProgress { tensor, done, total });
    }

    fn norm(&mut self, name: &str, [weight]: [&Vec<f32>; 1], [bias]: [&Bias; 1]) -> Result<Norm, DecodeError> {
        let weight = self.floats(name, weight)?;
        let bias = bias.as_deref().map(|bias| self.floats(name, bias)).transpose()?;
        Ok(Norm { weight, bias })
    }

    /// A norm that only some layers have.
    fn optional_norm(
        &mut self,
        name: &str,
        [weight]: [&Option<Vec<f32>>; 1],
        bias: [&Bias; 1],
    ) -> Result<Option<Norm>, DecodeError> {
        weight.as_ref().map(|weight| self.norm(name, [weight], bias)).transpose()
    }

    /// A vector that only some architectures have.
    fn optional(&mut self, name: &str, [values]: [&Option<Vec<f32>>; 1]) -> Result<Option<Buffer<f32>>, DecodeError> {
        values.as_deref().map(|values| self.floats(name, values)).transpose()
    }

    /// Two vectors that are both there, or neither.
    fn pair(&mut self, name: &str, both: [&Option<Vec<f32>>; 2]) -> Result<Option<Pair>, DecodeError> {
        let [Some(a), Some(b)] = both else { return Ok(None) };
        Ok(Some((self.floats(name, a)?, self.floats(name, b)?)))
    }

    /// Norms of query and key heads. Attention divides scores by the root of the head width: where the model does otherwise, the
    /// norm of queries makes up for it.
    fn heads(&mut self, name: &str, [q, k]: [&Option<Vec<f32>>; 2]) -> Result<Option<Pair>, DecodeError> {
        let c = self.file.config();
        // Attention with capped scores is told how they are scaled.
        let factor = if c.score_cap > 0.0 { 1.0 } else { c.score_scale * (c.head_dim as f64).sqrt() };
        let scaled = |q: &Vec<f32>| q.iter().map(|w| (f64::from(*w) * factor) as f32).collect();
        self.pair(name, [&q.as_ref().map(scaled), k])
    }

    fn matrix(&mut self, _: &str, [m]: [&Matrix; 1], bias: [&Bias; 1]) -> Result<Stack, DecodeError> {
        self.stack(&[m], &bias, (0, 1))
    }

    /// A matrix that only some models have.
    fn optional_matrix(&mut self, _: &str, [m]: [&Option<Matrix>; 1]) -> Result<Option<Stack>, DecodeError> {
        m.as_ref().map(|m| self.stack(&[m], &[], (0, 1))).transpose()
    }

    /// Those of the matrices that the model has, if it has any; biases are of the first alone.
    fn optional_projection<const N: usize, const B: usize>(
        &mut self,
        _: &str,
        matrices: [&Option<Matrix>; N],
        biases: [&Bias; B],
    ) -> Result<Option<Projection>, DecodeError> {
        let there: Vec<&Matrix> = matrices.into_iter().flatten().collect();
        if there.is_empty() { Ok(None) } else { self.projections(&there, &biases, 1).map(Some) }
    }

    /// Experts of the layer that is uploaded; 1 where it has none.
    fn experts(&self) -> usize {
        self.file.config().experts_of(self.layer).map_or(1, |e| e.count)
    }

    fn experts_matrix(&mut self, _: &str, [m]: [&Matrix; 1], bias: [&Bias; 1]) -> Result<Stack, DecodeError> {
        self.stack(&[m], &bias, (0, self.experts()))
    }

    fn floats(&mut self, name: &str, values: &[f32]) -> Result<Buffer<f32>, DecodeError> {
        let buffer = self.stream.upload(values)?;
        self.advance(name, padded(values.len() as u64 * 4) as usize);
        Ok(buffer)
    }

    /// The order of a matrix's columns, if that is another than that of its input.
    fn order(&mut self, m: &Matrix) -> Result<Option<ColumnOrder>, DecodeError> {
        let Some(columns) = &m.columns else { return Ok(None) };
        if let Some((_, there)) = self.orders.iter().find(|(of, _)| of == columns) {
            return Ok(Some(there.clone()));
        }
        let buffer = Arc::new(self.stream.upload(columns)?);
        self.advance(&m.name, padded(columns.len() as u64 * 4) as usize);
        self.orders.push((columns.clone(), buffer.clone()));
        Ok(Some(buffer))
    }

    /// Writes the records of rows of a matrix.
    fn records(
        &mut self,
        m: &Matrix,
        Range { start, end }: Range<usize>,
        to: &mut DeviceSlice<U32x4>,
    ) -> Result<(), DecodeError> {
        let failed = |source| DecodeError::Tensor { tensor: m.name.clone(), source };
        let row = m.format.row_vectors(m.cols).map_err(failed)?;
        let row_bytes = m.format.row_bytes(m.cols).map_err(failed)?;
        let mut first = start;
        while first < end {
            let stage = &self.stages[self.stage];
            self.stage = 1 - self.stage;
            let rows = (stage.len() / row).clamp(1, end - first);
            // Waits for the copy before the last one.
            stage.with_mut(|records| {
                // Pieces that keep every core busy and are worth a task.
                let piece = rows.div_ceil(4 * rayon::current_num_threads()).max(16);
                let pieces = records[..rows * row].par_chunks_mut(piece * row).enumerate();
                pieces.try_for_each(|(i, records)| {
                    let count = records.len() / row;
                    let mut bytes = vec![0; count * row_bytes];
                    let begin = first + i * piece;
                    self.file.read_rows(m, begin..begin + count, &mut bytes)?;
                    m.format.repack_into(&bytes, count, m.cols, records).map_err(failed)
                })
            })??;
            self.stream.write_pinned_part(stage, &mut to[(first - start) * row..(first - start + rows) * row])?;
            first += rows;
            self.advance(&m.name, rows * row * size_of::<U32x4>());
        }
        Ok(())
    }

    /// One below the other, or each of `count` parts of the first above that part of the second. Its outputs are those of the whole
    /// projection from `first` on, of which `biases` are.
    fn stack(
        &mut self,
        matrices: &[&Matrix],
        biases: &[&Bias],
        (first, count): (usize, usize),
    ) -> Result<Stack, DecodeError> {
        let part = |m: &Matrix, part: usize| part * (m.rows / count)..(part + 1) * (m.rows / count);
        let parts: Vec<(&Matrix, Range<usize>)> =
            (0..count).flat_map(|i| matrices.iter().map(move |m| (*m, part(m, i)))).collect();
        self.stack_of(&parts, biases, (first, count))
    }

    /// Rows of matrices that are [alike], one below the other, as `count` stacks of equal size.
    fn stack_of(
        &mut self,
        parts: &[(&Matrix, Range<usize>)],
        biases: &[&Bias],
        (first, count): (usize, usize),
    ) -> Result<Stack, DecodeError> {
        let (format, cols) = parts.first().map_or((Format::F32, 0), |(m, _)| (m.format, m.cols));
        let name = || parts.first().map_or("", |(m, _)| &m.name);
        let vectors_of =
            |(m, rows): &(&Matrix, Range<usize>)| Ok::<_, DecodeError>(vectors(m)? / m.rows.max(1) * rows.len());
        let len = parts.iter().try_fold(0, |len, part| Ok::<_, DecodeError>(len + vectors_of(part)?))?;
        let rows = parts.iter().map(|(_, rows)| rows.len()).sum::<usize>() / count;
        for (what, size) in [("rows", rows), ("columns", cols), ("experts", count)] {
            if u32::try_from(size).is_err() {
                let what = format!("the number of {what} of `{}`", name());
                return Err(DecodeError::Size { what, size: size as u64, limit: u32::MAX.into() });
            }
        }
        let mut records = self.stream.device().alloc::<U32x4>(len)?;
        let mut at = 0;
        for part in parts {
            let len = vectors_of(part)?;
            if self.fill {
                self.records(part.0, part.1.clone(), &mut records[at..at + len])?;
            }
            at += len;
        }
        let outputs = first..first + rows;
        let bias = biases_of(biases, outputs.clone(), count);
        let bias = bias.map(|bias| self.floats(name(), &bias)).transpose()?;
        let columns = parts.first().map_or(Ok(None), |(m, _)| self.order(m))?;
        let records = Records::all(records);
        Ok(Stack { format, cols: cols as u32, outputs, matrices: count as u32, records, bias, columns })
    }

    /// What a layer projects: queries, keys and values, or what a delta net takes. Gates come before all, so that what attention reads
    /// follows on them; in the file each head's lie behind its queries.
    fn inputs(
        &mut self,
        _: &str,
        [q, k, v, delta @ ..]: [&Option<Matrix>; 9],
        biases: [&Bias; 1],
    ) -> Result<Projection, DecodeError> {
        let (Some(q), Some(k), Some(v)) = (q, k, v) else {
            let delta: Vec<&Matrix> = delta.into_iter().flatten().collect();
            return self.projections(&delta, &[], 1);
        };
        let c = self.file.config();
        if c.gate_dim() == 0 {
            return self.projections(&[q, k, v], &biases, 1);
        }
        let (dim, heads) = (c.head_dim, c.heads);
        let of_head =
            |which: usize| (0..heads).map(move |head| (q, (2 * head + which) * dim..(2 * head + which + 1) * dim));
        let mut parts: Vec<(&Matrix, Range<usize>)> = of_head(1).chain(of_head(0)).collect();
        parts.extend([(k, 0..k.rows), (v, 0..v.rows)]);
        let (mut stacks, mut first) = (Vec::new(), 0);
        for run in parts.chunk_by(|(a, _), (b, _)| alike(a, b)) {
            let stack = self.stack_of(run, &[], (first, 1))?;
            first = stack.outputs.end;
            stacks.push(stack);
        }
        Ok(Projection { stacks })
    }

    /// The vectors of a delta net.
    fn delta(&mut self, name: &str, all: [&Option<Vec<f32>>; 4]) -> Result<Option<DeltaVectors>, DecodeError> {
        let [Some(conv), Some(dt), Some(a), Some(norm)] = all else { return Ok(None) };
        Ok(Some(DeltaVectors {
            conv: self.floats(name, conv)?,
            dt: self.floats(name, dt)?,
            a: self.floats(name, a)?,
            norm: self.floats(name, norm)?,
        }))
    }

    /// Gates, where there are any, and ups; of all experts.
    fn gates_and_ups(
        &mut self,
        _: &str,
        [gate]: [&Option<Matrix>; 1],
        up: &Matrix,
        [gate_bias, up_bias]: [&Bias; 2],
    ) -> Result<Projection, DecodeError> {
        match gate {
            // Something is done to gates alone.
            Some(gate) if self.file.config().weighs_inputs(self.layer) => {
                let gates = self.stack(&[gate], &[gate_bias, up_bias], (0, self.experts()))?;
                let ups = self.stack(&[up], &[gate_bias, up_bias], (gates.outputs.end, self.experts()))?;
                Ok(Projection { stacks: vec![gates, ups] })
            }
            Some(gate) => self.projections(&[gate, up], &[gate_bias, up_bias], self.experts()),
            None => self.projections(&[up], &[up_bias], self.experts()),
        }
    }

    /// A projection, or as many as there are experts.
    fn projections(&mut self, matrices: &[&Matrix], biases: &[&Bias], count: usize) -> Result<Projection, DecodeError> {
        let mut stacks = Vec::new();
        let mut first = 0;
        for run in matrices.chunk_by(|a, b| alike(a, b)) {
            let stack = self.stack(run, biases, (first, count))?;
            first = stack.outputs.end;
            stacks.push(stack);
        }
        Ok(Projection { stacks })
    }

    fn weights(&mut self) -> Result<Weights, DecodeError> {
        let file = self.file;
        let (head, bias): (_, Bias) = (file.head(), file.output_bias().map(<[f32]>::to_vec));
        let none: Bias = None;
        // The head is all of the embeddings, which do not read its bias.
        let whole = file.tied() && head.len() == file.embedding().rows;
        let embedding = self.stack(&[file.embedding()], &[if whole { &bias } else { &none }], (0, 1))?;
        let mut layers = Vec::with_capacity(file.layers().len());
        for (number, l) in file.layers().iter().enumerate() {
            self.layer = number;
            layers.push(self.layer(l)?);
            self.orders.clear();
        }
        let positions = file.positions().map(|all| self.floats("position_embd.weight", all)).transpose()?;
        // Logits are scaled by what the head reads.
        let scale = file.config().logit_scale;
        let scaled = |values: &[f32]| values.iter().map(|x| x * scale).collect::<Vec<f32>>();
        let (weight, bias_of_norm) = (scaled(file.output_norm()), file.output_norm_bias().map(scaled));
        let output_norm = self.norm("output_norm.weight", [&weight], [&bias_of_norm])?;
        let output = match file.tied() {
            true if whole => None,
            true => {
                let bias = bias.map(|bias| self.floats("output.bias", &bias)).transpose()?;
                Some(Stack { bias, ..embedding.part(head.clone()) })
            }
            false => Some(self.stack(&[file.output()], &[&bias], (0, 1))?),
        };
        Ok(Weights { embedding, layers, output_norm, positions, first_token: head.start, output })
    }
}
