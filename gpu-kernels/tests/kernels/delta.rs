//! Gated delta nets: what a state costs, and that nothing of a sequence depends on others or on how it is cut.

use crate::machine::{Gpu, Rng};
use gpu_kernels::cases::Subject;
use gpu_kernels::delta::{DeltaConv, DeltaRule, FRESH, Net, Run};
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

struct Layer {
    conv: Vec<f32>,
    a: Vec<f32>,
    dt: Vec<f32>,
    norm: Vec<f32>,
}

impl Layer {
    fn new(rng: &mut Rng) -> Layer {
        assert_eq!((NET.channels(), NET.projected().next_multiple_of(4)), (CHANNELS, STRIDE - 4));
        let a = rng.floats(2).iter().map(|a| -a.abs()).collect();
        Layer { conv: rng.floats(4 * CHANNELS), a, dt: rng.floats(2), norm: rng.floats(32) }
    }

    /// Takes columns of several sequences, each with its states before, into those after; results and states.
    fn step(&self, gpu: &mut Gpu, sequences: &[(&[f32], Option<&[f32]>)]) -> (Vec<Vec<f32>>, Vec<Vec<f32>>) {
        let all: Vec<f32> = sequences.iter().flat_map(|(columns, _)| columns.to_vec()).collect();
        let columns = all.len() / STRIDE;
        let states: Vec<_> = sequences
            .iter()
            .map(|(_, before)| {
                let from = gpu.upload(before.unwrap_or(&[]));
                (from, gpu.poisoned::<f32>(NET.layer_len()))
            })
            .collect();
        let mut first = 0;
        let runs: Vec<Run> = sequences
            .iter()
            .zip(&states)
            .map(|((columns, before), (from, to))| {
                let count = (columns.len() / STRIDE) as u32;
                first += count;
                let flags = if before.is_none() { FRESH } else { 0 };
                Run { from: from.address(), to: to.address(), first: first - count, count, last: first - 1, flags }
            })
            .collect();
        let (x, runs) = (gpu.upload(&all), gpu.upload(&runs));
        let weights = [&self.conv, &self.a, &self.dt, &self.norm].map(|w| gpu.upload(w));
        let [conv, a, dt, norm] = &weights;
        let (mut mixed, mut y) = (gpu.poisoned::<f32>(columns * CHANNELS), gpu.poisoned::<f32>(columns * 64));
        let (n, stride, mixed_stride) = (columns as u32, STRIDE as u32, CHANNELS as u32);
        let launch = DeltaConv {
            x: &x,
            weight: conv,
            runs: &runs,
            y: &mut mixed,
            columns: n,
            x_stride: stride,
            y_stride: mixed_stride,
            net: NET,
        };
        // SAFETY: the runs lead to buffers that live until the end of this function.
        unsafe { gpu.launch_unchecked(launch) }.unwrap();
        let launch = DeltaRule {
            mixed: &mixed,
            projected: &x,
            a,
            dt,
            norm,
            runs: &runs,
            y: &mut y,
            quantized: DeviceSlice::empty_mut(),
            group_counters: DeviceSlice::empty_mut(),
            columns: n,
            mixed_stride,
            stride,
            y_stride: 64,
            quant_format: NONE,
            net: NET,
        };
        // SAFETY: as above.
        unsafe { gpu.launch_unchecked(launch) }.unwrap();
        let y = gpu.read(&y);
        let mut at = 0;
        let results = sequences.iter().map(|(columns, _)| {
            let len = columns.len() / STRIDE * 64;
            at += len;
            y[at - len..at].to_vec()
        });
        (results.collect(), states.iter().map(|(_, to)| gpu.read(to)).collect())
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
    let (whole, states) = layer.step(&mut gpu, &[(&one, None)]);
    for cut in [1, 2, 5, 32, 33, 39] {
        let (head, tail) = one.split_at(cut * STRIDE);
        let (first, before) = layer.step(&mut gpu, &[(&other, None), (head, None)]);
        let (second, after) = layer.step(&mut gpu, &[(tail, Some(&before[1])), (&other, Some(&before[0]))]);
        assert!(bits(&[&first[1][..], &second[0]].concat()) == bits(&whole[0]), "cut at {cut}");
        assert!(bits(&after[0]) == bits(&states[0]), "cut at {cut}");
    }
}

#[test]
fn what_is_not_a_number_stays_in_its_sequence() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(6));
    let layer = Layer::new(&mut rng);
    let (clean, one) = (rng.floats(5 * STRIDE), rng.floats(5 * STRIDE));
    let (want, states) = layer.step(&mut gpu, &[(&clean, None), (&one, None)]);
    // A query, a key, a value, an output gate, beta and alpha.
    for place in [3, 35, 70, CHANNELS + 5, CHANNELS + 64, CHANNELS + 66] {
        let mut broken = one.clone();
        broken[2 * STRIDE + place] = f32::NAN;
        let (y, after) = layer.step(&mut gpu, &[(&clean, None), (&broken, None)]);
        assert!(bits(&y[0]) == bits(&want[0]) && bits(&after[0]) == bits(&states[0]), "{place}");
        assert!(y[1][..2 * 64] == want[1][..2 * 64], "{place}: before it all is as it was");
        assert!(y[1][2 * 64..3 * 64].iter().any(|v| v.is_nan()), "{place}: it is handed on");
    }
}
