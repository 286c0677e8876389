//! A launch by the formats of its weights.

use super::*;
use crate::attention::step::splits;
use crate::format::Format;
use crate::gemv::parts;
use crate::{layer::Layer, state::Column};

/// Most blocks that any phase has work for: a launch of more has idle ones.
#[must_use]
pub fn widest(l: &Layer, s: &Sizes) -> u32 {
    let q = l.q_heads * l.head_dim;
    let attention = l.kv_heads * splits(l.kv_heads.max(1));
    let [qkv, output] = [(l.qkv(), s.hidden), (s.hidden, q)].map(|(rows, cols)| parts(rows, cols, false));
    let (gate_up, down) = (parts(s.feed_forward, s.hidden, true), parts(s.hidden, s.feed_forward, false));
    [qkv, attention, output, gate_up, down].into_iter().max().unwrap_or(1)
}

/// A matrix as it is on the device.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    /// The format of its weights.
    pub format: Format,
    /// How many rows it has.
    pub rows: u32,
    /// Their records.
    pub records: &'a DeviceSlice<U32x4>,
}

impl Matrix<'_> {
    fn vectors(&self) -> u32 {
        u32::try_from(self.records.len() as u64 / u64::from(self.rows.max(1))).unwrap_or(u32::MAX)
    }
}

/// A layer, with the arguments of the [module's](super) table.
#[must_use = "a layer is nothing before it is launched"]
pub struct PersistentLayer<'a> {
    /// To queries, keys and values; of attention's output; to gates and ups; back to the residual stream.
    pub matrices: [Matrix<'a>; 4],
    /// What is read after this launch: `hidden` columns of any format.
    pub next: Option<Matrix<'a>>,
    /// The bias of queries, keys and values.
    pub bias: Option<&'a DeviceSlice<f32>>,
    /// Weight of the norm before gate and up.
    pub ffn_norm: &'a DeviceSlice<f32>,
    /// Weight of the norm behind the layer.
    pub next_norm: &'a DeviceSlice<f32>,
    /// Weight of the norm of query heads.
    pub q_weight: &'a DeviceSlice<f32>,
    /// Weight of the norm of key heads.
    pub k_weight: &'a DeviceSlice<f32>,
    /// Cosines of all positions.
    pub cos: &'a DeviceSlice<f32>,
    /// Sines of all positions.
    pub sin: &'a DeviceSlice<f32>,
    /// The column.
    pub columns: &'a DeviceSlice<Column>,
    /// The residual stream.
    pub x: &'a mut DeviceSlice<f32>,
    /// The residual stream between attention and feed-forward.
    pub y: &'a mut DeviceSlice<f32>,
    /// The residual stream times the weight of the norm behind it.
    pub scaled: &'a mut DeviceSlice<f32>,
    /// Parts of its sum of squares.
    pub sums: &'a mut DeviceSlice<f32>,
    /// All heads.
    pub qkv: &'a mut DeviceSlice<f32>,
    /// What attention gives.
    pub attended: &'a mut DeviceSlice<f32>,
    /// What SwiGLU gives.
    pub inner: &'a mut DeviceSlice<f32>,
    /// Attention's partial results.
    pub partials: &'a mut DeviceSlice<f32>,
    /// Attention's counters.
    pub counters: &'a mut DeviceSlice<u32>,
    /// The word that blocks wait for one another by.
    pub barrier: &'a mut DeviceSlice<u32>,
    /// Sizes of the heads.
    pub layer: Layer,
    /// `hidden`, `feed_forward`, `parts` and `blocks`; the others follow from the rest.
    pub sizes: Sizes,
}

impl PersistentLayer<'_> {
    /// Parts of the sum of squares that `sums` has after the launch.
    #[must_use]
    pub fn parts(&self) -> u32 {
        parts(self.sizes.hidden, self.sizes.feed_forward, false)
    }

    /// Launches it over a cache of f16.
    ///
    /// # Errors
    /// What the launch fails with: weights whose format has no [`decoder`] break the contract.
    ///
    /// # Safety
    /// As for [`Launcher::launch_unchecked`], of the cache that the column leads to.
    pub unsafe fn launch<L: Launcher>(self, on: &mut L) -> Result<(), L::Error> {
        let bias = self.bias.unwrap_or(DeviceSlice::empty());
        let matrices = self.matrices.map(|m| Records {
            decoder: decoder(m.format).unwrap_or(u32::MAX),
            block_units: m.format.block_units(),
            vectors: m.vectors(),
        });
        let sizes = Sizes {
            bias: u32::from(self.bias.is_some()),
            next_rows: self.next.map_or(0, |m| m.rows),
            next_vectors: self.next.map_or(0, |m| m.vectors()),
            matrices,
            ..self.sizes
        };
        let [qkv_weights, output_weights, gate_up_weights, down_weights] = self.matrices.map(|m| m.records);
        let layer = LayerF16 {
            qkv_weights,
            output_weights,
            gate_up_weights,
            down_weights,
            next_weights: self.next.map_or(DeviceSlice::empty(), |m| m.records),
            bias,
            ffn_norm: self.ffn_norm,
            next_norm: self.next_norm,
            q_weight: self.q_weight,
            k_weight: self.k_weight,
            cos: self.cos,
            sin: self.sin,
            columns: self.columns,
            x: self.x,
            y: self.y,
            scaled: self.scaled,
            sums: self.sums,
            qkv: self.qkv,
            attended: self.attended,
            inner: self.inner,
            partials: self.partials,
            counters: self.counters,
            barrier: self.barrier,
            layer: self.layer,
            sizes,
        };
        // SAFETY: the caller's promise.
        unsafe { on.launch_unchecked(layer) }
    }
}
