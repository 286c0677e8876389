//! The first two launches: the best tokens of slices, and what bins weigh.

use super::super::{NONE, definition::BINS, digits::WideSums};
use super::column::{Logits, ROUND, Slice, VECTOR, Weigh, larger, largest, record};
use super::work::{Work, place};
use super::{Sampling, THREADS};
use warpsmith_device::{prelude::*, static_for};

/// The best token of the block's slice. The last block of a column that does not draw has its token; others empty the bins.
#[device]
pub unsafe fn best(
    logits: In<f32>,
    params: In<Sampling>,
    y: Out<u32>,
    (work, tickets): (InOut<u64>, InOut<u32>),
    (n, stride, slice): (u32, u32, u32),
) {
    let scratch = shared_array!(SAMPLE_BEST: [u64; 32]);
    let last = shared_array!(SAMPLE_BEST_LAST: [u32; 1]);
    let (number, column) = (block::idx_x() as usize, block::idx_y() as usize);
    let (thread, slices) = (thread::idx_x() as usize, grid::dim_x() as usize);
    let s = params.at(column);
    let l = Logits::new(logits.from(column * stride as usize), n as usize, &s);
    let (own, work) = (Slice::new(number, slice, n), Work::of(work, column));
    let mut best = 0u64;
    let mut from = own.first;
    while from < own.end {
        if let Some(i) = own.own(from) {
            let keys = l.keys(i);
            static_for!(j in 0..VECTOR => {
                // Of equal keys the lowest index has the largest complement.
                let candidate = (keys[j] as u64) << 32 | !((i + j) as u32) as u64;
                best = if keys[j] != 0 { larger(best, candidate) } else { best };
            });
        }
        from += ROUND;
    }
    let mut best = block_reduce::reduce(best, 0, scratch, larger);
    if thread == 0 {
        work.best.set(number, best);
    }
    if !s.is_greedy() {
        let mut i = number * THREADS as usize + thread;
        while i < BINS as usize {
            work.weights.set(i, 0);
            work.counts.set(i, 0);
            i += slices * THREADS as usize;
        }
        if number == 0 && thread == 0 {
            work.length.set(0, 0);
        }
        return;
    }
    if slices > 1 {
        let ticket = tickets.ptr_at(column);
        if thread == 0 {
            last.set(0, atomic::fetch_add(ticket, 1, Order::AcqRel, Scope::Gpu));
        }
        sync::block();
        if last.get(0) as usize + 1 != slices {
            return;
        }
        if thread == 0 {
            atomic::store(ticket, 0, Order::Relaxed, Scope::Gpu);
        }
        best = block_reduce::reduce(if thread < slices { work.best.get(thread) } else { 0 }, 0, scratch, larger);
    }
    if thread == 0 {
        let token = if best == 0 { NONE } else { !(best as u32) };
        y.set(column, token);
        if token != NONE {
            record(&s, token);
        }
    }
}

/// Adds what the block's slice has to the bins of its column, if that draws.
#[device]
pub unsafe fn weigh(
    logits: Awaited<f32>,
    params: Awaited<Sampling>,
    work: InOut<u64>,
    (n, stride, slice): (u32, u32, u32),
) {
    let scratch = shared_array!(SAMPLE_WEIGH_BEST: [u64; 32]);
    let counts = shared_array!(SAMPLE_WEIGH_COUNTS: [u32; BINS as usize]);
    let weights = WideSums {
        low: shared_array!(SAMPLE_WEIGH_LOW: [u32; BINS as usize]),
        high: shared_array!(SAMPLE_WEIGH_HIGH: [u32; BINS as usize]),
    };
    let (number, column) = (block::idx_x() as usize, block::idx_y() as usize);
    let (thread, slices) = (thread::idx_x() as usize, grid::dim_x() as usize);
    let mut i = thread;
    while i < BINS as usize {
        counts.set(i, 0);
        weights.set(i, 0);
        i += THREADS as usize;
    }
    grid::wait_dependencies();
    grid::launch_dependents();
    let s = params.buffer().at(column);
    if s.is_greedy() {
        return;
    }
    let l = Logits::new(logits.buffer().from(column * stride as usize), n as usize, &s);
    let (own, work) = (Slice::new(number, slice, n), Work::of(work, column));
    // Asked for before what the block has to wait for.
    let mut keys = own.own(own.first).map_or([0; VECTOR], |i| l.keys(i));
    let best = largest(if thread < slices { work.best.get(thread) } else { 0 }, scratch);
    if best == 0 {
        return;
    }
    let weigh = Weigh::new(best, s.temperature);
    let mut from = own.first;
    loop {
        static_for!(j in 0..VECTOR => {
            let w = if keys[j] != 0 { weigh.weight(keys[j]) } else { 0 };
            if w != 0 {
                let at = place(weigh.bin(keys[j]));
                counts.fetch_add(at, 1, Order::Relaxed);
                weights.add(at, w);
            }
        });
        from += ROUND;
        if from >= own.end {
            break;
        }
        keys = own.own(from).map_or([0; VECTOR], |i| l.keys(i));
    }
    sync::block();
    let mut i = thread;
    while i < BINS as usize {
        let count = counts.get(i);
        if count != 0 {
            atomic::fetch_add(work.counts.ptr_at(i), count, Order::Relaxed, Scope::Gpu);
            atomic::fetch_add(work.weights.ptr_at(i), weights.get(i), Order::Relaxed, Scope::Gpu);
        }
        i += THREADS as usize;
    }
}
