//! A weight matrix as a file has it.

use gpu_kernels::format::Format;
use std::ops::Range;

/// A weight matrix in the file: `rows` outputs by `cols` inputs. It is a tensor, or some rows of one: files of some architectures
/// hold matrices that are applied to one input below each other in one tensor. Of a mixture of experts it is the matrices of all, one
/// behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// The tensor's name.
    pub name: String,
    /// How its rows are stored.
    pub format: Format,
    /// The tensor's row that is its first.
    pub first_row: usize,
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub cols: usize,
    /// Where it is a [share](super::ModelFile::share) of another matrix.
    pub cut: Option<Cut>,
}

/// Rows and columns of a matrix that a device holds of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Rows of the whole fall into groups of so many: the experts.
    pub(super) group: usize,
    /// Of every group these.
    pub(super) rows: Range<usize>,
    /// Columns of the whole.
    pub(super) cols: usize,
    /// That of them which is the first.
    pub(super) first_col: usize,
}
