//! The cases of the step from logits to tokens.

use super::argmax::{self, Argmax, ArgmaxMasked};
use super::penalty::{RepetitionPenalty, penalised};
use super::sample::{self, RECORD, Sample, SampleBest, SampleDraw, SampleWeigh, Sampling, bitset};
use super::top::{self, Top};
use super::words;
use crate::cases::{Bench, Failure, Listed, Measured, NamedSizes, Outcome, Plain, Rng, Shape, same, why};
use crate::state::Column;
use warpsmith_device::DeviceAddress;

/// The sizes of what is done to all logits.
const SIZES: NamedSizes = &[("columns", 1), ("n", 32000)];

/// The edges of warps and blocks, and a vocabulary.
fn shapes() -> Vec<Vec<usize>> {
    [1, 2, 31, 32, 33, 1000, 1023, 1024, 1025, 2049, 32000].map(|n| vec![1 + n % 3, n]).to_vec()
}

/// Rows that are apart, with what nobody may read between them.
fn rows(rng: &mut Rng, columns: usize, n: usize, stride: usize) -> Vec<f32> {
    let mut x = vec![f32::INFINITY; (columns - 1) * stride + n];
    for (column, row) in x.chunks_mut(stride).enumerate() {
        for v in &mut row[..n] {
            *v = match rng.within(0, 19) {
                0 => f32::NAN,
                // Many ties.
                1..=9 => rng.within(0, 8) as f32 - 4.0,
                // A few of the largest, anywhere.
                _ if column % 7 == 2 => rng.within(0, n / 3) as f32,
                _ => rng.unit() * 6.0,
            };
        }
    }
    x
}

fn largest<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng, masked: bool) -> Outcome {
    let [columns, n] = shape.sizes(["columns", "n"])?;
    let (stride, width) = (n + 5, words(n as u32) as usize + 1);
    let x = rows(rng, columns, n, stride);
    let row = |c: usize| &x[c * stride..][..n];
    let (dx, mut y) = (bench.upload(&x)?, bench.output::<u32>(columns)?);
    let (n, stride32) = (n as u32, stride as u32);
    if !masked {
        bench.launch(Argmax { x: &dx, y: &mut y, n, stride: stride32 })?;
        let want: Vec<u32> = (0..columns).map(|c| argmax::reference(row(c))).collect();
        return same(&bench.read(&y)?, &want);
    }
    // One in eight is allowed; nothing in the last column.
    let mut mask: Vec<u32> = (0..columns * width).map(|_| (rng.next() & rng.next() & rng.next()) as u32).collect();
    mask[(columns - 1) * width..].fill(0);
    let allowed = bench.upload(&mask)?;
    let mask_stride = width as u32;
    bench.launch(ArgmaxMasked { x: &dx, allowed: &allowed, y: &mut y, n, stride: stride32, mask_stride })?;
    let want: Vec<u32> = (0..columns).map(|c| argmax::masked_reference(row(c), Some(&mask[c * width..]))).collect();
    same(&bench.read(&y)?, &want)?;
    // One mask for all columns.
    bench.launch(ArgmaxMasked { x: &dx, allowed: &allowed, y: &mut y, n, stride: stride32, mask_stride: 0 })?;
    let want: Vec<u32> = (0..columns).map(|c| argmax::masked_reference(row(c), Some(&mask))).collect();
    same(&bench.read(&y)?, &want)
}

fn penalty<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
    let ([columns, n], penalty) = (shape.sizes(["columns", "n"])?, 1.3f32);
    let (stride, width) = (n + 3, words(n as u32) as usize);
    let x = rows(rng, columns, n, stride);
    let seen: Vec<u32> = (0..columns * width).map(|_| rng.next() as u32).collect();
    let (mut dx, dseen) = (bench.upload(&x)?, bench.upload(&seen)?);
    bench.launch(RepetitionPenalty {
        x: &mut dx,
        seen: &dseen,
        columns: columns as u32,
        n: n as u32,
        stride: stride as u32,
        mask_stride: width as u32,
        penalty,
    })?;
    let bits = |v: f32| if v.is_nan() { f32::NAN.to_bits() } else { v.to_bits() };
    let want = x.iter().enumerate().map(|(at, v)| {
        let (c, i) = (at / stride, at % stride);
        let hit = i < n && seen[c * width + i / 32] >> (i % 32) & 1 != 0;
        bits(if hit { penalised(*v, penalty) } else { *v })
    });
    let got: Vec<u32> = bench.read(&dx)?.into_iter().map(bits).collect();
    same(&got, &want.collect::<Vec<_>>())
}

