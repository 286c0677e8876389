//! What the kernel costs: device time on a GPU, counted instructions on the software driver.
//!
//! Outputs are compared with the reference first; what is wrong is not measured. A variant of the
//! kernel goes beside the first, in the same group.

use std::process::ExitCode;

use kernels::gemv::{Gemv, reference};
use warpsmith_bench::{Harness, Noise, Output, Run, Work};
use warpsmith_host::device::Launcher;
use warpsmith_host::{KernelImage, include_kernels};

static KERNELS: KernelImage = include_kernels!("kernels");

fn main() -> ExitCode {
    Harness::new("gemv", &KERNELS).run(|bench| {
        for (rows, cols) in [(64u32, 512u32), (64, 1024)] {
            // The matrix and the vector in, and a vector out, are what no kernel can do without.
            let elements = u64::from(rows * cols);
            let work = Work { elements, floor_bytes: 4 * (elements + u64::from(cols + rows)) };
            bench
                .group(format!("gemv/{rows}x{cols}"), work)
                .variant("a warp a row", |stream| {
                    let ws = Noise(1).floats((rows * cols) as usize);
                    let xs = Noise(2).floats(cols as usize);
                    let (want, sizes): (Vec<f64>, Vec<f64>) = reference(&ws, &xs).into_iter().unzip();
                    let y = stream.zeros::<f32>(rows as usize)?;
                    Ok(Run::launches(
                        (stream.upload(&ws)?, stream.upload(&xs)?, y),
                        move |(w, x, y), on, _| on.launch(Gemv { w, x, y, rows, cols }),
                        // After the first launch.
                        move |(_, _, y), stream| {
                            let got = stream.read(y)?;
                            Ok(vec![Output::near("y", &got, &want, |r| 1e-5 * sizes[r])])
                        },
                    ))
                })
                .measure();
        }
        Ok(())
    })
}
