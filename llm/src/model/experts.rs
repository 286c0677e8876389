//! Mixtures of experts: what the keys `expert_*` say.

use super::keys::Keys;
use super::{Architecture, Gating, ModelError, Presence, SharedExpert};
use gpu_kernels::experts::route;

/// Feed-forward parts of which a router chooses some for each token. What these give is added up, each times its weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Experts {
    /// How many a layer has (`expert_count`).
    pub count: usize,
    /// How many of them a token is given to (`expert_used_count`).
    pub used: usize,
    /// What weights are made of (`expert_gating_func`).
    pub gating: Gating,
    /// The weights of those that are chosen are divided by their sum (`expert_weights_norm`).
    pub normalise: bool,
    /// Weights are multiplied with this (`expert_weights_scale`).
    pub scale: f32,
    /// Groups of equal size that they fall into, and of how many of these experts are chosen (`expert_group_count`,
    /// `expert_group_used_count`); 1 and 1: of all.
    pub groups: (usize, usize),
    /// Width of an expert beside these that every token is given to; `None`: there is none.
    pub shared: Option<usize>,
    /// That one counts for the sigmoid of a product of its own; else for 1.
    pub shared_gate: bool,
    /// Layers that have experts.
    pub layers: ExpertLayers,
}

/// Which layers have experts; the others are dense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertLayers {
    /// The number of the first layer among those of the whole model; 0 but for a [stage](super::ModelFile::stage).
    pub first: usize,
    /// The first ones have none (`leading_dense_block_count`).
    pub leading: usize,
    /// Of so many layers only the last has (`interleave_moe_layer_step`).
    pub step: usize,
    /// Width of the feed-forward part of the others; 0: there are none.
    pub dense: usize,
}

impl ExpertLayers {
    /// Whether a layer, counted from 0, has experts.
    #[must_use]
    pub fn has(&self, layer: usize) -> bool {
        let layer = self.first + layer;
        layer >= self.leading && (layer + 1).is_multiple_of(self.step)
    }

    fn read(keys: &Keys<'_>, architecture: Architecture, layers: usize) -> Result<ExpertLayers, ModelError> {
        let (leading, step) = ("leading_dense_block_count", "interleave_moe_layer_step");
        if !architecture.dense_layers() {
            for (key, most) in [(leading, 0), (step, 1)] {
                if let Some(n) = keys.file.u32(&keys.name(key))?.filter(|&n| n > most) {
                    let reason = "layers without experts beside layers with experts are not part of this architecture";
                    return Err(keys.wrong(key, n, reason.into()));
                }
            }
            return Ok(ExpertLayers { first: 0, leading: 0, step: 1, dense: 0 });
        }
        let first = keys.file.u32(&keys.name(leading))?.unwrap_or(0) as usize;
        let mut of = ExpertLayers { first: 0, leading: first, step: keys.count_or(step, 1)?, dense: 0 };
        if !(0..layers).any(|layer| of.has(layer)) {
            let (key, value) = if first < layers { (step, of.step) } else { (leading, first) };
            return Err(keys.wrong(key, value, format!("none of the {layers} layers would have experts")));
        }
        if !(0..layers).all(|layer| of.has(layer)) {
            of.dense = keys.count("feed_forward_length")?;
        }
        Ok(of)
    }
}

impl Experts {
    /// Those of a file of so many layers, if these have any.
    pub(super) fn read(
        keys: &Keys<'_>,
        architecture: Architecture,
        layers: usize,
    ) -> Result<Option<Experts>, ModelError> {
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
        refuse_extras(keys)?;
        let (gating, chosen_alone) = gating(keys, architecture)?;
        let normalise =
            keys.file.bool(&keys.name("expert_weights_norm"))?.unwrap_or(architecture.normalised()) || chosen_alone;
        // Files write 0 for no scale.
        let scale = keys.file.f32(&keys.name("expert_weights_scale"))?.filter(|&s| s != 0.0).unwrap_or(1.0);
        if !(scale.is_finite() && scale > 0.0) {
            return Err(keys.wrong("expert_weights_scale", scale, "expected a finite number above zero".into()));
        }
        Ok(Some(Experts {
            count,
            used,
            gating,
            normalise,
            scale,
            groups: groups(keys, (count, used))?,
            shared: shared(keys, architecture)?,
            shared_gate: architecture.shared_expert() == SharedExpert::Gated,
            layers: ExpertLayers::read(keys, architecture, layers)?,
        }))
    }

    /// The same as flags of [`Route`](gpu_kernels::experts::Route), where choosing adds biases or not.
    #[must_use]
    pub fn flags(&self, biased: bool) -> u32 {
        let flag = |on: bool, flag: u32| if on { flag } else { 0 };
        flag(self.gating == Gating::Sigmoid, route::SIGMOID)
            | flag(self.normalise, route::NORMALISE)
            | flag(self.shared.is_some(), if self.shared_gate { route::SHARED } else { route::WHOLE })
            | flag(biased, route::BIASED)
    }

