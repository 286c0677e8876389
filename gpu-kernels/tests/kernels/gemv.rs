use crate::machine::{Gpu, Rng, assert_close, vector};
use gpu_kernels::{
    cases::{Inputs, Product, Tensor, multiply},
    format::Format,
    gemv::{Activations, Gemv, GemvQ40, MAX_CHOSEN, MAX_COLUMNS, QuantizedProduct},
};
use warpsmith_device::{Contract, DeviceSlice, U32x4};

/// The file name of a format's golden vectors.
pub fn golden(format: Format) -> Option<&'static str> {
    match format {
        Format::F32 | Format::NVFP4_SCALED => None,
        Format::Q1_0 => Some("Q1_0_g128"),
        f => Some(f.name()),
    }
}

pub fn run(gpu: &mut Gpu, t: &Tensor, x: &[f32], product: Product) -> Vec<f32> {
    multiply(gpu, t, product, &Inputs::one(x, t.rows)).unwrap().y
}

#[test]
fn golden_vectors() {
    for mut gpu in Gpu::all() {
        for format in Format::ALL {
            let Some(name) = golden(format) else { continue };
            let t = Tensor { format, bytes: vector(&format!("{name}.q"), |[b]| b), rows: 4, cols: 512 };
            let x = vector(&format!("{name}.x.f32"), f32::from_le_bytes);
            let y = vector(&format!("{name}.y.f64"), f64::from_le_bytes);
            let yabs = vector(&format!("{name}.yabs.f64"), f64::from_le_bytes);
            for product in Product::of(format).into_iter().filter(|p| matches!(p, Product::Naive | Product::Gemv)) {
                let got = run(&mut gpu, &t, &x, product);
                assert_close(&format!("{name} {product:?} on {}", gpu.name()), &got, &y, |i| 1e-5 * yabs[i]);
            }
            // Three columns: the vector, its double and its negative.
            let three: Vec<f32> = [1.0, 2.0, -1.0].iter().flat_map(|f| x.iter().map(move |x| x * f)).collect();
            let inputs = Inputs { x: three, columns: 3, x_stride: 512, y_stride: 4, ..Inputs::default() };
            let got = multiply(&mut gpu, &t, Product::Gemm, &inputs).unwrap().y;
            for (n, f) in [1.0, 2.0, -1.0].into_iter().enumerate() {
                let want: Vec<f64> = y.iter().map(|y| y * f).collect();
                let what = format!("{name} column {n} on {}", gpu.name());
                assert_close(&what, &got[4 * n..4 * n + 4], &want, |i| 2e-5 * yabs[i]);
            }
        }
    }
}

#[test]
fn four_rows_a_group_have_the_bits_of_two() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(8));
    for cols in [37, 4500] {
        let t = Tensor::random(&mut rng, Format::F16, 35, cols);
        let x = rng.floats(cols);
        let [two, four] = [Product::Gemv, Product::FourRows].map(|p| run(&mut gpu, &t, &x, p));
        assert!(two.iter().zip(&four).all(|(a, b)| a.to_bits() == b.to_bits()), "{cols}: {two:?} {four:?}");
    }
}

#[test]
fn results_do_not_depend_on_the_other_rows() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(5));
    for format in [Format::F16, Format::Q1_0, Format::TQ2_0, Format::Q4_0, Format::Q6_K, Format::MXFP4] {
        let t = Tensor::random(&mut rng, format, 20, 1024);
        let x = rng.floats(1024);
        let row = t.bytes.len() / 20;
        let one = Tensor { format, bytes: t.bytes[13 * row..14 * row].to_vec(), rows: 1, cols: 1024 };
        let all = run(&mut gpu, &t, &x, Product::Gemv);
        let alone = run(&mut gpu, &one, &x, Product::Gemv);
        assert_eq!(all[13].to_bits(), alone[0].to_bits(), "{format}");
    }
}

