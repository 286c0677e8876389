//! Activations in bit planes, and products with them.

use crate::gemv::run;
use crate::machine::{Gpu, Rng, assert_close, vector};
use gpu_kernels::cases::{Inputs, Product, Subject, Tensor, multiply};
use gpu_kernels::format::Format;
use gpu_kernels::gemv::{
    self, Activations, Gemv, QuantFormat, Quantize, QuantizedProduct,
    planes::{self, GemvQ20I8},
};
use warpsmith_device::{Contract, DeviceSlice, U32x4};

/// The codes and the scale of every block, from what the device wrote: planes, bytes and sums agree.
fn codes(words: &[u32], of: QuantFormat) -> Vec<(Vec<i32>, f32)> {
    let (bytes, two_bits) = (of.bytes() as usize, matches!(of, QuantFormat::PlanesQ2I8 | QuantFormat::PlanesQ2I16));
    let signed = |bits: u32| (bits << (32 - 8 * bytes)) as i32 >> (32 - 8 * bytes);
    let block = |words: &[u32]| {
        let code = |c: usize| {
            // Element 16 t + 4 k + j of 32 has, for two bits, bit 8 j + 2 k + t.
            let bit = if two_bits { c % 4 * 8 + c / 4 % 4 * 2 + c / 16 % 2 } else { c % 32 };
            signed((0..8 * bytes).fold(0u32, |bits, p| bits | (words[4 * p + c / 32] >> bit & 1) << p))
        };
        let codes: Vec<i32> = (0..128).map(code).collect();
        let byte = |i: usize| words[32 * bytes + 8 + i / 4] >> (8 * (i % 4)) & 0xFF;
        // In the order in which words of weights are taken apart: by nibbles.
        let place = |c: usize| {
            let (t, c) = (c / 32, c % 32);
            let (step, half, byte) = if two_bits {
                let (word, k, j) = (c / 16, c / 4 % 4, c % 4);
                (k % 2 * 2 + j / 2, word, j % 2 * 2 + k / 2)
            } else {
                (c % 4, c / 16, c / 4 % 4)
            };
            step / 2 * 64 + 16 * t + step % 2 * 8 + half * 4 + byte
        };
        let of_bytes = |c: usize| signed((0..bytes).fold(0, |bits, b| bits | byte(128 * b + place(c)) << (8 * b)));
        assert_eq!((0..128).map(of_bytes).collect::<Vec<_>>(), codes, "{of:?}: bytes and planes");
        let [d, sum] = [words[32 * bytes], words[32 * bytes + 1]];
        let (sign, zero) = if two_bits { (-1, bytes == 2) } else { (1, false) };
        let zero = if zero { 0 } else { 12_582_912f32.to_bits() as i32 };
        assert_eq!(sum as i32, zero + sign * codes.iter().sum::<i32>(), "{of:?}");
        let d = f32::from_bits(d);
        assert_eq!(f64::from(d * 12_582_912.0), f64::from(d) * 12_582_912.0, "{of:?}: a scale of too many bits");
        (codes, d)
    };
    words.chunks(64 * bytes + 8).map(block).collect()
}

#[test]
fn codes_are_the_nearest() {
    for mut gpu in Gpu::all() {
        let mut rng = Rng(70);
        let mut x = rng.floats(128 * 19);
        // A block of zeros, one with an outlier, one whose ends are the largest, one of the smallest numbers.
        x[128..256].fill(0.0);
        x[300] = 26.0;
        x[384] = -3.0;
        x[511] = 3.0;
        x[512..640].iter_mut().for_each(|v| *v *= 1e-38);
        let input = gpu.upload(&x);
        for of in QuantFormat::ALL.into_iter().filter(|of| of.is_planes()) {
            let cols = x.len() as u32;
            let mut out = gpu.poisoned::<U32x4>(planes::len(cols, of.bytes()) as usize);
            Quantize::new(of, &input, &mut out, cols).launch(&mut gpu).unwrap();
            let words: Vec<u32> = gpu.read(&out).iter().flat_map(|v| v.0).collect();
            let most = if of.bytes() == 1 { 127.0 } else { 32767.0 };
            for (b, ((codes, d), x)) in codes(&words, of).into_iter().zip(x.chunks(128)).enumerate() {
                let largest = x.iter().fold(0.0f32, |m, v| m.max(v.abs()));
                assert!(
                    (f64::from(d) - f64::from(largest) / most).abs() <= 3.6e-7 * f64::from(d) + 1.5e-45,
                    "block {b}: {d}"
                );
                for (code, x) in codes.iter().zip(x) {
                    let exact = if largest > 0.0 { f64::from(*x) * most / f64::from(largest) } else { 0.0 };
                    assert!((f64::from(*code) - exact).abs() <= 0.5 + 4e-7 * most, "block {b}: {code} for {exact}");
                }
            }
        }
    }
}

