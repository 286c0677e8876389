//! Global, shared and constant memory.

use super::all_device::{atomics::*, collectives::*, memory::*};
use super::gpu::{Gpu, noise};
use super::{floats, integers, same};
use warpsmith_simt::FaultKind;

#[test]
fn indices_and_sizes() {
    for gpu in Gpu::all() {
        let mut y = gpu.alloc::<u32>(2 * 3 * 2 * 64 * 15);
        gpu.run(Indices { y: &mut y }, [2, 3, 2]);
        let mut expected = Vec::new();
        for (bz, by, bx) in (0..2).flat_map(|z| (0..3).flat_map(move |y| (0..2).map(move |x| (z, y, x)))) {
            for t in 0..64u32 {
                let (tx, ty, tz) = (t % 8, t / 8 % 4, t / 32);
                expected.extend([tx, ty, tz, t % 32, t / 32, bx, by, bz, 8, 4, 2, 2, 3, 2, 2]);
            }
        }
        assert_eq!(y.read(), expected);
        let mut y = gpu.alloc::<u32>(1000);
        gpu.run(GridStride { y: &mut y, n: 1000 }, [3, 1, 1]);
        assert_eq!(y.read(), (0..1000).collect::<Vec<u32>>());
    }
}

#[test]
fn global_memory_wide_and_past_the_cache() {
    let (x, w) = (floats(12, 128, 3.0), integers(13, 128, 1 << 30));
    for gpu in Gpu::all() {
        let (bx, bw) = (gpu.upload(&x), gpu.upload(&w));
        let (mut y, mut z) = (gpu.alloc::<f32>(192), gpu.upload(&w));
        gpu.run(WideGlobal { x: &bx, w: &bw, y: &mut y, z: &mut z }, [1, 1, 1]);
        let mut expected: Vec<f32> = (0..128).map(|i| x[i] + (i % 4 + 1) as f32).collect();
        expected.extend((0..64).map(|i| x[i ^ 1]));
        same(&y.read(), &expected, "float");
        assert_eq!(z.read(), w.iter().map(|v| 2 * v).collect::<Vec<_>>());

        let mut y = gpu.alloc::<u32>(224);
        gpu.run(Streamed { x: &bx, w: &bw, y: &mut y }, [1, 1, 1]);
        let y = y.read();
        let bits: Vec<u32> = x.iter().map(|v| v.to_bits()).collect();
        for t in 0..32 {
            let four = &w[4 * t..][..4];
            assert_eq!(y[t], four.iter().fold(0, |a, b| a ^ b));
            assert_eq!(y[32 + t], four.iter().fold(0u32, |a, b| a.wrapping_add(*b)));
            let v = &x[4 * t..][..4];
            assert_eq!(y[64 + t], (v[0] + v[1] + v[2] + v[3]).to_bits());
            assert_eq!(y[96 + t], bits[2 * t] ^ bits[2 * t + 1]);
            assert_eq!(y[128 + t], bits[t]);
            assert_eq!(y[160 + t], bits[t / 2] >> (16 * (t % 2)) & 0xffff);
            assert_eq!(y[192 + t], bits[2 * t]);
        }
    }
}

#[test]
fn shared_memory_of_every_width() {
    let x: Vec<u64> = noise(14).take(32).collect();
    let v = floats(15, 128, 3.0);
    for gpu in Gpu::all() {
        let bx = gpu.upload(&x);
        let mut y = gpu.alloc::<u64>(288);
        gpu.run(SharedWidths { x: &bx, y: &mut y }, [1, 1, 1]);
        let columns: [fn(u64) -> u64; 9] = [
            |v| v & 0xff,
            |v| v as i8 as u64,
            |v| v & 0xffff,
            |v| v & 0xffff,
            |v| v & 0xffff,
            |v| v & 0xffff_ffff,
            |v| v & 0xffff_ffff,
            |v| v,
            |v| v,
        ];
        let expected: Vec<u64> = columns.iter().flat_map(|f| x.iter().rev().map(|&v| f(v))).collect();
        assert_eq!(y.read(), expected);

        let bv = gpu.upload(&v);
        let mut y = gpu.alloc::<f32>(256);
        gpu.run(SharedVectors { x: &bv, y: &mut y }, [1, 1, 1]);
        let reversed: Vec<f32> = v.iter().rev().copied().collect();
        same(&y.read()[..128], &reversed, "vectors turned around");
        for t in 0..32u32 {
            // The tile as words is [t, 1, 2, 3] for each t; from element 64 on, t = 16 and up.
            let even = t & 15;
            let word = if even % 2 == 0 { 16 + even / 2 } else { 2 };
            assert_eq!(y.read()[128 + t as usize], word as f32);
            assert_eq!(y.read()[160 + t as usize], 64.0);
            assert_eq!(y.read()[192 + t as usize], t as f32);
            assert_eq!(y.read()[224 + t as usize], 4.0);
        }
    }
}

