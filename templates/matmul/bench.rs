//! What the kernel costs: device time on a GPU, counted instructions on the software driver.
//!
//! Outputs are compared with the reference first; what is wrong is not measured. A variant of the
//! kernel goes beside the first, in the same group.

use std::process::ExitCode;

use kernels::matmul::{Matmul, reference};
use warpsmith_bench::{Harness, Noise, Output, Run, Work};
use warpsmith_host::device::Launcher;
use warpsmith_host::{KernelImage, include_kernels};

static KERNELS: KernelImage = include_kernels!("kernels");

fn main() -> ExitCode {
    Harness::new("matmul", &KERNELS).run(|bench| {
        for size in [32u32, 64] {
            let (m, n, k) = (size, size, size);
            let elements = (size * size) as usize;
            // Multiplications with addition; two matrices in and one out.
            let multiplications = u64::from(size).pow(3);
            let work = Work { elements: multiplications, floor_bytes: 12 * elements as u64 };
            bench
                .group(format!("matmul/{size}"), work)
                .variant("tiles of 16", |stream| {
                    let (a, b) = (Noise(1).floats(elements), Noise(2).floats(elements));
                    let (want, sizes): (Vec<f64>, Vec<f64>) = reference(&a, &b, n, k).into_iter().unzip();
                    let c = stream.zeros::<f32>(elements)?;
                    Ok(Run::launches(
                        (stream.upload(&a)?, stream.upload(&b)?, c),
                        move |(a, b, c), on, _| on.launch(Matmul { a, b, c, m, n, k }),
                        // After the first launch.
                        move |(_, _, c), stream| {
                            let got = stream.read(c)?;
                            Ok(vec![Output::near("c", &got, &want, |i| 1e-5 * sizes[i])])
                        },
                    ))
                })
                .measure();
        }
        Ok(())
    })
}
