//! Several processes that have the model together: the first has clients, queue and engine; the others make the calls that it makes, with the
//! same decoder, pool and sequences, as it tells them to.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use warpsmith_host::collectives::{Control, Error, Follow, Lead, World};
use warpsmith_host::decode::{
    DecodeError, Decoder, DecoderOptions, Logprobs, Model, Part, Pool, PoolOptions, Predict, Sampling, Sequence,
    SequenceOptions, Split,
};
use warpsmith_host::gpu_kernels::gemv::MAX_COLUMNS;

use crate::engine::Options;

/// For how long processes wait for each other to come.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// A call that all processes make, as the first has made it or is about to.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Order {
    /// A sequence begins, with what the pool keeps of these tokens.
    Begin { sequence: u64, capacity: usize, sampling: Drawn, tokens: Vec<u32> },
    /// A step.
    Step { parts: Vec<Fed> },
    /// What was predicted from guesses is compared with them.
    Accept { sequence: u64, fed: Vec<u32>, predicted: Vec<u32> },
    /// Probabilities at a place of the last step are looked at.
    Logprobs { place: usize },
    /// A sequence is gone.
    End { sequence: u64 },
}

/// Sampling, in figures that come back as they were.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Drawn {
    temperature: u32,
    top_k: u32,
    top_p: u32,
    penalty: u32,
    seed: u64,
}

/// A part of a step.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Fed {
    sequence: u64,
    tokens: Vec<u32>,
    /// How many of the last of them are predicted from: none, one or all.
    predicted: usize,
}

impl From<Sampling> for Drawn {
    fn from(s: Sampling) -> Drawn {
        let Sampling { temperature, top_k, top_p, penalty, seed } = s;
        let [temperature, top_p, penalty] = [temperature, top_p, penalty].map(f32::to_bits);
        Drawn { temperature, top_k, top_p, penalty, seed }
    }
}

impl From<Drawn> for Sampling {
    fn from(d: Drawn) -> Sampling {
        let [temperature, top_p, penalty] = [d.temperature, d.top_p, d.penalty].map(f32::from_bits);
        Sampling { temperature, top_k: d.top_k, top_p, penalty, seed: d.seed }
    }
}

/// Whether all processes get an error alike, and are as they were before: the first says how it goes on.
pub fn same_for_all(error: &DecodeError) -> bool {
    matches!(error, DecodeError::NotANumber { .. } | DecodeError::PoolFull { .. })
}

/// Decoder and pool, which all processes have alike, and this one's end of what the first tells.
pub struct Parts {
    /// What makes the steps.
    pub decoder: Decoder,
    /// What sequences keep their keys and values in.
    pub pool: Pool,
    /// Nothing, where there are no others.
    pub control: Option<Control>,
}

impl Parts {
    /// Those of a model, for these options. Processes meet here.
    pub fn new(model: &Model, options: &Options) -> Result<Parts, DecodeError> {
        let drafts = options.draft * options.batch;
        let chunk = (options.prefill.saturating_add(options.batch + drafts)).min(MAX_COLUMNS as usize);
        let Options { batch, fast_prefill, activations, tuned, .. } = *options;
        let of = DecoderOptions { batch, drafts, chunk, fast_prefill, activations, tuned, ..Default::default() };
        let decoder = Decoder::new(model, of)?;
        let of = PoolOptions { kv: options.kv, ..Default::default() };
        let mut positions = match options.pool {
            Some(positions) => positions,
            None => {
                // Graphs and tables of sequences need some, too.
                let free = model.memory_info()?.free;
                let fitting = Pool::positions_beside(model, free - free / 8, options.batch, of);
                fitting.min(2 * options.batch * options.positions(model).next_multiple_of(of.page)).max(1)
            }
        };
        let control = match &options.world {
            Some(world) => {
                let (control, least) = meet(world, options, positions)?;
                // Where one has less room, all use no more.
                positions = least;
                Some(control)
            }
            None => None,
        };
        let pool = Pool::new(model, PoolOptions { positions, ..of })?;
        Ok(Parts { decoder, pool, control })
    }
}

fn meet(world: &World, options: &Options, positions: usize) -> Result<(Control, usize), Error> {
    let same =
        format!("a cache of {} for {:?} positions a request, {:?} in all", options.kv, options.context, options.pool);
    let (control, least) = Control::join(world, &same, positions as u64, PATIENCE)?;
    Ok((control, usize::try_from(least).unwrap_or(positions)))
}

