//! The kernel against its reference, under all checks.

use kernels::matmul::{Matmul, TILE, reference};
use warpsmith_host::driver::software::{self, Checks};
use warpsmith_host::{Device, Error, KernelImage, include_kernels};

static KERNELS: KernelImage = include_kernels!("kernels");

#[test]
fn matmul_is_its_reference() -> Result<(), Error> {
    // While this guard lives, a finding of the software driver (out of bounds, undefined data, a
    // race, …) is an error of the next `?`. On a GPU it does nothing.
    let _checks = software::check(Checks::ALL);
    let device = Device::open(0)?;
    device.load(&KERNELS)?;
    let stream = device.stream()?;
    // One element; a whole tile; tiles that reach past an edge, in each direction and in all.
    for (m, n, k) in [(1, 1, 1), (TILE, TILE, TILE), (17, 5, 3), (3, 33, 16), (20, 40, 37)] {
        let a_host: Vec<f32> = (0..m * k).map(|i| (i as f32 * 0.37).sin()).collect();
        let b_host: Vec<f32> = (0..k * n).map(|i| (i as f32 * 0.11).cos()).collect();
        let (a, b) = (stream.upload(&a_host)?, stream.upload(&b_host)?);
        // What is not written stays NaN, which is near to nothing.
        let mut c = stream.upload(&vec![f32::NAN; (m * n) as usize])?;
        stream.launch(Matmul { a: &a, b: &b, c: &mut c, m, n, k })?;
        let wanted = reference(&a_host, &b_host, n, k);
        for (i, (got, (want, size))) in stream.read(&c)?.iter().zip(wanted).enumerate() {
            let error = (f64::from(*got) - want).abs();
            assert!(error <= 1e-5 * size, "{m} x {n} x {k}: c[{i}] = {got}, not {want}");
        }
    }
    Ok(())
}

#[test]
fn matmul_refuses_matrices_that_do_not_fit() -> Result<(), Error> {
    let device = Device::open(0)?;
    device.load(&KERNELS)?;
    let stream = device.stream()?;
    let (a, b) = (stream.zeros::<f32>(6)?, stream.zeros::<f32>(6)?);
    let mut c = stream.zeros::<f32>(4)?;
    let refused = stream.launch(Matmul { a: &a, b: &b, c: &mut c, m: 2, n: 2, k: 4 });
    assert!(matches!(refused, Err(Error::Contract(_))), "{refused:?}");
    Ok(())
}
