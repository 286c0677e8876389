//! Eight devices of the software driver, ranks as threads, and buffers of every kind.
#![allow(dead_code)] // Each test binary uses its part.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Barrier;
use warpsmith_collectives::{Collective, Elements, Kind, Number, Operation};
use warpsmith_device::{bf16, f16};
use warpsmith_driver_api::software::{Checks, check, take_findings};
use warpsmith_runtime::{Device, Stream};

mod several;

pub use several::*;

/// Runs `f` on a thread for each rank, with a stream of its device; what they give, in order.
pub fn ranks<C: Collective + Sync, R: Send>(
    group: &[C],
    devices: &[Device],
    f: impl Fn(&C, &Stream) -> R + Sync,
) -> Vec<R> {
    run(group, devices, f, false)
}

/// The same under all checks, which each thread asks for; nothing may be found.
pub fn checked<C: Collective + Sync, R: Send>(
    group: &[C],
    devices: &[Device],
    f: impl Fn(&C, &Stream) -> R + Sync,
) -> Vec<R> {
    run(group, devices, f, true)
}

fn run<C: Collective + Sync, R: Send>(
    group: &[C],
    devices: &[Device],
    f: impl Fn(&C, &Stream) -> R + Sync,
    checks: bool,
) -> Vec<R> {
    // Guards begin and end while nothing runs.
    let barrier = Barrier::new(group.len());
    std::thread::scope(|scope| {
        let (f, barrier) = (&f, &barrier);
        let run = |(rank, device): (_, &Device)| {
            let device = device.clone();
            scope.spawn(move || {
                let guard = checks.then(|| check(Checks::ALL));
                barrier.wait();
                let result = catch_unwind(AssertUnwindSafe(|| f(rank, &device.stream().unwrap())));
                barrier.wait();
                drop(guard);
                let found = take_findings();
                assert!(!checks || found.is_empty(), "{} findings, the first: {}", found.len(), found[0]);
                result.unwrap_or_else(|panic| resume_unwind(panic))
            })
        };
        let threads: Vec<_> = group.iter().zip(devices).map(run).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

/// A number of a kind, from and as f32.
pub trait Convert: Number + Send + PartialEq + std::fmt::Debug {
    fn of(v: f32) -> Self;
    fn bits(self) -> u32;
    fn value(self) -> f64;
}

impl Convert for f32 {
    fn of(v: f32) -> f32 {
        v
    }
    fn bits(self) -> u32 {
        self.to_bits()
    }
    fn value(self) -> f64 {
        self.into()
    }
}

impl Convert for f16 {
    fn of(v: f32) -> f16 {
        f16::from_bits(half::f16::from_f32(v).to_bits())
    }
    fn bits(self) -> u32 {
        self.to_bits().into()
    }
    fn value(self) -> f64 {
        half::f16::from_bits(self.to_bits()).into()
    }
}

impl Convert for bf16 {
    fn of(v: f32) -> bf16 {
        bf16::from_bits(half::bf16::from_f32(v).to_bits())
    }
    fn bits(self) -> u32 {
        self.to_bits().into()
    }
    fn value(self) -> f64 {
        half::bf16::from_bits(self.to_bits()).into()
    }
}

/// Numbers of many sizes, which depend on the rank and a seed.
pub fn numbers<T: Convert>(rank: u32, seed: u32, len: usize) -> Vec<T> {
    let mut state = (u64::from(rank) << 32 | u64::from(seed)).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let unit = (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0;
        T::of(unit * [1.0, 100.0, 0.01][(state % 3) as usize])
    };
    (0..len).map(|_| next()).collect()
}

/// The largest share of the sum of sizes that a sum of a few numbers of a kind may be off by.
pub fn rounding(kind: Kind) -> f64 {
    match kind {
        Kind::F32 => 4e-7,
        Kind::F16 => 6e-4,
        Kind::Bf16 => 5e-3,
    }
}

/// Does an operation on numbers of each rank, twice in a row on the same buffer.
pub fn twice<T: Convert, C: Collective>(rank: &C, stream: &Stream, operation: Operation, len: usize) -> Vec<u32> {
    let mut x = stream.upload(&numbers::<T>(rank.rank(), 5, len)).unwrap();
    for _ in 0..2 {
        rank.issue(stream.into(), operation, Elements::of(&mut x)).unwrap();
    }
    rank.synchronize(stream).unwrap();
    stream.read(&x).unwrap().into_iter().map(Convert::bits).collect()
}
