//! `y[r] = sum_c w[r, c] * x[c]` with weights in Q8_0: blocks of 32 weights, a scale in f16 and 32 codes of 8 bits, and the
//! weight is `scale * code`. 34 bytes for 32 weights instead of 128: the floor of step 14 divided by 3.8.
//!
//! A file has scale and codes of a block together, 17 halfwords, so that no vector of codes is aligned. [`Split`] is the
//! same matrix with codes and scales apart, as a host arranges them once, when it uploads the weights.

#[cfg(target_arch = "nvptx64")]
use crate::gemv::TILE;
use crate::gemv::{THREADS, WARPS};
use warpsmith_device::prelude::*;

/// Weights of a block.
pub const BLOCK: usize = 32;
/// Halfwords of a block in a file.
const HALVES: usize = 17;

/// A matrix with codes and scales apart.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Debug)]
pub struct Split {
    /// Codes `[rows, cols]` as signed bytes, 16 a vector.
    pub codes: Vec<U32x4>,
    /// Scales `[rows, cols / 32]`.
    pub scales: Vec<f16>,
}

#[cfg(not(target_arch = "nvptx64"))]
impl Split {
    /// From the blocks of a file.
    #[must_use]
    pub fn of(blocks: &[u16]) -> Split {
        let blocks = || blocks.chunks_exact(HALVES);
        let words: Vec<u32> =
            blocks().flat_map(|b| b[1..].chunks_exact(2).map(|h| u32::from(h[0]) | u32::from(h[1]) << 16)).collect();
        Split {
            codes: words.chunks_exact(4).map(|w| U32x4([w[0], w[1], w[2], w[3]])).collect(),
            scales: blocks().map(|b| f16::from_bits(b[0])).collect(),
        }
    }
}

/// Blocks as a file has them, of weights whose number is a multiple of 32: the largest magnitude gets the code 127.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn quantise(weights: &[f32]) -> Vec<u16> {
    let mut blocks = Vec::with_capacity(weights.len() / BLOCK * HALVES);
    for block in weights.chunks_exact(BLOCK) {
        let scale = block.iter().fold(0.0f32, |most, w| most.max(w.abs())) / 127.0;
        let code = |w: f32| if scale > 0.0 { (w / scale).round() as i8 as u8 } else { 0 };
        blocks.push(convert::f32_to_f16_bits(scale));
        blocks.extend(block.chunks_exact(2).map(|w| u16::from(code(w[0])) | u16::from(code(w[1])) << 8));
    }
    blocks
}

/// The weights that blocks stand for.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn dequantise(blocks: &[u16]) -> Vec<f32> {
    let weights = |b: &[u16]| {
        let scale = convert::f16_bits_to_f32(b[0]);
        let codes = b[1..].iter().flat_map(|h| h.to_le_bytes()).map(move |code| scale * f32::from(code as i8));
        codes.collect::<Vec<_>>()
    };
    blocks.chunks_exact(HALVES).flat_map(weights).collect()
}

/// Step 15, quantised weights as the file has them: step 12 with a lane for each code of a block.
///
/// A quarter of the bytes, but a load for each of them, and one more for the scale.
#[kernel(block = THREADS, min_blocks = 4, variant = "step 15")]
pub unsafe fn q8_0_blocks(blocks: In<u16>, x: In<f32>, y: Out<f32>, rows: u32, cols: u32) {
    let r = (block::idx_x() * WARPS + thread::warp()) as usize;
    if r < rows as usize {
        let lane = thread::lane() as usize;
        let all = cols as usize / BLOCK;
        let row = blocks.from(r * all * HALVES);
        let mut sum = 0.0;
        let mut b = 0;
        while b < all {
            let scale = convert::f16_to_f32(row.cast::<f16>().at(b * HALVES));
            let code = row.cast::<i8>().at((b * HALVES + 1) * 2 + lane);
            sum = math::fma(scale * f32::from(code), x.at(b * BLOCK + lane), sum);
            b += 1;
        }
        let sum = warp::sum_f32(sum);
        if lane == 0 {
            y.set(r, sum);
        }
    }
}