#[test]
fn dynamic_shared_memory_and_the_tile() {
    let n = 100;
    let x = floats(16, n, 3.0);
    let (a, b) = (floats(17, 1024, 1.0), floats(18, 1024, 1.0));
    for gpu in Gpu::all() {
        let bx = gpu.upload(&x);
        let mut y = gpu.alloc::<f32>(n + 1);
        gpu.try_run(DynamicShared { x: &bx, y: &mut y, n: n as u32 }, [1, 1, 1], 8 * n as u32).unwrap();
        let mut expected: Vec<f32> = (0..n).map(|i| x[n - 1 - i] + i as f32).collect();
        expected.push(8.0 * n as f32);
        same(&y.read(), &expected, "dynamic");

        let (ba, bb) = (gpu.upload(&a), gpu.upload(&b));
        let mut c = gpu.alloc::<f32>(1024);
        gpu.run(Tile { a: &ba, b: &bb, c: &mut c, n: 32 }, [2, 2, 1]);
        let expected: Vec<f32> =
            (0..1024).map(|i| (0..32).fold(0.0, |s, k| a[i / 32 * 32 + k].mul_add(b[k * 32 + i % 32], s))).collect();
        same(&c.read(), &expected, "tile");
    }
}

#[test]
fn too_little_dynamic_shared_memory_is_a_fault() {
    let gpu = Gpu::new(80);
    let (bx, mut y) = (gpu.upload(&[0.0f32; 100]), gpu.alloc::<f32>(101));
    let fault = gpu.try_run(DynamicShared { x: &bx, y: &mut y, n: 100 }, [1, 1, 1], 8 * 99).unwrap_err();
    assert_eq!(fault.kind, FaultKind::OutOfBounds, "{fault}");
}

#[test]
fn atomics_lose_nothing() {
    let x = integers(29, 256, 1 << 31);
    let fold = |f: fn(u32, u32) -> u32, start| x.iter().copied().fold(start, f);
    for gpu in Gpu::all() {
        let bx = gpu.upload(&x);
        let mut words = gpu.upload(&[1u32, u32::MAX, 0, u32::MAX, 0, 0, 0, 10]);
        let mut signed = gpu.upload(&[-5i32, i32::MAX, -1]);
        let mut wide = gpu.upload(&[3u64, u64::MAX, 0]);
        let mut sums = gpu.upload(&[0.5f32]);
        gpu.run(
            GlobalAtomics { words: &mut words, signed: &mut signed, wide: &mut wide, floats: &mut sums, x: &bx },
            [4, 1, 1],
        );
        let w = words.read();
        assert_eq!(w[0], fold(u32::wrapping_add, 1));
        assert_eq!(w[1], fold(Ord::min, u32::MAX));
        assert_eq!(w[2], fold(Ord::max, 0));
        assert_eq!(w[3], fold(|a, b| a & b, u32::MAX));
        assert_eq!(w[4], fold(|a, b| a | b, 0));
        assert_eq!(w[5], fold(|a, b| a ^ b, 0));
        assert!(x.contains(&w[6]));
        assert_eq!(w[7], 10 + 3 * 256);
        let s: Vec<i32> = x.iter().map(|&v| v as i32).collect();
        let expected =
            [s.iter().fold(-5i32, |a, &b| a.wrapping_add(b)), *s.iter().min().unwrap(), *s.iter().max().unwrap()];
        assert_eq!(signed.read(), expected);
        let u: Vec<u64> = x.iter().map(|&v| u64::from(v)).collect();
        let sum = u.iter().fold(3u64, |a, &b| a.wrapping_add(b * b));
        assert_eq!(wide.read(), [sum, u.iter().min().unwrap() << 20, u.iter().max().unwrap() << 20]);
        same(&sums.read(), &[0.5 + x.iter().map(|v| (v & 15) as f32).sum::<f32>()], "float sum");

        let (mut partial, mut tickets, mut y) = (gpu.alloc::<u32>(50), gpu.upload(&[0u32]), gpu.alloc::<u32>(1));
        gpu.run(LastBlock { partial: &mut partial, tickets: &mut tickets, y: &mut y }, [50, 1, 1]);
        assert_eq!((y.read(), tickets.read()), (vec![(0..50).map(|b| b * b).sum()], vec![50]));

        let mut y = gpu.alloc::<u32>(16);
        gpu.run(SharedAtomics { x: &bx, y: &mut y }, [1, 1, 1]);
        let x = &x[..128];
        let mut expected: Vec<u32> = (0..8).map(|k| x.iter().filter(|v| **v % 8 == k).count() as u32).collect();
        expected.extend([*x.iter().max().unwrap(), u32::MAX, x.iter().fold(0, |a, b| a ^ b), 5, 0, 0, 0, 0]);
        assert_eq!(y.read(), expected);

        let mut y = gpu.alloc::<u32>(4);
        gpu.run(Fences { y: &mut y }, [1, 1, 1]);
        assert_eq!(y.read(), [1, 2, 3, 4]);
    }
}
