//! What the metadata keys say about a model.

use super::delta::own_layers;
use super::keys::Keys;
use super::scaling::{self, Scaling};
use super::sections::check_sections;
use super::{Architecture, DeltaNets, Experts, LayerKinds, ModelError, Presence, Rope, Yarn};
use crate::gguf::{Gguf, Value};

/// A model's numbers, checked against each other. Shapes of tensors are checked against these.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The family.
    pub architecture: Architecture,
    /// `general.name`, if there is one.
    pub name: Option<String>,
    /// Number of layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of the feed-forward part; of an expert, where layers have several. [`feed_forward_of`](Config::feed_forward_of) says it of a
    /// layer.
    pub feed_forward: usize,
    /// The mixture of experts that the feed-forward parts are.
    pub experts: Option<Experts>,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; a divisor of `heads`.
    pub kv_heads: usize,
    /// Width of a head; not `hidden / heads` in general.
    pub head_dim: usize,
    /// Tokens: the rows of `token_embd.weight`.
    pub vocab: usize,
    /// Positions that the model was made for.
    pub context: usize,
    /// Added to the mean square in RMS norms, and to the variance in layer norms.
    pub eps: f32,
    /// Rotary embedding.
    pub rope: Rope,
    /// Positions that a token attends to, its own among them, in the layers that have a window
    /// (`attention.sliding_window`); 0: all before it. [`window_of`](Config::window_of) says it of a layer.
    pub window: usize,
    /// In what layers differ from each other.
    pub kinds: LayerKinds,
    /// The layers that are gated delta nets, in models that have any.
    pub delta: Option<DeltaNets>,
    /// What products of a query and a key are multiplied with: of almost all models `1 / sqrt(head_dim)`.
    pub score_scale: f64,
    /// Scores are `cap * tanh(score / cap)`; 0: they are as they are.
    pub score_cap: f32,
    /// Logits are `cap * tanh(logit / cap)`; 0: they are as they are.
    pub logit_cap: f32,
    /// What logits are multiplied with.
    pub logit_scale: f32,
    /// What embeddings are multiplied with.
    pub embedding_scale: f64,
    /// The feed-forward part reads the residual stream that attention reads, also where it has a norm of its own.
    pub parallel: bool,
}

