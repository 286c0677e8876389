//! The tensors of a layer, listed once: what a file has to hold, and what is uploaded.

use super::find::Find;
use super::{Architecture, Config, DeltaNets, Matrix, ModelError, Presence};
use gpu_kernels::delta::KERNEL;
use std::ops::Range;

/// What a layer holds in one field: a matrix, a vector, or a vector that only some architectures have.
trait Held {
    fn matrix(&self) -> Option<&Matrix> {
        None
    }
    fn vector(&self) -> Option<&[f32]> {
        None
    }
}

impl Held for Matrix {
    fn matrix(&self) -> Option<&Matrix> {
        Some(self)
    }
}

impl Held for Option<Matrix> {
    fn matrix(&self) -> Option<&Matrix> {
        self.as_ref()
    }
}

impl Held for Vec<f32> {
    fn vector(&self) -> Option<&[f32]> {
        Some(self)
    }
}

impl Held for Option<Vec<f32>> {
    fn vector(&self) -> Option<&[f32]> {
        self.as_deref()
    }
}

/// Makes all that is said of a layer's tensors from one list: a field, how [`InLayer`] reads it, the names of its tensors
/// behind `blk.N.`, and its sizes; and, for tensors that only some architectures have, whether one has them.
macro_rules! layer_tensors {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $read:ident [$($name:literal),+] $sizes:expr $(, if $presence:expr)?;)*) => {
        /// The weights of one layer.
        #[derive(Clone, Debug)]
        pub struct LayerTensors {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl LayerTensors {
            /// Its matrices, in the order of use.
            pub fn matrices(&self) -> impl Iterator<Item = &Matrix> {
                [$(self.$field.matrix()),*].into_iter().flatten()
            }

            /// Its vectors.
            pub fn vectors(&self) -> impl Iterator<Item = &[f32]> {
                [$(self.$field.vector()),*].into_iter().flatten()
            }

            pub(super) fn find(file: &Find<'_>, number: usize) -> Result<LayerTensors, ModelError> {
                let layer = InLayer { file, number };
                let c = file.config;
                Ok(LayerTensors {
                    $($field: layer.$read(
                        [$($name),+],
                        ($sizes as fn(&Config) -> _)(c)
                        $(, ($presence as fn(Architecture) -> _)(c.architecture))?
                    )?,)*
                })
            }
        }
    };
}

