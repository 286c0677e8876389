//! nvcc's arithmetic of 128 and 256 bits against Rust's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::Rng;
use common::corpus::Arg::Pointer;
use common::corpus::*;

const N: usize = 64;

/// Numbers of all lengths, a few of them with long runs of ones or zeros.
fn numbers(seed: u64) -> Vec<u128> {
    let mut rng = Rng(seed);
    let mut next = || {
        let bits = u128::from(rng.next()) << 64 | u128::from(rng.next());
        let bits = match rng.next() % 4 {
            0 => !0 << (bits % 128),
            1 => bits | u128::from(u64::MAX) << (bits % 64),
            _ => bits,
        };
        bits >> (rng.next() % 128)
    };
    (0..N).map(|_| next().max(1)).collect()
}

fn pairs(seed: u64) -> (Vec<u128>, Vec<u128>) {
    (numbers(seed), numbers(seed + 1000))
}

#[test]
fn quotients_and_remainders_of_128_bits() {
    let rig = rig("cuda_wide_sm80");
    let (q, r) = (rig.alloc(16 * N as u64), rig.alloc(16 * N as u64));
    for seed in 0..8 {
        let (x, y) = pairs(seed);
        let (a, b) = (rig.upload(&x), rig.upload(&y));
        launch(&rig, "divide_u128", 1, N as u32, 0, &[Pointer(a), Pointer(b), Pointer(q), Pointer(r)]);
        let both = |f: fn(u128, u128) -> u128| x.iter().zip(&y).map(|(&x, &y)| f(x, y)).collect::<Vec<u128>>();
        assert_eq!(rig.download::<u128>(q, N), both(|x, y| x / y));
        assert_eq!(rig.download::<u128>(r, N), both(|x, y| x % y));
        launch(&rig, "divide_i128", 1, N as u32, 0, &[Pointer(a), Pointer(b), Pointer(q), Pointer(r)]);
        assert_eq!(rig.download::<u128>(q, N), both(|x, y| (x as i128).wrapping_div(y as i128) as u128));
        assert_eq!(rig.download::<u128>(r, N), both(|x, y| (x as i128).wrapping_rem(y as i128) as u128));
        let words: Vec<u64> = y.iter().map(|&y| (y as u64).max(1)).collect();
        let b = rig.upload(&words);
        launch(&rig, "by_word", 1, N as u32, 0, &[Pointer(a), Pointer(b), Pointer(q)]);
        let wanted: Vec<u128> = x.iter().zip(&words).map(|(&x, &y)| x / u128::from(y)).collect();
        assert_eq!(rig.download::<u128>(q, N), wanted);
    }
}

#[test]
fn products_shifts_and_comparisons_of_128_bits() {
    let rig = rig("cuda_wide_sm80");
    let out = rig.alloc(32 * N as u64);
    for seed in 10..14 {
        let (x, y) = pairs(seed);
        let (a, b) = (rig.upload(&x), rig.upload(&y));
        launch(&rig, "mixed", 1, N as u32, 0, &[Pointer(a), Pointer(b), Pointer(out)]);
        let wanted: Vec<u128> = x
            .iter()
            .zip(&y)
            .flat_map(|(&x, &y)| {
                let by = (y & 127) as u32;
                let s = x.wrapping_mul(y).wrapping_add(x >> by).wrapping_sub(y << by) ^ ((x as i128) >> by) as u128;
                let first = if x < y { s.wrapping_sub(y) } else { s.wrapping_add(y) };
                let second = if (x as i128) > y as i128 { s.wrapping_neg() } else { s.wrapping_sub(x) };
                [first, second]
            })
            .collect();
        assert_eq!(rig.download::<u128>(out, 2 * N), wanted);
    }
}

#[test]
fn products_sums_and_differences_of_256_bits() {
    let rig = rig("cuda_wide_sm80");
    let (mut rng, n) = (Rng(20), N as u64);
    let words = |rng: &mut Rng| -> Vec<u64> {
        (0..4 * N)
            .map(|_| if rng.next().is_multiple_of(3) { [0, !0][rng.next() as usize % 2] } else { rng.next() })
            .collect()
    };
    let (x, y) = (words(&mut rng), words(&mut rng));
    let (a, b, p, s, d) = (rig.upload(&x), rig.upload(&y), rig.alloc(64 * n), rig.alloc(32 * n), rig.alloc(32 * n));
    launch(&rig, "wide256", 1, N as u32, 0, &[Pointer(a), Pointer(b), Pointer(p), Pointer(s), Pointer(d)]);
    let (products, sums, differences) =
        (rig.download::<u64>(p, 8 * N), rig.download::<u64>(s, 4 * N), rig.download::<u64>(d, 4 * N));
    // In digits of 32 bits, so that nothing here is a chain of carries of the same width.
    let digits = |v: &[u64]| v.iter().flat_map(|&w| [w & 0xffff_ffff, w >> 32]).collect::<Vec<u64>>();
    let words = |d: &[u64]| d.chunks(2).map(|p| p[0] | p[1] << 32).collect::<Vec<u64>>();
    for i in 0..N {
        let (x, y) = (digits(&x[4 * i..4 * i + 4]), digits(&y[4 * i..4 * i + 4]));
        // Columns of a product are below 2^68.
        let mut columns = [0u128; 16];
        for (j, x) in x.iter().enumerate() {
            for (k, y) in y.iter().enumerate() {
                columns[j + k] += u128::from(*x) * u128::from(*y);
            }
        }
        let settle = |columns: &[i128]| {
            let mut carry = 0i128;
            let settled = columns.iter().map(|c| {
                let t = c + carry;
                carry = t >> 32;
                (t & 0xffff_ffff) as u64
            });
            words(&settled.collect::<Vec<u64>>())
        };
        assert_eq!(products[8 * i..8 * i + 8], settle(&columns.map(|c| c as i128)));
        let both = |f: fn(i128, i128) -> i128| {
            settle(&x.iter().zip(&y).map(|(&x, &y)| f(x.into(), y.into())).collect::<Vec<i128>>())
        };
        assert_eq!(sums[4 * i..4 * i + 4], both(|x, y| x + y));
        assert_eq!(differences[4 * i..4 * i + 4], both(|x, y| x - y));
    }
}
