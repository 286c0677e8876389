//! Collectives over peer memory: every rank launches the same kernels in the same order, each on its own device.
//!
//! - [`Collective`]: all-reduce (in one shot or two), reduce-scatter, all-gather and broadcast, in place; the sum may go onto a residual
//!   stream instead, or be that of a residual stream with what prepares the norm behind it.
//! - [`exchange::Exchange`]: a message from one rank to another.
//!
//! A rank has a *frame* in its device's memory, which the kernels of all ranks reach: counters, flags, and room to stage elements.
//! Frames are zeroed once. All of it is u32 words:
//!
//! | words | |
//! |---|---|
//! | [`EPOCHS`] | by block: how many collectives it has done; written by its own rank alone |
//! | [`SIGNALS`] | by phase, block and rank: the last epoch in which that block of that rank got there; written by that rank |
//! | [`COUNTS`] | by direction ([`TAKEN`], [`ARRIVED`]), block and peer: messages so far; written by its own rank alone |
//! | [`FLAGS`] | the same of the peer, written by the peer |
//! | [`STAGING`] | two halves of `capacity` words, one for odd epochs and one for even ones; then a mailbox of as many for each rank |
//!
//! **Order.** A block stages its part, and a thread for each peer writes the epoch into the peer's frame with `st.release.sys`, behind a
//! block barrier; a thread for each peer then waits with `ld.acquire.sys` until all blocks of this number have got there. Flags and epochs
//! only ever grow, and a launch takes its epoch from memory: a graph replays. The staged half of an epoch is written again two epochs
//! later; by then every rank has begun the next one, and so has ended this one. The number of blocks is the same in every launch, whatever
//! its length, so that all blocks count alike. A rank that is late makes the others wait, and none of them is in its way.
//!
//! **Sums** are formed in f32 in the order of the ranks, `((x0 + x1) + x2) + ...`, and rounded once: all ranks get the same bits, in one shot
//! and in two, in every run. `max` is the larger by `>`, in the same order.
//!
//! **Shots.** In one, each rank reads all elements of all ranks and needs one meeting: least latency. In two, rank `r` reduces slice `r` of
//! all ranks, they meet again, and each reads the slices of the others: `2 / ranks` of the traffic.

mod contract;
pub mod exchange;

#[cfg(not(target_arch = "nvptx64"))]
pub mod cases;

use warpsmith_device::DeviceAddress;
use warpsmith_device::prelude::*;

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Blocks of every launch.
pub const BLOCKS: u32 = 16;
/// Ranks at most.
pub const MAX_RANKS: u32 = 16;

/// Where the epochs of the blocks begin in a frame, in words.
pub const EPOCHS: usize = 0;
/// Where the flags of the two phases begin.
pub const SIGNALS: usize = EPOCHS + BLOCKS as usize;
/// Where the counts of messages begin.
pub const COUNTS: usize = SIGNALS + 2 * PHASE;
/// Where the flags of messages begin.
pub const FLAGS: usize = COUNTS + 2 * PHASE;
/// Where staged elements begin.
pub const STAGING: usize = 2048;
/// Words of a phase or a direction.
const PHASE: usize = (BLOCKS * MAX_RANKS) as usize;
const _: () = assert!(FLAGS + 2 * PHASE <= STAGING);

/// Direction: messages that the peer sent here.
pub const ARRIVED: u32 = 0;
/// Direction: messages from here that the peer has taken.
pub const TAKEN: u32 = 1;

/// The word of a flag or count, by phase or direction, block and rank, from [`SIGNALS`], [`COUNTS`] or [`FLAGS`] on.
#[inline(always)]
#[must_use]
pub const fn place(phase: u32, block: u32, rank: u32) -> usize {
    ((phase * BLOCKS + block) * MAX_RANKS + rank) as usize
}

/// Words of a frame.
#[must_use]
pub const fn frame_words(ranks: u32, capacity: u32) -> u64 {
    STAGING as u64 + (2 + ranks as u64) * capacity as u64
}

/// Flags, kind of element: f32, f16 or bf16.
pub const KIND: u32 = 3;
/// Kind: f32, an element a word.
pub const F32: u32 = 0;
/// Kind: f16, two elements a word.
pub const F16: u32 = 1;
/// Kind: bf16, two elements a word.
pub const BF16: u32 = 2;
/// Flag: the largest instead of the sum.
pub const MAX: u32 = 4;
/// Flag: all slices are staged; else the own one.
pub const STAGE_ALL: u32 = 8;
/// Flag: all slices are reduced.
pub const REDUCE_ALL: u32 = 16;
/// Flag: the own slice is reduced.
pub const REDUCE_OWN: u32 = 32;
/// Flag: each slice is read from the rank that it belongs to, which has staged or reduced it.
pub const GATHER: u32 = 64;
/// Flag: the root stages all slices, and everything is read from it.
pub const BROADCAST: u32 = 128;
/// Flag: what comes out is added to `residual`, and `x` stays (f32 alone).
pub const RESIDUAL: u32 = 256;
/// Flag: `x` becomes the sum of `residual` and what comes out (f32 alone), and the norm that follows is prepared: `scaled = x * next_weight`,
/// and the sum of the squares of a column of `x` in [`BLOCKS`] parts.
pub const NEXT: u32 = 512;