/// The parameters of column `c`: each alone, all together, and values that mean nothing.
fn settings(rng: &mut Rng, c: usize) -> Sampling {
    let base =
        Sampling { temperature: 0.8, seed_low: rng.next() as u32, seed_high: rng.next() as u32, ..Sampling::GREEDY };
    match c % 12 {
        0 => Sampling::GREEDY,
        1 => base,
        2 => Sampling { top_k: 1, ..base },
        3 => Sampling { top_k: 5, ..base },
        4 => Sampling { top_p: 0.5, ..base },
        5 => Sampling { top_p: 0.9, top_k: 40, temperature: 1.7, ..base },
        6 => Sampling { top_p: 0.0, temperature: 3.0, ..base },
        7 => Sampling { temperature: 1e-42, top_k: 3, ..base },
        8 => Sampling { temperature: f32::INFINITY, top_p: 0.3, ..base },
        9 => Sampling { temperature: f32::NAN, top_p: f32::NAN, ..base },
        10 => Sampling { top_p: 0.999_999, top_k: u32::MAX, temperature: 0.1, ..base },
        _ => Sampling { top_k: 700, top_p: 0.7, temperature: 10.0, ..base },
    }
}

fn sample<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
    let [columns, n] = shape.sizes(["columns", "n"])?;
    let (stride, width) = (n + 1, words(n as u32) as usize);
    let x = rows(rng, columns, n, stride);
    let mut seen: Vec<u32> = (0..columns * width).map(|_| (rng.next() & rng.next()) as u32).collect();
    let mut allowed: Vec<u32> = (0..columns * width).map(|_| (rng.next() | rng.next()) as u32).collect();
    // One column may have nothing.
    if columns > 12 {
        allowed[13 * width..14 * width].fill(0);
    }
    let (d_seen, d_allowed) = (bench.upload(&seen)?, bench.upload(&allowed)?);
    let with = |on: bool, all: DeviceAddress, c: usize| match on {
        true => all.byte_add(4 * (c * width) as u64),
        false => DeviceAddress::NULL,
    };
    let params: Vec<Sampling> = (0..columns)
        .map(|c| Sampling {
            penalty: if c % 2 == 0 { 1.2 } else { 1.0 },
            flags: if c % 3 == 0 { RECORD } else { 0 },
            seen: with(c % 4 < 3, d_seen.address(), c),
            allowed: with(c % 5 == 3, d_allowed.address(), c),
            ..settings(rng, c)
        })
        .collect();
    let at: Vec<Column> = (0..columns).map(|c| Column::at(0, (c * 1000) as u32)).collect();
    let (dx, d_params, d_columns) = (bench.upload(&x)?, bench.upload(&params)?, bench.upload(&at)?);
    let mut y = bench.output::<u32>(columns)?;
    let (mut work, mut tickets) =
        (bench.output::<u64>(sample::work_len(columns) as usize)?, bench.upload(&vec![0u32; columns])?);
    let sample = Sample {
        logits: &dx,
        params: &d_params,
        columns: &d_columns,
        y: &mut y,
        work: &mut work,
        tickets: &mut tickets,
        n: n as u32,
        stride: stride as u32,
    };
    // SAFETY: both bitsets are buffers of this case, a part of them each column's own.
    unsafe { sample.launch(bench, true, false) }?;
    let mut want = Vec::new();
    for (c, s) in params.iter().enumerate() {
        let set =
            |address: DeviceAddress, all: &[u32]| (!address.is_null()).then(|| all[c * width..][..width].to_vec());
        let (own, may) = (set(s.seen, &seen), set(s.allowed, &allowed));
        let token = sample::reference(&x[c * stride..][..n], s, at[c].position, own.as_deref(), may.as_deref());
        if s.flags & RECORD != 0 && !s.seen.is_null() && token < n as u32 {
            for (to, from) in seen[c * width..].iter_mut().zip(bitset(n as u32, [token])) {
                *to |= from;
            }
        }
        want.push(token);
    }
    same(&bench.read(&y)?, &want)?;
    same(&bench.read(&tickets)?, &vec![0; columns])?;
    same(&bench.read(&d_seen)?, &seen).map_err(|e| Failure::Wrong(format!("tokens that were seen: {e}")))
}

/// The index of the largest.
pub struct Argmaxes;

impl Plain for Argmaxes {
    const SIZES: NamedSizes = SIZES;

    fn kernels() -> Vec<Listed> {
        vec![Listed::new::<Argmax<'_>>(Measured::By("argmax"), Measured::Not(why::ONCE))]
    }

    fn shapes() -> Vec<Vec<usize>> {
        shapes()
    }

    fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        largest(shape, bench, rng, false)
    }
}

