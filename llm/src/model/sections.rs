//! Positions of several kinds, of which texts have one.

use super::keys::Keys;
use super::{Architecture, ModelError};
use crate::gguf::Value;

/// Refuses positions of several kinds where they are not all the token's: of text, those of time, height and width are, and a fourth one
/// is 0. The pairs of a head have them by sections of so many, one behind the other; those of delta nets' models take the first three in
/// turn, each as many as its section says, and then the fourth.
pub(super) fn check_sections(keys: &Keys<'_>, architecture: Architecture, dims: usize) -> Result<(), ModelError> {
    let key = "rope.dimension_sections";
    let Some(value) = keys.file.get(&keys.name(key)) else { return Ok(()) };
    let sections: Option<Vec<usize>> = match value {
        Value::Array(all) if all.len() <= 4 => all.iter().map(|n| n.as_u64()?.try_into().ok()).collect(),
        _ => None,
    };
    let Some(sections) = sections else {
        return Err(keys.wrong(key, value.describe(), "expected up to four numbers".into()));
    };
    let of = |i: usize| sections.get(i).copied().unwrap_or(0);
    let sum = |count: usize| (0..count).fold(0, |sum: usize, i| sum.saturating_add(of(i)));
    let (all, turning, in_turn) = (sum(4), sum(3), architecture.delta_nets().is_some());
    let pair_has_one = |pair: usize| match all {
        0 => !in_turn,
        _ if in_turn => (pair % all) < of(pair % all % 3).saturating_mul(3),
        _ => pair % all < turning,
    };
    if (0..dims / 2).all(pair_has_one) {
        return Ok(());
    }
    let reason = format!("some of the {} pairs of a head would not turn in texts; this is not implemented", dims / 2);
    Err(keys.wrong(key, format!("{sections:?}"), reason))
}