layer_tensors! {
    /// Added to the queries, keys and values, one after the other: `[q_dim + 2 kv_dim]`.
    qkv_bias: Option<Vec<f32>> = qkv_biases ["attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_qkv.bias"]
        |c| [c.q_dim(), c.kv_dim(), c.kv_dim()], if Architecture::qkv_biases;
    /// Norm before attention, `[hidden]`; ones, where the architecture [has no weights](Architecture::norm_weights).
    attn_norm: Vec<f32> = norm ["attn_norm.weight"] |c| [c.hidden], if Architecture::norm_weights;
    /// `[hidden]`.
    attn_norm_bias: Option<Vec<f32>> = vectors ["attn_norm.bias"] |c| [c.hidden], if Architecture::norm_biases;
    /// `[q_dim, hidden]`; with [gates](Architecture::gated_heads) twice as many rows, a head's and then its gates'. As keys and values
    /// where the layer attends.
    q: Option<Matrix> = attending_part ["attn_q.weight", "attn_qkv.weight"]
        |c| (0..c.q_dim() + c.gate_dim(), [c.qkv_dim(), c.hidden]), if Architecture::fused_qkv;
    /// `[kv_dim, hidden]`.
    k: Option<Matrix> = attending_part ["attn_k.weight", "attn_qkv.weight"]
        |c| (c.q_dim()..c.q_dim() + c.kv_dim(), [c.qkv_dim(), c.hidden]), if Architecture::fused_qkv;
    /// `[kv_dim, hidden]`.
    v: Option<Matrix> = attending_part ["attn_v.weight", "attn_qkv.weight"]
        |c| (c.q_dim() + c.kv_dim()..c.qkv_dim(), [c.qkv_dim(), c.hidden]), if Architecture::fused_qkv;
    /// Norm of every query head, `[head_dim]`, where the architecture has it.
    q_norm: Option<Vec<f32>> = attending_vectors ["attn_q_norm.weight"] |c| [c.head_dim], if Architecture::head_norms;
    /// Norm of every key head, `[head_dim]`, where the architecture has it.
    k_norm: Option<Vec<f32>> = attending_vectors ["attn_k_norm.weight"] |c| [c.head_dim], if Architecture::head_norms;
    /// Of a delta net: queries, keys and values, `[channels, hidden]`.
    delta_qkv: Option<Matrix> = delta_matrix ["attn_qkv.weight"] |c| [c.delta.as_ref().map_or(0, DeltaNets::channels), c.hidden];
    /// Gates of its results, `[values, hidden]`.
    delta_gate: Option<Matrix> = delta_matrix ["attn_gate.weight"] |c| [c.delta.as_ref().map_or(0, DeltaNets::values), c.hidden];
    /// What new values count for, `[value_heads, hidden]`.
    delta_beta: Option<Matrix> = delta_matrix ["ssm_beta.weight"] |c| [c.delta.as_ref().map_or(0, |d| d.value_heads), c.hidden];
    /// How much of the state is kept, `[value_heads, hidden]`.
    delta_alpha: Option<Matrix> = delta_matrix ["ssm_alpha.weight"] |c| [c.delta.as_ref().map_or(0, |d| d.value_heads), c.hidden];
    /// The convolution, `[channels, KERNEL]`.
    delta_conv: Option<Vec<f32>> = delta_vector ["ssm_conv1d.weight"]
        |c| [KERNEL as usize, c.delta.as_ref().map_or(0, DeltaNets::channels)];
    /// Added to `alpha`, `[value_heads]`.
    delta_dt: Option<Vec<f32>> = delta_vector ["ssm_dt.bias"] |c| [c.delta.as_ref().map_or(0, |d| d.value_heads)];
    /// What the softplus of that is multiplied with, `[value_heads]`: below zero.
    delta_a: Option<Vec<f32>> = delta_vector ["ssm_a"] |c| [c.delta.as_ref().map_or(0, |d| d.value_heads)];
    /// Norm of each head's results, `[dim]`.
    delta_norm: Option<Vec<f32>> = delta_vector ["ssm_norm.weight"] |c| [c.delta.as_ref().map_or(0, |d| d.dim)];
    /// A score of each query head beside those of positions, `[heads]`, where the architecture has it.
    sinks: Option<Vec<f32>> = attending_vectors ["attn_sinks.weight"] |c| [c.heads], if Architecture::sinks;
    /// `[hidden, q_dim]`; of a delta net `[hidden, values]`.
    attn_output: Matrix = mixer_output ["attn_output.weight", "ssm_out.weight"]
        |c| [c.hidden, c.q_dim(), c.delta.as_ref().map_or(0, DeltaNets::values)];
    /// `[hidden]`.
    attn_output_bias: Option<Vec<f32>> = vectors ["attn_output.bias"] |c| [c.hidden], if Architecture::other_biases;
    /// Norm of what attention adds, `[hidden]`, where the architecture has it.
    post_attention_norm: Option<Vec<f32>> = vectors ["post_attention_norm.weight"] |c| [c.hidden], if Architecture::post_norms;
    /// Norm before the feed-forward part, `[hidden]`; none, where that reads the norm before attention.
    ffn_norm: Option<Vec<f32>> = ffn_norm ["ffn_norm.weight", "post_attention_norm.weight"] |c| [c.hidden],
        if Architecture::ffn_norm_behind;
    /// `[hidden]`.
    ffn_norm_bias: Option<Vec<f32>> = ffn_norm_bias ["ffn_norm.bias"] |c| [c.hidden], if Architecture::norm_biases;
    /// `[experts, hidden]`, in a mixture of experts.
    router: Option<Matrix> = router ["ffn_gate_inp.weight"] |c| [c.experts.map_or(0, |e| e.count), c.hidden];
    /// `[experts]`.
    router_bias: Option<Vec<f32>> = router_biases ["ffn_gate_inp.bias"] |c| [c.experts.map_or(0, |e| e.count)],
        if Architecture::other_biases;
    /// `[1, hidden]`: the weight of the shared expert.
    shared_router: Option<Matrix> = row ["ffn_gate_inp_shexp.weight"] |c| [c.hidden];
    /// `[shared, hidden]`.
    shared_gate: Option<Matrix> = shared ["ffn_gate_shexp.weight"] |c| [shared(c), c.hidden];
    /// `[shared, hidden]`.
    shared_up: Option<Matrix> = shared ["ffn_up_shexp.weight"] |c| [shared(c), c.hidden];
    /// `[hidden, shared]`.
    shared_down: Option<Matrix> = shared ["ffn_down_shexp.weight"] |c| [c.hidden, shared(c)];
    /// `[feed_forward, hidden]`; of every expert, one behind the other. None, where the architecture [has no gates](Architecture::ungated).
    gate: Option<Matrix> = gates ["ffn_gate_exps.weight", "ffn_gate.weight", "ffn_up.weight"]
        |c| (0..c.feed_forward, [2 * c.feed_forward, c.hidden]), if Architecture::fused_gates;
    /// `[feed_forward, hidden]`; of every expert.
    up: Matrix = experts_or_part ["ffn_up_exps.weight", "ffn_up.weight", "ffn_up.weight"]
        |c| (c.feed_forward..2 * c.feed_forward, [2 * c.feed_forward, c.hidden]), if Architecture::fused_gates;
    /// `[feed_forward]`; of every expert.
    gate_bias: Option<Vec<f32>> = gate_biases ["ffn_gate_exps.bias", "ffn_gate.bias"] |c| [c.feed_forward],
        if Architecture::other_biases;
    /// `[feed_forward]`; of every expert.
    up_bias: Option<Vec<f32>> = expert_biases ["ffn_up_exps.bias", "ffn_up.bias"] |c| [c.feed_forward],
        if Architecture::other_biases;
    /// `[hidden, feed_forward]`; of every expert.
    down: Matrix = experts ["ffn_down_exps.weight", "ffn_down.weight"] |c| [c.hidden, c.feed_forward];
    /// `[hidden]`; of every expert.
    down_bias: Option<Vec<f32>> = expert_biases ["ffn_down_exps.bias", "ffn_down.bias"] |c| [c.hidden],
        if Architecture::other_biases;
    /// Norm of what the feed-forward part adds, `[hidden]`, where the architecture has it.
    post_ffw_norm: Option<Vec<f32>> = vectors ["post_ffw_norm.weight"] |c| [c.hidden], if Architecture::post_norms;
}

