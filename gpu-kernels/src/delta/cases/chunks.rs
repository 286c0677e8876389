//! Prompts in chunks: every length of a first and a last chunk, decays that leave nothing and nearly all, and gates that are 0 and 1.

use super::{DeltaStep, SIZES, UNTOUCHED, column_is, floats};
use crate::cases::{Bench, Failure, Listed, Measured, NamedSizes, Outcome, Plain, Rng, Shape, same};
use crate::delta::{DeltaChunks, DeltaNorm, DeltaRule, Run};
use crate::gemv::OutputQuantization;
use crate::gemv::cases::{QuantizedOutput, in_turn};

/// Chunks and the norm behind them.
pub struct Chunks;

/// Besides what all have: where the first sequence begins in a chunk, which sequence is not in chunks (behind the last: none), and what
/// gates are like.
const OWN: NamedSizes = &[("position", 0), ("other", 1), ("gates", 0)];

/// Gates as they come; decays of up to `e^-200`; decays of nearly 1. `b` of the latter two makes beta 0 and 1.
const GATES: [[f32; 2]; 3] = [[1.0, 1.0], [20.0, 30.0], [1e-3, 30.0]];

/// How far states may be off, of size 1.
const STATES: f64 = 3e-6;

impl Chunks {
    fn step(shape: &Shape<'_>, rng: &mut Rng) -> Result<DeltaStep, Failure> {
        let mut step = DeltaStep::new(shape, rng)?;
        let [decay, b] = GATES[shape.size("gates")?.min(2)];
        step.a.iter_mut().for_each(|a| *a *= decay);
        let (first, heads) = (step.net.channels() + step.net.values(), step.net.value_heads as usize);
        for column in step.projected.chunks_exact_mut(step.stride) {
            column[first..first + heads].iter_mut().for_each(|x| *x *= b);
        }
        Ok(step)
    }
}

impl Plain for Chunks {
    const SIZES: NamedSizes = &{
        let mut all = [("", 0); 11];
        let mut i = 0;
        while i < all.len() {
            all[i] = if i < SIZES.len() { SIZES[i] } else { OWN[i - SIZES.len()] };
            i += 1;
        }
        all
    };

    fn kernels() -> Vec<Listed> {
        let budget = || {
            Measured::Not(
                "`prompts_in_chunks_take_fewer_instructions` of the kernels' tests holds them to a part of the rule's",
            )
        };
        vec![
            Listed::new::<DeltaChunks<'_>>(Measured::By("delta"), budget()),
            Listed::new::<DeltaNorm<'_>>(Measured::By("delta"), budget()),
        ]
    }

    fn shapes() -> Vec<Vec<usize>> {
        let mut all: Vec<Vec<usize>> = Vec::new();
        // Sequences, tokens, heads of keys and of values, elements, whether the last ones lie apart; position, other, gates.
        let mut add = |v: [usize; 6], own: [usize; 3]| {
            let format = in_turn(all.len(), v[3] * v[4]);
            let together = if all.len() % 2 == 1 { v[3] / v[2] } else { 1 };
            all.push(v.into_iter().chain([together, format]).chain(own).collect());
        };
        for (i, dim) in [32, 64, 96, 128].into_iter().enumerate() {
            add([1, 33, 1, 2, dim, 0], [0, 1, 0]);
            add([2, 20, 1, 1, dim, 1], [5, 2, 1 + i % 2]);
        }
        for tokens in [1, 2, 8, 15, 16, 17, 31, 32, 47, 64, 100] {
            add([1, tokens, 1, 1, 32, 1], [0, 1, 0]);
        }
        for position in [1, 7, 15, 16] {
            add([1, 18, 1, 1, 32, 0], [position, 1, 2]);
        }
        add([4, 30, 2, 4, 32, 1], [9, 1, 0]);
        add([3, 1, 1, 2, 64, 1], [3, 0, 0]);
        add([1, 70, 1, 1, 128, 0], [0, 1, 1]);
        add([1, 70, 1, 1, 128, 0], [0, 1, 2]);
        all
    }

    fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        let step = Chunks::step(shape, rng)?;
        let [position, other] = shape.sizes(["position", "other"])?;
        let (net, y_stride) = (step.net, step.net.values() + 8);
        let flags = |s: usize| if s == other { 0 } else { Run::from_position((position + 5 * s) as u32) };
        let (states, runs) = step.upload(bench, flags)?;
        let mixed_stride = net.channels() + 4;
        let mut mixed = vec![f32::NAN; step.columns * mixed_stride];
        for &c in step.runs.iter().flat_map(|(places, _)| places) {
            mixed[c * mixed_stride..][..net.channels()].copy_from_slice(&floats(rng, net.channels(), 1.5));
        }
        let [by_rule, y] = launches(shape, &step, bench, (&runs, &mixed))?;
        let bits = |y: &[f32], c: usize| y[c * y_stride..][..y_stride].iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        let untouched = vec![UNTOUCHED.to_bits(); y_stride];
        let nobody = [step.nobody, step.nobody + 1];
        nobody.iter().try_for_each(|&c| same(&bits(&y, c), &bits(&by_rule, c)))?;
        for (s, (places, _)) in step.runs.iter().enumerate() {
            let mut reference = step.reference(s);
            for &c in places {
                let is = if s == other { bits(&y, c) } else { untouched.clone() };
                same(&bits(&by_rule, c), &is).map_err(|e| Failure::Wrong(format!("column {c} by the rule: {e}")))?;
                let x: Vec<f64> = mixed[c * mixed_stride..][..net.channels()].iter().map(|v| f64::from(*v)).collect();
                let want = reference.rule(&x, &step.column(c), step.weights());
                column_is(&y[c * y_stride..][..y_stride], &want, |_| 2e-4)
                    .map_err(|e| Failure::Wrong(format!("column {c}: {e}")))?;
            }
            let own = step.layer().start + net.inputs()..step.layer().end;
            step.compare_states(bench, s, &states[s], (own, &reference.states), STATES)?;
        }
        Ok(())
    }
}

/// The launches of a step: what the rule leaves, and what chunks and the norm do.
fn launches<B: Bench>(
    shape: &Shape<'_>,
    step: &DeltaStep,
    bench: &mut B,
    (runs, mixed): (&B::Buffer<Run>, &[f32]),
) -> Result<[Vec<f32>; 2], Failure> {
    let (net, values) = (step.net, step.net.values());
    let (columns, stride) = (step.columns as u32, step.stride as u32);
    let (mixed_stride, y_stride) = (net.channels() as u32 + 4, values as u32 + 8);
    let (mixed, projected) = (&bench.upload(mixed)?, &bench.upload(&step.projected)?);
    let (a, dt, norm) = (&bench.upload(&step.a)?, &bench.upload(&step.dt)?, &bench.upload(&step.norm)?);
    let mut y = bench.upload(&vec![UNTOUCHED; step.columns * y_stride as usize])?;
    let mut output = QuantizedOutput::new(bench, shape.size("quant_format")?, step.columns, values)?;
    let written = output.as_mut().map(QuantizedOutput::written);
    let (quant_format, quantized, group_counters) = OutputQuantization::arguments(written);
    let rule = DeltaRule {
        mixed,
        projected,
        a,
        dt,
        norm,
        runs,
        y: &mut y,
        quantized: &mut *quantized,
        group_counters: &mut *group_counters,
        columns,
        mixed_stride,
        stride,
        y_stride,
        quant_format,
        net,
    };
    // SAFETY: the runs lead to buffers of this case, which nothing else touches meanwhile.
    unsafe { bench.launch_unchecked(rule) }?;
    let by_rule = bench.read(&y)?;
    let chunks = DeltaChunks { mixed, projected, a, dt, runs, y: &mut y, columns, mixed_stride, stride, y_stride, net };
    // SAFETY: as above.
    unsafe { bench.launch_unchecked(chunks) }?;
    let normed = DeltaNorm {
        projected,
        norm,
        runs,
        y: &mut y,
        quantized,
        group_counters,
        columns,
        stride,
        y_stride,
        quant_format,
        net,
    };
    // SAFETY: as above.
    unsafe { bench.launch_unchecked(normed) }?;
    let y = bench.read(&y)?;
    if let Some(output) = output {
        output.check(bench, &y, y_stride as usize)?;
    }
    Ok([by_rule, y])
}