/// Loads the tile of `x` from element `from` on; quad `q` (four elements) is kept at `place(q)`.
///
/// # Safety
/// All threads of the block make this call; the tile is within `x` and within `tile`.
#[device]
#[cfg(target_arch = "nvptx64")]
unsafe fn stage(tile: shared::Shared<F32x4>, place: impl Fn(usize) -> usize, x: In<f32>, from: usize, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        sync::block();
        let mut q = thread::idx_x() as usize;
        while q < len / 4 {
            tile.set(place(q), x.load4(from + 4 * q));
            q += THREADS as usize;
        }
        sync::block();
    }
}

/// `scale *` the sum of 16 codes times 16 elements of the tile, of which `quad` gives four.
#[inline(always)]
#[cfg(target_arch = "nvptx64")]
fn dot(codes: U32x4, scale: f16, quad: impl Fn(usize) -> [f32; 4]) -> f32 {
    let mut sum = 0.0;
    for i in 0..4 {
        let weight = |k: u32| f32::from((codes.0[i] >> (8 * k)) as i8);
        sum = crate::gemv::add_products([weight(0), weight(1), weight(2), weight(3)], quad(i), sum);
    }
    convert::f16_to_f32(scale) * sum
}

/// The products of `R` rows, which a warp takes at once.
#[device]
#[cfg(target_arch = "nvptx64")]
unsafe fn product<const R: usize>(
    tile: shared::Shared<F32x4>,
    place: impl Fn(usize) -> usize + Copy,
    (codes, scales): (In<U32x4>, In<f16>),
    x: In<f32>,
    y: Out<f32>,
    (rows, cols): (usize, usize),
) {
    let first = (block::idx_x() * WARPS + thread::warp()) as usize * R;
    let lane = thread::lane() as usize;
    let mut sums = [0.0f32; R];
    let mut from = 0;
    // SAFETY: all threads get here; rows are below `rows`, and the tile's vectors within a row.
    unsafe {
        while from < cols {
            let len = (cols - from).min(TILE);
            stage(tile, place, x, from, len);
            let mut v = lane;
            while v < len / 16 {
                for i in 0..R {
                    let weight = (first + i).min(rows - 1) * cols + from + 16 * v;
                    let quad = |k: usize| tile.get(place(4 * v + k)).0;
                    sums[i] += dot(codes.ld_nc(weight / 16), scales.at(weight / BLOCK), quad);
                }
                v += 32;
            }
            from += TILE;
        }
        let mut i = 0;
        while i < R {
            let sum = warp::sum_f32(sums[i]);
            if lane == 0 && first + i < rows {
                y.set(first + i, sum);
            }
            i += 1;
        }
    }
}

/// Step 16, a layout of our own: 16 codes are an aligned vector, one load; `x` comes from shared memory as in step 14.
///
/// A lane now reads 16 neighbouring elements of `x`, 64 bytes from those of the next lane: the lanes meet in the banks.
#[kernel(block = THREADS, min_blocks = 4, variant = "step 16")]
pub unsafe fn q8_0_vectors(codes: In<U32x4>, scales: In<f16>, x: In<f32>, y: Out<f32>, rows: u32, cols: u32) {
    let tile = shared_array!(Q8_0_VECTORS: [F32x4; TILE / 4]);
    product::<1>(tile, |q| q, (codes, scales), x, y, (rows as usize, cols as usize));
}

/// Where step 17 keeps a quad: of eight quads, which fill the 32 banks once, every other eight begins with another one.
#[inline(always)]
#[cfg(target_arch = "nvptx64")]
fn swizzle(q: usize) -> usize {
    q ^ ((q >> 3) & 7)
}

/// Step 17, the swizzle of step 8 on vectors of 16 bytes.
#[kernel(block = THREADS, min_blocks = 4, variant = "step 17")]
pub unsafe fn q8_0_swizzled(codes: In<U32x4>, scales: In<f16>, x: In<f32>, y: Out<f32>, rows: u32, cols: u32) {
    let tile = shared_array!(Q8_0_SWIZZLED: [F32x4; TILE / 4]);
    product::<1>(tile, swizzle, (codes, scales), x, y, (rows as usize, cols as usize));
}

