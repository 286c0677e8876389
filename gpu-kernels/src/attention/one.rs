//! v2: one launch, a block a query head, with a running softmax.
//!
//! Each of the block's eight warps takes every eighth group of four positions and keeps its own
//! maximum, sum and weighted values in registers, a lane holding pairs of elements; whenever the
//! maximum grows, what was summed is scaled down. The warps merge once, through shared memory.
//! Scores never reach memory, and every key and value is read once.

#[cfg(not(target_arch = "nvptx64"))]
use super::{Heads, check_cache, check_heads, check_token};
use crate::state::Column;
use warpsmith_device::prelude::*;

/// Warps of a block.
const WARPS: usize = 8;

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod frame {
    use super::{
        super::{MAX_HEAD_DIM, length},
        WARPS,
    };
    use crate::{
        load::{lane, warp_index},
        state::Column,
    };
    use warpsmith_device::{convert::unpack_f16x2, prelude::*, static_for};

    /// Positions that a warp takes at a time.
    const GROUP: usize = 4;

    /// An element of a cache, which is loaded in pairs.
    pub trait LoadPair: Element {
        /// Elements `2 * i` and `2 * i + 1`.
        unsafe fn pair(cache: In<Self>, i: usize) -> (f32, f32);
    }

    impl LoadPair for f16 {
        #[inline(always)]
        unsafe fn pair(cache: In<f16>, i: usize) -> (f32, f32) {
            // SAFETY: the caller's index; the contract aligns the cache for pairs.
            unpack_f16x2(unsafe { cache.cast::<u32>().at(i) })
        }
    }

    impl LoadPair for f32 {
        #[inline(always)]
        unsafe fn pair(cache: In<f32>, i: usize) -> (f32, f32) {
            // SAFETY: the caller's index; the contract aligns the cache for pairs.
            let F32x2([a, b]) = unsafe { cache.cast::<F32x2>().at(i) };
            (a, b)
        }
    }

    #[derive(Clone, Copy)]
    pub struct DecodeArgs<T> {
        pub q: In<f32>,
        pub k_cache: In<T>,
        pub v_cache: In<T>,
        pub y: Out<f32>,
        pub columns: In<Column>,
        pub q_heads: u32,
        pub kv_heads: u32,
        pub head_dim: u32,
        pub capacity: u32,
    }

    /// Chooses how many pairs a lane holds; the same choice in every thread.
    #[device]
    pub unsafe fn attend<T: LoadPair>(a: DecodeArgs<T>) {
        // SAFETY: `N * 64` is at least `head_dim`, which the contract limits to 256.
        unsafe {
            match a.head_dim {
                0..=64 => pairs::<T, 1>(a),
                65..=128 => pairs::<T, 2>(a),
                _ => pairs::<T, 4>(a),
            }
        }
    }

    #[device]
    unsafe fn pairs<T: LoadPair, const N: usize>(a: DecodeArgs<T>) {
        let all_largest = shared_array!(ATTN_LARGEST: [f32; WARPS]);
        let all_sums = shared_array!(ATTN_SUMS: [f32; WARPS]);
        let all_values = shared_array!(ATTN_VALUES: [f32; WARPS * MAX_HEAD_DIM as usize]);

        let (warp, lane) = (warp_index(), lane());
        let h = block::idx_x();
        let g = (h / (a.q_heads / a.kv_heads)) as usize;
        let (h, half) = (h as usize, a.head_dim as usize / 2);
        // SAFETY: all accesses below are within the buffers that the contract asks for: pairs below
        // `half` of a head, positions below `length`, which is at most the capacity.
        unsafe {
            let length = length(a.columns, a.capacity);
            let first = g * a.capacity as usize * half;

            // Scores are kept in powers of two: log2(e) goes into the queries.
            let scale = core::f32::consts::LOG2_E / math::sqrt(a.head_dim as f32);
            let mut q = [(0.0f32, 0.0f32); N];
            for j in 0..N {
                if lane + 32 * j < half {
                    let (x, y) = f32::pair(a.q, h * half + lane + 32 * j);
                    q[j] = (x * scale, y * scale);
                }
            }

            // Not minus infinity, so that the difference of two maxima is never NaN.
            let mut largest = f32::MIN;
            let mut sum = 0.0f32;
            let mut values = [(0.0f32, 0.0f32); N];
            let mut t = warp * GROUP;
            while t < length {
                let mut scores = [0.0f32; GROUP];
                static_for!(i in 0..GROUP => {
                    // Positions past the end repeat the last one and get the weight 0 below.
                    let row = first + math_min(t + i, length - 1) * half;
                    for j in 0..N {
                        if lane + 32 * j < half {
                            let (x, y) = T::pair(a.k_cache, row + lane + 32 * j);
                            scores[i] = math::fma(q[j].0, x, math::fma(q[j].1, y, scores[i]));
                        }
                    }
                });
                let mut new = largest;
                static_for!(i in 0..GROUP => {
                    let s = warp::sum_f32(scores[i]);
                    scores[i] = if t + i < length { s } else { f32::NEG_INFINITY };
                    new = math::max(new, scores[i]);
                });
                let shrink = math::exp2_approx(largest - new);
                largest = new;
                sum *= shrink;
                for j in 0..N {
                    values[j] = (values[j].0 * shrink, values[j].1 * shrink);
                }
                static_for!(i in 0..GROUP => {
                    let p = math::exp2_approx(scores[i] - largest);
                    sum += p;
                    let row = first + math_min(t + i, length - 1) * half;
                    for j in 0..N {
                        if lane + 32 * j < half {
                            let (x, y) = T::pair(a.v_cache, row + lane + 32 * j);
                            values[j] = (math::fma(p, x, values[j].0), math::fma(p, y, values[j].1));
                        }
                    }
                });
                t += WARPS * GROUP;
            }

            if lane == 0 {
                all_largest.set(warp, largest);
                all_sums.set(warp, sum);
            }
            for j in 0..N {
                let pair = lane + 32 * j;
                if pair < half {
                    all_values.set(warp * MAX_HEAD_DIM as usize + 2 * pair, values[j].0);
                    all_values.set(warp * MAX_HEAD_DIM as usize + 2 * pair + 1, values[j].1);
                }
            }
            sync::block();

            let d = thread::idx_x() as usize;
            if d < 2 * half {
                a.y.set(h * 2 * half + d, merged(all_largest, all_sums, all_values.from(d)));
            }
        }
    }

    /// An element of the result, from those of all warps.
    #[device]
    unsafe fn merged(all_largest: Shared<f32>, all_sums: Shared<f32>, values: Shared<f32>) -> f32 {
        let mut largest = f32::MIN;
        for w in 0..WARPS {
            largest = math::max(largest, all_largest.get(w));
        }
        let (mut sum, mut value) = (0.0f32, 0.0f32);
        for w in 0..WARPS {
            let share = math::exp2_approx(all_largest.get(w) - largest);
            sum = math::fma(share, all_sums.get(w), sum);
            value = math::fma(share, values.get(w * MAX_HEAD_DIM as usize), value);
        }
        // NaN is not zero: it is handed on.
        if sum == 0.0 { 0.0 } else { value / sum }
    }

    #[inline(always)]
    fn math_min(a: usize, b: usize) -> usize {
        if a < b { a } else { b }
    }
}

