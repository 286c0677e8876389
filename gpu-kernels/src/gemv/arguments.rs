//! The arguments of products, each listed once: entry points, launches and contracts are made from these lists.

#[cfg(not(target_arch = "nvptx64"))]
use warpsmith_device::DeviceSlice;
use warpsmith_device::prelude::*;

/// `arguments! { f32 callback (args) }` calls `callback! { (args) NAME: (TYPE), … }` with the arguments of a product whose
/// activations are f32; `arguments! { quantized X callback (args) }` with those of one whose activations are vectors `X` of quantized ones.
macro_rules! arguments {
    (f32 $callback:ident $args:tt) => {
        $callback! { $args
            weights: (In<U32x4>),
            x: (Awaited<f32>),
            add: (Awaited<f32>),
            sums: (Awaited<f32>),
            chosen: (Awaited<u32>),
            bias: (In<f32>),
            next_weight: (In<f32>),
            y: (Out<f32>),
            scaled: (Out<f32>),
            next_sums: (Out<f32>),
            rows: (u32),
            cols: (u32),
            columns: (u32),
            x_stride: (u32),
            y_stride: (u32),
            add_stride: (u32),
            parts: (u32),
            block_units: (u32),
            matrices: (u32),
            sharing: (u32),
            flags: (u32),
            eps: (f32),
        }
    };
    (quantized $X:ident $callback:ident $args:tt) => {
        $callback! { $args
            weights: (In<U32x4>),
            x: (Awaited<$X>),
            add: (Awaited<f32>),
            sums: (Awaited<f32>),
            chosen: (Awaited<u32>),
            bias: (In<f32>),
            next_weight: (In<f32>),
            y: (InOut<f32>),
            scaled: (InOut<f32>),
            next_sums: (Out<f32>),
            quantized: (Out<U32x4>),
            group_counters: (InOut<u32>),
            rows: (u32),
            cols: (u32),
            columns: (u32),
            y_stride: (u32),
            add_stride: (u32),
            parts: (u32),
            block_units: (u32),
            matrices: (u32),
            sharing: (u32),
            flags: (u32),
            quant_format: (u32),
            eps: (f32),
        }
    };
}

arguments! { f32 define (Arguments Given Seen) }
arguments! { quantized X define (QuantizedArguments QuantizedGiven QuantizedSeen X) }