impl Config {
    /// Width of all query heads.
    pub fn q_dim(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Width of all key heads (and of all value heads).
    pub fn kv_dim(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Width of all queries, keys and values.
    pub fn qkv_dim(&self) -> usize {
        self.q_dim() + 2 * self.kv_dim()
    }

    /// Query heads per key-value head.
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Reads and checks the keys.
    pub fn from_gguf(file: &Gguf) -> Result<Config, ModelError> {
        let name = file.require_str("general.architecture")?;
        let architecture = Architecture::ALL.into_iter().find(|architecture| architecture.name() == name);
        let architecture = architecture.ok_or_else(|| ModelError::Architecture { architecture: name.to_owned() })?;
        if let Some(parts) = file.u64("split.count")?.filter(|&n| n > 1) {
            let part = file.u64("split.no")?.unwrap_or(0).saturating_add(1);
            return Err(ModelError::Split { part, parts });
        }
        let keys = Keys { file, prefix: architecture.name() };
        let layers = own_layers(&keys, architecture, keys.count("block_count")?)?;
        let hidden = keys.count("embedding_length")?;
        let experts = Experts::read(&keys, architecture, layers)?;
        let of_expert = experts.map(|_| keys.optional_count("expert_feed_forward_length")).transpose()?.flatten();
        let feed_forward = of_expert.map_or_else(|| keys.count("feed_forward_length"), Ok)?;
        let context = keys.context(architecture)?;
        let heads = keys.count("attention.head_count")?;
        let kv_heads = keys.count_or("attention.head_count_kv", heads)?;
        if !heads.is_multiple_of(kv_heads) {
            return Err(keys.wrong(
                "attention.head_count_kv",
                kv_heads,
                format!("expected a divisor of the {heads} query heads"),
            ));
        }
        let head_dim = keys.head_dim(architecture, hidden, heads)?;
        if !head_dim.is_multiple_of(2) {
            return Err(keys.wrong("attention.key_length", head_dim, "RoPE needs an even head width".into()));
        }
        keys.check_widths(heads, kv_heads, head_dim)?;
        let value_length = keys.count_or("attention.value_length", head_dim)?;
        if value_length != head_dim {
            return Err(keys.wrong(
                "attention.value_length",
                value_length,
                format!("value heads of another width than key heads ({head_dim}) are not supported"),
            ));
        }
        let scaling = Scaling::read(&keys, architecture, hidden)?;
        let eps = scaling.eps(keys.eps(architecture)?);
        keys.refuse_extras(architecture)?;
        let rope = scaling.rope(&keys, keys.rope(architecture, head_dim)?, head_dim)?;
        check_sections(&keys, architecture, rope.dims)?;
        let kinds = keys.kinds(architecture, &rope)?;
        let [score_cap, logit_cap] = keys.caps(architecture)?;
        let scores = if architecture.scores_by_hidden(layers) { hidden as f64 / heads as f64 } else { head_dim as f64 };
        let vocab = vocabulary(&keys)?;
        let name = file.str("general.name")?.map(str::to_owned);
        Ok(Config {
            architecture,
            name,
            layers,
            hidden,
            feed_forward,
            experts,
            heads,
            kv_heads,
            head_dim,
            vocab,
            context,
            eps,
            rope,
            window: keys.window(context)?,
            kinds,
            delta: DeltaNets::read(&keys, architecture, layers)?,
            score_scale: 1.0 / scores.sqrt(),
            score_cap,
            logit_cap,
            logit_scale: scaling.logits,
            embedding_scale: scaling.embeddings,
            parallel: keys.parallel(architecture)?,
        })
    }
}

/// What scores and logits are capped with.
const CAPS: [&str; 2] = ["attn_logit_softcapping", "final_logit_softcapping"];
/// Layers of which all but the last have a window.
const WINDOW_PATTERN: &str = "attention.sliding_window_pattern";

impl Keys<'_> {
    /// Elements of a head.
    fn head_dim(&self, architecture: Architecture, hidden: usize, heads: usize) -> Result<usize, ModelError> {
        match self.optional_count("attention.key_length")? {
            Some(n) => Ok(n),
            None if architecture.rotated_heads() => self.count("rope.dimension_count"),
            None if hidden.is_multiple_of(heads) => Ok(hidden / heads),
            None => Err(self.wrong(
                "attention.head_count",
                heads,
                format!("embedding_length {hidden} is no multiple of it, and attention.key_length is missing"),
            )),
        }
    }

    /// Positions of a sequence at most.
    fn context(&self, architecture: Architecture) -> Result<usize, ModelError> {
        let stated = self.count("context_length")?;
        let Some(chunk) = architecture.chunk() else { return Ok(stated) };
        let key = "attention.sliding_window";
        if let Some(value) = self.file.get(&self.name(key)) {
            let reason = "attention in other than chunks is not supported of this architecture".into();
            return Err(self.wrong(key, value.describe(), reason));
        }
        Ok(stated.min(self.count_or("attention.chunk_size", chunk)?).min(chunk))
    }

    /// Kernels take sizes as u32; so no sum of these widths overflows afterwards.
    fn check_widths(&self, heads: usize, kv_heads: usize, head_dim: usize) -> Result<(), ModelError> {
        let all = kv_heads.checked_mul(2).and_then(|n| n.checked_add(heads)).and_then(|n| n.checked_mul(head_dim));
        if all.is_some_and(|n| u32::try_from(n).is_ok()) {
            return Ok(());
        }
        let reason = format!("{heads} query heads and {kv_heads} key heads of {head_dim} elements are more than 2^32");
        Err(self.wrong("attention.head_count", heads, reason))
    }

    /// A window as wide as the context is none.
    fn window(&self, context: usize) -> Result<usize, ModelError> {
        let key = "attention.sliding_window";
        if let Some(value @ Value::Array(_)) = self.file.get(&self.name(key)) {
            return Err(self.wrong(
                key,
                value.describe(),
                "windows that differ between layers are not supported".into(),
            ));
        }
        Ok(self.file.u32(&self.name(key))?.map(|n| n as usize).filter(|&n| n < context).unwrap_or(0))
    }

    /// What is added in norms.
    fn eps(&self, architecture: Architecture) -> Result<f32, ModelError> {
        let key = match architecture.layer_norm() {
            true => "attention.layer_norm_epsilon",
            false => "attention.layer_norm_rms_epsilon",
        };
        let eps = self.file.require_f32(&self.name(key))?;
        match eps.is_finite() && eps >= 0.0 {
            true => Ok(eps),
            false => Err(self.wrong(key, eps, "expected a finite number, zero or more".into())),
        }
    }

    /// Whether the feed-forward part reads what attention reads.
    fn parallel(&self, architecture: Architecture) -> Result<bool, ModelError> {
        if !architecture.says_parallel() {
            return Ok(architecture.parallel() || architecture.one_norm() == Presence::Always);
        }
        let key = "use_parallel_residual";
        match self.file.bool(&self.name(key))? {
            Some(parallel) => Ok(parallel),
            None => Err(self.wrong(key, "missing", "what the feed-forward part reads depends on it".into())),
        }
    }

    /// What scores and logits are capped with; 0: they are not.
    fn caps(&self, architecture: Architecture) -> Result<[f32; 2], ModelError> {
        let Some(usual) = architecture.caps() else { return Ok([0.0; 2]) };
        let mut caps = usual;
        for (key, cap) in CAPS.into_iter().zip(&mut caps) {
            *cap = self.file.f32(&self.name(key))?.unwrap_or(*cap);
            if !(cap.is_finite() && *cap >= 0.0) {
                return Err(self.wrong(key, *cap, "expected a finite number, zero or more".into()));
            }
        }
        Ok(caps)
    }

    /// In what layers differ: as the architecture has it, unless the file says otherwise.
    fn kinds(&self, architecture: Architecture, rope: &Rope) -> Result<LayerKinds, ModelError> {
        let mut kinds = LayerKinds { unrotated: architecture.unrotated(), ..LayerKinds::default() };
        if architecture.windowless() > 0 {
            kinds.windowless = self.count_or(WINDOW_PATTERN, architecture.windowless())?;
        }
        if let Some(usual) = architecture.local_base() {
            let key = "rope.freq_base_swa";
            let base = self.file.f32(&self.name(key))?.unwrap_or(usual);
            if !(base.is_finite() && base > 0.0) {
                return Err(self.wrong(key, base, "expected a finite number above zero".into()));
            }
            // Scaled positions are for the layers that see all of them.
            let local = Rope { base, scale: 1.0, yarn: None, ..*rope };
            kinds.local_rope = Some(local).filter(|local| local != rope);
        }
        Ok(kinds)
    }

    /// Refuses keys that announce a computation which is not implemented.
    fn refuse_extras(&self, architecture: Architecture) -> Result<(), ModelError> {
        let zero_or_absent = [
            (WINDOW_PATTERN, "a window in some of the layers only is not supported"),
            (CAPS[0], "capped attention logits are not supported"),
            (CAPS[1], "capped logits are not supported"),
            (scaling::SCORES, "an attention scale other than 1/sqrt(head width) is not supported"),
            (scaling::RESIDUAL, "a scaled residual stream is not supported"),
            (scaling::EMBEDDINGS, "scaled embeddings are not supported"),
            (scaling::LOGITS, "scaled logits are not supported"),
            ("attention.clamp_kqv", "clamped queries, keys and values are not supported"),
        ];
        for (key, reason) in zero_or_absent {
            let known = match key {
                WINDOW_PATTERN => architecture.windowless() > 0,
                scaling::LOGITS => architecture.scaled_logits() || architecture.scaled_stream(),
                scaling::SCORES | scaling::RESIDUAL | scaling::EMBEDDINGS => architecture.scaled_stream(),
                _ => CAPS.contains(&key) && architecture.caps().is_some(),
            };
            if known {
                continue;
            }
            if let Some(value) = self.file.get(&self.name(key)) {
                let harmless = match value {
                    Value::F32(x) => x == 0.0,
                    other => other.as_u64() == Some(0),
                };
                if !harmless {
                    return Err(self.wrong(key, value.describe(), reason.into()));
                }
            }
        }
        if self.file.keys().any(|(k, _)| k.starts_with("prism.hadamard.")) {
            return Err(ModelError::Config {
                key: "prism.hadamard.*".into(),
                value: "present".into(),
                reason: "the blockwise Hadamard transform of activations is not supported".into(),
            });
        }
        Ok(())
    }

    fn rope(&self, architecture: Architecture, head_dim: usize) -> Result<Rope, ModelError> {
        let dims = self.count_or("rope.dimension_count", head_dim)?;
        if dims > head_dim || !dims.is_multiple_of(2) {
            let reason = format!("expected an even number, at most the head width {head_dim}");
            return Err(self.wrong("rope.dimension_count", dims, reason));
        }
        let base = self.file.f32(&self.name("rope.freq_base"))?.unwrap_or(10000.0);
        if !(base.is_finite() && base > 0.0) {
            return Err(self.wrong("rope.freq_base", base, "expected a finite number above zero".into()));
        }
        let kind = self.file.str(&self.name("rope.scaling.type"))?;
        let factor = self.file.f32(&self.name("rope.scaling.factor"))?;
        // Files from before `rope.scaling.*` say the same with `rope.scale_linear`.
        let old = self.file.f32(&self.name("rope.scale_linear"))?;
        let scale = match kind {
            None | Some("none") => {
                // ggml ignores a factor without a type; such files do not exist with another factor than 1.
                match (factor.filter(|&f| f != 1.0 && f != 0.0), kind) {
                    (Some(f), None) => {
                        return Err(self.wrong(
                            "rope.scaling.factor",
                            f,
                            "there is no rope.scaling.type to say what it means".into(),
                        ));
                    }
                    _ => old.filter(|_| kind.is_none()).unwrap_or(1.0),
                }
            }
            Some("linear" | "yarn") => factor.unwrap_or(1.0),
            // Its factors are tensors.
            Some("longrope") if architecture.longrope() && factor.is_none_or(|f| f == 1.0) => 1.0,
            Some(other) => {
                let reason = "only `none`, `linear` and `yarn` are implemented; another scaling would give slowly \
                              worsening text";
                return Err(self.wrong("rope.scaling.type", other, reason.into()));
            }
        };
        if !(scale.is_finite() && scale > 0.0) {
            return Err(self.wrong("rope.scaling.factor", scale, "expected a finite number above zero".into()));
        }
        let yarn = match (kind, self.file.f32(&self.name("rope.scaling.attn_factor"))?) {
            (Some("yarn"), _) => Some(self.yarn()?),
            (_, None | Some(1.0)) => None,
            // The factor alone: no pair takes a share of another angle.
            (_, Some(_)) if architecture.longrope() => Some(Yarn { ext_factor: 0.0, ..self.yarn()? }),
            (_, Some(f)) => {
                let reason = "only 1 is implemented without yarn and longrope".into();
                return Err(self.wrong("rope.scaling.attn_factor", f, reason));
            }
        };
        Ok(Rope { style: architecture.rope_style(), dims, base, scale, yarn })
    }

    fn yarn(&self) -> Result<Yarn, ModelError> {
        let number = |names: &[&str], default: f32| -> Result<f32, ModelError> {
            for key in names {
                if let Some(x) = self.file.f32(&self.name(key))? {
                    if x.is_finite() && x >= 0.0 {
                        return Ok(x);
                    }
                    return Err(self.wrong(key, x, "expected a finite number, zero or more".into()));
                }
            }
            Ok(default)
        };
        let key = "rope.scaling.original_context_length";
        let original_context = match self.optional_count(key)? {
            Some(n) => n as u32,
            None => self.count("context_length")? as u32,
        };
        let yarn = Yarn {
            original_context,
            ext_factor: number(&["rope.scaling.yarn_ext_factor"], 1.0)?,
            attn_factor: number(&["rope.scaling.yarn_attn_factor", "rope.scaling.attn_factor"], 1.0)?,
            beta_fast: number(&["rope.scaling.yarn_beta_fast"], 32.0)?,
            beta_slow: number(&["rope.scaling.yarn_beta_slow"], 1.0)?,
        };
        if yarn.beta_fast <= yarn.beta_slow || yarn.beta_slow == 0.0 {
            let reason = format!("expected more than yarn_beta_slow ({}), and both above zero", yarn.beta_slow);
            return Err(self.wrong("rope.scaling.yarn_beta_fast", yarn.beta_fast, reason));
        }
        if let Some(x) = self.file.f32(&self.name("rope.scaling.yarn_log_multiplier"))?.filter(|&x| x != 0.0) {
            let reason = "a multiplier of YaRN's attention scale is not implemented".into();
            return Err(self.wrong("rope.scaling.yarn_log_multiplier", x, reason));
        }
        Ok(yarn)
    }
}

fn vocabulary(keys: &Keys<'_>) -> Result<usize, ModelError> {
    let Some(embedding) = keys.file.tensor("token_embd.weight") else {
        return Err(ModelError::MissingTensor {
            tensor: "token_embd.weight".into(),
            why: "it holds the embedding of every token",
        });
    };
    let rows = embedding.info.rows();
    let key = "vocab_size";
    if let Some(stated) = keys.file.u64(&keys.name(key))?.filter(|&n| n != rows) {
        return Err(keys.wrong(key, stated, format!("token_embd.weight has {rows} rows")));
    }
    match u32::try_from(rows) {
        Ok(n) if n > 0 => Ok(n as usize),
        _ => Err(keys.wrong(key, rows, "expected fewer than 2^32 tokens".into())),
    }
}
