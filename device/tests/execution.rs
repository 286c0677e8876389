//! Every function of the device library, run on the SIMT machine from the PTX of each architecture
//! and compared with what the CPU computes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::undocumented_unsafe_blocks)]

#[path = "fixtures/all-device/src/lib.rs"]
mod all_device;
mod common;
#[path = "common/gpu.rs"]
mod gpu;

use all_device::{
    arithmetic::*, atomics::*, collectives::*, generic::*, matrices::*, memory::*, narrow::*, pipelines::*,
    printing::*, shapes::*, tiles::*,
};
use common::fixture;
use gpu::{Gpu, block_butterfly, butterfly, noise};
use half::{bf16, f16};
use warpsmith_device::{F32x2, F32x4, Kernel, U32x2, argmax::Best, convert, math};
use warpsmith_simt::FaultKind;

fn same(ours: &[f32], expected: &[f32], what: &str) {
    assert_eq!(ours.len(), expected.len(), "{what}");
    for (i, (a, b)) in ours.iter().zip(expected).enumerate() {
        assert!(a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()), "{what}[{i}]: {a:e} for {b:e}");
    }
}

fn integers(seed: u64, n: usize, below: u64) -> Vec<u32> {
    noise(seed).take(n).map(|v| (v % below) as u32).collect()
}

fn floats(seed: u64, n: usize, scale: f32) -> Vec<f32> {
    noise(seed).take(n).map(|v| ((v >> 40) as f32 / (1 << 23) as f32 - 1.0) * scale).collect()
}

