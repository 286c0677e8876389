use crate::machine::{Gpu, Rng, assert_close, vector};
use gpu_kernels::{
    cases::Tensor,
    format::Format,
    gemv::{Gemv, blocks::*, dense::*},
};
use half::f16;
use warpsmith_device::{Contract, DeviceSlice, Launcher, U32x4};

/// How a test launches: the dispatch by format, or the entry points of v1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Variant {
    V1,
    Default,
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
