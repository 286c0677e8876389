//! What the two parts of a layer give, onto the residual stream: by the product itself; or by a launch behind it, where the model norms what
//! it adds, and where several devices have parts of it. A [layer norm](super::norm) is a launch behind that.

use super::input::Input;
use super::residual::{Onto, add_up};
use super::step::{DecodeStep, behind};
use super::together::{Shares, StepLauncher};
use super::weights::LayerWeights;
use super::workspace::{Holder, Workspace, stride};
use gpu_kernels::gemv::Gemv;
use warpsmith_device::DeviceSlice;
use warpsmith_runtime::Error;

/// A product onto the residual stream: of several devices the first adds that to its part of the sum.
fn onto_first<'a>(
    product: Gemv<'a>,
    shares: Option<Shares<'_>>,
    residual: &'a DeviceSlice<f32>,
    stride: usize,
) -> Gemv<'a> {
    if shares.is_none_or(Shares::is_first) { product.add(residual, stride as u32) } else { product }
}

impl DecodeStep<'_> {
    /// The output of attention onto the residual stream, and the norm before the feed-forward part.
    pub(super) fn attention_output<L: StepLauncher>(&mut self, on: &mut L, layer: &LayerWeights) -> Result<(), Error> {
        let (columns, choice, shares) = (self.shape.columns as u32, self.choice, self.shares);
        let Workspace { x, y, scaled, sums, attended, quantized, sizes, .. } = &mut *self.buffers;
        let rms_norm = layer.ffn_norm.as_ref().filter(|_| !self.config.architecture.layer_norm());
        let post_norm = layer.post_norms.as_ref().map(|(after_attention, _)| &**after_attention);
        let fused = post_norm.is_none() && shares.is_none() && rms_norm.is_some();
        let wanted = choice.wanted(&layer.gate_up.stacks);
        let (held, written) = quantized.pass(wanted.filter(|_| fused));
        let mut input = Input { x: attended, columns, stride: sizes.attended, norm: None, choice, held };
        let product = input.product(on, &layer.attn_output, layer.attn_output.rows(), (y, sizes.hidden))?;
        let Some(norm) = rms_norm else {
            onto_first(product, shares, x, sizes.hidden).launch(on)?;
            add_up(on, shares, &mut y[..columns as usize * sizes.hidden])?;
            let holder = if self.config.parallel { Holder::X } else { Holder::Y };
            // Without a norm of its own the feed-forward part reads what attention read.
            return layer.ffn_norm.as_ref().map_or(Ok(()), |norm| self.layer_norm(on, norm, holder, wanted));
        };
        if fused {
            let product = product.add(x, sizes.hidden as u32).next(&norm.weight, scaled, sums);
            self.parts = product.parts();
            return product.quantize_output(written).launch(on);
        }
        product.launch(on)?;
        let (columns, stride) = (columns as usize, sizes.hidden);
        let onto = Onto { next: &norm.weight, scaled, sums, columns, stride, eps: self.config.eps };
        self.parts = onto.outputs(on, shares, (y, post_norm), x, choice.programmatic)?;
        Ok(())
    }

    /// The output of a feed-forward part onto the residual stream, and the norm behind the layer.
    pub(super) fn down<L: StepLauncher>(
        &mut self,
        on: &mut L,
        (index, layer): (usize, &LayerWeights),
    ) -> Result<(), Error> {
        let (columns, choice, shares) = (self.shape.columns as u32, self.choice, self.shares);
        let (norm, wanted) = behind(self.weights, index, choice, self.shape);
        let Workspace { x, y, scaled, sums, inner, quantized, sizes, .. } = &mut *self.buffers;
        let layer_norm = self.config.architecture.layer_norm();
        let post_norm = layer.post_norms.as_ref().map(|(_, after_feed_forward)| &**after_feed_forward);
        let fused = post_norm.is_none() && shares.is_none() && !layer_norm;
        let (held, written) = quantized.pass(wanted.filter(|_| fused));
        let stride = stride(self.config.dense_width());
        let mut input = Input { x: inner, columns, stride, norm: None, choice, held };
        let product = input.product(on, &layer.down, layer.down.rows(), (x, sizes.hidden))?;
        if layer_norm {
            onto_first(product, shares, y, sizes.hidden).launch(on)?;
            add_up(on, shares, &mut x[..columns as usize * sizes.hidden])?;
            return self.layer_norm(on, norm, Holder::X, wanted);
        }
        if fused {
            let product = product.add(y, sizes.hidden as u32).next(&norm.weight, scaled, sums).quantize_output(written);
            self.parts = product.parts();
            return product.launch(on);
        }
        product.launch(on)?;
        let (columns, stride) = (columns as usize, sizes.hidden);
        let onto = Onto { next: &norm.weight, scaled, sums, columns, stride, eps: self.config.eps };
        self.parts = onto.outputs(on, shares, (x, post_norm), y, choice.programmatic)?;
        Ok(())
    }
}
