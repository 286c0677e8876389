//! Products with one of several matrices, which a table on the device names for each column: the experts of a mixture.

use warpsmith_device::prelude::*;

/// Which matrix each column is multiplied with, and which input each has.
#[derive(Clone, Copy)]
pub(crate) struct Experts {
    chosen: In<u32>,
    matrices: u32,
    sharing: u32,
}

impl Experts {
    /// What a kernel's arguments ask for.
    ///
    /// # Safety
    /// [`matrix`](Self::matrix) is not called before what wrote the table is waited for.
    #[inline(always)]
    pub unsafe fn asked(flags: u32, chosen: Awaited<u32>, matrices: u32, sharing: u32) -> Option<Experts> {
        if flags & super::EXPERTS == 0 {
            return None;
        }
        // SAFETY: the caller's promise.
        Some(Experts { chosen: unsafe { chosen.buffer() }, matrices, sharing })
    }

    /// The matrix of a column; the last, where the table has a number that is none.
    #[inline(always)]
    pub unsafe fn matrix(self, column: u32) -> u32 {
        // SAFETY: the caller's promise: the table has the column.
        unsafe { self.chosen.at(column as usize) }.min(self.matrices - 1)
    }

    /// What the table has at `i`, which is below its length.
    #[inline(always)]
    unsafe fn at(self, i: u32) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { self.chosen.at(i as usize) }
    }

    /// The column of `x` that a column of outputs comes from.
    #[inline(always)]
    pub fn input(self, column: u32) -> u32 {
        column / self.sharing
    }
}

/// The columns that a block of several multiplies with one matrix: neighbours, or those of a tile of a [group](crate::experts::group).
#[derive(Clone, Copy)]
pub(crate) struct BlockColumns {
    experts: Option<Experts>,
    first: u32,
    last: u32,
    /// How many there are.
    pub count: u32,
}

impl BlockColumns {
    /// Those of the block with this index in y, at most `most` of `columns`.
    ///
    /// # Safety
    /// What wrote the table is waited for.
    #[inline(always)]
    pub unsafe fn of_block(block: u32, experts: Option<Experts>, columns: u32, most: u32) -> BlockColumns {
        let last = columns - 1;
        let Some(table) = experts else {
            let first = block * most;
            return BlockColumns { experts, first, last, count: (columns - first).min(most) };
        };
        // SAFETY: the caller's promise: the table has a tile for each block.
        unsafe {
            let tile = 3 * block;
            BlockColumns { experts, first: table.at(tile + 1), last, count: table.at(tile + 2).min(most) }
        }
    }

    /// Number `i` of them. Behind the last lies another column, whatever the table says.
    #[inline(always)]
    pub unsafe fn column(self, i: u32) -> u32 {
        let place = self.first.saturating_add(i).min(self.last);
        match self.experts {
            None => place,
            // SAFETY: the order of all columns lies behind the tiles.
            Some(table) => unsafe { table.at(3 * grid::dim_y() + place) }.min(self.last),
        }
    }

    /// Where the table has the matrix of the block with this index in y.
    #[inline(always)]
    pub fn tile_of(block: u32) -> u32 {
        3 * block
    }
}
