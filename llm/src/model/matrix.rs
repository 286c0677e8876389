//! A weight matrix as a file has it.

use super::pieces::Pieces;
use gpu_kernels::format::Format;
use half::f16;
use std::ops::Range;
use std::sync::Arc;

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
    /// Which of its inputs each column is multiplied with, where that is another than the one of its number: as many as there are columns, each
    /// once. Matrices of [checkpoints](crate::checkpoint) with act-order have them in the order of their groups.
    pub columns: Option<Arc<[u32]>>,
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
    /// How the whole is stored, and its [columns](Matrix::columns), where these are not those of the inputs of their numbers: parts of groups are
    /// in no format, and so F16.
    pub(super) stored: Option<(Format, Arc<[u32]>)>,
}

impl Cut {
    /// Writes those columns that are held of whole rows of weights, whose columns are in that order.
    pub(super) fn pick(&self, weights: &[f32], columns: &[u32], to: &mut [u8]) {
        let mut row = vec![0.0; self.of_cols];
        let rows = weights.chunks_exact(self.of_cols.max(1)).zip(to.chunks_exact_mut(2 * self.cols.len().max(1)));
        for (weights, to) in rows {
            for (&column, &weight) in columns.iter().zip(weights) {
                if let Some(place) = row.get_mut(column as usize) {
                    *place = weight;
                }
            }
            for (to, weight) in to.as_chunks_mut::<2>().0.iter_mut().zip(self.cols.gather(&row)) {
                *to = f16::from_f32(weight).to_le_bytes();
            }
        }
    }
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
            None => Cut { rows: rows.clone(), of_cols: self.cols, cols: Pieces::one(0..self.cols), stored: None },
        };
        Matrix { rows: rows.len(), cut: Some(cut), ..self.clone() }
    }

    /// These columns of all rows.
    pub(super) fn cols_in(&self, cols: &Pieces) -> Matrix {
        let cut = match &self.cut {
            Some(cut) => Cut { cols: cut.cols.inner(cols), ..cut.clone() },
            None => Cut { rows: Pieces::one(0..self.rows), of_cols: self.cols, cols: cols.clone(), stored: None },
        };
        let stored = self.columns.as_ref().map(|columns| (self.format, columns.clone())).or(cut.stored);
        let (format, cut) = (self.format_in_columns(), Some(Cut { stored, ..cut }));
        Matrix { format, cols: cols.len(), columns: None, cut, ..self.clone() }
    }

    /// The format that some of its columns are in.
    pub(super) fn format_in_columns(&self) -> Format {
        if self.columns.is_some() { Format::F16 } else { self.format }
    }
}