/// The index of the largest that a mask allows.
pub struct MaskedArgmaxes;

impl Plain for MaskedArgmaxes {
    const SIZES: NamedSizes = SIZES;

    fn kernels() -> Vec<Listed> {
        vec![Listed::unmeasured::<ArgmaxMasked<'_>>(why::ONCE)]
    }

    fn shapes() -> Vec<Vec<usize>> {
        shapes()
    }

    fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        largest(shape, bench, rng, true)
    }
}

/// The repetition penalty.
pub struct Penalties;

impl Plain for Penalties {
    const SIZES: NamedSizes = SIZES;

    fn kernels() -> Vec<Listed> {
        vec![Listed::unmeasured::<RepetitionPenalty<'_>>(why::ONCE)]
    }

    fn shapes() -> Vec<Vec<usize>> {
        shapes()
    }

    fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        penalty(shape, bench, rng)
    }
}

/// A token by temperature, top-k, top-p and a seed.
pub struct Samples;

impl Plain for Samples {
    const SIZES: NamedSizes = &[("columns", 1), ("n", 4096)];

    fn kernels() -> Vec<Listed> {
        vec![
            Listed::new::<SampleBest<'_>>(Measured::By("sample"), Measured::Not(why::ONCE)),
            Listed::new::<SampleWeigh<'_>>(Measured::By("sample"), Measured::Not(why::ONCE)),
            Listed::new::<SampleDraw<'_>>(Measured::By("sample"), Measured::Not(why::ONCE)),
        ]
    }

    fn shapes() -> Vec<Vec<usize>> {
        // Many slices of a column, and a rest; there columns 8 and 20 have more candidates than there is room for. So many columns that
        // slices are of several rounds.
        [(24, 1), (24, 2), (48, 7), (24, 33), (24, 1000), (12, 1025), (12, 3001), (22, 18001), (172, 3100)]
            .map(|(columns, n)| vec![columns, n])
            .to_vec()
    }

    fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        sample(shape, bench, rng)
    }
}

/// The most likely tokens.
pub struct Tops;

impl Plain for Tops {
    const SIZES: NamedSizes = &[("columns", 1), ("n", 4096), ("count", 20)];

    fn kernels() -> Vec<Listed> {
        vec![Listed::unmeasured::<Top<'_>>(why::ONCE)]
    }

    fn shapes() -> Vec<Vec<usize>> {
        let sizes = [1, 2, 31, 33, 1000, 1025, 3001, 18001];
        sizes.into_iter().flat_map(|n| [1, 5, 20, 32].map(|count| vec![1 + n % 4, n, count])).collect()
    }

    fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
        let [columns, n, count] = shape.sizes(["columns", "n", "count"])?;
        let stride = n + 3;
        let mut x = rows(rng, columns, n, stride);
        // The last column has nothing, where there are several.
        if columns > 2 {
            x[(columns - 1) * stride..].fill(f32::NAN);
        }
        let dx = bench.upload(&x)?;
        let (mut tokens, mut values) = (bench.output::<u32>(columns * count)?, bench.output::<f32>(columns * count)?);
        let mut sums = bench.output::<u64>(columns)?;
        bench.launch(Top {
            logits: &dx,
            tokens: &mut tokens,
            values: &mut values,
            sums: &mut sums,
            n: n as u32,
            stride: stride as u32,
            count: count as u32,
        })?;
        let (tokens, values, sums) = (bench.read(&tokens)?, bench.read(&values)?, bench.read(&sums)?);
        for c in 0..columns {
            let row = &x[c * stride..][..n];
            let want = top::reference(row, count);
            same(&tokens[c * count..][..count], &want.iter().map(|w| w.0).collect::<Vec<_>>())?;
            let bits = |v: &f32| v.to_bits();
            let got: Vec<u32> = values[c * count..][..count].iter().map(bits).collect();
            same(&got, &want.iter().map(|w| bits(&w.1)).collect::<Vec<_>>())?;
            let numbers = || row.iter().filter(|v| !v.is_nan()).map(|&v| f64::from(v));
            let largest = numbers().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = numbers().map(|v| (v - largest).exp()).sum();
            for &(_, v) in want.iter().filter(|w| w.0 != super::NONE) {
                let (got, want) = (top::logprob(v, largest as f32, sums[c]), f64::from(v) - largest - total.ln());
                let off = (f64::from(got) - want).abs();
                if off.is_nan() || off > 2f64.powi(-19) + 1e-6 * want.abs() {
                    return Err(Failure::Wrong(format!("column {c}: a logarithm is {got} where {want} is right")));
                }
            }
        }
        Ok(())
    }
}
