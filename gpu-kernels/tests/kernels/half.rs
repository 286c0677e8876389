//! Products of f16 on tensor cores, and their activations.

use crate::gemv::{golden, run};
use crate::machine::{Gpu, Rng, assert_close, vector};
use gpu_kernels::cases::{Inputs, Product, Tensor, multiply, set_scale};
use gpu_kernels::format::{Format, Layout};
use gpu_kernels::gemv::quant_format::half::{SHARE, len, place};
use gpu_kernels::gemv::{QuantFormat, Quantize, magnitudes};
use warpsmith_device::{U32x4, convert};

/// Formats that are multiplied so.
fn formats() -> impl Iterator<Item = Format> {
    Format::ALL.into_iter().filter(|f| Product::Half.quant_format(*f).is_some())
}

#[test]
fn an_activation_is_the_nearest_f16_of_a_sixteenth() {
    for mut gpu in Gpu::all() {
        for cols in [1usize, 31, 128, 545, 1090] {
            let mut x = Rng(cols as u64).floats(2 * cols.next_multiple_of(4));
            let edges = [1e6, 1048319.0, 1048320.0, -3e38, 1e-6, 2f32.powi(-21), f32::INFINITY, f32::NAN, -0.0];
            x.iter_mut().zip(edges).for_each(|(x, edge)| *x = edge);
            let stride = cols.next_multiple_of(4);
            let (from, mut to) = (gpu.upload(&x), gpu.poisoned::<U32x4>(2 * len(cols as u32) as usize));
            let quantize = Quantize::new(QuantFormat::F16, &from, &mut to, cols as u32);
            quantize.columns(2, stride as u32).launch(&mut gpu).unwrap();
            let words: Vec<u32> = gpu.read(&to).into_iter().flat_map(|v| v.0).collect();
            let halves: Vec<u16> = words.iter().flat_map(|w| [*w as u16, (w >> 16) as u16]).collect();
            for (n, of_column) in halves.chunks(8 * len(cols as u32) as usize).enumerate() {
                for i in 0..cols.next_multiple_of(128) {
                    let got = of_column[place(i / 32, i % 32)];
                    let want =
                        if i < cols { ::half::f16::from_f32(x[n * stride + i] * SHARE) } else { ::half::f16::ZERO };
                    let same = got == want.to_bits() || want.is_nan() && convert::f16_bits_to_f32(got).is_nan();
                    assert!(same, "{cols} on {}, column {n}, activation {i}: {got:x}, {want}", gpu.name());
                }
            }
        }
    }
}

/// Both together are nearer by as many bits as the second has, down to the smallest of it; what is not finite has no second.
#[test]
fn two_f16_are_an_activation_to_22_bits() {
    for mut gpu in Gpu::all() {
        for cols in [1usize, 31, 128, 545] {
            let mut x = Rng(cols as u64).floats(2 * cols.next_multiple_of(4));
            let edges =
                [6e7, 67_092_476.0, 67_092_480.0, -3e38, 1e-6, 2f32.powi(-21), f32::INFINITY, f32::NAN, 1.1e-3, -0.0];
            x.iter_mut().zip(edges).for_each(|(x, edge)| *x = edge);
            let stride = cols.next_multiple_of(4);
            let of_column = QuantFormat::F16x2.len(cols as u32) as usize;
            let (from, mut to) = (gpu.upload(&x), gpu.poisoned::<U32x4>(2 * of_column));
            let quantize = Quantize::new(QuantFormat::F16x2, &from, &mut to, cols as u32);
            quantize.columns(2, stride as u32).launch(&mut gpu).unwrap();
            let words: Vec<u32> = gpu.read(&to).into_iter().flat_map(|v| v.0).collect();
            let halves: Vec<u16> = words.iter().flat_map(|w| [*w as u16, (w >> 16) as u16]).collect();
            for (n, of_column) in halves.chunks(8 * of_column).enumerate() {
                let (first, second) = of_column.split_at(of_column.len() / 2);
                for i in 0..cols.next_multiple_of(128) {
                    let x = if i < cols { x[n * stride + i] } else { 0.0 };
                    let [first, second] =
                        [first, second].map(|part| f64::from(::half::f16::from_bits(part[place(i / 32, i % 32)])));
                    let nearest = f64::from(::half::f16::from_f32(x / 1024.0));
                    assert!(first == nearest || first.is_nan() && x.is_nan(), "{cols}, column {n}, {i}: {first}, {x}");
                    if !nearest.is_finite() {
                        assert_eq!(second, 0.0, "{cols}, column {n}, {i}: {x}");
                        continue;
                    }
                    let got = (first + second / 2048.0) * 1024.0;
                    let most = f64::from(x.abs()) * 2f64.powi(-22) + 2f64.powi(-26);
                    assert!(
                        (got - f64::from(x)).abs() <= most,
                        "{cols} on {}, column {n}, {i}: {got}, {x}",
                        gpu.name()
                    );
                }
            }
        }
    }
}

