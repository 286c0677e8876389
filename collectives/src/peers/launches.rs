//! The launches of collectives.

use super::{Peers, Shots};
use crate::{Collective, Elements, Kind, Operation, Reduce};
use gpu_kernels::collective::{
    self as kernels, BROADCAST, GATHER, MAX, ONE_SHOT, RESIDUAL, SCATTER, TWO_SHOT, exchange::Exchange,
};
use warpsmith_device::{DeviceSlice, Launcher};

/// What prepares a norm: the weight that it multiplies with, the products, and the parts of the sums of squares.
pub struct NextNorm<'a> {
    /// `[len]`.
    pub weight: &'a DeviceSlice<f32>,
    /// Laid out as what is normed.
    pub scaled: &'a mut DeviceSlice<f32>,
    /// `[columns, PARTS]`.
    pub sums: &'a mut DeviceSlice<f32>,
}

impl Peers {
    /// The launches of an operation, as [`Collective::issue`] issues them: for what takes launches of any kind, such as steps of a decoder.
    ///
    /// # Errors
    /// Those of the launches; a contract, for slices that are not whole words or of more than the group stages
    /// ([`PeerOptions::capacity`](super::PeerOptions::capacity)). A group that has lost ranks is not noticed.
    ///
    /// # Safety
    /// The group lives until what was launched has ended.
    pub unsafe fn launch_operation<L: Launcher>(
        &self,
        on: &mut L,
        operation: Operation,
        x: Elements<'_>,
    ) -> Result<(), L::Error> {
        // SAFETY: the caller's promise.
        unsafe { self.parts(on, operation, x, None) }
    }

    /// The launches of `residual += all_reduce(x)`, or of `x = all_reduce(x)` without one, as [`Peers::all_reduce_onto`] issues
    /// them, likewise.
    ///
    /// # Errors
    /// Those of the launches.
    ///
    /// # Safety
    /// As for [`Peers::launch_operation`].
    pub unsafe fn launch_all_reduce<L: Launcher>(
        &self,
        on: &mut L,
        x: &mut DeviceSlice<f32>,
        residual: Option<&mut DeviceSlice<f32>>,
    ) -> Result<(), L::Error> {
        // SAFETY: the caller's promise.
        unsafe { self.parts(on, Operation::AllReduce(Reduce::Sum), Elements::of(x), residual) }
    }

    /// The launches of `x = residual + all_reduce(x)` with what prepares the norm behind it: `columns` columns of `next.weight.len()` elements,
    /// `stride` from one to the next. The sum of the squares of a column comes in [`PARTS`](Self::PARTS) parts.
    ///
    /// # Errors
    /// Those of the launches; a contract, where the group cannot stage a column ([`PeerOptions::capacity`](super::PeerOptions::capacity)).
    ///
    /// # Safety
    /// As for [`Peers::launch_operation`].
    pub unsafe fn launch_onto_residual<L: Launcher>(
        &self,
        on: &mut L,
        (x, residual): (&mut DeviceSlice<f32>, &mut DeviceSlice<f32>),
        next: NextNorm<'_>,
        (columns, stride): (usize, usize),
    ) -> Result<(), L::Error> {
        let (len, parts) = (next.weight.len(), Self::PARTS);
        let together = (self.group.capacity as usize / stride.max(1)).max(1);
        let mut x = Elements::of(x);
        for first in (0..columns).step_by(together) {
            let count = together.min(columns - first);
            let (at, end) = (first * stride, (first + count) * stride);
            let sum = Operation::AllReduce(Reduce::Sum);
            let mut launch = self.launch(sum, Kind::F32, (x.halves(at, count * stride), len));
            // One shot or two by the bytes of all columns.
            launch.flags |= kernels::NEXT;
            launch.residual = &mut residual[at..end];
            launch.next_weight = next.weight;
            launch.scaled = &mut next.scaled[at..end];
            launch.sums = &mut next.sums[first * parts..(first + count) * parts];
            (launch.columns, launch.stride) = (count as u32, stride as u32);
            launch.slice = (len as u32).div_ceil(self.ranks());
            // SAFETY: as for all launches of the group.
            unsafe { on.launch_unchecked(launch) }?;
        }
        Ok(())
    }

    /// Parts of a sum of squares.
    pub const PARTS: usize = kernels::BLOCKS as usize;

    /// The launches of a broadcast of words from rank 0, likewise.
    ///
    /// # Errors
    /// Those of the launches.
    ///
    /// # Safety
    /// As for [`Peers::launch_operation`].
    pub unsafe fn launch_broadcast<L: Launcher>(
        &self,
        on: &mut L,
        words: &mut DeviceSlice<u32>,
    ) -> Result<(), L::Error> {
        // SAFETY: a word is moved as it is, whatever it means.
        let bits = unsafe { DeviceSlice::<f32>::from_raw_mut(words.address().raw(), words.len()) };
        // SAFETY: the caller's promise.
        unsafe { self.parts(on, Operation::Broadcast { root: 0 }, Elements::of(bits), None) }
    }