/// What the first tells the others, if there are others.
#[derive(Clone, Default)]
pub struct Others(Option<Rc<RefCell<Lead>>>);

impl Others {
    /// Those that hear this.
    pub fn of(lead: Option<Lead>) -> Others {
        Others(lead.map(|lead| Rc::new(RefCell::new(lead))))
    }

    /// Whether there are some.
    pub fn are(&self) -> bool {
        self.0.is_some()
    }

    /// Whether all of them are there.
    pub fn check(&self) -> Result<(), DecodeError> {
        self.0.as_ref().map_or(Ok(()), |lead| Ok(lead.borrow().check()?))
    }

    fn tell(&self, order: impl FnOnce() -> Order) -> Result<(), DecodeError> {
        let Some(lead) = &self.0 else { return Ok(()) };
        let text = serde_json::to_vec(&order()).map_err(|e| untold(e.to_string()))?;
        Ok(lead.borrow_mut().tell(&text)?)
    }

    /// Tells them that this is all.
    pub fn end(self) -> Result<(), DecodeError> {
        match self.0.map(Rc::try_unwrap) {
            Some(Ok(lead)) => Ok(lead.into_inner().end()?),
            // Sequences are gone before.
            Some(Err(_)) => Err(untold("sequences are left".to_owned())),
            None => Ok(()),
        }
    }
}

/// What cannot be told or understood.
fn untold(reason: String) -> DecodeError {
    Error::Rendezvous { address: "the other processes".to_owned(), reason }.into()
}

/// A sequence that all processes have.
pub struct Shared {
    /// This process's.
    pub sequence: Sequence,
    // Goes behind the sequence.
    told: Told,
}

struct Told {
    others: Others,
    number: u64,
}

impl Drop for Told {
    fn drop(&mut self) {
        // Whoever has gone is noticed by the next call.
        let _ = self.others.tell(|| Order::End { sequence: self.number });
    }
}

impl Shared {
    /// A sequence in `pool` that has as many of the tokens as that keeps of texts that began likewise; and how many.
    pub fn begin(
        (decoder, pool): (&Decoder, &Pool),
        others: &Others,
        number: u64,
        options: SequenceOptions,
        tokens: &[u32],
    ) -> Result<(Shared, usize), DecodeError> {
        let (sequence, reused) = begin(decoder, pool, options, tokens)?;
        others.tell(|| Order::Begin {
            sequence: number,
            capacity: sequence.capacity(),
            sampling: options.sampling.into(),
            tokens: tokens.to_vec(),
        })?;
        Ok((Shared { sequence, told: Told { others: others.clone(), number } }, reused))
    }

    /// [`Sequence::accept`].
    pub fn accept(&mut self, fed: &[u32], predicted: &[u32]) -> Result<usize, DecodeError> {
        let Told { others, number } = &self.told;
        others.tell(|| Order::Accept { sequence: *number, fed: fed.to_vec(), predicted: predicted.to_vec() })?;
        self.sequence.accept(fed, predicted)
    }
}

fn begin(
    decoder: &Decoder,
    pool: &Pool,
    options: SequenceOptions,
    tokens: &[u32],
) -> Result<(Sequence, usize), DecodeError> {
    let mut sequence = Sequence::in_pool(pool, options)?;
    let reused = decoder.adopt_prefix(&mut sequence, tokens)?;
    Ok((sequence, reused))
}

/// What a part of a step feeds.
pub struct Share<'a> {
    /// Of which sequence.
    pub of: &'a mut Shared,
    /// The tokens, at least one.
    pub tokens: &'a [u32],
    /// From which of them a token is predicted.
    pub predict: Predict,
}

/// A step of all processes.
pub fn step(decoder: &mut Decoder, others: &Others, shares: Vec<Share<'_>>) -> Result<Vec<u32>, DecodeError> {
    others.tell(|| {
        let fed = |share: &Share<'_>| Fed {
            sequence: share.of.told.number,
            tokens: share.tokens.to_vec(),
            predicted: match share.predict {
                Predict::Nothing => 0,
                Predict::Next => 1,
                Predict::Each => share.tokens.len(),
            },
        };
        Order::Step { parts: shares.iter().map(fed).collect() }
    })?;
    let part = |Share { of, tokens, predict }| Part { sequence: &mut of.sequence, tokens, predict };
    let mut parts: Vec<Part<'_>> = shares.into_iter().map(part).collect();
    decoder.step_mixed(&mut parts).map(<[u32]>::to_vec)
}

