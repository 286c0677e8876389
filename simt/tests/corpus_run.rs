//! nvcc's kernels of the corpus run; what they compute is compared with the same computation in plain Rust.
//!
//! Integer results must be equal bit for bit. Float inputs are small integers where the order of operations is the
//! compiler's choice, so that every order gives the same exact result; elsewhere the bound is stated.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::Rng;
use common::corpus::Arg::{Bytes, Double, Float, Int, Pointer};
use common::corpus::*;

#[test]
fn saxpy_with_vectors_and_tail() {
    let rig = rig("cuda_elementwise_sm80");
    let (x, y) = (whole(1, 103), whole(2, 103));
    let (px, py) = (rig.upload(&x), rig.upload(&y));
    launch(&rig, "saxpy", 2, 32, 0, &[Int(103), Float(3.0), Pointer(px), Pointer(py)]);
    let want: Vec<f32> = x.iter().zip(&y).map(|(x, y)| 3.0 * x + y).collect();
    assert_eq!(rig.download::<f32>(py, 103), want);
}

#[test]
fn doubles_in_pairs() {
    let rig = rig("cuda_elementwise_sm80");
    let x: Vec<f64> = whole(3, 200).into_iter().map(f64::from).collect();
    let (px, py) = (rig.upload(&x), rig.alloc(800));
    launch(
        &rig,
        "axpby_f64",
        2,
        32,
        0,
        &[Pointer(px), Pointer(py), Double(0.5), Double(-3.0), Bytes(100u64.to_le_bytes().to_vec())],
    );
    let want: Vec<f64> = x.chunks(2).map(|p| 0.5 * p[0] - 3.0 * p[1]).collect();
    assert_eq!(rig.download::<f64>(py, 100), want);
}

#[test]
fn bytes_saturate() {
    let rig = rig("cuda_elementwise_sm80");
    let mut rng = Rng(5);
    let x: Vec<i8> = (0..256).map(|_| rng.next() as i8).collect();
    let w: Vec<u8> = (0..256).map(|_| rng.next() as u8).collect();
    let (px, pw, py, pz) = (rig.upload(&x), rig.upload(&w), rig.alloc(256), rig.alloc(128));
    launch(&rig, "sat_i8", 2, 32, 0, &[Pointer(px), Pointer(pw), Pointer(py), Pointer(pz), Int(64)]);
    let s: Vec<i32> = x.iter().zip(&w).map(|(&a, &b)| i32::from(a) * i32::from(b)).collect();
    let want: Vec<i8> = s.iter().map(|&s| (s >> 4).clamp(-128, 127) as i8).collect();
    assert_eq!(rig.download::<i8>(py, 256), want);
    let want: Vec<i16> =
        s.chunks(4).map(|s| ((s[0] + s[1]) as i16 as i32 - (s[2] ^ s[3]) as i16 as i32) as i16).collect();
    assert_eq!(rig.download::<i16>(pz, 64), want);
}

#[test]
fn polynomials_and_divisions_of_64_bits() {
    let rig = rig("cuda_elementwise_sm80");
    let mut rng = Rng(6);
    let (x, u) = (rng.u64s(96), rng.u64s(96));
    let (px, pu, py) = (rig.upload(&x), rig.upload(&u), rig.alloc(8 * 96));
    launch(&rig, "i64_poly", 3, 32, 0, &[Pointer(px), Pointer(pu), Pointer(py), Int(96)]);
    let want: Vec<i64> = x
        .iter()
        .zip(&u)
        .map(|(&x, &u)| {
            let (a, b) = (x as i64, u | 1);
            let mut r = a.wrapping_mul(a).wrapping_mul(3).wrapping_sub(a.wrapping_mul(7)).wrapping_add(11);
            r = r.wrapping_add(a.wrapping_div((b & 0xffff) as i64 + 1));
            r ^= (x % b) as i64;
            r = r.wrapping_add(a % 1000).wrapping_sub((a >> 3).wrapping_add((b >> 5) as i64));
            r.wrapping_abs()
        })
        .collect();
    assert_eq!(rig.download::<i64>(py, 96), want);
}

