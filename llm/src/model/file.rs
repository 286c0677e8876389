//! The tensors of a model, found, checked and named by what they do.

use super::find::{Find, LONGROPE, Vectors};
use super::random::RandomRows;
use super::{Config, Cut, LayerTensors, Matrix, ModelError};
use crate::checkpoint;
use crate::gguf::{Gguf, GgufWriter, TensorData, TensorType};
use gpu_kernels::delta::DIMS;
use gpu_kernels::format::Format;
use gpu_kernels::layer::{HEAD_DIMS, MAX_GROUP};
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A model on disk: its keys and tensors, all checked, ready to upload or to run on the CPU.
///
/// Opening reads every weight once, to refuse scales that are not finite. Cloning is cheap.
#[derive(Clone)]
pub struct ModelFile(Arc<ModelFileInner>);

struct ModelFileInner {
    gguf: Arc<Gguf>,
    config: Config,
    embedding: Matrix,
    output: Option<Matrix>,
    vectors: Vectors,
    rope_freqs: Option<Vec<f32>>,
    layers: Vec<LayerTensors>,
    /// Of matrices that have a scale of their own, by name.
    scales: HashMap<String, Vec<f32>>,
    /// Rows of the vocabulary that logits are computed of.
    head: Range<usize>,
    /// What matrices hold where there is no file and weights do not matter.
    random: Option<Arc<RandomRows>>,
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
        let find = Find::new(&gguf, &config, None);
        let (hidden, vocab) = (config.hidden, config.vocab);
        let embedding = find.matrix("token_embd.weight", vocab, hidden)?;
        let output = match gguf.tensor("output.weight") {
            Some(_) => Some(find.matrix("output.weight", vocab, hidden)?),
            None => None,
        };
        let vectors = find.vectors_of_the_whole()?;
        let rope_freqs = find.rope_freqs()?;
        let mut layers = Vec::new();
        for layer in 0..config.layers {
            layers.push(LayerTensors::find(&find, layer)?);
        }
        find.refuse_unknown()?;
        let (scales, head) = (find.into_scales(), 0..vocab);
        let gguf = Arc::new(gguf);
        Ok(ModelFile(Arc::new(ModelFileInner {
            config,
            embedding,
            output,
            vectors,
            rope_freqs,
            layers,
            scales,
            head,
            gguf,
            random: None,
        })))
    }

    /// A model of these numbers that has no file: all its matrices are of one format, nothing is known of their weights, and vectors
    /// are ones. For asking what a decoder would do with such a model
    /// ([`Model::reserve`](crate::decode::Model::reserve)); what reads weights fails.
    pub fn described(config: Config, format: Format, tied: bool) -> Result<Self, ModelError> {
        Self::without_file(config, format, tied, None)
    }

    /// A [described](Self::described) model with random weights, for measuring what a model of these numbers takes: a model is
    /// loaded from it as from a file, and computes ordinary numbers. Few rows of each width differ, since making them takes
    /// longer than multiplying them; on a device every matrix has memory of its own.
    pub fn random(config: Config, format: Format, tied: bool) -> Result<Self, ModelError> {
        Self::without_file(config, format, tied, Some(Arc::default()))
    }

    fn without_file(
        config: Config,
        format: Format,
        tied: bool,
        random: Option<Arc<RandomRows>>,
    ) -> Result<Self, ModelError> {
        let gguf = Gguf::from_bytes(GgufWriter::new().to_bytes())?;
        let find = Find::new(&gguf, &config, Some(format));
        let (hidden, vocab) = (config.hidden, config.vocab);
        let embedding = find.matrix("token_embd.weight", vocab, hidden)?;
        let output = if tied { None } else { Some(find.matrix("output.weight", vocab, hidden)?) };
        let vectors = find.vectors_of_the_whole()?;
        let layers = (0..config.layers).map(|layer| LayerTensors::find(&find, layer)).collect::<Result<_, _>>()?;
        let (gguf, scales, head) = (Arc::new(gguf), HashMap::new(), 0..vocab);
        Ok(ModelFile(Arc::new(ModelFileInner {
            embedding,
            output,
            vectors,
            rope_freqs: None,
            layers,
            scales,
            head,
            gguf,
            config,
            random,
        })))
    }

    /// The same file with other numbers and parts of its tensors.
    pub(super) fn with(
        &self,
        config: Config,
        layers: Vec<LayerTensors>,
        (embedding, output): (Matrix, Option<Matrix>),
        head: Range<usize>,
    ) -> ModelFile {
        let ModelFileInner { gguf, vectors, rope_freqs, scales, random, .. } = &*self.0;
        let head_bias = self.output_bias().and_then(|all| all.get(head.clone())).map(<[f32]>::to_vec);
        ModelFile(Arc::new(ModelFileInner {
            gguf: gguf.clone(),
            config,
            embedding,
            output,
            vectors: Vectors { head_bias, ..vectors.clone() },
            rope_freqs: rope_freqs.clone(),
            layers,
            scales: scales.clone(),
            head,
            random: random.clone(),
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
        &self.0.vectors.norm
    }

    /// Bias of that norm, `[hidden]`, where the architecture has it.
    pub fn output_norm_bias(&self) -> Option<&[f32]> {
        self.0.vectors.norm_bias.as_deref()
    }

    /// Bias of the output projection, `[vocab]`, where the architecture has it.
    pub fn output_bias(&self) -> Option<&[f32]> {
        self.0.vectors.head_bias.as_deref()
    }

    /// Embeddings of positions, `[context, hidden]`, where the architecture has them.
    pub fn positions(&self) -> Option<&[f32]> {
        self.0.vectors.positions.as_deref()
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
        if let Some(random) = &self.0.random {
            return random.read(matrix, rows, to).map_err(failed);
        }
        let bytes = matrix.format.row_bytes(matrix.cols).map_err(failed)?;
        let Some(cut @ Cut { rows: held, of_cols, cols, stored }) = &matrix.cut else {
            return Ok(self.data(matrix).read(rows.start * bytes, to)?);
        };
        let format = stored.as_ref().map_or(matrix.format, |(format, _)| *format);
        let whole = Matrix { rows: held.end(), cols: *of_cols, format, cut: None, ..matrix.clone() };
        let (data, row) = (self.data(&whole), format.row_bytes(*of_cols).map_err(failed)?);
        let in_bytes = |cols: usize| cols / matrix.format.block_elems() * matrix.format.block_bytes();
        let mut to = to;
        if let Some((_, columns)) = stored {
            for range in held.part(rows) {
                let (mut all, (now, rest)) = (vec![0; range.len() * row], to.split_at_mut(range.len() * bytes));
                data.read(range.start * row, &mut all)?;
                cut.pick(&format.decode(&all, range.len(), *of_cols).map_err(failed)?, columns, now);
                to = rest;
            }
            return Ok(());
        }
        let mut read = |at: usize, count: usize| {
            let (part, rest) = std::mem::take(&mut to).split_at_mut(count);
            to = rest;
            data.read(at, part)
        };
        for range in held.part(rows) {
            // Whole rows that follow one another are read at once.
            if matrix.cols == *of_cols {
                read(range.start * row, range.len() * row)?;
                continue;
            }
            for (number, piece) in range.flat_map(|number| cols.ranges().map(move |piece| (number, piece))) {
                read(number * row + in_bytes(piece.start), in_bytes(piece.len()))?;
            }
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
            let experts = self.0.config.experts.filter(|_| l.router.is_some());
            all - experts.map_or(0, |e| of_experts / e.count as u64 * (e.count - e.used) as u64)
        };
        self.0.layers.iter().map(layer).sum::<u64>() + weights(self.output())
    }

    /// Every matrix, in the order of use; a tied table once.
    pub fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        let layers = self.0.layers.iter().flat_map(LayerTensors::matrices);
        std::iter::once(&self.0.embedding).chain(layers).chain(&self.0.output)
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
    fn a_model_of_random_weights_has_ordinary_rows_of_every_format() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/tiny-qwen3-f16.gguf");
        let config = ModelFile::open(path).unwrap().config().clone();
        for format in Format::ALL {
            let file = ModelFile::random(config.clone(), format, true).unwrap();
            let embedding = Matrix { cols: 512, ..file.embedding().clone() };
            let row = format.row_bytes(512).unwrap();
            let (mut rows, mut later) = (vec![0xA5; 70 * row], vec![0x5A; 2 * row]);
            file.read_rows(&embedding, 3..73, &mut rows).unwrap();
            file.read_rows(&embedding, 66..68, &mut later).unwrap();
            assert_eq!(&rows[63 * row..65 * row], &later, "{format}: a row depends on how it is read");
            assert_ne!(&rows[..row], &rows[row..2 * row], "{format}: rows are the same");
            format.validate(&rows, 70, 512).unwrap();
            let weights = format.decode(&rows, 70, 512).unwrap();
            let square: f64 = weights.iter().map(|w| f64::from(*w).powi(2)).sum();
            let rms = (square / weights.len() as f64).sqrt() * 512f64.sqrt();
            assert!((0.5..2.0).contains(&rms), "{format}: {rms}");
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
}
