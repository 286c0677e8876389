//! A weight matrix as a file has it.

use super::pieces::Pieces;
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
    /// Rows behind [`Matrix::first_row`].
    pub(super) rows: Pieces,
    /// Columns of the whole, and those of them that are held.
    pub(super) of_cols: usize,
    pub(super) cols: Pieces,
}

impl Matrix {
    /// These rows of each of `count` matrices that lie one behind the other; they may be parts of others themselves.
    pub(super) fn rows_of(&self, count: usize, rows: Range<usize>) -> Matrix {
        let each = self.rows / count;
        self.rows_in(&Pieces::of((0..count).map(|i| i * each + rows.start..i * each + rows.end)))
    }

    /// These of its rows.
    pub(super) fn rows_in(&self, rows: &Pieces) -> Matrix {
        let cut = match &self.cut {
            Some(cut) => Cut { rows: cut.rows.inner(rows), ..cut.clone() },
            None => Cut { rows: rows.clone(), of_cols: self.cols, cols: Pieces::one(0..self.cols) },
        };
        Matrix { rows: rows.len(), cut: Some(cut), ..self.clone() }
    }

    /// These columns of all rows.
    pub(super) fn cols_in(&self, cols: &Pieces) -> Matrix {
        let cut = match &self.cut {
            Some(cut) => Cut { cols: cut.cols.inner(cols), ..cut.clone() },
            None => Cut { rows: Pieces::one(0..self.rows), of_cols: self.cols, cols: cols.clone() },
        };
        Matrix { cols: cols.len(), cut: Some(cut), ..self.clone() }
    }
}
