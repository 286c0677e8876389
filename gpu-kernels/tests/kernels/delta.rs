//! Gated delta nets: what a state costs, and that nothing of a sequence depends on others or on how it is cut.

use crate::machine::{Buffer, Gpu, Rng};
use gpu_kernels::cases::Subject;
use gpu_kernels::delta::{DeltaChunks, DeltaConv, DeltaNorm, DeltaRule, FRESH, LayerVectors, Net, Reference, Run};
use gpu_kernels::gemv::quant_format::NONE;
use warpsmith_device::{DeviceSlice, Launcher};

/// The heads of Qwen3.5 27B: of the sectors that are read and written no more than a fifth is not the state's.
#[test]
fn decoding_reads_and_writes_a_state_once() {
    let mut gpu = Gpu::new();
    for tokens in [1, 8] {
        let case = Subject::DeltaRule.parse(&format!("value_heads=48,tokens={tokens}")).unwrap();
        case.run(&mut gpu).unwrap();
        let state = 48 * 128 * 128 * 4;
        let moved = 32 * (gpu.counters.global_load_sectors + gpu.counters.global_store_sectors);
        let times = moved as f64 / f64::from(2 * state);
        println!("{tokens} tokens: {times:.3} of the bytes of the state, read and written once");
        assert!(tokens > 1 || (1.0..=1.2).contains(&times), "{times}");
        assert_eq!((gpu.counters.local_bytes, gpu.counters.blocks), (0, 48 * 3));
        // More tokens do not read it again: each adds its queries and keys, once a warp.
        assert!(times < 1.0 + 0.2 * f64::from(tokens), "{times}");
    }
}

const NET: Net = Net { layer: 0, key_heads: 1, value_heads: 2, dim: 32, eps: 1e-6, together: 1 };
const CHANNELS: usize = 128;
const STRIDE: usize = 200;

/// A sequence's part of a step: its columns, the states before, and of a run in chunks the position of the first column.
type Part<'a> = (&'a [f32], Option<&'a [f32]>, Option<u32>);

struct Layer {
    net: Net,
    stride: usize,
    conv: Vec<f32>,
    a: Vec<f32>,
    dt: Vec<f32>,
    norm: Vec<f32>,
}

/// What a step of some sequences gives.
struct Stepped {
    results: Vec<Vec<f32>>,
    states: Vec<Vec<f32>>,
    /// Warp instructions of the launches behind the convolution, and bytes that they load and store.
    instructions: u64,
    bytes: u64,
}

impl Layer {
    fn new(rng: &mut Rng) -> Layer {
        assert_eq!((NET.channels(), NET.projected().next_multiple_of(4)), (CHANNELS, STRIDE - 4));
        Layer::of(rng, NET, STRIDE)
    }

    fn of(rng: &mut Rng, net: Net, stride: usize) -> Layer {
        let heads = net.value_heads as usize;
        let a = rng.floats(heads).iter().map(|a| -a.abs()).collect();
        let (conv, dt) = (rng.floats(4 * net.channels()), rng.floats(heads));
        Layer { net, stride, conv, a, dt, norm: rng.floats(net.dim as usize) }
    }