#[test]
fn block_reduction() {
    let rig = rig("cuda_warp_sm80");
    let x = whole(7, 1000);
    let (px, py) = (rig.upload(&x), rig.alloc(8));
    launch(&rig, "reduce_sum", 2, 96, 0, &[Pointer(px), Pointer(py), Int(1000)]);
    let of = |block: usize| -> f32 { (0..1000).filter(|i| i / 96 % 2 == block).map(|i| x[i]).sum() };
    assert_eq!(rig.download::<f32>(py, 2), [of(0), of(1)]);
}

#[test]
fn shuffles_in_all_modes() {
    let rig = rig("cuda_warp_sm80");
    let x = ints(8, 32, 1000);
    let w: Vec<i64> = x.iter().map(|&v| i64::from(v) << 33 | 7).collect();
    let (px, pw, py, pz) = (rig.upload(&x), rig.upload(&w), rig.alloc(128), rig.alloc(256));
    let delta = 5usize;
    launch(&rig, "shuffles", 1, 32, 0, &[Pointer(px), Pointer(pw), Pointer(py), Pointer(pz), Int(delta as i32)]);
    // The pseudocode of `shfl` in the ISA: a lane whose source lies outside its segment keeps its own value, but a
    // butterfly reaches lower segments.
    let up = |i: usize, d: usize, width: usize| if i % width >= d { i - d } else { i };
    let down = |i: usize, d: usize, width: usize| if i % width + d < width { i + d } else { i };
    let xor = |i: usize, d: usize, width: usize| if (i ^ d) <= (i | (width - 1)) { i ^ d } else { i };
    let want: Vec<i32> = (0..32)
        .map(|i| {
            let segment = i / 8 * 8 + (i + 1) % 8;
            let from = [delta, segment, up(i, 1, 32), up(i, delta & 3, 16), down(i, 3, 4), xor(i, 5, 32), xor(i, 3, 2)];
            from.iter().fold(0i32, |r, &lane| r.wrapping_mul(31).wrapping_add(x[lane]))
        })
        .collect();
    assert_eq!(rig.download::<i32>(py, 32), want);
    let want: Vec<i64> = (0..32).map(|i| w[down(i, 2, 32)]).collect();
    assert_eq!(rig.download::<i64>(pz, 32), want);
}

#[test]
fn votes_matches_and_reductions() {
    let rig = rig("cuda_warp_sm80");
    let x: Vec<i32> = ints(9, 64, 9).iter().map(|v| v - 2).collect();
    let (px, py) = (rig.upload(&x), rig.alloc(64 * 28));
    launch(&rig, "votes", 2, 32, 0, &[Pointer(px), Pointer(py)]);
    let mut want = Vec::new();
    for warp in x.chunks(32) {
        let mask = |f: &dyn Fn(i32) -> bool| (0..32).fold(0u32, |m, l| m | u32::from(f(warp[l])) << l);
        let all = |f: &dyn Fn(i32) -> bool| u32::from(warp.iter().all(|&v| f(v)));
        let any = |f: &dyn Fn(i32) -> bool| u32::from(warp.iter().any(|&v| f(v)));
        let high = |v: i32| v as i64 as u64 >> 40;
        let same = warp.iter().all(|&v| high(v) == high(warp[0]));
        for &v in warp {
            let unsigned = || warp.iter().map(|&v| v as u32);
            want.extend([
                mask(&|v| v & 1 != 0),
                all(&|v| v > 0) | any(&|v| v > 100) << 1 | all(&|v| v == 7) << 2 | u32::from(same) << 3,
                mask(&|o| o == v),
                if same { !0 } else { 0 },
                u32::from(v & 2 != 0),
                unsigned().fold(0, u32::wrapping_add),
                *warp.iter().max().unwrap() as u32
                    ^ unsigned().fold(!0, |a, b| a & b)
                    ^ unsigned().fold(0, |a, b| a | b)
                    ^ unsigned().fold(0, |a, b| a ^ b)
                    ^ unsigned().min().unwrap(),
            ]);
        }
    }
    assert_eq!(rig.download::<u32>(py, 64 * 7), want);
    launch(&rig, "block_votes", 1, 64, 0, &[Pointer(px), Pointer(py)]);
    let count = x.iter().filter(|&&v| v > 3).count() as i32;
    let five = i32::from(x.contains(&5));
    assert_eq!(rig.download::<i32>(py, 64), vec![count * 4 + 2 + five; 64]);
}

