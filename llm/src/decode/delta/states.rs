//! The states of one sequence, in two places that take turns.

use super::super::weights::padded;
use super::net_of;
use crate::model::Config;
use gpu_kernels::delta::{FRESH, Run};
use warpsmith_device::DeviceAddress;
use warpsmith_runtime::{Buffer, Device, Error, Stream};

/// Elements of the states of all layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatesShape(usize);

impl StatesShape {
    /// Those of a model, if it has any; `None` as well where no address can hold them, which is found when weights are uploaded.
    pub fn of(c: &Config) -> Option<StatesShape> {
        let layer = net_of(c, 0)?.layer_len();
        c.recurrent_layers().checked_mul(layer).filter(|n| *n > 0 && *n < 1 << 58).map(StatesShape)
    }

    /// Bytes of device memory that a sequence takes for them, in both places.
    pub fn bytes(self) -> u64 {
        2 * padded(4 * self.0 as u64)
    }
}

/// See the [module](super).
pub struct States {
    places: [Buffer<f32>; 2],
    /// The place that holds the states behind the first `length` positions.
    current: usize,
    length: usize,
    /// Positions that the other place holds the states behind, if it is known.
    before: Option<usize>,
    /// Steps that were launched and not committed.
    ahead: usize,
}

impl States {
    /// Behind no position.
    pub fn new(device: &Device, shape: StatesShape) -> Result<States, Error> {
        let places = [device.alloc(shape.0)?, device.alloc(shape.0)?];
        Ok(States { places, current: 0, length: 0, before: None, ahead: 0 })
    }

    /// Positions that the states are behind.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The same states in memory of their own.
    pub fn copy(&self, device: &Device, stream: &Stream) -> Result<States, Error> {
        let from = &self.places[self.current];
        let mut copy = States { length: self.length, ..States::new(device, StatesShape(from.len()))? };
        if self.length > 0 {
            stream.copy(from, &mut copy.places[0])?;
        }
        Ok(copy)
    }

    /// The bits of the states; of no position none.
    pub fn read(&self, stream: &Stream) -> Result<Vec<u32>, Error> {
        if self.length == 0 {
            return Ok(Vec::new());
        }
        Ok(stream.read(&self.places[self.current])?.into_iter().map(f32::to_bits).collect())
    }

    /// Takes states that were [read](Self::read), of so many positions.
    pub fn write(&mut self, length: usize, bits: &[u32], stream: &Stream) -> Result<(), Error> {
        (self.current, self.length, self.before, self.ahead) = (0, 0, None, 0);
        if length > 0 && bits.len() == self.places[0].len() {
            let values: Vec<f32> = bits.iter().map(|b| f32::from_bits(*b)).collect();
            stream.write(&mut self.places[0], &values)?;
            self.length = length;
        }
        Ok(())
    }

    /// The places of the next step, which is launched behind those that were.
    pub fn next(&mut self, columns: Run) -> Run {
        let from = (self.current + self.ahead) % 2;
        let flags = if self.length == 0 && self.ahead == 0 { FRESH } else { 0 };
        self.ahead += 1;
        let address = |place: usize| self.places.get(place).map_or(DeviceAddress::NULL, |p| p.address());
        Run { from: address(from), to: address(1 - from), flags, ..columns }
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
