//! Multiplies two matrices.

use kernels::matmul::{Matmul, reference};
use warpsmith_host::{Device, Error, KernelImage, include_kernels};

static KERNELS: KernelImage = include_kernels!("kernels");

fn main() -> Result<(), Error> {
    let device = Device::open(0)?;
    device.load(&KERNELS)?;
    println!("engine: {}", device.engine());

    let (m, n, k) = (40, 50, 60);
    let a_host: Vec<f32> = (0..m * k).map(|i| (i as f32 * 0.01).sin()).collect();
    let b_host: Vec<f32> = (0..k * n).map(|i| (i as f32 * 0.1).cos()).collect();

    let stream = device.stream()?;
    let (a, b) = (stream.upload(&a_host)?, stream.upload(&b_host)?);
    let mut c = stream.zeros::<f32>((m * n) as usize)?;
    stream.launch(Matmul { a: &a, b: &b, c: &mut c, m, n, k })?;
    let got = stream.read(&c)?;

    let want = reference(&a_host, &b_host, n, k);
    println!("c[39, 49] = {}, and should be {}", got[1999], want[1999].0);
    Ok(())
}
