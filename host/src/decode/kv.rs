//! The cache of keys and values: one owner, one contiguous buffer each.

use super::DecodeError;
use super::weights::padded;
use crate::model::Config;
use crate::{Buffer, Device, Error, Stream};
use gpu_kernels::state::Column;
use half::f16;
use std::ops::Range;
use warpsmith_device::{DeviceSlice, Element};

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvType {
    /// Rounded to binary16: half the memory, and what long contexts are read with.
    #[default]
    F16,
    /// As computed.
    F32,
}

impl KvType {
    /// Bytes of an element.
    pub fn bytes(self) -> u64 {
        match self {
            KvType::F16 => 2,
            KvType::F32 => 4,
        }
    }
}

impl std::fmt::Display for KvType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            KvType::F16 => "f16",
            KvType::F32 => "f32",
        })
    }
}

/// Keys and values of one element type, `[layer][kv_head, capacity, head_dim]` each.
pub(super) struct Caches<T> {
    k: Buffer<T>,
    v: Buffer<T>,
}

pub(super) enum Stored {
    F16(Caches<f16>),
    F32(Caches<f32>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub layers: usize,
    pub kv_heads: usize,
    pub capacity: usize,
    pub head_dim: usize,
}

impl Shape {
    pub fn new(c: &Config, capacity: usize) -> Shape {
        Shape { layers: c.layers, kv_heads: c.kv_heads, capacity, head_dim: c.head_dim }
    }

    /// Elements of one layer's keys.
    pub fn layer_len(&self) -> usize {
        self.kv_heads * self.capacity * self.head_dim
    }

    /// Bytes of keys and values on the device; `None` if that overflows.
    pub fn bytes(&self, kind: KvType) -> Option<u64> {
        let factors = [self.layers, self.kv_heads, self.capacity, self.head_dim];
        let elements = factors.iter().try_fold(1u64, |n, &f| n.checked_mul(f as u64))?;
        padded(elements.checked_mul(kind.bytes()).filter(|&n| n < 1 << 62)?).checked_mul(2)
    }

    /// Where the elements of the first `length` positions of a head lie.
    fn rows(&self, layer: usize, head: usize, length: usize) -> Range<usize> {
        let start = layer * self.layer_len() + head * self.capacity * self.head_dim;
        start..start + length * self.head_dim
    }

    fn heads(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let heads = self.kv_heads;
        (0..self.layers).flat_map(move |l| (0..heads).map(move |h| (l, h)))
    }
}

/// The cache of one sequence.
pub(super) struct KvCache {
    pub shape: Shape,
    pub stored: Stored,
}

impl KvCache {
    pub fn new(device: &Device, shape: Shape, kind: KvType) -> Result<KvCache, Error> {
        let len = shape.layers * shape.layer_len();
        let stored = match kind {
            KvType::F16 => Stored::F16(Caches { k: device.alloc(len)?, v: device.alloc(len)? }),
            KvType::F32 => Stored::F32(Caches { k: device.alloc(len)?, v: device.alloc(len)? }),
        };
        Ok(KvCache { shape, stored })
    }

    pub fn kind(&self) -> KvType {
        match self.stored {
            Stored::F16(_) => KvType::F16,
            Stored::F32(_) => KvType::F32,
        }
    }

    /// A number that no other cache has or will have.
    pub fn id(&self) -> u64 {
        match &self.stored {
            Stored::F16(c) => c.k.id(),
            Stored::F32(c) => c.k.id(),
        }
    }

    /// What a step that feeds `token` at `position` of this cache's sequence reads.
    pub fn column(&self, token: u32, position: u32) -> Column {
        let (k, v) = match &self.stored {
            Stored::F16(c) => (c.k.address(), c.v.address()),
            Stored::F32(c) => (c.k.address(), c.v.address()),
        };
        Column { token, position, capacity: self.shape.capacity as u32, k, v, ..Column::default() }
    }

    /// Copies the first `length` positions of a cache that differs in capacity alone.
    pub fn copy_from(&mut self, from: &KvCache, length: usize, stream: &Stream) -> Result<(), Error> {
        let (to_shape, from_shape) = (self.shape, from.shape);
        match (&mut self.stored, &from.stored) {
            (Stored::F16(to), Stored::F16(from)) => to.copy_from(to_shape, from, from_shape, length, stream),
            (Stored::F32(to), Stored::F32(from)) => to.copy_from(to_shape, from, from_shape, length, stream),
            // Types differ only if a caller mixes sequences, which none does.
            _ => Ok(()),
        }
    }

