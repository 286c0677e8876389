//! How the tensors of a layer are found: by the names that architectures have for them, whole or as rows of others.

use super::find::Find;
use super::{Config, DeltaLayout, Matrix, ModelError, Presence};
use std::ops::Range;

/// A norm that attention does not share with the feed-forward part, where it may.
const ATTENTION_ALONE: &str = "attn_norm_2.weight";

/// Reads the tensors of layer `number`.
pub(super) struct InLayer<'a> {
    pub file: &'a Find<'a>,
    pub number: usize,
    /// The numbers of this layer.
    pub config: &'a Config,
}

impl InLayer<'_> {
    fn name(&self, part: &str) -> String {
        format!("blk.{}.{part}", self.number)
    }

    pub fn matrix(&self, [part]: [&str; 1], [rows, cols]: [usize; 2]) -> Result<Matrix, ModelError> {
        self.file.matrix(&self.name(part), rows, cols)
    }

    /// A matrix of its own or, where the architecture [fuses](Architecture::fused) it, these rows of one of that shape, by the second
    /// name.
    pub fn part(
        &self,
        [own, fused_name]: [&str; 2],
        (rows, [all, cols]): (Range<usize>, [usize; 2]),
        fused: bool,
    ) -> Result<Matrix, ModelError> {
        match fused {
            true => self.file.rows(&self.name(fused_name), rows, [all, cols]),
            false => self.file.matrix(&self.name(own), rows.len(), cols),
        }
    }

    /// Whether the layer is a delta net.
    pub fn recurrent(&self) -> bool {
        self.file.config.is_recurrent(self.number)
    }

    /// A [part](Self::part) of a layer that attends.
    pub fn attending_part(
        &self,
        names: [&str; 2],
        rows: (Range<usize>, [usize; 2]),
        fused: Presence,
    ) -> Result<Option<Matrix>, ModelError> {
        if self.recurrent() { Ok(None) } else { self.part(names, rows, self.asked(names[1], fused)).map(Some) }
    }

    /// Whether a tensor that architectures have so is asked for.
    pub fn asked(&self, part: &str, presence: Presence) -> bool {
        presence.asked(|| self.file.has(&self.name(part)))
    }

    /// The biases of queries, keys and values: of three tensors, or of the one that holds all.
    pub fn qkv_biases(
        &self,
        [q, k, v, fused_name]: [&str; 4],
        lens: [usize; 3],
        presence: Presence,
    ) -> Result<Option<Vec<f32>>, ModelError> {
        match self.asked("attn_qkv.weight", self.file.config.architecture.fused_qkv()) {
            true => self.vectors([fused_name], [lens.iter().sum()], presence),
            false => self.vectors([q, k, v], lens, presence),
        }
    }

    /// Whether attention has a norm of its own, beside that of the feed-forward part.
    fn norms_apart(&self) -> bool {
        self.file.config.architecture.second_attention_norm() && self.file.has(&self.name(ATTENTION_ALONE))
    }

    /// The weights of the norm before attention: by its own name or, where a file has both, by the second.
    pub fn attention_norm(
        &self,
        [own, second]: [&str; 2],
        len: [usize; 1],
        there: bool,
    ) -> Result<Vec<f32>, ModelError> {
        self.norm(if self.norms_apart() { second } else { own }, len, there)
    }

    /// The bias of that norm.
    pub fn attention_norm_bias(
        &self,
        [own, second]: [&str; 2],
        len: [usize; 1],
        presence: Presence,
    ) -> Result<Option<Vec<f32>>, ModelError> {
        self.vectors([if self.norms_apart() { second } else { own }], len, presence)
    }

    /// The weights of a norm of the residual stream.
    fn norm(&self, part: &str, [len]: [usize; 1], there: bool) -> Result<Vec<f32>, ModelError> {
        if there { self.vector([part], [len]) } else { Ok(vec![1.0; len]) }
    }

    /// The norm before the feed-forward part, by its own name or, for architectures that call it so, by the second, or by the third, where
    /// attention has a norm of its own; none, where there is [one norm](Architecture::one_norm) for both parts.
    pub fn ffn_norm(
        &self,
        [own, other, of_both]: [&str; 3],
        len: [usize; 1],
        by_the_other: bool,
    ) -> Result<Option<Vec<f32>>, ModelError> {
        let architecture = self.file.config.architecture;
        if self.norms_apart() {
            return self.norm(of_both, len, true).map(Some);
        }
        let part = if by_the_other { other } else { own };
        let none = architecture.one_norm().asked(|| !self.file.has(&self.name(part)));
        (!none).then(|| self.norm(part, len, architecture.norm_weights())).transpose()
    }

    /// The bias of that norm.
    pub fn ffn_norm_bias(
        &self,
        [own, of_both]: [&str; 2],
        len: [usize; 1],
        presence: Presence,
    ) -> Result<Option<Vec<f32>>, ModelError> {
        if self.norms_apart() {
            return self.vectors([of_both], len, presence);
        }
        let none = self.file.config.architecture.one_norm().asked(|| !self.file.has(&self.name("ffn_norm.weight")));
        self.vectors([own], len, if none { Presence::Never } else { presence })
    }

    /// Gates, where the architecture has them.
    pub fn gates(
        &self,
        names: [&str; 4],
        rows: (Range<usize>, [usize; 2]),
        fused: bool,
    ) -> Result<Option<Matrix>, ModelError> {
        let gated = self.file.config.architecture.ungated().is_none();
        gated.then(|| self.experts_or_part(names, rows, fused)).transpose()
    }

    /// The biases of gates.
    pub fn gate_biases(
        &self,
        names: [&str; 2],
        len: [usize; 1],
        presence: Presence,
    ) -> Result<Option<Vec<f32>>, ModelError> {
        match self.file.config.architecture.ungated() {
            Some(_) => Ok(None),
            None => self.expert_biases(names, len, presence),
        }
    }

    /// The biases of a router, where there is one.
    pub fn router_biases(
        &self,
        names: [&str; 1],
        lens: [usize; 1],
        presence: Presence,
    ) -> Result<Option<Vec<f32>>, ModelError> {
        self.config.experts.map_or(Ok(None), |_| self.vectors(names, lens, presence))
    }

    /// The norm of query or of key heads: a file that has one has both.
    pub fn head_norm(
        &self,
        [own, other]: [&str; 2],
        [len]: [usize; 1],
        presence: Presence,
    ) -> Result<Option<Vec<f32>>, ModelError> {
        let (has, whole) = (|part: &str| self.file.has(&self.name(part)), self.file.config);
        // A norm without weights.
        if let Some(experts) = whole.architecture.unit_heads() {
            let there = whole.rope_of(self.number).is_some() && whole.experts.is_none_or(|e| e.count != experts);
            return Ok(there.then(|| vec![1.0; len]));
        }
        let there = !self.recurrent() && presence.asked(|| has(own) || has(other));
        there.then(|| self.vector([own], [len])).transpose()
    }

    /// [Vectors](Self::vectors) of a layer that attends.
    pub fn attending_vectors<const N: usize>(
        &self,
        parts: [&str; N],
        lens: [usize; N],
        presence: Presence,
    ) -> Result<Option<Vec<f32>>, ModelError> {
        self.vectors(parts, lens, if self.recurrent() { Presence::Never } else { presence })
    }

    /// Rows of what a delta net projects, of the first tensor; or, where all of a key head are side by side and a file has that, of the
    /// second.
    pub fn delta_input(&self, [apart, by_head]: [&str; 2], of: DeltaRows) -> Result<Option<Matrix>, ModelError> {
        let Some(net) = self.config.delta.as_ref().filter(|_| self.recurrent()) else { return Ok(None) };
        let layout = self.config.architecture.delta_nets();
        if layout == Some(DeltaLayout::ByKeyHead) && self.file.has(&self.name(by_head)) {
            let whole = self.matrix([by_head], [of.of_all, of.cols])?;
            return Ok(Some(whole.rows_of(net.key_heads, of.of_head)));
        }
        self.file.rows(&self.name(apart), of.rows, [of.all, of.cols]).map(Some)
    }

    /// The first or the second of two factors of each head of values: a tensor each, or one for both, a key head after the other.
    pub fn delta_factor(
        &self,
        [apart, by_head]: [&str; 2],
        (number, cols): (usize, usize),
    ) -> Result<Option<Matrix>, ModelError> {
        let Some(net) = self.config.delta.as_ref().filter(|_| self.recurrent()) else { return Ok(None) };
        let matrix = match self.config.architecture.delta_nets() {
            Some(DeltaLayout::ByKeyHead) => {
                let (each, both) = (net.group(), self.matrix([by_head], [2 * net.value_heads, cols])?);
                both.rows_of(net.key_heads, number * each..(number + 1) * each)
            }
            _ => self.matrix([apart], [net.value_heads, cols])?,
        };
        Ok(Some(matrix))
    }

    /// A vector of a delta net, of one dimension or more.
    pub fn delta_vector<const N: usize>(
        &self,
        [part]: [&str; 1],
        shape: [usize; N],
    ) -> Result<Option<Vec<f32>>, ModelError> {
        self.recurrent().then(|| self.file.floats(&self.name(part), &shape)).transpose()
    }

    /// What is projected onto the residual stream: what was attended to, or by the second name what a delta net gives.
    pub fn mixer_output(
        &self,
        [attended, delta]: [&str; 2],
        [rows, q_dim, values]: [usize; 3],
    ) -> Result<Matrix, ModelError> {
        if self.recurrent() { self.matrix([delta], [rows, values]) } else { self.matrix([attended], [rows, q_dim]) }
    }

    /// A matrix that only mixtures of experts have.
    pub fn router(&self, part: [&str; 1], size: [usize; 2]) -> Result<Option<Matrix>, ModelError> {
        self.config.experts.map(|_| self.matrix(part, size)).transpose()
    }

    /// A matrix of the shared expert.
    pub fn shared(&self, part: [&str; 1], size: [usize; 2]) -> Result<Option<Matrix>, ModelError> {
        self.config.experts.and_then(|e| e.shared).map(|_| self.matrix(part, size)).transpose()
    }

    /// A matrix of one row that only shared experts have which count for a product of their own.
    pub fn row(&self, [part]: [&str; 1], [cols]: [usize; 1]) -> Result<Option<Matrix>, ModelError> {
        let shared = self.config.experts.filter(|e| e.shared_gate).and_then(|e| e.shared);
        shared.map(|_| self.file.row(&self.name(part), cols)).transpose()
    }

    /// Under the first name a matrix for each expert; without experts, that of the second name.
    pub fn experts(&self, [of_all, alone]: [&str; 2], [rows, cols]: [usize; 2]) -> Result<Matrix, ModelError> {
        match self.config.experts {
            None => self.matrix([alone], [rows, cols]),
            Some(experts) => self.file.matrices(&self.name(of_all), experts.count, rows, cols),
        }
    }

    /// As [`experts`](Self::experts), where without experts the matrix may be a [part](Self::part); a file may have these rows of each
    /// expert with others in one tensor, by the first name.
    pub fn experts_or_part(
        &self,
        [both, of_all, own, fused_name]: [&str; 4],
        (rows, [all, cols]): (Range<usize>, [usize; 2]),
        fused: bool,
    ) -> Result<Matrix, ModelError> {
        match self.config.experts {
            None => self.part([own, fused_name], (rows, [all, cols]), fused),
            Some(experts) if self.file.has(&self.name(both)) => {
                let whole = self.file.matrices(&self.name(both), experts.count, all, cols)?;
                Ok(whole.rows_of(experts.count, rows))
            }
            Some(experts) => self.file.matrices(&self.name(of_all), experts.count, rows.len(), cols),
        }
    }

    pub fn vector(&self, [part]: [&str; 1], [len]: [usize; 1]) -> Result<Vec<f32>, ModelError> {
        self.file.vector(&self.name(part), len)
    }

    /// A bias for each expert, one behind the other, if the architecture has them; without experts that of the second name.
    pub fn expert_biases(
        &self,
        [of_all, alone]: [&str; 2],
        [len]: [usize; 1],
        presence: Presence,
    ) -> Result<Option<Vec<f32>>, ModelError> {
        match self.config.experts {
            None => self.vectors([alone], [len], presence),
            Some(experts) if presence == Presence::Always => {
                self.file.floats(&self.name(of_all), &[len, experts.count]).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Vectors one after the other, if the architecture has them; a file that has one has all.
    pub fn vectors<const N: usize>(
        &self,
        parts: [&str; N],
        lens: [usize; N],
        presence: Presence,
    ) -> Result<Option<Vec<f32>>, ModelError> {
        if !presence.asked(|| parts.iter().any(|part| self.file.has(&self.name(part)))) {
            return Ok(None);
        }
        // Grown as tensors are found to have these lengths: keys that lie cost an error, not memory.
        let mut all = Vec::new();
        for (part, len) in parts.into_iter().zip(lens) {
            all.extend(self.vector([part], [len])?);
        }
        Ok(Some(all))
    }
}

/// Rows of a delta net's inputs, queries, keys, values and gates one after the other, of which this is the part of that number: where it
/// begins, where the tensor ends that it is in, and where it begins and ends of a key head, where all of each are side by side.
pub(super) struct DeltaRows {
    rows: Range<usize>,
    all: usize,
    of_head: Range<usize>,
    of_all: usize,
    cols: usize,
}

pub(super) fn delta_rows(c: &Config, part: usize) -> DeltaRows {
    let (keys, values) = c.delta.as_ref().map_or((0, 0), |d| (d.keys(), d.values()));
    let heads = c.delta.as_ref().map_or(1, |d| d.key_heads).max(1);
    let widths = [keys, keys, values, values];
    let before = widths.iter().take(part).sum::<usize>();
    let width = widths.get(part).copied().unwrap_or(0);
    let channels = 2 * keys + values;
    // Gates are a tensor of their own.
    let (first, all) = if part == 3 { (0, values) } else { (before, channels) };
    DeltaRows {
        rows: first..first + width,
        all,
        of_head: before / heads..(before + width) / heads,
        of_all: channels + values,
        cols: c.hidden,
    }
}
