//! The columns of each expert, side by side: what products that multiply several columns with one matrix need.
//!
//! | | |
//! |---|---|
//! | `chosen` | u32 `[columns]`: the matrix of each column, as [`EXPERTS`](crate::gemv::EXPERTS) has it; the last, if it is too large |
//! | `table` | u32 `[3 * tiles + columns]`: for each tile its matrix, its first column in the order behind, and how many it has; behind them all the order: the columns of the first matrix, of the next, …, of each in the order that they have |
//! | `tiles` | [`tiles`] of them, which are always enough; those that are not needed have no column |
//!
//! A tile has up to [`TILE`] columns of one matrix, and all but the last of a matrix have as many. Counts and places are sums in a fixed
//! order: the table is the same in every run. One block.

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
use crate::load::{lane, warp_index};
use warpsmith_device::prelude::*;

/// Threads of the block.
pub const THREADS: u32 = 1024;
/// Most matrices: each has a thread.
pub const MOST: u32 = THREADS;
/// The same, as an array has it.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
const SHARED: usize = MOST as usize;
/// Columns of a tile.
pub const TILE: u32 = 32;

/// Tiles that hold `columns` columns of up to `matrices` matrices, whichever they have.
#[must_use]
pub const fn tiles(columns: u32, matrices: u32) -> u32 {
    columns / TILE + if columns < matrices { columns } else { matrices }
}

/// The definition.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn reference(chosen: &[u32], matrices: u32) -> Vec<u32> {
    let matrix = |column: &u32| chosen[*column as usize].min(matrices - 1);
    let mut order: Vec<u32> = (0..chosen.len() as u32).collect();
    order.sort_by_key(matrix);
    let mut table = Vec::new();
    let mut first = 0;
    for run in order.chunk_by(|a, b| matrix(a) == matrix(b)) {
        for tile in run.chunks(TILE as usize) {
            table.extend([matrix(&run[0]), first, tile.len() as u32]);
            first += tile.len() as u32;
        }
    }
    table.resize(3 * tiles(chosen.len() as u32, matrices) as usize, 0);
    table.extend(order);
    table
}

/// Calls `each` with a column of a lane, if it has the matrix, its place among those of the warp that have, and how many these are.
///
/// All lanes of the warp make this call.
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
#[inline(always)]
unsafe fn columns_of(
    chosen: In<u32>,
    (columns, matrices): (u32, u32),
    matrix: u32,
    mut each: impl FnMut(Option<(u32, u32)>, u32),
) {
    let mut first = 0;
    while first < columns {
        let column = first + lane() as u32;
        // SAFETY: the column is one of the table's, and all lanes are here.
        unsafe {
            let mine = column < columns && chosen.at(column as usize).min(matrices - 1) == matrix;
            let all = warp::ballot(warp::FULL, mine);
            let before = (all & warp::lanes_below()).count_ones();
            each(if mine { Some((column, before)) } else { None }, all.count_ones());
        }
        first += 32;
    }
}

/// The tiles of a table, and the order of its columns. A warp counts the columns of a matrix, and puts them in their places.
#[kernel(block = THREADS, min_blocks = 1, family = "experts")]
pub unsafe fn group_experts(chosen: Awaited<u32>, table: Out<u32>, columns: u32, matrices: u32, tiles: u32) {
    grid::wait_dependencies();
    grid::launch_dependents();
    let (counts, firsts) = (shared_array!(GROUP_COUNTS: [u32; SHARED]), shared_array!(GROUP_FIRSTS: [u32; SHARED]));
    let (chosen, sizes) = (chosen.buffer(), (columns, matrices));
    let mut matrix = warp_index() as u32;
    while matrix < matrices {
        let mut count = 0;
        columns_of(chosen, sizes, matrix, |_, n| count += n);
        if lane() == 0 {
            counts.set(matrix as usize, count);
        }
        matrix += THREADS / 32;
    }
    sync::block();
    let mine = thread::idx_x();
    // Columns and tiles before those of the thread's matrix, or before the end.
    let (mut first, mut tile, mut i) = (0, 0, 0);
    while i < mine.min(matrices) {
        let count = counts.get(i as usize);
        (first, tile) = (first + count, tile + count.div_ceil(TILE));
        i += 1;
    }
    if mine < matrices {
        firsts.set(mine as usize, first);
        let (count, mut done) = (counts.get(mine as usize), 0);
        while done < count {
            let at = 3 * tile as usize;
            table.set(at, mine);
            table.set(at + 1, first + done);
            table.set(at + 2, (count - done).min(TILE));
            (tile, done) = (tile + 1, done + TILE);
        }
    }
    if mine == matrices - 1 {
        while tile < tiles {
            let at = 3 * tile as usize;
            table.set(at, 0);
            table.set(at + 1, 0);
            table.set(at + 2, 0);
            tile += 1;
        }
    }
    sync::block();
    let order = table.from(3 * tiles as usize);
    let mut matrix = warp_index() as u32;
    while matrix < matrices {
        let mut first = firsts.get(matrix as usize);
        columns_of(chosen, sizes, matrix, |place, n| {
            if let Some((column, before)) = place {
                // SAFETY: the places of all matrices are as many as there are columns.
                unsafe { order.set((first + before) as usize, column) };
            }
            first += n;
        });
        matrix += THREADS / 32;
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for GroupExperts<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::blocks(1u32)
    }
    fn check(&self) -> Result<(), ContractError> {
        let m = Self::META;
        contract::within(m, "matrices", self.matrices, 1u32, MOST)?;
        contract::within(m, "columns", self.columns, 1u32, crate::gemv::MAX_CHOSEN)?;
        contract::at_least(m, "chosen", self.chosen.len(), (self.columns, "columns"))?;
        let needed = tiles(self.columns, self.matrices);
        contract::require(m, self.tiles == needed, "tiles", format_args!("{needed} (`group::tiles`)"), self.tiles)?;
        let needed = 3 * u64::from(self.tiles) + u64::from(self.columns);
        contract::at_least(m, "table", self.table.len(), (needed, "tiles and columns"))
    }
}

