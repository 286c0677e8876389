//! Matrices of integers in groups that share a scale and a zero: a weight is `(code - zero) * scale`.
//!
//! Records of our formats have a scale for 32 columns and a zero that the format fixes. So the zero is taken off each code, and the
//! difference is stored: of four bits around 8 it is of four bits again (Q4_0), around any other zero of five (Q5_0), which is
//! exact where the scale is an f16. Of two bits and of three it is of four around any zero. Where groups are no runs of columns (act-order),
//! columns are put into an order in which they are, if all are of whole units. What is of eight bits around any zero, or in groups of other sizes, is made
//! into F16.

use super::super::CheckpointError;
use super::super::rows::Rows;
use super::super::shards::{Shards, Stored};
use super::packing::{Packing, Zeros};
use crate::gguf::TensorType;
use half::f16;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Columns that share a scale in a record.
const UNIT: usize = 32;

/// Which group a column belongs to.
#[derive(Clone)]
pub(in super::super) enum Groups {
    /// So many columns each, one group behind the other.
    Runs(usize),
    /// As a list says.
    Listed(Arc<[u32]>),
}

impl Groups {
    fn of(&self, column: usize) -> usize {
        match self {
            Groups::Runs(size) => column / size,
            Groups::Listed(all) => all[column] as usize,
        }
    }
}

/// What a matrix is made of.
pub(in super::super) struct GroupedParts {
    pub codes: Stored,
    pub packing: Packing,
    /// Bits of a code.
    pub bits: u32,
    pub size: [usize; 2],
    pub scales: Stored,
    /// Scales are stored by rows, and not by groups.
    pub scales_by_row: bool,
    pub zeros: Zeros,
    pub groups: Groups,
    /// Groups that there are.
    pub count: usize,
}

/// A matrix as it is in memory while its rows are made.
struct Loaded {
    words: Vec<u32>,
    /// `[count, rows]`.
    zeros: Vec<i16>,
    /// `[count, rows]`.
    scales: Vec<f32>,
}

impl Loaded {
    fn bytes(&self) -> usize {
        4 * self.words.len() + 2 * self.zeros.len() + 4 * self.scales.len()
    }
}

/// Bytes of the matrices of a checkpoint that stay in memory. Threads that make rows are in several of them where these are experts.
const KEPT: usize = 64 << 20;

/// Matrices that are in memory, the newest last.
#[derive(Default)]
pub(in super::super) struct MatrixCache(Mutex<VecDeque<(String, Arc<Loaded>)>>);

impl MatrixCache {
    /// A matrix that is there, or that `load` makes, in whose place the oldest go.
    fn get(
        &self,
        name: &str,
        load: impl FnOnce() -> Result<Loaded, CheckpointError>,
    ) -> Result<Arc<Loaded>, CheckpointError> {
        // Others that want the matrix wait until it is there.
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, loaded)) = kept.iter().find(|(n, _)| n == name) {
            return Ok(loaded.clone());
        }
        let loaded = Arc::new(load()?);
        let mut bytes = loaded.bytes() + kept.iter().map(|(_, l)| l.bytes()).sum::<usize>();
        while bytes > KEPT
            && let Some((_, oldest)) = kept.pop_front()
        {
            bytes -= oldest.bytes();
        }
        kept.push_back((name.to_owned(), loaded.clone()));
        Ok(loaded)
    }
}

/// A matrix of integers in groups.
pub(in super::super) struct Grouped {
    shards: Arc<Shards>,
    cache: Arc<MatrixCache>,
    parts: GroupedParts,
    /// The columns of the checkpoint in the order of the rows' columns, if that is another.
    columns: Option<Arc<[u32]>>,
    kind: TensorType,
}

/// Columns in an order in which those of each group follow one another, in their own order within it; `None`, where these are not of whole units.
fn by_group(groups: &[u32], count: usize) -> Option<Vec<u32>> {
    let mut sizes = vec![0usize; count];
    for &group in groups {
        *sizes.get_mut(group as usize)? += 1;
    }
    if sizes.iter().any(|size| !size.is_multiple_of(UNIT)) {
        return None;
    }
    let mut columns: Vec<u32> = (0..u32::try_from(groups.len()).ok()?).collect();
    // Stable.
    columns.sort_by_key(|&column| groups.get(column as usize));
    Some(columns)
}

