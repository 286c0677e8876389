//! Launches the kernel once.

use kernels::saxpy::{Saxpy, reference};
use warpsmith_host::{Device, Error, KernelImage, include_kernels};

static KERNELS: KernelImage = include_kernels!("kernels");

fn main() -> Result<(), Error> {
    let device = Device::open(0)?;
    device.load(&KERNELS)?;
    println!("engine: {}", device.engine());

    let n = 1000;
    let a = 2.0;
    let xs: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let ys = vec![1.0; xs.len()];

    let stream = device.stream()?;
    let x = stream.upload(&xs)?;
    let mut y = stream.upload(&ys)?;
    stream.launch(Saxpy { x: &x, y: &mut y, a, n })?;
    let got = stream.read(&y)?;

    println!("y[999] = {}, and should be {}", got[999], reference(a, &xs, &ys)[999]);
    Ok(())
}
