//! The states of one sequence, in two places that take turns, on each device of its model.

use super::super::weights::padded;
use super::net_of;
use crate::decode::model::Model;
use crate::model::Pieces;
use gpu_kernels::delta::{FRESH, Run};
use warpsmith_device::DeviceAddress;
use warpsmith_runtime::{Buffer, Device, Error};

/// Elements of the states of all layers on each device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatesShape(usize);

impl StatesShape {
    /// Those of a model, if it has any; of none on this device, where other processes have the layers, which go back and forth together.
    /// `None` as well where no address can hold them, which is found when weights are uploaded.
    pub fn of(model: &Model) -> Option<StatesShape> {
        let c = model.share();
        let layer = net_of(c, 0).filter(|_| model.config().recurrent_layers() > 0)?.layer_len();
        c.recurrent_layers().checked_mul(layer).filter(|n| *n < 1 << 58).map(StatesShape)
    }

    /// Bytes of device memory that a sequence takes for them, in both places.
    pub fn bytes(self) -> u64 {
        2 * padded(4 * self.0 as u64)
    }
}

/// See the [module](super).
pub struct States {
    /// On each device.
    places: Vec<[Buffer<f32>; 2]>,
    /// The place that holds the states behind the first `length` positions.
    current: usize,
    length: usize,
    /// Positions that the other place holds the states behind, if it is known.
    before: Option<usize>,
    /// Steps that were launched and not committed.
    ahead: usize,
}

/// Which parts of the states of all heads each device has.
fn parts_of(model: &Model) -> Vec<Pieces> {
    let (c, ranks) = (model.config(), model.ranks());
    // Of what other processes have nothing is here.
    let all = |shape: StatesShape| Pieces::one(0..shape.0);
    let of = |rank| match ranks {
        1 => StatesShape::of(model).map(all),
        _ => c.delta_heads(rank, ranks).map(|heads| heads.states(c.recurrent_layers())),
    };
    (0..ranks).map(|rank| of(rank).unwrap_or_default()).collect()
}

impl States {
    /// Behind no position, if the model has any.
    pub fn new(model: &Model) -> Result<Option<States>, Error> {
        let Some(StatesShape(len)) = StatesShape::of(model) else { return Ok(None) };
        let on = |device: &Device| Ok::<_, Error>([device.alloc(len)?, device.alloc(len)?]);
        let places = model.devices().map(on).collect::<Result<_, _>>()?;
        Ok(Some(States { places, current: 0, length: 0, before: None, ahead: 0 }))
    }

    /// Positions that the states are behind.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The same states in memory of their own.
    pub fn copy(&self, model: &Model) -> Result<Option<States>, Error> {
        let Some(mut copy) = States::new(model)? else { return Ok(None) };
        copy.length = self.length;
        if self.length > 0 {
            for ((from, to), rank) in self.places.iter().zip(&mut copy.places).zip(model.all_ranks()) {
                rank.stream.copy(&from[self.current], &mut to[0])?;
            }
            model.all_ranks().try_for_each(|rank| rank.stream.synchronize())?;
        }
        Ok(Some(copy))
    }

    /// The bits of the states of all heads of the model; of no position none.
    pub fn read(&self, model: &Model) -> Result<Vec<u32>, Error> {
        if self.length == 0 {
            return Ok(Vec::new());
        }
        let parts = parts_of(model);
        let mut all = vec![0; parts.iter().map(Pieces::end).max().unwrap_or(0)];
        for ((on, part), rank) in self.places.iter().zip(&parts).zip(model.all_ranks()) {
            let values = rank.stream.read(&on[self.current])?;
            let mut values = values.into_iter().map(f32::to_bits);
            for range in part.ranges() {
                all[range].iter_mut().zip(&mut values).for_each(|(to, value)| *to = value);
            }
        }
        Ok(all)
    }

    /// Takes states that were [read](Self::read), of so many positions.
    pub fn write(&mut self, length: usize, bits: &[u32], model: &Model) -> Result<(), Error> {
        (self.current, self.length, self.before, self.ahead) = (0, 0, None, 0);
        let parts = parts_of(model);
        if length == 0 || parts.iter().any(|part| part.end() > bits.len()) {
            return Ok(());
        }
        for ((on, part), rank) in self.places.iter_mut().zip(&parts).zip(model.all_ranks()) {
            let values: Vec<f32> = part.gather(bits).into_iter().map(f32::from_bits).collect();
            rank.stream.write(&mut on[0], &values)?;
        }
        self.length = length;
        Ok(())
    }

    /// The places of the next step on each device, which is launched behind those that were; `columns` has its other flags.
    pub fn next(&mut self, columns: Run) -> impl Iterator<Item = Run> + '_ {
        let from = (self.current + self.ahead) % 2;
        let flags = columns.flags | if self.length == 0 && self.ahead == 0 { FRESH } else { 0 };
        self.ahead += 1;
        let run = move |on: &[Buffer<f32>; 2]| {
            let address = |place: usize| on.get(place).map_or(DeviceAddress::NULL, |p| p.address());
            Run { from: address(from), to: address(1 - from), flags, ..columns }
        };
        self.places.iter().map(run)
    }

    /// The first `steps` of those that were launched are behind `length` positions.
    pub fn commit(&mut self, steps: usize, length: usize) {
        self.ahead = self.ahead.saturating_sub(steps);
        // A step that still runs writes the other place; of several steps it holds what was between them.
        self.before = (steps == 1 && self.ahead == 0 && self.length > 0).then_some(self.length);
        self.current = (self.current + steps) % 2;
        self.length = length;
    }

    /// All steps that were launched and not committed are over: they failed, or nobody wants them.
    pub fn forget(&mut self) {
        if self.ahead > 0 {
            self.before = None;
        }
        if self.ahead > 1 {
            // The second one wrote the place that the first one read.
            self.length = 0;
        }
        self.ahead = 0;
    }

    /// Goes back to some place at or before the first `length` positions.
    pub fn roll_back(&mut self, length: usize) {
        if length >= self.length {
            return;
        }
        match self.before.take() {
            Some(before) if before <= length => (self.current, self.length) = (1 - self.current, before),
            _ => self.length = 0,
        }
    }
}
