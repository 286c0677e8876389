//! Loops of one instruction each, with clocks around them.
//!
//! Every thread steps [`CHAINS`] values that do not depend on each other, [`UNROLL`] times an iteration, and writes their
//! exclusive or: what it must be, [`reference()`] says. The first thread of a block writes the ticks between a barrier before
//! and a barrier behind the loop.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch, f16))]

use warpsmith_device::prelude::*;

/// Threads of a block, one of which a multiprocessor has.
pub const THREADS: u32 = 1024;
/// Values of a thread.
pub const CHAINS: usize = 8;
/// Steps of each value in an iteration.
pub const UNROLL: usize = 8;

/// A value's step, which takes the instruction once.
pub mod step {
    use warpsmith_device::math;

    /// `FFMA`.
    #[inline(always)]
    #[must_use]
    pub fn ffma(v: u32) -> u32 {
        math::fma(f32::from_bits(v), 0.5, 1.0).to_bits()
    }

    /// `LOP3`, and an `IADD`: steps of `LOP3` alone are one step, which the assembler finds.
    #[inline(always)]
    #[must_use]
    pub fn lop3(v: u32) -> u32 {
        (v & 0x3a5c_96f1) ^ v.wrapping_add(0x1234_5677)
    }

    /// `POPC`, and a `LOP3`.
    #[inline(always)]
    #[must_use]
    pub fn popc(v: u32) -> u32 {
        v.count_ones() ^ 0x5555_0000
    }

    /// `IDP.4A`.
    #[inline(always)]
    #[must_use]
    pub fn dp4a(v: u32) -> u32 {
        math::dp4a(v as i32, 0x0102_0304, v as i32) as u32
    }
}

/// What chain `c` of a thread starts with.
#[inline(always)]
#[must_use]
pub fn start(thread: u32, c: usize) -> u32 {
    thread.wrapping_mul(0x9e37_79b9) ^ c as u32
}

/// What a thread of the block writes after `iterations`.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn reference(step: fn(u32) -> u32, thread: u32, iterations: u32) -> u32 {
    let chain = |c| (0..iterations as usize * UNROLL).fold(start(thread, c), |v, _| step(v));
    (0..CHAINS).fold(0, |sum, c| sum ^ chain(c))
}

