//! The cache of keys and values of one sequence: contiguous, one owner.

use super::weights::padded;
use super::{DecodeError, Model};
use crate::model::Config;
use gpu_kernels::kv::KvType;
use gpu_kernels::state::Column;
use std::ops::Range;
use warpsmith_device::DeviceAddress;
use warpsmith_runtime::{Buffer, Device, Error, Stream};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CacheShape {
    pub layers: usize,
    pub kv_heads: usize,
    pub capacity: usize,
    pub head_dim: usize,
}

impl CacheShape {
    pub fn new(c: &Config, capacity: usize) -> CacheShape {
        CacheShape { layers: c.layers - c.recurrent_layers(), kv_heads: c.kv_heads, capacity, head_dim: c.head_dim }
    }

    /// Heads of all layers.
    pub fn heads(&self) -> usize {
        self.layers * self.kv_heads
    }

    /// Bytes of a row of keys, of values, and, where there are any, of their scales.
    pub fn row_bytes(&self, kind: KvType) -> Vec<usize> {
        let row = self.head_dim * kind.bytes();
        let scales = std::iter::repeat_n(kind.scale_bytes(), if kind.scale_bytes() > 0 { 2 } else { 0 });
        [row, row].into_iter().chain(scales).collect()
    }

    /// Bytes of keys and values on the device; `None` if that overflows.
    pub fn bytes(&self, kind: KvType) -> Option<u64> {
        let rows =
            [self.layers, self.kv_heads, self.capacity].iter().try_fold(1u64, |n, &f| n.checked_mul(f as u64))?;
        let small = |bytes: &u64| *bytes < 1 << 62;
        let codes = rows.checked_mul(self.head_dim as u64)?.checked_mul(kind.bytes() as u64).filter(small)?;
        let scales = rows.checked_mul(kind.scale_bytes() as u64).filter(small)?;
        let scales = if scales == 0 { 0 } else { padded(scales) };
        padded(codes).checked_add(scales)?.checked_mul(2)
    }
}

/// A buffer of rows, `[layer][kv_head][capacity]`, of `row` bytes each.
struct CachePlane {
    bytes: Buffer<u8>,
    row: usize,
    heads: usize,
    capacity: usize,
}

impl CachePlane {
    fn new(device: &Device, shape: CacheShape, row: usize) -> Result<CachePlane, Error> {
        let heads = shape.heads();
        Ok(CachePlane { bytes: device.alloc(heads * shape.capacity * row)?, row, heads, capacity: shape.capacity })
    }

    /// Where the first `length` positions of a head lie.
    fn place(&self, head: usize, length: usize) -> Range<usize> {
        let start = head * self.capacity * self.row;
        start..start + length * self.row
    }

    fn copy_from(&mut self, from: &CachePlane, length: usize, stream: &Stream) -> Result<(), Error> {
        for head in 0..self.heads {
            let place = self.place(head, length);
            stream.copy(&from.bytes[from.place(head, length)], &mut self.bytes[place])?;
        }
        Ok(())
    }

    fn read(&self, length: usize, stream: &Stream) -> Result<Vec<u8>, Error> {
        let mut out = Vec::with_capacity(self.heads * length * self.row);
        if length > 0 {
            for head in 0..self.heads {
                out.extend(stream.read(&self.bytes[self.place(head, length)])?);
            }
        }
        Ok(out)
    }

    fn write(&mut self, length: usize, bytes: &[u8], stream: &Stream) -> Result<(), Error> {
        if length > 0 {
            for (head, rows) in bytes.chunks_exact(length * self.row).enumerate().take(self.heads) {
                let place = self.place(head, length);
                stream.write(&mut self.bytes[place], rows)?;
            }
        }
        Ok(())
    }
}

/// The cache of one sequence: keys, values, and the scales of both where there are any.
pub(super) struct KvCache {
    pub shape: CacheShape,
    /// Keys, values, scales of keys, scales of values.
    planes: Vec<CachePlane>,
}

impl KvCache {
    pub fn new(device: &Device, shape: CacheShape, kind: KvType) -> Result<KvCache, Error> {
        let rows = shape.row_bytes(kind).into_iter();
        let planes = rows.map(|row| CachePlane::new(device, shape, row)).collect::<Result<_, _>>()?;
        Ok(KvCache { shape, planes })
    }

    /// What a kernel is told of a token at `position`.
    pub fn column(&self, token: u32, position: usize) -> Column {
        let address = |i: usize| self.planes.get(i).map_or(DeviceAddress::NULL, |p| p.bytes.address());
        // The capacity was checked to fit u32, and the position to be below it.
        Column::at(token, position as u32)
            .with_caches(self.shape.capacity as u32, address(0), address(1))
            .with_scales(address(2), address(3))
    }

    /// Copies the first `length` positions of a cache that differs in capacity alone.
    pub fn copy_from(&mut self, from: &KvCache, length: usize, stream: &Stream) -> Result<(), Error> {
        self.planes.iter_mut().zip(&from.planes).try_for_each(|(to, from)| to.copy_from(from, length, stream))
    }