#[test]
fn golden_vectors() {
    for mut gpu in Gpu::all() {
        for format in formats() {
            let Some(name) = golden(format) else { continue };
            let t = Tensor { format, bytes: vector(&format!("{name}.q"), |[b]| b), rows: 4, cols: 512 };
            let x = vector(&format!("{name}.x.f32"), f32::from_le_bytes);
            let y = vector(&format!("{name}.y.f64"), f64::from_le_bytes);
            let yabs = vector(&format!("{name}.yabs.f64"), f64::from_le_bytes);
            let mut got = run(&mut gpu, &t, &x, Product::Half);
            // Weights of most formats are 16 times as large: too large ones are not finite, nor what comes of them.
            let most = if matches!(format.layout(), Layout::F16 | Layout::F8) { 65520.0 } else { 4095.0 };
            let weights = format.decode(&t.bytes, 4, 512).unwrap();
            for (got, (row, want)) in got.iter_mut().zip(weights.chunks(512).zip(&y)) {
                if row.iter().any(|w| w.abs() >= most) {
                    assert!(!got.is_finite(), "{name}: {got}");
                    *got = *want as f32;
                }
            }
            // Two roundings of a weight and one of an activation, which do not add up; weights with a scale in f32 may be smaller than
            // any f16.
            let smallest = if format.layout() == Layout::F8 { 2f64.powi(-24) } else { 0.0 };
            let small: f64 = x.iter().map(|x| smallest * f64::from(x.abs())).sum();
            assert_close(&format!("{name} on {}", gpu.name()), &got, &y, |i| 1e-3 * yabs[i] + small);
        }
    }
}

/// Roundings of single numbers nearly cancel: far less than what may be, and outliers change nothing of it.
#[test]
fn products_are_nearer_than_with_eight_bits() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(86));
    for format in formats() {
        let t = Tensor::random(&mut rng, format, 32, 4096);
        let mut x = rng.floats(4096);
        x[1000] = 15.0;
        let weights = format.decode(&t.bytes, 32, 4096).unwrap();
        let want = gpu_kernels::gemv::reference(&weights, &x, None);
        let scale = magnitudes(&weights, &x);
        let mut off = |product| {
            let got = run(&mut gpu, &t, &x, product);
            got.iter().zip(&want).zip(&scale).map(|((y, w), s)| (f64::from(*y) - w).abs() / s).fold(0.0, f64::max)
        };
        // Two f16 leave what weights are rounded by, and where these are f16, the order of sums.
        let split = off(Product::Split);
        let exact = matches!(format, Format::F16 | Format::BF16);
        eprintln!("{format}: {split:.1e} of sum |w x| with two f16");
        assert!(split < if exact { 5e-7 } else { 5e-5 }, "{format}: {split}");
        let most =
            [Product::Half, Product::Int8].into_iter().filter(|p| p.quant_format(format).is_some()).map(&mut off);
        let most: Vec<f64> = most.collect();
        eprintln!("{format}: {most:?} of sum |w x|");
        assert!(most[0] < 1e-4, "{format}: {most:?}");
        assert!(most.get(1).is_none_or(|int8| most[0] < int8 / 3.0), "{format}: {most:?}");
    }
}

/// Codes with an exponent of their own have scales that are smaller than an f16: the precision of these is theirs all the same.
#[test]
fn scales_that_no_f16_is_keep_their_precision() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(88));
    // The largest exponents but for a few, so that weights are as alike as those of a model, and from 1e-4 on.
    for (format, exponents, scales) in
        [(Format::F8_E4M3, 0x50, &[3e-2, 1.7e-5][..]), (Format::F8_E5M2, 0x68, &[3e-2, 1.7e-5, 3.1e-6, 2.3e-7])]
    {
        for scale in scales {
            let mut t = Tensor::random(&mut rng, format, 16, 1024);
            for block in t.bytes.chunks_exact_mut(format.block_bytes()) {
                block[..128].iter_mut().for_each(|code| *code = *code & 0x87 | exponents);
                set_scale(format, block, *scale);
            }
            let (weights, x) = (format.decode(&t.bytes, 16, 1024).unwrap(), rng.floats(1024));
            let want = gpu_kernels::gemv::reference(&weights, &x, None);
            let scales = magnitudes(&weights, &x);
            let got = run(&mut gpu, &t, &x, Product::Half);
            assert_close(&format!("{format}, {scale}"), &got, &want, |i| 1e-4 * scales[i]);
        }
    }
}

