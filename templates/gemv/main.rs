//! Multiplies a matrix and a vector.

use kernels::gemv::{Gemv, reference};
use warpsmith_host::{Device, Error, KernelImage, include_kernels};

static KERNELS: KernelImage = include_kernels!("kernels");

fn main() -> Result<(), Error> {
    let device = Device::open(0)?;
    device.load(&KERNELS)?;
    println!("engine: {}", device.engine());

    let (rows, cols) = (100, 512);
    let ws: Vec<f32> = (0..rows * cols).map(|i| (i as f32 * 0.01).sin()).collect();
    let xs: Vec<f32> = (0..cols).map(|i| (i as f32 * 0.1).cos()).collect();

    let stream = device.stream()?;
    let (w, x) = (stream.upload(&ws)?, stream.upload(&xs)?);
    let mut y = stream.zeros::<f32>(rows as usize)?;
    stream.launch(Gemv { w: &w, x: &x, y: &mut y, rows, cols })?;
    let got = stream.read(&y)?;

    println!("y[99] = {}, and should be {}", got[99], reference(&ws, &xs)[99].0);
    Ok(())
}
