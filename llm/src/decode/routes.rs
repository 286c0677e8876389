//! Which experts columns have, and what a mixture of experts works in beside a workspace's other buffers.

use super::memory::Memory;
use super::stack::Stack;
use crate::model::{Config, Experts};
use gpu_kernels::experts::group;
use gpu_kernels::gemv::Gemv;
use warpsmith_device::DeviceSlice;
use warpsmith_runtime::{Error, Stream};

/// What a workspace has for experts, of each column.
pub(super) struct ExpertBuffers<M: Memory = Stream> {
    pub of: Experts,
    /// The router's products, and from a column of them to the next.
    pub logits: M::Buffer<f32>,
    pub logits_stride: usize,
    /// Which experts the columns have in every layer, and from a layer of them to the next.
    pub chosen: M::Buffer<u32>,
    pub chosen_stride: usize,
    /// The columns of each expert, where they are many.
    pub group: M::Buffer<u32>,
    /// What each counts for.
    pub weights: M::Buffer<f32>,
    /// What each gives, and behind all of these what the shared one does.
    pub outputs: M::Buffer<f32>,
}

impl<M: Memory> ExpertBuffers<M> {
    /// For `columns` columns, and `hidden` elements from an output to the next; `None` for a model without experts.
    pub fn new(memory: &M, c: &Config, hidden: usize, columns: usize) -> Result<Option<Self>, M::Error> {
        let Some(of) = c.experts else { return Ok(None) };
        let (logits_stride, given) = (of.routed().next_multiple_of(4), of.given());
        Ok(Some(ExpertBuffers {
            of,
            logits: memory.buffer(logits_stride, columns)?,
            logits_stride,
            chosen: memory.buffer(of.used * c.layers, columns)?,
            chosen_stride: of.used * columns,
            group: memory.buffer(group_len(&of, columns), 1)?,
            weights: memory.buffer(given, columns)?,
            outputs: memory.buffer(given * hidden, columns)?,
        }))
    }
}

/// Whose matrices columns are multiplied with.
#[derive(Clone, Copy)]
pub(super) struct Chosen<'a> {
    table: &'a DeviceSlice<u32>,
    group: Option<&'a DeviceSlice<u32>>,
    /// Columns that have one input.
    pub sharing: usize,
}

impl<'a> Chosen<'a> {
    /// The product with matrices of a stack; as it is, where none are chosen.
    pub fn of(chosen: Option<Chosen<'a>>, product: Gemv<'a>, stack: &Stack) -> Gemv<'a> {
        let Some(Chosen { table, group, sharing }) = chosen else { return product };
        product.experts(table, stack.matrices(), sharing as u32).group(group)
    }
}

impl ExpertBuffers {
    /// The experts of a layer, for products of what all of a column's read.
    pub fn of_layer(&self, layer: usize, grouped: bool) -> Chosen<'_> {
        Chosen { table: self.chosen(layer), group: grouped.then_some(&*self.group), sharing: self.of.used }
    }

    /// The experts of all columns in a layer.
    pub fn chosen(&self, layer: usize) -> &DeviceSlice<u32> {
        &self.chosen[layer * self.chosen_stride..]
    }

    /// The experts of a column of the last step.
    pub fn routes(&self, stream: &Stream, column: usize, layers: usize) -> Result<Routes, Error> {
        let used = self.of.used;
        let of_layer = |layer: usize| match self.of.layers.has(layer) {
            true => stream.read(&self.chosen(layer)[column * used..][..used]),
            false => Ok(Vec::new()),
        };
        (0..layers).map(of_layer).collect()
    }
}

/// The experts that a position was given to: for each layer, the one chosen first before the others; of a dense layer none. Of a dense model
/// nothing.
pub type Routes = Vec<Vec<u32>>;

/// Length of the table of a group of so many columns, each of which has its experts.
fn group_len(of: &Experts, columns: usize) -> usize {
    let outputs = of.used * columns;
    3 * group::tiles(outputs as u32, of.count as u32) as usize + outputs
}