#[test]
fn what_is_not_finite_stays_in_its_column() {
    const COLS: usize = 256;
    let (mut gpu, mut rng) = (Gpu::new(), Rng(85));
    // In large blocks formats of every fourth number: what comes after weights are unpacked is the same.
    let nth = |n: usize| move |f: &Format| *f as usize % 4 == n;
    let large = formats().filter(nth(0)).map(|f| (f, Product::GemmHalf, [40, 132]));
    let small = formats().filter(nth(1)).map(|f| (f, Product::GemmHalf, [1601, 70]));
    // Two for each activation are the same columns, differently named.
    let split = [
        (Format::F16, Product::Split, [40, 3]),
        (Format::Q4_K, Product::Split, [40, 3]),
        (Format::F16, Product::GemmSplit, [40, 70]),
        (Format::Q4_K, Product::GemmSplit, [1601, 35]),
    ];
    let one = formats().map(|f| (f, Product::Half, [40, 3])).chain(large).chain(small);
    for (format, product, [rows, columns]) in one.chain(split) {
        let split = split.iter().any(|(_, of, _)| *of == product);
        let t = Tensor::random(&mut rng, format, rows, COLS);
        let x = rng.floats(columns * COLS);
        let inputs = |x: Vec<f32>| Inputs { x, columns, x_stride: COLS, y_stride: rows, ..Inputs::default() };
        let sound = multiply(&mut gpu, &t, product, &inputs(x.clone())).unwrap().y;
        assert!(sound.iter().all(|y| y.is_finite()));
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, if split { 6.8e7 } else { 1.1e6 }] {
            let mut spoilt = x.clone();
            spoilt[COLS + 77] = bad;
            let got = multiply(&mut gpu, &t, product, &inputs(spoilt)).unwrap().y;
            for (i, (got, sound)) in got.iter().zip(&sound).enumerate() {
                let as_before = got.to_bits() == sound.to_bits();
                assert!(
                    if i / rows == 1 { !got.is_finite() } else { as_before },
                    "{format} {columns} {bad} at {i}: {got}"
                );
            }
        }
        let zeros = multiply(&mut gpu, &t, product, &inputs(vec![0.0; columns * COLS])).unwrap().y;
        assert!(zeros.iter().all(|y| *y == 0.0), "{format}");
    }
}

/// A column has the same bits alone, with others in small blocks of 32 columns and of 64, and in large ones of 64 and of 128.
#[test]
fn a_column_is_the_same_to_the_bit_among_any_number_of_columns() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(87));
    for (format, [rows, cols], split) in [
        (Format::Q4_0, [1633, 160], false),
        (Format::F16, [70, 1300], false),
        (Format::Q6_K, [33, 4352], false),
        (Format::Q8_0, [129, 2080], false),
        (Format::IQ2_XS, [33, 1280], false),
        (Format::NVFP4_SCALED, [65, 704], false),
        (Format::F16, [70, 1300], true),
        (Format::Q2_K, [130, 512], true),
        (Format::Q8_0, [1601, 160], true),
    ] {
        let [few, many] = if split { [Product::Split, Product::GemmSplit] } else { [Product::Half, Product::GemmHalf] };

        let t = Tensor::random(&mut rng, format, rows, cols);
        let columns = if rows > 1000 && !split { 930 } else { 200 };
        let inputs = Inputs {
            x: rng.floats(columns * cols),
            columns,
            x_stride: cols,
            y_stride: rows,
            norm: Some((rng.floats(columns * 3).iter().map(|v| v.abs()).collect(), 1e-6)),
            next: Some(rng.floats(rows)),
            quant_format: few.quant_format(format).unwrap() as usize,
            ..Inputs::default()
        };
        let all = multiply(&mut gpu, &t, many, &inputs).unwrap();
        let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<u32>>();
        let parts =
            [(0, 1), (7, 1), (columns - 1, 1), (3, 2), (50, 8), (60, 9), (64, 33), (5, 70), (1, 128), (20, 140)];
        for (first, n) in parts {
            let some = multiply(&mut gpu, &t, few, &inputs.part(first, n, rows)).unwrap();
            let same = |some: &[f32], all: &[f32], each: usize| {
                assert!(bits(some) == bits(&all[first * each..][..n * each]), "{format}: {n} from {first} on");
            };
            same(&some.y, &all.y, rows);
            same(&some.scaled, &all.scaled, rows);
            same(&some.sums, &all.sums, all.sums.len() / columns);
        }
    }
}
