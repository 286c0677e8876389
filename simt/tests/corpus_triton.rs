//! Triton's kernels of the corpus run; what they compute is compared with the same computation in plain Rust.
//!
//! Integer results must be equal bit for bit. Float inputs are small integers where the order of operations is the
//! compiler's choice, so that every order gives the same exact result; elsewhere the bound is stated.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::Rng;
use common::corpus::Arg::{Float, Int, Pointer};
use common::corpus::*;

const DYNAMIC: u32 = 40 << 10;

#[test]
fn triton_addition_and_transposition() {
    let (x, y) = (whole(30, 1500), whole(31, 1500));
    let add = rig("triton_add_sm80");
    let (px, py, pz) = (add.upload(&x), add.upload(&y), add.alloc(6000));
    launch(&add, "add", 2, 128, DYNAMIC, &[Pointer(px), Pointer(py), Pointer(pz), Int(1500)]);
    assert_eq!(add.download::<f32>(pz, 1500), x.iter().zip(&y).map(|(a, b)| a + b).collect::<Vec<_>>());

    let rig = rig("triton_transpose_sm80");
    let (rows, cols) = (40, 35);
    let (px, py) = (rig.upload(&x), rig.alloc(6000));
    let args = [Pointer(px), Pointer(py), Int(rows as i32), Int(cols as i32)];
    launch2(&rig, "transpose", [2, 2, 1], [128, 1, 1], DYNAMIC, &args);
    let want: Vec<f32> = (0..rows * cols).map(|i| x[i % rows * cols + i / rows]).collect();
    assert_eq!(rig.download::<f32>(py, rows * cols), want);
}

#[test]
fn triton_scans_and_sorts() {
    let x = ints(32, 512, 1000);
    let scan = rig("triton_scan_sum_sm80");
    let (px, py) = (scan.upload(&x), scan.alloc(2048));
    launch(&scan, "scan_sum", 1, 128, DYNAMIC, &[Pointer(px), Pointer(py)]);
    let mut sum = 0;
    assert_eq!(
        scan.download::<i32>(py, 512),
        x.iter()
            .map(|v| {
                sum += v;
                sum
            })
            .collect::<Vec<_>>()
    );

    let sort = rig("triton_sort_rows_sm80");
    let (px, py) = (sort.upload(&x), sort.alloc(2048));
    launch(&sort, "sort_rows", 8, 32, DYNAMIC, &[Pointer(px), Pointer(py)]);
    let mut want = x.clone();
    want.chunks_mut(64).for_each(<[i32]>::sort_unstable);
    assert_eq!(sort.download::<i32>(py, 512), want);
}

#[test]
fn triton_histogram_and_argmax() {
    let rig1 = rig("triton_histogram_sm80");
    let x = ints(33, 900, 64);
    let (px, ph) = (rig1.upload(&x), rig1.upload(&[0i32; 64]));
    launch(&rig1, "histogram", 2, 128, DYNAMIC, &[Pointer(px), Pointer(ph), Int(900)]);
    let mut want = [0; 64];
    x.iter().for_each(|&v| want[v as usize] += 1);
    // What lies behind the end counts as 0.
    want[0] += 1024 - 900;
    assert_eq!(rig1.download::<i32>(ph, 64), want);

    let rig2 = rig("triton_argmax_sm80");
    let x: Vec<f32> = ints(34, 3 * 400, 1 << 20).iter().map(|&v| v as f32).collect();
    let (px, pk, pm) = (rig2.upload(&x), rig2.alloc(12), rig2.alloc(12));
    launch(&rig2, "argmax", 3, 128, DYNAMIC, &[Pointer(px), Pointer(pk), Pointer(pm), Int(400)]);
    let best = |row: &[f32]| row.iter().copied().fold(f32::MIN, f32::max);
    let at = |row: &[f32]| row.iter().position(|&v| v == best(row)).unwrap() as i32;
    assert_eq!(rig2.download::<f32>(pm, 3), x.chunks(400).map(best).collect::<Vec<_>>());
    assert_eq!(rig2.download::<i32>(pk, 3), x.chunks(400).map(at).collect::<Vec<_>>());
}

#[test]
fn triton_integer_arithmetic() {
    let rig = rig("triton_integers_sm80");
    let mut rng = Rng(35);
    let x: Vec<i32> = (0..300).map(|_| rng.next() as i32 >> 4).collect();
    let y: Vec<i32> = (0..300).map(|_| rng.next() as i32 >> 20).collect();
    let (px, py, pz) = (rig.upload(&x), rig.upload(&y), rig.alloc(2400));
    launch(&rig, "integers", 2, 128, DYNAMIC, &[Pointer(px), Pointer(py), Pointer(pz), Int(300)]);
    let of = |(&v, &w): (&i32, &i32)| {
        // Division truncates, as in the language's scalar semantics for tensors.
        let high = ((u64::from(v as u32) * u64::from(w as u32)) >> 32) as i32;
        let r = (v / (w | 1)).wrapping_add(v % (w | 1)).wrapping_add(high);
        let r = r.min(w << 3) ^ (v >> 2).max(w);
        let ceiling = v.wrapping_add(6) / 7;
        i64::from(r).wrapping_mul(i64::from(v)).wrapping_mul(i64::from(w)).wrapping_sub(i64::from(ceiling))
    };
    assert_eq!(rig.download::<i64>(pz, 300), x.iter().zip(&y).map(of).collect::<Vec<_>>());
}

