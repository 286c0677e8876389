//! The families of models, and what tells their forward passes apart: a row each in `list.rs`.

mod facts;
mod list;

pub use list::Architecture;

use super::{Gating, RopeStyle};
use gpu_kernels::{activation::Activation, elementwise::Glu};

/// Whether an architecture has a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Presence {
    /// A file without it is refused.
    Always,
    /// It is used where the file has it.
    Optional,
    /// A file with it is refused.
    Never,
}

impl Presence {
    /// Whether it is asked for in a file, of which `has` says whether it has it.
    pub(super) fn asked(self, has: impl FnOnce() -> bool) -> bool {
        match self {
            Presence::Always => true,
            Presence::Optional => has(),
            Presence::Never => false,
        }
    }
}

/// The expert that every token is given to beside those that are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SharedExpert {
    /// There is none.
    None,
    /// It counts for the sigmoid of a product of its own; a file says how wide it is, or it is as wide as a dense part.
    Gated,
    /// It counts for 1, and is there where a file says how wide it is.
    Plain,
    /// It counts for 1, and is always there: as wide as a file says, or as one of the others.
    One,
    /// It counts for 1, and is as many times as wide as another expert as a file says there are.
    Several,
}

/// How files hold what gated delta nets project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeltaLayout {
    /// A tensor for what new values count for, and one for what is kept; heads of values have key heads in turn.
    InTurn,
    /// Both in one tensor, those of a key head side by side, as are the heads of values that share one.
    ByKeyHead,
}

impl Architecture {
    /// Its name in `general.architecture`.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// Whether queries, keys and values have biases.
    pub fn qkv_biases(self) -> Presence {
        self.facts().qkv_biases
    }

    /// Whether attention's output, routers and the matrices of the feed-forward part have biases.
    pub fn other_biases(self) -> Presence {
        self.facts().other_biases
    }

    /// Whether the output projection has a bias.
    pub fn head_bias(self) -> Presence {
        self.facts().head_bias
    }

    /// Whether norms of the residual stream subtract the mean (layer norm: Ba et al., arXiv 1607.06450); else they are RMS norms.
    pub fn layer_norm(self) -> bool {
        self.facts().layer_norm
    }

    /// Whether norms of the residual stream have weights; else they multiply with one.
    pub fn norm_weights(self) -> bool {
        self.facts().norm_weights
    }

    /// Whether norms of the residual stream have biases.
    pub fn norm_biases(self) -> Presence {
        self.facts().norm_biases
    }

    /// Whether attention and feed-forward part of a layer read one norm; optional: in layers that have no second one.
    pub fn one_norm(self) -> Presence {
        self.facts().one_norm
    }

    /// Whether attention and feed-forward part read one residual stream, also where each has a norm.
    pub fn parallel(self) -> bool {
        self.facts().parallel
    }

    /// Whether files may have a norm of its own for attention, `attn_norm_2`, where `attn_norm` is then that of the feed-forward part.
    pub fn second_attention_norm(self) -> bool {
        self.facts().second_attention_norm
    }

    /// Whether a file says, by `use_parallel_residual`, if the feed-forward part reads what attention reads, or what attention adds to
    /// as well.
    pub fn says_parallel(self) -> bool {
        self.facts().says_parallel
    }

    /// Whether each query head has a sink: a score that takes a share of its softmax and has no value (Xiao et al., arXiv 2309.17453).
    pub fn sinks(self) -> Presence {
        self.facts().sinks
    }

    /// Whether every query and key head is normalised.
    pub fn head_norms(self) -> Presence {
        self.facts().head_norms
    }

    /// Whether the norms of query and key heads come behind RoPE.
    pub fn norms_behind_rope(self) -> bool {
        self.facts().norms_behind_rope
    }

    /// Whether query and key heads are divided by the root of their mean square, without weights, in layers that rotate them; but not in models
    /// of so many experts, as files do not say it.
    pub fn unit_heads(self) -> Option<usize> {
        self.facts().unit_heads
    }

    /// Positions of a chunk, to which most layers attend alone, and beyond the first of which queries of the others are scaled: so sequences
    /// have no more. A file may say fewer.
    pub fn chunk(self) -> Option<usize> {
        self.facts().chunk
    }

    /// Whether experts read a token times its weight, and do not count for that.
    pub fn weighted_inputs(self) -> bool {
        self.facts().weighted_inputs
    }

    /// Whether layers have a mixture of experts.
    pub fn experts(self) -> Presence {
        self.facts().experts
    }

    /// Whether the weights of experts that are chosen are divided by their sum, where a file does not say.
    pub fn normalised(self) -> bool {
        self.facts().normalised
    }

    /// What weights of experts are made of, where a file does not say.
    pub fn gating(self) -> Gating {
        self.facts().gating
    }

    /// Whether experts have biases that choosing adds to them.
    pub fn choice_biases(self) -> Presence {
        self.facts().choice_biases
    }

    /// The expert that every token is given to beside those that are chosen.
    pub fn shared_expert(self) -> SharedExpert {
        self.facts().shared_expert
    }