    /// Takes columns of several sequences, each with its states before, into those after.
    fn step(&self, gpu: &mut Gpu, sequences: &[Part<'_>]) -> Stepped {
        let (net, values, channels) = (self.net, self.net.values(), self.net.channels());
        let all: Vec<f32> = sequences.iter().flat_map(|(columns, ..)| columns.to_vec()).collect();
        let columns = all.len() / self.stride;
        let states: Vec<_> = sequences
            .iter()
            .map(|(_, before, _)| {
                let from = gpu.upload(before.unwrap_or(&[]));
                (from, gpu.poisoned::<f32>(net.layer_len()))
            })
            .collect();
        let mut first = 0;
        let runs: Vec<Run> = sequences
            .iter()
            .zip(&states)
            .map(|((columns, before, position), (from, to))| {
                let count = (columns.len() / self.stride) as u32;
                first += count;
                let flags = if before.is_none() { FRESH } else { 0 } | position.map_or(0, Run::from_position);
                Run { from: from.address(), to: to.address(), first: first - count, count, last: first - 1, flags }
            })
            .collect();
        let (x, runs) = (gpu.upload(&all), gpu.upload(&runs));
        let weights = [&self.conv, &self.a, &self.dt, &self.norm].map(|w| gpu.upload(w));
        let [conv, ..] = &weights;
        let (mut mixed, mut y) = (gpu.poisoned::<f32>(columns * channels), gpu.poisoned::<f32>(columns * values));
        let (n, stride, mixed_stride) = (columns as u32, self.stride as u32, channels as u32);
        let launch = DeltaConv {
            x: &x,
            weight: conv,
            runs: &runs,
            y: &mut mixed,
            columns: n,
            x_stride: stride,
            y_stride: mixed_stride,
            net,
        };
        // SAFETY: the runs lead to buffers that live until the end of this function.
        unsafe { gpu.launch_unchecked(launch) }.unwrap();
        let chunks = sequences.iter().any(|part| part.2.is_some());
        let [instructions, bytes] = self.rule(gpu, (&mixed, &x, &weights), (&runs, chunks), &mut y, n);
        let y = gpu.read(&y);
        let mut at = 0;
        let results = sequences.iter().map(|(columns, ..)| {
            let len = columns.len() / self.stride * values;
            at += len;
            y[at - len..at].to_vec()
        });
        let results = results.collect();
        Stepped { results, states: states.iter().map(|(_, to)| gpu.read(to)).collect(), instructions, bytes }
    }

    /// The launches behind the convolution: the rule, and where there are runs in chunks what takes these; instructions and bytes.
    fn rule(
        &self,
        gpu: &mut Gpu,
        (mixed, projected, weights): (&DeviceSlice<f32>, &DeviceSlice<f32>, &[Buffer<f32>; 4]),
        (runs, chunks): (&DeviceSlice<Run>, bool),
        y: &mut DeviceSlice<f32>,
        columns: u32,
    ) -> [u64; 2] {
        let (net, [_, a, dt, norm]) = (self.net, weights);
        let (mixed_stride, stride, y_stride) = (net.channels() as u32, self.stride as u32, net.values() as u32);
        let (quant_format, mut counted) = (NONE, [0; 2]);
        let mut count = |gpu: &Gpu| {
            counted[0] += gpu.counters.warp_instructions;
            counted[1] += 32 * (gpu.counters.global_load_sectors + gpu.counters.global_store_sectors);
        };
        let launch = DeltaRule {
            mixed,
            projected,
            a,
            dt,
            norm,
            runs,
            y: &mut *y,
            quantized: DeviceSlice::empty_mut(),
            group_counters: DeviceSlice::empty_mut(),
            columns,
            mixed_stride,
            stride,
            y_stride,
            quant_format,
            net,
        };
        // SAFETY: the runs lead to buffers that live until the step has ended.
        unsafe { gpu.launch_unchecked(launch) }.unwrap();
        count(gpu);
        if chunks {
            let y = &mut *y;
            let launch = DeltaChunks { mixed, projected, a, dt, runs, y, columns, mixed_stride, stride, y_stride, net };
            // SAFETY: as above.
            unsafe { gpu.launch_unchecked(launch) }.unwrap();
            count(gpu);
            let (quantized, group_counters) = (DeviceSlice::empty_mut(), DeviceSlice::empty_mut());
            let launch = DeltaNorm {
                projected,
                norm,
                runs,
                y,
                quantized,
                group_counters,
                columns,
                stride,
                y_stride,
                quant_format,
                net,
            };
            // SAFETY: as above.
            unsafe { gpu.launch_unchecked(launch) }.unwrap();
            count(gpu);
        }
        counted
    }
}

fn bits(v: &[f32]) -> Vec<u32> {
    v.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn a_sequence_has_the_same_bits_however_it_is_cut() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(5));
    let layer = Layer::new(&mut rng);
    let (one, other) = (rng.floats(40 * STRIDE), rng.floats(3 * STRIDE));
    let whole = layer.step(&mut gpu, &[(&one, None, None)]);
    for cut in [1, 2, 5, 32, 33, 39] {
        let (head, tail) = one.split_at(cut * STRIDE);
        let first = layer.step(&mut gpu, &[(&other, None, None), (head, None, None)]);
        let [of_other, before] = &first.states[..] else { panic!() };
        let second = layer.step(&mut gpu, &[(tail, Some(before), None), (&other, Some(of_other), None)]);
        assert!(bits(&[&first.results[1][..], &second.results[0]].concat()) == bits(&whole.results[0]), "cut at {cut}");
        assert!(bits(&second.states[0]) == bits(&whole.states[0]), "cut at {cut}");
    }
}

