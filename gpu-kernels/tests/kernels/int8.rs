//! Activations of eight bits in blocks of 32, and products with them.

use crate::gemv::{golden, run};
use crate::machine::{Gpu, Rng, assert_close, vector};
use gpu_kernels::cases::{Product, Tensor};
use gpu_kernels::format::Format;
use gpu_kernels::gemv::{
    ADD, NEXT, NORM, QuantFormat, Quantize, SWIGLU,
    int8::{self, GemvQ5KI8, QuantizeI8},
    planes,
    quant_format::NONE,
};
use warpsmith_device::{Contract, DeviceSlice, U32x4};

fn formats() -> impl Iterator<Item = Format> {
    Format::ALL.into_iter().filter(|f| Product::Int8.quant_format(*f) == Some(QuantFormat::I8))
}

#[test]
fn codes_are_the_nearest() {
    for mut gpu in Gpu::all() {
        // More than a block of threads, and not a whole warp at the end.
        let units = 19;
        let mut x = Rng(80).floats(32 * units);
        // A unit of zeros, one with an outlier, one whose ends are the largest, one of the smallest numbers.
        x[32..64].fill(0.0);
        x[70] = 26.0;
        x[96] = -3.0;
        x[127] = 3.0;
        x[128..160].iter_mut().for_each(|v| *v *= 1e-38);
        let cols = x.len() as u32;
        let mut out = gpu.poisoned::<U32x4>(int8::len(cols) as usize);
        let x_on_device = gpu.upload(&x);
        Quantize::new(QuantFormat::I8, &x_on_device, &mut out, cols).launch(&mut gpu).unwrap();
        let words: Vec<u32> = gpu.read(&out).iter().flat_map(|v| v.0).collect();
        for (u, x) in x.chunks(32).enumerate() {
            let at = |half: usize| 4 * (half * units + u);
            let codes: Vec<i8> = [0, 1]
                .iter()
                .flat_map(|h| words[at(*h)..at(*h) + 4].iter().flat_map(|w| w.to_le_bytes()))
                .map(|b| b as i8)
                .collect();
            let [d, sums] = [0, 1].map(|i| words[8 * units + 2 * u + i]);
            let (d, largest) = (f32::from_bits(d), x.iter().fold(0.0f32, |m, v| m.max(v.abs())));
            assert!(
                (f64::from(d) - f64::from(largest) / 127.0).abs() <= 1.2e-7 * f64::from(d) + 1.5e-45,
                "unit {u}: {d}"
            );
            for (code, x) in codes.iter().zip(x) {
                let exact = if largest > 0.0 { f64::from(*x) * 127.0 / f64::from(largest) } else { 0.0 };
                assert!((f64::from(*code) - exact).abs() <= 0.5 + 5e-5, "unit {u}: {code} for {exact}");
            }
            for (half, codes) in codes.chunks(16).enumerate() {
                let sum: i32 = codes.iter().map(|c| i32::from(*c)).sum();
                assert_eq!((sums >> (16 * half)) as u16 as i16, sum as i16, "unit {u}");
            }
        }
    }
}

/// The golden vectors within the stated bound, on every architecture.
#[test]
fn golden_vectors() {
    for mut gpu in Gpu::all() {
        for format in formats() {
            let name = golden(format).unwrap();
            let t = Tensor { format, bytes: vector(&format!("{name}.q"), |[b]| b), rows: 4, cols: 512 };
            let x = vector(&format!("{name}.x.f32"), f32::from_le_bytes);
            let y = vector(&format!("{name}.y.f64"), f64::from_le_bytes);
            let yabs = vector(&format!("{name}.yabs.f64"), f64::from_le_bytes);
            let rounding = planes::rounding(&vector(&format!("{name}.f32"), f32::from_le_bytes), &x, 1, int8::BLOCK);
            let got = run(&mut gpu, &t, &x, Product::Int8);
            let what = format!("{name} on {}", gpu.name());
            assert_close(&what, &got, &y, |i| 1e-5 * yabs[i] + rounding[i]);
            let off = got.iter().zip(&y).zip(&yabs).map(|((g, y), a)| (f64::from(*g) - y).abs() / a);
            eprintln!("{what}: {:.1e} of sum |w x|", off.fold(0.0, f64::max));
        }
    }
}

