//! Cosines and sines of positions, for each way in which layers of a model rotate.

use super::Model;
use crate::model::{Config, Rope};
use gpu_kernels::rope;
use warpsmith_device::DeviceSlice;
use warpsmith_runtime::{Buffer, Error, Stream};

/// The tables of one way to rotate.
struct Tables {
    cos: Buffer<f32>,
    sin: Buffer<f32>,
}

/// The tables of all layers.
pub(super) struct RopeTables {
    /// Of [`Config::rope`].
    global: Tables,
    /// Of layers with a window, where these rotate otherwise.
    local: Option<Tables>,
    /// Positions that they have.
    pub context: u32,
}

/// The ways in which layers rotate.
fn ropes(c: &Config) -> impl Iterator<Item = &Rope> {
    std::iter::once(&c.rope).chain(&c.kinds.local_rope)
}

impl Tables {
    fn new(stream: &Stream, rope: &Rope, freqs: Option<&[f32]>, positions: usize) -> Result<Tables, Error> {
        let (base, scale) = (f64::from(rope.base), f64::from(rope.scale));
        let yarn = rope.yarn.map(|y| rope::Yarn {
            original_context: y.original_context.into(),
            ext_factor: y.ext_factor.into(),
            attn_factor: y.attn_factor.into(),
            beta_fast: y.beta_fast.into(),
            beta_slow: y.beta_slow.into(),
        });
        let tables = rope::yarn_tables(positions, rope.dims, base, freqs, scale, yarn.as_ref());
        Ok(Tables { cos: stream.upload(&tables.cos)?, sin: stream.upload(&tables.sin)? })
    }
}

impl RopeTables {
    /// Bytes of device memory that tables of so many positions take; `None`: more than a number holds.
    pub fn bytes(c: &Config, positions: usize) -> Option<u64> {
        ropes(c).try_fold(0u64, |all, rope| {
            let bytes = (positions as u64).checked_mul(rope.dims as u64 / 2)?.checked_mul(4)?;
            all.checked_add(bytes.max(1).checked_next_multiple_of(512)?.checked_mul(2)?)
        })
    }

    pub fn new(stream: &Stream, model: &Model, positions: usize) -> Result<RopeTables, Error> {
        let c = model.config();
        // Factors of frequencies are those of the one rotation that most models have.
        let global = Tables::new(stream, &c.rope, model.file().rope_freqs(), positions)?;
        let local = c.kinds.local_rope.as_ref().map(|rope| Tables::new(stream, rope, None, positions)).transpose()?;
        Ok(RopeTables { global, local, context: positions as u32 })
    }

    /// Cosines and sines of a layer; empty ones where it does not rotate.
    pub fn of(&self, c: &Config, layer: usize) -> (&DeviceSlice<f32>, &DeviceSlice<f32>) {
        let tables = match (c.rope_of(layer), &self.local) {
            (None, _) => return (DeviceSlice::empty(), DeviceSlice::empty()),
            (Some(rope), Some(local)) if c.kinds.local_rope.as_ref() == Some(rope) => local,
            (Some(_), _) => &self.global,
        };
        (&tables.cos, &tables.sin)
    }

    /// A number that no other tables have or will have.
    pub fn id(&self) -> u64 {
        self.global.cos.id()
    }
}
