//! Byte-pair encoding over token ids, and the printable alphabet that stands for bytes.

use super::TokenizerError;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// GPT-2's character for every byte: printable bytes stand for themselves, the others for U+0100 upwards.
pub(super) fn byte_characters() -> [char; 256] {
    let mut next = 0x100u32;
    std::array::from_fn(|b| match b as u8 {
        b @ (33..=126 | 161..=172 | 174..=255) => char::from(b),
        _ => {
            next += 1;
            char::from_u32(next - 1).unwrap_or(char::REPLACEMENT_CHARACTER)
        }
    })
}

pub(super) fn to_characters(bytes: &[u8]) -> String {
    let table = byte_characters();
    bytes.iter().map(|&b| table[usize::from(b)]).collect()
}

/// The bytes of a token's text, or `None` if it has a character outside the alphabet.
pub(super) fn to_bytes(text: &str) -> Option<Vec<u8>> {
    text.chars()
        .map(|c| match u32::from(c) {
            v @ (33..=126 | 161..=172 | 174..=255) => Some(v as u8),
            // 0..=32, 127..=160, 173, in this order, are U+0100..=U+0143.
            v @ 0x100..=0x120 => Some((v - 0x100) as u8),
            v @ 0x121..=0x142 => Some((v - 0x121 + 127) as u8),
            0x143 => Some(173),
            _ => None,
        })
        .collect()
}

/// Ranked merges by the ids of their parts.
#[derive(Debug)]
pub(super) struct Merges {
    by_pair: HashMap<(u32, u32), (u32, u32)>,
}

impl Merges {
    /// `lines` in order of rank, each of two parts with a space between them. Merges whose parts or
    /// whole are no tokens can never apply and are left out.
    pub(super) fn new(lines: &[String], ids: &HashMap<String, u32>) -> Result<Self, TokenizerError> {
        let mut by_pair = HashMap::with_capacity(lines.len());
        let mut unusable = 0usize;
        for (rank, line) in (0u32..).zip(lines) {
            let parts = line.split_once(' ').filter(|(a, b)| !a.is_empty() && !b.is_empty());
            let Some((left, right)) = parts else {
                return Err(TokenizerError::Merge { index: rank as usize, text: line.clone() });
            };
            match (ids.get(left), ids.get(right), ids.get(&format!("{left}{right}"))) {
                (Some(&a), Some(&b), Some(&merged)) => {
                    by_pair.entry((a, b)).or_insert((rank, merged));
                }
                _ => unusable += 1,
            }
        }
        if unusable > 0 {
            tracing::debug!("{unusable} of {} merges name parts that are no tokens", lines.len());
        }
        Ok(Merges { by_pair })
    }

    /// Merges the pair of lowest rank, the leftmost among equals, until none is left.
    pub(super) fn apply(&self, mut ids: Vec<u32>, out: &mut Vec<u32>) {
        const NONE: usize = usize::MAX;
        let n = ids.len();
        if n < 2 {
            out.append(&mut ids);
            return;
        }
        // A linked list over the positions; a symbol that was merged into its left neighbour is dead.
        let mut next: Vec<usize> = (1..n).chain([NONE]).collect();
        let mut previous: Vec<usize> = [NONE].into_iter().chain(0..n - 1).collect();
        let mut alive = vec![true; n];
        let mut queue = BinaryHeap::new();
        let candidate = |ids: &[u32], left: usize, right: usize| {
            let &(rank, merged) = self.by_pair.get(&(ids[left], ids[right]))?;
            // The ids are kept to tell a candidate that merges around it have made stale.
            Some(Reverse((rank, left, right, ids[left], ids[right], merged)))
        };
        queue.extend((1..n).filter_map(|right| candidate(&ids, right - 1, right)));
        while let Some(Reverse((_, left, right, left_id, right_id, merged))) = queue.pop() {
            let stale = !alive[left] || !alive[right] || next[left] != right;
            if stale || ids[left] != left_id || ids[right] != right_id {
                continue;
            }
            ids[left] = merged;
            alive[right] = false;
            next[left] = next[right];
            if next[left] != NONE {
                previous[next[left]] = left;
                queue.extend(candidate(&ids, left, next[left]));
            }
            if previous[left] != NONE {
                queue.extend(candidate(&ids, previous[left], left));
            }
        }
        out.extend((0..n).filter(|&i| alive[i]).map(|i| ids[i]));
    }
}
