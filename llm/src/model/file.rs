//! The tensors of a model, found, checked and named by what they do.

use super::{Config, LayerTensors, ModelError, Presence};
use crate::checkpoint;
use crate::gguf::{Gguf, GgufWriter, Tensor, TensorData, TensorType};
use gpu_kernels::delta::DIMS;
use gpu_kernels::format::{Format, FormatError};
use gpu_kernels::layer::{HEAD_DIMS, MAX_GROUP};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A weight matrix in the file: `rows` outputs by `cols` inputs. It is a tensor, or some rows of one: files of some architectures
/// hold matrices that are applied to one input below each other in one tensor. Of a mixture of experts it is the matrices of all, one
/// behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// The tensor's name.
    pub name: String,
    /// How its rows are stored.
    pub format: Format,
    /// The tensor's row that is its first.
    pub first_row: usize,
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub cols: usize,
    /// Where it is a [share](ModelFile::share) of another matrix.
    pub cut: Option<Cut>,
}

/// Rows and columns of a matrix that a device holds of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Rows of the whole fall into groups of so many: the experts.
    pub(super) group: usize,
    /// Of every group these.
    pub(super) rows: Range<usize>,
    /// Columns of the whole.
    pub(super) cols: usize,
    /// That of them which is the first.
    pub(super) first_col: usize,
}

/// A model on disk: its keys and tensors, all checked, ready to upload or to run on the CPU.
///
/// Opening reads every weight once, to refuse scales that are not finite. Cloning is cheap.
#[derive(Clone)]
pub struct ModelFile(Arc<Inner>);

struct Inner {
    gguf: Arc<Gguf>,
    config: Config,
    embedding: Matrix,
    output: Option<Matrix>,
    output_bias: Option<Vec<f32>>,
    output_norm: Vec<f32>,
    output_norm_bias: Option<Vec<f32>>,
    positions: Option<Vec<f32>>,
    rope_freqs: Option<Vec<f32>>,
    layers: Vec<LayerTensors>,
    /// Of matrices that have a scale of their own, by name.
    scales: HashMap<String, Vec<f32>>,
    /// Rows of the vocabulary that logits are computed of.
    head: Range<usize>,
}

impl std::fmt::Debug for ModelFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelFile").field("gguf", &self.0.gguf).field("config", &self.0.config).finish()
    }
}

