//! Tokens that are fed again, as a sequence was rolled back to where no state of it is, or lost its states with a step that failed.

use super::Decoder;
use super::lane::Run;
use super::runs::Fed;
use crate::decode::DecodeError;
use crate::decode::sequence::Sequence;

impl Decoder {
    /// Brings the states of a sequence to its last token. Keys and values of the tokens that are fed for it are stored again. They are fed
    /// as prompts are: with [`fast_prefill`](super::DecoderOptions::fast_prefill) their results are those of prompts, however
    /// they were fed before; without, they are those that they were.
    pub(super) fn catch_up(&mut self, sequence: &mut Sequence) -> Result<(), DecodeError> {
        let pending = sequence.pending();
        if pending.is_empty() {
            return Ok(());
        }
        self.prepare_positions(pending.end)?;
        sequence.reserve_pending()?;
        let result = self.feed_again(sequence);
        self.settle(&result);
        match result {
            Ok(steps) => sequence.caught_up(steps),
            Err(_) => sequence.unreserve(),
        }
        result.map(|_| ())
    }

    /// Feeds them; how many steps that took.
    fn feed_again(&mut self, sequence: &mut Sequence) -> Result<usize, DecodeError> {
        let (pending, kv, chunk) = (sequence.pending(), sequence.kv_type(), self.chunk());
        let mut steps = 0;
        for first in pending.clone().step_by(chunk) {
            let places = first..pending.end.min(first + chunk);
            let count = places.len();
            let columns =
                self.by_rank(|rank| places.clone().map(|position| sequence.column_of(rank, position)).collect());
            let shape = self.prompt_shape(count, kv, false, false);
            let planned = self.planned(shape);
            let run = Run::of(planned.0, count, 0, first as u32);
            self.stage_columns(planned.0, &columns, 0, &[run])?;
            let fed = Fed { count, predicted: 0, chunks: shape.chunks.then_some(first) };
            self.stage_runs(planned.0, std::iter::once((&mut *sequence, fed)))?;
            steps += 1;
            // SAFETY: as in `try_mixed`; `sequence` is borrowed until the tokens have been computed.
            unsafe { self.launch(planned) }?;
            self.wait_for_ranks()?;
        }
        self.lead.stream.synchronize()?;
        Ok(steps)
    }
}
