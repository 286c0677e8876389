//! Which of three layouts a file means by type id 42.
//!
//! | written by | weights, bytes | scale | code 3 |
//! |---|---|---|---|
//! | ggml: Q2_0 | 64, 18 | first | +2 |
//! | PrismML until mid 2026: Q2_0, now PQ2_0 with an id of its own | 128, 34 | first | +2 |
//! | OxiBonsai: TQ2_0_g128 | 128, 34 | last | 0 |
//!
//! The sizes of the tensors tell the first from the others. Those two are told apart by what the blocks hold: read the
//! right way, scales are finite, not negative and of similar size, and code 3 does not occur, since the models are
//! ternary. A file of which not exactly one reading is right is refused. All tensors of a file are of one layout.

use super::GgufError;
use super::reader::TensorInfo;
use super::source::Source;
use super::types::{AMBIGUOUS_TYPE_ID, TensorType};
use half::f16;

/// Blocks of a tensor that are looked at.
const SAMPLES: usize = 256;
/// Codes of a block of 128, and the block.
const CODES: usize = 32;
const BLOCK: usize = 34;

/// Sets type and size of the tensors of the ambiguous id. Offsets are still those from `data` on.
pub(super) fn resolve(tensors: &mut [TensorInfo], file: &Source, data: u64, alignment: u64) -> Result<(), GgufError> {
    let of_id: Vec<usize> = (0..tensors.len()).filter(|&i| tensors[i].kind.id() == AMBIGUOUS_TYPE_ID).collect();
    let Some(&first) = of_id.first() else { return Ok(()) };
    let refuse =
        |t: &TensorInfo, reason| Err(GgufError::AmbiguousType { tensor: t.name.clone(), offset: t.entry, reason });
    let mut starts: Vec<u64> = tensors.iter().map(|t| t.offset).collect();
    starts.sort_unstable();

    // Whether 64 or 128 weights are a block; `None` while nothing tells.
    let mut long = None;
    for t in of_id.iter().map(|&i| &tensors[i]) {
        let next = starts.get(starts.partition_point(|&s| s <= t.offset)).copied();
        let end = next.unwrap_or(file.len().saturating_sub(data));
        let span = end.saturating_sub(t.offset);
        // The last tensor may end with the file, without padding.
        let fits = |bytes: u64| bytes.next_multiple_of(alignment) == span || (next.is_none() && bytes == span);
        let long_bytes = bytes_of(t, TensorType::TQ2_0_G128);
        match (fits(t.bytes), long_bytes.is_some_and(fits)) {
            (false, false) => return refuse(t, "the tensor has the size of none of them"),
            (true, true) => {}
            (_, is_long) if long.is_none_or(|l| l == is_long) => long = Some(is_long),
            _ => return refuse(t, "the sizes of the file's tensors are of different layouts"),
        }
    }
    let kind = match long {
        None => return refuse(&tensors[first], "the tensors are too small to tell by their sizes"),
        Some(false) => TensorType::Q2_0,
        Some(true) => {
            let (mut scale_first, mut scale_last) = (true, true);
            for t in of_id.iter().map(|&i| &tensors[i]) {
                let blocks = samples(t, file, data)?;
                scale_first &= plausible(&blocks, 0);
                scale_last &= plausible(&blocks, CODES);
            }
            match (scale_first, scale_last) {
                (true, false) => TensorType::PQ2_0,
                (false, true) => TensorType::TQ2_0_G128,
                (true, true) => return refuse(&tensors[first], "its contents make sense both ways"),
                (false, false) => return refuse(&tensors[first], "its contents make sense neither way"),
            }
        }
    };
    for i in of_id {
        let Some(bytes) = bytes_of(&tensors[i], kind) else {
            return refuse(&tensors[i], "its rows are no whole number of the blocks of the other tensors");
        };
        (tensors[i].kind, tensors[i].bytes) = (kind, bytes);
    }
    Ok(())
}

/// The size of a tensor if it is of that type.
fn bytes_of(t: &TensorInfo, kind: TensorType) -> Option<u64> {
    let rows_fit = t.dims.first().is_some_and(|d| d.is_multiple_of(kind.block_elements()));
    kind.bytes_for(t.dims.iter().product()).filter(|_| rows_fit)
}

/// Blocks of a tensor, spread over it; none where it is not within the file.
fn samples(t: &TensorInfo, file: &Source, data: u64) -> Result<Vec<[u8; BLOCK]>, GgufError> {
    let bytes = bytes_of(t, TensorType::TQ2_0_G128).unwrap_or(0);
    let start = data.saturating_add(t.offset);
    if start.checked_add(bytes).is_none_or(|end| end > file.len()) {
        return Ok(Vec::new());
    }
    let blocks = bytes / BLOCK as u64;
    let step = (blocks / SAMPLES as u64).max(1);
    (0..blocks.div_ceil(step))
        .map(|i| {
            let mut block = [0; BLOCK];
            let what = || format!("tensor `{}`", t.name);
            file.read(start + i * step * BLOCK as u64, &mut block, what).map(|()| block)
        })
        .collect()
}

/// Whether blocks make sense with the scale at byte `at` and the codes in the rest.
fn plausible(blocks: &[[u8; BLOCK]], at: usize) -> bool {
    let mut scales = Vec::new();
    for block in blocks {
        let scale = f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
        let codes = if at == 0 { &block[2..] } else { &block[..CODES] };
        // A code is 3 where both of its bits are set.
        let threes = codes.iter().any(|b| b & (b >> 1) & 0x55 != 0);
        if !scale.is_finite() || scale < 0.0 || threes {
            return false;
        }
        if scale > 0.0 {
            scales.push(scale);
        }
    }
    scales.sort_by(f32::total_cmp);
    let Some(&median) = scales.get(scales.len() / 2) else { return false };
    let near = scales.iter().filter(|s| **s > median / 64.0 && **s < median * 64.0).count();
    near * 10 >= scales.len() * 9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_scale_in_ten_may_be_64_times_the_others_or_a_64th() {
        let block = |scale: f32| {
            let mut block = [0; BLOCK];
            block[..2].copy_from_slice(&f16::from_f32(scale).to_le_bytes());
            block
        };
        for (far, near) in [(64.0, 63.0), (1.0 / 64.0, 1.0 / 63.0)] {
            let with = |scale: f32, count: usize| {
                let blocks: Vec<_> = (0..20).map(|i| block(if i < count { scale } else { 1.0 })).collect();
                plausible(&blocks, 0)
            };
            assert!(with(far, 2) && !with(far, 3), "{far}");
            assert!(with(near, 3), "{near}");
        }
    }
}