#[test]
fn every_kernel_of_the_fixture_has_a_launch_struct() {
    let ours = [
        BarrierBetweenBranches::META,
        BarrierInLoop::META,
        ShuffleBetweenBranches::META,
        ReductionForOneLane::META,
        VoteBetweenBranches::META,
        BlockReductionBetweenBranches::META,
        WarpBarrierBetweenBranches::META,
        HelpersBetweenBranches::META,
        Indices::META,
        GridStride::META,
        Shuffles::META,
        Votes::META,
        FloatReductions::META,
        IntegerReductions::META,
        BlockReductions::META,
        BlockOf32::META,
        BlockOf64::META,
        BlockOf512::META,
        BlockOf1024::META,
        CountingBarriers::META,
        WideGlobal::META,
        Streamed::META,
        SharedWidths::META,
        SharedVectors::META,
        DynamicShared::META,
        Tile::META,
        Values::META,
        Asserts::META,
        Clocks::META,
        Exact::META,
        Approximate::META,
        Bytes::META,
        Widen::META,
        Narrow::META,
        GlobalAtomics::META,
        LastBlock::META,
        SharedAtomics::META,
        Fences::META,
        NarrowAtomics::META,
        GridRounds::META,
        Dependent::META,
        Ring::META,
        OwnCopies::META,
        SplitBarriers::META,
        UnwaitedCopy::META,
        ProductF16::META,
        ProductBf16::META,
        ProductI8::META,
        ProductU8::META,
        ProductE4m3::META,
        ProductE5m2::META,
        StagedProducts::META,
        RowsProduct::META,
        Turns::META,
        SlowTurn::META,
        Pairs::META,
        BytesOfFloats::META,
        Random::META,
        Scalars::META,
        Hinted::META,
        Constants::META,
        ScaleF32::META,
        ScaleU32::META,
        ScalePairs::META,
        Closures::META,
        Unrolled::META,
        Elementary::META,
        Powers::META,
        Angles::META,
        Doubles::META,
        CostNothing::META,
        CostFma::META,
        CostSqrt::META,
        CostSqrtApprox::META,
        CostDivApprox::META,
        CostMax::META,
        CostFloor::META,
        CostExp::META,
        CostExpApprox::META,
        CostExp2Approx::META,
        CostLn::META,
        CostLnApprox::META,
        CostLog2::META,
        CostLog2Approx::META,
        CostPow::META,
        CostPowApprox::META,
        CostRsqrt::META,
        CostRsqrtApprox::META,
        CostTanh::META,
        CostTanhApprox::META,
        CostSigmoid::META,
        CostErf::META,
        CostCbrt::META,
        CostHypot::META,
        CostSinCos::META,
        CostTan::META,
        CostAtan::META,
        CostAtan2::META,
        CostAsin::META,
        CostAcos::META,
        Bounds::META,
        Printing::META,
        GpuAsserts::META,
        Tiles1::META,
        Tiles4::META,
        Tiles16::META,
        Tiles32::META,
        TileTypes::META,
        BlockTiles::META,
    ];
    let manifest = &fixture().manifest;
    assert_eq!(manifest.kernels.len(), ours.len());
    for meta in ours {
        let theirs = manifest.kernel(meta.name).unwrap_or_else(|| panic!("{}", meta.name));
        assert_eq!((theirs.block, theirs.min_blocks, theirs.line), (meta.block, meta.min_blocks, meta.line));
        assert_eq!((theirs.summary.as_str(), theirs.family.as_str()), (meta.summary, meta.family));
        assert_eq!(theirs.args.len(), meta.args.len());
        for (t, m) in theirs.args.iter().zip(meta.args) {
            assert_eq!(
                (t.name.as_str(), t.ty.as_str(), t.kind.as_str(), t.element.as_str()),
                (m.name, m.ty, m.kind.name(), m.element)
            );
            assert_eq!((t.size, t.align), (m.size, m.align), "{} {}", meta.name, m.name);
        }
    }
}

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
fn shuffles_move_values_between_lanes() {
    let x = floats(1, 32, 100.0);
    let wide: Vec<u64> = noise(2).take(32).collect();
    for gpu in Gpu::all() {
        let (bx, bwide) = (gpu.upload(&x), gpu.upload(&wide));
        let (mut y, mut z) = (gpu.alloc::<f32>(128), gpu.alloc::<u64>(96));
        let (mut small, mut half, mut pair) = (gpu.alloc::<u16>(64), gpu.alloc::<f16>(32), gpu.alloc::<F32x2>(32));
        gpu.run(
            Shuffles {
                x: &bx,
                wide: &bwide,
                y: &mut y,
                z: &mut z,
                small: &mut small,
                half: &mut half,
                pair: &mut pair,
            },
            [1, 1, 1],
        );
        let down = |t: usize, d: usize| if t + d < 32 { t + d } else { t };
        let up = |t: usize, d: usize| if t >= d { t - d } else { t };
        let lanes = |f: &dyn Fn(usize) -> usize| (0..32).map(f).collect::<Vec<_>>();
        let from = |l: Vec<usize>| l.into_iter().map(|i| x[i]).collect::<Vec<_>>();
        let y = y.read();
        same(&y[..32], &from(lanes(&|t| t ^ 5)), "xor");
        same(&y[32..64], &from(lanes(&|t| down(t, 3))), "down");
        same(&y[64..96], &from(lanes(&|t| up(t, 2))), "up");
        same(&y[96..], &from(lanes(&|t| (t * 7) & 31)), "idx");
        let z = z.read();
        for t in 0..32 {
            assert_eq!(z[t], wide[t ^ 1]);
            assert_eq!(z[32 + t], wide[9]);
            assert_eq!(z[64 + t], wide[down(t, 1)]);
            assert_eq!(small.read()[t], wide[up(t, 1)] as u16);
            assert_eq!(small.read()[32 + t], wide[t ^ 2] as i8 as u16);
            assert_eq!(half.read()[t], f16::from_f32(x[t ^ 8]));
            assert_eq!(pair.read()[t], F32x2([x[t ^ 4], -x[t ^ 4]]));
        }
    }
}