#[test]
fn triton_products() {
    let (m, n, k) = (40, 33, 50);
    let (a, b) = (whole(36, m * k), whole(37, k * n));
    let bits = |v: &[f32]| v.iter().map(|&v| half(v)).collect::<Vec<u16>>();
    let rig1 = rig("triton_matmul_sm80");
    let (pa, pb, pc) = (rig1.upload(&bits(&a)), rig1.upload(&bits(&b)), rig1.alloc(2 * 40 * 33));
    let args = [Pointer(pa), Pointer(pb), Pointer(pc), Int(m as i32), Int(n as i32), Int(k as i32)];
    launch2(&rig1, "matmul", [2, 2, 1], [128, 1, 1], DYNAMIC, &args);
    // Sums of at most 50 products of at most 64: exact in f32, rounded once to f16.
    let want: Vec<u16> = (0..m * n).map(|i| half((0..k).map(|j| a[i / n * k + j] * b[j * n + i % n]).sum())).collect();
    assert_eq!(rig1.download::<u16>(pc, m * n), want);

    let rig2 = rig("triton_tile_i8_sm80");
    let mut rng = Rng(38);
    let a: Vec<i8> = (0..512).map(|_| rng.next() as i8).collect();
    let b: Vec<i8> = (0..512).map(|_| rng.next() as i8).collect();
    let (pa, pb, pc) = (rig2.upload(&a), rig2.upload(&b), rig2.alloc(1024));
    launch(&rig2, "tile_i8", 1, 32, DYNAMIC, &[Pointer(pa), Pointer(pb), Pointer(pc)]);
    let want: Vec<i32> = (0..256)
        .map(|i| (0..32).map(|k| i32::from(a[i / 16 * 32 + k]) * i32::from(b[i % 16 * 32 + k])).sum())
        .collect();
    assert_eq!(rig2.download::<i32>(pc, 256), want);
}

#[test]
fn triton_softmax_and_layer_norm() {
    let rig1 = rig("triton_softmax_sm80");
    let cols = 700;
    let x: Vec<f32> = whole(39, 2 * cols).iter().map(|v| v * 0.37).collect();
    let (px, py) = (rig1.upload(&x), rig1.alloc(4 * 2 * 700));
    launch(&rig1, "softmax", 2, 128, DYNAMIC, &[Pointer(px), Pointer(py), Int(700), Int(700)]);
    let got = rig1.download::<f32>(py, 2 * cols);
    for (row, got) in x.chunks(cols).zip(got.chunks(cols)) {
        let top = row.iter().copied().fold(f32::MIN, f32::max);
        let e: Vec<f64> = row.iter().map(|&v| f64::from(v - top).exp()).collect();
        let sum: f64 = e.iter().sum();
        for (e, &got) in e.iter().zip(got) {
            // Ten bits of argument lost in exp2(x·log2 e), 2 ulp of ex2.approx, the sum and the division.
            assert!((f64::from(got) - e / sum).abs() <= 4e-6 * (e / sum), "{got} {}", e / sum);
        }
    }
    let rig2 = rig("triton_layer_norm_sm80");
    let cols = 300;
    let (x, w, b) = (whole(40, 2 * cols), whole(41, cols), whole(42, cols));
    let bits: Vec<u16> = x.iter().map(|&v| half(v)).collect();
    let (px, pw, pb, py) = (rig2.upload(&bits), rig2.upload(&w), rig2.upload(&b), rig2.alloc(4 * 300));
    let args = [Pointer(px), Pointer(pw), Pointer(pb), Pointer(py), Int(300), Float(1e-5)];
    launch(&rig2, "layer_norm", 2, 128, DYNAMIC, &args);
    let got = rig2.download::<u16>(py, 2 * cols);
    for (row, got) in x.chunks(cols).zip(got.chunks(cols)) {
        let mean = row.iter().map(|&v| f64::from(v)).sum::<f64>() / cols as f64;
        let variance = row.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / cols as f64;
        for (i, &bits) in got.iter().enumerate() {
            let want = (f64::from(row[i]) - mean) / (variance + 1e-5).sqrt() * f64::from(w[i]) + f64::from(b[i]);
            let got = half::f16::from_bits(bits).to_f64();
            // Half an ulp of f16, and what f32 adds.
            assert!((got - want).abs() <= want.abs().max(1.0) * 2f64.powi(-11) * 1.01, "{got} {want}");
        }
    }
}
