//! Launches that write the residual stream where no product can: embeddings that are scaled, outputs that are normed before they
//! are added, and outputs of which each of several devices has a part of the sum.

use super::together::{Shares, StepLauncher};
use gpu_kernels::residual::{ADDED, NORMED, ToResidual};
use warpsmith_collectives::{NextNorm, Peers};
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

/// Adds up whole columns over all devices, if there are several.
pub(super) fn add_up<L: StepLauncher>(
    on: &mut L,
    shares: Option<Shares<'_>>,
    x: &mut DeviceSlice<f32>,
) -> Result<(), Error> {
    // Columns follow one another, as their width is a multiple of 4 where there are shares.
    shares.map_or(Ok(()), |shares| shares.add_up(on, x))
}

impl Onto<'_> {
    /// `x = residual + x`, where `x` is summed over all devices first, and normed if there is a weight for that; the parts of a column's sum
    /// of squares. Devices that reach each other's memory do it in the launch that sums up, unless there is a norm in between.
    pub fn outputs<L: StepLauncher>(
        self,
        on: &mut L,
        shares: Option<Shares<'_>>,
        (x, norm): (&mut DeviceSlice<f32>, Option<&DeviceSlice<f32>>),
        residual: &mut DeviceSlice<f32>,
        programmatic: bool,
    ) -> Result<u32, Error> {
        if let (Some(Shares::Peer(peer)), None) = (shares, norm) {
            let next = NextNorm { weight: self.next, scaled: self.scaled, sums: self.sums };
            // SAFETY: a decoder waits for what it launched before its group goes.
            unsafe { peer.launch_onto_residual(on, (x, residual), next, (self.columns, self.stride)) }?;
            return Ok(Peers::PARTS as u32);
        }
        add_up(on, shares, &mut x[..self.columns * self.stride])?;
        match norm {
            Some(weight) => self.launch(on, x, (residual, weight), (NORMED, 1.0), programmatic),
            None => self.launch(on, x, (residual, DeviceSlice::empty()), (ADDED, 1.0), programmatic),
        }
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
