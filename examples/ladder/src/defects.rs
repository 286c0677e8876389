//! Planted mistakes, each with its mended twin: what the checks of the software driver find, and where they find nothing.
//!
//! A mistake ends its process, or spoils what comes after it: one a run.

use crate::Bench;
use ladder_kernels::defects::{
    Double, DoubleUnguarded, DoubleVectors, ReverseWithWait, ReverseWithoutWait, SumForAll, SumInBranch, Total,
    TotalUnwritten,
};
use ladder_kernels::race::SumRace;
use ladder_kernels::sum::SumShuffle;
use warpsmith_host::Error;

/// A mistake.
#[derive(Clone, Copy, Debug)]
pub struct Defect {
    /// Its name on the command line.
    pub name: &'static str,
    /// The rule that finds it.
    pub rule: &'static str,
    /// Runs it, or its mended twin.
    pub run: fn(&Bench, mended: bool) -> Result<(), Error>,
}

const fn defect(name: &'static str, rule: &'static str, run: fn(&Bench, bool) -> Result<(), Error>) -> Defect {
    Defect { name, rule, run }
}

/// All of them.
pub const DEFECTS: [Defect; 8] = [
    defect("out-of-bounds", "memory::out-of-bounds", out_of_bounds),
    defect("undefined", "init::output", undefined),
    defect("missing-barrier", "race::shared", missing_barrier),
    defect("divergence", "sync::barrier-divergence", divergence),
    defect("misaligned", "memory::misaligned", misaligned),
    defect("missing-wait", "async::missing-wait", missing_wait),
    defect("streams", "race::stream", streams),
    defect("leak", "memory::leak", leak),
];

fn out_of_bounds(bench: &Bench, mended: bool) -> Result<(), Error> {
    let mut x = bench.stream.upload(&[1.0f32; 100])?;
    if mended {
        bench.stream.launch(Double { x: &mut x, n: 100 })?;
    } else {
        bench.stream.launch(DoubleUnguarded { x: &mut x })?;
    }
    bench.stream.synchronize()
}

fn undefined(bench: &Bench, mended: bool) -> Result<(), Error> {
    let x = bench.stream.upload(&[1.0f32; 50])?;
    let mut y = bench.stream.zeros::<f32>(1)?;
    if mended {
        bench.stream.launch(Total { x: &x, y: &mut y, n: 50 })?;
    } else {
        bench.stream.launch(TotalUnwritten { x: &x, y: &mut y, n: 50 })?;
    }
    bench.stream.read(&y).map(drop)
}

fn missing_barrier(bench: &Bench, mended: bool) -> Result<(), Error> {
    let x = bench.stream.upload(&[1.0f32; 256])?;
    let mut y = bench.stream.zeros::<f32>(1)?;
    if mended {
        bench.stream.launch(SumShuffle { x: &x, y: &mut y, n: 256 })?;
    } else {
        bench.stream.launch(SumRace { x: &x, y: &mut y, n: 256 })?;
    }
    bench.stream.synchronize()
}

fn divergence(bench: &Bench, mended: bool) -> Result<(), Error> {
    let x = bench.stream.upload(&[1.0f32; 64])?;
    let mut y = bench.stream.zeros::<f32>(64)?;
    if mended {
        bench.stream.launch(SumForAll { x: &x, y: &mut y })?;
    } else {
        bench.stream.launch(SumInBranch { x: &x, y: &mut y })?;
    }
    bench.stream.synchronize()
}

fn misaligned(bench: &Bench, mended: bool) -> Result<(), Error> {
    let mut x = bench.stream.upload(&[1.0f32; 68])?;
    let first = if mended { 4 } else { 1 };
    bench.stream.launch(DoubleVectors { x: &mut x[first..], n: 64 })?;
    bench.stream.synchronize()
}

fn missing_wait(bench: &Bench, mended: bool) -> Result<(), Error> {
    let x = bench.stream.upload(&[1.0f32; 64])?;
    let mut y = bench.stream.zeros::<f32>(64)?;
    if mended {
        bench.stream.launch(ReverseWithWait { x: &x, y: &mut y })?;
    } else {
        bench.stream.launch(ReverseWithoutWait { x: &x, y: &mut y })?;
    }
    bench.stream.synchronize()
}

fn streams(bench: &Bench, mended: bool) -> Result<(), Error> {
    let (one, two) = (&bench.stream, bench.device.stream()?);
    let mut x = one.upload(&[1.0f32; 64])?;
    let mut y = two.zeros::<f32>(64)?;
    one.launch(Double { x: &mut x, n: 64 })?;
    if mended {
        two.copy(&x, &mut y)?;
    } else {
        // A copy by other code, behind the back of the host crate, which would make it wait for `x`.
        // SAFETY: 256 bytes each, and both live until `two` has been waited for.
        unsafe { cuMemcpyDtoDAsync_v2(y.address().raw(), x.address().raw(), 256, two.raw()) };
    }
    two.synchronize()
}

fn leak(bench: &Bench, mended: bool) -> Result<(), Error> {
    let mut kept = Vec::new();
    for _ in 0..3 {
        kept.push(bench.stream.upload(&[1.0f32; 64])?);
    }
    if !mended {
        std::mem::forget(kept);
    }
    bench.stream.synchronize()
}

unsafe extern "C" {
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: *mut std::ffi::c_void) -> i32;
}