macro_rules! entries {
    ($( $(#[$doc:meta])* $T:ty: $name:ident $Name:ident; )*) => { $(
        $(#[$doc])*
        #[kernel(block = 32 * WARPS, min_blocks = 3, family = "attention", variant = "v2", addresses = "ignored")]
        pub unsafe fn $name(
            q: In<f32>,
            k_cache: In<$T>,
            v_cache: In<$T>,
            y: Out<f32>,
            columns: In<Column>,
            q_heads: u32,
            kv_heads: u32,
            head_dim: u32,
            capacity: u32,
        ) {
            frame::attend(frame::DecodeArgs { q, k_cache, v_cache, y, columns, q_heads, kv_heads, head_dim, capacity });
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl Contract for $Name<'_> {
            fn geometry(&self) -> Geometry {
                Geometry::blocks(self.q_heads)
            }
            fn check(&self) -> Result<(), ContractError> {
                let $Name { q_heads, kv_heads, head_dim, capacity, .. } = *self;
                let (m, h) = (Self::META, Heads { q_heads, kv_heads, head_dim, capacity });
                let cache = check_heads(m, h, self.columns)?;
                check_token(m, "q", self.q.len(), h)?;
                contract::multiple_of(m, "q", (self.q.address(), "its address"), 8u32)?;
                check_token(m, "y", self.y.len(), h)?;
                check_cache(m, "k_cache", self.k_cache, cache)?;
                check_cache(m, "v_cache", self.v_cache, cache)
            }
        }
    )* };
}

entries! {
    /// Decode attention over f16 caches in one launch.
    f16: attn_decode AttnDecode;
    /// Decode attention over f32 caches in one launch.
    f32: attn_decode_f32 AttnDecodeF32;
}
