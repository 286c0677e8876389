use crate::machine::{Gpu, Rng, assert_close, vector};
use gpu_kernels::{
    format::Format,
    gemv::{self, Gemv, blocks::*, dense::*},
};
use half::f16;
use warpsmith_device::{Contract, DeviceSlice, Launcher, U32x4};

/// How a test launches: the dispatch by format, or the entry points of v1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Variant {
    V1,
    Default,
}

pub struct Tensor {
    format: Format,
    bytes: Vec<u8>,
    rows: usize,
    cols: usize,
}

impl Tensor {
    /// Any codes, scales of either sign and of many sizes, subnormal ones and zeros among them.
    pub fn random(rng: &mut Rng, format: Format, rows: usize, cols: usize) -> Tensor {
        let mut bytes: Vec<u8> = Vec::new();
        let scale = |rng: &mut Rng| match rng.within(0, 9) {
            0 => f16::from_bits((rng.next() & 0x83FF) as u16),
            1 => f16::ZERO,
            _ => f16::from_f32(rng.unit() * 0.1),
        };
        for _ in 0..rows * cols / format.block_elems() {
            match format {
                Format::F32 => bytes.extend(rng.unit().to_le_bytes()),
                Format::F16 => bytes.extend(scale(rng).to_le_bytes()),
                _ => {
                    bytes.extend(scale(rng).to_le_bytes());
                    bytes.extend((2..format.block_bytes()).map(|_| rng.next() as u8));
                }
            }
        }
        Tensor { format, bytes, rows, cols }
    }
}

pub fn run(gpu: &mut Gpu, t: &Tensor, x: &[f32], residual: Option<&[f32]>, variant: Variant) -> Vec<f32> {
    let planes = t.format.repack(&t.bytes, t.rows, t.cols).unwrap();
    let (codes, scales, x) = (gpu.upload(&planes.codes), gpu.upload(&planes.scales), gpu.upload(x));
    let residual = residual.map(|r| gpu.upload(r));
    let residual = residual.as_deref();
    let mut y = gpu.poisoned::<f32>(t.rows);
    let (rows, cols) = (t.rows as u32, t.cols as u32);
    let (codes, scales, x): (&DeviceSlice<U32x4>, &DeviceSlice<f16>, _) = (&codes, &scales, &*x);
    match variant {
        Variant::Default => {
            let y = &mut *y;
            Gemv { format: t.format, codes, scales, x, residual, y, rows, cols }.launch(gpu).unwrap();
        }
        Variant::V1 => {
            let (y, weights) = (&mut *y, codes);
            match (t.format, residual) {
                (Format::F32, None) => gpu.launch(GemvF32V1 { weights, x, y, rows, cols }),
                (Format::F16, None) => gpu.launch(GemvF16V1 { weights, x, y, rows, cols }),
                (Format::Q8_0, None) => gpu.launch(GemvQ80V1 { codes, scales, x, y, rows, cols }),
                (Format::Q4_0, None) => gpu.launch(GemvQ40V1 { codes, scales, x, y, rows, cols }),
                (Format::Q1_0, None) => gpu.launch(GemvQ10V1 { codes, scales, x, y, rows, cols }),
                (Format::F32, Some(residual)) => gpu.launch(GemvF32ResidualV1 { weights, x, residual, y, rows, cols }),
                (Format::F16, Some(residual)) => gpu.launch(GemvF16ResidualV1 { weights, x, residual, y, rows, cols }),
                (Format::Q8_0, Some(residual)) => {
                    gpu.launch(GemvQ80ResidualV1 { codes, scales, x, residual, y, rows, cols })
                }
                (Format::Q4_0, Some(residual)) => {
                    gpu.launch(GemvQ40ResidualV1 { codes, scales, x, residual, y, rows, cols })
                }
                (Format::Q1_0, Some(residual)) => {
                    gpu.launch(GemvQ10ResidualV1 { codes, scales, x, residual, y, rows, cols })
                }
            }
            .unwrap();
        }
    }
    gpu.read(&y)
}

fn check(
    gpu: &mut Gpu,
    rng: &mut Rng,
    format: Format,
    rows: usize,
    cols: usize,
    with_residual: bool,
    variant: Variant,
) {
    let t = Tensor::random(rng, format, rows, cols);
    let (x, r) = (rng.floats(cols), rng.floats(rows));
    let residual = with_residual.then_some(&r[..]);
    let weights = format.decode(&t.bytes, rows, cols).unwrap();
    let got = run(gpu, &t, &x, residual, variant);
    let (want, magnitude) = (gemv::reference(&weights, &x, residual), gemv::magnitudes(&weights, &x));
    // The residual is one more term of the sum.
    let bound =
        |i: usize| 1e-5 * magnitude[i] + residual.map_or(0.0, |r| 1e-7 * (f64::from(r[i]).abs() + want[i].abs()));
    assert_close(&format!("{format} {rows} x {cols} {variant:?}"), &got, &want, bound);
}