/// [`Decoder::logprobs`], which all processes call where one of them has the logits.
pub fn logprobs(
    decoder: &mut Decoder,
    others: &Others,
    place: usize,
    count: usize,
    asked: &[u32],
) -> Result<Logprobs, DecodeError> {
    if matches!(decoder.model().processes(), Some((Split::Stages, ..))) {
        others.tell(|| Order::Logprobs { place })?;
    }
    decoder.logprobs(place, count, asked)
}

/// Makes every call that the first tells, until it has no more.
pub fn follow(model: &Model, options: &Options) -> Result<(), DecodeError> {
    let Parts { decoder, pool, control } = Parts::new(model, options)?;
    let Some(Control::Follow(mut rank)) = control else { return Err(untold("this is the first".to_owned())) };
    let mut follower = Follower { decoder, pool, options, sequences: HashMap::new() };
    while let Some(order) = hear(&mut rank)? {
        match follower.make(order) {
            Err(error) if !same_for_all(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn hear(rank: &mut Follow) -> Result<Option<Order>, DecodeError> {
    let Some(text) = rank.hear()? else { return Ok(None) };
    serde_json::from_slice(&text).map(Some).map_err(|e| untold(e.to_string()))
}

/// A process that is told what to do.
struct Follower<'a> {
    decoder: Decoder,
    pool: Pool,
    options: &'a Options,
    sequences: HashMap<u64, Sequence>,
}

impl Follower<'_> {
    fn make(&mut self, order: Order) -> Result<(), DecodeError> {
        match order {
            Order::Begin { sequence: number, capacity, sampling, tokens } => {
                let options =
                    SequenceOptions { capacity: Some(capacity), kv: self.options.kv, sampling: sampling.into() };
                let (sequence, _) = begin(&self.decoder, &self.pool, options, &tokens)?;
                self.sequences.insert(number, sequence);
            }
            Order::Step { parts } => self.step(&parts)?,
            Order::Accept { sequence, fed, predicted } => {
                self.sequences.get_mut(&sequence).ok_or_else(|| unknown(sequence))?.accept(&fed, &predicted)?;
            }
            Order::Logprobs { place } => {
                self.decoder.logprobs(place, 1, &[])?;
            }
            Order::End { sequence } => {
                self.sequences.remove(&sequence).ok_or_else(|| unknown(sequence))?;
            }
        }
        Ok(())
    }

    fn step(&mut self, fed: &[Fed]) -> Result<(), DecodeError> {
        let mut taken = Vec::with_capacity(fed.len());
        for part in fed {
            taken.push(self.sequences.remove(&part.sequence).ok_or_else(|| unknown(part.sequence))?);
        }
        let part = |(sequence, fed)| {
            let Fed { tokens, predicted, .. }: &Fed = fed;
            // One that is predicted from every token, of one, is predicted from its last.
            let predict = match *predicted {
                0 => Predict::Nothing,
                1 => Predict::Next,
                _ => Predict::Each,
            };
            Part { sequence, tokens, predict }
        };
        let mut parts: Vec<Part<'_>> = taken.iter_mut().zip(fed).map(part).collect();
        let result = self.decoder.step_mixed(&mut parts).map(drop);
        self.sequences.extend(fed.iter().map(|fed| fed.sequence).zip(taken));
        result
    }
}

fn unknown(sequence: u64) -> DecodeError {
    untold(format!("rank 0 tells of sequence {sequence}, which there is not"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_come_as_they_were_told() {
        let sampling = Sampling { temperature: 0.1, top_k: 3, top_p: 0.7, penalty: 1.1, seed: u64::MAX };
        let orders = [
            Order::Begin { sequence: u64::MAX, capacity: 7, sampling: sampling.into(), tokens: vec![0, u32::MAX] },
            Order::Step { parts: vec![Fed { sequence: 1, tokens: vec![2], predicted: 1 }] },
            Order::Accept { sequence: 3, fed: vec![4, 5], predicted: vec![5, 6] },
            Order::Logprobs { place: 2 },
            Order::End { sequence: 8 },
        ];
        for order in orders {
            let text = serde_json::to_vec(&order).unwrap_or_default();
            assert_eq!(serde_json::from_slice::<Order>(&text).ok(), Some(order));
        }
        assert_eq!(Sampling::from(Drawn::from(sampling)), sampling);
    }
}
