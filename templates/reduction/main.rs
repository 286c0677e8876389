//! Sums a vector in two launches.

use kernels::sum::{Sum, reference};
use warpsmith_host::{Device, Error, KernelImage, include_kernels};

static KERNELS: KernelImage = include_kernels!("kernels");

fn main() -> Result<(), Error> {
    let device = Device::open(0)?;
    device.load(&KERNELS)?;
    println!("engine: {}", device.engine());

    let n = 100_000;
    let blocks = 64;
    let xs: Vec<f32> = (0..n).map(|i| (i as f32 * 0.01).sin()).collect();

    let stream = device.stream()?;
    let x = stream.upload(&xs)?;
    let mut sums = stream.zeros::<f32>(blocks as usize)?;
    let mut total = stream.zeros::<f32>(1)?;
    stream.launch(Sum { x: &x, y: &mut sums, n })?;
    stream.launch(Sum { x: &sums, y: &mut total, n: blocks })?;
    let got = stream.read(&total)?;

    println!("sum = {}, and should be {}", got[0], reference(&xs).0);
    Ok(())
}