/// The entry points of one column and of several that have to agree, by the activations that they take.
fn of_one_and_of_several(format: Format, swiglu: bool) -> Vec<(Product, Product)> {
    use Product::*;
    let pairs = match swiglu {
        false => [(Gemv, Gemm), (Int16, GemmInt16), (Int16, Int16), (Int8, GemmInt8)],
        true => [
            (GemvSwiglu, GemmSwiglu),
            (Int16Swiglu, GemmInt16Swiglu),
            (Int16Swiglu, Int16Swiglu),
            (Int8Swiglu, GemmInt8Swiglu),
        ],
    };
    let exist = Product::of(format);
    pairs.into_iter().filter(|(one, several)| exist.contains(one) && exist.contains(several)).collect()
}

/// What batches rely on: a sequence's numbers are the same to the bit, whoever is in the batch with it.
#[test]
fn a_column_is_the_same_to_the_bit_among_any_number_of_columns() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(9));
    for (i, format) in gpu.share(Format::ALL.into_iter().enumerate().collect()) {
        let block = format.block_elems();
        // More than is staged at a time, or fewer units than lanes; one format in all widths of a launch.
        let cols = if i % 2 == 0 { 1088usize } else { 352 }.next_multiple_of(block);
        let all = if format == Format::Q4_0 { 70 } else { 14 };
        let sizes: &[usize] = if all == 70 { &[2, 3, 7, 8, 9, 11, 12, 33, 64, 65, 70] } else { &[2, 14] };
        for swiglu in [false, true] {
            let t = Tensor::random(&mut rng, format, 6, cols);
            let rows = if swiglu { 3 } else { 6 };
            let x_stride = cols.next_multiple_of(4);
            let mut inputs = Inputs {
                quant_format: 0,
                glu: None,
                activation: None,
                bias: Some(rng.floats(6)),
                x: rng.floats(all * x_stride),
                columns: all,
                x_stride,
                y_stride: rows,
                add: Some((rng.floats(all * rows), rows)),
                norm: Some((rng.floats(all * 3).iter().map(|v| 1.0 + v.abs()).collect(), 1e-6)),
                next: Some(rng.floats(rows)),
                experts: None,
            };
            // What is not finite in a column, or very large, is in no other.
            inputs.x[(all - 2) * x_stride + 5] = f32::NAN;
            inputs.x[(all - 4) * x_stride + 40] = f32::INFINITY;
            inputs.x[(all - 5) * x_stride + 41] = 1e30;
            // Which NaN it is may depend on who computes it.
            let bits =
                |v: &[f32]| v.iter().map(|v| if v.is_nan() { u32::MAX } else { v.to_bits() }).collect::<Vec<_>>();
            for (one, several) in of_one_and_of_several(format, swiglu) {
                let alone: Vec<_> =
                    (0..all).map(|n| multiply(&mut gpu, &t, one, &inputs.part(n, 1, rows)).unwrap()).collect();
                for &columns in sizes {
                    let got = multiply(&mut gpu, &t, several, &inputs.part(all - columns, columns, rows)).unwrap();
                    for (n, want) in alone[all - columns..].iter().enumerate() {
                        let sums = got.sums.len() / columns;
                        let what = format!("{format} {several:?}, column {n} of {columns}");
                        assert_eq!(bits(&got.y[n * rows..][..rows]), bits(&want.y), "{what}");
                        assert_eq!(bits(&got.scaled[n * rows..][..rows]), bits(&want.scaled), "{what}");
                        assert_eq!(bits(&got.sums[n * sums..][..sums]), bits(&want.sums), "{what}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_wrong_shape_is_refused_by_name() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(7));
    let t = Tensor::random(&mut rng, Format::Q4_0, 4, 64);
    let records = gpu.upload(&t.format.repack(&t.bytes, 4, 64).unwrap());
    let (x, mut y) = (gpu.upload(&rng.floats(68)), gpu.poisoned::<f32>(4));
    let mut refused = |weights: &DeviceSlice<U32x4>, x: &DeviceSlice<f32>, rows, cols, columns, flags| {
        let none = DeviceSlice::empty();
        GemvQ40 {
            weights,
            x,
            add: none,
            sums: none,
            chosen: DeviceSlice::empty(),
            bias: none,
            next_weight: none,
            y: &mut y,
            scaled: DeviceSlice::empty_mut(),
            next_sums: DeviceSlice::empty_mut(),
            rows,
            cols,
            columns,
            x_stride: cols,
            y_stride: rows,
            add_stride: 0,
            parts: 0,
            block_units: 0,
            matrices: 0,
            sharing: 0,
            flags,
            eps: 0.0,
        }
        .check()
        .err()
        .map(|e| e.argument)
    };
    assert_eq!(refused(&records, &x, 4, 64, 1, 0), None);
    assert_eq!(refused(&records, &x, 4, 48, 1, 0), Some("cols"));
    assert_eq!(refused(&records, &x, 4, 0, 1, 0), Some("cols"));
    assert_eq!(refused(&records, &x, 0, 64, 1, 0), Some("rows"));
    assert_eq!(refused(&records, &x, 5, 64, 1, 0), Some("weights"));
    assert_eq!(refused(&records[1..], &x, 4, 64, 1, 0), Some("weights"));
    assert_eq!(refused(&records, &x[..63], 4, 64, 1, 0), Some("x"));
    assert_eq!(refused(&records, &x[1..], 4, 64, 1, 0), Some("x"));
    assert_eq!(refused(&records, &x, 4, 64, 2, 0), Some("columns"));
    assert_eq!(refused(&records, &x, 4, 64, 1, 1), Some("add"));
    assert_eq!(refused(&records, &x, 4, 64, 1, 2), Some("parts"));
    assert_eq!(refused(&records, &x, 4, 64, 1, 4), Some("next_weight"));
    assert_eq!(refused(&records, &x, 4, 64, 1, 16), None);
    assert_eq!(refused(&records, &x, 4, 64, 1, 2048), Some("flags"));
    // GELU and clamped numbers at once; a bias that is not there.
    assert_eq!(refused(&records, &x, 2, 64, 1, 8 | 64 | 128), Some("flags"));
    // An activation beside gates; of the error function without an activation, and beside the other approximation.
    for flags in [8 | 512, 1024, 512 | 64 | 1024] {
        assert_eq!(refused(&records, &x, 2, 64, 1, flags), Some("flags"), "{flags}");
    }
    assert_eq!(refused(&records, &x, 2, 64, 1, 8 | 128), None);
    assert_eq!(refused(&records, &x, 4, 64, 1, 256), Some("bias"));
    assert_eq!(refused(&records, &x, 4, 64, 1, 32), Some("matrices"));
    // Twice as many rows of weights for gates and ups.
    assert_eq!(refused(&records, &x, 4, 64, 1, 8), Some("weights"));
    assert_eq!(refused(&records, &x, 2, 64, 1, 8), None);
    // Another format's records do not pass.
    let e = Gemv::new(Format::Q8_0, &records, 4, 64, &x, &mut y).launch(&mut gpu).unwrap_err();
    assert!(e.contains("gemv_q8_0: argument `weights`"), "{e}");
    let e = Gemv::new(Format::Q4_0, &records, 4, 64, &x, &mut y)
        .columns(MAX_COLUMNS + 1, 64, 4)
        .launch(&mut gpu)
        .unwrap_err();
    assert!(e.contains("gemm_q4_0: argument `columns`"), "{e}");
}

/// Matrices for columns: as many as the records are, inputs as columns share them, and as many columns as a grid has.
#[test]
fn a_wrong_table_of_matrices_is_refused_by_name() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(8));
    // Three matrices of four rows, six columns of two inputs; of 16 bits two units take ten vectors a column.
    let t = Tensor::random(&mut rng, Format::Q8_0, 12, 64);
    let records = gpu.upload(&t.format.repack(&t.bytes, 12, 64).unwrap());
    let (x, mut y) = (gpu.upload(&rng.floats(128)), gpu.poisoned::<f32>(24));
    let (chosen, codes) = (gpu.upload(&[0, 1, 2, 2, 1, 0]), gpu.upload(&[U32x4([0; 4]); 20]));
    let product = QuantizedProduct::of(Format::Q8_0, Activations::Int16).unwrap();
    let mut refused = |table: usize, matrices, each, columns, inputs: usize| {
        let (x, codes) = (x.get(..64 * inputs).unwrap(), codes.get(..10 * inputs).unwrap());
        let mut of = |quantized: bool| {
            let gemv = match quantized {
                true => Gemv::quantized(product, &records, 4, 64, codes, &mut y),
                false => Gemv::new(Format::Q8_0, &records, 4, 64, x, &mut y),
            };
            let table = chosen.get(..table).unwrap();
            let launch = gemv.columns(columns, 64, 4).experts(table, matrices, each).launch(&mut gpu);
            launch.err().map(|e| e.split('`').nth(1).unwrap().to_owned())
        };
        let (plain, quantized) = (of(false), of(true));
        assert_eq!(plain, quantized);
        plain
    };
    assert_eq!(refused(6, 3, 3, 2, 2), None);
    let wrong = [
        ((5, 3, 3, 2, 2), "chosen"),
        ((6, 2, 3, 2, 2), "weights"),
        ((6, 4, 3, 2, 2), "weights"),
        ((6, 0, 3, 2, 2), "matrices"),
        ((6, 3, 0, 2, 2), "columns"),
        ((6, 3, 3, 2, 1), "x"),
        ((6, 3, 1, MAX_CHOSEN + 1, 2), "columns"),
        ((6, 3, u32::MAX, 2, 2), "columns"),
    ];
    for ((table, matrices, each, columns, inputs), argument) in wrong {
        assert_eq!(refused(table, matrices, each, columns, inputs).as_deref(), Some(argument));
    }
}

/// The table of a group has three numbers for each tile before its columns, whatever the activations are.
#[test]
fn a_short_table_of_a_group_is_refused_by_name() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(9));
    use Activations::{F16, F32, Int16};
    for (format, activations) in
        [(Format::Q8_0, F32), (Format::Q8_0, Int16), (Format::Q8_0, F16), (Format::Q1_0, Int16)]
    {
        // Three matrices of four rows, and six columns of two inputs, which are three tiles at most: here none has a column.
        let t = Tensor::random(&mut rng, format, 12, 128);
        let records = gpu.upload(&t.format.repack(&t.bytes, 12, 128).unwrap());
        let product = QuantizedProduct::of(format, activations);
        let vectors = product.map_or(1, |of| 2 * of.quant_format().len(128) as usize);
        let (x, codes) = (gpu.upload(&rng.floats(256)), gpu.upload(&vec![U32x4([0; 4]); vectors]));
        let (chosen, table, mut y) = (gpu.upload(&[0u32; 6]), gpu.upload(&[0u32; 15]), gpu.poisoned::<f32>(24));
        let mut launch = |length: usize| {
            let gemv = match product {
                Some(product) => Gemv::quantized(product, &records, 4, 128, &codes, &mut y),
                None => Gemv::new(format, &records, 4, 128, &x, &mut y),
            };
            let table = table.get(..length).unwrap();
            gemv.columns(2, 128, 4).experts(&chosen, 3, 3).group(Some(table)).launch(&mut gpu)
        };
        launch(15).unwrap();
        let e = launch(14).unwrap_err();
        assert!(e.contains("gemm_") && e.contains("argument `chosen`"), "{format} {activations}: {e}");
    }
}
