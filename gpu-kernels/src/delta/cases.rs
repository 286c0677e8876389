//! The cases of these kernels: several sequences in a step, some of which begin, with columns of no sequence among theirs.

mod chunks;

pub use chunks::Chunks;

use super::{DeltaConv, DeltaRule, FRESH, GateHeads, KERNEL, LayerVectors, Net, Reference, Run, gate};
use crate::cases::{Bench, Failure, Listed, Measured, NamedSizes, Outcome, Plain, Rng, Shape, close, same, why};
use crate::gemv::OutputQuantization;
use crate::gemv::cases::{QuantizedOutput, in_turn};

/// The convolution.
pub struct Convolutions;

/// The rule and the norm behind it.
pub struct Rules;

/// Gates of attention's results.
pub struct Gates;

/// Each sequence has a token more than the one before; with `apart` their last ones lie behind all others.
const SIZES: NamedSizes = &[
    ("sequences", 1),
    ("tokens", 1),
    ("key_heads", 16),
    ("value_heads", 32),
    ("dim", 128),
    ("apart", 0),
    ("together", 1),
    // The number of the format that results are quantized to as well.
    ("quant_format", 0),
];

/// Head sizes, groups, and tokens at the edges of what a convolution sees and of its tiles.
fn shapes() -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = Vec::new();
    let mut add = |v: [usize; 6]| {
        let format = in_turn(all.len(), v[3] * v[4]);
        // Key heads in turn, and side by side.
        let together = if all.len() % 2 == 1 { v[3] / v[2] } else { 1 };
        all.push(v.into_iter().chain([together, format]).collect());
    };
    for dim in [32, 64, 96, 128] {
        add([1, 1, 1, 1, dim, 0]);
        add([2, 3, 2, 4, dim, 1]);
        add([1, 5, 1, 3, dim, 0]);
    }
    for tokens in [1, 2, 3, 4, 31, 32, 33, 64, 65] {
        add([1, tokens, 1, 2, 32, 1]);
    }
    add([5, 1, 2, 6, 32, 0]);
    add([4, 1, 1, 4, 64, 1]);
    add([2, 3, 3, 6, 32, 0]);
    add([2, 3, 3, 6, 32, 0]);
    add([3, 30, 2, 2, 32, 1]);
    all
}

/// What stands where nobody writes.
const UNTOUCHED: f32 = -77.0;

/// A step of several sequences, and the states of [`LAYERS`] layers of each.
struct DeltaStep {
    net: Net,
    runs: Vec<(Vec<usize>, bool)>,
    columns: usize,
    /// Those of no sequence.
    nobody: usize,
    before: Vec<Vec<f32>>,
    projected: Vec<f32>,
    stride: usize,
    conv: Vec<f32>,
    a: Vec<f32>,
    dt: Vec<f32>,
    norm: Vec<f32>,
}

/// Layers that states have, of which the second is used.
const LAYERS: usize = 3;

