//! The arguments of embeddings, listed once.

use crate::state::Column;
use warpsmith_device::prelude::*;

/// `arguments! { callback (args) }` calls `callback! { (args) NAME: (TYPE), … }` with the arguments of every entry point.
macro_rules! arguments {
    ($callback:ident $args:tt) => {
        $callback! { $args
            table: (In<U32x4>),
            columns: (In<Column>),
            chosen: (In<u32>),
            next_weight: (In<f32>),
            y: (Out<f32>),
            half: (Out<f16>),
            scaled: (InOut<f32>),
            next_sums: (Out<f32>),
            quantized: (Out<U32x4>),
            vocab: (u32),
            cols: (u32),
            stride: (u32),
            block_units: (u32),
            choices: (u32),
            quant_format: (u32),
            flags: (u32),
        }
    };
}
arguments! { define (Arguments Given Seen) }
