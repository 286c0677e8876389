//! Step 19: a step of two layers, `h += W norm(h)` each, launch by launch and as one graph.

use crate::bench::{Bench, Failure, Outcome, dimension, numbers, poison, worst};
use ladder_kernels::add::AddVectors;
use ladder_kernels::q8_0::{Q80Rows, Split, dequantise, quantise};
use ladder_kernels::{gemv, rms_norm};
use warpsmith_host::device::{U32x4, f16};
use warpsmith_host::driver::software::{CallCounts, call_counts, reset_call_counts};
use warpsmith_host::{Buffer, Error, Launcher, Stream};

/// Below the root.
const EPS: f32 = 1e-6;
/// Steps that are compared.
const STEPS: u64 = 4;

/// A layer's weights.
struct Layer {
    codes: Buffer<U32x4>,
    scales: Buffer<f16>,
}

/// What a step works on: two layers go from `h` to `middle` and back, so that the next step starts where this one ended.
struct State {
    norm: Buffer<f32>,
    layers: [Layer; 2],
    h: Buffer<f32>,
    middle: Buffer<f32>,
    normed: Buffer<f32>,
    product: Buffer<f32>,
    n: u32,
}

impl State {
    fn new(stream: &Stream, h: &[f32], norm: &[f32], weights: &[Vec<u16>; 2]) -> Result<State, Failure> {
        let layer = |blocks: &Vec<u16>| {
            let split = Split::of(blocks);
            Ok::<_, Error>(Layer { codes: stream.upload(&split.codes)?, scales: stream.upload(&split.scales)? })
        };
        let scratch = || stream.upload(&poison(h.len()));
        Ok(State {
            norm: stream.upload(norm)?,
            layers: [layer(&weights[0])?, layer(&weights[1])?],
            h: stream.upload(h)?,
            middle: scratch()?,
            normed: scratch()?,
            product: scratch()?,
            n: dimension(h.len())?,
        })
    }

    /// Six launches, on a stream that runs them or in a capture that records them.
    fn step(&mut self, on: &mut impl Launcher) -> Result<(), Error> {
        let State { norm, layers: [first, second], h, middle, normed, product, n } = self;
        layer(on, (first, norm, *n), h, (normed, product), middle)?;
        layer(on, (second, norm, *n), middle, (normed, product), h)
    }
}

/// `to = from + W norm(from)`.
fn layer(
    on: &mut impl Launcher,
    (weights, norm, n): (&Layer, &Buffer<f32>, u32),
    from: &Buffer<f32>,
    (normed, product): (&mut Buffer<f32>, &mut Buffer<f32>),
    to: &mut Buffer<f32>,
) -> Result<(), Error> {
    on.launch(rms_norm::RmsNorm { x: from, w: norm, y: normed, cols: n, eps: EPS })?;
    let Layer { codes, scales } = weights;
    on.launch(Q80Rows { codes, scales, x: normed, y: product, rows: n, cols: n })?;
    on.launch(AddVectors { x: from, y: product, z: to, n })
}

/// Runs some steps eagerly, and the same as replays of a graph.
pub fn run(bench: &Bench, _step: u32, (_, width): (usize, usize)) -> Result<Outcome, Failure> {
    let stream = &bench.stream;
    let (h, norm) = (numbers(width, 9), vec![1.0; width]);
    // Small weights, so that the layers change `h` without drowning it.
    let small = |seed| quantise(&numbers(width * width, seed).iter().map(|w| w / width as f32).collect::<Vec<_>>());
    let weights = [small(10), small(11)];

    let mut eager = State::new(stream, &h, &norm, &weights)?;
    let counted = bench.count(|| eager.step(&mut &*stream))?;
    reset_call_counts();
    for _ in 1..STEPS {
        eager.step(&mut &*stream)?;
    }
    let eager_calls = work(&call_counts()) / (STEPS - 1);
    let eager_h = stream.read(&eager.h)?;

    let mut state = State::new(stream, &h, &norm, &weights)?;
    let graph = stream.capture(|scope| state.step(scope))?;
    reset_call_counts();
    for _ in 0..STEPS {
        graph.launch(stream)?;
    }
    let graph_calls = work(&call_counts()) / STEPS;
    let graph_h = stream.read(&state.h)?;
    if graph_h.iter().map(|v| v.to_bits()).ne(eager_h.iter().map(|v| v.to_bits())) {
        return Err("the graph's result differs from that of the same launches".into());
    }

    // The definition, in f64 from f32 to f32: an error of 1e-6 of the largest value is allowed a layer.
    let mut expected = h;
    for layer in 0..2 * STEPS as usize {
        let normed: Vec<f32> = rms_norm::reference(&expected, &norm, EPS).into_iter().map(|v| v as f32).collect();
        let product = gemv::reference(&dequantise(&weights[layer % 2]), &normed);
        expected = expected.iter().zip(product).map(|(h, (p, _))| (f64::from(*h) + p) as f32).collect();
    }
    let largest = expected.iter().fold(0.0f32, |most, v| most.max(v.abs()));
    let allowed = 1e-6 * f64::from(largest) * 2.0 * STEPS as f64;
    let expected: Vec<_> = expected.iter().map(|v| (f64::from(*v), allowed)).collect();

    let bytes = 2 * (2 * weights[0].len() + 2 * 4 * width) + 4 * width;
    let mut outcome = Outcome::new(worst(&graph_h, &expected), 2 * width * width, bytes, counted)?;
    outcome.notes = vec![
        format!(
            "Launching calls of the driver a step: {eager_calls} one by one, {graph_calls} with the graph of {} nodes.",
            graph.nodes()
        ),
        format!("After {STEPS} steps both give the same bits."),
    ];
    Ok(outcome)
}

/// Calls that give the GPU work.
fn work(calls: &CallCounts) -> u64 {
    calls.iter().filter(|(name, _)| name.contains("Launch")).map(|(_, count)| count).sum()
}