impl DeltaStep {
    fn new(shape: &Shape<'_>, rng: &mut Rng) -> Result<DeltaStep, Failure> {
        let [sequences, tokens, apart] = shape.sizes(["sequences", "tokens", "apart"])?;
        let [value_heads, dim, together] = shape.sizes(["value_heads", "dim", "together"])?;
        let net = Net {
            layer: 1,
            key_heads: shape.size("key_heads")? as u32,
            value_heads: value_heads as u32,
            dim: dim as u32,
            eps: 1e-6,
            together: together as u32,
        };
        let counts: Vec<usize> = (0..sequences).map(|s| tokens + s).collect();
        let (all, nobody) = (counts.iter().sum::<usize>(), 2);
        let columns = all + nobody;
        let behind = if apart != 0 { sequences } else { 0 };
        let (mut next, mut last) = (0, columns - behind);
        let mut runs = Vec::new();
        for (s, &count) in counts.iter().enumerate() {
            let mut places: Vec<usize> = (next..next + count).collect();
            if apart != 0 {
                places.pop();
                places.push(last);
                last += 1;
            }
            next += count - usize::from(apart != 0);
            runs.push((places, s % 2 == 1));
        }
        // `next..next + nobody` is left: between the others and the last ones, or behind all.
        let stride = net.projected().next_multiple_of(4) + 8;
        let mut projected = vec![f32::NAN; columns * stride];
        for (c, column) in projected.chunks_exact_mut(stride).enumerate() {
            if !(next..next + nobody).contains(&c) {
                column[..net.projected()].copy_from_slice(&floats(rng, net.projected(), 2.0));
            }
        }
        let mut before = Vec::new();
        for _ in 0..sequences {
            before.push(floats(rng, LAYERS * net.layer_len(), 0.5));
        }
        let mut a = floats(rng, value_heads, 4.0);
        a.iter_mut().for_each(|a| *a = -a.abs());
        Ok(DeltaStep {
            conv: floats(rng, KERNEL as usize * net.channels(), 1.0),
            dt: floats(rng, value_heads, 3.0),
            norm: floats(rng, dim, 1.5),
            net,
            runs,
            columns,
            nobody: next,
            before,
            projected,
            stride,
            a,
        })
    }

    fn weights(&self) -> LayerVectors<'_> {
        LayerVectors { conv: &self.conv, a: &self.a, dt: &self.dt, norm: &self.norm }
    }

    fn layer(&self) -> std::ops::Range<usize> {
        self.net.before()..self.net.before() + self.net.layer_len()
    }

    /// What a sequence has before the step.
    fn reference(&self, s: usize) -> Reference {
        let mut reference = Reference::new(self.net);
        if !self.runs[s].1 {
            let wide: Vec<f64> = self.before[s][self.layer()].iter().map(|v| f64::from(*v)).collect();
            let (inputs, states) = wide.split_at(self.net.inputs());
            (reference.inputs, reference.states) = (inputs.to_vec(), states.to_vec());
        }
        reference
    }

    fn column(&self, c: usize) -> Vec<f64> {
        self.projected[c * self.stride..][..self.net.projected()].iter().map(|v| f64::from(*v)).collect()
    }

    /// States on the device, before and after, and the runs: those of the sequences, with flags of their own, one of nobody, and one that is
    /// nothing.
    #[expect(clippy::type_complexity, reason = "two lists of buffers and one of runs")]
    fn upload<B: Bench>(
        &self,
        bench: &mut B,
        flags: impl Fn(usize) -> u32,
    ) -> Result<(Vec<[B::Buffer<f32>; 2]>, B::Buffer<Run>), Failure> {
        let (mut states, mut runs) = (Vec::new(), Vec::new());
        for (s, (before, (places, fresh))) in self.before.iter().zip(&self.runs).enumerate() {
            let from = bench.upload(before)?;
            let to = bench.upload(&vec![UNTOUCHED; before.len()])?;
            let last = places.last().copied().unwrap_or_default() as u32;
            runs.push(Run {
                // Nobody may read what is before the first token.
                from: if *fresh { Default::default() } else { from.address() },
                to: to.address(),
                first: places[0] as u32,
                count: places.len() as u32,
                last,
                flags: flags(s) | if *fresh { FRESH } else { 0 },
            });
            states.push([from, to]);
        }
        let (first, last) = (self.nobody as u32, self.nobody as u32 + 1);
        runs.insert(runs.len() / 2, Run { first, count: 2, last, flags: FRESH, ..Run::default() });
        runs.push(Run::default());
        Ok((states, bench.upload(&runs)?))
    }

    /// Of the states after the step everything but `own` is as it was, and those before it all.
    fn compare_states<B: Bench>(
        &self,
        bench: &mut B,
        s: usize,
        [from, to]: &[B::Buffer<f32>; 2],
        (own, want): (std::ops::Range<usize>, &[f64]),
        bound: f64,
    ) -> Outcome {
        same(&bench.read(from)?, &self.before[s])?;
        let after = bench.read(to)?;
        if let Some(i) = (0..after.len()).find(|i| !own.contains(i) && after[*i] != UNTOUCHED) {
            return Err(Failure::Wrong(format!("sequence {s}: element {i} of its states was written")));
        }
        close(&after[own], want, |_| bound).map_err(|e| Failure::Wrong(format!("states of sequence {s}: {e}")))
    }
}

