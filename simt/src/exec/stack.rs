//! Local memory of a thread that grows at run time.
//!
//! It has a window of its own in the local space, above all frames, so that frames need not move. What a function
//! took is given back when it returns: lowering saves and restores the stack pointer around it.

use super::layout::{LANES, POISON_ROW, Row};

/// Local address of the first byte.
pub(crate) const START: u64 = 1 << 20;
/// Bytes of a thread.
pub(super) const MOST: u64 = 512 << 10;

/// The stacks of a warp's threads: word `w` of lane `l` is word `32 w + l`, as in the rest of local memory.
#[derive(Default)]
pub(crate) struct Stack {
    rows: Vec<Row>,
    /// Bytes in use.
    top: [u64; LANES],
}

impl Stack {
    /// Gives all of it back.
    pub(crate) fn clear(&mut self) {
        self.top = [0; LANES];
    }

    /// Host address of a byte of a lane, if `bytes` bytes from there are its own.
    pub(crate) fn at(&mut self, lane: usize, address: u64, bytes: u64) -> Option<*mut u8> {
        let offset = address.checked_sub(START)?;
        let top = *self.top.get(lane)?;
        let row = self.rows.get_mut((offset / 4) as usize)?;
        let inside = offset < top && bytes <= top - offset;
        // SAFETY: the row has a word for each lane, and the offset is below 4.
        inside.then(|| unsafe { row.0.as_mut_ptr().cast::<u8>().add(lane * 4 + (offset & 3) as usize) })
    }

    /// The stack pointer of a lane.
    pub(super) fn pointer(&self, lane: usize) -> u64 {
        START + self.top[lane]
    }

    /// Takes `bytes` bytes for a lane, whose address is a multiple of `align`: gives that address, or, if there is no room, how
    /// many bytes are in use.
    pub(super) fn take(&mut self, lane: usize, bytes: u64, align: u64) -> Result<u64, u64> {
        let start = self.top[lane].next_multiple_of(align.max(1));
        let end = start.saturating_add(bytes);
        if end > MOST {
            return Err(start);
        }
        let rows = (end as usize).div_ceil(4);
        if self.rows.len() < rows {
            self.rows.resize(rows, POISON_ROW);
        }
        let fresh = (start / 4) as usize..rows;
        self.rows[fresh].iter_mut().for_each(|r| r.0[lane] = POISON_ROW.0[lane]);
        self.top[lane] = end;
        Ok(START + start)
    }

    /// Moves the stack pointer of a lane back, if it has been there.
    pub(super) fn restore(&mut self, lane: usize, pointer: u64) -> bool {
        let offset = pointer.checked_sub(START).filter(|&offset| offset <= self.top[lane]);
        self.top[lane] = offset.unwrap_or(self.top[lane]);
        offset.is_some()
    }
}
