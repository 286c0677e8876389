//! What lanes and warps do together.

use super::all_device::{collectives::*, shapes::*};
use super::gpu::{Gpu, block_butterfly, butterfly, noise};
use super::{floats, integers, same};
use half::f16;
use warpsmith_device::{F32x2, argmax::Best, math};

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
