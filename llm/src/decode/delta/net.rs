//! A model's delta nets in the kernels' words.

use crate::model::Config;
use gpu_kernels::delta::Net;

/// What kernels are told of a model's delta nets; the number is that of the layer among them.
pub fn net_of(c: &Config, number: usize) -> Option<Net> {
    let delta = c.delta.as_ref()?;
    Some(Net {
        layer: number as u32,
        key_heads: delta.key_heads as u32,
        value_heads: delta.value_heads as u32,
        dim: delta.dim as u32,
        eps: c.eps,
        together: delta.together as u32,
    })
}
