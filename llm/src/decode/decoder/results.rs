//! What the last step has left beside tokens: logits and experts. Where processes have layers each, the last has the logits and each the
//! experts of its own layers, and they tell each other: all of them make the calls.

use super::Decoder;
use crate::decode::DecodeError;
use crate::decode::routes::Routes;
use crate::model::layers_of;
use warpsmith_collectives::{Collectives, Error as GroupError};
use warpsmith_runtime::Buffer;

impl Decoder {
    /// The logits of a sequence of the last step, by its place in it; 0 after a prompt. Where processes have layers each, all of them make
    /// the call.
    pub fn logits(&self, place: usize) -> Result<Vec<f32>, DecodeError> {
        self.logits_at(self.placed(place)?)
    }

    /// The experts that the position of these logits was given to, in every layer. Where processes have layers each, all of them make the
    /// call.
    pub fn experts(&self, place: usize) -> Result<Routes, DecodeError> {
        self.routes_of(self.placed(place)?)
    }

    fn placed(&self, place: usize) -> Result<usize, DecodeError> {
        self.logits.clone().nth(place).ok_or(DecodeError::NoLogits)
    }

    /// The logits at a place in the buffer.
    pub(super) fn logits_at(&self, place: usize) -> Result<Vec<f32>, DecodeError> {
        let stream = &self.lead.stream;
        match self.told_logits(place)? {
            Some(told) => Ok(stream.read(&told)?),
            None => Ok(stream.read(self.lead.buffers.logits_of(place))?),
        }
    }

    /// The same on the device, as the last of several stages has told all of them; nothing, where this process has them itself.
    pub(super) fn told_logits(&self, place: usize) -> Result<Option<Buffer<f32>>, DecodeError> {
        let Some(stage) = self.group.stage() else { return Ok(None) };
        let (stream, own) = (&self.lead.stream, self.lead.buffers.logits_of(place));
        let mut logits = stream.zeros::<f32>(own.len())?;
        if stage.is_last() {
            stream.copy(own, &mut logits)?;
        }
        self.of_all(stage.0.broadcast(stream, &mut logits, stage.0.ranks() - 1))?;
        self.of_all(stage.0.synchronize(stream))?;
        Ok(Some(logits))
    }

    fn of_all<T>(&self, result: Result<T, GroupError>) -> Result<T, DecodeError> {
        result.map_err(|error| match error {
            GroupError::Runtime(source) => self.of_rank(0, source),
            other => other.into(),
        })
    }

    /// The experts of the column whose logits are at a place in the buffer.
    pub(super) fn routes_of(&self, place: usize) -> Result<Routes, DecodeError> {
        let own = self.lead.buffers.routes_of(&self.lead.stream, self.before + place, self.model.share().layers)?;
        match (self.group.stage(), self.model.config().experts) {
            (Some(_), Some(experts)) if experts.used > 0 => self.told_routes(own, experts.used),
            _ => Ok(own),
        }
    }

    /// Those of all layers, of which this process has its own; so many in each that has experts.
    fn told_routes(&self, own: Routes, used: usize) -> Result<Routes, DecodeError> {
        let Some(stage) = self.group.stage() else { return Ok(own) };
        let (stream, layers) = (&self.lead.stream, self.model.config().layers);
        let (rank, ranks) = (stage.0.rank() as usize, stage.0.ranks() as usize);
        let mut words = vec![0.0f32; layers * used];
        for (to, experts) in words.chunks_mut(used).skip(layers_of(layers, rank, ranks).start).zip(&own) {
            // As they are: what is told is moved, and not computed with.
            to.iter_mut().zip(experts).for_each(|(to, expert)| *to = f32::from_bits(*expert));
        }
        let mut told = stream.upload(&words)?;
        for root in 0..ranks {
            let of = layers_of(layers, root, ranks);
            let part = &mut told[of.start * used..of.end * used];
            self.of_all(stage.0.broadcast(stream, part, root as u32))?;
        }
        self.of_all(stage.0.synchronize(stream))?;
        let words = stream.read(&told)?;
        let has = |layer: usize| self.model.config().experts.is_some_and(|e| e.layers.has(layer));
        let of_layer = |(layer, words): (usize, &[f32])| match has(layer) {
            true => words.iter().map(|word| word.to_bits()).collect(),
            false => Vec::new(),
        };
        Ok(words.chunks(used).enumerate().map(of_layer).collect())
    }
}
