//! The arguments of a layer in one launch, listed once.

use super::Sizes;
use crate::{layer::Layer, state::Column};
use warpsmith_device::prelude::*;

/// `arguments! { callback (args) }` calls `callback! { (args) NAME: (TYPE), … }` with the arguments of every entry point.
macro_rules! arguments {
    ($callback:ident $args:tt) => {
        $callback! { $args
            qkv_weights: (In<U32x4>),
            output_weights: (In<U32x4>),
            gate_up_weights: (In<U32x4>),
            down_weights: (In<U32x4>),
            next_weights: (In<U32x4>),
            bias: (In<f32>),
            ffn_norm: (In<f32>),
            next_norm: (In<f32>),
            q_weight: (In<f32>),
            k_weight: (In<f32>),
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
            barrier: (InOut<u32>),
            layer: (Layer),
            sizes: (Sizes),
        }
    };
}
arguments! { define (Arguments Given Seen) }