#[test]
fn tiles_in_shared_memory() {
    let rig = rig("cuda_shared_sm80");
    let n = 32;
    let (a, b) = (whole(10, n * n), whole(11, n * n));
    let (pa, pb, pc) = (rig.upload(&a), rig.upload(&b), rig.alloc(4 * 1024));
    launch2(&rig, "matmul_tile", [2, 2, 1], [16, 16, 1], 0, &[Pointer(pa), Pointer(pb), Pointer(pc), Int(n as i32)]);
    let want: Vec<f32> = (0..n * n).map(|i| (0..n).map(|k| a[i / n * n + k] * b[k * n + i % n]).sum()).collect();
    assert_eq!(rig.download::<f32>(pc, n * n), want);

    let x = ints(12, 50, 1000);
    let (px, py) = (rig.upload(&x), rig.alloc(200));
    launch(&rig, "reverse_dyn", 1, 50, 300, &[Pointer(px), Pointer(py), Int(50)]);
    let want: Vec<i32> = (0..50).map(|i| x[49 - i] + (i as i32 + 1) % 50).collect();
    assert_eq!(rig.download::<i32>(py, 50), want);

    let x = ints(13, 128, 100);
    let (px, py) = (rig.upload(&x), rig.alloc(512));
    launch(&rig, "scan_demoted", 2, 64, 0, &[Pointer(px), Pointer(py)]);
    let want: Vec<i32> = (0..128).map(|i| x[i / 64 * 64..=i].iter().sum::<i32>() - (i % 64 + 1) as i32).collect();
    assert_eq!(rig.download::<i32>(py, 128), want);

    let x: Vec<u8> = ints(14, 3000, 256).iter().map(|&v| v as u8).collect();
    let (px, ph) = (rig.upload(&x), rig.upload(&[0u32; 256]));
    launch(&rig, "histogram", 3, 64, 0, &[Pointer(px), Pointer(ph), Int(3000)]);
    let mut want = [0u32; 256];
    x.iter().for_each(|&v| want[v as usize] += 1);
    assert_eq!(rig.download::<u32>(ph, 256), want);
}

#[test]
fn atomics_of_32_bits() {
    let rig = rig("cuda_atomics_sm80");
    let (pa, pu, po) = (rig.upload(&[0i32; 6]), rig.upload(&[!0u32, 0, 0, 0, 9, !0, 0]), rig.alloc(4 * 96));
    launch(&rig, "atomics_i32", 3, 32, 0, &[Pointer(pa), Pointer(pu), Pointer(po)]);
    let a = rig.download::<i32>(pa, 6);
    assert_eq!([a[0], a[1], a[2], a[3], a[5]], [4560, -4560, -95, 95, 1]);
    assert!((0..96).contains(&a[4]));
    let xor = (0..96).fold(0, |x, i| x ^ i);
    // 96 steps: up to 7 and around (period 8), down from 9 and around (period 10).
    assert_eq!(rig.download::<u32>(pu, 7), [0, !0, xor, 0, (9 + 10 * 10 - 96) % 10, 3, 98]);
    let mut old = rig.download::<i32>(po, 96);
    old.sort_unstable();
    assert!(old[0] == 0 && *old.last().unwrap() <= 4560);
}

