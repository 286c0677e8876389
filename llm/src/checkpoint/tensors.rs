//! The tensors of a GGUF file, made of those of a checkpoint.

use super::CheckpointError;
use super::act_order::{Named, settle};
use super::config::Numbers;
use super::floats::{Change, Floats};
use super::json::Object;
use super::names::{self, Names, Read};
use super::order::Order;
use super::quant::{Mxfp4, Quantization};
use super::rows::{Constant, Made, Rows};
use super::shards::{Shards, Stored};
use super::views::{Pick, Picked, Transposed};
use crate::gguf::{MadeTensor, TensorInfo};
use crate::model::{Architecture, RopeStyle};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// A tensor and what makes it.
pub(super) type WrittenTensor = (TensorInfo, Box<dyn MadeTensor>);

/// All tensors that a checkpoint has of a model.
pub(super) fn made(
    folder: &Path,
    config: Object<'_>,
    numbers: &Numbers,
    shards: &Arc<Shards>,
) -> Result<Vec<WrittenTensor>, CheckpointError> {
    let quantization = Quantization::of(config, folder)?;
    let names = Names::of(numbers.architecture, shards);
    let mut maker =
        Maker { numbers, names: &names, shards, quantization, asked: RefCell::default(), tensors: Vec::new() };
    maker.whole()?;
    for layer in 0..numbers.layers {
        let before = maker.tensors.len();
        let in_layer = |name: &str| format!("{}{layer}.{name}", names.layers);
        if numbers.second_norms && shards.get(&in_layer(names::SECOND_NORM)).is_none() {
            return Err(CheckpointError::MissingTensor { tensor: in_layer(names::SECOND_NORM) });
        }
        let mut of_layer: Vec<Named> = Vec::new();
        for &(from, to, read) in &names.of_layer {
            let from = in_layer(from);
            if let Some(parts) = maker.parts(&from, read)? {
                of_layer.push((to, from, parts));
            }
        }
        settle(&mut of_layer);
        for (to, from, parts) in of_layer {
            maker.push(format!("blk.{layer}.{to}"), parts, &from)?;
        }
        // A number of layers that lies costs a name, not memory.
        if maker.tensors.len() == before {
            let first = names.of_layer.first().map_or("", |row| row.0);
            return Err(CheckpointError::MissingTensor { tensor: in_layer(first) });
        }
    }
    maker.refuse_unknown()?;
    Ok(maker.tensors)
}

struct Maker<'a> {
    numbers: &'a Numbers,
    names: &'a Names,
    shards: &'a Arc<Shards>,
    quantization: Quantization,
    /// Names of the checkpoint that something was made of.
    asked: RefCell<BTreeSet<String>>,
    tensors: Vec<WrittenTensor>,
}

/// What a tensor is made of.
pub(super) struct Parts {
    /// Matrices, or vectors, one behind the other.
    pub rows: Vec<Box<dyn Rows>>,
    /// The order of their rows.
    pub order: Option<Order>,
    pub dims: Vec<usize>,
    /// The elements of what it is multiplied with, in the order of its columns, where that is another.
    pub columns: Option<Arc<[u32]>>,
}

impl Parts {
    fn matrix(rows: Box<dyn Rows>, order: Option<Order>) -> Parts {
        let [height, cols] = rows.size();
        Parts { rows: vec![rows], order, dims: vec![cols, height], columns: None }
    }

    fn floats(floats: impl Rows + 'static, order: Option<Order>, dims: Vec<usize>) -> Parts {
        Parts { rows: vec![Box::new(floats)], order, dims, columns: None }
    }

    /// A matrix, or a vector, of each expert.
    fn of_experts(rows: Vec<Box<dyn Rows>>, vectors: bool) -> Option<Parts> {
        let (count, [height, cols]) = (rows.len(), rows.first()?.size());
        let dims = if vectors { vec![height, count] } else { vec![cols, height, count] };
        Some(Parts { rows, order: None, dims, columns: None })
    }
}