fn floats(rng: &mut Rng, n: usize, size: f32) -> Vec<f32> {
    rng.floats(n).into_iter().map(|v| v * size).collect()
}

/// Results of a column, and nothing behind them.
fn column_is(y: &[f32], want: &[f64], bound: impl Fn(usize) -> f64) -> Outcome {
    if y[want.len()..].iter().any(|v| *v != UNTOUCHED) {
        return Err(Failure::Wrong("written past its elements".into()));
    }
    close(&y[..want.len()], want, bound)
}

impl Plain for Convolutions {
    const SIZES: NamedSizes = SIZES;

    fn kernels() -> Vec<Listed> {
        vec![Listed::by_bytes::<DeltaConv<'_>>()]
    }

    fn shapes() -> Vec<Vec<usize>> {
        shapes()
    }

    fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        let step = DeltaStep::new(shape, rng)?;
        let (states, runs) = step.upload(bench, |_| 0)?;
        let y_stride = step.net.channels() + 4;
        let (x, weight) = (bench.upload(&step.projected)?, bench.upload(&step.conv)?);
        let mut y = bench.upload(&vec![UNTOUCHED; step.columns * y_stride])?;
        let launch = DeltaConv {
            x: &x,
            weight: &weight,
            runs: &runs,
            y: &mut y,
            columns: step.columns as u32,
            x_stride: step.stride as u32,
            y_stride: y_stride as u32,
            net: step.net,
        };
        // SAFETY: the runs lead to buffers of this case, which nothing else touches meanwhile.
        unsafe { bench.launch_unchecked(launch) }?;
        let y = bench.read(&y)?;
        for (s, (places, _)) in step.runs.iter().enumerate() {
            let mut reference = step.reference(s);
            for &c in places {
                let want = reference.convolve(&step.column(c), &step.conv);
                column_is(&y[c * y_stride..][..y_stride], &want, |_| 1e-5)
                    .map_err(|e| Failure::Wrong(format!("column {c}: {e}")))?;
            }
            let own = step.layer().start..step.layer().start + step.net.inputs();
            step.compare_states(bench, s, &states[s], (own, &reference.inputs), 3e-6)?;
        }
        let nobody = &y[step.nobody * y_stride..][..2 * y_stride];
        same(nobody, &vec![UNTOUCHED; nobody.len()])
    }
}

impl Plain for Rules {
    const SIZES: NamedSizes = SIZES;

