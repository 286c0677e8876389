//! What the kernel costs: device time on a GPU, counted instructions on the software driver.
//!
//! Outputs are compared with the reference first; what is wrong is not measured. A variant of the
//! kernel goes beside the first, in the same group.

use std::process::ExitCode;

use kernels::sum::{Sum, reference};
use warpsmith_bench::{Harness, Noise, Output, Run, Work};
use warpsmith_host::device::Launcher;
use warpsmith_host::{KernelImage, include_kernels};

static KERNELS: KernelImage = include_kernels!("kernels");

fn main() -> ExitCode {
    Harness::new("sum", &KERNELS).run(|bench| {
        for n in [1u32 << 10, 1 << 14] {
            // One vector in is what no kernel can do without.
            let work = Work { elements: n.into(), floor_bytes: 4 * u64::from(n) };
            bench
                .group(format!("sum/{n}"), work)
                .variant("block_reduce", |stream| {
                    let xs = Noise(1).floats(n as usize);
                    // Four elements a thread.
                    let blocks = n as usize / 1024;
                    let (want, size) = reference(&xs);
                    Ok(Run::launches(
                        (stream.upload(&xs)?, stream.zeros::<f32>(blocks)?),
                        move |(x, y), on, _| on.launch(Sum { x, y, n }),
                        // After the first launch: the sums of blocks have the sum of all.
                        move |(_, y), stream| {
                            let total: f64 = stream.read(y)?.iter().map(|y| f64::from(*y)).sum();
                            Ok(vec![Output::near("sum", &[total as f32], &[want], |_| 1e-5 * size)])
                        },
                    ))
                })
                .measure();
        }
        Ok(())
    })
}