/// All cases on the architecture without the instruction too.
#[test]
fn products_on_every_architecture() {
    for mut gpu in Gpu::all() {
        for product in [Product::Int8, Product::Int16] {
            for case in (Subject::Gemv { format: Format::Q1_0, product }).cases() {
                case.run(&mut gpu).unwrap_or_else(|e| panic!("{product:?} {case} on {}: {e}", gpu.name()));
            }
            let two_bits = Subject::Gemv { format: Format::TQ2_0_G128, product };
            for case in two_bits.cases().iter().skip(5) {
                case.run(&mut gpu).unwrap_or_else(|e| panic!("{product:?} {case} on {}: {e}", gpu.name()));
            }
        }
    }
}

/// The golden vectors of two-bit formats within the stated bound, all four codes among them, and scales of 256 weights.
#[test]
fn golden_vectors_of_two_bits() {
    let mut gpu = Gpu::new();
    for name in ["TQ2_0_g128", "PQ2_0", "PTQ1_0", "TQ1_0", "TQ2_0"] {
        let format = Format::ALL.into_iter().find(|f| f.name() == name).unwrap();
        let t = Tensor { format, bytes: vector(&format!("{name}.q"), |[b]| b), rows: 4, cols: 512 };
        let [weights, x] = [".f32", ".x.f32"].map(|end| vector(&format!("{name}{end}"), f32::from_le_bytes));
        let [y, yabs] = [".y.f64", ".yabs.f64"].map(|end| vector(&format!("{name}{end}"), f64::from_le_bytes));
        for product in [Product::Int8, Product::Int16] {
            let rounding = product.quant_format(format).unwrap().rounding(&weights, &x);
            let got = run(&mut gpu, &t, &x, product);
            assert_close(&format!("{name} {product:?}"), &got, &y, |i| 1e-5 * yabs[i] + rounding[i]);
        }
    }
}

/// The golden vectors within the stated bound; and a long row with a channel of 26 times the root mean square, which 16
/// bits meet within the bound of f32, and 8 bits do not.
#[test]
fn what_the_width_of_the_codes_costs() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(71));
    let golden = Tensor { format: Format::Q1_0, bytes: vector("Q1_0_g128.q", |[b]| b), rows: 4, cols: 512 };
    let x = vector("Q1_0_g128.x.f32", f32::from_le_bytes);
    let y = vector("Q1_0_g128.y.f64", f64::from_le_bytes);
    let yabs = vector("Q1_0_g128.yabs.f64", f64::from_le_bytes);
    let golden_weights = vector("Q1_0_g128.f32", f32::from_le_bytes);
    for product in [Product::Int8, Product::Int16] {
        let quant_format = product.quant_format(Format::Q1_0).unwrap();
        let rounding = quant_format.rounding(&golden_weights, &x);
        let got = run(&mut gpu, &golden, &x, product);
        assert_close("golden", &got, &y, |i| 1e-5 * yabs[i] + rounding[i]);
        let worst = got.iter().zip(&y).zip(&yabs).map(|((g, y), a)| (f64::from(*g) - y).abs() / a).fold(0.0, f64::max);
        eprintln!("golden, {quant_format:?}: {worst:.1e} of sum |w x|");
    }

    let t = Tensor::random(&mut rng, Format::Q1_0, 64, 4096);
    let weights = Format::Q1_0.decode(&t.bytes, 64, 4096).unwrap();
    let mut x = rng.floats(4096);
    x[1234] = 15.0;
    let (want, yabs) = (gemv::reference(&weights, &x, None), gemv::magnitudes(&weights, &x));
    let mut worst = |product| {
        let got = run(&mut gpu, &t, &x, product);
        got.iter().zip(&want).zip(&yabs).map(|((g, w), a)| (f64::from(*g) - w).abs() / a).fold(0.0, f64::max)
    };
    let (f32s, wide, narrow) = (worst(Product::Gemv), worst(Product::Int16), worst(Product::Int8));
    eprintln!("error by sum |w x|: f32 {f32s:.1e}, 16 bits {wide:.1e}, 8 bits {narrow:.1e}");
    assert!(wide < 1e-5 && narrow > 1e-5 && narrow < 1e-2);
}

