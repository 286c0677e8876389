//! Synthetic models of the architectures with layer norms.

use super::{Matrix, Rng, Synthetic, bias};
use warpsmith_host::gguf::GgufWriter;

/// What files of such an architecture have.
#[derive(Clone, Copy)]
pub struct Kind {
    pub norm_weights: bool,
    pub norm_biases: bool,
    pub biases: bool,
    pub fused: bool,
    pub gates: bool,
    pub second_norm: bool,
    pub learned: bool,
    pub head_bias: bool,
    pub scaled: bool,
    pub says_parallel: bool,
}

const PLAIN: Kind = Kind {
    norm_weights: true,
    norm_biases: true,
    biases: true,
    fused: false,
    gates: false,
    second_norm: true,
    learned: false,
    head_bias: false,
    scaled: false,
    says_parallel: false,
};

/// All of them.
pub const KINDS: [(&str, Kind); 13] = [
    ("starcoder2", PLAIN),
    ("command-r", COHERE),
    ("cohere2", COHERE),
    ("phi2", Kind { fused: true, second_norm: false, head_bias: true, ..PLAIN }),
    ("nemotron", Kind { biases: false, ..PLAIN }),
    ("gpt2", Kind { fused: true, learned: true, ..PLAIN }),
    ("stablelm", Kind { biases: false, gates: true, ..PLAIN }),
    ("gptneox", Kind { fused: true, says_parallel: true, ..PLAIN }),
    ("orion", Kind { biases: false, gates: true, ..PLAIN }),
    ("starcoder", Kind { fused: true, learned: true, ..PLAIN }),
    ("codeshell", PLAIN),
    ("falcon", Kind { biases: false, fused: true, second_norm: false, ..PLAIN }),
    ("olmo", Kind { norm_weights: false, norm_biases: false, biases: false, gates: true, ..PLAIN }),
];

const COHERE: Kind = Kind { norm_biases: false, biases: false, gates: true, second_norm: false, scaled: true, ..PLAIN };

/// That of an architecture with layer norms.
pub fn kind(architecture: &str) -> Option<Kind> {
    KINDS.into_iter().find(|(name, _)| *name == architecture).map(|(_, kind)| kind)
}

/// The keys that others have not.
pub fn keys(w: &mut GgufWriter, a: &str, kind: Kind) {
    w.remove_key(&format!("{a}.attention.layer_norm_rms_epsilon"));
    w.key(format!("{a}.attention.layer_norm_epsilon"), 1e-5f32);
    if kind.scaled {
        w.key(format!("{a}.logit_scale"), 0.25f32);
    }
    if kind.says_parallel {
        w.key(format!("{a}.use_parallel_residual"), true);
    }
}

impl Synthetic {
    /// Writes layers and the last norm, if the model is of such an architecture.
    pub(super) fn layer_normed(&self, w: &mut GgufWriter, rng: &mut Rng, matrix: &mut Matrix<'_>) -> bool {
        let Some(kind) = kind(self.architecture) else { return false };
        let (h, q, kv, f) = (self.hidden, self.heads * self.head_dim, self.kv_heads * self.head_dim, self.feed_forward);
        let outlier = self.outlier;
        let norm = |w: &mut GgufWriter, rng: &mut Rng, name: &str| {
            let mut v: Vec<f32> = (0..h).map(|_| (1.0 + 0.1 * rng.normal()) as f32).collect();
            v[h / 3] *= outlier;
            if kind.norm_weights {
                w.tensor_f32(format!("{name}.weight"), &[h as u64], &v).unwrap();
            }
            if kind.norm_biases {
                bias(w, rng, name.into(), &[h]);
            }
        };
        let mut linear = |w: &mut GgufWriter, rng: &mut Rng, name: String, rows: usize, cols: usize| {
            matrix(w, rng, format!("{name}.weight"), rows, cols, 1.5 / (cols as f64).sqrt());
            if kind.biases {
                bias(w, rng, name, &[rows]);
            }
        };
        if kind.learned {
            let v: Vec<f32> = (0..self.context * h).map(|_| (0.5 * rng.normal()) as f32).collect();
            w.tensor_f32("position_embd.weight", &[h as u64, self.context as u64], &v).unwrap();
        }
        for l in 0..self.layers {
            let name = |part: &str| format!("blk.{l}.{part}");
            norm(w, rng, &name("attn_norm"));
            if kind.fused {
                linear(w, rng, name("attn_qkv"), q + 2 * kv, h);
            } else {
                for (part, rows) in [("attn_q", q), ("attn_k", kv), ("attn_v", kv)] {
                    linear(w, rng, name(part), rows, h);
                }
            }
            linear(w, rng, name("attn_output"), h, q);
            if kind.second_norm {
                norm(w, rng, &name("ffn_norm"));
            }
            if kind.gates {
                linear(w, rng, name("ffn_gate"), f, h);
            }
            linear(w, rng, name("ffn_up"), f, h);
            linear(w, rng, name("ffn_down"), h, f);
        }
        norm(w, rng, "output_norm");
        if kind.head_bias {
            bias(w, rng, "output".into(), &[self.vocab]);
        }
        true
    }
}
