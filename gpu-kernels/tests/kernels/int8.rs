//! Activations of eight and 16 bits in blocks of 32, as bytes, and products with them.

use crate::gemv::{golden, run};
use crate::machine::{Gpu, Rng, assert_close, vector};
use gpu_kernels::cases::{Inputs, Product, Tensor, multiply};
use gpu_kernels::format::Format;
use gpu_kernels::gemv::{
    ADD, BIAS, MAX_COLUMNS, NEXT, NORM, QuantFormat, Quantize, SWIGLU,
    int8::{GemvQ5KI8, QuantizeI8},
    quant_format::NONE,
};
use warpsmith_device::{Contract, DeviceSlice, U32x4};

/// Products of a kind, with formats that have them, and how their activations are quantized.
fn products() -> impl Iterator<Item = (Format, Product, QuantFormat)> {
    let of = |product: Product| move |f: Format| Some((f, product, product.quant_format(f)?));
    let all = [Product::Int8, Product::Int16].into_iter().flat_map(move |p| Format::ALL.into_iter().filter_map(of(p)));
    all.filter(|(.., format)| !format.is_planes())
}

#[test]
fn formats_of_four_to_eight_bits_have_activations_of_16() {
    let with = |product| products().filter(move |p| p.1 == product).map(|p| p.0).collect::<Vec<_>>();
    assert_eq!(with(Product::Int8), [Format::Q4_0, Format::Q8_0, Format::Q4_K, Format::Q5_K, Format::Q6_K]);
    use Format::*;
    let wide = [Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4];
    assert_eq!(with(Product::Int16), wide);
}

/// The codes of a unit of quantized activations, its scale, and the sums of its halves.
fn unit(words: &[u32], u: usize, format: QuantFormat) -> (Vec<i32>, f32, [i32; 2]) {
    let bytes = |of: [usize; 8]| {
        of.into_iter().flat_map(|w| words[w].to_le_bytes()).map(|b| i32::from(b as i8)).collect::<Vec<i32>>()
    };
    // Two units in 20 words or 40: vectors of codes, of which every second one is a unit's, and then what else there is, of each one.
    let size = if format == QuantFormat::I8 { 20 } else { 40 };
    let (first, scale) = (size * (u / 2) + 4 * (u % 2), size * (u / 2) + size / 5 * 4 + size / 10 * (u % 2));
    let place = |w: usize| first + w / 4 * 8 + w % 4;
    if format == QuantFormat::I8 {
        let [d, sums] = [scale, scale + 1].map(|i| words[i]);
        let codes = bytes([0, 2, 4, 6, 1, 3, 5, 7].map(place));
        return (codes, f32::from_bits(d), [sums as i16 as i32, sums as i32 >> 16]);
    }
    let order = [0, 4, 8, 12, 2, 6, 10, 14];
    let bytes = |byte: usize| bytes(order.map(|w| place(w + byte)));
    let codes = bytes(0).iter().zip(bytes(1)).map(|(high, low)| 256 * high + low).collect();
    let [d, high, low, sum] = [0, 1, 2, 3].map(|i| words[scale + i]);
    let halves = [high, low].map(|pair| [pair as i16 as i32, pair as i32 >> 16]);
    let sums = [0, 1].map(|half| 256 * halves[0][half] + halves[1][half]);
    assert_eq!(f32::from_bits(sum), f32::from_bits(d) * (sums[0] + sums[1]) as f32, "unit {u}");
    for (byte, half) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        assert_eq!(bytes(byte)[16 * half..][..16].iter().sum::<i32>(), halves[byte][half], "unit {u}, byte {byte}");
    }
    (codes, f32::from_bits(d), sums)
}

