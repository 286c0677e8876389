//! The caches of one sequence on the devices of its model, each with the key heads that its device has.

use super::kv::{CacheShape, KvCache, Planes};
use super::{DecodeError, KvType, Model};
use gpu_kernels::state::Column;

/// A cache on each device.
pub(super) struct OwnCache {
    lead: KvCache,
    others: Vec<KvCache>,
}

impl OwnCache {
    pub fn new(model: &Model, capacity: usize, kind: KvType) -> Result<OwnCache, DecodeError> {
        let shape = CacheShape::new(model.share(), capacity);
        let mut caches = model.devices().map(|device| KvCache::new(device, shape, kind));
        let lead = caches.next().unwrap_or_else(|| KvCache::new(model.device(), shape, kind))?;
        Ok(OwnCache { lead, others: caches.collect::<Result<_, _>>()? })
    }

    fn all(&self) -> impl Iterator<Item = &KvCache> {
        std::iter::once(&self.lead).chain(&self.others)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut KvCache> {
        std::iter::once(&mut self.lead).chain(&mut self.others)
    }

    /// Positions that there is room for.
    pub fn capacity(&self) -> usize {
        self.lead.shape.capacity
    }

    /// Caches of another capacity with the first `length` positions of these.
    pub fn copy(&self, model: &Model, capacity: usize, kind: KvType, length: usize) -> Result<OwnCache, DecodeError> {
        let mut copy = OwnCache::new(model, capacity, kind)?;
        for ((to, from), rank) in copy.all_mut().zip(self.all()).zip(model.all_ranks()) {
            to.copy_from(from, length, &rank.stream)?;
        }
        for rank in model.all_ranks() {
            rank.stream.synchronize()?;
        }
        Ok(copy)
    }

    /// What a kernel of one of the devices is told of a token at `position`.
    pub fn column(&self, rank: usize, token: u32, position: usize) -> Column {
        let cache = rank.checked_sub(1).and_then(|other| self.others.get(other)).unwrap_or(&self.lead);
        cache.column(token, position)
    }

    /// The first `length` positions of every plane, of all key heads of the model.
    pub fn read(&self, model: &Model, length: usize) -> Result<Vec<Vec<u8>>, DecodeError> {
        let mut parts = Vec::with_capacity(model.ranks());
        for (cache, rank) in self.all().zip(model.all_ranks()) {
            parts.push(cache.read(length, &rank.stream)?);
        }
        Ok(Planes::of(model).joined(parts))
    }

    /// The inverse of `read`. The lengths were compared before.
    pub fn write(&mut self, model: &Model, length: usize, planes: &[Vec<u8>]) -> Result<(), DecodeError> {
        let shares = Planes::of(model);
        for (number, (cache, rank)) in self.all_mut().zip(model.all_ranks()).enumerate() {
            cache.write(length, &shares.share(number, planes), &rank.stream)?;
        }
        Ok(())
    }
}