/// Step 18, two rows a warp: what is in registers is used twice.
///
/// Each element of `x` that a lane takes out of shared memory is multiplied with weights of two rows.
#[kernel(block = THREADS, min_blocks = 4, variant = "step 18")]
pub unsafe fn q8_0_rows(codes: In<U32x4>, scales: In<f16>, x: In<f32>, y: Out<f32>, rows: u32, cols: u32) {
    let tile = shared_array!(Q8_0_ROWS: [F32x4; TILE / 4]);
    product::<2>(tile, swizzle, (codes, scales), x, y, (rows as usize, cols as usize));
}

#[cfg(not(target_arch = "nvptx64"))]
mod contracts {
    use super::*;

    fn shapes(
        meta: &'static KernelMeta,
        (x, y): (&DeviceSlice<f32>, &DeviceSlice<f32>),
        (rows, cols): (u32, u32),
    ) -> Result<(), ContractError> {
        contract::within(meta, "rows", rows, 1u32, i32::MAX)?;
        contract::within(meta, "cols", cols, 1u32, i32::MAX)?;
        contract::multiple_of(meta, "cols", cols, (BLOCK, "weights of a block"))?;
        contract::exactly(meta, "x", x.len(), (cols, "cols"))?;
        contract::multiple_of(meta, "x", (x.address(), "its address"), 16u32)?;
        contract::exactly(meta, "y", y.len(), (rows, "rows"))
    }

    impl Contract for Q80Blocks<'_> {
        fn geometry(&self) -> Geometry {
            Geometry::blocks(self.rows.div_ceil(WARPS))
        }
        fn check(&self) -> Result<(), ContractError> {
            shapes(Self::META, (self.x, self.y), (self.rows, self.cols))?;
            let halves = u64::from(self.rows) * u64::from(self.cols) / BLOCK as u64 * HALVES as u64;
            contract::exactly(Self::META, "blocks", self.blocks.len(), (halves, "halfwords of rows * cols weights"))
        }
    }

    macro_rules! contracts {
        ($($Name:ident: $rows:expr;)*) => { $(
            impl Contract for $Name<'_> {
                fn geometry(&self) -> Geometry {
                    Geometry::blocks(self.rows.div_ceil($rows))
                }
                fn check(&self) -> Result<(), ContractError> {
                    shapes(Self::META, (self.x, self.y), (self.rows, self.cols))?;
                    let n = u64::from(self.rows) * u64::from(self.cols);
                    contract::exactly(Self::META, "codes", self.codes.len(), (n / 16, "rows * cols / 16"))?;
                    contract::exactly(Self::META, "scales", self.scales.len(), (n / 32, "rows * cols / 32"))
                }
            }
        )* };
    }
    // Rows of a block.
    contracts! {
        Q80Vectors: WARPS;
        Q80Swizzled: WARPS;
        Q80Rows: 2 * WARPS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Worked out by hand: 12.7 / 127 = 0.1, in f16 0x2E66 = 0.0999755859375.
    #[test]
    fn a_block_by_hand() {
        let mut weights = [0.0f32; 32];
        (weights[0], weights[1], weights[31]) = (12.7, -1.0, 0.26);
        let blocks = quantise(&weights);
        assert_eq!((blocks.len(), blocks[0]), (17, 0x2E66));
        assert_eq!((blocks[1], blocks[16]), (127 | 0xF6 << 8, 3 << 8));
        let back = dequantise(&blocks);
        assert_eq!((back[0], back[1], back[31]), (127.0 * 0.099_975_586, -10.0 * 0.099_975_586, 3.0 * 0.099_975_586));
        let split = Split::of(&blocks);
        assert_eq!(split.scales, [f16::from_bits(0x2E66)]);
        assert_eq!((split.codes.len(), split.codes[0].0[0], split.codes[1].0[3]), (2, 127 | 0xF6 << 8, 3 << 24));
    }
}