/// At multiples of a chunk a sequence in chunks may be cut; elsewhere it has other bits, of nearly the same numbers. What is beside it
/// changes nothing.
#[test]
fn chunks_are_those_of_the_sequence() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(7));
    let layer = Layer::new(&mut rng);
    let (one, other) = (rng.floats(70 * STRIDE), rng.floats(40 * STRIDE));
    let whole = layer.step(&mut gpu, &[(&one, None, Some(0))]);
    let tokens = layer.step(&mut gpu, &[(&one, None, None)]);
    let near = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-4);
    assert!(near(&whole.results[0], &tokens.results[0]) && near(&whole.states[0], &tokens.states[0]));
    for cut in [16, 32, 64, 1, 5, 33] {
        let (head, tail) = one.split_at(cut * STRIDE);
        let first = layer.step(&mut gpu, &[(&other, None, None), (head, None, Some(0))]);
        let [of_other, before] = &first.states[..] else { panic!() };
        let rest = (tail, Some(&before[..]), Some(cut as u32));
        let second = layer.step(&mut gpu, &[rest, (&other, Some(of_other), Some(40))]);
        let results = [&first.results[1][..], &second.results[0]].concat();
        let same = bits(&results) == bits(&whole.results[0]) && bits(&second.states[0]) == bits(&whole.states[0]);
        assert!(same || cut % 16 != 0, "cut at {cut}");
        assert!(near(&results, &whole.results[0]) && near(&second.states[0], &whole.states[0]), "cut at {cut}");
    }
}

#[test]
fn what_is_not_a_number_stays_in_its_sequence() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(6));
    let layer = Layer::new(&mut rng);
    let (clean, one) = (rng.floats(5 * STRIDE), rng.floats(5 * STRIDE));
    for chunks in [None, Some(0)] {
        let want = layer.step(&mut gpu, &[(&clean, None, chunks), (&one, None, chunks)]);
        // A query, a key, a value, an output gate, beta and alpha.
        for place in [3, 35, 70, CHANNELS + 5, CHANNELS + 64, CHANNELS + 66] {
            let mut broken = one.clone();
            broken[2 * STRIDE + place] = f32::NAN;
            let got = layer.step(&mut gpu, &[(&clean, None, chunks), (&broken, None, chunks)]);
            let (y, want_y) = (&got.results, &want.results);
            assert!(bits(&y[0]) == bits(&want_y[0]) && bits(&got.states[0]) == bits(&want.states[0]), "{place}");
            assert!(y[1][..2 * 64] == want_y[1][..2 * 64], "{place}: before it all is as it was");
            assert!(y[1][2 * 64..3 * 64].iter().any(|v| v.is_nan()), "{place}: it is handed on");
        }
    }
}

/// A state that keeps nearly all of what it has, over thousands of tokens, beside f64.
#[test]
fn errors_of_chunks_do_not_grow_with_the_tokens() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(8));
    let layer = Layer { a: vec![-1e-3, -0.1], ..Layer::new(&mut rng) };
    let columns = rng.floats(4096 * STRIDE);
    let weights = LayerVectors { conv: &layer.conv, a: &layer.a, dt: &layer.dt, norm: &layer.norm };
    let mut reference = Reference::new(NET);
    let column = |c: &[f32]| c.iter().map(|v| f64::from(*v)).collect::<Vec<f64>>();
    let want: Vec<Vec<f64>> = columns.chunks_exact(STRIDE).map(|c| reference.feed(&column(c), weights)).collect();
    let off = |want: &[f64], got: &[f32]| {
        want.iter().zip(got).fold(0.0f64, |worst, (want, got)| worst.max((want - f64::from(*got)).abs()))
    };
    let largest = reference.states.iter().fold(0.0f64, |a, s| a.max(s.abs()));
    for chunks in [None, Some(0)] {
        let got = layer.step(&mut gpu, &[(&columns, None, chunks)]);
        let results: Vec<f64> = want.iter().zip(got.results[0].chunks_exact(64)).map(|(w, y)| off(w, y)).collect();
        let quarters = [0, 1, 2, 3].map(|q| results[1024 * q..][..1024].iter().fold(0.0f64, |a, b| a.max(*b)));
        let states = off(&reference.states, &got.states[0][NET.layer_len() - reference.states.len()..]);
        println!("chunks {chunks:?}: results of quarters off by {quarters:?}, states by {states:.1e} of {largest:.1}");
        assert!(quarters.iter().all(|q| *q <= 1e-5) && states <= 5e-6 * largest, "{quarters:?} {states:e}");
    }
}

/// Of a prompt of 512 tokens, of heads of 128 elements.
#[test]
fn prompts_in_chunks_take_fewer_instructions() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(9));
    let net = Net { key_heads: 1, value_heads: 2, dim: 128, ..NET };
    let layer = Layer::of(&mut rng, net, net.projected().next_multiple_of(4));
    let columns = rng.floats(512 * layer.stride);
    let tokens = layer.step(&mut gpu, &[(&columns, None, None)]);
    let chunks = layer.step(&mut gpu, &[(&columns, None, Some(0))]);
    let share = chunks.instructions as f64 / tokens.instructions as f64;
    println!(
        "warp instructions {} for {}, a share of {share:.3}; bytes {} for {}",
        chunks.instructions, tokens.instructions, chunks.bytes, tokens.bytes
    );
    assert!(share < 0.4 && chunks.bytes < tokens.bytes, "{share}");
}