/// All-reduce in one shot.
pub const ONE_SHOT: u32 = STAGE_ALL | REDUCE_ALL;
/// All-reduce in two shots.
pub const TWO_SHOT: u32 = STAGE_ALL | REDUCE_OWN | GATHER;
/// Reduce-scatter: the own slice is the result.
pub const SCATTER: u32 = STAGE_ALL | REDUCE_OWN;

/// A rank's frame.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[derive(Clone, Copy)]
struct Frame(InOut<u32>);

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
impl Frame {
    /// # Safety
    /// `rank` is one of the frames' ranks.
    #[inline(always)]
    unsafe fn of(frames: In<DeviceAddress>, rank: u32) -> Frame {
        // SAFETY: the caller's promise.
        Frame(InOut::from_raw(unsafe { frames.at(rank as usize) }.ptr()))
    }

    /// # Safety
    /// The flag is in the frame, and written by this rank alone.
    #[inline(always)]
    unsafe fn raise(self, at: usize, epoch: u32) {
        // SAFETY: the caller's promise; flags are touched by atomics only.
        unsafe { atomic::store(self.0.ptr_at(at), epoch, Order::Release, Scope::System) }
    }

    /// # Safety
    /// The flag is in the frame.
    #[inline(always)]
    unsafe fn wait(self, at: usize, epoch: u32) {
        // Epochs wrap around.
        // SAFETY: the caller's promise; flags are touched by atomics only.
        while (unsafe { atomic::load(self.0.ptr_at(at), Order::Acquire, Scope::System) }.wrapping_sub(epoch) as i32) < 0
        {
        }
    }
}

