//! What a file says that embeddings, the parts of a layer, scores and logits are multiplied with (Hu et al., arXiv 2404.06395; Granite 3).
//!
//! Steps know a factor of embeddings and one of logits. The others come to these: where every part of a layer is multiplied with `r` before it
//! is added, the residual stream divided by `r` has the parts as they are added to it, its embeddings divided by `r`, and the same norms, if
//! what they add to the mean square is divided by `r^2`. Scores are multiplied where queries and keys are, by cosines and sines: each by the
//! root of the factor.

use super::keys::Keys;
use super::{Architecture, ModelError, Rope, Yarn};

/// The factors of a model.
pub(super) struct Scaling {
    /// Of embeddings.
    pub embeddings: f64,
    /// What every part of a layer is multiplied with before it is added.
    residual: f64,
    /// Of products of queries and keys; `None`: the usual one.
    scores: Option<f64>,
    /// Of logits.
    pub logits: f32,
}

impl Scaling {
    /// What the keys say of a model of that width.
    pub fn read(keys: &Keys<'_>, architecture: Architecture, hidden: usize) -> Result<Scaling, ModelError> {
        let mut all = Scaling { embeddings: 1.0, residual: 1.0, scores: None, logits: 1.0 };
        if architecture.scaled_embeddings() {
            all.embeddings = (hidden as f64).sqrt();
        }
        if architecture.scaled_logits() {
            all.logits = keys.factor(LOGITS)?;
        }
        if architecture.scaled_stream() {
            all.logits = 1.0 / keys.factor(LOGITS)?;
            // Files write 0 for none.
            let factor = |key: &str| match keys.file.f32(&keys.name(key))? {
                None | Some(0.0) => Ok(None),
                Some(x) if x.is_finite() && x > 0.0 => Ok(Some(f64::from(x))),
                Some(x) => Err(keys.wrong(key, x, "expected a finite number above zero".into())),
            };
            all.residual = factor(RESIDUAL)?.unwrap_or(1.0);
            all.embeddings = factor(EMBEDDINGS)?.unwrap_or(1.0) / all.residual;
            all.scores = factor(SCORES)?;
        }
        Ok(all)
    }

    /// What is added in norms of the residual stream.
    pub fn eps(&self, eps: f32) -> f32 {
        (f64::from(eps) / (self.residual * self.residual)) as f32
    }

    /// The rotation that multiplies scores as well.
    pub fn rope(&self, keys: &Keys<'_>, rope: Rope, head_dim: usize) -> Result<Rope, ModelError> {
        let Some(scores) = self.scores else { return Ok(rope) };
        let factor = scores * (head_dim as f64).sqrt();
        if (factor - 1.0).abs() < 1e-6 {
            return Ok(rope);
        }
        if rope.dims != head_dim {
            let reason = format!("scores of heads of which {} of {head_dim} elements rotate have no factor", rope.dims);
            return Err(keys.wrong(SCORES, scores, reason));
        }
        let none = Yarn { original_context: 1, ext_factor: 0.0, attn_factor: 1.0, beta_fast: 32.0, beta_slow: 1.0 };
        let yarn = rope.yarn.unwrap_or(none);
        let attn_factor = (f64::from(yarn.attn_factor) * factor.sqrt()) as f32;
        Ok(Rope { yarn: Some(Yarn { attn_factor, ..yarn }), ..rope })
    }
}

/// What logits are multiplied with, or divided by.
pub(super) const LOGITS: &str = "logit_scale";
/// What every part of a layer is multiplied with.
pub(super) const RESIDUAL: &str = "residual_scale";
/// What embeddings are multiplied with.
pub(super) const EMBEDDINGS: &str = "embedding_scale";
/// What products of queries and keys are multiplied with.
pub(super) const SCORES: &str = "attention.scale";

impl Keys<'_> {
    /// A factor that has to be there.
    fn factor(&self, key: &str) -> Result<f32, ModelError> {
        let scale = self.file.require_f32(&self.name(key))?;
        match scale.is_finite() && scale != 0.0 && (1.0 / scale).is_finite() {
            true => Ok(scale),
            false => Err(self.wrong(key, scale, "expected a finite number other than zero".into())),
        }
    }
}