#[test]
fn codes_are_the_nearest() {
    let gpus = |format| Gpu::all().into_iter().map(move |gpu| (gpu, format));
    for (mut gpu, format) in [QuantFormat::I8, QuantFormat::I16].into_iter().flat_map(gpus) {
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
        let mut out = gpu.poisoned::<U32x4>(format.len(cols) as usize);
        let x_on_device = gpu.upload(&x);
        Quantize::new(format, &x_on_device, &mut out, cols).launch(&mut gpu).unwrap();
        let words: Vec<u32> = gpu.read(&out).iter().flat_map(|v| v.0).collect();
        let most = f64::from(format.most());
        for (u, x) in x.chunks(32).enumerate() {
            let (codes, d, sums) = unit(&words, u, format);
            let largest = x.iter().fold(0.0f32, |m, v| m.max(v.abs()));
            assert!(
                (f64::from(d) - f64::from(largest) / most).abs() <= 3.6e-7 * f64::from(d) + 1.5e-45,
                "{format:?}, unit {u}: {d}"
            );
            for (code, x) in codes.iter().zip(x) {
                let exact = if largest > 0.0 { f64::from(*x) * most / f64::from(largest) } else { 0.0 };
                let off = (f64::from(*code) - exact).abs();
                assert!(off <= 0.5 + 4e-7 * most, "{format:?}, unit {u}: {code} for {exact}");
                assert!(f64::from(code.abs()) <= most, "{format:?}, unit {u}: {code}");
            }
            for (codes, sum) in codes.chunks(16).zip(sums) {
                assert_eq!(codes.iter().sum::<i32>(), sum, "{format:?}, unit {u}");
            }
        }
    }
}

/// The golden vectors within the stated bound, on every architecture.
#[test]
fn golden_vectors() {
    for mut gpu in Gpu::all() {
        for (format, product, quant_format) in products() {
            let name = golden(format).unwrap();
            let t = Tensor { format, bytes: vector(&format!("{name}.q"), |[b]| b), rows: 4, cols: 512 };
            let x = vector(&format!("{name}.x.f32"), f32::from_le_bytes);
            let y = vector(&format!("{name}.y.f64"), f64::from_le_bytes);
            let yabs = vector(&format!("{name}.yabs.f64"), f64::from_le_bytes);
            let rounding = quant_format.rounding(&vector(&format!("{name}.f32"), f32::from_le_bytes), &x);
            let got = run(&mut gpu, &t, &x, product);
            let what = format!("{name} {product:?} on {}", gpu.name());
            assert_close(&what, &got, &y, |i| 1e-5 * yabs[i] + rounding[i]);
            let off = got.iter().zip(&y).zip(&yabs).map(|((g, y), a)| (f64::from(*g) - y).abs() / a);
            let off = off.fold(0.0, f64::max);
            eprintln!("{what}: {off:.1e} of sum |w x|");
            // The bound is wider than what 16 bits lose: a fiftieth of what eight bits do.
            assert!(product == Product::Int8 || off < 6e-5, "{what}: {off:.1e}");
        }
    }
}

/// Activations that are codes themselves cost nothing, not even where every sum is the largest that there is.
#[test]
fn activations_that_are_codes_are_exact() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(81));
    for (format, product, quant_format) in products() {
        let (cols, most) = (768, quant_format.most() as usize);
        let mut t = Tensor::random(&mut rng, format, 2, cols);
        let row = t.bytes.len() / 2;
        for (block, bytes) in t.bytes[..row].chunks_mut(format.block_bytes()).enumerate() {
            let scales: Vec<usize> = format.scale_offsets().iter().flat_map(|at| [*at, at + 1]).collect();
            for (i, byte) in bytes.iter_mut().enumerate().filter(|(i, _)| !scales.contains(i)) {
                // All codes and all scales at their ends; those of Q6_K are signed bytes.
                *byte = match format {
                    Format::Q6_K if i >= 192 => [0x7F, 0x80][block % 2],
                    // A power of two whose products are finite.
                    Format::MXFP4 if i == 0 => 127,
                    _ => [0xFF, 0][block % 2],
                };
            }
        }
        for sign in [1.0, -1.0] {
            let x: Vec<f32> = (0..cols)
                .map(|c| if c < cols / 2 { sign * most as f32 } else { rng.within(0, 2 * most) as f32 - most as f32 })
                .enumerate()
                .map(|(c, x)| if c % 32 == 0 { sign * most as f32 } else { x })
                .collect();
            let weights = format.decode(&t.bytes, 2, cols).unwrap();
            let want = gpu_kernels::gemv::reference(&weights, &x, None);
            let scale = gpu_kernels::gemv::magnitudes(&weights, &x);
            let got = run(&mut gpu, &t, &x, product);
            assert_close(&format!("{format} {product:?} {sign}"), &got, &want, |r| 1e-5 * scale[r]);
        }
    }
}

