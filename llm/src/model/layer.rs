//! The tensors of a layer, listed once: what a file has to hold, and what is uploaded.

use super::find::Find;
use super::in_layer::{InLayer, delta_rows};
use super::{Architecture, Config, DeltaNets, Matrix, ModelError};
use gpu_kernels::delta::KERNEL;

/// What a layer holds in one field: a matrix, a vector, or a vector that only some architectures have.
trait LayerField {
    fn matrix(&self) -> Option<&Matrix> {
        None
    }
    fn vector(&self) -> Option<&[f32]> {
        None
    }
}

impl LayerField for Matrix {
    fn matrix(&self) -> Option<&Matrix> {
        Some(self)
    }
}

impl LayerField for Option<Matrix> {
    fn matrix(&self) -> Option<&Matrix> {
        self.as_ref()
    }
}

impl LayerField for Vec<f32> {
    fn vector(&self) -> Option<&[f32]> {
        Some(self)
    }
}

impl LayerField for Option<Vec<f32>> {
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
                let c = &file.config.alike(number);
                let layer = InLayer { file, number, config: c };
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
    attn_norm: Vec<f32> = attention_norm ["attn_norm.weight", "attn_norm_2.weight"] |c| [c.hidden], if Architecture::norm_weights;
    /// `[hidden]`.
    attn_norm_bias: Option<Vec<f32>> = attention_norm_bias ["attn_norm.bias", "attn_norm_2.bias"] |c| [c.hidden], if Architecture::norm_biases;
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
    q_norm: Option<Vec<f32>> = head_norm ["attn_q_norm.weight", "attn_k_norm.weight"] |c| [c.head_dim], if Architecture::head_norms;
    /// Norm of every key head, `[head_dim]`, where the architecture has it.
    k_norm: Option<Vec<f32>> = head_norm ["attn_k_norm.weight", "attn_q_norm.weight"] |c| [c.head_dim], if Architecture::head_norms;
    /// Of a delta net: queries, `[key_heads * dim, hidden]`.
    delta_q: Option<Matrix> = delta_input ["attn_qkv.weight", "ssm_in.weight"] |c| delta_rows(c, 0);
    /// Keys, `[key_heads * dim, hidden]`.
    delta_k: Option<Matrix> = delta_input ["attn_qkv.weight", "ssm_in.weight"] |c| delta_rows(c, 1);
    /// Values, `[values, hidden]`.
    delta_v: Option<Matrix> = delta_input ["attn_qkv.weight", "ssm_in.weight"] |c| delta_rows(c, 2);
    /// Gates of its results, `[values, hidden]`.
    delta_gate: Option<Matrix> = delta_input ["attn_gate.weight", "ssm_in.weight"] |c| delta_rows(c, 3);
    /// What new values count for, `[value_heads, hidden]`.
    delta_beta: Option<Matrix> = delta_factor ["ssm_beta.weight", "ssm_ba.weight"] |c| (0, c.hidden);
    /// How much of the state is kept, `[value_heads, hidden]`.
    delta_alpha: Option<Matrix> = delta_factor ["ssm_alpha.weight", "ssm_ba.weight"] |c| (1, c.hidden);
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
    ffn_norm: Option<Vec<f32>> = ffn_norm ["ffn_norm.weight", "post_attention_norm.weight", "attn_norm.weight"] |c| [c.hidden],
        if Architecture::ffn_norm_behind;
    /// `[hidden]`.
    ffn_norm_bias: Option<Vec<f32>> = ffn_norm_bias ["ffn_norm.bias", "attn_norm.bias"] |c| [c.hidden], if Architecture::norm_biases;
    /// `[experts, hidden]`, in a mixture of experts.
    router: Option<Matrix> = router ["ffn_gate_inp.weight"] |c| [c.experts.map_or(0, |e| e.count), c.hidden];
    /// `[experts]`.
    router_bias: Option<Vec<f32>> = router_biases ["ffn_gate_inp.bias"] |c| [c.experts.map_or(0, |e| e.count)],
        if Architecture::other_biases;
    /// What choosing adds to each expert, `[experts]`.
    choice_bias: Option<Vec<f32>> = router_biases ["exp_probs_b.bias"] |c| [c.experts.map_or(0, |e| e.count)],
        if Architecture::choice_biases;
    /// `[1, hidden]`: the weight of the shared expert.
    shared_router: Option<Matrix> = row ["ffn_gate_inp_shexp.weight"] |c| [c.hidden];
    /// `[shared, hidden]`.
    shared_gate: Option<Matrix> = shared ["ffn_gate_shexp.weight"] |c| [shared(c), c.hidden];
    /// `[shared, hidden]`.
    shared_up: Option<Matrix> = shared ["ffn_up_shexp.weight"] |c| [shared(c), c.hidden];
    /// `[hidden, shared]`.
    shared_down: Option<Matrix> = shared ["ffn_down_shexp.weight"] |c| [c.hidden, shared(c)];
    /// `[feed_forward, hidden]`; of every expert, one behind the other. None, where the architecture [has no gates](Architecture::ungated).
    gate: Option<Matrix> = gates ["ffn_gate_up_exps.weight", "ffn_gate_exps.weight", "ffn_gate.weight", "ffn_up.weight"]
        |c| (0..c.feed_forward, [2 * c.feed_forward, c.hidden]), if Architecture::fused_gates;
    /// `[feed_forward, hidden]`; of every expert.
    up: Matrix = experts_or_part ["ffn_gate_up_exps.weight", "ffn_up_exps.weight", "ffn_up.weight", "ffn_up.weight"]
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