impl Maker<'_> {
    fn whole(&mut self) -> Result<(), CheckpointError> {
        let names = self.names;
        let tied = match self.numbers.tied {
            Some(tied) => tied,
            None => self.shards.get(names.head).is_none(),
        };
        for (from, to, read) in &names.whole {
            // A tied head that is stored as well is the table again.
            if from == names.head && tied {
                self.asked.borrow_mut().insert(from.to_owned());
                continue;
            }
            let parts = self.parts(from, *read)?;
            let parts = parts.ok_or_else(|| CheckpointError::MissingTensor { tensor: from.to_owned() })?;
            let mut made = [(*to, from.to_owned(), parts)];
            settle(&mut made);
            let [(to, from, parts)] = made;
            self.push(to.to_owned(), parts, &from)?;
        }
        for (name, values) in &self.numbers.lists {
            let parts = Parts::floats(Constant(values.clone()), None, vec![values.len()]);
            self.push((*name).to_owned(), parts, name)?;
        }
        Ok(())
    }

    /// What a tensor is made of, if the checkpoint has it.
    fn parts(&self, from: &str, read: Read) -> Result<Option<Parts>, CheckpointError> {
        let numbers = self.numbers;
        let heads = Order::Parts { width: numbers.head_dim, heads: numbers.heads };
        let matrix = |order| Ok(self.matrix(from)?.map(|rows| Parts::matrix(rows, order)));
        let vector = |order, change| {
            let Some(stored) = self.asked(from) else { return Ok(None) };
            Ok(Some(Parts::floats(Floats::vector(self.shards, stored, change)?, order, stored.shape.clone())))
        };
        match read {
            Read::Matrix => matrix(None),
            Read::Heads => matrix(self.neighbours()),
            Read::ByHead => matrix(Some(heads)),
            Read::Vector => vector(None, Change::None),
            Read::HeadsBias => vector(self.neighbours(), Change::None),
            Read::ByHeadBias => vector(Some(heads), Change::None),
            Read::Decay => vector(None, Change::NegatedPower),
            Read::Norm if names::norms_with_one_more(numbers.architecture) => vector(None, Change::OneMore),
            Read::Norm => vector(None, Change::None),
            Read::Table => self.table(from),
            Read::Convolution => self.convolution(from),
            Read::Experts => Ok(Parts::of_experts(self.experts(from)?, false)),
            Read::Joined(pick) => Ok(Parts::of_experts(self.joined(from, pick)?, false)),
            Read::JoinedBias(pick) => Ok(Parts::of_experts(self.joined_biases(from, pick)?, true)),
            Read::Transposed => match self.asked(from) {
                Some(stored) => Ok(Some(Parts::matrix(Box::new(Transposed::new(self.shards, stored)?), None))),
                None => Ok(None),
            },
        }
    }

    /// The order of queries and keys, where GGUF has another one.
    fn neighbours(&self) -> Option<Order> {
        let architecture = self.numbers.architecture;
        // Cohere's checkpoints rotate neighbours themselves.
        let by_halves = !matches!(architecture, Architecture::CommandR | Architecture::Cohere2);
        let neighbours = architecture.rope_style() == RopeStyle::Norm && by_halves;
        neighbours.then_some(Order::Interleaved { width: self.numbers.head_dim })
    }

    /// Adds a tensor of these parts.
    fn push(&mut self, name: String, parts: Parts, from: &str) -> Result<(), CheckpointError> {
        let Parts { rows, order, dims, columns } = parts;
        let Some((kind, [height, cols])) = rows.first().map(|r| (r.kind(), r.size())) else { return Ok(()) };
        let made = Made::new(rows, order).map(|made| made.with_columns(columns));
        let bytes = dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d as u64)).and_then(|n| kind.bytes_for(n));
        let (Some(made), Some(bytes)) = (made, bytes) else {
            let expected = "whole heads, rows of whole blocks, and experts that are all alike".to_owned();
            return Err(CheckpointError::Shape { tensor: from.to_owned(), actual: vec![height, cols], expected });
        };
        let dims = dims.into_iter().map(|d| d as u64).collect();
        let info = TensorInfo { name, kind, dims, offset: 0, bytes, entry: 0 };
        self.tensors.push((info, Box::new(made)));
        Ok(())
    }

    /// A tensor that something is made of, if the checkpoint has it.
    fn asked(&self, name: &str) -> Option<&Stored> {
        let stored = self.shards.get(name)?;
        self.asked.borrow_mut().insert(name.to_owned());
        Some(stored)
    }

    /// Numbers of two dimensions, the contiguous one first, as GGUF says it.
    fn table(&self, name: &str) -> Result<Option<Parts>, CheckpointError> {
        let Some(stored) = self.asked(name) else { return Ok(None) };
        let [rows, cols] = stored.matrix()?;
        let floats = Floats::some(self.shards, stored, Change::None, (0, 1, rows * cols))?;
        Ok(Some(Parts::floats(floats, None, vec![cols, rows])))
    }

    fn convolution(&self, name: &str) -> Result<Option<Parts>, CheckpointError> {
        let Some(stored) = self.asked(name) else { return Ok(None) };
        let [channels, 1, tokens] = stored.shape[..] else {
            return Err(stored.misshapen("three dimensions, of which the second is 1"));
        };
        let floats = Floats::some(self.shards, stored, Change::None, (0, 1, channels * tokens))?;
        Ok(Some(Parts::floats(floats, None, vec![tokens, channels])))
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

    /// Some rows of the matrices of all experts, if the tensor of these is there.
    fn joined(&self, name: &str, pick: Pick) -> Result<Vec<Box<dyn Rows>>, CheckpointError> {
        let count = self.numbers.experts.unwrap_or(0);
        let (plain, scales) = (self.asked(name), format!("{name}_scales"));
        let blocks = self.asked(&format!("{name}_blocks"));
        let mut all = Vec::new();
        for expert in 0..count {
            let whole: Box<dyn Rows> = match (plain, blocks) {
                (Some(stored), _) => Box::new(Transposed::of_several(self.shards, stored, (expert, count))?),
                (None, Some(codes)) => {
                    let missing = || CheckpointError::MissingTensor { tensor: scales.clone() };
                    let scales = self.asked(&scales).ok_or_else(missing)?;
                    Box::new(Mxfp4::new(self.shards, [codes, scales], (expert, count))?)
                }
                (None, None) => return Ok(all),
            };
            let size = whole.size();
            let picked = Picked::new(whole, pick).ok_or_else(|| CheckpointError::Shape {
                tensor: name.to_owned(),
                actual: size.into(),
                expected: "as many gates as ups".to_owned(),
            })?;
            all.push(Box::new(picked));
        }
        Ok(all)
    }

    /// Some elements of the biases of all experts, if they are there.
    fn joined_biases(&self, name: &str, pick: Pick) -> Result<Vec<Box<dyn Rows>>, CheckpointError> {
        let Some(stored) = self.asked(name) else { return Ok(Vec::new()) };
        let [count, each] = stored.matrix()?;
        let (first, step, picked) = pick.of(each).ok_or_else(|| stored.misshapen("as many gates as ups"))?;
        let mut all: Vec<Box<dyn Rows>> = Vec::new();
        for expert in 0..count {
            let place = (expert * each + first, step, picked);
            all.push(Box::new(Floats::some(self.shards, stored, Change::None, place)?));
        }
        Ok(all)
    }

    /// Refuses tensors that nothing was made of.
    fn refuse_unknown(&self) -> Result<(), CheckpointError> {
        let asked = self.asked.borrow();
        for name in self.shards.names().filter(|name| !asked.contains(*name)) {
            let guesses = names::guesses(self.numbers.architecture, self.numbers.layers, name);
            if !guesses && !names::says_nothing(self.numbers.architecture, name) && !self.adds_nothing(name)? {
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
