//! Weights of models that have no file.

use super::Matrix;
use gpu_kernels::cases::{Rng, Tensor};
use gpu_kernels::format::{Format, FormatError};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Rows of a width that differ.
const DIFFERENT: usize = 64;

/// Blocks of rows, by the format and the width of these.
type Known = HashMap<(Format, usize), Arc<Vec<u8>>>;

/// Random rows of every format and width that was asked for, of which row `n` is row `n % 64`. Their weights have such a size that a
/// product keeps the size of what it multiplies.
#[derive(Default)]
pub(super) struct RandomRows(Mutex<Known>);

impl RandomRows {
    /// Writes these rows of a matrix, in its format's block layout.
    pub fn read(&self, matrix: &Matrix, rows: Range<usize>, to: &mut [u8]) -> Result<(), FormatError> {
        let (format, cols) = (matrix.format, matrix.cols);
        let bytes = format.row_bytes(cols)?;
        let all = {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let made = || {
                let mut rng = Rng(cols as u64);
                Arc::new(Tensor::of_size(&mut rng, format, DIFFERENT, cols, 1.0 / (cols as f64).sqrt()).bytes)
            };
            Arc::clone(known.entry((format, cols)).or_insert_with(made))
        };
        for (number, to) in rows.zip(to.chunks_exact_mut(bytes.max(1))) {
            let at = (matrix.first_row + number) % DIFFERENT * bytes;
            to.copy_from_slice(&all[at..at + bytes]);
        }
        Ok(())
    }
}
