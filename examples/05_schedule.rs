//! Results that depend on the order in which blocks run, though no two accesses race: atomics order nothing.
//!
//! ```text
//! cargo run --release -- check --seeds 8 -- target/release/examples/05_schedule            # a sum of integers
//! cargo run --release -- check --seeds 8 -- target/release/examples/05_schedule tickets     # places that a counter gives out
//! cargo run --release -- check --seeds 8 -- target/release/examples/05_schedule floats      # a sum of floats
//! cargo run --release -- check --seeds 8 -- target/release/examples/05_schedule clock       # not the schedule's doing
//! ```
//!
//! Two threads of the host do so at once, each on memory of its own.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

use warpsmith::driver::*;

mod support;
use support::{function, ok, start};

const BLOCKS: u32 = 4;
const THREADS: u32 = 64;

/// Memory: a counter or sum, and a word for each thread behind it.
const PTX: &CStr = c"
.version 8.0
.target sm_75
.address_size 64
.visible .entry integers(.param .u64 x)
{
  .reg .b32 %r<6>;
  .reg .b64 %rd<4>;
  ld.param.b64 %rd1, [x];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r1, %r2, %r3;
  atom.global.add.u32 %r5, [%rd1], %r4;
  ret;
}
.visible .entry tickets(.param .u64 x)
{
  .reg .b32 %r<6>;
  .reg .b64 %rd<4>;
  ld.param.b64 %rd1, [x];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r1, %r2, %r3;
  atom.global.add.u32 %r5, [%rd1], 1;
  mul.wide.u32 %rd2, %r5, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3+4], %r4;
  ret;
}
.visible .entry floats(.param .u64 x)
{
  .reg .b32 %r<6>;
  .reg .b64 %rd<4>;
  .reg .f32 %f<4>;
  ld.param.b64 %rd1, [x];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r1, %r2, %r3;
  cvt.rn.f32.u32 %f1, %r4;
  mul.f32 %f1, %f1, 0f3E99999A;
  ex2.approx.ftz.f32 %f2, %f1;
  atom.global.add.f32 %f3, [%rd1], %f2;
  ret;
}
";

/// Launches the kernel and reads what it left behind.
fn work(context: CUcontext, module: CUmodule, kernel: &CStr, first: u32) -> Result<Vec<u32>, String> {
    let mut words = vec![0u32; 1 + (BLOCKS * THREADS) as usize];
    words.fill(first);
    let (bytes, mut address) = (4 * words.len(), 0);
    // SAFETY: the out-pointer is to a live variable, host ranges have `bytes` bytes, and the kernel takes one address.
    unsafe {
        ok("cuCtxSetCurrent", cuCtxSetCurrent(context))?;
        let kernel = function(module, kernel)?;
        ok("cuMemAlloc", cuMemAlloc_v2(&mut address, bytes))?;
        ok("cuMemcpyHtoD", cuMemcpyHtoD_v2(address, words.as_ptr().cast(), bytes))?;
        let mut arguments = [std::ptr::from_mut(&mut address).cast::<c_void>()];
        let (stream, none) = (CUstream::NULL, null_mut());
        let launched = cuLaunchKernel(kernel, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, arguments.as_mut_ptr(), none);
        ok("cuLaunchKernel", launched)?;
        ok("cuMemcpyDtoH", cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), address, bytes))?;
        ok("cuMemFree", cuMemFree_v2(address))?;
    }
    Ok(words)
}

fn main() -> Result<(), String> {
    let mode = std::env::args().nth(1).unwrap_or_default();
    let kernel = match mode.as_str() {
        "tickets" => c"tickets",
        "floats" => c"floats",
        _ => c"integers",
    };
    // A first word that is another one in every run.
    let first = if mode == "clock" { std::process::id() } else { 0 };
    let (context, module) = start(PTX)?;
    let run = || work(context, module, kernel, first);
    let (here, there) = std::thread::scope(|scope| {
        let there = scope.spawn(run);
        (run(), there.join())
    });
    let (here, there) = (here?, there.map_err(|_| "the other thread panicked")??);
    let n = BLOCKS * THREADS;
    let right = |words: &[u32]| match (mode.as_str(), words.split_first()) {
        ("tickets", Some((count, places))) => {
            let mut sorted = places.to_vec();
            sorted.sort_unstable();
            *count == n && sorted.iter().copied().eq(0..n)
        }
        ("floats", Some((sum, _))) => f32::from_bits(*sum) > 0.0,
        (_, Some((sum, _))) => *sum == first.wrapping_add(n * (n - 1) / 2),
        (_, None) => false,
    };
    if !right(&here) || !right(&there) {
        return Err("the result is wrong".to_owned());
    }
    println!("PASS");
    Ok(())
}
