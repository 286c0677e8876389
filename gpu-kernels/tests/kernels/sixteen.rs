//! Tensors of f16 and of bf16: what other implementations got wrong, and the code of GPUs before sm_80.

use crate::machine::{Gpu, Rng};
use gpu_kernels::cases::Subject;
use gpu_kernels::sixteen::{AddRmsNormF16, AddRmsNormShadowF16, EmbeddingBf16, LayerNormF16, cases::Norm};
use half::{bf16, f16};
use warpsmith_device::{DeviceSlice, Launcher};

/// FE-21: the sum does not fit f16, and its row is lost; a residual stream of f32 keeps it.
#[test]
fn fe_21_a_residual_stream_of_f16_overflows_where_its_shadow_does_not() {
    let mut gpu = Gpu::new();
    let (cols, eps) = (64u32, 1e-6);
    let x = gpu.upload(&[f16::from_f32(40000.0); 64]);
    let w = gpu.upload(&[f16::ONE; 64]);
    let (mut residual, mut y) = (gpu.upload(&[f16::from_f32(40000.0); 64]), gpu.poisoned::<f16>(64));
    gpu.launch(AddRmsNormF16 { x: &x, residual: &mut residual, w: &w, y: &mut y, cols, eps }).unwrap();
    assert!(gpu.read(&residual).iter().all(|v| *v == f16::INFINITY));
    assert!(gpu.read(&y).iter().all(|v| v.is_nan()));
    let (mut residual, mut y) = (gpu.upload(&[40000.0f32; 64]), gpu.poisoned::<f16>(64));
    gpu.launch(AddRmsNormShadowF16 { x: &x, residual: &mut residual, w: &w, y: &mut y, cols, eps, added: 1 }).unwrap();
    assert!(gpu.read(&residual).iter().all(|v| *v == 80000.0));
    assert!(gpu.read(&y).iter().all(|v| *v == f16::ONE));
}

/// FE-27: the row of the last token begins 4.6 thousand million elements behind the first.
#[test]
fn fe_27_places_in_a_table_are_counted_in_64_bits() {
    let mut gpu = Gpu::new();
    let (vocab, cols) = (1_200_000u32, 4096u32);
    let row: Vec<bf16> = Rng(3).floats(cols as usize).into_iter().map(bf16::from_f32).collect();
    let last = gpu.upload(&row);
    let before = u64::from(vocab - 1) * u64::from(cols) * 2;
    let base = last.address().raw().checked_sub(before).expect("memory of the machine lies high enough");
    // SAFETY: of the table the last row alone is there, and it alone is read.
    let table = unsafe { DeviceSlice::from_raw(base, vocab as usize * cols as usize) };
    let (ids, mut y) = (gpu.upload(&[vocab - 1, vocab]), gpu.poisoned::<bf16>(2 * cols as usize));
    // The token that is not there takes nothing from the table, nor from where its row would be.
    let ids_of_known = &ids[..1];
    gpu.launch(EmbeddingBf16 { table, ids: ids_of_known, y: &mut y[..cols as usize], vocab, cols }).unwrap();
    let (known, unknown) = (gpu.upload(&row), &ids[1..]);
    gpu.launch(EmbeddingBf16 { table: &known, ids: unknown, y: &mut y[cols as usize..], vocab: 1, cols }).unwrap();
    let got = gpu.read(&y);
    assert_eq!(got[..cols as usize], row[..]);
    assert!(got[cols as usize..].iter().all(|v| v.is_nan()));
}

/// `E[x^2] - mean^2` of these in f32 is 0, or less than that.
#[test]
fn a_mean_far_from_zero_costs_no_digits_of_the_deviation() {
    let mut gpu = Gpu::new();
    let x: Vec<f16> = (0..256).map(|i| f16::from_f32(if i % 2 == 0 { 8000.0 } else { 8008.0 })).collect();
    let (x, w, mut y) = (gpu.upload(&x), gpu.upload(&[f16::ONE; 256]), gpu.poisoned::<f16>(256));
    let (cols, eps, biased) = (256, 1e-6, 0);
    gpu.launch(LayerNormF16 { x: &x, w: &w, bias: DeviceSlice::empty(), y: &mut y, cols, eps, biased }).unwrap();
    let want: Vec<f16> = (0..256).map(|i| if i % 2 == 0 { f16::NEG_ONE } else { f16::ONE }).collect();
    assert_eq!(gpu.read(&y), want);
}

/// Before sm_80 two numbers are rounded one by one, and those of bf16 by integer arithmetic.
#[test]
fn the_code_of_earlier_gpus_rounds_alike() {
    let wanted = |s: &Subject| {
        matches!(s, Subject::Cast(_) | Subject::Sum16 { .. } | Subject::Norm16 { norm: Norm::AddRms, .. })
    };
    let mut gpu = Gpu::of(75);
    for subject in Subject::all().into_iter().filter(wanted) {
        for case in subject.cases().into_iter().skip(3).take(5) {
            case.run(&mut gpu).unwrap_or_else(|e| panic!("{subject:?} {case}: {e}"));
        }
    }
}
