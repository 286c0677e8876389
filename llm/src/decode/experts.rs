//! The feed-forward part of a layer as a mixture of experts, three launches more than one that is dense: the router's products; the
//! experts of every column; gate, up and SwiGLU of these; down; and the sum of what they give, onto the residual stream. A launch more puts
//! many columns of each expert side by side, so that weights are read and taken apart once for several of them.
//!
//! An expert of a column is a column of its own: `used` of them in turn have one input, and a table on the device says whose weights each is
//! multiplied with. No weights but theirs are read, and a column has the same bits beside whatever others.

use super::feed_forward::FeedForward;
use super::input::Input;
use super::residual::Onto;
use super::routes::ExpertBuffers;
use super::stack::{Projection, Stack};
use super::step::{DecodeStep, behind};
use super::together::StepLauncher;
use super::weights::LayerWeights;
use super::workspace::{Workspace, stride};
use gpu_kernels::experts::{Combine, GroupExperts, Route, combine, group};
use gpu_kernels::gemv::Gemv;
use warpsmith_device::{DeviceSlice, Launcher};
use warpsmith_runtime::Error;

/// Columns that an expert has on average from which on they are put side by side: a tile costs as much as six or seven columns one by one.
const GROUPED: usize = 12;

impl DecodeStep<'_> {
    /// The mixture of experts of layer `index`, onto the residual stream.
    pub(super) fn mixture<L: StepLauncher>(
        &mut self,
        on: &mut L,
        (index, layer): (usize, &LayerWeights),
        router: &Projection,
    ) -> Result<(), Error> {
        self.route(on, (index, layer), router)?;
        let grouped = self.group(on, index)?;
        if let (Some(gate_up), Some(down)) = (&layer.shared_gate_up, &layer.shared_down) {
            self.shared_expert(on, gate_up, down)?;
        }
        let part = FeedForward::of(layer, self.config.feed_forward);
        self.feed_forward(on, part, Some((index, grouped)))?;
        self.chosen_down(on, (index, grouped), layer)?;
        self.combine(on, index, layer)
    }

    /// What experts give, onto the residual stream.
    fn combine<L: StepLauncher>(&mut self, on: &mut L, index: usize, layer: &LayerWeights) -> Result<(), Error> {
        let (columns, shares, programmatic) = (self.shape.columns, self.shares, self.choice.programmatic);
        let (next, wanted) = behind(self.weights, index, self.choice, self.shape);
        let Workspace { x, y, scaled, sums, quantized, sizes, experts, zeros, .. } = &mut *self.buffers;
        let Some(experts) = experts else { return Ok(()) };
        let (_, written) = quantized.pass(wanted.filter(|_| shares.is_none()));
        self.parts = combine::parts(layer.down.rows());
        let combine = Combine {
            x: &experts.outputs,
            weights: &experts.weights,
            add: zeros.as_deref().unwrap_or(y),
            y: x,
            next: (&next.weight, scaled, sums),
            quantized_output: written,
            rows: layer.down.rows(),
            columns: columns as u32,
            used: experts.of.used as u32,
            shared: experts.of.shared.is_some(),
            x_stride: sizes.hidden as u32,
            y_stride: sizes.hidden as u32,
        };
        // SAFETY: the weight of the norm was uploaded before the first step; the rest it awaits.
        unsafe { combine.launch(on, programmatic) }?;
        if shares.is_some() {
            let onto = Onto { next: &next.weight, scaled, sums, columns, stride: sizes.hidden, eps: self.config.eps };
            self.parts = onto.outputs(on, shares, (x, None), y, programmatic)?;
        }
        Ok(())
    }

    /// The router's products, of activations of f32 whatever others take, and the experts of every column.
    fn route<L: Launcher<Error = Error>>(
        &mut self,
        on: &mut L,
        (index, layer): (usize, &LayerWeights),
        router: &Projection,
    ) -> Result<(), Error> {
        let (n, eps, parts, programmatic) = (self.shape.columns, self.config.eps, self.parts, self.choice.programmatic);
        let Workspace { scaled, sums, sizes, experts, .. } = &mut *self.buffers;
        let Some(ExpertBuffers { of, logits, logits_stride, chosen, chosen_stride, weights, .. }) = experts else {
            return Ok(());
        };
        for stack in &router.stacks {
            let y = &mut logits[stack.outputs.start..];
            let product = Gemv::new(stack.format, stack.records(), stack.rows(), stack.cols, scaled, y)
                .columns(n as u32, sizes.hidden as u32, *logits_stride as u32)
                .norm(sums, parts, eps)
                .bias(stack.bias());
            // SAFETY: it multiplies with weights, which were written before the first step; the rest it awaits.
            unsafe { product.programmatic(programmatic) }.launch(on)?;
        }
        let (all, shared) = (n * of.used, if of.shared.is_some() { n } else { 0 });
        let route = Route {
            logits,
            bias: layer.choice_bias.as_deref().unwrap_or(DeviceSlice::empty()),
            chosen: &mut chosen[index * *chosen_stride..][..all],
            weights: &mut weights[..all + shared],
            n: of.count as u32,
            used: of.used as u32,
            stride: *logits_stride as u32,
            flags: of.flags(layer.choice_bias.is_some()),
            groups: of.groups.0 as u32,
            groups_used: of.groups.1 as u32,
            scale: of.scale,
        };
        // SAFETY: it follows no address; biases were uploaded before the first step, and the rest it awaits.
        unsafe { on.launch_programmatic(route, programmatic) }
    }

    /// Puts the columns of each expert side by side, where an expert has as many on average as make that worthwhile.
    fn group<L: Launcher<Error = Error>>(&mut self, on: &mut L, index: usize) -> Result<bool, Error> {
        let (n, choice) = (self.shape.columns, self.choice);
        let Some(experts) = &mut self.buffers.experts else { return Ok(false) };
        let (columns, matrices) = (n * experts.of.used, experts.of.count);
        if matrices > group::MOST as usize || columns < GROUPED * matrices {
            return Ok(false);
        }
        let chosen = &experts.chosen[index * experts.chosen_stride..];
        let (columns, matrices) = (columns as u32, matrices as u32);
        let tiles = group::tiles(columns, matrices);
        let group = GroupExperts { chosen, table: &mut experts.group, columns, matrices, tiles };
        // SAFETY: it follows no address, and reads nothing but what it awaits.
        unsafe { on.launch_programmatic(group, choice.programmatic) }?;
        Ok(true)
    }

    /// What the expert of all columns gives, behind what the chosen do. What these read is as it was before, where both read one format.
    fn shared_expert<L: Launcher<Error = Error>>(
        &mut self,
        on: &mut L,
        gate_up: &Projection,
        down: &Stack,
    ) -> Result<(), Error> {
        let Some(ExpertBuffers { of, .. }) = &self.buffers.experts else { return Ok(()) };
        let (n, choice, used, rows) = (self.shape.columns, self.choice, of.used, of.shared.unwrap_or(0));
        let part = FeedForward { gate_up, down, rows };
        let (stride, kept) = (part.stride(), self.buffers.quantized.kept());
        let read = self.feed_forward(on, part, None)?;
        let Workspace { inner, quantized, sizes, experts, .. } = &mut *self.buffers;
        let Some(ExpertBuffers { outputs, .. }) = experts else { return Ok(()) };
        let of_all = &mut outputs[n * used * sizes.hidden..];
        let quantized_at = quantized.kept();
        let (held, _) = quantized.pass(None);
        let mut input = Input { x: inner, columns: n as u32, stride, norm: None, choice, held };
        input.product(on, down, down.rows(), (of_all, sizes.hidden))?.launch(on)?;
        let overwritten = input.held.ready.is_some() && quantized_at == kept;
        self.buffers.quantized.back(kept, read.filter(|_| !overwritten));
        Ok(())
    }

    /// Down of the chosen.
    fn chosen_down<L: Launcher<Error = Error>>(
        &mut self,
        on: &mut L,
        (index, grouped): (usize, bool),
        layer: &LayerWeights,
    ) -> Result<(), Error> {
        let (n, choice) = (self.shape.columns, self.choice);
        let Workspace { inner, quantized, sizes, experts, .. } = &mut *self.buffers;
        let Some(ExpertBuffers { of, chosen, chosen_stride, group, outputs, .. }) = experts else { return Ok(()) };
        let (chosen, group) = (&chosen[index * *chosen_stride..], grouped.then_some(&**group));
        let columns = (n * of.used) as u32;
        let (held, _) = quantized.pass(None);
        let stride = stride(self.config.feed_forward);
        let mut input = Input { x: inner, columns, stride, norm: None, choice, held };
        let product = input.product(on, &layer.down, layer.down.rows(), (outputs, sizes.hidden))?;
        product.experts(chosen, layer.down.matrices(), 1).group(group).launch(on)
    }
}