/// Activations that are codes themselves cost nothing, not even where every sum is the largest that there is.
#[test]
fn activations_that_are_codes_are_exact() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(81));
    for format in formats() {
        let cols = 768;
        let mut t = Tensor::random(&mut rng, format, 2, cols);
        let row = t.bytes.len() / 2;
        for (block, bytes) in t.bytes[..row].chunks_mut(format.block_bytes()).enumerate() {
            let scales: Vec<usize> = format.scale_offsets().iter().flat_map(|at| [*at, at + 1]).collect();
            for (i, byte) in bytes.iter_mut().enumerate().filter(|(i, _)| !scales.contains(i)) {
                // All codes and all scales at their ends; those of Q6_K are signed bytes.
                *byte = if format == Format::Q6_K && i >= 192 { [0x7F, 0x80][block % 2] } else { [0xFF, 0][block % 2] };
            }
        }
        for sign in [1.0, -1.0] {
            let x: Vec<f32> = (0..cols)
                .map(|c| if c < cols / 2 { sign * 127.0 } else { rng.within(0, 254) as f32 - 127.0 })
                .enumerate()
                .map(|(c, x)| if c % 32 == 0 { sign * 127.0 } else { x })
                .collect();
            let weights = format.decode(&t.bytes, 2, cols).unwrap();
            let want = gpu_kernels::gemv::reference(&weights, &x, None);
            let scale = gpu_kernels::gemv::magnitudes(&weights, &x);
            let got = run(&mut gpu, &t, &x, Product::Int8);
            assert_close(&format!("{format} {sign}"), &got, &want, |r| 1e-5 * scale[r]);
        }
    }
}

#[test]
fn what_is_not_finite_spreads_and_zeros_stay() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(82));
    for format in [Format::Q4_0, Format::Q5_K] {
        let t = Tensor::random(&mut rng, format, 3, 512);
        assert_eq!(run(&mut gpu, &t, &[0.0; 512], Product::Int8), [0.0; 3]);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = rng.floats(512);
            x[200] = bad;
            assert!(run(&mut gpu, &t, &x, Product::Int8).iter().all(|y| y.is_nan()), "{bad} {format}");
        }
    }
}

#[test]
fn results_do_not_depend_on_the_other_rows() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(83));
    for format in [Format::Q4_0, Format::Q8_0, Format::Q6_K] {
        let t = Tensor::random(&mut rng, format, 19, 1280);
        let x = rng.floats(1280);
        let (row, all) = (t.bytes.len() / 19, run(&mut gpu, &t, &x, Product::Int8));
        for r in [1, 6, 15, 18] {
            let bytes = t.bytes[r * row..(r + 1) * row].to_vec();
            let one = Tensor { format, bytes, rows: 1, cols: 1280 };
            assert_eq!(all[r].to_bits(), run(&mut gpu, &one, &x, Product::Int8)[0].to_bits(), "{format} row {r}");
        }
    }
}