#[test]
fn integer_intrinsics() {
    let rig = rig("cuda_intrinsics_sm80");
    let mut rng = Rng(15);
    let (x, w) = (rng.u32s(64), rng.u64s(64));
    let (px, pw, py, pz) = (rig.upload(&x), rig.upload(&w), rig.alloc(64 * 64), rig.alloc(64 * 32));
    launch(&rig, "mul_ops", 1, 64, 0, &[Pointer(px), Pointer(pw), Pointer(py), Pointer(pz)]);
    let (got, wide) = (rig.download::<i32>(py, 512), rig.download::<i64>(pz, 256));
    let low24 = |v: i32| v << 8 >> 8;
    for i in 0..64 {
        let (v, u, p, q) = (x[i] as i32, x[i ^ 1] as i32, w[i] as i64, w[i ^ 1] as i64);
        let (a, b) = (v as u32, u as u32);
        let want = [
            ((i64::from(v) * i64::from(u)) >> 32) as i32,
            ((u64::from(a) * u64::from(b)) >> 32) as i32,
            low24(v).wrapping_mul(low24(u)),
            (a & 0xff_ffff).wrapping_mul(b & 0xff_ffff) as i32,
            (v.abs_diff(u).wrapping_add(5).wrapping_add(a.abs_diff(b)).wrapping_add(7)) as i32,
            (v / ((u & 1023) + 1)).wrapping_add(v % 17),
            (a / (b | 1)).wrapping_add(a % 10) as i32,
            (((i64::from(v) + i64::from(u)) >> 1) as i32)
                .wrapping_add(((i64::from(v) + i64::from(u) + 1) >> 1) as i32)
                .wrapping_add(v.wrapping_abs())
                .wrapping_add(v.min(u))
                .wrapping_sub(v.max(3)),
        ];
        assert_eq!(got[8 * i..8 * i + 8], want, "{v} {u}");
        let product = i128::from(p) * i128::from(q) + i128::from(q) - i128::from(v);
        let want = [
            ((i128::from(p) * i128::from(q)) >> 64) as i64,
            ((p as u64 as u128 * q as u64 as u128) >> 64) as i64,
            (i64::from(v) * i64::from(u)).wrapping_add((u64::from(a) * u64::from(b)) as i64),
            (product >> 64) as i64 ^ product as i64,
        ];
        assert_eq!(wide[4 * i..4 * i + 4], want, "{p} {q}");
    }
}

#[test]
fn simd_in_a_word() {
    let rig = rig("cuda_intrinsics_sm80");
    let x = Rng(16).u32s(64);
    let (px, py) = (rig.upload(&x), rig.alloc(64 * 48));
    launch(&rig, "simd_ops", 1, 64, 0, &[Pointer(px), Pointer(py)]);
    let got = rig.download::<u32>(py, 64 * 12);
    for i in 0..64 {
        let (a, b) = (x[i], x[i ^ 1]);
        let bytes = |f: &dyn Fn(u8, u8) -> u8| {
            let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
            u32::from_le_bytes([0, 1, 2, 3].map(|k| f(a[k], b[k])))
        };
        let halves = |f: &dyn Fn(u16, u16) -> u16| {
            u32::from(f(a as u16, b as u16)) | u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16
        };
        let dot = |f: &dyn Fn(u8) -> i32| {
            let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
            (0..4).map(|k| f(a[k]) * f(b[k])).sum::<i32>()
        };
        let half = |k: u32| i32::from((a >> (16 * k)) as i16);
        let byte = |k: usize| i32::from(b.to_le_bytes()[k] as i8);
        let (lo, hi) = (half(0) * byte(0) + half(1) * byte(1), half(0) * byte(2) + half(1) * byte(3));
        let difference = |a: u8, b: u8| a.abs_diff(b);
        let sad: u32 = bytes(&difference).to_le_bytes().iter().map(|&v| u32::from(v)).sum();
        let want = [
            halves(&u16::wrapping_add),
            bytes(&u8::wrapping_sub),
            bytes(&difference),
            halves(&|a, b| (a as i16).max(b as i16) as u16),
            bytes(&u8::min),
            bytes(&|a, b| (u16::from(a) + u16::from(b)).div_ceil(2) as u8),
            bytes(&|a, b| if a > b { 0xff } else { 0 }),
            halves(&|a, b| (a as i16).saturating_add(b as i16) as u16),
            (dot(&|v| i32::from(v as i8)) + 11) as u32,
            (dot(&i32::from) + 13) as u32,
            lo.wrapping_add(3).wrapping_add(hi).wrapping_add(4) as u32,
            halves(&|a, b| u16::from(a < b)).wrapping_add(sad),
        ];
        assert_eq!(got[12 * i..12 * i + 12], want, "{a:#x} {b:#x}");
    }
}