    /// Products of a router: one for each expert, and one for the shared one, if that has any.
    #[must_use]
    pub fn routed(&self) -> usize {
        self.count + usize::from(self.shared.is_some() && self.shared_gate)
    }

    /// Experts that a token is given to, the shared one among them.
    #[must_use]
    pub fn given(&self) -> usize {
        self.used + usize::from(self.shared.is_some())
    }
}

/// Width of the expert that every token is given to.
fn shared(keys: &Keys<'_>, architecture: Architecture) -> Result<Option<usize>, ModelError> {
    let (width, count) = ("expert_shared_feed_forward_length", "expert_shared_count");
    let (kind, shared) = (architecture.shared_expert(), keys.file.u32(&keys.name(count))?);
    let most = match kind {
        SharedExpert::None => 0,
        SharedExpert::Gated | SharedExpert::One => 1,
        SharedExpert::Plain | SharedExpert::Several => u32::MAX,
    };
    if let Some(n) = shared.filter(|&n| n > most) {
        return Err(keys.wrong(count, n, "so many shared experts are not part of this architecture".into()));
    }
    match kind {
        SharedExpert::None => match keys.file.u32(&keys.name(width))?.filter(|&n| n > 0) {
            Some(n) => Err(keys.wrong(width, n, "shared experts are not part of this architecture".into())),
            None => Ok(None),
        },
        SharedExpert::Gated => match keys.optional_count(width)? {
            Some(width) => Ok(Some(width)),
            None => keys.count("feed_forward_length").map(Some),
        },
        SharedExpert::One => match keys.file.u32(&keys.name(width))?.filter(|&n| n > 0) {
            Some(n) => Ok(Some(n as usize)),
            None => match keys.optional_count("expert_feed_forward_length")? {
                Some(each) => Ok(Some(each)),
                None => keys.count("feed_forward_length").map(Some),
            },
        },
        SharedExpert::Plain => Ok(keys.file.u32(&keys.name(width))?.filter(|&n| n > 0).map(|n| n as usize)),
        SharedExpert::Several => {
            let Some(n) = shared.filter(|&n| n > 0) else { return Ok(None) };
            let each = match keys.optional_count(width)? {
                Some(each) => each,
                None => keys.count("expert_feed_forward_length")?,
            };
            let all = each.checked_mul(n as usize).filter(|&all| u32::try_from(all).is_ok());
            all.map(Some).ok_or_else(|| keys.wrong(count, n, format!("as many times {each} rows are more than 2^32")))
        }
    }
}

/// Groups of experts, and those of them that are used.
fn groups(keys: &Keys<'_>, (count, used): (usize, usize)) -> Result<(usize, usize), ModelError> {
    let (all, taken) = ("expert_group_count", "expert_group_used_count");
    let groups = keys.file.u32(&keys.name(all))?.unwrap_or(0) as usize;
    if groups <= 1 {
        return Ok((1, 1));
    }
    let most = route::MOST_GROUPS as usize;
    if groups > most || !count.is_multiple_of(groups) || count / groups < 2 {
        let reason = format!("expected at most {most} groups of equally many of the {count} experts, two or more");
        return Err(keys.wrong(all, groups, reason));
    }
    let of = keys.count(taken)?;
    if of > groups || of * (count / groups) < used {
        let reason = format!("expected at most {groups} groups, which have {used} experts or more");
        return Err(keys.wrong(taken, of, reason));
    }
    Ok((groups, of))
}

/// The function, by ggml's number, and whether it is taken of the chosen alone. A softmax over these is one over all whose shares
/// are divided by their sum.
fn gating(keys: &Keys<'_>, architecture: Architecture) -> Result<(Gating, bool), ModelError> {
    let key = "expert_gating_func";
    match keys.file.u32(&keys.name(key))? {
        None | Some(0) => Ok((architecture.gating(), false)),
        Some(1) => Ok((Gating::Softmax, false)),
        Some(2) => Ok((Gating::Sigmoid, false)),
        Some(3) => Ok((Gating::Softmax, true)),
        Some(other) => {
            let reason = "expected 1 (softmax), 2 (sigmoid) or 3 (softmax of the chosen)".into();
            Err(keys.wrong(key, other, reason))
        }
    }
}

/// Refuses keys of other mixtures.
fn refuse_extras(keys: &Keys<'_>) -> Result<(), ModelError> {
    let key = "moe_every_n_layers";
    match keys.file.u32(&keys.name(key))?.filter(|&n| n > 1) {
        Some(n) => Err(keys.wrong(key, n, "experts in every so manieth layer are not supported".into())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_has_experts_where_the_model_has_them() {
        let whole = ExpertLayers { first: 0, leading: 1, step: 2, dense: 8 };
        let of = |layers: ExpertLayers, count| (0..count).map(|layer| layers.has(layer)).collect::<Vec<_>>();
        assert_eq!(of(whole, 6), [false, true, false, true, false, true]);
        assert_eq!(of(ExpertLayers { first: 3, ..whole }, 3), of(whole, 6)[3..]);
    }
}