#[test]
fn what_is_not_finite_spreads_and_zeros_stay() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(82));
    let products = [Product::Int8, Product::Int16];
    for (format, product) in [Format::Q4_0, Format::Q5_K].into_iter().flat_map(|f| products.map(|p| (f, p))) {
        let t = Tensor::random(&mut rng, format, 3, 512);
        assert_eq!(run(&mut gpu, &t, &[0.0; 512], product), [0.0; 3]);
        // Where a scale times what sums count from would be infinite, a product is not a number.
        for (bad, finite) in
            [(f32::NAN, false), (f32::INFINITY, false), (f32::NEG_INFINITY, false), (1.3e33, false), (1.29e33, true)]
        {
            let mut x = rng.floats(512);
            x[200] = bad;
            let got = run(&mut gpu, &t, &x, product);
            assert!(
                got.iter().all(|y| if finite { y.is_finite() } else { y.is_nan() }),
                "{bad} {format} {product:?}: {got:?}"
            );
        }
    }
}

#[test]
fn results_do_not_depend_on_the_other_rows() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(83));
    let products = [Product::Int8, Product::Int16];
    for (format, product) in
        [Format::Q4_0, Format::Q8_0, Format::Q6_K].into_iter().flat_map(|f| products.map(|p| (f, p)))
    {
        let t = Tensor::random(&mut rng, format, 19, 1280);
        let x = rng.floats(1280);
        let (row, all) = (t.bytes.len() / 19, run(&mut gpu, &t, &x, product));
        for r in [1, 6, 15, 18] {
            let bytes = t.bytes[r * row..(r + 1) * row].to_vec();
            let one = Tensor { format, bytes, rows: 1, cols: 1280 };
            assert_eq!(all[r].to_bits(), run(&mut gpu, &one, &x, product)[0].to_bits(), "{format} {product:?} row {r}");
        }
    }
}

