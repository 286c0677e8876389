//! Mistakes that a compiler does not see, each beside its mended twin. docs/defects.md shows what the checks say of them.
//!
//! The barrier that is missing is [`race`](crate::race)'s.

use warpsmith_device::prelude::*;

/// Threads of a block.
pub const THREADS: u32 = 64;

/// Doubles `x`. The last block has threads without an element, and nobody asks.
#[kernel(block = THREADS, min_blocks = 4, variant = "defect")]
pub unsafe fn double_unguarded(x: InOut<f32>) {
    let i = thread::global_x();
    x.set(i, 2.0 * x.get(i));
}

/// Doubles `x`, of `n` elements.
#[kernel(block = THREADS, min_blocks = 4, variant = "mended")]
pub unsafe fn double(x: InOut<f32>, n: u32) {
    let i = thread::global_x();
    if i < n as usize {
        x.set(i, 2.0 * x.get(i));
    }
}

/// The sum of `n` elements. A thread without an element writes nothing, but its place is added up.
#[kernel(block = THREADS, min_blocks = 4, variant = "defect")]
pub unsafe fn total_unwritten(x: In<f32>, y: Out<f32>, n: u32) {
    let places = shared_array!(TOTAL_UNWRITTEN: [f32; 64]);
    let t = thread::idx_x() as usize;
    if t < n as usize {
        places.set(t, x.at(t));
    }
    sync::block();
    if t == 0 {
        y.set(0, added_up(places));
    }
}

/// The sum of `n` elements.
#[kernel(block = THREADS, min_blocks = 4, variant = "mended")]
pub unsafe fn total(x: In<f32>, y: Out<f32>, n: u32) {
    let places = shared_array!(TOTAL: [f32; 64]);
    let t = thread::idx_x() as usize;
    places.set(t, if t < n as usize { x.at(t) } else { 0.0 });
    sync::block();
    if t == 0 {
        y.set(0, added_up(places));
    }
}

/// # Safety
/// All places were written before a barrier.
#[inline(always)]
#[cfg(target_arch = "nvptx64")]
unsafe fn added_up(places: Shared<f32>) -> f32 {
    let mut sum = 0.0;
    for i in 0..places.len() {
        // SAFETY: the caller's promise.
        sum += unsafe { places.get(i) };
    }
    sum
}

/// The sum of 64 elements, for every thread. The tree's barrier stands where only some threads of the block come by.
#[kernel(block = THREADS, min_blocks = 4, variant = "defect")]
pub unsafe fn sum_in_branch(x: In<f32>, y: Out<f32>) {
    let tree = shared_array!(SUM_IN_BRANCH: [f32; 64]);
    let t = thread::idx_x() as usize;
    tree.set(t, x.at(t));
    let mut half = 32;
    while half > 0 {
        if t < half {
            sync::block();
            tree.set(t, tree.get(t) + tree.get(t + half));
        }
        half /= 2;
    }
    sync::block();
    y.set(t, tree.get(0));
}

/// The sum of 64 elements, for every thread.
#[kernel(block = THREADS, min_blocks = 4, variant = "mended")]
pub unsafe fn sum_for_all(x: In<f32>, y: Out<f32>) {
    let tree = shared_array!(SUM_FOR_ALL: [f32; 64]);
    let t = thread::idx_x() as usize;
    tree.set(t, x.at(t));
    let mut half = 32;
    while half > 0 {
        sync::block();
        if t < half {
            tree.set(t, tree.get(t) + tree.get(t + half));
        }
        half /= 2;
    }
    sync::block();
    y.set(t, tree.get(0));
}

/// Doubles `x`, four elements a thread. Its contract asks for whole vectors, but not where they begin.
#[kernel(block = THREADS, min_blocks = 4, variant = "defect")]
pub unsafe fn double_vectors(x: InOut<f32>, n: u32) {
    let i = 4 * thread::global_x();
    if i < n as usize {
        let [a, b, c, d] = x.load4(i).0;
        x.store4(i, F32x4([2.0 * a, 2.0 * b, 2.0 * c, 2.0 * d]));
    }
}

/// A block's elements in reverse, by copies that go on while the thread does. Nobody waits for them; the barrier does not.
#[kernel(block = THREADS, min_blocks = 4, variant = "defect")]
pub unsafe fn reverse_without_wait(x: In<f32>, y: Out<f32>) {
    let tile = shared_array!(REVERSE_WITHOUT_WAIT: [f32; 64]);
    let t = thread::idx_x() as usize;
    pipeline::copy(tile, t, x.ptr().add(t));
    pipeline::commit();
    sync::block();
    y.set(t, tile.get(63 - t));
}

/// A block's elements in reverse, by copies that each thread waits for before the barrier.
#[kernel(block = THREADS, min_blocks = 4, variant = "mended")]
pub unsafe fn reverse_with_wait(x: In<f32>, y: Out<f32>) {
    let tile = shared_array!(REVERSE_WITH_WAIT: [f32; 64]);
    let t = thread::idx_x() as usize;
    pipeline::copy(tile, t, x.ptr().add(t));
    pipeline::commit();
    pipeline::wait::<0>();
    sync::block();
    y.set(t, tile.get(63 - t));
}

#[cfg(not(target_arch = "nvptx64"))]
mod contracts {
    use super::*;

    impl Contract for DoubleUnguarded<'_> {
        fn geometry(&self) -> Geometry {
            Geometry::blocks(self.x.len().div_ceil(THREADS as usize))
        }
        fn check(&self) -> Result<(), ContractError> {
            contract::at_least(Self::META, "x", self.x.len(), 1u32)
        }
    }

    impl Contract for Double<'_> {
        fn geometry(&self) -> Geometry {
            Geometry::blocks(self.n.div_ceil(THREADS))
        }
        fn check(&self) -> Result<(), ContractError> {
            contract::at_least(Self::META, "x", self.x.len(), (self.n, "n"))
        }
    }

    impl Contract for DoubleVectors<'_> {
        fn geometry(&self) -> Geometry {
            Geometry::blocks(self.n.div_ceil(4 * THREADS))
        }
        fn check(&self) -> Result<(), ContractError> {
            contract::multiple_of(Self::META, "n", self.n, 4u32)?;
            contract::at_least(Self::META, "x", self.x.len(), (self.n, "n"))
        }
    }

    macro_rules! one_block {
        ($($Name:ident($least:expr, $self:ident => $n:expr);)*) => { $(
            impl Contract for $Name<'_> {
                fn geometry(&self) -> Geometry {
                    Geometry::blocks(1u32)
                }
                fn check(&$self) -> Result<(), ContractError> {
                    contract::within(Self::META, "n", $n, 1u32, THREADS)?;
                    contract::at_least(Self::META, "x", $self.x.len(), ($n, "n"))?;
                    contract::at_least(Self::META, "y", $self.y.len(), ($least, "elements written"))
                }
            }
        )* };
    }
    // Elements that are written, and read.
    one_block! {
        TotalUnwritten(1u32, self => self.n);
        Total(1u32, self => self.n);
        SumInBranch(THREADS, self => THREADS);
        SumForAll(THREADS, self => THREADS);
        ReverseWithoutWait(THREADS, self => THREADS);
        ReverseWithWait(THREADS, self => THREADS);
    }
}
