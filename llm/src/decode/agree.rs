//! What processes that run a model together have to have in common, compared before they compute anything: where they differ, sums would
//! mean nothing, and collectives would wait for each other.

use super::DecodeError;
use super::together::Split;
use crate::model::ModelFile;
use std::hash::{DefaultHasher, Hash, Hasher};
use warpsmith_collectives::{Collective, Collectives};
use warpsmith_runtime::Stream;

/// A word of each rank, in their order. All of them make the call.
pub(super) fn words_of_all(
    rank: &(impl Collective + ?Sized),
    stream: &Stream,
    words: &[u32],
) -> Result<Vec<Vec<u32>>, DecodeError> {
    let (own, ranks) = (rank.rank() as usize, rank.ranks() as usize);
    let mut all = vec![0.0f32; words.len() * ranks];
    for (to, word) in all.iter_mut().skip(own * words.len()).zip(words) {
        *to = f32::from_bits(*word);
    }
    let mut on_device = stream.upload(&all)?;
    rank.all_gather(stream, &mut on_device)?;
    rank.synchronize(stream)?;
    let all = stream.read(&on_device)?;
    Ok(all.chunks_exact(words.len()).map(|words| words.iter().map(|word| word.to_bits()).collect()).collect())
}

/// Two words that stand for what is hashed.
pub(super) fn stands_for(what: &impl Hash) -> [u32; 2] {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    let hash = hasher.finish();
    [hash as u32, (hash >> 32) as u32]
}

/// The first rank whose words are others than this one's.
pub(super) fn other_than(own: usize, all: &[Vec<u32>]) -> Option<usize> {
    let mine = all.get(own);
    all.iter().position(|words| Some(words) != mine)
}

/// Whether all ranks have this file, by its numbers and by names, formats and sizes of its tensors, and divide it likewise.
pub(super) fn agree_on_file(
    rank: &impl Collective,
    stream: &Stream,
    file: &ModelFile,
    split: Split,
) -> Result<(), DecodeError> {
    let tensors: Vec<_> = file.matrices().map(|m| (&m.name, m.format.name(), m.rows, m.cols)).collect();
    let words = [stands_for(&(format!("{:?}", file.config()), tensors)), stands_for(&split)].concat();
    let all = words_of_all(rank, stream, &words)?;
    let own = rank.rank() as usize;
    let part = |range: std::ops::Range<usize>| -> Vec<Vec<u32>> {
        all.iter().map(|words| words.get(range.clone()).unwrap_or_default().to_vec()).collect()
    };
    for (what, range) in [("another model file", 0..2), ("another way of dividing the model", 2..4)] {
        if let Some(other) = other_than(own, &part(range)) {
            return Err(DecodeError::Disagree { rank: own, other, what });
        }
    }
    Ok(())
}
