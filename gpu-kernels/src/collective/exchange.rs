//! A message from one rank to another, through the mailbox that the sender has for the receiver. The sender waits until the message
//! before has been taken, the receiver until one has arrived; each counts its own, so that a graph replays.

use super::THREADS;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use super::{ARRIVED, BLOCKS, COUNTS, FLAGS, Frame, STAGING, TAKEN, place, set_word, word};
use warpsmith_device::DeviceAddress;
use warpsmith_device::prelude::*;

/// Sends `x`, which is `halves` halves of words, to `peer`, or receives it from there.
#[kernel(block = THREADS, min_blocks = 2)]
#[allow(clippy::too_many_arguments)]
pub unsafe fn exchange(
    x: InOut<u16>,
    frames: In<DeviceAddress>,
    halves: u32,
    capacity: u32,
    rank: u32,
    peer: u32,
    ranks: u32,
    receive: u32,
) {
    // The contract has them.
    let _ = ranks;
    let (block, thread) = (block::idx_x(), thread::idx_x());
    let (own, other) = (Frame::of(frames, rank), Frame::of(frames, peer));
    let receives = receive != 0;
    let (mine, theirs) = if receives { (ARRIVED, TAKEN) } else { (TAKEN, ARRIVED) };
    let count = COUNTS + place(mine, block, peer);
    let epoch = own.0.get(count).wrapping_add(1);
    if receives && thread == 0 {
        own.wait(FLAGS + place(ARRIVED, block, peer), epoch);
    }
    // Blocks share out each message by its length, so that one writes where others wrote of the message before: all of that has been taken.
    if !receives && thread < BLOCKS {
        own.wait(FLAGS + place(TAKEN, thread, peer), epoch.wrapping_sub(1));
    }
    sync::block();

    let halves = halves as usize;
    let words = halves.div_ceil(2);
    let size = words.div_ceil(BLOCKS as usize);
    let mailbox = |of: u32| STAGING + (2 + of as usize) * capacity as usize;
    let mut i = block as usize * size + thread as usize;
    while i < ((block as usize + 1) * size).min(words) {
        if receives {
            set_word(x, i, halves, other.0.get(mailbox(rank) + i));
        } else {
            own.0.set(mailbox(peer) + i, word(x, i, halves));
        }
        i += THREADS as usize;
    }
    sync::block();
    if thread == 0 {
        own.0.set(count, epoch);
        other.raise(FLAGS + place(theirs, block, rank), epoch);
    }
}