/// Large blocks, with 64 columns and with 128, and small ones with 32 and 64 give the bits that small ones with 16 give, also where rows and
/// columns end in one, and with all that comes before and behind a product.
#[test]
fn larger_blocks_change_no_bit() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(84));
    use Product::{GemmInt8, GemmInt8Swiglu, GemmInt16, GemmInt16Swiglu};
    for (format, product, [rows, cols, columns], flags, quant_format) in [
        // With 128 columns.
        (Format::Q8_0, GemmInt8, [1153, 64, 930], 0, None),
        (Format::Q4_1, GemmInt16Swiglu, [580, 32, 930], NORM | NEXT, None),
        // With 64.
        (Format::Q5_0, GemmInt16, [864, 32, 930], ADD | NORM | NEXT, Some(QuantFormat::I16)),
        (Format::Q4_0, GemmInt8Swiglu, [448, 32, 930], NORM, Some(QuantFormat::I8)),
        // Classes of one unit and of two.
        (Format::Q8_0, GemmInt8, [40, 1088, 513], ADD, None),
        (Format::Q6_K, GemmInt16, [33, 1280, 520], 0, None),
        // Small blocks with 64 columns, the last of which has few, and with 32.
        (Format::Q6_K, GemmInt8, [3201, 256, 61], ADD, None),
        (Format::IQ4_NL, GemmInt16Swiglu, [1600, 64, 70], NORM | NEXT, Some(QuantFormat::I8)),
        (Format::Q5_K, GemmInt16, [1601, 256, 43], NORM | NEXT, None),
        // Classes of one unit and of two.
        (Format::Q8_0, GemmInt8, [3200, 1056, 33], 0, Some(QuantFormat::I16)),
    ] {
        let t = Tensor::random(&mut rng, format, if product.swiglu() { 2 * rows } else { rows }, cols);
        let floats = |rng: &mut Rng, n: usize| rng.floats(n);
        let inputs = Inputs {
            x: floats(&mut rng, columns * cols),
            columns,
            x_stride: cols,
            y_stride: rows,
            add: (flags & ADD != 0).then(|| (floats(&mut rng, columns * rows), rows)),
            norm: (flags & NORM != 0).then(|| (floats(&mut rng, columns * 3).iter().map(|v| v.abs()).collect(), 1e-6)),
            next: (flags & NEXT != 0).then(|| floats(&mut rng, rows)),
            quant_format: quant_format.map_or(NONE, |f| f as u32) as usize,
            glu: None,
            activation: None,
            bias: Some(floats(&mut rng, t.rows)),
            experts: None,
        };
        let all = multiply(&mut gpu, &t, product, &inputs).unwrap();
        let parts = all.sums.len() / columns;
        let (width, step) = if columns > 500 { (64, 60) } else { (12, 10) };
        for first in [step, columns - width] {
            let some = multiply(&mut gpu, &t, product, &inputs.part(first, width, rows)).unwrap();
            let same = |some: &[f32], all: &[f32], n: usize| {
                let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<u32>>();
                assert!(bits(some) == bits(&all[first * n..][..width * n]), "{format} {product:?} from {first} on");
            };
            same(&some.y, &all.y, rows);
            same(&some.scaled, &all.scaled, rows);
            same(&some.sums, &all.sums, parts);
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
            chosen: DeviceSlice::empty(),
            bias: DeviceSlice::empty(),
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
            matrices: 0,
            sharing: 0,
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
    assert_eq!(argument(launch(66, 40, 3, 512, MAX_COLUMNS + 1, 0)), "columns");
    assert_eq!(argument(launch(66, 40, 3, 512, 1, NEXT)), "next_weight");
    assert_eq!(argument(launch(66, 40, 3, 512, 1, 1 << 31)), "flags");
    assert_eq!(argument(launch(66, 40, 3, 512, 1, BIAS)), "bias");
    let norm =
        |columns: u32, sums, eps| with(66, 40 * columns as usize, 6, 512, columns, NORM, (sums, eps), (3, NONE, 0, 0));
    assert!(norm(1, 7, 1e-6).is_ok() && norm(2, 14, 0.0).is_ok());
    assert_eq!(argument(norm(1, 6, 1e-6)), "sums");
    assert_eq!(argument(norm(2, 13, 1e-6)), "sums");
    assert_eq!(argument(norm(1, 7, f32::NAN)), "eps");
    // 160 outputs: five blocks of codes as bytes, and no whole number of those of bit planes.
    let coding = |rows: u32, quant_format: u32, quantized, counters| {
        let outputs = (rows, quant_format, quantized, counters);
        with(22 * rows as usize, 80, 2 * rows as usize, 512, 2, 0, (0, 0.0), outputs)
    };
    let [bits, bytes] = [QuantFormat::PlanesQ2I16, QuantFormat::I8].map(|c| c as u32);
    assert!(coding(160, bytes, 30, 10).is_ok() && coding(128, bits, 68, 8).is_ok());
    assert_eq!(argument(coding(160, bytes, 29, 10)), "quantized");
    assert_eq!(argument(coding(160, bytes, 30, 9)), "group_counters");
    assert_eq!(argument(coding(144, bytes, 26, 10)), "rows");
    assert_eq!(argument(coding(160, bits, 136, 10)), "rows");
    assert_eq!(argument(coding(128, bits, 67, 8)), "quantized");
    assert_eq!(argument(coding(160, 9, 26, 10)), "quant_format");
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
    assert!(quantize(0x1000, 96, 10, 1).is_ok() && quantize(0x1000, 196, 20, 2).is_ok());
    assert_eq!(argument(quantize(0x1004, 96, 10, 1)), "x");
    assert_eq!(argument(quantize(0x1000, 95, 10, 1)), "x");
    assert_eq!(argument(quantize(0x1000, 195, 20, 2)), "x");
    assert_eq!(argument(quantize(0x1000, 96, 9, 1)), "quantized");
    assert_eq!(argument(quantize(0x1000, 196, 19, 2)), "quantized");
}