#[test]
fn carries() {
    let rig = rig("cuda_intrinsics_sm80");
    let mut rng = Rng(17);
    let (a, b) = (rng.u32s(128), rng.u32s(128));
    let (pa, pb, ps, pd, pm) = (rig.upload(&a), rig.upload(&b), rig.alloc(512), rig.alloc(512), rig.alloc(256));
    launch(&rig, "carry_chain", 1, 32, 0, &[Pointer(pa), Pointer(pb), Pointer(ps), Pointer(pd), Pointer(pm)]);
    let wide = |v: &[u32]| v.iter().rev().fold(0u128, |w, &x| w << 32 | u128::from(x));
    let (s, d, m) = (rig.download::<u32>(ps, 128), rig.download::<u32>(pd, 128), rig.download::<u32>(pm, 64));
    for i in 0..32 {
        let at = 4 * i..4 * i + 4;
        let (x, y) = (wide(&a[at.clone()]), wide(&b[at.clone()]));
        assert_eq!(wide(&s[at.clone()]), x.wrapping_add(y));
        assert_eq!(wide(&d[at]), x.wrapping_sub(y));
        let first = u64::from(a[4 * i]) * u64::from(b[4 * i]);
        let want = first.wrapping_add(u64::from(a[4 * i + 1]) * u64::from(b[4 * i + 1]));
        assert_eq!(wide(&m[2 * i..2 * i + 2]) as u64, want);
    }
}

#[test]
fn recursion_tables_and_pointers_to_functions() {
    let rig = rig("cuda_control_sm80");
    let fib = |n: i32| (0..n).fold((0, 1), |(a, b), _| (b, a + b)).0;
    let x: Vec<i32> = (0..32).map(|i| i % 12).collect();
    let (px, py) = (rig.upload(&x), rig.alloc(128));
    launch(&rig, "recursion", 1, 32, 0, &[Pointer(px), Pointer(py)]);
    let want: Vec<i32> = x.iter().map(|&n| fib(n) * 2 + i32::from(n % 2 == 0)).collect();
    assert_eq!(rig.download::<i32>(py, 32), want);

    let which: Vec<i32> = (0..32).collect();
    let pw = rig.upload(&which);
    launch(&rig, "function_pointers", 1, 32, 0, &[Pointer(pw), Pointer(px), Pointer(py), Pointer(0)]);
    let apply = |w: i32, x: i32| match w & 3 {
        0 => x * 3 + 1,
        1 => x ^ 0x55,
        2 => x - (x >> 2),
        _ => fib(x),
    };
    let want: Vec<i32> = which.iter().zip(&x).map(|(&w, &x)| apply(w, x)).collect();
    assert_eq!(rig.download::<i32>(py, 32), want);

    let case: Vec<u32> = (0..32).map(|i| i % 5).collect();
    let pc = rig.upload(&case);
    launch(&rig, "jump_table", 1, 32, 0, &[Pointer(pc), Pointer(px), Pointer(py)]);
    let table = |c: u32, x: i32| match c {
        0 | 2 => x + 1,
        1 => 2 * x,
        _ => -x,
    };
    let want: Vec<i32> = case.iter().zip(&x).map(|(&c, &x)| table(c, x)).collect();
    assert_eq!(rig.download::<i32>(py, 32), want);
}

#[test]
fn virtual_calls_and_divergent_loops() {
    let rig = rig("cuda_control_sm80");
    let x = whole(18, 32);
    let (px, py) = (rig.upload(&x), rig.alloc(128));
    launch(&rig, "virtual_calls", 1, 32, 0, &[Pointer(px), Pointer(py)]);
    let of = |i: usize| if !i.is_multiple_of(3) { x[i] * x[i] + 4.0 * i as f32 } else { 3.0 * x[i] * x[i] + i as f32 };
    assert_eq!(rig.download::<f32>(py, 32), (0..32).map(of).collect::<Vec<_>>());

    let x: Vec<u32> = (1..33).map(|i| if i == 20 { 0xffff_fff1 } else { i * 7 }).collect();
    let px = rig.upload(&x);
    launch(&rig, "collatz", 1, 32, 0, &[Pointer(px), Pointer(py), Int(60)]);
    let steps = |mut v: u32| {
        let mut steps = 0;
        while v != 1 {
            if v & 1 == 1 {
                if v > 0x5555_5555 {
                    return !0;
                }
                v = 3 * v + 1;
            } else {
                v >>= 1;
                if steps == 7 {
                    continue;
                }
            }
            steps += 1;
            if steps == 60 {
                break;
            }
        }
        steps
    };
    assert_eq!(rig.download::<u32>(py, 32), x.iter().map(|&v| steps(v)).collect::<Vec<u32>>());
}