impl Grouped {
    /// Reads the zeros, which decide on the format.
    pub fn new(
        shards: &Arc<Shards>,
        cache: &Arc<MatrixCache>,
        parts: GroupedParts,
    ) -> Result<Grouped, CheckpointError> {
        let [rows, cols] = parts.size;
        let (runs, columns) = match &parts.groups {
            Groups::Runs(size) => (size.is_multiple_of(UNIT) || parts.count == 1, None),
            Groups::Listed(all) => {
                let columns = by_group(all, parts.count);
                let sorted = columns.as_ref().is_some_and(|columns| columns.is_sorted());
                (columns.is_some(), columns.filter(|_| !sorted).map(Arc::from))
            }
        };
        let around = 1 << (parts.bits - 1);
        let zeros = parts.zeros.read(shards, [parts.count, rows], parts.bits)?;
        let symmetric = zeros.iter().all(|&zero| zero == around);
        let kind = match (runs && cols.is_multiple_of(UNIT), parts.bits, symmetric) {
            (true, 2 | 3, _) | (true, 4, true) => TensorType::Q4_0,
            (true, 4, false) => TensorType::Q5_0,
            (true, 8, true) => TensorType::Q8_0,
            _ => TensorType::F16,
        };
        let columns = columns.filter(|_| kind != TensorType::F16);
        Ok(Grouped { shards: shards.clone(), cache: cache.clone(), parts, columns, kind })
    }

    /// The checkpoint's column that is this one of a row.
    fn column(&self, of_row: usize) -> usize {
        self.columns.as_ref().map_or(of_row, |columns| columns[of_row] as usize)
    }

    fn loaded(&self) -> Result<Arc<Loaded>, CheckpointError> {
        let GroupedParts { codes, packing, bits, size: [rows, _], scales, scales_by_row, zeros, count, .. } =
            &self.parts;
        self.cache.get(&codes.name, || {
            let stored = self.shards.floats(scales)?;
            let scales = match scales_by_row {
                true => (0..count * rows).map(|i| stored[i % rows * count + i / rows]).collect(),
                false => stored,
            };
            let zeros = zeros.read(&self.shards, [*count, *rows], *bits)?;
            Ok(Loaded { words: packing.words(&self.shards, codes)?, zeros, scales })
        })
    }

    /// The scale of a group of a row, as records have it: rounded to f16.
    fn scale(&self, loaded: &Loaded, row: usize, group: usize) -> Result<f16, CheckpointError> {
        let value = loaded.scales[group * self.parts.size[0] + row];
        let rounded = f16::from_f32(value);
        if rounded.is_finite() {
            return Ok(rounded);
        }
        let tensor = self.parts.scales.name.clone();
        Err(CheckpointError::Scale { tensor, row, value, most: f16::MAX.to_f32() })
    }

    /// A code less its zero.
    fn value(&self, loaded: &Loaded, row: usize, column: usize) -> i32 {
        let [rows, cols] = self.parts.size;
        let code = self.parts.packing.code(&loaded.words, [rows, cols], self.parts.bits, [row, column]);
        code - i32::from(loaded.zeros[self.parts.groups.of(column) * rows + row])
    }

    /// Writes a row of blocks: a scale, and codes by `pack`.
    fn blocks(
        &self,
        loaded: &Loaded,
        row: usize,
        to: &mut [u8],
        pack: fn(&[i32; UNIT], &mut [u8]),
    ) -> Result<(), CheckpointError> {
        let mut values = [0; UNIT];
        for (unit, block) in to.chunks_exact_mut(self.kind.block_bytes() as usize).enumerate() {
            let first = unit * UNIT;
            let scale = self.scale(loaded, row, self.parts.groups.of(self.column(first)))?;
            let (head, codes) = block.split_at_mut(2);
            head.copy_from_slice(&scale.to_le_bytes());
            for (i, value) in values.iter_mut().enumerate() {
                *value = self.value(loaded, row, self.column(first + i));
            }
            pack(&values, codes);
        }
        Ok(())
    }
}

impl Rows for Grouped {
    fn kind(&self) -> TensorType {
        self.kind
    }

    fn size(&self) -> [usize; 2] {
        self.parts.size
    }

    fn read(&self, rows: Range<usize>, to: &mut [u8]) -> Result<(), CheckpointError> {
        let loaded = self.loaded()?;
        let Some(bytes) = to.len().checked_div(rows.len()) else { return Ok(()) };
        for (row, to) in rows.zip(to.chunks_exact_mut(bytes)) {
            match self.kind {
                TensorType::Q4_0 => self.blocks(&loaded, row, to, four_bits)?,
                TensorType::Q5_0 => self.blocks(&loaded, row, to, five_bits)?,
                TensorType::Q8_0 => self.blocks(&loaded, row, to, eight_bits)?,
                _ => {
                    for (column, to) in to.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                        let scale = loaded.scales[self.parts.groups.of(column) * self.parts.size[0] + row];
                        let weight = self.value(&loaded, row, column) as f32 * scale;
                        // What f16 does not hold is infinite, which nothing takes.
                        *to = f16::from_f32(weight).to_le_bytes();
                    }
                }
            }
        }
        Ok(())
    }

    fn columns(&self) -> Option<&Arc<[u32]>> {
        self.columns.as_ref()
    }

    fn widen(&mut self) {
        (self.columns, self.kind) = (None, TensorType::F16);
    }
}

