//! Steps whose tokens the host reads while the next ones run.

use super::runs::Fed;
use super::{Decoder, Feed};
use crate::decode::DecodeError;
use crate::decode::sampling::Parameters;
use crate::decode::shape::Shape;
use gpu_kernels::sampling::NONE;
use gpu_kernels::state::CHOSEN;
use warpsmith_runtime::{Event, Pinned};

/// Decoding steps of some sequences, one after the other, each launched before the tokens of the one before have been read: the device
/// reads them itself. So the host's work (texts, clients, the next launch) passes while the device computes.
///
/// Tokens, caches and sequences are those of [`Decoder::step`]. When it is dropped, a step that nobody asked for is waited for and forgotten:
/// each sequence has what was fed up to the tokens that [`next_tokens`](Self::next_tokens) gave last. Where none was launched too many, the
/// decoder has the logits of the last.
#[derive(Debug)]
pub struct Pipeline<'a> {
    decoder: &'a mut Decoder,
    feeds: Vec<Feed<'a>>,
    parameters: Vec<Parameters>,
    /// Where the tokens of every other step go.
    read: [Pinned<u32>; 2],
    /// How far several devices are with these.
    marks: [Vec<Event>; 2],
    /// Steps that were launched and whose tokens were not given.
    ahead: usize,
    /// Steps that were launched.
    launched: usize,
    /// Steps that may be.
    most: usize,
}

impl Decoder {
    /// Begins steps that feed each sequence its token, and then the tokens that are chosen.
    pub fn pipeline<'a>(&'a mut self, mut feeds: Vec<Feed<'a>>) -> Result<Pipeline<'a>, DecodeError> {
        self.check_batch(feeds.len())?;
        let kv = feeds.first().map(|feed| feed.sequence.kv_type()).unwrap_or_default();
        let mut parameters = Vec::with_capacity(feeds.len());
        for feed in &mut feeds {
            self.check_sequence(feed.sequence, kv)?;
            feed.sequence.check(&[feed.token])?;
            self.catch_up(feed.sequence)?;
            parameters.push(feed.sequence.parameters(&[feed.token], &self.lead.stream)?);
        }
        let pinned = || self.model.device().pinned(self.most_logits());
        let read = [pinned()?, pinned()?];
        let marks = [Vec::new(), Vec::new()];
        let (ahead, launched, most) = (0, 0, usize::MAX);
        let mut pipeline = Pipeline { decoder: self, feeds, parameters, read, marks, ahead, launched, most };
        match pipeline.launch() {
            Ok(()) => Ok(pipeline),
            Err(error) => {
                pipeline.stop(&error);
                Err(error)
            }
        }
    }
}