    /// Whether a file may say that layers have no experts: the first ones, or all but every so manieth.
    pub fn dense_layers(self) -> bool {
        self.facts().dense_layers
    }

    /// Whether a file may have layers behind the model's own (`nextn_predict_layers`), which guess further tokens.
    pub fn guesses(self) -> bool {
        self.facts().guesses
    }

    /// Which elements of a head RoPE rotates together.
    pub fn rope_style(self) -> RopeStyle {
        self.facts().rope
    }

    /// Whether heads are as wide as what RoPE rotates of them, where a file does not say how wide they are.
    pub fn rotated_heads(self) -> bool {
        self.facts().rotated_heads
    }

    /// Whether one tensor holds queries, keys and values.
    pub fn fused_qkv(self) -> Presence {
        self.facts().fused_qkv
    }

    /// Whether one tensor holds gates and ups.
    pub fn fused_gates(self) -> bool {
        self.facts().fused_gates
    }

    /// Whether embeddings of positions, as many as the context has, are added to those of tokens.
    pub fn learned_positions(self) -> bool {
        self.facts().learned_positions
    }

    /// Whether a file may divide RoPE's angles by one of two lists of factors: `rope_factors_long` for sequences beyond the context
    /// that the model was first trained with, and `rope_factors_short` (longrope: Ding et al., arXiv 2402.13753).
    pub fn longrope(self) -> bool {
        self.facts().longrope
    }

    /// Layers of which the last does not rotate queries and keys; 0: all rotate.
    pub fn unrotated(self) -> usize {
        self.facts().unrotated
    }

    /// Layers of which the last attends to all positions, where the others have the window; 0: all have it. A file may say
    /// otherwise.
    pub fn windowless(self) -> usize {
        self.facts().windowless
    }

    /// RoPE base of the layers with the window, if not that of the others. A file may say otherwise.
    pub fn local_base(self) -> Option<f32> {
        self.facts().local_base
    }

    /// Whether what attention and feed-forward part give is normed before it is added.
    pub fn post_norms(self) -> Presence {
        self.facts().post_norms
    }

    /// How files hold what gated delta nets project, which most layers then are, and of which the keys `ssm.*` tell.
    pub fn delta_nets(self) -> Option<DeltaLayout> {
        self.facts().delta_nets
    }

    /// Whether `attn_q.weight` has, behind the rows of each query head, as many that give the gates of its results.
    pub fn gated_heads(self) -> bool {
        self.facts().gated_heads
    }

    /// Whether files call the norm before the feed-forward part `post_attention_norm`.
    pub fn ffn_norm_behind(self) -> bool {
        self.facts().ffn_norm_behind
    }

    /// What comes of ups, where the feed-forward part has no gates.
    pub fn ungated(self) -> Option<Activation> {
        self.facts().ungated
    }

    /// What comes of gates and ups in a feed-forward part that has both.
    pub fn glu(self) -> Glu {
        self.facts().glu
    }

    /// Whether a file may say what embeddings, what every part of a layer adds, and scores are multiplied with, and what logits are divided
    /// by (`embedding_scale`, `residual_scale`, `attention.scale`, `logit_scale`).
    pub fn scaled_stream(self) -> bool {
        self.facts().scaled_stream
    }

    /// Whether embeddings are multiplied by the root of their width.
    pub fn scaled_embeddings(self) -> bool {
        self.facts().scaled_embeddings
    }

    /// What scores and logits are capped with, where the file does not say; `None`: neither is.
    pub fn caps(self) -> Option<[f32; 2]> {
        self.facts().caps
    }

    /// Whether a file says, by `logit_scale`, what logits are multiplied with.
    pub fn scaled_logits(self) -> bool {
        self.facts().scaled_logits
    }

    /// Whether the model of so many layers divides scores by the root of `hidden / heads`: files do not say it.
    pub fn scores_by_hidden(self, layers: usize) -> bool {
        self.facts().scores_by_hidden == Some(layers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps know layer norms only where nothing else stands between residual stream and products.
    #[test]
    fn families_with_layer_norms_have_plain_layers() {
        let mut with = 0;
        for facts in Architecture::ALL.map(Architecture::facts) {
            let rms = facts.norm_weights && [facts.norm_biases, facts.one_norm] == [Presence::Never; 2];
            if !facts.layer_norm {
                assert!(rms && !facts.says_parallel && !facts.learned_positions, "{}", facts.name);
                continue;
            }
            with += 1;
            let never = [facts.experts, facts.post_norms, facts.head_norms, facts.sinks];
            assert_eq!(never, [Presence::Never; 4], "{}", facts.name);
            assert!(facts.delta_nets.is_none() && !facts.scaled_embeddings && !facts.gated_heads, "{}", facts.name);
            // Without weights in the file there is none whose lack could say anything.
            assert!(facts.norm_weights || facts.one_norm == Presence::Never, "{}", facts.name);
        }
        assert!(with > 0);
    }
}
