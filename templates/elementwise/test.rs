//! The kernel against its reference, under all checks.

use kernels::saxpy::{Saxpy, THREADS, reference};
use warpsmith_host::driver::software::{self, Checks};
use warpsmith_host::{Device, Error, KernelImage, include_kernels};

static KERNELS: KernelImage = include_kernels!("kernels");

#[test]
fn saxpy_is_its_reference() -> Result<(), Error> {
    // While this guard lives, a finding of the software driver (out of bounds, undefined data, a race, …) is an error
    // of the next `?`. On a GPU it does nothing.
    let _checks = software::check(Checks::ALL);
    let device = Device::open(0)?;
    device.load(&KERNELS)?;
    let stream = device.stream()?;
    // Around the end of a block, and many blocks.
    for n in [1, 31, THREADS - 1, THREADS, THREADS + 1, 10_000] {
        let xs: Vec<f32> = (0..n).map(|i| (i as f32 * 0.37).sin()).collect();
        let ys: Vec<f32> = (0..n).map(|i| (i as f32 * 0.11).cos()).collect();
        let x = stream.upload(&xs)?;
        let mut y = stream.upload(&ys)?;
        stream.launch(Saxpy { x: &x, y: &mut y, a: 1.7, n })?;
        for (i, (got, want)) in stream.read(&y)?.iter().zip(reference(1.7, &xs, &ys)).enumerate() {
            // Rounded once, so within half a unit in the last place of f32; values are below 3.
            let error = (f64::from(*got) - want).abs();
            assert!(error <= f64::from(f32::EPSILON), "n = {n}: y[{i}] = {got}, not {want}");
        }
    }
    Ok(())
}

#[test]
fn saxpy_refuses_a_short_buffer() -> Result<(), Error> {
    let device = Device::open(0)?;
    device.load(&KERNELS)?;
    let stream = device.stream()?;
    let x = stream.zeros::<f32>(10)?;
    let mut y = stream.zeros::<f32>(10)?;
    let refused = stream.launch(Saxpy { x: &x, y: &mut y, a: 1.0, n: 11 });
    assert!(matches!(refused, Err(Error::Contract(_))), "{refused:?}");
    Ok(())
}