#[test]
fn structs_by_value() {
    let rig = rig("cuda_calls_sm80");
    let (a, b) = (5i32, 12.0f64);
    let pair: Vec<u8> = [&a.to_le_bytes()[..], &[0; 4], &b.to_le_bytes()].concat();
    let big = |first: f32, tag: i8| -> Vec<u8> {
        let floats = (0..7).flat_map(|i| (first + i as f32).to_le_bytes());
        floats.chain([tag as u8, 0, 0, 0]).collect()
    };
    let (py, pz) = (rig.alloc(64), rig.upload(&[0xeeu8; 16]));
    let args = [Bytes(pair), Bytes(big(1.0, 3)), Bytes(big(100.0, 0)), Int(7), Pointer(py), Pointer(pz)];
    launch(&rig, "struct_params", 1, 16, 0, &args);
    let of = |i: usize| {
        // The pair comes back as (12, 5·i); the sum of 1 to 7 lacks element i; 3 is the tag.
        let sum = 28.0 - if i < 7 { 1.0 + i as f32 } else { 0.0 } + 3.0;
        12.0 + 5.0 * i as f32 + sum + 100.0 + (i % 7) as f32 + 7.0 * i as f32
    };
    assert_eq!(rig.download::<f32>(py, 16), (0..16).map(of).collect::<Vec<_>>());
    let want: Vec<u8> = (0..16).map(|i| if i & 1 == 1 { i * 3 } else { 0xee }).collect();
    assert_eq!(rig.download::<u8>(pz, 16), want);
}

#[test]
fn constants_globals_and_local_arrays() {
    let rig = rig("cuda_memory_sm80");
    let x = whole(19, 32);
    let (px, py) = (rig.upload(&x), rig.alloc(4 * 512));
    launch(&rig, "constants", 1, 32, 0, &[Pointer(px), Pointer(py)]);
    let coeff = [1.0, 2.0, 0.5, -1.0, 0.25, 3.0, -2.0, 4.0];
    let of = |(i, &v): (usize, &f32)| {
        let r = coeff.iter().fold(0.0f64, |r, c| r * f64::from(v) + c);
        (r * 1.5 + coeff[i & 7] + 3.0) as f32
    };
    // Quarters of numbers below 2^24: every step is exact.
    assert_eq!(rig.download::<f32>(py, 32), x.iter().enumerate().map(of).collect::<Vec<_>>());

    launch(&rig, "globals", 1, 32, 0, &[Pointer(py)]);
    let of = |i: usize| {
        let bytes = [1, 2, 255, 4, 0][i % 5];
        let names = [b"alpha", b"beta\0"][i & 1][i & 3];
        5 + bytes + [1, 2, 4][i % 3] + [30, 40][i & 1] + i32::from(names) + 9
    };
    assert_eq!(rig.download::<i32>(py, 32), (0..32).map(of).collect::<Vec<_>>());

    let x = ints(20, 512, 900);
    let px = rig.upload(&x);
    launch(&rig, "local_array", 1, 32, 0, &[Pointer(px), Pointer(py), Int(13)]);
    let mut want = Vec::new();
    for row in x.chunks(16) {
        let mut sorted = row.to_vec();
        sorted[..13].sort_unstable();
        want.extend(sorted.iter().map(|&v| v + i32::from((row[(v & 7) as usize] >> 3) as i8)));
    }
    assert_eq!(rig.download::<i32>(py, 512), want);
}

