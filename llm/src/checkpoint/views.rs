//! Parts and turned forms of what is stored.

use super::CheckpointError;
use super::rows::{Dense, Rows};
use super::shards::{Shards, Stored};
use crate::gguf::TensorType;
use std::ops::Range;
use std::sync::Arc;

/// Which of the rows, or elements, of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pick {
    All,
    /// The first, the third, ..
    Even,
    /// The second, the fourth, ..
    Odd,
}

impl Pick {
    /// The first one, how far it is to the next, and how many there are, of so many; none, where they are not all in pairs.
    pub fn of(self, all: usize) -> Option<(usize, usize, usize)> {
        let paired = all.is_multiple_of(2);
        match self {
            Pick::All => Some((0, 1, all)),
            Pick::Even => paired.then_some((0, 2, all / 2)),
            Pick::Odd => paired.then_some((1, 2, all / 2)),
        }
    }
}

/// Some rows of others.
pub(super) struct Picked {
    rows: Box<dyn Rows>,
    first: usize,
    step: usize,
    count: usize,
}

impl Picked {
    /// None, where [`Pick::of`] is.
    pub fn new(rows: Box<dyn Rows>, pick: Pick) -> Option<Picked> {
        let (first, step, count) = pick.of(rows.size()[0])?;
        Some(Picked { rows, first, step, count })
    }
}

impl Rows for Picked {
    fn kind(&self) -> TensorType {
        self.rows.kind()
    }

    fn size(&self) -> [usize; 2] {
        [self.count, self.rows.size()[1]]
    }

    fn read(&self, rows: Range<usize>, to: &mut [u8]) -> Result<(), CheckpointError> {
        let (at, count) = (self.first + rows.start * self.step, rows.len());
        if self.step == 1 || count == 0 {
            return self.rows.read(at..at + count, to);
        }
        // One read of all that lie between.
        let row = to.len() / count;
        let between = (count - 1) * self.step + 1;
        let mut all = vec![0; between * row];
        self.rows.read(at..at + between, &mut all)?;
        for (to, from) in to.chunks_exact_mut(row).zip(all.chunks(row * self.step)) {
            to.copy_from_slice(&from[..row]);
        }
        Ok(())
    }
}

/// A matrix that is stored with a row for each of its columns; or one of several that lie one behind the other.
pub(super) struct Transposed {
    shards: Arc<Shards>,
    stored: Stored,
    kind: TensorType,
    /// Matrices before it.
    number: usize,
    size: [usize; 2],
}

impl Transposed {
    /// Of a tensor of two dimensions.
    pub fn new(shards: &Arc<Shards>, stored: &Stored) -> Result<Transposed, CheckpointError> {
        let [cols, rows] = stored.matrix()?;
        Ok(Transposed {
            shards: shards.clone(),
            kind: Dense::kind_of(stored)?,
            stored: stored.clone(),
            number: 0,
            size: [rows, cols],
        })
    }

    /// The matrix of that number of a tensor of three, of `count` matrices.
    pub fn of_several(
        shards: &Arc<Shards>,
        stored: &Stored,
        (number, count): (usize, usize),
    ) -> Result<Transposed, CheckpointError> {
        match stored.shape[..] {
            [all, cols, rows] if all == count && cols > 0 && rows > 0 => {
                let kind = Dense::kind_of(stored)?;
                Ok(Transposed { shards: shards.clone(), kind, stored: stored.clone(), number, size: [rows, cols] })
            }
            _ => Err(stored.misshapen(format!("three dimensions, none of them zero, the first {count}"))),
        }
    }
}

impl Rows for Transposed {
    fn kind(&self) -> TensorType {
        self.kind
    }

    fn size(&self) -> [usize; 2] {
        self.size
    }

    fn read(&self, rows: Range<usize>, to: &mut [u8]) -> Result<(), CheckpointError> {
        let ([height, cols], width) = (self.size, self.kind.block_bytes() as usize);
        let mut run = vec![0; rows.len() * width];
        for col in 0..cols {
            let at = ((self.number * cols + col) * height + rows.start) * width;
            self.shards.read(&self.stored, at, &mut run)?;
            for (row, value) in run.chunks_exact(width).enumerate() {
                to[(row * cols + col) * width..][..width].copy_from_slice(value);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::Constant;
    use super::*;

    #[test]
    fn picked_rows_are_those_of_their_numbers() {
        let numbers = || Box::new(Constant((0..6).map(|i| i as f32).collect()));
        for (pick, want) in
            [(Pick::All, vec![0., 1., 2., 3., 4., 5.]), (Pick::Even, vec![0., 2., 4.]), (Pick::Odd, vec![1., 3., 5.])]
        {
            let picked = Picked::new(numbers(), pick).unwrap();
            assert_eq!(picked.size(), [want.len(), 1]);
            for start in 0..want.len() {
                for end in start..=want.len() {
                    let mut bytes = vec![0xaa; 4 * (end - start)];
                    picked.read(start..end, &mut bytes).unwrap();
                    let got: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
                    assert_eq!(got, want[start..end], "{pick:?} {start}..{end}");
                }
            }
        }
        assert!(Picked::new(Box::new(Constant(vec![0.; 5])), Pick::Odd).is_none());
    }
}
