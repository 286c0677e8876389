//! The tensors of a GGUF file, made of those of a checkpoint.

use super::CheckpointError;
use super::config::Numbers;
use super::json::Object;
use super::names::{self, HEAD, Read};
use super::quant::Quantization;
use super::rows::{Constant, Interleaved, Made, Rows, Vector};
use super::shards::Shards;
use crate::gguf::{MadeTensor, TensorInfo};
use crate::model::{Architecture, RopeStyle};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// A tensor and what makes it.
pub(super) type Tensor = (TensorInfo, Box<dyn MadeTensor>);

/// All tensors that a checkpoint has of a model.
pub(super) fn made(
    folder: &Path,
    config: Object<'_>,
    numbers: &Numbers,
    shards: &Arc<Shards>,
) -> Result<Vec<Tensor>, CheckpointError> {
    let quantization = Quantization::of(config, folder)?;
    let mut maker = Maker { numbers, shards, quantization, asked: RefCell::default(), tensors: Vec::new() };
    maker.whole()?;
    for layer in 0..numbers.layers {
        let before = maker.tensors.len();
        if numbers.second_norms && shards.get(&format!("model.layers.{layer}.{}", names::SECOND_NORM)).is_none() {
            let tensor = format!("model.layers.{layer}.{}", names::SECOND_NORM);
            return Err(CheckpointError::MissingTensor { tensor });
        }
        for (from, to, read) in names::of_layer(numbers.architecture) {
            maker.add(&format!("model.layers.{layer}.{from}"), format!("blk.{layer}.{to}"), read)?;
        }
        // A number of layers that lies costs a name, not memory.
        if maker.tensors.len() == before {
            return Err(CheckpointError::MissingTensor {
                tensor: format!("model.layers.{layer}.input_layernorm.weight"),
            });
        }
    }
    maker.refuse_unknown()?;
    Ok(maker.tensors)
}

struct Maker<'a> {
    numbers: &'a Numbers,
    shards: &'a Arc<Shards>,
    quantization: Quantization,
    /// Names of the checkpoint that something was made of.
    asked: RefCell<BTreeSet<String>>,
    tensors: Vec<Tensor>,
}