    fn kernels() -> Vec<Listed> {
        let budget = Measured::Not(
            "`decoding_reads_and_writes_a_state_once` of the kernels' tests holds its bytes to those of its state",
        );
        vec![Listed::new::<DeltaRule<'_>>(Measured::By("delta"), budget)]
    }

    fn shapes() -> Vec<Vec<usize>> {
        shapes()
    }

    fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        let step = DeltaStep::new(shape, rng)?;
        let (net, values) = (step.net, step.net.values());
        let (states, runs) = step.upload(bench, |_| 0)?;
        let (mixed_stride, y_stride) = (net.channels() + 4, values + 8);
        let mut mixed = vec![f32::NAN; step.columns * mixed_stride];
        for &c in step.runs.iter().flat_map(|(places, _)| places) {
            mixed[c * mixed_stride..][..net.channels()].copy_from_slice(&floats(rng, net.channels(), 1.5));
        }
        let (dm, projected) = (bench.upload(&mixed)?, bench.upload(&step.projected)?);
        let (a, dt, norm) = (bench.upload(&step.a)?, bench.upload(&step.dt)?, bench.upload(&step.norm)?);
        let mut y = bench.upload(&vec![UNTOUCHED; step.columns * y_stride])?;
        let mut output = QuantizedOutput::new(bench, shape.size("quant_format")?, step.columns, values)?;
        let written = output.as_mut().map(QuantizedOutput::written);
        let (quant_format, quantized, group_counters) = OutputQuantization::arguments(written);
        let launch = DeltaRule {
            mixed: &dm,
            projected: &projected,
            a: &a,
            dt: &dt,
            norm: &norm,
            runs: &runs,
            y: &mut y,
            quantized,
            group_counters,
            columns: step.columns as u32,
            mixed_stride: mixed_stride as u32,
            stride: step.stride as u32,
            y_stride: y_stride as u32,
            quant_format,
            net,
        };
        // SAFETY: as for the convolution.
        unsafe { bench.launch_unchecked(launch) }?;
        let y = bench.read(&y)?;
        if let Some(output) = output {
            output.check(bench, &y, y_stride)?;
        }
        for (s, (places, _)) in step.runs.iter().enumerate() {
            let mut reference = step.reference(s);
            for &c in places {
                let x: Vec<f64> = mixed[c * mixed_stride..][..net.channels()].iter().map(|v| f64::from(*v)).collect();
                let want = reference.rule(&x, &step.column(c), step.weights());
                // What is normed may be as small as what it is made of is off by.
                column_is(&y[c * y_stride..][..y_stride], &want, |_| 2e-4)
                    .map_err(|e| Failure::Wrong(format!("column {c}: {e}")))?;
            }
            let own = step.layer().start + net.inputs()..step.layer().end;
            step.compare_states(bench, s, &states[s], (own, &reference.states), 3e-6)?;
        }
        for column in y[step.nobody * y_stride..].chunks_exact(y_stride).take(2) {
            if column[..values].iter().any(|v| !v.is_nan()) || column[values..].iter().any(|v| *v != UNTOUCHED) {
                return Err(Failure::Wrong("columns of no sequence are not NaN, or more".into()));
            }
        }
        Ok(())
    }
}

impl Plain for Gates {
    const SIZES: NamedSizes = &[("columns", 1), ("cols", 4096)];

    fn kernels() -> Vec<Listed> {
        vec![Listed::unmeasured::<GateHeads<'_>>(why::SMALL)]
    }

    fn shapes() -> Vec<Vec<usize>> {
        [[1, 1], [2, 31], [3, 256], [1, 257], [5, 1000]].map(Vec::from).to_vec()
    }

    fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        let [columns, cols] = shape.sizes(["columns", "cols"])?;
        let (stride, gate_stride) = (cols + 3, cols + 5);
        let strided = |rng: &mut Rng, stride: usize, size: f32| {
            let mut all = vec![UNTOUCHED; columns * stride];
            all.chunks_exact_mut(stride).for_each(|c| c[..cols].copy_from_slice(&floats(rng, cols, size)));
            all
        };
        let (x, mut gates) = (strided(rng, stride, 3.0), strided(rng, gate_stride, 9.0));
        // As far as exponentials go, and further.
        gates.iter_mut().step_by(7).for_each(|g| *g *= 20.0);
        let (mut dx, dg) = (bench.upload(&x)?, bench.upload(&gates)?);
        bench.launch(GateHeads {
            x: &mut dx,
            gate: &dg,
            cols: cols as u32,
            columns: columns as u32,
            stride: stride as u32,
            gate_stride: gate_stride as u32,
        })?;
        let y = bench.read(&dx)?;
        for n in 0..columns {
            let of = |i: usize| gate::reference(x[n * stride + i], gates[n * gate_stride + i]);
            let want: Vec<f64> = (0..cols).map(of).collect();
            column_is(&y[n * stride..][..stride], &want, |i| 2e-6 * want[i].abs() + 1e-37)?;
        }
        Ok(())
    }
}
