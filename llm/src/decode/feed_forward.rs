//! Gates, ups and what comes of them: of a dense layer, of the experts of each column, and of the expert that all columns share.

use super::input::{Input, pending};
use super::routes::Chosen;
use super::stack::{Projection, Stack};
use super::step::DecodeStep;
use super::weights::LayerWeights;
use super::workspace::{Workspace, stride};
use gpu_kernels::elementwise::{Geglu, Glu, Swiglu, SwigluClamped};
use gpu_kernels::experts::SwigluWeighted;
use gpu_kernels::gemv::QuantFormat;
use warpsmith_device::{DeviceSlice, Launcher};
use warpsmith_runtime::Error;

/// The feed-forward part of a layer, or that of an expert of it.
#[derive(Clone, Copy)]
pub(super) struct FeedForward<'a> {
    pub gate_up: &'a Projection,
    /// What reads its results.
    pub down: &'a Stack,
    /// Gates.
    pub rows: usize,
}

impl<'a> FeedForward<'a> {
    /// That of a layer, or of each of its experts.
    pub fn of(layer: &'a LayerWeights, rows: usize) -> Self {
        FeedForward { gate_up: &layer.gate_up, down: &layer.down, rows }
    }

    /// Elements from the results of a column to the next.
    pub fn stride(&self) -> usize {
        stride(self.rows)
    }
}

impl DecodeStep<'_> {
    /// Gate, up and what comes of them: one launch where gate and up have one format, or where there are no gates. `experts`: of the layer of that number the experts of
    /// each column, which may be grouped. In which format, if any, there is then what it read.
    pub(super) fn feed_forward<L: Launcher<Error = Error>>(
        &mut self,
        on: &mut L,
        part: FeedForward<'_>,
        experts: Option<(usize, bool)>,
    ) -> Result<Option<QuantFormat>, Error> {
        let (n, eps, parts, choice) = (self.shape.columns, self.config.eps, self.parts, self.choice);
        let Workspace { scaled, sums, gate_up, inner, quantized, sizes, experts: buffers, .. } = &mut *self.buffers;
        let chosen = buffers.as_ref().zip(experts).map(|(of, (index, grouped))| of.of_layer(index, grouped));
        let (inner_stride, FeedForward { gate_up: weights, down, rows }) = (part.stride(), part);
        let glu = self.config.architecture.glu();
        let (stride, norm) = (sizes.hidden, pending(sums, parts, eps));
        let fused = weights.stacks.len() == 1;
        let wanted = choice.wanted(std::slice::from_ref(down)).filter(|_| fused);
        let (held, written) = quantized.pass(wanted);
        let mut input = Input { x: scaled, columns: n as u32, stride, norm, choice, held };
        if let [all] = &weights.stacks[..] {
            let product = input.product(on, all, rows as u32, (inner, inner_stride))?;
            let product = match self.config.architecture.ungated() {
                None => product.glu(glu),
                activation => product.activation(activation),
            };
            Chosen::of(chosen, product, all).quantize_output(written).launch(on)?;
            return Ok(input.held.in_order());
        }
        // All gates, then all ups; what pads the columns is computed with them and never read.
        let half = n * chosen.map_or(1, |chosen| chosen.sharing) * inner_stride;
        for stack in choice.sorted(&weights.stacks) {
            let y = &mut gate_up[if stack.outputs.start < rows { 0 } else { half }..];
            let product = input.product(on, stack, stack.rows(), (y, inner_stride))?;
            Chosen::of(chosen, product, stack).launch(on)?;
        }
        let read = input.held.in_order();
        let (gate, up) = gate_up.split_at(half).unwrap_or((DeviceSlice::empty(), DeviceSlice::empty()));
        let (y, n) = (inner, half as u32);
        if let Some((buffers, _)) = buffers.as_ref().zip(chosen).filter(|_| self.config.architecture.weighted_inputs())
        {
            let (cols, columns) = (inner_stride as u32, (half / inner_stride.max(1)) as u32);
            let glu = SwigluWeighted { gate, up, weights: &buffers.weights, y, cols, columns };
            // SAFETY: it follows no address, and reads nothing but what it awaits.
            unsafe { on.launch_programmatic(glu, choice.programmatic) }?;
            return Ok(read);
        }
        // SAFETY: they follow no address, and read nothing but what they await.
        unsafe {
            match glu {
                Glu::Silu => on.launch_programmatic(Swiglu { gate, up, y, n }, choice.programmatic),
                Glu::Gelu => on.launch_programmatic(Geglu { gate, up, y, n }, choice.programmatic),
                Glu::Clamped => on.launch_programmatic(SwigluClamped { gate, up, y, n }, choice.programmatic),
            }?;
        }
        Ok(read)
    }
}