impl Maker<'_> {
    fn whole(&mut self) -> Result<(), CheckpointError> {
        let tied = match self.numbers.tied {
            Some(tied) => tied,
            None => self.shards.get(HEAD).is_none(),
        };
        for (from, to, read) in names::whole(self.numbers.architecture) {
            // A tied head that is stored as well is the table again.
            if from == HEAD && tied {
                self.asked.borrow_mut().insert(from.to_owned());
                continue;
            }
            if !self.add(from, to.to_owned(), read)? {
                return Err(CheckpointError::MissingTensor { tensor: from.to_owned() });
            }
        }
        for (name, values) in &self.numbers.lists {
            let rows: Vec<Box<dyn Rows>> = vec![Box::new(Constant(values.clone()))];
            self.push((*name).to_owned(), (rows, None), name, true)?;
        }
        Ok(())
    }

    /// Adds the tensor that `from` is, if the checkpoint has it.
    fn add(&mut self, from: &str, to: String, read: Read) -> Result<bool, CheckpointError> {
        let numbers = self.numbers;
        let vector = matches!(read, Read::Vector | Read::HeadsBias | Read::Norm);
        let rows: Vec<Box<dyn Rows>> = match read {
            Read::Experts => self.experts(from)?,
            Read::Matrix | Read::Heads => self.matrix(from)?.into_iter().collect(),
            Read::Vector | Read::HeadsBias => self.vector(from, 0.0)?.into_iter().collect(),
            Read::Norm => {
                // These norms multiply with one more than their weights.
                let one_more = matches!(
                    numbers.architecture,
                    Architecture::Gemma2 | Architecture::Gemma3 | Architecture::Nemotron
                );
                self.vector(from, if one_more { 1.0 } else { 0.0 })?.into_iter().collect()
            }
        };
        if rows.is_empty() {
            return Ok(false);
        }
        // Cohere's checkpoints rotate neighbours themselves.
        let by_halves = !matches!(numbers.architecture, Architecture::CommandR | Architecture::Cohere2);
        let neighbours = numbers.architecture.rope_style() == RopeStyle::Norm;
        let heads = matches!(read, Read::Heads | Read::HeadsBias) && neighbours && by_halves;
        let order = heads.then_some(Interleaved { width: numbers.head_dim });
        self.push(to, (rows, order), from, vector)?;
        Ok(true)
    }

    /// Adds a tensor of these matrices, or a vector.
    fn push(
        &mut self,
        name: String,
        (rows, order): (Vec<Box<dyn Rows>>, Option<Interleaved>),
        from: &str,
        vector: bool,
    ) -> Result<(), CheckpointError> {
        let Some((kind, [height, cols])) = rows.first().map(|r| (r.kind(), r.size())) else { return Ok(()) };
        let count = rows.len();
        let experts = self.numbers.experts.is_some() && from.contains("{}");
        let dims = match (vector, experts) {
            (true, _) => vec![height as u64],
            (false, false) => vec![cols as u64, height as u64],
            (false, true) => vec![cols as u64, height as u64, count as u64],
        };
        let made = Made::new(rows, order);
        let bytes = dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d)).and_then(|n| kind.bytes_for(n));
        let (Some(made), Some(bytes)) = (made, bytes) else {
            let expected = "whole heads, rows of whole blocks, and experts that are all alike".to_owned();
            return Err(CheckpointError::Shape { tensor: from.to_owned(), actual: vec![height, cols], expected });
        };
        let info = TensorInfo { name, kind, dims, offset: 0, bytes, entry: 0 };
        self.tensors.push((info, Box::new(made)));
        Ok(())
    }

    fn vector(&self, name: &str, plus: f32) -> Result<Option<Box<dyn Rows>>, CheckpointError> {
        let Some(stored) = self.shards.get(name) else { return Ok(None) };
        self.asked.borrow_mut().insert(name.to_owned());
        Ok(Some(Box::new(Vector::new(self.shards, stored, plus)?)))
    }

    fn matrix(&self, name: &str) -> Result<Option<Box<dyn Rows>>, CheckpointError> {
        let Some((rows, names)) = self.quantization.matrix(name.trim_end_matches(".weight"), self.shards)? else {
            return Ok(None);
        };
        self.asked.borrow_mut().extend(names);
        Ok(Some(rows))
    }

    /// The matrices of all experts, if the first is there.
    fn experts(&self, name: &str) -> Result<Vec<Box<dyn Rows>>, CheckpointError> {
        let mut all = Vec::new();
        for expert in 0..self.numbers.experts.unwrap_or(0) {
            let name = name.replace("{}", &expert.to_string());
            match self.matrix(&name)? {
                Some(rows) => all.push(rows),
                None if expert == 0 => break,
                None => return Err(CheckpointError::MissingTensor { tensor: name }),
            }
        }
        Ok(all)
    }

    /// Refuses tensors that nothing was made of.
    fn refuse_unknown(&self) -> Result<(), CheckpointError> {
        let asked = self.asked.borrow();
        for name in self.shards.names().filter(|name| !asked.contains(*name)) {
            let guesses = names::guesses(self.numbers.architecture, self.numbers.layers, name);
            if !guesses && !names::says_nothing(name) && !self.adds_nothing(name)? {
                return Err(CheckpointError::UnknownTensor { tensor: name.to_owned() });
            }
        }
        Ok(())
    }

    /// Whether it is a bias of zeros, which some quantisers write for every matrix.
    fn adds_nothing(&self, name: &str) -> Result<bool, CheckpointError> {
        let stored = self.shards.get(name).filter(|_| name.ends_with(".bias"));
        Ok(match stored.map(|stored| self.shards.floats(stored)).transpose()? {
            Some(values) => values.iter().all(|&x| x == 0.0),
            None => false,
        })
    }
}