/// Width of the shared expert.
fn shared(c: &Config) -> usize {
    c.experts.and_then(|e| e.shared).unwrap_or(0)
}

/// Reads the tensors of layer `number`.
struct InLayer<'a> {
    file: &'a Find<'a>,
    number: usize,
}

impl InLayer<'_> {
    fn name(&self, part: &str) -> String {
        format!("blk.{}.{part}", self.number)
    }

    fn matrix(&self, [part]: [&str; 1], [rows, cols]: [usize; 2]) -> Result<Matrix, ModelError> {
        self.file.matrix(&self.name(part), rows, cols)
    }

    /// A matrix of its own or, where the architecture [fuses](Architecture::fused) it, these rows of one of that shape, by the second
    /// name.
    fn part(
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
    fn recurrent(&self) -> bool {
        self.file.config.is_recurrent(self.number)
    }

    /// A [part](Self::part) of a layer that attends.
    fn attending_part(
        &self,
        names: [&str; 2],
        rows: (Range<usize>, [usize; 2]),
        fused: Presence,
    ) -> Result<Option<Matrix>, ModelError> {
        if self.recurrent() { Ok(None) } else { self.part(names, rows, self.asked(names[1], fused)).map(Some) }
    }

    /// Whether a tensor that architectures have so is asked for.
    fn asked(&self, part: &str, presence: Presence) -> bool {
        presence.asked(|| self.file.has(&self.name(part)))
    }

    /// The biases of queries, keys and values: of three tensors, or of the one that holds all.
    fn qkv_biases(
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

    /// The weights of a norm of the residual stream.
    fn norm(&self, [part]: [&str; 1], [len]: [usize; 1], there: bool) -> Result<Vec<f32>, ModelError> {
        if there { self.vector([part], [len]) } else { Ok(vec![1.0; len]) }
    }

    /// The norm before the feed-forward part, by its own name or, for architectures that call it so, by the second; none, where there is
    /// [one norm](Architecture::one_norm) for both parts.
    fn ffn_norm(
        &self,
        [own, other]: [&str; 2],
        len: [usize; 1],
        by_the_other: bool,
    ) -> Result<Option<Vec<f32>>, ModelError> {
        let architecture = self.file.config.architecture;
        let part = if by_the_other { other } else { own };
        let none = architecture.one_norm().asked(|| !self.file.has(&self.name(part)));
        (!none).then(|| self.norm([part], len, architecture.norm_weights())).transpose()
    }

    /// The bias of that norm.
    fn ffn_norm_bias(
        &self,
        names: [&str; 1],
        len: [usize; 1],
        presence: Presence,
    ) -> Result<Option<Vec<f32>>, ModelError> {
        let none = self.file.config.architecture.one_norm().asked(|| !self.file.has(&self.name("ffn_norm.weight")));
        self.vectors(names, len, if none { Presence::Never } else { presence })
    }

    /// Gates, where the architecture has them.
    fn gates(
        &self,
        names: [&str; 3],
        rows: (Range<usize>, [usize; 2]),
        fused: bool,
    ) -> Result<Option<Matrix>, ModelError> {
        let gated = self.file.config.architecture.ungated().is_none();
        gated.then(|| self.experts_or_part(names, rows, fused)).transpose()
    }

    /// The biases of gates.
    fn gate_biases(
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
    fn router_biases(
        &self,
        names: [&str; 1],
        lens: [usize; 1],
        presence: Presence,
    ) -> Result<Option<Vec<f32>>, ModelError> {
        self.file.config.experts.map_or(Ok(None), |_| self.vectors(names, lens, presence))
    }

    /// [Vectors](Self::vectors) of a layer that attends.
    fn attending_vectors<const N: usize>(
        &self,
        parts: [&str; N],
        lens: [usize; N],
        presence: Presence,
    ) -> Result<Option<Vec<f32>>, ModelError> {
        self.vectors(parts, lens, if self.recurrent() { Presence::Never } else { presence })
    }

    /// A matrix of a delta net.
    fn delta_matrix(&self, part: [&str; 1], size: [usize; 2]) -> Result<Option<Matrix>, ModelError> {
        self.recurrent().then(|| self.matrix(part, size)).transpose()
    }

    /// A vector of a delta net, of one dimension or more.
    fn delta_vector<const N: usize>(
        &self,
        [part]: [&str; 1],
        shape: [usize; N],
    ) -> Result<Option<Vec<f32>>, ModelError> {
        self.recurrent().then(|| self.file.floats(&self.name(part), &shape)).transpose()
    }

    /// What is projected onto the residual stream: what was attended to, or by the second name what a delta net gives.
    fn mixer_output(
        &self,
        [attended, delta]: [&str; 2],
        [rows, q_dim, values]: [usize; 3],
    ) -> Result<Matrix, ModelError> {
        if self.recurrent() { self.matrix([delta], [rows, values]) } else { self.matrix([attended], [rows, q_dim]) }
    }

    /// A matrix that only mixtures of experts have.
    fn router(&self, part: [&str; 1], size: [usize; 2]) -> Result<Option<Matrix>, ModelError> {
        self.file.config.experts.map(|_| self.matrix(part, size)).transpose()
    }

    /// A matrix of the shared expert.
    fn shared(&self, part: [&str; 1], size: [usize; 2]) -> Result<Option<Matrix>, ModelError> {
        self.file.config.experts.and_then(|e| e.shared).map(|_| self.matrix(part, size)).transpose()
    }

    /// A matrix of one row that only shared experts have.
    fn row(&self, [part]: [&str; 1], [cols]: [usize; 1]) -> Result<Option<Matrix>, ModelError> {
        let shared = self.file.config.experts.and_then(|e| e.shared);
        shared.map(|_| self.file.row(&self.name(part), cols)).transpose()
    }

    /// Under the first name a matrix for each expert; without experts, that of the second name.
    fn experts(&self, [of_all, alone]: [&str; 2], [rows, cols]: [usize; 2]) -> Result<Matrix, ModelError> {
        match self.file.config.experts {
            None => self.matrix([alone], [rows, cols]),
            Some(experts) => self.file.matrices(&self.name(of_all), experts.count, rows, cols),
        }
    }

    /// As [`experts`](Self::experts), where without experts the matrix may be a [part](Self::part).
    fn experts_or_part(
        &self,
        [of_all, own, fused_name]: [&str; 3],
        (rows, [all, cols]): (Range<usize>, [usize; 2]),
        fused: bool,
    ) -> Result<Matrix, ModelError> {
        match self.file.config.experts {
            None => self.part([own, fused_name], (rows, [all, cols]), fused),
            Some(experts) => self.file.matrices(&self.name(of_all), experts.count, rows.len(), cols),
        }
    }

    fn vector(&self, [part]: [&str; 1], [len]: [usize; 1]) -> Result<Vec<f32>, ModelError> {
        self.file.vector(&self.name(part), len)
    }

    /// A bias for each expert, one behind the other, if the architecture has them; without experts that of the second name.
    fn expert_biases(
        &self,
        [of_all, alone]: [&str; 2],
        [len]: [usize; 1],
        presence: Presence,
    ) -> Result<Option<Vec<f32>>, ModelError> {
        match self.file.config.experts {
            None => self.vectors([alone], [len], presence),
            Some(experts) if presence == Presence::Always => {
                self.file.floats(&self.name(of_all), &[len, experts.count]).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Vectors one after the other, if the architecture has them; a file that has one has all.
    fn vectors<const N: usize>(
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