impl ModelFile {
    /// Opens a GGUF file, or a [folder of Hugging Face](crate::checkpoint), and checks that it is a model that can be run.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        Self::open_within(path, usize::MAX)
    }

    /// [`open`](Self::open), for sequences of at most so many positions. Models whose angles depend on that
    /// ([`Architecture::longrope`](super::Architecture::longrope)) then have a context of at most so many, and the factors for it; others are what they are.
    pub fn open_within(path: impl AsRef<Path>, positions: usize) -> Result<Self, ModelError> {
        let path = path.as_ref();
        let gguf = if path.is_dir() { checkpoint::open(path)? } else { Gguf::open(path)? };
        Self::from_gguf_within(gguf, positions)
    }

    /// Checks an open file.
    pub fn from_gguf(gguf: Gguf) -> Result<Self, ModelError> {
        Self::from_gguf_within(gguf, usize::MAX)
    }

    /// Checks an open file, for sequences of at most so many positions, as [`open_within`](Self::open_within) does.
    pub fn from_gguf_within(gguf: Gguf, positions: usize) -> Result<Self, ModelError> {
        let mut config = Config::from_gguf(&gguf)?;
        if config.architecture.longrope() && LONGROPE.iter().any(|name| gguf.tensor(name).is_some()) {
            config.context = config.context.min(positions.max(1));
        }
        let find = Find {
            file: &gguf,
            config: &config,
            asked: RefCell::default(),
            scales: RefCell::default(),
            described: None,
        };
        let (hidden, vocab) = (config.hidden, config.vocab);
        let embedding = find.matrix("token_embd.weight", vocab, hidden)?;
        let output = match gguf.tensor("output.weight") {
            Some(_) => Some(find.matrix("output.weight", vocab, hidden)?),
            None => None,
        };
        let (output_norm, output_norm_bias, output_bias, positions) = find.vectors_of_the_whole()?;
        let rope_freqs = find.rope_freqs()?;
        let mut layers = Vec::new();
        for layer in 0..config.layers {
            layers.push(LayerTensors::find(&find, layer)?);
        }
        find.refuse_unknown()?;
        let (scales, head) = (find.scales.into_inner(), 0..vocab);
        let gguf = Arc::new(gguf);
        Ok(ModelFile(Arc::new(Inner {
            config,
            embedding,
            output,
            output_bias,
            output_norm,
            output_norm_bias,
            positions,
            rope_freqs,
            layers,
            scales,
            head,
            gguf,
        })))
    }

    /// A model of these numbers that has no file: all its matrices are of one format, nothing is known of their weights, and vectors
    /// are zeros. For asking what a decoder would do with such a model
    /// ([`Model::reserve`](crate::decode::Model::reserve)); what reads weights fails.
    pub fn described(config: Config, format: Format, tied: bool) -> Result<Self, ModelError> {
        let gguf = Gguf::from_bytes(GgufWriter::new().to_bytes())?;
        let find = Find {
            file: &gguf,
            config: &config,
            asked: RefCell::default(),
            scales: RefCell::default(),
            described: Some(format),
        };
        let (hidden, vocab) = (config.hidden, config.vocab);
        let embedding = find.matrix("token_embd.weight", vocab, hidden)?;
        let output = if tied { None } else { Some(find.matrix("output.weight", vocab, hidden)?) };
        let (output_norm, output_norm_bias, output_bias, positions) = find.vectors_of_the_whole()?;
        let layers = (0..config.layers).map(|layer| LayerTensors::find(&find, layer)).collect::<Result<_, _>>()?;
        let (gguf, scales, head) = (Arc::new(gguf), HashMap::new(), 0..vocab);
        Ok(ModelFile(Arc::new(Inner {
            embedding,
            output,
            output_bias,
            output_norm,
            output_norm_bias,
            positions,
            rope_freqs: None,
            layers,
            scales,
            head,
            gguf,
            config,
        })))
    }

    /// The same file with other numbers and parts of its tensors.
    pub(super) fn with(
        &self,
        config: Config,
        layers: Vec<LayerTensors>,
        output: Option<Matrix>,
        head: Range<usize>,
    ) -> ModelFile {
        let Inner { gguf, embedding, output_norm, output_norm_bias, positions, rope_freqs, scales, .. } = &*self.0;
        let output_bias = self.output_bias().and_then(|all| all.get(head.clone())).map(<[f32]>::to_vec);
        ModelFile(Arc::new(Inner {
            gguf: gguf.clone(),
            config,
            embedding: embedding.clone(),
            output,
            output_bias,
            output_norm: output_norm.clone(),
            output_norm_bias: output_norm_bias.clone(),
            positions: positions.clone(),
            rope_freqs: rope_freqs.clone(),
            layers,
            scales: scales.clone(),
            head,
        }))
    }

    /// Whether kernels exist for the model's heads. [`Model::load`](crate::decode::Model::load) asks this; the forward pass
    /// on the CPU takes heads of any size.
    pub fn check_kernels(&self) -> Result<(), ModelError> {
        let c = self.config();
        let name = |key: &str| format!("{}.attention.{key}", c.architecture.name());
        if !u32::try_from(c.head_dim).is_ok_and(|n| HEAD_DIMS.contains(&n)) {
            let (stated, sizes) = (name("key_length"), HEAD_DIMS.map(|n| n.to_string()).join(", "));
            let reason = format!("heads have {} elements; there are kernels for heads of {sizes}", c.head_dim);
            // Without that key the size follows from the number of heads.
            let (key, value) = match self.gguf().get(&stated) {
                Some(_) => (stated, c.head_dim),
                None => (name("head_count"), c.heads),
            };
            return Err(ModelError::Config { key, value: value.to_string(), reason });
        }
        if c.group() > MAX_GROUP as usize {
            let reason = format!("{} query heads share a key head; there are kernels for up to {MAX_GROUP}", c.group());
            return Err(ModelError::Config { key: name("head_count_kv"), value: c.kv_heads.to_string(), reason });
        }
        if let Some(delta) = &c.delta
            && !u32::try_from(delta.dim).is_ok_and(|n| DIMS.contains(&n))
        {
            let (key, sizes) =
                (format!("{}.ssm.state_size", c.architecture.name()), DIMS.map(|n| n.to_string()).join(", "));
            let reason =
                format!("heads of delta nets have {} elements; there are kernels for heads of {sizes}", delta.dim);
            return Err(ModelError::Config { key, value: delta.dim.to_string(), reason });
        }
        Ok(())
    }

    /// The container, for metadata and the tokenizer.
    pub fn gguf(&self) -> &Gguf {
        &self.0.gguf
    }

    /// The model's numbers.
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// Token embeddings, `[vocab, hidden]`.
    pub fn embedding(&self) -> &Matrix {
        &self.0.embedding
    }

    /// The output projection, `[vocab, hidden]`: the embeddings where the file has no own tensor.
    pub fn output(&self) -> &Matrix {
        self.0.output.as_ref().unwrap_or(&self.0.embedding)
    }

    /// Whether the output projection is the embedding table.
    pub fn tied(&self) -> bool {
        self.0.output.is_none()
    }

    /// The tokens whose logits are computed: all, but of a [share](Self::share) its part of them.
    pub fn head(&self) -> Range<usize> {
        self.0.head.clone()
    }

    /// Norm before the output projection, `[hidden]`.
    pub fn output_norm(&self) -> &[f32] {
        &self.0.output_norm
    }

    /// Bias of that norm, `[hidden]`, where the architecture has it.
    pub fn output_norm_bias(&self) -> Option<&[f32]> {
        self.0.output_norm_bias.as_deref()
    }

    /// Bias of the output projection, `[vocab]`, where the architecture has it.
    pub fn output_bias(&self) -> Option<&[f32]> {
        self.0.output_bias.as_deref()
    }

    /// Embeddings of positions, `[context, hidden]`, where the architecture has them.
    pub fn positions(&self) -> Option<&[f32]> {
        self.0.positions.as_deref()
    }

    /// Divisors of RoPE's angles, `[rope.dims / 2]`, where the file has them.
    pub fn rope_freqs(&self) -> Option<&[f32]> {
        self.0.rope_freqs.as_deref()
    }

    /// The layers in order.
    pub fn layers(&self) -> &[LayerTensors] {
        &self.0.layers
    }

    /// The bytes of a matrix of this file, in its format's block layout; empty for one of another file, and for a
    /// [share](Self::share) of one, whose bytes lie in parts.
    pub fn data(&self, matrix: &Matrix) -> TensorData<'_> {
        let Matrix { format, first_row, rows, cols, ref cut, .. } = *matrix;
        let (None, Some(t), Ok(row)) = (cut, self.0.gguf.tensor(&matrix.name), format.row_bytes(cols)) else {
            return TensorData::empty();
        };
        let data = match self.0.scales.get(&matrix.name) {
            Some(values) if format == Format::NVFP4_SCALED && t.info.kind == TensorType::NVFP4 => {
                t.data.scaled(Format::NVFP4.block_bytes(), values)
            }
            None if t.info.kind.format() == Some(format) => t.data,
            _ => return TensorData::empty(),
        };
        match first_row.checked_mul(row).zip(rows.checked_mul(row)) {
            Some((at, len)) if t.info.dims.first() == Some(&(cols as u64)) => data.part(at, len),
            _ => TensorData::empty(),
        }
    }

    /// Copies the bytes of these rows, which it has, of a matrix of this file or of a share of one, in its format's block layout.
    pub(crate) fn read_rows(&self, matrix: &Matrix, rows: Range<usize>, to: &mut [u8]) -> Result<(), ModelError> {
        let failed = |source| ModelError::TensorData { tensor: matrix.name.clone(), source };
        let bytes = matrix.format.row_bytes(matrix.cols).map_err(failed)?;
        let Some(Cut { group, rows: of_group, cols, first_col }) = &matrix.cut else {
            return Ok(self.data(matrix).read(rows.start * bytes, to)?);
        };
        let groups = matrix.rows / of_group.len().max(1);
        let whole = Matrix { rows: groups * group, cols: *cols, cut: None, ..matrix.clone() };
        let (data, row) = (self.data(&whole), matrix.format.row_bytes(*cols).map_err(failed)?);
        let before = first_col / matrix.format.block_elems() * matrix.format.block_bytes();
        // Whole rows that follow one another are read at once.
        let together = if matrix.cols == *cols { of_group.len().max(1) } else { 1 };
        let (mut next, mut to) = (rows.start, to);
        while next < rows.end {
            let (of, place) = (next / of_group.len(), next % of_group.len());
            let count = (together - place % together).min(rows.end - next);
            let (part, rest) = std::mem::take(&mut to).split_at_mut(count * bytes);
            data.read((of * group + of_group.start + place) * row + before, part)?;
            (next, to) = (next + count, rest);
        }
        Ok(())
    }

    /// Every vector that steps read.
    pub fn vectors(&self) -> impl Iterator<Item = &[f32]> {
        let whole = [Some(self.output_norm()), self.output_norm_bias(), self.output_bias(), self.positions()];
        self.0.layers.iter().flat_map(LayerTensors::vectors).chain(whole.into_iter().flatten())
    }

    /// Weights that a token is multiplied with: all but those of the table, where that is not the head as well, and of experts that
    /// it is not given to.
    pub fn weights_of_a_token(&self) -> u64 {
        let weights = |m: &Matrix| m.rows as u64 * m.cols as u64;
        let layer = |l: &LayerTensors| {
            let all: u64 = l.matrices().map(weights).sum();
            let of_experts: u64 = l.gate.iter().chain([&l.up, &l.down]).map(weights).sum();
            all - self.0.config.experts.map_or(0, |e| of_experts / e.count as u64 * (e.count - e.used) as u64)
        };
        self.0.layers.iter().map(layer).sum::<u64>() + weights(self.output())
    }

    /// Every matrix, in the order of use; a tied table once.
    pub fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        let layers = self.0.layers.iter().flat_map(LayerTensors::matrices);
        std::iter::once(&self.0.embedding).chain(layers).chain(&self.0.output)
    }
}

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
const LONGROPE: [&str; 2] = ["rope_factors_short.weight", "rope_factors_long.weight"];

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