#[test]
fn golden_vectors() {
    for mut gpu in Gpu::all() {
        for (format, name) in
            [(Format::F16, "F16"), (Format::Q8_0, "Q8_0"), (Format::Q4_0, "Q4_0"), (Format::Q1_0, "Q1_0_g128")]
        {
            let t = Tensor { format, bytes: vector(&format!("{name}.q"), |[b]| b), rows: 4, cols: 512 };
            let x = vector(&format!("{name}.x.f32"), f32::from_le_bytes);
            let y = vector(&format!("{name}.y.f64"), f64::from_le_bytes);
            let yabs = vector(&format!("{name}.yabs.f64"), f64::from_le_bytes);
            for variant in [Variant::V1, Variant::Default] {
                let got = run(&mut gpu, &t, &x, None, variant);
                assert_close(&format!("{name} {variant:?} on {}", gpu.name()), &got, &y, |i| 1e-5 * yabs[i]);
            }
        }
    }
}

#[test]
fn every_row_length_near_the_edges() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(1));
    for format in [Format::Q8_0, Format::Q4_0, Format::Q1_0] {
        // OX-16, RZ-18, RZ-22: one block; fewer words than lanes; with and without full tiles; rests.
        for blocks in [1, 3, 4, 7, 8, 15, 16, 17, 28, 31, 32, 33, 63, 64, 65, 97] {
            for variant in [Variant::V1, Variant::Default] {
                check(&mut gpu, &mut rng, format, 3, blocks * format.block_elems(), blocks % 2 == 0, variant);
            }
        }
    }
    for format in [Format::F32, Format::F16] {
        for cols in [1, 2, 3, 4, 5, 7, 8, 9, 31, 33, 127, 128, 129, 255, 256, 257, 512, 1000, 1023, 1024, 1027, 4099] {
            for variant in [Variant::V1, Variant::Default] {
                check(&mut gpu, &mut rng, format, 3, cols, cols % 2 == 0, variant);
            }
        }
    }
}

#[test]
fn numbers_of_rows_near_the_edges() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(2));
    for format in Format::ALL {
        for rows in [1, 2, 7, 8, 9, 255, 257] {
            check(&mut gpu, &mut rng, format, rows, 256, true, Variant::Default);
        }
        check(&mut gpu, &mut rng, format, 4097, format.block_elems().max(32), false, Variant::Default);
    }
}

#[test]
fn long_rows() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(3));
    for format in Format::ALL {
        check(&mut gpu, &mut rng, format, 9, 16384, true, Variant::Default);
        check(&mut gpu, &mut rng, format, 2, 16384, false, Variant::V1);
        // Not a power of two: 11008 and 12288 + one block of the widest format.
        check(&mut gpu, &mut rng, format, 5, 11008, false, Variant::Default);
        check(&mut gpu, &mut rng, format, 5, 12416, false, Variant::Default);
    }
}

#[test]
fn random_shapes() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(4));
    for _ in 0..60 {
        let format = Format::ALL[rng.within(0, Format::ALL.len() - 1)];
        let rows = rng.within(1, 40);
        let most = 4096 / format.block_elems();
        let cols = rng.within(1, most) * format.block_elems();
        let with_residual = rng.within(0, 1) == 1;
        check(&mut gpu, &mut rng, format, rows, cols, with_residual, Variant::Default);
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_rows() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(5));
    for format in Format::ALL {
        let t = Tensor::random(&mut rng, format, 20, 1024);
        let x = rng.floats(1024);
        let all = run(&mut gpu, &t, &x, None, Variant::Default);
        let row = t.bytes.len() / 20;
        let one = Tensor { format, bytes: t.bytes[13 * row..14 * row].to_vec(), rows: 1, cols: 1024 };
        let alone = run(&mut gpu, &one, &x, None, Variant::Default);
        assert_eq!(all[13].to_bits(), alone[0].to_bits(), "{format}");
    }
}

#[test]
fn a_wrong_shape_is_refused_by_name() {
    let (mut gpu, mut rng) = (Gpu::new(), Rng(7));
    let t = Tensor::random(&mut rng, Format::Q4_0, 4, 64);
    let planes = t.format.repack(&t.bytes, 4, 64).unwrap();
    let (codes, scales) = (gpu.upload(&planes.codes), gpu.upload(&planes.scales));
    let (x, mut y) = (gpu.upload(&rng.floats(68)), gpu.poisoned::<f32>(4));
    let mut refused = |codes: &DeviceSlice<U32x4>, x: &DeviceSlice<f32>, rows, cols| {
        GemvQ40 { codes, scales: &scales, x, y: &mut y, rows, cols }.check().err().map(|e| e.argument)
    };
    assert_eq!(refused(&codes, &x, 4, 64), None);
    assert_eq!(refused(&codes, &x, 4, 48), Some("cols"));
    assert_eq!(refused(&codes, &x, 4, 0), Some("cols"));
    assert_eq!(refused(&codes, &x, 0, 64), Some("rows"));
    assert_eq!(refused(&codes, &x, 5, 64), Some("codes"));
    assert_eq!(refused(&codes[1..], &x, 4, 64), Some("codes"));
    assert_eq!(refused(&codes, &x[..63], 4, 64), Some("x"));
    assert_eq!(refused(&codes, &x[1..], 4, 64), Some("x"));
    // Another format's planes do not pass.
    let e = Gemv {
        format: Format::Q8_0,
        codes: &codes,
        scales: &scales,
        x: &x,
        residual: None,
        y: &mut y,
        rows: 4,
        cols: 64,
    }
    .launch(&mut gpu)
    .unwrap_err();
    assert!(e.contains("gemv_q8_0: argument `codes`"), "{e}");
}
