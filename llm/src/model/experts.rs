//! Mixtures of experts: what the keys `expert_*` say.

use super::keys::Keys;
use super::{Architecture, ModelError, Presence};
use gpu_kernels::experts::route;

/// What a router's products become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gating {
    /// Shares of a softmax over all experts.
    Softmax,
    /// A sigmoid for each.
    Sigmoid,
}

/// Feed-forward parts of which a router chooses some for each token. What these give is added up, each times its weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Experts {
    /// How many a layer has (`expert_count`).
    pub count: usize,
    /// How many of them a token is given to: those of the largest products with the router (`expert_used_count`).
    pub used: usize,
    /// What weights are made of (`expert_gating_func`).
    pub gating: Gating,
    /// The weights of those that are chosen are divided by their sum (`expert_weights_norm`).
    pub normalise: bool,
    /// Weights are multiplied with this (`expert_weights_scale`).
    pub scale: f32,
    /// Width of an expert beside these that every token is given to, with a sigmoid as its weight
    /// (`expert_shared_feed_forward_length`); `None`: there is none.
    pub shared: Option<usize>,
}

impl Experts {
    /// Those of a file, if its layers have any.
    pub(super) fn read(keys: &Keys<'_>, architecture: Architecture) -> Result<Option<Experts>, ModelError> {
        let presence = architecture.experts();
        let count = match presence {
            Presence::Always => keys.count("expert_count")?,
            _ => match keys.file.u32(&keys.name("expert_count"))? {
                None | Some(0) => return Ok(None),
                Some(n) if presence == Presence::Never => {
                    let reason = "mixtures of experts are not part of this architecture".into();
                    return Err(keys.wrong("expert_count", n, reason));
                }
                Some(n) => n as usize,
            },
        };
        let used = keys.count("expert_used_count")?;
        let most = count.min(route::MOST as usize);
        if used > most {
            return Err(keys.wrong(
                "expert_used_count",
                used,
                format!("expected at most {most} of the {count} experts"),
            ));
        }
        refuse_extras(keys, architecture)?;
        let (gating, chosen_alone) = gating(keys)?;
        let normalise =
            keys.file.bool(&keys.name("expert_weights_norm"))?.unwrap_or(!architecture.shared_expert()) || chosen_alone;
        // Files write 0 for no scale.
        let scale = keys.file.f32(&keys.name("expert_weights_scale"))?.filter(|&s| s != 0.0).unwrap_or(1.0);
        if !(scale.is_finite() && scale > 0.0) {
            return Err(keys.wrong("expert_weights_scale", scale, "expected a finite number above zero".into()));
        }
        let shared = match architecture.shared_expert() {
            true => match keys.optional_count("expert_shared_feed_forward_length")? {
                Some(width) => Some(width),
                None => Some(keys.count("feed_forward_length")?),
            },
            false => None,
        };
        Ok(Some(Experts { count, used, gating, normalise, scale, shared }))
    }

    /// The same as flags of [`Route`](gpu_kernels::experts::Route).
    #[must_use]
    pub fn flags(&self) -> u32 {
        let gating = match self.gating {
            Gating::Softmax => 0,
            Gating::Sigmoid => route::SIGMOID,
        };
        let flag = |on: bool, flag: u32| if on { flag } else { 0 };
        gating | flag(self.normalise, route::NORMALISE) | flag(self.shared.is_some(), route::SHARED)
    }

    /// Products of a router: one for each expert, the shared one among them.
    #[must_use]
    pub fn routed(&self) -> usize {
        self.count + usize::from(self.shared.is_some())
    }
}

/// The function, by ggml's number, and whether it is taken of the chosen alone. A softmax over these is one over all whose shares
/// are divided by their sum.
fn gating(keys: &Keys<'_>) -> Result<(Gating, bool), ModelError> {
    let key = "expert_gating_func";
    match keys.file.u32(&keys.name(key))? {
        None | Some(0 | 1) => Ok((Gating::Softmax, false)),
        Some(2) => Ok((Gating::Sigmoid, false)),
        Some(3) => Ok((Gating::Softmax, true)),
        Some(other) => {
            let reason = "expected 1 (softmax), 2 (sigmoid) or 3 (softmax of the chosen)".into();
            Err(keys.wrong(key, other, reason))
        }
    }
}

/// Refuses keys of other mixtures.
fn refuse_extras(keys: &Keys<'_>, architecture: Architecture) -> Result<(), ModelError> {
    let (shared, width) = if architecture.shared_expert() { (1, u32::MAX) } else { (0, 0) };
    let most = [
        ("expert_shared_count", shared, "so many shared experts are not part of this architecture"),
        ("expert_shared_feed_forward_length", width, "shared experts are not part of this architecture"),
        ("leading_dense_block_count", 0, "layers without experts beside layers with experts are not supported"),
        ("interleave_moe_layer_step", 1, "layers without experts beside layers with experts are not supported"),
        ("moe_every_n_layers", 1, "layers without experts beside layers with experts are not supported"),
        ("expert_group_count", 1, "groups of experts are not supported"),
        ("expert_group_used_count", 1, "groups of experts are not supported"),
    ];
    for (key, most, reason) in most {
        if let Some(n) = keys.file.u32(&keys.name(key))?.filter(|&n| n > most) {
            return Err(keys.wrong(key, n, reason.into()));
        }
    }
    Ok(())
}