#[test]
fn votes_see_all_lanes() {
    for x in [integers(3, 32, 100), vec![77; 32], integers(4, 32, 5000)] {
        for gpu in Gpu::all() {
            let bx = gpu.upload(&x);
            let mut y = gpu.alloc::<u32>(192);
            gpu.run(Votes { x: &bx, y: &mut y }, [1, 1, 1]);
            let y = y.read();
            let bits = |f: &dyn Fn(u32) -> bool| (0..32).filter(|&i| f(x[i])).fold(0u32, |m, i| m | 1 << i);
            for t in 0..32 {
                assert_eq!(y[t], bits(&|v| v & 1 == 1));
                assert_eq!(y[32 + t], u32::from(x.contains(&77)));
                assert_eq!(y[64 + t], u32::from(x.iter().all(|&v| v < 1000)));
                assert_eq!(y[96 + t], bits(&|v| v % 5 == x[t] % 5));
                assert_eq!(y[128 + t], (1u32 << t) - 1);
                assert_ne!(y[160 + t] & 1 << t, 0);
            }
        }
    }
}

#[test]
fn reductions_of_a_warp() {
    let mut with_nan = floats(6, 32, 10.0);
    with_nan[7] = f32::NAN;
    let mut ties = vec![2.5; 32];
    ties[0] = -1.0;
    for x in [floats(5, 32, 10.0), with_nan, ties, vec![f32::NAN; 32]] {
        let max = |a: f32, b: f32| math::max(a, b);
        let bests: Vec<Best> = x.iter().enumerate().map(|(i, &value)| Best { value, index: i as u32 }).collect();
        let winner = (0..32).filter(|&i| !x[i].is_nan()).fold(None, |w: Option<usize>, i| match w {
            Some(w) if x[w] >= x[i] => Some(w),
            _ => Some(i),
        });
        assert_eq!(butterfly(&bests, Best::merge).index as usize, winner.unwrap_or(0));
        for gpu in Gpu::all() {
            let bx = gpu.upload(&x);
            let mut y = gpu.alloc::<f32>(224);
            gpu.run(FloatReductions { x: &bx, y: &mut y }, [1, 1, 1]);
            let y = y.read();
            same(&y[..32], &[butterfly(&x, |a, b| a + b); 32], "sum");
            same(&y[32..64], &[butterfly(&x, max); 32], "max");
            same(&y[64..96], &[butterfly(&x, math::min); 32], "min");
            same(&y[96..128], &[winner.map_or(f32::NAN, |w| x[w]); 32], "argmax, value");
            same(&y[128..160], &[winner.unwrap_or(0) as f32; 32], "argmax, index");
            let groups: Vec<f32> = (0..32).map(|t| butterfly(&x[t / 8 * 8..][..8], |a, b| a + b)).collect();
            same(&y[160..192], &groups, "groups of 8");
            same(&y[192..], &[butterfly(&x, |a, b| a * b); 32], "product");
        }
    }
    let x: Vec<i32> = noise(7).take(32).map(|v| v as i32).collect();
    let u: Vec<u32> = x.iter().map(|&v| v as u32).collect();
    for gpu in Gpu::all() {
        let bx = gpu.upload(&x);
        let mut y = gpu.alloc::<i32>(192);
        gpu.run(IntegerReductions { x: &bx, y: &mut y }, [1, 1, 1]);
        let sum = x.iter().fold(0i32, |a, &b| a.wrapping_add(b));
        let expected = [
            sum,
            *x.iter().max().unwrap(),
            *x.iter().min().unwrap(),
            sum,
            *u.iter().max().unwrap() as i32,
            *u.iter().min().unwrap() as i32,
        ];
        assert_eq!(y.read(), expected.map(|v| [v; 32]).concat());
    }
}

#[test]
fn reductions_of_a_block() {
    let x = floats(8, 256, 10.0);
    let best = (0..256).fold(0, |w, i| if x[i] > x[w] { i } else { w });
    let scaled: Vec<f32> = x.iter().map(|v| 1.0 + v / 4096.0).collect();
    for gpu in Gpu::all() {
        let bx = gpu.upload(&x);
        let mut y = gpu.alloc::<f32>(6 * 256);
        gpu.run(BlockReductions { x: &bx, y: &mut y }, [1, 1, 1]);
        let y = y.read();
        let part = |k: usize| &y[k * 256..][..256];
        same(part(0), &[block_butterfly(&x, 0.0, |a, b| a + b); 256], "sum");
        same(part(1), &[x.iter().copied().fold(f32::NEG_INFINITY, f32::max); 256], "max");
        same(part(2), &[x.iter().filter(|v| **v > 0.0).count() as f32; 256], "count");
        same(part(3), &[255.0; 256], "integer maximum");
        same(part(4), &[best as f32; 256], "argmax");
        same(part(5), &[block_butterfly(&scaled, 1.0, |a, b| a * b); 256], "product");
    }
}