#[test]
fn patterns_across_blocks() {
    let rig = rig("cuda_grid_sm80");
    let x: Vec<u32> = ints(21, 640, 1000).iter().map(|&v| v as u32).collect();
    let (px, py) = (rig.upload(&x), rig.alloc(4 * 640));
    launch(&rig, "lookback_scan", 5, 128, 0, &[Pointer(px), Pointer(py)]);
    let mut sum = 0;
    let want: Vec<u32> = x
        .iter()
        .map(|v| {
            sum += v;
            sum
        })
        .collect();
    assert_eq!(rig.download::<u32>(py, 640), want);

    let mut v = ints(22, 64, 100);
    let (px, py) = (rig.upload(&v), rig.alloc(256));
    launch(&rig, "grid_sync", 4, 16, 0, &[Pointer(px), Pointer(py), Int(3)]);
    for r in 0..3 {
        v = (0..64).map(|i| v[(i + 1) % 64] + r).collect();
    }
    assert_eq!(rig.download::<i32>(py, 64), v);

    let (lock, total) = (rig.upload(&[0i32]), rig.upload(&[100i32]));
    launch(&rig, "spin_lock", 2, 40, 0, &[Pointer(lock), Pointer(total)]);
    assert_eq!(rig.download::<i32>(total, 1), [180]);

    let x = ints(23, 256, 50);
    let (px, part, out) = (rig.upload(&x), rig.alloc(16), rig.alloc(4));
    launch(&rig, "last_block", 4, 32, 0, &[Pointer(px), Pointer(part), Pointer(out)]);
    assert_eq!(rig.download::<i32>(out, 1), [x.iter().sum::<i32>()]);
}

#[test]
fn asynchronous_copies_and_named_barriers() {
    let rig = rig("cuda_async_sm80");
    let x = whole(24, 4 * 64 * 3);
    let (px, py) = (rig.upload(&x), rig.alloc(256));
    launch(&rig, "copy_pipeline", 1, 64, 0, &[Pointer(px), Pointer(py), Int(3)]);
    let of = |i: usize| -> f32 {
        let tile = |t: usize| &x[4 * (t * 64 + 63 - i)..];
        (0..3).map(|t| tile(t)[0] + tile(t)[1] * tile(t)[2] - tile(t)[3]).sum()
    };
    assert_eq!(rig.download::<f32>(py, 64), (0..64).map(of).collect::<Vec<_>>());

    let x = ints(25, 32, 100);
    let px = rig.upload(&x);
    launch(&rig, "named_barriers", 1, 64, 0, &[Pointer(px), Pointer(py)]);
    assert_eq!(rig.download::<i32>(py, 32), x.iter().rev().map(|v| 3 * v).collect::<Vec<_>>());
}

#[test]
fn tensor_cores_on_integers() {
    let rig = rig("cuda_tensor_sm80");
    let mut rng = Rng(26);
    let bytes = |n: usize, rng: &mut Rng| (0..n).map(|_| rng.next() as i8).collect::<Vec<i8>>();
    let (a, b) = (bytes(16 * 32, &mut rng), bytes(8 * 32, &mut rng));
    let (pa, pb, pc) = (rig.upload(&a), rig.upload(&b), rig.alloc(512));
    launch(&rig, "mma_s8", 1, 32, 0, &[Pointer(pa), Pointer(pb), Pointer(pc)]);
    let want: Vec<i32> =
        (0..128).map(|i| (0..32).map(|k| i32::from(a[i / 8 * 32 + k]) * i32::from(b[i % 8 * 32 + k])).sum()).collect();
    assert_eq!(rig.download::<i32>(pc, 128), want);

    let (a, b) = (whole(27, 256), whole(28, 128));
    let bits = |v: &[f32]| v.iter().map(|&v| half::bf16::from_f32(v).to_bits()).collect::<Vec<u16>>();
    let (pa, pb) = (rig.upload(&bits(&a)), rig.upload(&bits(&b)));
    launch(&rig, "mma_bf16", 1, 32, 0, &[Pointer(pa), Pointer(pb), Pointer(pc)]);
    let want: Vec<f32> = (0..128).map(|i| (0..16).map(|k| a[i / 8 * 16 + k] * b[i % 8 * 16 + k]).sum()).collect();
    assert_eq!(rig.download::<f32>(pc, 128), want);
}

#[test]
fn cooperative_groups() {
    let rig = rig("cuda_groups_sm80");
    let x = ints(29, 64, 10);
    let (px, py) = (rig.upload(&x), rig.alloc(256));
    launch(&rig, "group_labels", 1, 32, 0, &[Pointer(px), Pointer(py)]);
    let warp = &x[..32];
    let of = |i: usize| warp.iter().filter(|&&v| v % 3 == warp[i] % 3).count() as i32;
    let sizes: Vec<i32> = rig.download::<i32>(py, 32).iter().map(|v| v / 100).collect();
    assert_eq!(sizes, (0..32).map(of).collect::<Vec<_>>());
}