/// Kernels with clocks around a loop: the state of a thread, what an iteration does to it, and the number that it ends as.
macro_rules! timed {
    ($(#[$doc:meta])* $name:ident: $state:ident = $start:expr; $iteration:expr; $sum:expr) => {
        $(#[$doc])*
        #[kernel(block = THREADS, min_blocks = 1)]
        pub unsafe fn $name(sums: Out<u32>, ticks: Out<u64>, iterations: u32) {
            let mut $state = $start;
            sync::block();
            let before = thread::clock();
            let mut i = 0;
            while i < iterations {
                $iteration;
                i += 1;
            }
            sync::block();
            let after = thread::clock();
            sums.set(thread::global_x(), $sum);
            if thread::idx_x() == 0 {
                ticks.set(block::idx_x() as usize, after.wrapping_sub(before));
            }
        }
    };
}

/// What the chains of this thread start with.
#[inline(always)]
#[cfg(target_arch = "nvptx64")]
fn starts() -> [u32; CHAINS] {
    let mut values = [0; CHAINS];
    let mut c = 0;
    while c < CHAINS {
        values[c] = start(thread::idx_x(), c);
        c += 1;
    }
    values
}

/// The exclusive or of the chains.
#[inline(always)]
#[cfg(target_arch = "nvptx64")]
fn folded(values: &[u32; CHAINS]) -> u32 {
    let (mut sum, mut c) = (0, 0);
    while c < CHAINS {
        sum ^= values[c];
        c += 1;
    }
    sum
}

macro_rules! loops {
    ($($(#[$doc:meta])* $name:ident: |$v:ident| $step:expr;)*) => { $(
        timed! {
            $(#[$doc])*
            $name: values = starts();
            {
                let mut u = 0;
                while u < UNROLL {
                    let mut c = 0;
                    while c < CHAINS {
                        let $v = values[c];
                        values[c] = $step;
                        c += 1;
                    }
                    u += 1;
                }
            };
            folded(&values)
        }
    )* };
}
loops! {
    /// Fused multiply-additions of f32.
    rate_ffma: |v| step::ffma(v);
    /// Logic.
    rate_lop3: |v| step::lop3(v);
    /// Counts of bits.
    rate_popc: |v| step::popc(v);
    /// Dot products of four bytes.
    rate_dp4a: |v| step::dp4a(v);
    /// Exchanges with the neighbouring lane, each with an addition.
    rate_shuffle: |v| warp::shuffle_xor(warp::FULL, v, 1).wrapping_add(3);
}

/// Chains of tensor-core products of a warp.
pub const PRODUCTS: usize = 4;

macro_rules! products {
    ($($(#[$doc:meta])* $name:ident: $zero:expr, |$c:ident| $multiply:expr, $total:ident;)*) => { $(
        timed! {
            $(#[$doc])*
            $name: products = [$zero; PRODUCTS];
            {
                let mut p = 0;
                while p < PRODUCTS {
                    let $c = &mut products[p];
                    $multiply;
                    p += 1;
                }
            };
            {
                let (mut sum, mut p) = (0u32, 0);
                while p < PRODUCTS {
                    sum = sum.wrapping_add($total(&products[p]));
                    p += 1;
                }
                sum
            }
        }
    )* };
}

/// The sum of a lane's four elements, as an integer.
#[inline(always)]
#[cfg(target_arch = "nvptx64")]
fn total_f16(c: &mma::C<f16>) -> u32 {
    let [a, b, c, d] = c.registers();
    (a + b + c + d) as u32
}
#[inline(always)]
#[cfg(target_arch = "nvptx64")]
fn total_i8(c: &mma::C<i8>) -> u32 {
    let [a, b, c, d] = c.registers();
    (a + b + c + d) as u32
}
#[inline(always)]
#[cfg(target_arch = "nvptx64")]
fn total_bits(c: &[u32; 4]) -> u32 {
    c[0] + c[1] + c[2] + c[3]
}

products! {
    /// Products of ones: 16 by 8 by 16 of f16.
    rate_mma_f16: mma::C::<f16>::zero(),
        |c| c.add_product(mma::A::from_registers([0x3c00_3c00; 4]), mma::B::from_registers([0x3c00_3c00; 2])), total_f16;
    /// Products of ones: 16 by 8 by 32 of bytes.
    rate_mma_s8: mma::C::<i8>::zero(),
        |c| c.add_product(mma::A::from_registers([0x0101_0101; 4]), mma::B::from_registers([0x0101_0101; 2])), total_i8;
    /// Products of ones: 16 by 8 by 128 of bits.
    rate_mma_b1: [0u32; 4], |c| *c = mma::mma_and_popc([!0; 2], !0, *c), total_bits;
}

/// Barriers of all blocks, one behind the other.
#[kernel(block = 256, min_blocks = 1)]
pub unsafe fn rate_grid_barrier(word: InOut<u32>, ticks: Out<u64>, barriers: u32) {
    sync::block();
    let before = thread::clock();
    let mut i = 0;
    while i < barriers {
        grid::sync(word.ptr_at(0));
        i += 1;
    }
    let after = thread::clock();
    if thread::idx_x() == 0 {
        ticks.set(block::idx_x() as usize, after.wrapping_sub(before));
    }
}

/// Each lane of a warp has four elements of each product: what it writes after `iterations` of products of depth `depth`.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn product_reference(depth: u32, iterations: u32) -> u32 {
    (4 * PRODUCTS as u32).wrapping_mul(depth).wrapping_mul(iterations)
}

#[cfg(not(target_arch = "nvptx64"))]
macro_rules! contracts {
    ($($Name:ident),*) => { $(
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                Geometry::blocks(self.ticks.len())
            }
            fn check(&self) -> Result<(), ContractError> {
                contract::within(Self::META, "ticks", self.ticks.len(), 1u32, 65535)?;
                contract::exactly(Self::META, "sums", self.sums.len(), (self.ticks.len() * THREADS as usize, "threads"))
            }
        }
    )* };
}
#[cfg(not(target_arch = "nvptx64"))]
contracts!(RateFfma, RateLop3, RatePopc, RateDp4a, RateShuffle, RateMmaF16, RateMmaS8, RateMmaB1);

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for RateGridBarrier<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::blocks(self.ticks.len()).cooperative()
    }
    fn check(&self) -> Result<(), ContractError> {
        contract::within(Self::META, "ticks", self.ticks.len(), 1u32, 65535)?;
        contract::exactly(Self::META, "word", self.word.len(), (1u32, "a counter"))
    }
}
