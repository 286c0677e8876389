//! What the kernel costs: device time on a GPU, counted instructions on the software driver.
//!
//! Outputs are compared with the reference first; what is wrong is not measured. A variant of the kernel goes beside the
//! first, in the same group.

use std::process::ExitCode;

use kernels::saxpy::{Saxpy, reference};
use warpsmith_bench::{Harness, Noise, Output, Run, Work};
use warpsmith_host::device::Launcher;
use warpsmith_host::{KernelImage, include_kernels};

static KERNELS: KernelImage = include_kernels!("kernels");

fn main() -> ExitCode {
    Harness::new("saxpy", &KERNELS).run(|bench| {
        for n in [1u32 << 10, 1 << 14] {
            // Two vectors in and one out are what no kernel can do without.
            let work = Work { elements: n.into(), floor_bytes: 12 * u64::from(n) };
            bench
                .group(format!("saxpy/{n}"), work)
                .variant("a thread an element", |stream| {
                    let a = 1.7;
                    let (xs, ys) = (Noise(1).floats(n as usize), Noise(2).floats(n as usize));
                    let want = reference(a, &xs, &ys);
                    Ok(Run::launches(
                        (stream.upload(&xs)?, stream.upload(&ys)?),
                        move |(x, y), on, _| on.launch(Saxpy { x, y, a, n }),
                        // After the first launch. It rounds once, and values are below 3.
                        move |(_, y), stream| {
                            let got = stream.read(y)?;
                            Ok(vec![Output::near("y", &got, &want, |_| f64::from(f32::EPSILON))])
                        },
                    ))
                })
                .measure();
        }
        Ok(())
    })
}
