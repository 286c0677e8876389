//! A launch by the formats of its weights.

use super::*;
use crate::attention::step::splits;
use crate::gemv::{QuantFormat, QuantizedProduct, half, int8, parts_with, planes};
use crate::{layer::Layer, state::Column};

macro_rules! instances {
    (() $($kind:ident: $blocks:literal, $name:ident $Name:ident $shared:ident;)*) => {
        /// An entry point, by the activations that it multiplies with.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Instance { $(
            #[doc = concat!("The kernel `", stringify!($name), "`.")]
            $Name,
        )* }

        impl Instance {
            /// Every instance.
            pub const ALL: &[Instance] = &[$(Instance::$Name,)*];

            /// The kernel.
            #[must_use]
            pub fn meta(self) -> &'static KernelMeta {
                match self { $(Instance::$Name => $Name::META,)* }
            }

            /// The number of its activations.
            fn quant(self) -> u32 {
                match self { $(Instance::$Name => quant_of!($kind),)* }
            }

            /// # Safety
            /// As for [`Launcher::launch_unchecked`].
            unsafe fn launch<L: Launcher>(self, on: &mut L, given: arguments::Given<'_>) -> Result<(), L::Error> {
                // SAFETY: the caller's promise.
                match self { $(Instance::$Name => unsafe { on.launch_unchecked($Name::from(given)) },)* }
            }
        }
    };
}
kinds! { instances () }

impl Instance {
    /// The instance for activations, f32 or quantized ones, of weights that have a product with them.
    #[must_use]
    pub fn of(format: Format, activations: Option<QuantFormat>) -> Option<Instance> {
        Instance::ALL.iter().copied().find(|i| i.quant_format() == activations && i.takes(format))
    }

    /// Whether weights of a format may be among those of a layer.
    #[must_use]
    pub fn takes(self, format: Format) -> bool {
        let Some(quant_format) = self.quant_format() else { return true };
        let product = QuantizedProduct::of(format, quant_format.activations());
        product.is_some_and(|product| product.quant_format() == quant_format)
    }

    /// The activations that it multiplies with; `None`: f32.
    #[must_use]
    pub fn quant_format(self) -> Option<QuantFormat> {
        QuantFormat::numbered(self.quant())
    }

    /// Whether a kernel is a product that does in a launch of its own what a phase does, with quantized activations.
    #[must_use]
    pub fn replaces(self, kernel: &str) -> bool {
        let Some(activations) = self.quant_format().map(QuantFormat::activations) else { return false };
        let formats = Format::ALL.into_iter().filter(|f| self.takes(*f));
        formats.filter_map(|f| QuantizedProduct::of(f, activations)).any(|product| product.kernel().name == kernel)
    }

    /// A product with so many rows of outputs, of gates and ups if `swiglu`, as a launch of what blocks take in a phase one after the other;
    /// `None`: with f32, for which that is the launch of its own.
    #[must_use]
    pub fn blocks_of_phase(self, rows: u32, swiglu: bool) -> Option<Geometry> {
        let format = self.quant_format()?;
        let threads = match format {
            of if of.is_planes() => planes::THREADS,
            of if of.is_half() => half::THREADS,
            _ => int8::THREADS,
        };
        Some(Geometry::blocks(parts_with(Some(format), rows, 0, swiglu)).block([threads, 1, 1]))
    }

    /// The weights of a layer as an element of the argument `layers`. The buffers have to live as long as anything is launched
    /// with it.
    ///
    /// # Errors
    /// Weights that the kernel does not take.
    pub fn weights(self, parts: &LayerParts<'_>, layer: &Layer, sizes: &Sizes) -> Result<LayerWeights, ContractError> {
        contract::weights(self, parts, layer, sizes)
    }

    /// Most blocks that any phase has work for: a launch of more has idle ones.
    #[must_use]
    pub fn widest(self, l: &Layer, s: &Sizes) -> u32 {
        let attention = l.kv_heads * splits(l.kv_heads.max(1));
        // Of half as many threads, a block takes two at a time; where there are blocks enough, only one.
        let of = |rows, cols, swiglu| parts_with(self.quant_format(), rows, cols, swiglu);
        let (qkv, output) = (of(l.qkv(), s.hidden, false), of(s.hidden, l.q_heads * l.head_dim, false));
        let (gate_up, down) = (of(s.feed_forward, s.hidden, true), of(s.hidden, s.feed_forward, false));
        [qkv, attention, output, gate_up, down].into_iter().max().unwrap_or(1)
    }
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
    /// A bias of each row, of queries, keys and values.
    pub bias: Option<&'a DeviceSlice<f32>>,
}

