//! Cases of casts.

use super::elementwise::{behind, unwritten};
use super::{Number, WHY, near};
use crate::cases::{Bench, Listed, NamedSizes, Operation, Outcome, Rng, Shape};
use crate::sixteen::{CastBf16F16, CastBf16F32, CastF16Bf16, CastF16F32, CastF32Bf16, CastF32F16};
use half::{bf16, f16};
use warpsmith_device::{DeviceSlice, Kernel};

macro_rules! casts {
    ($($(#[$doc:meta])* $Cast:ident: $Kernel:ident of $X:ident to $Y:ident;)*) => {
        /// From which type to which.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Cast {
            $($(#[$doc])* $Cast,)*
        }

        /// Casts.
        pub struct Casts;

        impl Operation for Casts {
            type Variant = Cast;

            fn kernels() -> Vec<Listed> {
                vec![$(Listed::unmeasured::<$Kernel<'_>>(WHY),)*]
            }

            fn variants() -> Vec<Cast> {
                vec![$(Cast::$Cast,)*]
            }

            fn launches(cast: Cast) -> Vec<&'static str> {
                vec![match cast { $(Cast::$Cast => $Kernel::META.name,)* }]
            }

            fn sizes(_: Cast) -> NamedSizes {
                // Elements before the first.
                &[("n", 4096), ("offset", 0)]
            }

            fn shapes(_: Cast) -> Vec<Vec<usize>> {
                let some = [1, 7, 8, 9, 255, 256, 257, 1025].into_iter().enumerate();
                some.map(|(i, n)| vec![n, usize::from(i % 4 == 3)]).chain([vec![40_000, 0]]).collect()
            }

            fn run<B: Bench>(cast: Cast, shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
                match cast { $(
                    Cast::$Cast => run::<B, $X, $Y>(shape, bench, rng, |on, x, y, n| on.launch($Kernel { x, y, n })),
                )* }
            }
        }
    };
}

casts! {
    /// f32 to f16.
    F32ToF16: CastF32F16 of f32 to f16;
    /// f32 to bf16.
    F32ToBf16: CastF32Bf16 of f32 to bf16;
    /// f16 to f32.
    F16ToF32: CastF16F32 of f16 to f32;
    /// bf16 to f32.
    Bf16ToF32: CastBf16F32 of bf16 to f32;
    /// f16 to bf16.
    F16ToBf16: CastF16Bf16 of f16 to bf16;
    /// bf16 to f16.
    Bf16ToF16: CastBf16F16 of bf16 to f16;
}

/// Numbers of every size, those that f16 holds in steps of its own among them, and what lies at its ends.
fn inputs<T: Number>(rng: &mut Rng, n: usize) -> Vec<T> {
    const ENDS: [f64; 8] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 65519.9, 65520.0, -65536.0, 0.0, 1e-40];
    let one = |i: usize| match i % 4 {
        0 => ENDS[i / 4 % ENDS.len()],
        1 => f64::from(f32::from_bits(rng.next() as u32)),
        // Halfway between two of f16, or of bf16.
        2 => {
            f64::from(f16::from_bits(rng.next() as u16).to_f32()) * (1.0 + f64::from(rng.within(0, 2) as u32) / 2048.0)
        }
        _ => f64::from(rng.unit()) * 2f64.powi(rng.within(0, 50) as i32 - 30),
    };
    (1..=n).map(one).map(T::nearest).collect()
}

fn run<B: Bench, X: Number, Y: Number>(
    shape: &Shape<'_>,
    bench: &mut B,
    rng: &mut Rng,
    launch: impl FnOnce(&mut B, &DeviceSlice<X>, &mut DeviceSlice<Y>, u32) -> Result<(), String>,
) -> Outcome {
    let [n, offset] = shape.sizes(["n", "offset"])?;
    let x = inputs::<X>(rng, n);
    let (dx, mut y) = (bench.upload(&x)?, unwritten::<B, Y>(bench, offset + n)?);
    launch(bench, &dx, &mut y[offset..], n as u32)?;
    near(&behind(&bench.read(&y)?, offset)?, &super::values(&x), |_| 0.0)
}
