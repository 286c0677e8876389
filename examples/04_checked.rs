//! A kernel with a mistake, for the checker to find, and without it.
//!
//! ```text
//! cargo run --release -- check -- target/release/examples/04_checked          # clean
//! cargo run --release -- check -- target/release/examples/04_checked defect      # an access behind a buffer
//! cargo run --release -- check -- target/release/examples/04_checked undefined   # a copy of what nobody has written
//! cargo run --release -- check -- target/release/examples/04_checked leak        # memory that nobody frees
//! ```
//!
//! The kernel is PTX with line directives, as a compiler writes them, and the calls are those of the driver API: what the
//! checker needs of a program is no more than that.

use std::ffi::c_void;
use std::ptr::null_mut;

use warpsmith::driver::*;

mod support;
use support::{function, ok, start};

/// `double.rs`: line 9 is the load, line 10 the store.
const PTX: &std::ffi::CStr = c"
.version 8.0
.target sm_75
.address_size 64
.visible .entry double(.param .u64 x)
{
  .reg .b32 %r<5>;
  .reg .b64 %rd<4>;
  .reg .f32 %f<3>;
  .loc 1 8 5
  ld.param.b64 %rd1, [x];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r1, %r2, %r3;
  mul.wide.u32 %rd2, %r4, 4;
  add.s64 %rd3, %rd1, %rd2;
  .loc 1 9 13
  ld.global.f32 %f1, [%rd3];
  .loc 1 10 9
  add.rn.f32 %f2, %f1, %f1;
  st.global.f32 [%rd3], %f2;
  ret;
}
.file 1 \"src/double.rs\"
";

fn main() -> Result<(), String> {
    // Two blocks of 64 threads, and nobody asks whether the index is below `n`.
    let asked = |mode: &str| std::env::args().any(|a| a == mode);
    let n: usize = if asked("defect") { 100 } else { 128 };
    let (mut data, input) = (vec![0.0f32; n + 1], (0..n).map(|i| i as f32).collect::<Vec<_>>());
    let bytes = 4 * n;
    // One element more than anybody writes.
    let whole = if asked("undefined") { bytes + 4 } else { bytes };
    let (_, module) = start(PTX)?;
    let kernel = function(module, c"double")?;
    let mut address = 0;
    // SAFETY: the out-pointer is to a live variable, host ranges have `bytes` bytes, and the kernel takes one address.
    unsafe {
        ok("cuMemAlloc", cuMemAlloc_v2(&mut address, whole))?;
        ok("cuMemcpyHtoD", cuMemcpyHtoD_v2(address, input.as_ptr().cast(), bytes))?;
        let mut arguments = [std::ptr::from_mut(&mut address).cast::<c_void>()];
        let stream = CUstream::NULL;
        let launched = cuLaunchKernel(kernel, 2, 1, 1, 64, 1, 1, 0, stream, arguments.as_mut_ptr(), null_mut());
        ok("cuLaunchKernel", launched)?;
        ok("cuCtxSynchronize", cuCtxSynchronize())?;
        ok("cuMemcpyDtoH", cuMemcpyDtoH_v2(data.as_mut_ptr().cast(), address, whole))?;
        if !asked("leak") {
            ok("cuMemFree", cuMemFree_v2(address))?;
        }
    }
    if data.iter().take(n).enumerate().any(|(i, x)| *x != 2.0 * i as f32) {
        return Err("the result is wrong".to_owned());
    }
    println!("PASS");
    Ok(())
}
