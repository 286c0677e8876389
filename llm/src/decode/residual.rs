//! Launches that write the residual stream where no product can: embeddings that are scaled, and outputs that are normed before they
//! are added.

use gpu_kernels::residual::{NORMED, ToResidual};
use warpsmith_device::{DeviceSlice, Launcher};
use warpsmith_runtime::Error;

/// What such a launch prepares: the norm with weight `next`, as [`Gemv::next`](gpu_kernels::gemv::Gemv::next) does.
pub(super) struct Onto<'a> {
    pub next: &'a DeviceSlice<f32>,
    pub scaled: &'a mut DeviceSlice<f32>,
    pub sums: &'a mut DeviceSlice<f32>,
    pub columns: usize,
    /// Elements from a column to the next.
    pub stride: usize,
    pub eps: f32,
}

impl Onto<'_> {
    /// `x = residual + norm(x)`; the parts of a column's sum of squares.
    pub fn normed<L: Launcher<Error = Error>>(
        self,
        on: &mut L,
        (x, weight): (&mut DeviceSlice<f32>, &DeviceSlice<f32>),
        residual: &DeviceSlice<f32>,
        programmatic: bool,
    ) -> Result<u32, Error> {
        self.launch(on, x, (residual, weight), (NORMED, 1.0), programmatic)
    }

    /// `x = x * scale`; the parts of a column's sum of squares.
    pub fn embeddings<L: Launcher<Error = Error>>(
        self,
        on: &mut L,
        x: &mut DeviceSlice<f32>,
        scale: f32,
        programmatic: bool,
    ) -> Result<u32, Error> {
        self.launch(on, x, (DeviceSlice::empty(), DeviceSlice::empty()), (0, scale), programmatic)
    }

    fn launch<L: Launcher<Error = Error>>(
        self,
        on: &mut L,
        x: &mut DeviceSlice<f32>,
        (residual, weight): (&DeviceSlice<f32>, &DeviceSlice<f32>),
        (flags, scale): (u32, f32),
        programmatic: bool,
    ) -> Result<u32, Error> {
        let Onto { next, scaled, sums, columns, stride, eps } = self;
        let launch = ToResidual {
            x,
            residual,
            weight,
            next_weight: next,
            scaled,
            sums: &mut sums[..columns],
            cols: next.len() as u32,
            stride: stride as u32,
            flags,
            scale,
            eps,
        };
        // SAFETY: it follows no address; weights of norms were written before the first step, and the rest it awaits.
        unsafe { on.launch_programmatic(launch, programmatic) }?;
        Ok(1)
    }
}
