//! The kernel against its reference, under all checks.

use kernels::gemv::{Gemv, ROWS, reference};
use warpsmith_host::driver::software::{self, Checks};
use warpsmith_host::{Device, Error, KernelImage, include_kernels};

static KERNELS: KernelImage = include_kernels!("kernels");

#[test]
fn gemv_is_its_reference() -> Result<(), Error> {
    // While this guard lives, a finding of the software driver (out of bounds, undefined data, a
    // race, …) is an error of the next `?`. On a GPU it does nothing.
    let _checks = software::check(Checks::ALL);
    let device = Device::open(0)?;
    device.load(&KERNELS)?;
    let stream = device.stream()?;
    // Rows around the end of a block; columns for one lane, for all, and for a part in the end.
    for (rows, cols) in [(1, 4), (ROWS - 1, 128), (ROWS, 132), (ROWS + 1, 1000), (65, 256)] {
        let ws: Vec<f32> = (0..rows * cols).map(|i| (i as f32 * 0.37).sin()).collect();
        let xs: Vec<f32> = (0..cols).map(|i| (i as f32 * 0.11).cos()).collect();
        let (w, x) = (stream.upload(&ws)?, stream.upload(&xs)?);
        // What is not written stays NaN, which is near to nothing.
        let mut y = stream.upload(&vec![f32::NAN; rows as usize])?;
        stream.launch(Gemv { w: &w, x: &x, y: &mut y, rows, cols })?;
        for (r, (got, (want, size))) in stream.read(&y)?.iter().zip(reference(&ws, &xs)).enumerate() {
            let error = (f64::from(*got) - want).abs();
            assert!(error <= 1e-5 * size, "{rows} x {cols}: y[{r}] = {got}, not {want}");
        }
    }
    Ok(())
}

#[test]
fn gemv_refuses_columns_that_are_no_multiple_of_4() -> Result<(), Error> {
    let device = Device::open(0)?;
    device.load(&KERNELS)?;
    let stream = device.stream()?;
    let (w, x) = (stream.zeros::<f32>(10)?, stream.zeros::<f32>(5)?);
    let mut y = stream.zeros::<f32>(2)?;
    let refused = stream.launch(Gemv { w: &w, x: &x, y: &mut y, rows: 2, cols: 5 });
    assert!(matches!(refused, Err(Error::Contract(_))), "{refused:?}");
    Ok(())
}
