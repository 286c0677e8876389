//! The grid: how many blocks the launch has, a barrier of all of them, and its place between other launches.
//!
//! | | cost | needs |
//! |---|---|---|
//! | [`sync`] | two barriers of the block, and for one thread an atomic and loads until the last block has come: about a microsecond | [`Geometry::cooperative`](crate::launch::Geometry::cooperative) |
//! | [`wait_dependencies`], [`launch_dependents`] | 1 from sm_90 on, nothing before | [`Geometry::programmatic`](crate::launch::Geometry::programmatic) on the launch behind |
//!
//! ```
//! # #![cfg_attr(target_arch = "nvptx64", no_std)]
//! # use warpsmith_device::prelude::*;
//! /// x = x², and y is that backwards; `word` was zero before the first launch.
//! #[kernel(block = 256)]
//! pub unsafe fn squares_backwards(x: InOut<f32>, y: Out<f32>, word: InOut<u32>) {
//!     let (i, n) = (thread::global_x(), thread::global_dim_x());
//!     x.set(i, x.get(i) * x.get(i));
//!     grid::sync(word.ptr_at(0));
//!     y.set(i, x.get(n - 1 - i));
//! }
//!
//! #[cfg(not(target_arch = "nvptx64"))]
//! impl Contract for SquaresBackwards<'_> {
//!     fn geometry(&self) -> Geometry {
//!         Geometry::blocks(self.x.len() / 256).cooperative()
//!     }
//!     fn check(&self) -> Result<(), ContractError> {
//!         contract::multiple_of(Self::META, "x", self.x.len(), 256u32)?;
//!         contract::at_least(Self::META, "y", self.y.len(), (self.x.len(), "x"))?;
//!         contract::exactly(Self::META, "word", self.word.len(), 1u32)
//!     }
//! }
//! # fn main() {}
//! ```

use crate::{
    atomic::{self, Order, Scope},
    sync as barriers,
};
#[cfg(target_arch = "nvptx64")]
use core::arch::{asm, nvptx};

/// Blocks in x.
#[inline(always)]
pub fn dim_x() -> u32 {
    // SAFETY: reads a special register.
    unsafe { nvptx::_grid_dim_x() as u32 }
}

/// Blocks in y.
#[inline(always)]
pub fn dim_y() -> u32 {
    // SAFETY: reads a special register.
    unsafe { nvptx::_grid_dim_y() as u32 }
}

/// Blocks in z.
#[inline(always)]
pub fn dim_z() -> u32 {
    // SAFETY: reads a special register.
    unsafe { nvptx::_grid_dim_z() as u32 }
}

/// Blocks in all.
#[inline(always)]
pub fn blocks() -> usize {
    dim_x() as usize * dim_y() as usize * dim_z() as usize
}

/// Waits until every thread of every block has come here; what they wrote before, all read behind.
///
/// `word` counts the blocks. It is zero before the first launch that uses it, and may then be used again and again, by any number
/// of barriers, launches and replays of a graph, as long as no two run at the same time: each barrier leaves its upper bit
/// flipped and the others zero.
///
/// All blocks have to be on the GPU at the same time: the launch is [cooperative](crate::launch::Geometry::cooperative), which
/// is checked on the host, as is that so many blocks fit. Loads behind it that must see what other blocks wrote are not those
/// of an [`In`](crate::In), which may be cached.
///
/// # Safety
/// All threads of the grid make this call, and `word` is aligned, in global memory, and used by nothing else meanwhile.
#[cfg_attr(target_arch = "nvptx64", rustc_force_inline)]
pub unsafe fn sync(word: *mut u32) {
    const UPPER: u32 = 1 << 31;
    // The builder finds the name and writes into the manifest that the launch has to be cooperative.
    // SAFETY: declares a register.
    #[cfg(target_arch = "nvptx64")]
    unsafe {
        asm!("{{ .reg .b32 warpsmith_grid_barrier; }}", options(nomem, nostack, preserves_flags))
    };
    // SAFETY: the caller's promises.
    unsafe {
        barriers::block();
        if thread_bits() == 0 {
            // One block adds what is missing to 2^31: the upper bit flips when all have come, and the rest is zero again.
            let part = if block_bits() == 0 { UPPER - (blocks_anew() - 1) } else { 1 };
            let before = atomic::fetch_add(word, part, Order::AcqRel, Scope::Gpu);
            while (atomic::load(word, Order::Acquire, Scope::Gpu) ^ before) & UPPER == 0 {}
        }
        barriers::block();
    }
}