/// FE-13: scratch memory for eight warps was written by 32 of them.
#[test]
fn fe_13_blocks_of_one_warp_to_thirty_two_reduce_in_scratch_of_their_size() {
    for n in [32, 64, 512, 1024] {
        let x = floats(n as u64, n, 10.0);
        for gpu in Gpu::all() {
            let (bx, mut y) = (gpu.upload(&x), gpu.alloc::<f32>(2 * n));
            match n {
                32 => gpu.run(BlockOf32 { x: &bx, y: &mut y }, [1, 1, 1]),
                64 => gpu.run(BlockOf64 { x: &bx, y: &mut y }, [1, 1, 1]),
                512 => gpu.run(BlockOf512 { x: &bx, y: &mut y }, [1, 1, 1]),
                _ => gpu.run(BlockOf1024 { x: &bx, y: &mut y }, [1, 1, 1]),
            };
            let y = y.read();
            same(&y[..n], &vec![block_butterfly(&x, 0.0, |a, b| a + b); n], "sum");
            same(&y[n..], &vec![x.iter().copied().fold(f32::NEG_INFINITY, f32::max); n], "max");
        }
    }
}

#[test]
fn barriers_that_count() {
    for x in [integers(9, 64, 20), vec![1000; 64], integers(10, 64, 2000)] {
        for gpu in Gpu::all() {
            let bx = gpu.upload(&x);
            let mut y = gpu.alloc::<u32>(192);
            gpu.run(CountingBarriers { x: &bx, y: &mut y }, [1, 1, 1]);
            let expected = [
                x.iter().filter(|v| **v > 10).count() as u32,
                u32::from(x.contains(&1000)),
                u32::from(x.iter().all(|v| *v < 1000)),
            ];
            assert_eq!(y.read(), expected.map(|v| [v; 64]).concat());
        }
    }
}