impl Matrix<'_> {
    pub(super) fn vectors(&self) -> u32 {
        u32::try_from(self.records.len() as u64 / u64::from(self.rows.max(1))).unwrap_or(u32::MAX)
    }
}

/// The weights of a layer.
pub struct LayerParts<'a> {
    /// To queries, keys and values, in up to [`PARTS`] parts one below the other.
    pub qkv: &'a [Matrix<'a>],
    /// Of attention's output; to gates and ups; back to the residual stream.
    pub matrices: [Matrix<'a>; 3],
    /// Weight of the norm before gate and up.
    pub ffn_norm: &'a DeviceSlice<f32>,
    /// Weight of the norm behind the layer.
    pub next_norm: &'a DeviceSlice<f32>,
    /// Weight of the norm of query heads.
    pub q_weight: &'a DeviceSlice<f32>,
    /// Weight of the norm of key heads.
    pub k_weight: &'a DeviceSlice<f32>,
}

/// Quantized activations of a launch.
pub struct Quantized<'a> {
    /// Those of `scaled`, before and after the launch.
    pub scaled: &'a mut DeviceSlice<U32x4>,
    /// Those of attention and of SwiGLU.
    pub inner: &'a mut DeviceSlice<U32x4>,
    /// As for [`OutputQuantization`](crate::gemv::OutputQuantization).
    pub group_counters: &'a mut DeviceSlice<u32>,
}

/// Layers, with the arguments of the [module's](super) table.
#[must_use = "layers are nothing before they are launched"]
pub struct PersistentLayers<'a> {
    /// The entry point.
    pub instance: Instance,
    /// Their weights, as [`Instance::weights`] gave them.
    pub layers: &'a DeviceSlice<LayerWeights>,
    /// What is read after this launch: `hidden` columns of any format.
    pub next: Option<Matrix<'a>>,
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
    /// Where the instance's activations are quantized.
    pub quantized: Option<Quantized<'a>>,
    /// The word that blocks wait for one another by.
    pub barrier: &'a mut DeviceSlice<u32>,
    /// Sizes of the heads, and the number of the first layer.
    pub layer: Layer,
    /// `hidden`, `feed_forward`, `parts`, `blocks` and `quantize_last`; the others follow from the rest.
    pub sizes: Sizes,
}

impl PersistentLayers<'_> {
    /// Parts of the sum of squares that `sums` has after the launch.
    #[must_use]
    pub fn parts(&self) -> u32 {
        parts_with(self.instance.quant_format(), self.sizes.hidden, self.sizes.feed_forward, false)
    }

    /// Launches them over a cache of f16.
    ///
    /// # Errors
    /// What the launch fails with.
    ///
    /// # Safety
    /// As for [`Launcher::launch_unchecked`], of the cache that the column leads to and of the weights that `layers` do.
    pub unsafe fn launch<L: Launcher>(self, on: &mut L) -> Result<(), L::Error> {
        let sizes = Sizes {
            layers: u32::try_from(self.layers.len()).unwrap_or(u32::MAX),
            next_rows: self.next.map_or(0, |m| m.rows),
            next_vectors: self.next.map_or(0, |m| m.vectors()),
            ..self.sizes
        };
        let (quantized_scaled, quantized_inner, group_counters) = match self.quantized {
            Some(Quantized { scaled, inner, group_counters }) => (scaled, inner, group_counters),
            None => (DeviceSlice::empty_mut(), DeviceSlice::empty_mut(), DeviceSlice::empty_mut()),
        };
        let given = arguments::Given {
            layers: self.layers,
            next_weights: self.next.map_or(DeviceSlice::empty(), |m| m.records),
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
            quantized_scaled,
            quantized_inner,
            group_counters,
            barrier: self.barrier,
            layer: self.layer,
            sizes,
        };
        // SAFETY: the caller's promise.
        unsafe { self.instance.launch(on, given) }
    }
}
