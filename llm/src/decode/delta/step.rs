//! The launches of a delta net between its projections: two, and two more where prompts are taken in chunks.

use super::super::step::DecodeStep;
use super::super::weights::LayerWeights;
use super::super::workspace::Workspace;
use super::DeltaVectors;
use super::net::net_of;
use gpu_kernels::delta::{DeltaChunks, DeltaConv, DeltaNorm, DeltaRule, GateHeads};
use gpu_kernels::gemv::OutputQuantization;
use warpsmith_device::Launcher;
use warpsmith_runtime::Error;

impl DecodeStep<'_> {
    /// Convolution, rule and norm, of projected columns.
    ///
    /// # Safety
    /// That of [`DecodeStep`], of the states that runs lead to.
    pub unsafe fn delta<L: Launcher<Error = Error>>(
        &mut self,
        on: &mut L,
        (index, layer): (usize, &LayerWeights),
        vectors: &DeltaVectors,
    ) -> Result<(), Error> {
        let Some(net) = net_of(self.config, self.config.place_of(index)) else { return Ok(()) };
        let (columns, programmatic) = (self.shape.columns as u32, self.choice.programmatic);
        let wanted = self.choice.wanted(std::slice::from_ref(&layer.attn_output));
        let Workspace { qkv, attended, quantized, sizes, delta, .. } = &mut *self.buffers;
        let Some(delta) = delta else { return Ok(()) };
        let runs = &delta.runs[..self.shape.runs()];
        let (stride, mixed_stride, y_stride) = (sizes.qkv as u32, delta.stride as u32, sizes.attended as u32);
        let conv = DeltaConv {
            x: qkv,
            weight: &vectors.conv,
            runs,
            y: &mut delta.mixed,
            columns,
            x_stride: stride,
            y_stride: mixed_stride,
            net,
        };
        // SAFETY: the caller's promise; the weight was uploaded before the first step, and the rest it awaits.
        unsafe { on.launch_programmatic(conv, programmatic) }?;
        let (_, written) = quantized.pass(wanted);
        let (quant_format, quantized, group_counters) = OutputQuantization::arguments(written);
        let rule = DeltaRule {
            mixed: &delta.mixed,
            projected: qkv,
            a: &vectors.a,
            dt: &vectors.dt,
            norm: &vectors.norm,
            runs,
            y: attended,
            quantized: &mut *quantized,
            group_counters: &mut *group_counters,
            columns,
            mixed_stride,
            stride,
            y_stride,
            quant_format,
            net,
        };
        // SAFETY: as for the convolution.
        unsafe { on.launch_programmatic(rule, programmatic) }?;
        if !self.shape.chunks {
            return Ok(());
        }
        // Those that the rule passed over.
        let (mixed, projected) = (&delta.mixed, &*qkv);
        let (a, dt, norm) = (&vectors.a, &vectors.dt, &vectors.norm);
        let chunks =
            DeltaChunks { mixed, projected, a, dt, runs, y: attended, columns, mixed_stride, stride, y_stride, net };
        // SAFETY: as for the convolution.
        unsafe { on.launch_programmatic(chunks, programmatic) }?;
        let normed = DeltaNorm {
            projected,
            norm,
            runs,
            y: attended,
            quantized,
            group_counters,
            columns,
            stride,
            y_stride,
            quant_format,
            net,
        };
        // SAFETY: as for the convolution.
        unsafe { on.launch_programmatic(normed, programmatic) }
    }

    /// Gates of what was attended to, where the model has any.
    pub fn gate_heads<L: Launcher<Error = Error>>(&mut self, on: &mut L) -> Result<(), Error> {
        let (cols, columns) = (self.config.gate_dim() as u32, self.shape.columns as u32);
        if cols == 0 {
            return Ok(());
        }
        let Workspace { qkv, attended, sizes, .. } = &mut *self.buffers;
        let (stride, gate_stride) = (sizes.attended as u32, sizes.qkv as u32);
        let gate = GateHeads { x: attended, gate: qkv, cols, columns, stride, gate_stride };
        // SAFETY: it follows no address, and reads nothing but what it awaits.
        unsafe { on.launch_programmatic(gate, self.choice.programmatic) }
    }
}