/// The cases of this kernel.
#[cfg(not(target_arch = "nvptx64"))]
pub mod cases {
    use super::{GroupExperts, reference, tiles};
    use crate::cases::{Bench, Listed, NamedSizes, Outcome, Plain, Rng, Shape, same, why};

    /// The columns of each expert.
    pub struct Groups;

    impl Plain for Groups {
        const SIZES: NamedSizes = &[("columns", 1024), ("matrices", 128), ("used", 128)];

        fn kernels() -> Vec<Listed> {
            vec![Listed::unmeasured::<GroupExperts<'_>>(why::SMALL)]
        }

        fn shapes() -> Vec<Vec<usize>> {
            // All of one; some of many; a tile and one more; more matrices than columns, and as many as there may be.
            let shapes = [
                [1, 1, 1],
                [33, 1, 1],
                [64, 5, 1],
                [31, 8, 8],
                [500, 40, 40],
                [1000, 64, 3],
                [7, 1024, 1024],
                [2000, 1000, 1030],
            ];
            shapes.map(|s| s.to_vec()).to_vec()
        }

        fn run<B: Bench>(shape: &Shape<'_>, bench: &mut B, rng: &mut Rng) -> Outcome {
            let [columns, matrices, used] = shape.sizes(["columns", "matrices", "used"])?;
            // Numbers that there is no matrix of are the last.
            let chosen: Vec<u32> = (0..columns).map(|_| rng.within(0, used - 1) as u32).collect();
            let want = reference(&chosen, matrices as u32);
            let (given, mut table) = (bench.upload(&chosen)?, bench.output::<u32>(want.len())?);
            bench.launch(GroupExperts {
                chosen: &given,
                table: &mut table,
                columns: columns as u32,
                matrices: matrices as u32,
                tiles: tiles(columns as u32, matrices as u32),
            })?;
            same(&bench.read(&table)?, &want)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_is_the_definition() {
        let none = [0; 3];
        assert_eq!(reference(&[2, 0, 2, 9], 3), [&[0, 0, 1, 2, 1, 3][..], &none, &[1, 0, 2, 3]].concat());
        let many = reference(&[1; 70], 2);
        assert_eq!(many[..12], [1, 0, 32, 1, 32, 32, 1, 64, 6, 0, 0, 0]);
    }

    #[test]
    fn contract_names_the_argument() {
        // SAFETY: nothing is launched, so nothing reads or writes the memory.
        let launch = |chosen, table, columns, matrices, tiles| unsafe {
            GroupExperts {
                chosen: DeviceSlice::from_raw(0x1000, chosen),
                table: DeviceSlice::from_raw_mut(0x8000, table),
                columns,
                matrices,
                tiles,
            }
            .check()
        };
        assert!(launch(40, 52, 40, 3, 4).is_ok());
        let wrong = [
            (launch(39, 52, 40, 3, 4), "chosen"),
            (launch(40, 51, 40, 3, 4), "table"),
            (launch(40, 52, 40, 3, 3), "tiles"),
            (launch(40, 52, 40, 0, 4), "matrices"),
            (launch(40, 52, 40, 1025, 4), "matrices"),
            (launch(40, 52, 0, 3, 4), "columns"),
        ];
        for (got, argument) in wrong {
            assert_eq!(got.unwrap_err().argument, argument);
        }
    }
}