    /// The launches of an all-gather of `columns` columns of `len` elements, `stride` from one to the next, likewise: of each, rank `r` has
    /// the elements from `r * slice` on, and everybody gets all.
    ///
    /// # Errors
    /// Those of the launches; a contract, where the group cannot stage a column ([`PeerOptions::capacity`](super::PeerOptions::capacity)).
    ///
    /// # Safety
    /// As for [`Peers::launch_operation`].
    pub unsafe fn launch_gather_columns<L: Launcher>(
        &self,
        on: &mut L,
        x: &mut DeviceSlice<f32>,
        (columns, len, stride): (usize, usize, usize),
        slice: usize,
    ) -> Result<(), L::Error> {
        let together = (self.group.capacity as usize / stride.max(1)).max(1);
        let mut x = Elements::of(x);
        for first in (0..columns).step_by(together) {
            let count = together.min(columns - first);
            let launch = kernels::Collective {
                columns: count as u32,
                stride: stride as u32,
                slice: slice as u32,
                ..self.launch(Operation::AllGather, Kind::F32, (x.halves(first * stride, count * stride), len))
            };
            // SAFETY: as for all launches of the group.
            unsafe { on.launch_unchecked(launch) }?;
        }
        Ok(())
    }

    /// The flags of a collective of so many bytes.
    fn flags(&self, operation: Operation, kind: Kind, bytes: usize) -> u32 {
        let one = match self.group.options.shots {
            Shots::One => true,
            Shots::Two => false,
            Shots::UpTo(most) => bytes <= most,
        };
        let of = |reduce| if reduce == Reduce::Max { MAX } else { 0 };
        let mode = match operation {
            Operation::AllReduce(reduce) => of(reduce) | if one { ONE_SHOT } else { TWO_SHOT },
            Operation::ReduceScatter(reduce) => of(reduce) | SCATTER,
            Operation::AllGather => GATHER,
            _ => BROADCAST,
        };
        mode | match kind {
            Kind::F32 => kernels::F32,
            Kind::F16 => kernels::F16,
            Kind::Bf16 => kernels::BF16,
        }
    }

    /// Words that are staged at a time, as elements.
    pub(super) fn most(&self, kind: Kind) -> usize {
        self.group.capacity as usize * 2 / kind.halves()
    }

    /// # Safety
    /// The group lives until what was launched has ended.
    pub(super) unsafe fn parts<L: Launcher>(
        &self,
        on: &mut L,
        operation: Operation,
        mut x: Elements<'_>,
        mut residual: Option<&mut DeviceSlice<f32>>,
    ) -> Result<(), L::Error> {
        let (len, kind) = (x.len(), x.kind());
        let mut first = 0;
        while first < len {
            let count = self.most(kind).min(len - first);
            let onto = residual.as_mut().and_then(|r| r.get_mut(first..first + count));
            let part = x.halves(first, count);
            // SAFETY: the group has frames of that capacity for all ranks, which live as long as it does.
            unsafe {
                match operation {
                    Operation::Send { to } => on.launch_unchecked(self.message(part, to, false)),
                    Operation::Receive { from } => on.launch_unchecked(self.message(part, from, true)),
                    _ => {
                        let mut launch = self.launch(operation, kind, (part, count));
                        if let Some(onto) = onto {
                            (launch.residual, launch.flags) = (onto, launch.flags | RESIDUAL);
                        }
                        on.launch_unchecked(launch)
                    }
                }
            }?;
            first += count;
        }
        Ok(())
    }

    /// A collective of `count` elements.
    fn launch<'a>(
        &'a self,
        operation: Operation,
        kind: Kind,
        (x, count): (&'a mut DeviceSlice<u16>, usize),
    ) -> kernels::Collective<'a> {
        let words = x.len().div_ceil(2) as u32;
        kernels::Collective {
            residual: DeviceSlice::empty_mut(),
            next_weight: DeviceSlice::empty(),
            scaled: DeviceSlice::empty_mut(),
            sums: DeviceSlice::empty_mut(),
            frames: &self.group.tables[self.place],
            len: count as u32,
            columns: 1,
            stride: words,
            slice: words.div_ceil(self.ranks()),
            capacity: self.group.capacity,
            rank: self.rank,
            ranks: self.ranks(),
            root: if let Operation::Broadcast { root } = operation { root } else { 0 },
            flags: self.flags(operation, kind, x.byte_len()),
            x,
        }
    }

    fn message<'a>(&'a self, x: &'a mut DeviceSlice<u16>, peer: u32, receives: bool) -> Exchange<'a> {
        self.seat().notes_message(peer, receives);
        Exchange {
            frames: &self.group.tables[self.place],
            halves: x.len() as u32,
            capacity: self.group.capacity,
            rank: self.rank,
            peer,
            ranks: self.ranks(),
            receive: receives.into(),
            x,
        }
    }
}
