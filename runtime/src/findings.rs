//! Findings of the software driver's checks, as errors.
//!
//! While a thread is checked (`WARPSMITH_CHECK`, or [`check`](warpsmith_driver_api::software::check) in a test), the calls
//! that wait for the device, [`Stream::synchronize`](crate::Stream::synchronize), [`Stream::read`](crate::Stream::read),
//! [`Stream::read_into`](crate::Stream::read_into) and [`Device::synchronize`](crate::Device::synchronize), answer
//! [`Error::Findings`] if the checks have found an error in what the thread did since it was last told. So a test of a kernel
//! fails at its `?`:
//!
//! ```no_run
//! use gpu_kernels::elementwise::ResidualAdd;
//! use warpsmith_driver_api::software;
//! use warpsmith_runtime::Device;
//!
//! # fn main() -> Result<(), warpsmith_runtime::Error> {
//! let _checked = software::check(software::Checks::ALL);
//! let device = Device::open(0)?;
//! let stream = device.stream()?;
//! let x = stream.upload(&[1.0f32; 100])?;
//! let mut y = stream.zeros::<f32>(100)?;
//! stream.launch(ResidualAdd { x: &x, residual: &x, y: &mut y, n: 100 })?;
//! stream.synchronize()?; // A race in the kernel would be an error here.
//! # Ok(())
//! # }
//! ```

use crate::Error;
use warpsmith_driver_api::software::{Severity, has_errors, take_findings};

/// Errors that the checks have found in what this thread did, and that it has not been told of. Warnings stay printed.
pub fn findings() -> Result<(), Error> {
    if !has_errors() {
        return Ok(());
    }
    let mut reports = take_findings();
    reports.retain(|r| r.finding.severity == Severity::Error);
    let text: Vec<String> = reports.iter().map(ToString::to_string).collect();
    Err(Error::Findings { count: reports.len(), text: text.join("\n") })
}