/// Of three special registers, read anew: what follows from them, kept over what lies between two barriers of a loop, would take
/// registers all the way.
macro_rules! of_three {
    ($($(#[$doc:meta])* $name:ident: $combine:literal of $register:literal;)*) => { $(
        $(#[$doc])*
        #[inline(always)]
        fn $name() -> u32 {
            let all: u32;
            // SAFETY: reads special registers.
            unsafe {
                core::arch::asm!(
                    concat!(
                        "{{ .reg .b32 t; mov.u32 {0}, %", $register, ".x; mov.u32 t, %", $register, ".y; ",
                        $combine, " {0}, {0}, t; mov.u32 t, %", $register, ".z; ", $combine, " {0}, {0}, t; }}"
                    ),
                    lateout(reg32) all,
                    options(nomem, nostack, preserves_flags)
                );
            }
            all
        }
    )* };
}

of_three! {
    /// 0 in the first thread of a block.
    thread_bits: "or.b32" of "tid";
    /// 0 in the first block.
    block_bits: "or.b32" of "ctaid";
    /// As [`blocks`].
    blocks_anew: "mul.lo.u32" of "nctaid";
}

/// Multiprocessors that the device numbers (`%nsmid`): at least as many as it has. Which blocks run on which is nowhere promised; what a
/// kernel makes of the number should be a matter of time alone.
#[inline(always)]
pub fn multiprocessors() -> u32 {
    let n: u32;
    // SAFETY: reads a special register.
    unsafe {
        core::arch::asm!("mov.u32 {0}, %nsmid;", lateout(reg32) n, options(pure, nomem, nostack, preserves_flags))
    };
    n
}

/// Waits until the launches before this one on its stream have finished, and makes what they wrote visible
/// (`griddepcontrol.wait`): before it, a launch that is [programmatic](crate::launch::Geometry::programmatic) may run beside
/// them, and must touch nothing that they write and write nothing that they touch. Where kernels call
/// [`launch_dependents`] behind their wait, that is the launch right before alone.
///
/// Every thread that touches such memory calls it; what it reads of them it takes as [`Awaited`](crate::Awaited), as loads of an
/// [`In`](crate::In) may be moved before the call. A launch that never waits would let the launch behind it run beside the one
/// before, so programmatic launches of kernels without this call are refused. Nothing to wait for under any other launch, and no
/// instruction before sm_90.
#[inline(always)]
pub fn wait_dependencies() {
    // SAFETY: waits; accesses behind it may not be moved before it (no `nomem`).
    #[cfg(target_feature = "sm_90")]
    unsafe {
        asm!("griddepcontrol.wait;", options(nostack))
    };
}

/// Lets the next launch of the stream start, if it is programmatic, as soon as every block has called this or ended
/// (`griddepcontrol.launch_dependents`). It orders nothing: what this kernel writes, also before the call, is seen behind
/// [`wait_dependencies`] only.
///
/// Called behind this kernel's own wait, on every way through it, it promises the next launch that all before this one is complete
/// when it begins. Called in front of that, it lets the next one begin while even earlier ones run. The race check of the software
/// driver tells the two apart. No instruction before sm_90.
#[inline(always)]
pub fn launch_dependents() {
    // SAFETY: accesses nothing.
    #[cfg(target_feature = "sm_90")]
    unsafe {
        asm!("griddepcontrol.launch_dependents;", options(nostack))
    };
}