#[test]
fn what_is_not_finite_spreads_and_zeros_stay() {
    for mut gpu in Gpu::all() {
        let mut rng = Rng(72);
        for (format, product) in [
            (Format::Q1_0, Product::Int8),
            (Format::Q1_0, Product::Int16),
            (Format::PQ2_0, Product::Int8),
            (Format::PQ2_0, Product::Int16),
        ] {
            let t = Tensor::random(&mut rng, format, 3, 384);
            assert_eq!(run(&mut gpu, &t, &[0.0; 384], product), [0.0; 3]);
            // Where a scale times what sums are counted from would be infinite too, a product is not a number, and as large as may be
            // it is one.
            for (bad, finite) in [
                (f32::NAN, false),
                (f32::INFINITY, false),
                (f32::NEG_INFINITY, false),
                (1.3e33, false),
                (1.29e33, true),
            ] {
                let mut x = rng.floats(384);
                x[200] = bad;
                let got = run(&mut gpu, &t, &x, product);
                assert!(
                    got.iter().all(|y| if finite { y.is_finite() } else { y.is_nan() }),
                    "{bad} {product:?}: {got:?}"
                );
            }
        }
    }
}

/// All codes of a block as large as they get, which is where sums have the most bits.
#[test]
fn the_largest_sums() {
    let mut gpu = Gpu::new();
    for (format, codes) in [(Format::Q1_0, 0), (Format::Q1_0, 0xFF), (Format::PQ2_0, 0), (Format::PQ2_0, 0xFF)] {
        // A scale of 1 in f16, and then the codes.
        let block =
            [&[0x00, 0x3C][..], &vec![codes; format.block_elems() / if format == Format::Q1_0 { 8 } else { 4 }]]
                .concat();
        let t = Tensor { format, bytes: block.repeat(2), rows: 1, cols: 256 };
        let weights = format.decode(&t.bytes, 1, 256).unwrap();
        for v in [1.0, -1.0] {
            let want = gemv::reference(&weights, &[v; 256], None)[0];
            assert_eq!(want.abs(), if (format, codes) == (Format::PQ2_0, 0xFF) { 512.0 } else { 256.0 });
            for product in [Product::Int8, Product::Int16, Product::GemmInt8, Product::GemmInt16] {
                let columns = if product.is_many() { 12 } else { 1 };
                let inputs =
                    Inputs { x: vec![v; 256 * columns], columns, x_stride: 256, y_stride: 1, ..Inputs::default() };
                let got = multiply(&mut gpu, &t, product, &inputs).unwrap().y;
                assert_close(&format!("{format} of {codes} {product:?}"), &got, &vec![want; columns], |_| 1e-3);
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_the_other_rows() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(73));
    for (format, product) in
        [(Format::Q1_0, Product::Int8), (Format::Q1_0, Product::Int16), (Format::TQ2_0_G128, Product::Int8)]
    {
        let t = Tensor::random(&mut rng, format, 40, 4480);
        let x = rng.floats(4480);
        let row = t.bytes.len() / 40;
        let all = run(&mut gpu, &t, &x, product);
        for r in [0, 15, 16, 31, 32, 39] {
            let bytes = t.bytes[r * row..(r + 1) * row].to_vec();
            let one = Tensor { format, bytes, rows: 1, cols: 4480 };
            assert_eq!(all[r].to_bits(), run(&mut gpu, &one, &x, product)[0].to_bits(), "row {r}");
        }
    }
}

/// Of both kinds of codes: columns beside others have the bits that they have alone, also after a norm, and so do outputs
/// that are added to and prepared for the next norm.
#[test]
fn results_do_not_depend_on_the_other_columns() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(74));
    for (format, product) in [
        (Format::Q1_0, Product::Int16),
        (Format::TQ2_0_G128, Product::Int8),
        (Format::Q4_K, Product::Int8),
        (Format::Q4_K, Product::Int16),
    ] {
        let (rows, cols, parts) = (37, 768, 5);
        let t = Tensor::random(&mut rng, format, rows, cols);
        let mut floats = |n| -> Vec<Vec<f32>> { (0..3).map(|_| rng.floats(n)).collect() };
        let (x, add, sums) = (floats(cols), floats(rows), floats(parts));
        let weight = rng.floats(rows);
        let inputs = |n: &[usize]| {
            let of = |v: &[Vec<f32>]| n.iter().flat_map(|&n| v[n].clone()).collect::<Vec<_>>();
            Inputs {
                quant_format: 0,
                glu: None,
                activation: None,
                bias: None,
                x: of(&x),
                columns: n.len(),
                x_stride: cols,
                y_stride: rows,
                add: Some((of(&add), rows)),
                norm: Some((of(&sums).iter().map(|s| s.abs()).collect(), 1e-6)),
                next: Some(weight.clone()),
                experts: None,
            }
        };
        let all = multiply(&mut gpu, &t, product, &inputs(&[0, 1, 2])).unwrap();
        for n in 0..3 {
            let one = multiply(&mut gpu, &t, product, &inputs(&[n])).unwrap();
            let part =
                |v: &[f32]| v.iter().skip(n * v.len() / 3).take(v.len() / 3).map(|f| f.to_bits()).collect::<Vec<_>>();
            let bits = |v: &[f32]| v.iter().map(|f| f.to_bits()).collect::<Vec<_>>();
            assert_eq!(part(&all.y), bits(&one.y), "{format} {product:?} column {n}");
            assert_eq!(part(&all.scaled), bits(&one.scaled), "{format} {product:?} column {n}");
            assert_eq!(part(&all.sums), bits(&one.sums), "{format} {product:?} column {n}");
        }
    }
}

