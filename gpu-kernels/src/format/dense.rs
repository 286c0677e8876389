//! F32, F16 and BF16: codes are weights. Subnormals are real values.

use super::{
    decode::{Decode, Scales},
    record::{Memory, Record, Spec},
    unpack::f16_pair,
};
use warpsmith_device::convert::unpack_bf16x2;

/// IEEE binary32.
#[derive(Clone, Copy, Debug)]
pub struct F32;
/// IEEE binary16.
#[derive(Clone, Copy, Debug)]
pub struct F16;
/// The upper half of a binary32.
#[derive(Clone, Copy, Debug)]
pub struct BF16;

/// Where a unit's vectors are: loaded when they are used, since a unit is many.
#[derive(Clone, Copy)]
pub struct Vectors<M> {
    memory: M,
    first: usize,
    step: usize,
}

impl<M: Memory> Vectors<M> {
    #[inline(always)]
    fn of(memory: M, r: &Record, u: usize, vectors: usize) -> Vectors<M> {
        let first = r.vector(u, 0, vectors);
        Vectors { memory, first, step: r.vector(u, 1, vectors) - first }
    }

    #[inline(always)]
    fn get(&self, i: usize) -> [u32; 4] {
        // SAFETY: `Decode::codes` got a unit of the record.
        unsafe { self.memory.vector(self.first + i * self.step) }
    }
}

macro_rules! dense {
    ($($F:ident: $words:literal, |$codes:ident, $q:ident| $quad:expr;)*) => { $(
        impl Decode for $F {
            const SPEC: Spec = Spec { code_words: $words, high_words: 0, scale_bytes: 0, block_bytes: 0, block_units: 0 };
            const SCALED: bool = false;
            type Codes<M: Memory> = Vectors<M>;
            #[inline(always)]
            unsafe fn codes_of<M: Memory>(m: M, r: &Record, u: usize, _: [u32; 4]) -> Vectors<M> {
                Vectors::of(m, r, u, $words / 4)
            }
            #[inline(always)]
            fn quad<M: Memory>($codes: &Vectors<M>, $q: usize) -> [f32; 4] {
                $quad
            }
            #[inline(always)]
            unsafe fn scales<M: Memory>(_: M, _: &Record, _: usize) -> Scales {
                Scales::one(1.0)
            }
        }
    )* };
}

/// Two words of the vector that quad `q` is half of.
#[inline(always)]
fn halves<M: Memory>(codes: &Vectors<M>, q: usize, unpack: impl Fn(u32) -> (f32, f32)) -> [f32; 4] {
    let v = codes.get(q / 2);
    let ((a, b), (c, d)) = (unpack(v[q % 2 * 2]), unpack(v[q % 2 * 2 + 1]));
    [a, b, c, d]
}

dense! {
    F32: 32, |codes, q| codes.get(q).map(f32::from_bits);
    F16: 16, |codes, q| halves(codes, q, f16_pair);
    BF16: 16, |codes, q| halves(codes, q, unpack_bf16x2);
}
