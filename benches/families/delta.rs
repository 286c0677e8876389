//! A gated delta net with the heads of Qwen3.5 27B, by tokens of one sequence.

use gpu_kernels::delta::{DeltaChunks, DeltaNorm, DeltaRule, LayerVectors, Net, Reference, Run as Columns};
use gpu_kernels::gemv::quant_format::NONE;
use warpsmith_bench::{Bench, Failed, Group, Noise, Output, Run, Work};
use warpsmith_device::{DeviceSlice, Launcher};
use warpsmith_host::Stream;

const NET: Net = Net { layer: 0, key_heads: 16, value_heads: 48, dim: 128, eps: 1e-6, together: 1 };

type Floats = DeviceSlice<f32>;

/// The two launches of prompts in chunks; columns lie as [`rule`] has them.
fn in_chunks<L: Launcher>(
    on: &mut L,
    (mixed, projected, runs): (&Floats, &Floats, &DeviceSlice<Columns>),
    (a, dt, norm): (&Floats, &Floats, &Floats),
    y: &mut Floats,
    columns: u32,
) -> Result<(), L::Error> {
    let (net, mixed_stride, y_stride) = (NET, NET.channels() as u32, NET.values() as u32);
    let stride = NET.projected().next_multiple_of(4) as u32;
    let chunks =
        DeltaChunks { mixed, projected, a, dt, runs, y: &mut *y, columns, mixed_stride, stride, y_stride, net };
    // SAFETY: the states live as long as the launches of this benchmark, and with them the graph; they are its alone.
    unsafe { on.launch_unchecked(chunks) }?;
    let normed = DeltaNorm {
        projected,
        norm,
        runs,
        y,
        quantized: DeviceSlice::empty_mut(),
        group_counters: DeviceSlice::empty_mut(),
        columns,
        stride,
        y_stride,
        quant_format: NONE,
        net,
    };
    // SAFETY: as above.
    unsafe { on.launch_unchecked(normed) }
}

/// The rule of so many tokens, one by one or in chunks.
fn rule(stream: &Stream, tokens: usize, chunks: bool) -> Result<Run, Failed> {
    let (channels, values, heads) = (NET.channels(), NET.values(), NET.value_heads as usize);
    let stride = NET.projected().next_multiple_of(4);
    let (mixed, projected) = (Noise(1).floats(tokens * channels), Noise(2).floats(tokens * stride));
    let before = Noise(3).floats(NET.layer_len());
    let a: Vec<f32> = Noise(4).floats(heads).iter().map(|a| -a.abs()).collect();
    let (dt, norm) = (Noise(5).floats(heads), Noise(6).floats(NET.dim as usize));
    let states = (stream.upload(&before)?, stream.zeros::<f32>(before.len())?);
    let last = tokens as u32 - 1;
    let flags = if chunks { Columns::from_position(0) } else { 0 };
    let run = Columns { from: states.0.address(), to: states.1.address(), first: 0, count: tokens as u32, last, flags };
    let given = (stream.upload(&mixed)?, stream.upload(&projected)?, stream.upload(&[run])?);
    let weights = (stream.upload(&a)?, stream.upload(&dt)?, stream.upload(&norm)?);
    let y = stream.zeros::<f32>(tokens * values)?;
    let reference = move || {
        let inputs = before.len() - values * NET.dim as usize;
        let mut reference = Reference::new(NET);
        reference.states = before[inputs..].iter().map(|v| f64::from(*v)).collect();
        let wide = |v: &[f32]| v.iter().map(|v| f64::from(*v)).collect::<Vec<_>>();
        let weights = LayerVectors { conv: &[], a: &a, dt: &dt, norm: &norm };
        let tokens = mixed.chunks_exact(channels).zip(projected.chunks_exact(stride));
        tokens.flat_map(|(x, p)| reference.rule(&wide(x), &wide(p), weights)).collect::<Vec<f64>>()
    };
    Ok(Run::launches(
        // The states are known by address alone, and have to live.
        (given, weights, y, states),
        move |((mixed, projected, runs), (a, dt, norm), y, _), on, _| {
            if chunks {
                return in_chunks(on, (mixed, projected, runs), (a, dt, norm), y, tokens as u32);
            }
            let launch = DeltaRule {
                mixed,
                projected,
                a,
                dt,
                norm,
                runs,
                y,
                quantized: DeviceSlice::empty_mut(),
                group_counters: DeviceSlice::empty_mut(),
                columns: tokens as u32,
                mixed_stride: channels as u32,
                stride: stride as u32,
                y_stride: values as u32,
                quant_format: NONE,
                net: NET,
            };
            // SAFETY: the states live as long as this closure, and with it the graph; they are its alone.
            unsafe { on.launch_unchecked(launch) }
        },
        // As the kernel's own cases have it.
        move |(_, _, y, _), stream| Ok(vec![Output::near("y", &stream.read(y)?, &reference(), |_| 2e-4)]),
    ))
}

/// The rule of a step, and of prompts, one by one and in chunks.
pub fn rules(bench: &Bench) {
    let tokens: &[usize] = if bench.counts() { &[1, 16] } else { &[1, 16, 512] };
    for &tokens in tokens {
        let state = (NET.values() * NET.dim as usize) as u64;
        let id = format!("delta/16k48v-d128-t{tokens}");
        let work = Work { elements: state * tokens as u64, floor_bytes: 8 * state };
        // One token is no prompt.
        let ways: &[bool] = if tokens > 1 { &[false, true] } else { &[false] };
        let names = ways.iter().map(|chunks| if *chunks { "delta_chunks" } else { "delta_rule" });
        bench.measure(&Group {
            key: id.clone(),
            id,
            variants: names.map(|name| (name.to_owned(), work)).collect(),
            rows: None,
            setup: Box::new(move |bench, _, wanted| {
                let wanted = wanted.iter().filter_map(|v| ways.get(*v));
                wanted.map(|chunks| rule(&bench.stream, tokens, *chunks)).collect()
            }),
        });
    }
}
