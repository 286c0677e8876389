//! Matrices on the device, as products take them.

use gpu_kernels::format::Format;
use std::ops::Range;
use std::sync::Arc;
use warpsmith_device::{DeviceSlice, U32x4};
use warpsmith_runtime::Buffer;

/// The records of rows, or some of those that another stack has.
pub(super) struct Records {
    all: Arc<Buffer<U32x4>>,
    vectors: Range<usize>,
}

impl Records {
    /// All of a buffer.
    pub fn all(buffer: Buffer<U32x4>) -> Records {
        Records { vectors: 0..buffer.len(), all: Arc::new(buffer) }
    }
}

/// An order of columns, on the device.
pub(super) type ColumnOrder = Arc<Buffer<u32>>;

/// One matrix, or several of equal format and width stacked on each other.
pub(super) struct Stack {
    pub format: Format,
    pub cols: u32,
    /// Where its outputs go in the output of the whole projection.
    pub outputs: Range<usize>,
    /// So many such stacks lie one behind the other: one, or one for each expert.
    pub(super) matrices: u32,
    pub(super) records: Records,
    /// A bias of each output of every such stack, if there is one.
    pub(super) bias: Option<Buffer<f32>>,
    /// The order of its columns, where what it is multiplied with is gathered first.
    pub(super) columns: Option<ColumnOrder>,
}

impl Stack {
    pub fn records(&self) -> &DeviceSlice<U32x4> {
        &self.records.all[self.records.vectors.clone()]
    }

    /// Some of its rows as a matrix of their own, which takes no memory.
    pub fn part(&self, rows: Range<usize>) -> Stack {
        let of_row = self.records.vectors.len() / self.outputs.len().max(1);
        let vectors = rows.start * of_row..rows.end * of_row;
        let records = Records { all: self.records.all.clone(), vectors };
        let Stack { format, cols, matrices, ref columns, .. } = *self;
        Stack { format, cols, outputs: 0..rows.len(), matrices, records, bias: None, columns: columns.clone() }
    }

    pub fn matrices(&self) -> u32 {
        self.matrices
    }

    /// The number of the order of its columns, if that is another than that of its input: stacks of equal numbers read the same.
    pub fn order(&self) -> Option<u64> {
        self.columns.as_ref().map(|columns| columns.id())
    }

    /// Elements of a column that is gathered for it; 0, where none is.
    pub fn gathered(&self) -> usize {
        self.columns.as_ref().map_or(0, |columns| columns.len())
    }

    pub fn bias(&self) -> Option<&DeviceSlice<f32>> {
        self.bias.as_deref()
    }

    pub fn rows(&self) -> u32 {
        // Checked when it was uploaded.
        self.outputs.len() as u32
    }
}

/// Matrices that are applied to one input, one below the other. Neighbours of equal format are one
/// stack, and so one launch.
pub(super) struct Projection {
    pub stacks: Vec<Stack>,
}

/// A bias that only some models have: of one matrix, or of several below each other; of every expert, one behind the other.
pub(super) type Bias = Option<Vec<f32>>;

/// The biases of some outputs of a projection, of each of `count` experts; `all` are those of its matrices. None, where one has none.
pub(super) fn biases_of(all: &[&Bias], outputs: Range<usize>, count: usize) -> Option<Vec<f32>> {
    let all: Vec<&Vec<f32>> = all.iter().map(|bias| bias.as_ref()).collect::<Option<_>>()?;
    if all.is_empty() {
        return None;
    }
    let of_expert = |expert: usize| {
        let parts = all.iter().flat_map(move |bias| bias.chunks(bias.len() / count).nth(expert)).flatten();
        parts.copied().skip(outputs.start).take(outputs.len())
    };
    Some((0..count).flat_map(of_expert).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn biases_of_experts_lie_as_their_rows_do() {
        let [gate, up] = [vec![1.0, 2.0, 10.0, 20.0], vec![3.0, 30.0]].map(Some);
        let of = |outputs: Range<usize>| biases_of(&[&gate, &up], outputs, 2);
        assert_eq!(of(0..3).unwrap(), [1.0, 2.0, 3.0, 10.0, 20.0, 30.0]);
        assert_eq!((of(0..2).unwrap(), of(2..3).unwrap()), (vec![1.0, 2.0, 10.0, 20.0], vec![3.0, 30.0]));
        assert_eq!((biases_of(&[], 0..3, 1), biases_of(&[&gate, &None], 0..3, 2)), (None, None));
    }
}
