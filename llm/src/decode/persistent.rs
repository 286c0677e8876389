//! Layers that a step does in one launch each: [`DecoderOptions::persistent`](super::DecoderOptions::persistent).

use super::KvType;
use super::input::Choice;
use super::shape::{Shape, layer_of};
use super::step::{RopeTables, Step, head_norms};
use super::weights::{LayerWeights, Stack};
use super::workspace::Workspace;
use super::{DecodeError, Model};
use crate::model::Config;
use gpu_kernels::layer::FUSED;
use gpu_kernels::persistent::{LayerF16, Matrix, PersistentLayer, Sizes, decoder, widest};
use warpsmith_device::{DeviceSlice, Kernel, Launcher};
use warpsmith_runtime::Error;

/// Blocks of the launch of every layer; 0: the layer takes several launches.
#[derive(Debug, Default)]
pub(super) struct Plan(Vec<u32>);

impl Plan {
    /// One launch wherever the kernel takes the layer's weights and the device can hold its blocks.
    pub fn new(model: &Model, choice: Choice) -> Result<Plan, DecodeError> {
        let (c, device) = (model.config(), model.device());
        // As many as the device holds at once, and no more than have work.
        let resident = device.resident_blocks(<LayerF16<'_> as Kernel>::META, 0)?;
        let blocks = u32::try_from(resident).unwrap_or(u32::MAX).min(widest(&layer_of(c), &sizes(c)));
        let of = |layer: &LayerWeights| if takes(layer, choice) { blocks } else { 0 };
        Ok(Plan(model.weights().layers.iter().map(of).collect()))
    }

    /// Layers that take one launch.
    pub fn layers(&self) -> usize {
        self.0.iter().filter(|n| **n > 0).count()
    }

    /// Blocks of a layer's launch, if a step of this shape takes one.
    fn blocks(&self, shape: Shape, index: usize) -> Option<u32> {
        let fits = shape.columns == 1 && !shape.prompt && shape.kv == KvType::F16;
        self.0.get(index).copied().filter(|n| fits && *n > 0)
    }
}

/// The matrices of a layer, if each is multiplied by one product.
fn stacks(layer: &LayerWeights) -> Option<[&Stack; 4]> {
    let ([qkv], [gate_up]) = (&layer.qkv.stacks[..], &layer.gate_up.stacks[..]) else { return None };
    Some([qkv, &layer.attn_output, gate_up, &layer.down])
}

/// Whether the kernel takes its weights: as they are stored, and with activations of f32.
fn takes(layer: &LayerWeights, choice: Choice) -> bool {
    let taken = |s: &&Stack| decoder(s.format).is_some() && choice.of(s).is_none();
    stacks(layer).is_some_and(|all| all.iter().all(taken))
}

fn matrix(stack: &Stack) -> Matrix<'_> {
    Matrix { format: stack.format, rows: stack.rows(), records: stack.records() }
}

fn sizes(c: &Config) -> Sizes {
    Sizes { hidden: c.hidden as u32, feed_forward: c.feed_forward as u32, ..Sizes::default() }
}

impl Step<'_> {
    /// A layer in one launch; `false`: it takes several, and nothing was launched.
    ///
    /// # Safety
    /// That of [`Step`].
    pub(super) unsafe fn persistent<L: Launcher<Error = Error>>(
        &mut self,
        on: &mut L,
        layer: &LayerWeights,
        index: usize,
    ) -> Result<bool, Error> {
        let Some(blocks) = self.plan.blocks(self.shape, index) else { return Ok(false) };
        let Some(stacks) = stacks(layer) else { return Ok(false) };
        let (c, weights, next_layer) = (self.config, self.weights, self.weights.layers.get(index + 1));
        let next = next_layer.map_or(Some(weights.output()), |l| l.qkv.stacks.first());
        let (q_weight, k_weight) = head_norms(layer);
        let mut heads = self.heads(layer, index);
        heads.flags |= FUSED;
        let RopeTables { cos, sin, .. } = self.tables;
        let Workspace { columns, x, y, scaled, sums, qkv, attended, inner, partials, counters, barrier, .. } =
            &mut *self.buffers;
        let next_norm: &DeviceSlice<f32> = next_layer.map_or(&weights.output_norm, |l| &l.attn_norm);
        let launch = PersistentLayer {
            matrices: stacks.map(matrix),
            next: next.map(matrix),
            bias: layer.qkv_bias.as_deref(),
            ffn_norm: &layer.ffn_norm,
            next_norm,
            q_weight,
            k_weight,
            cos,
            sin,
            columns: &columns[..1],
            x,
            y,
            scaled,
            sums,
            qkv,
            attended,
            inner,
            partials,
            counters,
            barrier,
            layer: heads,
            sizes: Sizes { parts: self.parts, blocks, ..sizes(c) },
        };
        self.parts = launch.parts();
        // SAFETY: the caller's promise.
        unsafe { launch.launch(on) }?;
        Ok(true)
    }
}