#[test]
fn contracts_name_the_argument() {
    // SAFETY: nothing is launched, so nothing reads or writes the memory.
    let two_bits = |weights, cols, block_units| unsafe {
        GemvQ20I8 {
            weights: DeviceSlice::from_raw(0x1000, weights),
            x: DeviceSlice::from_raw(0x4000, 54),
            add: DeviceSlice::empty(),
            sums: DeviceSlice::empty(),
            chosen: DeviceSlice::empty(),
            bias: DeviceSlice::empty(),
            next_weight: DeviceSlice::empty(),
            y: DeviceSlice::from_raw_mut(0x8000, 3),
            scaled: DeviceSlice::empty_mut(),
            next_sums: DeviceSlice::empty_mut(),
            quantized: DeviceSlice::empty_mut(),
            group_counters: DeviceSlice::empty_mut(),
            rows: 3,
            cols,
            columns: 1,
            y_stride: 3,
            add_stride: 0,
            parts: 0,
            block_units,
            matrices: 0,
            sharing: 0,
            flags: 0,
            quant_format: 0,
            eps: 0.0,
        }
        .check()
    };
    assert!(two_bits(15, 256, 3).is_ok() && two_bits(21, 384, 2).is_ok());
    assert_eq!(two_bits(21, 384, 3).unwrap_err().argument, "cols");
    assert_eq!(two_bits(15, 256, 1).unwrap_err().argument, "block_units");
    // Through the launch type: the records of three rows of two blocks take two vectors of signs and one of scales each.
    let mut gpu = Gpu::new();
    let (weights, codes) = (gpu.upload(&[U32x4([0; 4]); 9]), gpu.upload(&[U32x4([0; 4]); 36]));
    let mut y = gpu.poisoned::<f32>(3);
    let product = QuantizedProduct::of(Format::Q1_0, Activations::Int8).unwrap();
    let mut launch = |w: usize, x: usize, cols| {
        let (w, x) = (weights.get(..w).unwrap(), codes.get(..x).unwrap());
        Gemv::quantized(product, w, 3, cols, x, &mut y).launch(&mut gpu)
    };
    assert_eq!(launch(9, 36, 256), Ok(()));
    assert!(launch(8, 36, 256).unwrap_err().contains("`weights`"));
    assert!(launch(9, 35, 256).unwrap_err().contains("`x`"));
    assert!(launch(9, 36, 200).unwrap_err().contains("`cols`"));
    assert!(QuantizedProduct::of(Format::Q2_K, Activations::Int16).is_none());
}
