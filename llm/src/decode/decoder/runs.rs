//! The runs of a step on their way to the device.

use crate::decode::delta::{DeltaBuffers, most_runs};
use crate::decode::sequence::Sequence;
use crate::decode::shape::Shape;
use gpu_kernels::delta::Run;
use warpsmith_runtime::{Device, Error, Pinned, Stream};

/// Steps whose runs may be on their way at once.
const STAGES: usize = 4;

/// What a step feeds a sequence.
#[derive(Clone, Copy)]
pub(super) struct Fed {
    /// Tokens.
    pub count: usize,
    /// How many of them, the last, are predicted from: none, one or all.
    pub predicted: usize,
    /// The position of the first, where they are a prompt that delta nets take in chunks.
    pub chunks: Option<usize>,
}

impl Fed {
    /// A token that is predicted from.
    pub const TOKEN: Fed = Fed { count: 1, predicted: 1, chunks: None };
}

/// Host memory of the runs of some steps, which takes turns.
pub(super) struct RunStages {
    stages: Vec<Pinned<Run>>,
    next: usize,
}

impl RunStages {
    /// For steps of so many columns.
    pub fn new(device: &Device, columns: usize) -> Result<RunStages, Error> {
        let stage = |_| device.pinned(most_runs(columns));
        Ok(RunStages { stages: (0..STAGES).map(stage).collect::<Result<_, Error>>()?, next: 0 })
    }
}

/// The columns of each part of a step, of its tokens and of those that are predicted from, as `Decoder::stage_columns` places them; and
/// those of no part.
fn places(parts: &[Fed], columns: usize) -> (Vec<Run>, Run) {
    let predicted: usize = parts.iter().map(|part| part.predicted).sum();
    let (mut first, mut next) = (0, columns - predicted);
    let mut runs = Vec::with_capacity(parts.len() + 1);
    for &Fed { count, predicted, chunks } in parts {
        let others = count - predicted;
        // Those that are predicted from follow one another as well, and more than one is all there are.
        let begin = if others > 0 { first } else { next };
        let last = if predicted > 0 { next + predicted - 1 } else { first + count - 1 };
        let flags = chunks.map_or(0, |position| Run::from_position(position as u32));
        runs.push(Run { first: begin as u32, count: count as u32, last: last as u32, flags, ..Run::default() });
        first += others;
        next += predicted;
    }
    let count = columns - predicted - first;
    let last = (first + count).saturating_sub(1);
    (runs, Run { first: first as u32, count: count as u32, last: last as u32, ..Run::default() })
}

/// The runs of a step on each of so many devices: of each part the sequence, and what it is fed.
pub(super) fn runs_of<'s>(
    ranks: usize,
    shape: Shape,
    parts: impl Iterator<Item = (&'s mut Sequence, Fed)>,
) -> Vec<Vec<Run>> {
    let (sequences, fed): (Vec<_>, Vec<_>) = parts.unzip();
    let (runs, nobody) = places(&fed, shape.columns);
    let mut all = vec![Vec::with_capacity(shape.runs()); ranks];
    for (columns, sequence) in runs.into_iter().zip(sequences) {
        all.iter_mut().zip(sequence.runs(columns)).for_each(|(on, run)| on.push(run));
    }
    for on in &mut all {
        if nobody.count > 0 {
            on.push(nobody);
        }
        on.resize(shape.runs(), Run::default());
    }
    all
}

impl RunStages {
    /// Queues the runs of a step on a device.
    pub fn queue(&mut self, stream: &Stream, to: &mut DeltaBuffers, runs: &[Run]) -> Result<(), Error> {
        let stage = &self.stages[self.next];
        self.next = (self.next + 1) % STAGES;
        stage.with_mut(|cells| cells[..runs.len()].copy_from_slice(runs))?;
        stream.write_pinned_part(stage, &mut to.runs[..runs.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_kernels::delta::CHUNKS;

    #[test]
    fn columns_are_those_that_they_are_staged_as() {
        let of = |run: &Run| (0..run.count).map(|i| run.column(i)).collect::<Vec<_>>();
        // A prompt with its last token, a draft, more of a prompt, and a single token; two columns of nobody.
        let fed = |parts: &[(usize, usize)]| -> Vec<Fed> {
            parts.iter().map(|&(count, predicted)| Fed { count, predicted, chunks: None }).collect()
        };
        let (runs, nobody) = places(&fed(&[(3, 1), (2, 2), (2, 0), (1, 1)]), 10);
        assert_eq!(runs.iter().map(of).collect::<Vec<_>>(), [vec![0, 1, 6], vec![7, 8], vec![2, 3], vec![9]]);
        assert_eq!(of(&nobody), [4, 5]);
        // A prompt with logits of all of its tokens; one without any.
        let (runs, nobody) = places(&fed(&[(3, 3)]), 4);
        assert_eq!((of(&runs[0]), of(&nobody)), (vec![1, 2, 3], vec![0]));
        let (runs, nobody) = places(&fed(&[(3, 0)]), 3);
        assert_eq!((of(&runs[0]), of(&nobody)), (vec![0, 1, 2], vec![]));
        // In chunks, the first of which lacks tokens that were fed before.
        let (runs, _) = places(&[Fed { chunks: Some(37), ..fed(&[(3, 0)])[0] }, Fed::TOKEN], 4);
        assert_eq!((runs[0].flags & CHUNKS, runs[0].offset(), runs[1].flags), (CHUNKS, 5, 0));
    }
}
