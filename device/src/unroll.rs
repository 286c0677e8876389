//! Loops that are unrolled, and loops that are not.
//!
//! A loop whose number of turns is a constant (a literal, a `const`, a const generic) is unrolled as a whole, up to some
//! thousand instructions, and arrays that it indexes stay in registers: no annotation is needed. For other loops:
//!
//! * [`unroll!`](crate::unroll!) makes several turns one, so that their loads are under way together (`#pragma unroll 4`);
//! * [`no_unroll`] in the body and [`opaque`] in the condition keep a loop as it is (`#pragma unroll 1`):
//!
//! ```
//! # #![cfg_attr(target_arch = "nvptx64", no_std)]
//! # use warpsmith_device::prelude::*;
//! /// y[t] = Σ_i x[i + t], a turn at a time.
//! #[kernel(block = 256)]
//! pub unsafe fn windows(x: In<f32>, y: Out<f32>, n: u32) {
//!     let (t, n, mut i, mut sum) = (thread::global_x(), n as usize, 0, 0.0);
//!     while i < unroll::opaque(n) {
//!         unroll::no_unroll();
//!         sum += x.at(i + t);
//!         i += 1;
//!     }
//!     y.set(t, sum);
//! }
//! # fn main() {}
//! ```
//!
//! * [`static_for!`](crate::static_for!) writes the turns out for a generator that leaves long bodies in a loop, as rust-cuda does.
//!
//! `ptxas` unrolls loops of its own accord where their index is a `usize`.

/// A number that the compiler does not know, nor that it is the same next time: a loop that asks for its end in each turn is not
/// unrolled by LLVM. One `mov` a call, which `ptxas` removes.
#[inline(always)]
pub fn opaque(n: usize) -> usize {
    let hidden: usize;
    // SAFETY: copies a register. Not `pure`: each call stands for itself.
    unsafe {
        core::arch::asm!("mov.b64 {0}, {1};", lateout(reg64) hidden, in(reg64) n, options(nomem, nostack, preserves_flags));
    }
    hidden
}

/// Keeps `ptxas` from unrolling the loop in whose body it stands first, to save instructions and registers; [`opaque`] keeps LLVM
/// from it.
#[inline(always)]
pub fn no_unroll() {
    // SAFETY: a directive of the assembler, not an instruction.
    unsafe { core::arch::asm!(".pragma \"nounroll\";", options(nomem, nostack, preserves_flags)) }
}

/// `for i in (from..to).step_by(step)`, `FACTOR` turns at a time and the rest one by one.
///
/// ```
/// # #![cfg_attr(target_arch = "nvptx64", no_std)]
/// # use warpsmith_device::prelude::*;
/// /// z[t] = Σ_k x[256 k + t] y[256 k + t].
/// #[kernel(block = 256)]
/// pub unsafe fn columns(x: In<f32>, y: In<f32>, z: Out<f32>, n: u32) {
///     let (t, n, mut sum) = (thread::idx_x() as usize, n as usize, 0.0);
///     unroll!(4, i in t, n, 256 => {
///         sum = math::fma(x.at(i), y.at(i), sum);
///     });
///     z.set(t, sum);
/// }
/// # fn main() {}
/// ```
///
/// `FACTOR` is a constant; the indices are `usize`, and `to + FACTOR * step` does not overflow. `continue` goes on with the
/// next turn, but then the compiler may leave the turns of a group in a loop; `break` leaves a group of turns only. Costs the body twice in code: once `FACTOR` times,
/// once for the rest.
#[macro_export]
macro_rules! unroll {
    ($factor:expr, $i:ident in $from:expr, $to:expr, $step:expr => $body:block) => {{
        const FACTOR: usize = $factor;
        const { assert!(FACTOR > 0, "a loop is unrolled at least once") };
        let (mut at, to, step): (usize, usize, usize) = ($from, $to, $step);
        while at + (FACTOR - 1) * step < to {
            for turn in 0..FACTOR {
                let $i = at + turn * step;
                $body
            }
            at += FACTOR * step;
        }
        while at < to {
            for _ in 0..1 {
                let $i = at;
                $body
            }
            at += step;
        }
    }};
}
