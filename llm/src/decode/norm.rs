//! Norms of the residual stream. RMS norms are split between what writes it and what reads it; layer norms, which need its mean first, are a
//! launch each, whose results products read as they are, or as the codes that it also writes. That is two launches a layer more than with RMS
//! norms; where attention and feed-forward part read one norm, one, and one for its codes, which attention's took the place of.

use super::step::DecodeStep;
use super::weights::Norm;
use super::workspace::{Holder, Workspace};
use gpu_kernels::gemv::{OutputQuantization, QuantFormat};
use gpu_kernels::layer_norm::{BIAS, LayerNorm, POSITIONS};
use gpu_kernels::norm::RmsNorm;
use warpsmith_device::{DeviceSlice, Launcher};
use warpsmith_runtime::Error;

impl DecodeStep<'_> {
    /// The layer norm of the residual stream, as what the next products read; of which the first wants codes of that format, or none.
    pub(super) fn layer_norm<L: Launcher<Error = Error>>(
        &mut self,
        on: &mut L,
        norm: &Norm,
        holder: Holder,
        wanted: Option<QuantFormat>,
    ) -> Result<(), Error> {
        self.launch_layer_norm(on, norm, (holder, None), wanted)
    }

    /// The layer norm of embeddings, with those of their positions where there are such.
    pub(super) fn layer_norm_of_embeddings<L: Launcher<Error = Error>>(
        &mut self,
        on: &mut L,
        norm: &Norm,
        wanted: Option<QuantFormat>,
    ) -> Result<(), Error> {
        let positions = self.weights.positions.as_deref();
        self.launch_layer_norm(on, norm, (Holder::X, positions), wanted)
    }

    fn launch_layer_norm<L: Launcher<Error = Error>>(
        &mut self,
        on: &mut L,
        norm: &Norm,
        (holder, positions): (Holder, Option<&DeviceSlice<f32>>),
        wanted: Option<QuantFormat>,
    ) -> Result<(), Error> {
        let (c, n) = (self.config, self.shape.columns);
        let Workspace { columns, x, y, scaled, quantized, sizes, .. } = &mut *self.buffers;
        let (_, written) = quantized.pass(wanted);
        let (quant_format, quantized, group_counters) = OutputQuantization::arguments(written);
        let x = match holder {
            Holder::X => x,
            Holder::Y => y,
        };
        let flag = |on: bool, flag: u32| if on { flag } else { 0 };
        let launch = LayerNorm {
            x,
            columns: &columns[..n],
            positions: positions.unwrap_or(DeviceSlice::empty()),
            weight: &norm.weight,
            bias: norm.bias.as_deref().unwrap_or(DeviceSlice::empty()),
            y: scaled,
            quantized,
            group_counters,
            cols: c.hidden as u32,
            stride: sizes.hidden as u32,
            context: c.context as u32,
            flags: flag(positions.is_some(), POSITIONS) | flag(norm.bias.is_some(), BIAS),
            quant_format,
            eps: c.eps,
        };
        // SAFETY: it follows no address; weights and positions were uploaded before the first step, and the rest it awaits.
        unsafe { on.launch_programmatic(launch, self.choice.programmatic) }?;
        self.parts = 0;
        Ok(())
    }

    /// The normed input of the output projection, as its own launch: in a step with RMS norms the projection does it.
    pub fn normed<L: Launcher<Error = Error>>(&mut self, on: &mut L) -> Result<&DeviceSlice<f32>, Error> {
        let (n, eps, norm) = (self.config.hidden, self.config.eps, &self.weights.output_norm);
        if self.config.architecture.layer_norm() {
            self.layer_norm(on, norm, Holder::X, None)?;
            return Ok(&self.buffers.scaled[..n]);
        }
        let Workspace { x, y, .. } = &mut *self.buffers;
        on.launch(RmsNorm { x: &x[..n], w: &norm.weight, y: &mut y[..n], cols: n as u32, eps })?;
        Ok(&self.buffers.y[..n])
    }
}
