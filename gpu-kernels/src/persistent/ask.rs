//! What a block will read first behind a barrier, asked for before it.

use super::{
    LINE, PARTS, PHASES,
    arguments::Arguments,
    at::{At, block_index},
    frame::blocks_of,
};
use crate::{
    attention::step,
    gemv::{
        self, ROWS,
        quant_format::{BLOCK_ROWS, NONE},
    },
    kv::cached::{Cached, Rows},
    load::thread_index,
    state::GROUP,
};
use warpsmith_device::prelude::*;

impl Arguments {
    /// Asks for what this block will read first of the phase behind the one that is next: it comes to L2 while the block waits,
    /// and in the next phase. A thread asks for a line.
    #[inline(always)]
    pub unsafe fn ask<T: Cached, const QUANT: u32>(&self, at: At) {
        let (last, phase) = (at.layer + 1 == self.sizes.layers, at.phase);
        if phase + 1 == PHASES {
            if !last {
                // SAFETY: the layer is one of the launch.
                unsafe { self.ask_rows::<T>(at.layer + 1) }
            }
            return;
        }
        // SAFETY: the layer is one of the launch.
        unsafe {
            if phase + 2 < PHASES {
                let of = At { phase: phase + 2, part: 0, ..at };
                let m = self.matrix(of);
                let shape = (m.rows, self.cols(of.phase));
                self.ask_weights::<QUANT>(block_index(), self.buffer(m.records), m.vectors, shape, of.phase == 3);
            } else if last {
                let shape = (self.sizes.next_rows, self.sizes.hidden);
                self.ask_weights::<QUANT>(block_index(), self.next_weights, self.sizes.next_vectors, shape, false);
            } else {
                let (mut block, mut part) = (block_index(), 0);
                while part < PARTS {
                    let m = self.matrices(at.layer + 1).at(part);
                    let blocks = blocks_of::<QUANT>(m.rows, self.sizes.hidden, false);
                    if block < blocks {
                        let shape = (m.rows, self.sizes.hidden);
                        self.ask_weights::<QUANT>(block, self.buffer(m.records), m.vectors, shape, false);
                        return;
                    }
                    block -= blocks;
                    part += 1;
                }
            }
        }
    }

    /// A line of the rows of this block's first roles, of which `block` is the first, of a matrix with rows of `vectors` vectors.
    #[inline(always)]
    unsafe fn ask_weights<const QUANT: u32>(
        &self,
        block: u32,
        weights: In<U32x4>,
        vectors: u32,
        (rows, cols): (u32, u32),
        swiglu: bool,
    ) {
        // A role reads outputs' rows one after the other, or some of gates and as many of ups.
        let outputs = if QUANT == NONE {
            gemv::groups(cols) * if swiglu { 1 } else { ROWS as u32 }
        } else {
            BLOCK_ROWS >> u32::from(swiglu)
        };
        let run = (outputs * vectors).max(1);
        let at = thread_index() * (LINE / size_of::<U32x4>() as u32);
        let (n, within) = (at / run, at % run);
        let (turn, up) = if swiglu { (n / 2, n % 2) } else { (n, 0) };
        let row = (block + turn * grid::dim_x()) * outputs;
        if row < rows {
            let at = (up * rows + row) as usize * vectors as usize + within as usize;
            // SAFETY: at most a role's rows past a row of the matrix, and nothing is read there: a hint.
            unsafe { mem::prefetch_l2(weights.from(at).ptr()) }
        }
    }

    /// A line of the keys, or of the values, that this block attends to first in a layer.
    #[inline(always)]
    unsafe fn ask_rows<T: Cached>(&self, layer: u32) {
        let l = &self.layer;
        let splits = step::splits(l.kv_heads);
        let (head, split) = (block_index() / splits, block_index() % splits);
        // SAFETY: there is one column.
        let c = unsafe { self.columns.at(0) };
        if head >= l.kv_heads || c.position >= c.capacity {
            return;
        }
        let (keys, values) = Rows::of::<T>(&c, l.index + layer, l.kv_heads, head, l.head_dim);
        let start = l.window_start(c.position) / GROUP * GROUP;
        let (_, part) = step::parts(c.position + 1 - start, splits);
        let from = start + split * part;
        let rows = if thread_index() % 2 == 0 { keys } else { values };
        let within = (thread_index() / 2 * LINE) as u64;
        let to = (from + part).min(c.position + 1);
        if from < to && within < (to - from) as u64 * rows.bytes {
            // SAFETY: within the column's cache: a hint.
            unsafe { mem::prefetch_l2((rows.row::<T>(from) + within) as *const u32) };
        }
    }
}
