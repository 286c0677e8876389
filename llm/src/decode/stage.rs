//! How a step begins where another process has the layers before: with its residual stream in place of embeddings.

use super::residual::Onto;
use super::step::DecodeStep;
use super::together::{Stage, StepLauncher};
use super::workspace::{Holder, Workspace};
use warpsmith_runtime::Error;

impl DecodeStep<'_> {
    /// The residual stream as the stage before has left it, and the norm before the first layer of this one.
    pub(super) fn take_over<L: StepLauncher>(&mut self, on: &mut L, stage: Stage<'_>) -> Result<(), Error> {
        let weights = self.weights;
        let norm = weights.layers.first().map_or(&weights.output_norm, |l| &l.attn_norm);
        let columns = self.shape.columns;
        let Workspace { x, scaled, sums, quantized, sizes, .. } = &mut *self.buffers;
        quantized.clear();
        stage.take_over(on, &mut x[..columns * sizes.hidden])?;
        if self.config.architecture.layer_norm() {
            let wanted = weights.layers.first().and_then(|first| self.choice.wanted(&first.qkv.stacks));
            return self.layer_norm(on, norm, Holder::X, wanted);
        }
        let onto = Onto { next: &norm.weight, scaled, sums, columns, stride: sizes.hidden, eps: self.config.eps };
        self.parts = onto.embeddings(on, x, 1.0, self.choice.programmatic)?;
        Ok(())
    }
}