/// Q4_0: codes around 8, the first sixteen in the low halves of bytes.
fn four_bits(values: &[i32; UNIT], to: &mut [u8]) {
    for (i, to) in to.iter_mut().enumerate() {
        *to = (values[i] + 8) as u8 & 15 | ((values[i + 16] + 8) as u8) << 4;
    }
}

/// Q5_0: codes around 16, first their highest bits, then the others as in Q4_0.
fn five_bits(values: &[i32; UNIT], to: &mut [u8]) {
    let (high, low) = to.split_at_mut(4);
    let bits = values.iter().enumerate().fold(0u32, |bits, (i, v)| bits | ((v + 16) as u32 >> 4 & 1) << i);
    high.copy_from_slice(&bits.to_le_bytes());
    for (i, to) in low.iter_mut().enumerate() {
        *to = (values[i] + 16) as u8 & 15 | ((values[i + 16] + 16) as u8) << 4;
    }
}

/// Q8_0: signed bytes.
fn eight_bits(values: &[i32; UNIT], to: &mut [u8]) {
    for (to, value) in to.iter_mut().zip(values) {
        *to = *value as i8 as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_kernels::format::Format;

    #[test]
    fn every_difference_comes_back() {
        type Pack = fn(&[i32; UNIT], &mut [u8]);
        let cases: [(Format, i32, Pack); 3] =
            [(Format::Q4_0, 8, four_bits), (Format::Q5_0, 16, five_bits), (Format::Q8_0, 128, eight_bits)];
        for (format, half, pack) in cases {
            for start in 0..2 * half {
                let values: [i32; UNIT] = std::array::from_fn(|i| (start + 7 * i as i32) % (2 * half) - half);
                let mut block = vec![0xaa; format.block_bytes()];
                block[..2].copy_from_slice(&f16::from_f32(0.5).to_le_bytes());
                pack(&values, &mut block[2..]);
                let want: Vec<f32> = values.iter().map(|&v| v as f32 * 0.5).collect();
                assert_eq!(format.decode(&block, 1, UNIT).unwrap(), want, "{format}");
            }
        }
    }

    #[test]
    fn columns_of_a_group_follow_one_another_in_their_own_order() {
        let mut seed = 1u64;
        let mut groups: Vec<u32> = (0..5 * UNIT as u32).map(|i| i / UNIT as u32 % 4).collect();
        for i in (1..groups.len()).rev() {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            groups.swap(i, (seed >> 33) as usize % (i + 1));
        }
        // Of six groups two are empty, and the first has two units.
        let columns = by_group(&groups, 6).unwrap();
        let key = |column: &u32| (groups[*column as usize], *column);
        assert!(columns.is_sorted_by_key(key) && columns.windows(2).all(|c| c[0] != c[1]));
        assert_eq!(columns.iter().copied().collect::<std::collections::BTreeSet<_>>().len(), groups.len());
        assert_eq!(by_group(&[2; UNIT], 3).unwrap(), (0..UNIT as u32).collect::<Vec<_>>());
        // Of no whole units, and a group that there is not.
        assert_eq!(by_group(&groups[1..], 6), None);
        assert_eq!(by_group(&[3; UNIT], 3), None);
    }

    #[test]
    fn the_oldest_go_where_there_is_no_room_and_the_newest_stays() {
        let cache = MatrixCache::default();
        let get = |name: &str, words: usize| {
            let mut made = false;
            let load = || {
                made = true;
                Ok(Loaded { words: vec![0; words], zeros: Vec::new(), scales: Vec::new() })
            };
            assert_eq!(cache.get(name, load).unwrap().words.len(), words);
            made
        };
        let half = KEPT / 8;
        assert!(get("a", half) && get("b", half));
        assert!(!get("a", half) && !get("b", half));
        // One more word than there is room for.
        assert!(get("c", 1));
        assert!(!get("b", half) && get("a", half));
        // Larger than all room.
        assert!(get("d", 2 * half + 1) && !get("d", 2 * half + 1));
        assert_eq!(cache.0.lock().unwrap().len(), 1);
    }
}
