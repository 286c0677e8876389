//! The entry points: one a type of cache, all of one signature.

#[cfg(not(target_arch = "nvptx64"))]
use super::contract::{Buffers, check};
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use super::frame;
use super::{Sizes, THREADS};
use crate::{layer::Layer, state::Column};
use warpsmith_device::prelude::*;

macro_rules! entries {
    ($( $(#[$doc:meta])* $T:ty: $name:ident $Name:ident $shared:ident;)*) => { $(
        $(#[$doc])*
        #[kernel(block = THREADS, min_blocks = 2, family = "layer")]
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name(
            qkv_weights: In<U32x4>,
            output_weights: In<U32x4>,
            gate_up_weights: In<U32x4>,
            down_weights: In<U32x4>,
            next_weights: In<U32x4>,
            bias: In<f32>,
            ffn_norm: In<f32>,
            next_norm: In<f32>,
            q_weight: In<f32>,
            k_weight: In<f32>,
            cos: In<f32>,
            sin: In<f32>,
            columns: In<Column>,
            x: InOut<f32>,
            y: InOut<f32>,
            scaled: InOut<f32>,
            sums: InOut<f32>,
            qkv: InOut<f32>,
            attended: InOut<f32>,
            inner: InOut<f32>,
            partials: InOut<f32>,
            counters: InOut<u32>,
            barrier: InOut<u32>,
            layer: Layer,
            sizes: Sizes,
        ) {
            let shared = shared_array!($shared: [F32x4; frame::SHARED / size_of::<F32x4>()]);
            let args = frame::Args {
                weights: [qkv_weights, output_weights, gate_up_weights, down_weights],
                next_weights,
                bias,
                ffn_norm,
                next_norm,
                head_norms: (q_weight, k_weight),
                tables: (cos, sin),
                columns,
                x,
                y,
                scaled,
                sums,
                qkv,
                attended,
                inner,
                partials,
                counters,
                barrier,
                layer,
                sizes,
            };
            frame::layer::<$T>(args, shared);
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                Geometry::blocks(self.sizes.blocks).cooperative()
            }
            fn check(&self) -> Result<(), ContractError> {
                check(Self::META, &self.layer, &self.sizes, &Buffers {
                    weights: [self.qkv_weights, self.output_weights, self.gate_up_weights, self.down_weights],
                    next_weights: self.next_weights,
                    bias: self.bias,
                    norms: [self.ffn_norm, self.next_norm],
                    tables: [self.q_weight, self.k_weight, self.cos, self.sin],
                    columns: self.columns,
                    residual: [self.x, self.y],
                    scaled: self.scaled,
                    sums: self.sums,
                    qkv: self.qkv,
                    attended: self.attended,
                    inner: self.inner,
                    partials: self.partials,
                    counters: self.counters,
                    barrier: self.barrier,
                })
            }
        }
    )* };
}

entries! {
    /// A layer of a decoding step, for one column over f16 caches.
    f16: layer_f16 LayerF16 LAYER_F16;
}