/// A word of `x`; where it ends in half of one, that half.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[inline(always)]
unsafe fn word(x: InOut<u16>, i: usize, halves: usize) -> u32 {
    // SAFETY: the caller's promise: the word begins within `x`.
    unsafe { if 2 * i + 1 < halves { x.cast::<u32>().get(i) } else { u32::from(x.get(2 * i)) } }
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[inline(always)]
unsafe fn set_word(x: InOut<u16>, i: usize, halves: usize, v: u32) {
    // SAFETY: as for `word`.
    unsafe { if 2 * i + 1 < halves { x.cast::<u32>().set(i, v) } else { x.set(2 * i, v as u16) } }
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[inline(always)]
fn unpack(word: u32, kind: u32) -> (f32, f32) {
    match kind {
        F32 => (f32::from_bits(word), 0.0),
        F16 => convert::unpack_f16x2(word),
        _ => convert::unpack_bf16x2(word),
    }
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[inline(always)]
fn pack((low, high): (f32, f32), kind: u32) -> u32 {
    match kind {
        F32 => low.to_bits(),
        F16 => convert::pack_f16x2(low, high),
        _ => convert::pack_bf16x2(low, high),
    }
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[inline(always)]
fn combine(a: f32, b: f32, max: bool) -> f32 {
    let larger = if b > a { b } else { a };
    if max { larger } else { a + b }
}

/// What a block works on, and with whom.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[derive(Clone, Copy)]
struct Communicator {
    frames: In<DeviceAddress>,
    rank: u32,
    ranks: u32,
    epoch: u32,
    /// Where the half of this epoch begins.
    stage: usize,
    flags: u32,
}

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
impl Communicator {
    /// Tells all ranks that this block has got here, and waits until theirs have.
    ///
    /// # Safety
    /// All threads of the block reach the call, or none.
    #[inline(always)]
    unsafe fn meet(&self, phase: u32) {
        let (block, thread) = (block::idx_x(), thread::idx_x());
        // SAFETY: the ranks are those of the frames.
        unsafe {
            sync::block();
            if thread < self.ranks {
                Frame::of(self.frames, thread).raise(SIGNALS + place(phase, block, self.rank), self.epoch);
                Frame::of(self.frames, self.rank).wait(SIGNALS + place(phase, block, thread), self.epoch);
            }
            sync::block();
        }
    }

    /// A staged word of all ranks, reduced.
    ///
    /// # Safety
    /// It was staged by all of them.
    #[inline(always)]
    unsafe fn reduced(&self, w: usize) -> u32 {
        let (kind, max) = (self.flags & KIND, self.flags & MAX != 0);
        // SAFETY: the caller's promise.
        let staged = |rank| unpack(unsafe { Frame::of(self.frames, rank).0.get(self.stage + w) }, kind);
        let (mut low, mut high) = staged(0);
        let mut rank = 1;
        while rank < self.ranks {
            let (l, h) = staged(rank);
            (low, high) = (combine(low, l, max), combine(high, h, max));
            rank += 1;
        }
        pack((low, high), kind)
    }
}

/// A collective of all ranks, in place in `x`.
///
/// `x` is `columns` columns of `len` elements of the kind that the flags say, as u16, `stride` words from one to the next; slice `r` of a
/// column is the words from `r * slice` on, and `frames` the addresses of the ranks' frames. `residual` and `scaled` are f32, laid out as `x`;
/// `next_weight` is f32 `[len]`, `sums` f32 `[columns, BLOCKS]`.
///
/// Of each slice of each column a block has the same part, whatever the number of columns: so a column has the same bits beside any others,
/// also in the parts of its sum of squares, and in one shot as in two.
#[kernel(block = THREADS, min_blocks = 2)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn collective(
    x: InOut<u16>,
    residual: InOut<f32>,
    next_weight: In<f32>,
    scaled: Out<f32>,
    sums: Out<f32>,
    frames: In<DeviceAddress>,
    len: u32,
    columns: u32,
    stride: u32,
    slice: u32,
    capacity: u32,
    rank: u32,
    ranks: u32,
    root: u32,
    flags: u32,
) {
    let scratch = shared_array!(COLLECTIVE: [f32; 32]);
    let (block, thread) = (block::idx_x() as usize, thread::idx_x() as usize);
    let own = Frame::of(frames, rank).0;
    let epoch = own.get(EPOCHS + block).wrapping_add(1);
    let stage = STAGING + (epoch & 1) as usize * capacity as usize;
    let part = Communicator { frames, rank, ranks, epoch, stage, flags };
    let of_column = if flags & KIND == F32 { 2 * len as usize } else { len as usize };
    let (words, slice, stride) = (of_column.div_ceil(2), slice as usize, stride as usize);
    let halves = (columns as usize - 1) * 2 * stride + of_column;
    // The same part of each slice of each column, in every phase.
    let size = slice.div_ceil(BLOCKS as usize);
    let (from, to) = (block * size + thread, ((block + 1) * size).min(slice));
    // Words of slice `s` end here: the last may have fewer.
    let end_of = |s: u32| to.min(words.saturating_sub(s as usize * slice));

    let (mut column, mut s) = (0, 0);
    while column < columns as usize {
        let stages = if flags & BROADCAST != 0 { rank == root } else { flags & STAGE_ALL != 0 || s == rank };
        let (mut i, at) = (from, column * stride + s as usize * slice);
        while stages && i < end_of(s) {
            own.set(stage + at + i, word(x, at + i, halves));
            i += THREADS as usize;
        }
        s += 1;
        if s == ranks {
            (column, s) = (column + 1, 0);
        }
    }
    part.meet(0);

    if flags & TWO_SHOT == TWO_SHOT {
        let mut column = 0;
        while column < columns as usize {
            let (mut i, at) = (from, column * stride + rank as usize * slice);
            while i < end_of(rank) {
                // Others read it; what was staged there only this thread reads.
                own.set(stage + at + i, part.reduced(at + i));
                i += THREADS as usize;
            }
            column += 1;
        }
        part.meet(1);
    }

    let gathers = flags & (GATHER | BROADCAST) != 0;
    let mut column = 0;
    while column < columns as usize {
        let (mut s, mut squares) = (0, 0.0);
        while s < ranks {
            let takes = gathers || flags & REDUCE_ALL != 0 || (flags & REDUCE_OWN != 0 && s == rank);
            let source = Frame::of(frames, if flags & BROADCAST != 0 { root } else { s }).0;
            let (mut i, before) = (from, s as usize * slice);
            while takes && i < end_of(s) {
                let w = column * stride + before + i;
                let v = if gathers { source.get(stage + w) } else { part.reduced(w) };
                if flags & NEXT != 0 {
                    let y = residual.get(w) + f32::from_bits(v);
                    x.cast::<u32>().set(w, y.to_bits());
                    scaled.set(w, y * next_weight.at(before + i));
                    squares = math::fma(y, y, squares);
                } else if flags & RESIDUAL != 0 {
                    residual.set(w, residual.get(w) + f32::from_bits(v));
                } else {
                    set_word(x, w, halves, v);
                }
                i += THREADS as usize;
            }
            s += 1;
        }
        if flags & NEXT != 0 {
            let squares = block_reduce::sum_f32(squares, scratch);
            if thread == 0 {
                sums.set(column * BLOCKS as usize + block, squares);
            }
        }
        column += 1;
    }
    // All threads have read it before they met.
    if thread == 0 {
        own.set(EPOCHS + block, epoch);
    }
}
