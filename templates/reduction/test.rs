//! The kernel against its reference, under all checks.

use kernels::sum::{Sum, THREADS, reference};
use warpsmith_host::driver::software::{self, Checks};
use warpsmith_host::{Device, Error, KernelImage, include_kernels};

static KERNELS: KernelImage = include_kernels!("kernels");

#[test]
fn sum_is_its_reference() -> Result<(), Error> {
    // While this guard lives, a finding of the software driver (out of bounds, undefined data, a
    // race, …) is an error of the next `?`. On a GPU it does nothing.
    let _checks = software::check(Checks::ALL);
    let device = Device::open(0)?;
    device.load(&KERNELS)?;
    let stream = device.stream()?;
    // Around the end of a block, and several elements a thread.
    for n in [0, 1, 31, THREADS - 1, THREADS, THREADS + 1, 10_000] {
        let xs: Vec<f32> = (0..n).map(|i| (i as f32 * 0.37).sin()).collect();
        let x = stream.upload(&xs)?;
        // What is not written stays NaN, which is near to nothing.
        let mut sums = stream.upload(&[f32::NAN; 5])?;
        let mut total = stream.upload(&[f32::NAN])?;
        stream.launch(Sum { x: &x, y: &mut sums, n })?;
        stream.launch(Sum { x: &sums, y: &mut total, n: 5 })?;
        let got = stream.read(&total)?[0];
        let (want, size) = reference(&xs);
        let error = (f64::from(got) - want).abs();
        assert!(error <= 1e-5 * size, "n = {n}: the sum is {got}, not {want}");
    }
    Ok(())
}

#[test]
fn sum_refuses_a_short_buffer() -> Result<(), Error> {
    let device = Device::open(0)?;
    device.load(&KERNELS)?;
    let stream = device.stream()?;
    let x = stream.zeros::<f32>(10)?;
    let mut y = stream.zeros::<f32>(1)?;
    let refused = stream.launch(Sum { x: &x, y: &mut y, n: 11 });
    assert!(matches!(refused, Err(Error::Contract(_))), "{refused:?}");
    Ok(())
}
