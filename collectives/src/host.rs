//! Ranks as threads of one process, through host memory: slow, and short enough to be checked by eye. The others are compared with it.

use crate::{Collective, Elements, Error, Kind, On, Operation, Reduce};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use warpsmith_device::{bf16, f16};
use warpsmith_runtime::{Event, Stream};

/// A rank of a group of threads, on any device.
pub struct HostRanks {
    rank: u32,
    ranks: u32,
    timeout: Duration,
    meeting: Arc<Meeting>,
}

#[derive(Default)]
struct Meeting {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// What each rank has brought.
    brought: Vec<Option<Vec<u16>>>,
    /// What all have brought, and how many have yet to take it.
    together: Option<(Arc<Vec<Vec<u16>>>, usize)>,
    messages: HashMap<(u32, u32), VecDeque<Vec<u16>>>,
    missing: Vec<u32>,
}

impl HostRanks {
    /// A group of so many ranks, each of which waits for the others for so long.
    ///
    /// # Errors
    /// No rank, or more than 65536.
    pub fn group(ranks: usize, timeout: Duration) -> Result<Vec<HostRanks>, Error> {
        const MOST: u32 = 1 << 16;
        let Some(count) = u32::try_from(ranks).ok().filter(|n| (1..=MOST).contains(n)) else {
            return Err(Error::Ranks { ranks, most: MOST });
        };
        let meeting = Arc::new(Meeting::default());
        meeting.state().brought = vec![None; ranks];
        Ok((0..count).map(|rank| HostRanks { rank, ranks: count, timeout, meeting: meeting.clone() }).collect())
    }

    /// Waits until `ready` gives something.
    fn wait<R>(
        &self,
        mut ready: impl FnMut(&mut State) -> Option<R>,
        absent: impl Fn(&State) -> Vec<u32>,
    ) -> Result<R, Error> {
        let start = Instant::now();
        let mut state = self.meeting.state();
        loop {
            if !state.missing.is_empty() {
                return Err(Error::Broken { missing: state.missing.clone() });
            }
            if let Some(result) = ready(&mut state) {
                self.meeting.changed.notify_all();
                return Ok(result);
            }
            let waited = start.elapsed();
            let Some(left) = self.timeout.checked_sub(waited) else {
                let missing = absent(&state);
                state.missing.clone_from(&missing);
                self.meeting.changed.notify_all();
                return Err(Error::Missing { rank: self.rank, missing, waited });
            };
            state = self.meeting.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What all ranks bring, in their order.
    fn together(&self, mine: Vec<u16>) -> Result<Arc<Vec<Vec<u16>>>, Error> {
        let (me, ranks) = (self.rank as usize, self.ranks as usize);
        let mut mine = Some(mine);
        let absent = |state: &State| (0..self.ranks).filter(|r| state.brought[*r as usize].is_none()).collect();
        // The round before has been taken by all.
        self.wait(
            |state| {
                if state.together.is_some() {
                    return None;
                }
                state.brought[me] = mine.take();
                if state.brought.iter().all(Option::is_some) {
                    let all = state.brought.iter_mut().filter_map(Option::take).collect();
                    state.together = Some((Arc::new(all), ranks));
                }
                Some(())
            },
            absent,
        )?;
        self.wait(
            |state| {
                let (all, left) = state.together.as_mut()?;
                *left -= 1;
                let (all, last) = (all.clone(), *left == 0);
                if last {
                    state.together = None;
                }
                Some(all)
            },
            absent,
        )
    }
}

impl Meeting {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn number(bits: &[u16], kind: Kind) -> f32 {
    match (kind, bits) {
        (Kind::F32, [low, high]) => f32::from_bits(u32::from(*low) | u32::from(*high) << 16),
        (Kind::F16, [bits]) => f32::from(f16::from_bits(*bits)),
        (_, [bits, ..]) => f32::from(bf16::from_bits(*bits)),
        (_, []) => 0.0,
    }
}

fn bits(v: f32, kind: Kind) -> Vec<u16> {
    match kind {
        Kind::F32 => vec![v.to_bits() as u16, (v.to_bits() >> 16) as u16],
        Kind::F16 => vec![f16::from_f32(v).to_bits()],
        Kind::Bf16 => vec![bf16::from_f32(v).to_bits()],
    }
}

/// All ranks' elements of a range, reduced in the order of the ranks.
fn reduced(all: &[Vec<u16>], range: std::ops::Range<usize>, kind: Kind, reduce: Reduce) -> Vec<u16> {
    let each = kind.halves();
    range
        .step_by(each)
        .flat_map(|at| {
            let mut numbers = all.iter().map(|x| number(&x[at..at + each], kind));
            let first = numbers.next().unwrap_or(0.0);
            let combine = |a: f32, b: f32| match reduce {
                Reduce::Sum => a + b,
                Reduce::Max => {
                    if b > a {
                        b
                    } else {
                        a
                    }
                }
            };
            bits(numbers.fold(first, combine), kind)
        })
        .collect()
}

impl Collective for HostRanks {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn ranks(&self) -> u32 {
        self.ranks
    }

    fn issue(&self, on: On<'_, '_>, operation: Operation, mut x: Elements<'_>) -> Result<(), Error> {
        let On::Stream(stream) = on else { return Err(Error::NotCapturable(operation.name())) };
        operation.check(self.rank, self.ranks, x.len(), 1)?;
        if x.is_empty() {
            return Ok(());
        }
        let (kind, len) = (x.kind(), x.len());
        let x = x.halves(0, len);
        let slice = x.len() / self.ranks as usize;
        let of = |rank: u32| rank as usize * slice..(rank as usize + 1) * slice;
        match operation {
            Operation::Send { to } => {
                let message = stream.read(x)?;
                self.meeting.state().messages.entry((self.rank, to)).or_default().push_back(message);
                self.meeting.changed.notify_all();
            }
            Operation::Receive { from } => {
                let key = (from, self.rank);
                let message = self.wait(|s| s.messages.get_mut(&key).and_then(VecDeque::pop_front), |_| vec![from])?;
                stream.write(x, &message)?;
            }
            _ => {
                let mut mine = stream.read(x)?;
                let all = self.together(mine.clone())?;
                match operation {
                    Operation::AllReduce(reduce) => mine = reduced(&all, 0..x.len(), kind, reduce),
                    Operation::ReduceScatter(reduce) => {
                        mine[of(self.rank)].copy_from_slice(&reduced(&all, of(self.rank), kind, reduce));
                    }
                    Operation::AllGather => {
                        (0..self.ranks).for_each(|rank| mine[of(rank)].copy_from_slice(&all[rank as usize][of(rank)]))
                    }
                    Operation::Broadcast { root } => mine.copy_from_slice(&all[root as usize]),
                    Operation::Send { .. } | Operation::Receive { .. } => {}
                }
                stream.write(x, &mine)?;
            }
        }
        Ok(())
    }

    fn wait(&self, _: &Stream, mark: Event) -> Result<(), Error> {
        Ok(mark.synchronize()?)
    }

    fn leave(&self) {
        self.meeting.state().missing.push(self.rank);
        self.meeting.changed.notify_all();
    }
}