#[test]
fn divergent_shapes_compute_what_they_say() {
    for gpu in Gpu::all() {
        let (mut x, mut y) = (gpu.upload(&[0.0f32; 64]), gpu.upload(&[9.0f32; 64]));
        gpu.run(BarrierBetweenBranches { x: &mut x, y: &mut y, n: 40 }, [1, 1, 1]);
        let expected: Vec<f32> = (0..64).map(|t| if t < 40 { 1.0 } else { 9.0 }).collect();
        same(&y.read(), &expected, "barrier");

        let v = floats(11, 32, 1.0);
        let bx = gpu.upload(&v);
        let mut y = gpu.alloc::<f32>(32);
        gpu.run(ShuffleBetweenBranches { x: &bx, y: &mut y, n: 21 }, [1, 1, 1]);
        let at = |t: usize| if t < 21 { v[t] } else { 0.0 };
        let expected: Vec<f32> = (0..32).map(|t| if t < 21 { at(t ^ 16) } else { -at(t ^ 16) }).collect();
        same(&y.read(), &expected, "shuffle");

        let mut y = gpu.alloc::<f32>(1);
        gpu.run(ReductionForOneLane { x: &bx, y: &mut y }, [1, 1, 1]);
        same(&y.read(), &[butterfly(&v, |a, b| a + b)], "reduction");

        let (mut x, mut y) = (gpu.upload(&[0.0f32; 32]), gpu.upload(&[7u32; 32]));
        gpu.run(VoteBetweenBranches { x: &mut x, y: &mut y, n: 13 }, [1, 1, 1]);
        let expected: Vec<u32> = (0..32).map(|t| if t < 13 { 0x1111_1111 } else { 7 }).collect();
        assert_eq!(y.read(), expected);

        let (mut x, mut y) = (gpu.upload(&[0.0f32; 256]), gpu.upload(&[-1.0f32; 256]));
        gpu.run(BlockReductionBetweenBranches { x: &mut x, y: &mut y, n: 99 }, [1, 1, 1]);
        let expected: Vec<f32> = (0..256).map(|t| if t < 99 { 32640.0 } else { -1.0 }).collect();
        same(&y.read(), &expected, "block reduction");

        let mut y = gpu.upload(&[5u32; 32]);
        gpu.run(WarpBarrierBetweenBranches { y: &mut y, n: 20 }, [1, 1, 1]);
        let expected: Vec<u32> = (0..32).map(|t| if t < 20 { (t ^ 1) * 3 } else { 5 }).collect();
        assert_eq!(y.read(), expected);

        let (mut x, mut y) = (gpu.upload(&[0.0f32; 128]), gpu.upload(&[-1.0f32; 128]));
        gpu.run(HelpersBetweenBranches { x: &mut x, y: &mut y, n: 64 }, [1, 1, 1]);
        let value = (8128.0 / 64.0 + 1.0) * 2.0 - 3.0;
        let expected: Vec<f32> = (0..128).map(|t| if t < 64 { value } else { -1.0 }).collect();
        same(&y.read(), &expected, "helpers");
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
fn values_of_every_kind() {
    // Not in the forms for rust-cuda: rustc's own generator widens small arguments of functions, which entries are there.
    for gpu in Gpu::stock() {
        let pairs: Vec<[f32; 2]> = (0..40).map(|i| [i as f32, 0.25]).collect();
        let (bx, mut y) = (gpu.upload(&pairs), gpu.upload(&[1.0f32; 34]));
        gpu.run(
            Values {
                x: &bx,
                y: &mut y,
                p: Affine { scale: 2.0, shift: -1.0, start: 3, unused: 0, count: 20 },
                a: 200,
                b: -300,
                c: 4_000_000,
                d: -5_000_000,
                e: 0.5,
                f: f16::from_f32(1.5),
                g: bf16::from_f32(-0.25),
            },
            [1, 1, 1],
        );
        let mut expected: Vec<f32> =
            (0..32).map(|t| if t < 20 { ((t + 3) as f32 + 0.25).mul_add(2.0, -1.0) + 1.0 } else { 1.0 }).collect();
        expected.extend([(200.0 - 300.0 + 4_000_000.0 - 5_000_000.0 + 0.5) as f32, 1.25]);
        same(&y.read(), &expected, "values");
    }
}

#[test]
fn assertions_trap_at_their_line() {
    let gpu = Gpu::new(80);
    let mut y = gpu.alloc::<u32>(32);
    gpu.run(Asserts { y: &mut y, limit: 32 }, [1, 1, 1]);
    assert_eq!(y.read(), (0..32).collect::<Vec<u32>>());
    let fault = gpu.try_run(Asserts { y: &mut y, limit: 16 }, [1, 1, 1], 0).unwrap_err();
    assert_eq!((&fault.kind, fault.thread), (&FaultKind::Trap, [16, 0, 0]), "{fault}");
    let source = include_str!("fixtures/all-device/src/memory.rs");
    let line = 1 + source.lines().position(|l| l.contains("device_assert!(t < limit)")).unwrap();
    assert!(fault.source.as_deref().is_some_and(|s| s.contains(&format!("memory.rs:{line}"))), "{fault}");
    let mut y = gpu.alloc::<u64>(1);
    gpu.run(Clocks { y: &mut y }, [1, 1, 1]);
    assert_ne!(y.read()[0], 0xa5a5_a5a5_a5a5_a5a5);
}

#[test]
fn exact_arithmetic_is_that_of_the_host() {
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.5,
        2.5,
        -2.5,
        0.5,
        1e-42,
        -1e-42,
        3e9,
        -3e9,
        1e38,
        f32::MIN_POSITIVE,
        f32::MAX,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    let mut a: Vec<f32> = special.iter().flat_map(|_| special).collect();
    let mut b: Vec<f32> = special.iter().flat_map(|v| [*v; 17]).collect();
    a.extend(noise(20).take(20_000).map(|v| f32::from_bits(v as u32)));
    b.extend(noise(21).take(20_000).map(|v| f32::from_bits(v as u32)));
    let n = a.len();
    let (ia, ib): (Vec<u32>, Vec<u32>) =
        (noise(22).take(n).map(|v| v as u32).collect(), noise(23).take(n).map(|v| v as u32).collect());
    let map = |f: &dyn Fn(f32, f32) -> f32| a.iter().zip(&b).map(|(&u, &v)| f(u, v)).collect::<Vec<f32>>();
    let columns = [
        ("fma", map(&|u, v| u.mul_add(v, 1.0))),
        ("sqrt", map(&|u, _| u.sqrt())),
        ("max", map(&math::max)),
        ("min", map(&math::min)),
        ("round_even", map(&|u, _| u.round_ties_even())),
        ("floor", map(&|u, _| u.floor())),
        ("ceil", map(&|u, _| u.ceil())),
        ("trunc", map(&|u, _| u.trunc())),
        ("round_to_i32", map(&|u, _| f32::from_bits(u.round_ties_even() as i32 as u32))),
        ("fma_f64", map(&|u, v| f64::from(u).mul_add(f64::from(v), 1.0) as f32)),
    ];
    for gpu in Gpu::all() {
        let (ba, bb) = (gpu.upload(&a), gpu.upload(&b));
        let mut y = gpu.alloc::<f32>(10 * n);
        let blocks = [n.div_ceil(128) as u32, 1, 1];
        gpu.run(Exact { a: &ba, b: &bb, y: &mut y, n: n as u32 }, blocks);
        for (column, (name, expected)) in y.read().chunks(n).zip(&columns) {
            same(column, expected, &format!("sm_{} {name}", gpu.sm));
        }
        let (ba, bb) = (gpu.upload(&ia), gpu.upload(&ib));
        let mut y = gpu.alloc::<u32>(4 * n);
        gpu.run(Bytes { a: &ba, b: &bb, y: &mut y, n: n as u32 }, blocks);
        let y = y.read();
        for i in 0..n {
            let (u, v) = (ia[i], ib[i]);
            assert_eq!(y[i], math::dp4a(u as i32, v as i32, 1000) as u32);
            assert_eq!(y[n + i], math::dp4a_u(u, v, 1000));
            assert_eq!(y[2 * n + i], math::permute_bytes(u, v, u ^ v));
            assert_eq!(y[3 * n + i], math::dp4a_us(u, v as i32, 1000) as u32);
        }
    }
}

#[test]
fn approximations_keep_their_bounds() {
    let mut a: Vec<f32> = floats(24, 4000, 80.0);
    a.extend(floats(25, 4000, 2.0));
    a.extend(floats(26, 2000, 1e-3));
    a.extend([0.0, 1.0, 2.0, 0.5, 88.7, -87.3, -103.0, -126.0, -126.01, -140.0]);
    let b: Vec<f32> = floats(27, a.len(), 50.0);
    let n = a.len();
    for gpu in Gpu::all() {
        let (ba, bb) = (gpu.upload(&a), gpu.upload(&b));
        let mut y = gpu.alloc::<f32>(13 * n);
        gpu.run(Approximate { a: &ba, b: &bb, y: &mut y, n: n as u32 }, [n.div_ceil(128) as u32, 1, 1]);
        let y = y.read();
        for i in 0..n {
            let (u, v) = (f64::from(a[i]), f64::from(b[i]));
            let p = |e: f64| 2f64.powf(e);
            let close = |column: usize, truth: f64, bound: f64, name: &str| {
                let ours = f64::from(y[column * n + i]);
                let ok = if truth.is_nan() { ours.is_nan() } else { ours == truth || (ours - truth).abs() <= bound };
                assert!(ok, "sm_{} {name}({u}, {v}) = {ours}, not {truth}", gpu.sm);
            };
            // A subnormal result is rounded to a multiple of 2^-149.
            let relative =
                |column, truth: f64, bound: f64, name| close(column, truth, truth.abs() * bound + p(-149.0), name);
            relative(0, u.exp2(), p(-22.0), "exp2_approx");
            close(1, u.log2(), p(-22.0) * u.log2().abs().max(1.0), "log2_approx");
            relative(2, 1.0 / u.sqrt(), p(-22.9), "rsqrt_approx");
            relative(3, 1.0 / u, p(-23.0), "rcp_approx");
            relative(4, u.sqrt(), p(-23.0), "sqrt_approx");
            relative(5, u.tanh(), p(-11.0), "tanh_approx");
            relative(6, u.exp(), p(-21.0) + u.abs() * p(-23.0), "exp_approx");
            close(7, u.ln(), p(-22.0) * u.ln().abs().max(1.0), "ln_approx");
            relative(8, u / v, p(-22.0), "div_approx");
            close(9, u.exp(), u.exp() * p(-21.0) + 2.0 * p(-149.0), "exp");
            close(10, u.sin(), p(-23.0), "sin");
            close(11, u.cos(), p(-23.0), "cos");
            close(12, if u < -126.0 { 0.0 } else { u.exp2() }, u.exp2() * p(-22.0), "exp2_approx_ftz");
        }
    }
}

#[test]
fn conversions_agree_with_half() {
    let n = 65536;
    for gpu in Gpu::all() {
        let (mut halves, mut brains, mut pairs) = (gpu.alloc::<f32>(n), gpu.alloc::<f32>(n), gpu.alloc::<F32x4>(n));
        gpu.run(Widen { halves: &mut halves, brains: &mut brains, pairs: &mut pairs }, [256, 1, 1]);
        let h = |bits: u16| f16::from_bits(bits).to_f32();
        let b = |bits: u16| bf16::from_bits(bits).to_f32();
        same(&halves.read(), &(0..=u16::MAX).map(h).collect::<Vec<_>>(), "f16");
        same(&brains.read(), &(0..=u16::MAX).map(b).collect::<Vec<_>>(), "bf16");
        for (i, F32x4(v)) in (0..=u16::MAX).zip(pairs.read()) {
            same(&v, &[h(i), h(i ^ 0x5555), b(i), b(i ^ 0x5555)], "pairs");
        }
        let mut x: Vec<f32> = noise(28).take(20_000).map(|v| f32::from_bits(v as u32)).collect();
        x.extend((0..u16::MAX).step_by(7).flat_map(|i| {
            let middle = h(i) / 2.0 + h(i + 1) / 2.0;
            [h(i), middle, f32::from_bits(middle.to_bits() + 1), f32::from_bits(u32::from(i) << 16 | 0x8000)]
        }));
        let n = x.len();
        let bx = gpu.upload(&x);
        let (mut halves, mut brains, mut pairs) = (gpu.alloc::<f16>(n), gpu.alloc::<bf16>(n), gpu.alloc::<U32x2>(n));
        gpu.run(
            Narrow { x: &bx, halves: &mut halves, brains: &mut brains, pairs: &mut pairs, n: n as u32 },
            [n.div_ceil(128) as u32, 1, 1],
        );
        let (halves, brains, pairs) = (halves.read(), brains.read(), pairs.read());
        for (i, &v) in x.iter().enumerate() {
            let U32x2([hh, bb]) = pairs[i];
            if v.is_nan() {
                assert!(halves[i].is_nan() && brains[i].is_nan());
                assert!(f16::from_bits(hh as u16).is_nan() && bf16::from_bits((bb >> 16) as u16).is_nan());
            } else {
                assert_eq!(
                    (halves[i].to_bits(), brains[i].to_bits()),
                    (f16::from_f32(v).to_bits(), bf16::from_f32(v).to_bits()),
                    "{v:e}"
                );
                assert_eq!((hh, bb), (convert::pack_f16x2(v, -v), convert::pack_bf16x2(v, -v)), "{v:e}");
            }
        }
    }
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