    /// The first `length` positions, `[layer][kv_head][position][head_dim]`, as little-endian bytes.
    pub fn read(&self, length: usize, stream: &Stream) -> Result<(Vec<u8>, Vec<u8>), Error> {
        match &self.stored {
            Stored::F16(c) => {
                Ok((c.read(&c.k, self.shape, length, stream)?, c.read(&c.v, self.shape, length, stream)?))
            }
            Stored::F32(c) => {
                Ok((c.read(&c.k, self.shape, length, stream)?, c.read(&c.v, self.shape, length, stream)?))
            }
        }
    }

    /// The inverse of `read`. The lengths were compared before.
    pub fn write(&mut self, length: usize, k: &[u8], v: &[u8], stream: &Stream) -> Result<(), Error> {
        let shape = self.shape;
        match &mut self.stored {
            Stored::F16(c) => {
                write(&mut c.k, shape, length, k, stream)?;
                write(&mut c.v, shape, length, v, stream)
            }
            Stored::F32(c) => {
                write(&mut c.k, shape, length, k, stream)?;
                write(&mut c.v, shape, length, v, stream)
            }
        }
    }
}

impl<T: Element> Caches<T> {
    /// Keys and values of one layer.
    pub fn layer(&mut self, layer: usize, shape: Shape) -> (&mut DeviceSlice<T>, &mut DeviceSlice<T>) {
        let place = layer * shape.layer_len()..(layer + 1) * shape.layer_len();
        (&mut self.k[place.clone()], &mut self.v[place])
    }

    fn copy_from(
        &mut self,
        to_shape: Shape,
        from: &Caches<T>,
        from_shape: Shape,
        length: usize,
        stream: &Stream,
    ) -> Result<(), Error> {
        for (layer, head) in to_shape.heads() {
            let (to, place) = (to_shape.rows(layer, head, length), from_shape.rows(layer, head, length));
            stream.copy(&from.k[place.clone()], &mut self.k[to.clone()])?;
            stream.copy(&from.v[place], &mut self.v[to])?;
        }
        Ok(())
    }

    fn read(&self, buffer: &Buffer<T>, shape: Shape, length: usize, stream: &Stream) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        if length > 0 {
            for (layer, head) in shape.heads() {
                let rows = stream.read(&buffer[shape.rows(layer, head, length)])?;
                out.extend_from_slice(bytemuck::cast_slice(&rows));
            }
        }
        Ok(out)
    }
}

fn write<T: Element>(
    buffer: &mut Buffer<T>,
    shape: Shape,
    length: usize,
    bytes: &[u8],
    stream: &Stream,
) -> Result<(), Error> {
    let row_len = length * shape.head_dim;
    let row_bytes = row_len * size_of::<T>();
    let mut rows: Vec<T> = vec![bytemuck::Zeroable::zeroed(); row_len];
    for ((layer, head), bytes) in shape.heads().zip(bytes.chunks_exact(row_bytes.max(1))) {
        bytemuck::cast_slice_mut(&mut rows).copy_from_slice(bytes);
        stream.write(&mut buffer[shape.rows(layer, head, length)], &rows)?;
    }
    Ok(())
}

/// The cached positions of a sequence on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub(super) model: u64,
    pub(super) kind: KvType,
    pub(super) length: usize,
    pub(super) k: Vec<u8>,
    pub(super) v: Vec<u8>,
}

impl Snapshot {
    /// Number of positions.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// How the values are stored.
    pub fn kind(&self) -> KvType {
        self.kind
    }

    /// Keys, `[layer][kv_head][position][head_dim]`, as little-endian bytes.
    pub fn keys(&self) -> &[u8] {
        &self.k
    }

    /// Values, laid out as the keys are.
    pub fn values(&self) -> &[u8] {
        &self.v
    }

    pub(super) fn check(&self, model: u64, shape: Shape, kind: KvType) -> Result<(), DecodeError> {
        let reason = if self.model != model {
            "it was taken from another model".to_owned()
        } else if self.kind != kind {
            format!("it holds {}, the cache {kind}", self.kind)
        } else if self.length > shape.capacity {
            format!("it has {} positions, the cache room for {}", self.length, shape.capacity)
        } else {
            return Ok(());
        };
        Err(DecodeError::Snapshot { reason })
    }
}