/// What [`Find::vectors_of_the_whole`] gives.
type Whole = (Vec<f32>, Option<Vec<f32>>, Option<Vec<f32>>, Option<Vec<f32>>);

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

impl Find<'_> {
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
        let named = |format| Matrix { name: name.to_owned(), format, first_row, rows: count, cols, cut: None };
        if let Some(format) = self.described {
            return Ok(named(format));
        }
        let tensor = self.tensor(name, shape)?;
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
            return Ok(named(format));
        };
        let data = tensor.data.scaled(format.block_bytes(), &scales);
        validate(&Tensor { data, ..tensor }, Format::NVFP4_SCALED, rows.clone(), cols)?;
        self.scales.borrow_mut().insert(name.to_owned(), scales);
        Ok(named(Format::NVFP4_SCALED))
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

    /// The vectors that are no part of a layer: weights and biases of the last norm, the bias of the output projection, and embeddings of
    /// positions.
    fn vectors_of_the_whole(&self) -> Result<Whole, ModelError> {
        let (c, architecture) = (self.config, self.config.architecture);
        let optional = |name: &str, presence: Presence, shape: &[usize]| {
            presence.asked(|| self.has(name)).then(|| self.floats(name, shape)).transpose()
        };
        let norm = match architecture.norm_weights() {
            true => self.vector("output_norm.weight", c.hidden)?,
            false => vec![1.0; c.hidden],
        };
        let learned = if architecture.learned_positions() { Presence::Always } else { Presence::Never };
        Ok((
            norm,
            optional("output_norm.bias", architecture.norm_biases(), &[c.hidden])?,
            optional("output.bias", architecture.head_bias(), &[c.vocab])?,
            optional("position_embd.weight", learned, &[c.hidden, c.context])?,
        ))
    }

    pub fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, ModelError> {
        self.floats(name, &[len])
    }

    /// A tensor of f32 of that shape.
    pub fn floats(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, ModelError> {
        if self.described.is_some() {
            return Ok(vec![0.0; shape.iter().product()]);
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
    fn rope_freqs(&self) -> Result<Option<Vec<f32>>, ModelError> {
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
    fn refuse_unknown(&self) -> Result<(), ModelError> {
        for t in self.file.tensors() {
            let name = t.name.as_str();
            if self.asked.borrow().contains(name) {
                continue;
            }
            let in_layer = name.strip_prefix("blk.").and_then(|rest| {
                let (number, part) = rest.split_once('.')?;
                Some((number.parse::<usize>().ok()?, part))
            });
            let guesses = in_layer.is_some_and(|(n, _)| n >= self.config.layers) && self.config.delta.is_some();
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

    #[test]
    fn a_described_model_has_the_tensors_of_a_file_with_its_numbers() {
        for name in ["tiny-qwen3-f16.gguf", "tiny-qwen3-q4_0.gguf"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data").join(name);
            let file = ModelFile::open(path).unwrap();
            let format = file.layers()[0].attn_output.format;
            let described = ModelFile::described(file.config().clone(), format, file.tied()).unwrap();
            let named = |f: &ModelFile| f.matrices().map(|m| (m.name.clone(), m.rows, m.cols)).collect::<Vec<_>>();
            assert_eq!(named(&described), named(&file));
            assert!(described.matrices().all(|m| m.format == format));
            let lengths =
                |f: &ModelFile| f.layers().iter().flat_map(LayerTensors::vectors).map(<[f32]>::len).collect::<Vec<_>>();
            assert_eq!((lengths(&described), described.tied()), (lengths(&file), file.tied()));
        }
    }

    #[test]
    fn as_many_query_heads_share_a_key_head_as_kernels_take() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/tiny-qwen3-f16.gguf");
        let config = ModelFile::open(path).unwrap().config().clone();
        let with = |group: u32| {
            let config = Config { heads: 2 * group as usize, kv_heads: 2, ..config.clone() };
            ModelFile::described(config, Format::F16, true).unwrap().check_kernels()
        };
        with(MAX_GROUP).unwrap();
        let refused = with(MAX_GROUP + 1).unwrap_err().to_string();
        assert!(refused.contains("17 query heads share a key head") && refused.contains("up to 16"), "{refused}");
    }

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