impl Pipeline<'_> {
    /// Launches no more than so many steps in all: where it is known how many are needed, none is in vain.
    pub fn limit(&mut self, steps: usize) {
        self.most = steps;
    }

    /// The tokens that follow, of each sequence one, in the order of the feeds. The next step is launched first, if all sequences have
    /// room for it. `None`: they have none; the tokens that were given last are not fed.
    ///
    /// After an error the pipeline gives no more, and the sequences are as they were before the step that failed.
    pub fn next_tokens(&mut self) -> Result<Option<&[u32]>, DecodeError> {
        if self.ahead == 0 {
            return Ok(None);
        }
        let room = self.feeds.iter().all(|f| f.sequence.len() + self.ahead < f.sequence.capacity());
        let result = if room && self.launched < self.most { self.launch() } else { Ok(()) };
        let result = result.and_then(|()| self.read());
        if let Err(error) = &result {
            self.stop(error);
        }
        result?;
        let recipe = Some(self.decoder.step_recipe());
        for (feed, &next) in self.feeds.iter_mut().zip(&self.decoder.tokens) {
            feed.sequence.advance(&[feed.token], 1, recipe, None);
            feed.token = next;
        }
        if self.ahead == 0 {
            self.decoder.logits = 0..self.feeds.len();
        }
        Ok(Some(&self.decoder.tokens))
    }

    /// Launches the step behind those that run.
    fn launch(&mut self) -> Result<(), DecodeError> {
        let Pipeline { decoder, feeds, parameters, ahead, .. } = self;
        let longest = feeds.iter().map(|f| f.sequence.len() + *ahead + 1).max().unwrap_or(0);
        // Tables of positions are replaced by longer ones, which the steps that run must not lose.
        if longest > decoder.lead.tables.context as usize {
            decoder.wait_for_ranks()?;
            decoder.lead.stream.synchronize()?;
        }
        decoder.prepare_positions(longest)?;
        for feed in feeds.iter_mut() {
            feed.sequence.reserve(*ahead + 1)?;
        }
        let token = |place: usize, feed: &Feed<'_>| if *ahead == 0 { feed.token } else { CHOSEN | place as u32 };
        let columns = decoder.by_rank(|rank| {
            feeds.iter().enumerate().map(|(i, f)| f.sequence.column(rank, token(i, f), *ahead)).collect()
        });
        decoder.samplers.clear();
        for (i, parameters) in parameters.iter().enumerate() {
            decoder.samplers.set(i, *parameters);
        }
        decoder.samplers.write(&decoder.lead.stream)?;
        let kv = feeds.first().map(|feed| feed.sequence.kv_type()).unwrap_or_default();
        let pages = decoder.pages(feeds.iter().map(|feed| &*feed.sequence));
        let planned = decoder.planned(Shape { pages, ..Shape::decode(feeds.len(), kv) });
        decoder.stage_columns(planned.0, &columns, feeds.len(), &[])?;
        decoder.stage_runs(planned.0, feeds.iter_mut().map(|feed| (&mut *feed.sequence, Fed::TOKEN)))?;
        // SAFETY: each column and sampler leads to what its sequence owns. The feeds borrow the sequences, each once, for as long as
        // the pipeline lives, which waits for the steps that run before it is gone.
        unsafe { decoder.launch(planned) }?;
        decoder.lead.stream.read_pinned(&decoder.lead.buffers.next, &self.read[self.launched % 2])?;
        self.marks[self.launched % 2] = decoder.mark()?;
        self.launched += 1;
        self.ahead += 1;
        Ok(())
    }

    /// Waits for the tokens of the first step that was launched and not read.
    fn read(&mut self) -> Result<(), DecodeError> {
        let which = (self.launched - self.ahead) % 2;
        self.decoder.wait_for(std::mem::take(&mut self.marks[which]))?;
        let slot = &self.read[which];
        let tokens = &mut self.decoder.tokens;
        tokens.clear();
        let count = self.feeds.len();
        let read = slot.with_mut(|next| next.get(..count).map(|next| tokens.extend_from_slice(next)))?;
        read.ok_or(DecodeError::NoLogits)?;
        self.ahead -= 1;
        self.decoder.under_way = self.ahead > 0;
        match tokens.iter().position(|&t| t == NONE) {
            Some(place) => Err(DecodeError::NotANumber { position: self.feeds[place].sequence.len(), place }),
            None => Ok(()),
        }
    }

    /// Waits for what runs, after an error, and forgets it.
    fn stop(&mut self, error: &DecodeError) {
        // What was chosen is known to all processes, and what runs was launched by all.
        if matches!(error, DecodeError::NotANumber { .. }) {
            self.decoder.under_way = false;
        }
        self.forget();
    }

    fn forget(&mut self) {
        self.decoder.recover();
        self.ahead = 0;
        self.feeds.iter_mut().for_each(|feed| feed.sequence.unreserve());
    }
}

impl Drop for Pipeline<'_> {
    fn drop(&mut self) {
        if self.ahead > 0 {
            // All processes have launched it.
            self.decoder.under_way = false;
            self.forget();
        }
    }
}