#[test]
fn contracts_name_the_argument() {
    // SAFETY: nothing is launched, so nothing reads or writes the memory.
    let with = |weights, x, y, cols, columns, flags, (sums, eps), (rows, quant_format, quantized, group_counters)| unsafe {
        GemvQ5KI8 {
            weights: DeviceSlice::from_raw(0x1000, weights),
            x: DeviceSlice::from_raw(0x4000, x),
            add: DeviceSlice::from_raw(0x5000, 3),
            sums: DeviceSlice::from_raw(0x5000, sums),
            next_weight: DeviceSlice::empty(),
            y: DeviceSlice::from_raw_mut(0x8000, y),
            scaled: DeviceSlice::empty_mut(),
            next_sums: DeviceSlice::empty_mut(),
            quantized: DeviceSlice::from_raw_mut(0x9000, quantized),
            group_counters: DeviceSlice::from_raw_mut(0xA000, group_counters),
            rows,
            cols,
            columns,
            y_stride: rows,
            add_stride: 0,
            parts: 7,
            block_units: 0,
            flags,
            quant_format,
            eps,
        }
        .check()
    };
    let launch =
        |weights, x, y, cols, columns, flags| with(weights, x, y, cols, columns, flags, (14, 1e-6), (3, NONE, 0, 0));
    let argument = |result: Result<(), warpsmith_device::prelude::ContractError>| result.unwrap_err().argument;
    // A record of two blocks: 16 vectors of nibbles, 4 of fifth bits, 2 of scales.
    assert!(launch(66, 40, 3, 512, 1, 0).is_ok() && launch(66, 80, 6, 512, 2, ADD).is_ok());
    assert_eq!(argument(launch(65, 40, 3, 512, 1, 0)), "weights");
    // Gates and ups are twice the rows.
    assert_eq!(argument(launch(66, 40, 3, 512, 1, SWIGLU)), "weights");
    assert_eq!(argument(launch(66, 39, 3, 512, 1, 0)), "x");
    assert_eq!(argument(launch(66, 79, 6, 512, 2, 0)), "x");
    assert_eq!(argument(launch(66, 40, 2, 512, 1, 0)), "y");
    assert_eq!(argument(launch(66, 80, 5, 512, 2, 0)), "y");
    assert_eq!(argument(launch(66, 40, 3, 320, 1, 0)), "cols");
    assert_eq!(argument(launch(66, 40, 3, 512, 65, 0)), "columns");
    assert_eq!(argument(launch(66, 40, 3, 512, 1, NEXT)), "next_weight");
    assert_eq!(argument(launch(66, 40, 3, 512, 1, 32)), "flags");
    let norm =
        |columns: u32, sums, eps| with(66, 40 * columns as usize, 6, 512, columns, NORM, (sums, eps), (3, NONE, 0, 0));
    assert!(norm(1, 7, 1e-6).is_ok() && norm(2, 14, 0.0).is_ok());
    assert_eq!(argument(norm(1, 6, 1e-6)), "sums");
    assert_eq!(argument(norm(2, 13, 1e-6)), "sums");
    assert_eq!(argument(norm(1, 7, f32::NAN)), "eps");
    // 160 outputs: a group, and a unit of another.
    let coding = |rows: u32, quant_format: u32, quantized, counters| {
        let outputs = (rows, quant_format, quantized, counters);
        with(22 * rows as usize, 80, 2 * rows as usize, 512, 2, 0, (0, 0.0), outputs)
    };
    let [bits, bytes] = [QuantFormat::PlanesQ2I16, QuantFormat::I8].map(|c| c as u32);
    assert!(coding(160, bytes, 26, 4).is_ok() && coding(128, bits, 36, 2).is_ok());
    assert_eq!(argument(coding(160, bytes, 25, 4)), "quantized");
    assert_eq!(argument(coding(160, bytes, 26, 3)), "group_counters");
    assert_eq!(argument(coding(144, bytes, 26, 4)), "rows");
    assert_eq!(argument(coding(160, bits, 72, 4)), "rows");
    assert_eq!(argument(coding(128, bits, 35, 2)), "quantized");
    assert_eq!(argument(coding(160, 6, 26, 4)), "quant_format");
    // SAFETY: as above.
    let quantize = |address, x, quantized, columns| unsafe {
        QuantizeI8 {
            x: DeviceSlice::from_raw(address, x),
            quantized: DeviceSlice::from_raw_mut(0x4000, quantized),
            cols: 96,
            columns,
            x_stride: 100,
        }
        .check()
    };
    assert!(quantize(0x1000, 96, 8, 1).is_ok() && quantize(0x1000, 196, 16, 2).is_ok());
    assert_eq!(argument(quantize(0x1004, 96, 8, 1)), "x");
    assert_eq!(argument(quantize(0x1000, 95, 8, 1)), "x");
    assert_eq!(argument(quantize(0x1000, 195, 16, 2)), "x");
    assert_eq!(argument(quantize(0x1000, 96, 7, 1)), "quantized");
    assert_eq!(argument(quantize(0x1000, 196, 15, 2)), "quantized");
}
