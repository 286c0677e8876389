//! Cooperative tiles.

use super::{
    all_device::tiles::*,
    gpu::{Gpu, noise},
};
fn words(seed: u64, n: usize, below: u64) -> Vec<u32> {
    noise(seed).take(n).map(|v| (v % below) as u32).collect()
}

/// What thread `t` of tiles of `n` lanes is told.
fn expected(x: &[u32], n: usize, t: usize) -> [u32; 16] {
    let (rank, first) = (t % n, t / n * n);
    let tile = &x[first..first + n];
    let bits = |f: &dyn Fn(u32) -> bool| (0..n).filter(|&r| f(tile[r])).fold(0u32, |m, r| m | 1 << r);
    let fold = |f: fn(u32, u32) -> u32| tile.iter().copied().reduce(f).unwrap();
    [
        rank as u32,
        (t % 32 / n) as u32,
        (((1u64 << n) - 1) << (first % 32)) as u32,
        tile[x[t] as usize % n],
        tile[rank.saturating_sub(1)],
        tile.get(rank + n / 2).copied().unwrap_or(x[t]),
        tile[rank ^ (n - 1)],
        bits(&|v| v & 1 == 1),
        u32::from(tile.iter().any(|v| v % 7 == 0)) | u32::from(tile.iter().all(|v| v % 5 != 0)) << 1,
        bits(&|v| v % 3 == x[t] % 3),
        u32::from(tile.iter().all(|v| v / 64 == tile[0] / 64)),
        fold(u32::wrapping_add),
        fold(u32::max),
        // The last that 3 does not divide: the order of the operands matters.
        tile[..=rank].iter().copied().reduce(|a, b| if b % 3 == 0 { a } else { b }).unwrap(),
        if rank == 0 { 7 } else { tile[..rank].iter().copied().fold(0, u32::wrapping_add) },
        fold(|a, b| a ^ b) ^ fold(|a, b| a & b) ^ fold(|a, b| a | b) ^ fold(u32::min) ^ fold(u32::max),
    ]
}

#[test]
fn tiles_of_every_size() {
    let inputs = [words(1, 64, 1000), words(2, 64, 4_000_000_000), vec![77; 64], (0..64).collect()];
    for gpu in Gpu::all() {
        for x in &inputs {
            let bx = gpu.upload(x);
            macro_rules! size {
                ($n:literal, $kernel:ident) => {
                    let mut y = gpu.alloc::<u32>(64 * 16);
                    gpu.check($kernel { x: &bx, y: &mut y }, [1, 1, 1]);
                    for (t, ours) in y.read().chunks(16).enumerate() {
                        assert_eq!(ours, expected(x, $n, t), "sm_{}, {} lanes, thread {t}", gpu.sm, $n);
                    }
                };
            }
            size!(1, Tiles1);
            size!(4, Tiles4);
            size!(16, Tiles16);
            size!(32, Tiles32);
        }
    }
}

#[test]
fn values_of_any_plain_type_cross_lanes() {
    let x: Vec<Sample> = words(3, 64, 1 << 20)
        .into_iter()
        .enumerate()
        .map(|(i, v)| Sample { mean: [v as f32, i as f32], count: v, flags: [v as u16, i as u16] })
        .collect();
    // Doubles that are no NaN.
    let mut w: Vec<u64> = noise(4).take(64).map(|v| (v as f64).to_bits()).collect();
    let same = w[16];
    w[16..24].fill(same);
    for gpu in Gpu::all() {
        let (bx, bw) = (gpu.upload(&x), gpu.upload(&w));
        let none = Sample { mean: [-1.0; 2], count: 5, flags: [6; 2] };
        let (mut y, mut z) = (gpu.upload(&[none; 128]), gpu.upload(&[9u64; 128]));
        let mut m = gpu.upload(&[9u32; 192]);
        gpu.check(TileTypes { x: &bx, w: &bw, y: &mut y, z: &mut z, m: &mut m }, [1, 1, 1]);
        let (y, z, m) = (y.read(), z.read(), m.read());
        for t in 0..64 {
            let (first, rank) = (t / 8 * 8, t % 8);
            if t / 8 % 2 == 1 {
                assert_eq!((y[t], y[64 + t], z[t], z[64 + t]), (none, none, 9, 9));
                assert_eq!((m[t], m[64 + t], m[128 + t]), (9, 9, 9));
                continue;
            }
            assert_eq!(y[t], x[first + (rank ^ 3)]);
            let before = &x[first..=t];
            let merged = Sample {
                mean: [before.iter().map(|s| s.mean[0]).sum(), x[t].mean[1]],
                count: before.iter().map(|s| s.count).sum(),
                flags: [before.iter().fold(0, |f, s| f | s.flags[0]), x[first].flags[1]],
            };
            assert_eq!(y[64 + t], merged);
            assert_eq!(z[t], if rank == 7 { w[t] } else { w[t + 1] });
            let largest = w[first..first + 8].iter().map(|&b| f64::from_bits(b)).fold(f64::MIN, f64::max);
            assert_eq!(f64::from_bits(z[64 + t]), largest);
            assert_eq!(m[t], (w[first + 5] as u32 & 0xffff) | 3 << 16);
            let parity = (0..8).filter(|r| w[first + r] & 1 == w[t] & 1).fold(0, |m, r| m | 1 << r);
            assert_eq!(m[64 + t], parity);
            assert_eq!(m[128 + t], 2 + u32::from(first == 16));
        }
    }
}

#[test]
fn the_block_is_a_tile() {
    let n = 192;
    let mut some = words(6, n, 1000);
    some[3] = 0;
    for x in [words(5, n, 1 << 22), some, vec![77; n]] {
        for gpu in Gpu::all() {
            let bx = gpu.upload(&x);
            let (mut y, mut z) = (gpu.alloc::<u32>(6 * n), gpu.alloc::<Sample>(n));
            gpu.check(BlockTiles { x: &bx, y: &mut y, z: &mut z }, [1, 1, 1]);
            let (y, z) = (y.read(), z.read());
            let odd = x.iter().filter(|&v| v & 1 == 1).count() as u32;
            let votes = u32::from(x.contains(&77)) | u32::from(x.iter().all(|&v| v < 1 << 20)) << 1;
            let (mut sum, mut floats, mut parity, mut flags) = (0u32, 0.0, 0, [0; 2]);
            for t in 0..n {
                assert_eq!(y[n + t], sum, "exclusive, thread {t}");
                sum = sum.wrapping_add(x[t]);
                assert_eq!(y[t], sum, "inclusive, thread {t}");
                assert_eq!(y[2 * n + t], *x.iter().max().unwrap());
                assert_eq!((y[3 * n + t], y[4 * n + t], y[5 * n + t]), (x[100], odd, votes));
                floats += f64::from(x[t]);
                parity ^= x[t];
                flags = if x[t] as u16 == 0 { flags } else { [x[t] as u16, t as u16] };
                assert!((f64::from(z[t].mean[0]) - floats).abs() <= floats * 1e-6, "thread {t}");
                assert_eq!((z[t].mean[1], z[t].count, z[t].flags), ((t + 1) as f32, parity, flags));
            }
        }
    }
}