    /// The first `length` positions of every plane.
    pub fn read(&self, length: usize, stream: &Stream) -> Result<Vec<Vec<u8>>, Error> {
        self.planes.iter().map(|p| p.read(length, stream)).collect()
    }

    /// The inverse of `read`. The lengths were compared before.
    pub fn write(&mut self, length: usize, planes: &[Vec<u8>], stream: &Stream) -> Result<(), Error> {
        self.planes.iter_mut().zip(planes).try_for_each(|(to, from)| to.write(length, from, stream))
    }
}

/// Which key heads of a model the devices have, in planes of whole heads.
#[derive(Clone, Copy)]
pub(super) struct Planes {
    layers: usize,
    /// Of the model, and of a device.
    heads: (usize, usize),
    ranks: usize,
}

impl Planes {
    pub fn of(model: &Model) -> Planes {
        let (share, ranks) = (model.share(), model.ranks());
        // Of other processes' heads nothing is here.
        let all = if ranks == 1 { share.kv_heads } else { model.config().kv_heads };
        Planes { layers: CacheShape::new(share, 1).layers, heads: (all, share.kv_heads), ranks }
    }

    /// The heads of a plane in memory, one behind the other, as `[layer][head]` of the model: where the devices' are of these.
    fn place(&self, rank: usize, layer: usize) -> usize {
        let (all, own) = self.heads;
        // Where there are fewer heads than devices, some have the same one.
        layer * all + (rank * all / self.ranks).min(all - own)
    }

    /// The planes of all devices as those of one that has all heads.
    pub fn joined(&self, mut parts: Vec<Vec<Vec<u8>>>) -> Vec<Vec<u8>> {
        if self.ranks == 1 {
            return parts.pop().unwrap_or_default();
        }
        let (all, own) = self.heads;
        let lengths: Vec<usize> = parts.first().map_or(Vec::new(), |planes| planes.iter().map(Vec::len).collect());
        let of_plane = |(plane, length): (usize, &usize)| {
            let head = length / (self.layers * own).max(1);
            let mut whole = vec![0; self.layers * all * head];
            for (rank, planes) in parts.iter().enumerate() {
                for (layer, heads) in planes[plane].chunks_exact((own * head).max(1)).enumerate() {
                    whole[self.place(rank, layer) * head..][..own * head].copy_from_slice(heads);
                }
            }
            whole
        };
        lengths.iter().enumerate().map(of_plane).collect()
    }

    /// The planes of a device.
    pub fn share(&self, rank: usize, planes: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let (all, own) = self.heads;
        let of_plane = |plane: &Vec<u8>| {
            let head = plane.len() / (self.layers * all).max(1);
            let heads = |layer| plane[self.place(rank, layer) * head..][..own * head].iter().copied();
            (0..self.layers).flat_map(heads).collect()
        };
        planes.iter().map(of_plane).collect()
    }
}

/// The cached positions of a sequence on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub(super) model: u64,
    pub(super) kind: KvType,
    /// What was fed, position by position.
    pub(super) tokens: Vec<u32>,
    pub(super) planes: Vec<Vec<u8>>,
    /// The bits of the states of layers that have such, and positions that they are behind.
    pub(super) states: (usize, Vec<u32>),
}

impl Snapshot {
    /// Number of positions.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The tokens that were fed.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// How the values are stored.
    pub fn kind(&self) -> KvType {
        self.kind
    }

    fn plane(&self, i: usize) -> &[u8] {
        self.planes.get(i).map_or(&[], Vec::as_slice)
    }

    /// Keys, `[layer][kv_head][position][head_dim]`, as little-endian bytes.
    pub fn keys(&self) -> &[u8] {
        self.plane(0)
    }

    /// Values, laid out as the keys are.
    pub fn values(&self) -> &[u8] {
        self.plane(1)
    }

    /// Of an int8 cache: the scales of the keys, f32 `[layer][kv_head][position]`, as little-endian bytes; else empty.
    pub fn key_scales(&self) -> &[u8] {
        self.plane(2)
    }

    /// Of an int8 cache: the scales of the values; else empty.
    pub fn value_scales(&self) -> &[u8] {
        self.plane(3)
    }

    /// Of layers that are [delta nets](crate::model::DeltaNets), the bits of their f32 states: of each the inputs of its convolution,
    /// `[3][channels]`, and a matrix for each head of values, `[value_heads][dim][dim]`. Of a model that several processes have divided,
    /// those of this one. Empty without such layers, and where a sequence was rolled back to where no state of it is.
    pub fn states(&self) -> &[u32] {
        &self.states.1
    }

    pub(super) fn check(&self, model: u64, capacity: usize, kind: KvType) -> Result<(), DecodeError> {
        let reason = if self.model != model {
            "it was taken from another model".to_owned()
        } else if self.kind != kind {
            format!("it holds {}, the cache {kind}", self.kind)
        } else if self.len() > capacity {
            format!("it has {} positions, the cache room for {capacity}", self.len())
        } else {
            return Ok(());
        };
        Err(DecodeError::Snapshot { reason })
    }
}
