//! The arguments of layers in one launch, listed once.

use super::{LayerWeights, Sizes};
use crate::{layer::Layer, state::Column};
use warpsmith_device::prelude::*;

/// `arguments! { callback (args) }` calls `callback! { (args) NAME: (TYPE), … }` with the arguments of every entry point.
macro_rules! arguments {
    ($callback:ident $args:tt) => {
        $callback! { $args
            layers: (In<LayerWeights>),
            next_weights: (In<U32x4>),
            cos: (In<f32>),
            sin: (In<f32>),
            columns: (In<Column>),
            x: (InOut<f32>),
            y: (InOut<f32>),
            scaled: (InOut<f32>),
            sums: (InOut<f32>),
            qkv: (InOut<f32>),
            attended: (InOut<f32>),
            inner: (InOut<f32>),
            partials: (InOut<f32>),
            counters: (InOut<u32>),
            quantized_scaled: (InOut<U32x4>),
            quantized_inner: (InOut<U32x4>),
            group_counters: (InOut<u32>),
            barrier: (InOut<u32>),
            layer: (Layer),
            sizes: (Sizes),
        }
    };
}
arguments! { define (Arguments Given Seen) }
