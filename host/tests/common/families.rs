//! Synthetic models of families that are Llama but for a few facts.

use super::Synthetic;
use warpsmith_host::gguf::GgufWriter;

/// What files of such a family have.
#[derive(Clone, Copy, Default)]
pub struct Family {
    /// The norm before the feed-forward part has the name of one behind attention.
    pub behind: bool,
    /// Norms behind attention and feed-forward part.
    pub post: bool,
    /// One tensor of queries, keys and values.
    pub fused_qkv: bool,
    /// One tensor of gates and ups.
    pub fused_gates: bool,
    /// No gates.
    pub ungated: bool,
    /// Biases on queries, keys and values.
    pub biases: bool,
    /// Embeddings are small, as they are multiplied by the root of their width.
    pub gemma: bool,
    /// Factors of embeddings, of what layers add, of scores and of logits.
    pub scaled: bool,
}

const PLAIN: Family = Family {
    behind: false,
    post: false,
    fused_qkv: false,
    fused_gates: false,
    ungated: false,
    biases: false,
    gemma: false,
    scaled: false,
};

/// Those that have no experts.
pub const ALL: [(&str, Family); 18] = [
    ("llama", PLAIN),
    ("phi3", Family { fused_qkv: true, fused_gates: true, ..PLAIN }),
    ("smollm3", PLAIN),
    ("gemma2", Family { post: true, gemma: true, ..PLAIN }),
    ("gemma3", Family { post: true, gemma: true, ..PLAIN }),
    ("exaone", PLAIN),
    ("internlm2", PLAIN),
    ("xverse", PLAIN),
    ("ernie4_5", PLAIN),
    ("seed_oss", Family { behind: true, biases: true, ..PLAIN }),
    ("qwen2vl", Family { biases: true, ..PLAIN }),
    ("gemma", Family { gemma: true, ..PLAIN }),
    ("glm4", Family { post: true, fused_gates: true, ..PLAIN }),
    ("chatglm", Family { fused_qkv: true, fused_gates: true, ..PLAIN }),
    ("granite", Family { scaled: true, ..PLAIN }),
    ("minicpm", Family { scaled: true, ..PLAIN }),
    ("hunyuan-dense", PLAIN),
    ("arcee", Family { ungated: true, ..PLAIN }),
];

/// That of an architecture.
pub fn family(architecture: &str) -> Family {
    match architecture {
        "granitemoe" => family("granite"),
        "bailingmoe2" => Family { fused_qkv: true, ..PLAIN },
        "gpt-oss" => Family { behind: true, biases: true, ..PLAIN },
        "glm4moe" => Family { behind: true, biases: true, ..PLAIN },
        "qwen2" | "qwen2moe" => Family { biases: true, ..PLAIN },
        other => ALL.into_iter().find(|(name, _)| *name == other).map_or(PLAIN, |(_, family)| family),
    }
}

impl Synthetic {
    /// The keys that others have not.
    pub(super) fn family_keys(&self, w: &mut GgufWriter) {
        if !family(self.architecture).scaled {
            return;
        }
        for (name, value) in
            [("embedding_scale", 12.0), ("residual_scale", 0.22), ("attention.scale", 0.05), ("logit_scale", 6.0f32)]
        {
            w.key(format!("{}.{name}", self.architecture), value);
        }
    }
}
