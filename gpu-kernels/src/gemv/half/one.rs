//! The product of a [small block](super::small) of one column, in two parts, as [layers in one launch](crate::persistent) do it: what the layout
//! of weights decides, and what is the same for all of them. Its bits are those of a block of [few columns](super::few).

use super::{
    super::{
        quant_format::{BLOCK_ROWS, half::len},
        quantized::{Invocation, QuantizedArgs},
        tensor::tiles::uniform_warp,
    },
    CLASSES, SUMS_STRIDE,
    small::{self, ROWS},
    units::{LoadedWeights, Runs, VECTORS, add_steps, steps},
};
use crate::format::{halves::Halves, record::InMemory};
use crate::load::{Place, Role, lane, sync_role};
use warpsmith_device::{prelude::*, shared::Shared, static_for};

const _: () = assert!(ROWS == 4);
/// Floats of shared memory that [`finish`] takes: the sums of all runs, of a tile of columns.
pub const SUMS: usize = CLASSES as usize * 8 * SUMS_STRIDE;

/// What a lane has of its warp's run: the sums of both tiles of rows, one behind the other.
pub type LaneSums = [f32; 8];

/// The sums of a warp's run of the rows of a role, of a launch with one column and without experts; and what those of all runs are
/// multiplied with.
///
/// All threads of the block make this call.
#[device]
pub unsafe fn sums<F: Halves>(given: impl Invocation) -> (LaneSums, f32) {
    let a = given.args();
    let record = F::record(a.cols as usize, a.block_units);
    let rows: [InMemory; ROWS] = core::array::from_fn(|r| {
        let first = given.role().block() * BLOCK_ROWS + (lane() / 4) as u32;
        InMemory(a.row(a.rows, first, 8 * r as u32, record.vectors as u32))
    });
    let halves = 1 << a.pair();
    // After the last column it is taken again.
    let of_column = ((lane() / 4) as u32).min(halves - 1) * len(a.cols) as u32 + (lane() % 4) as u32;
    let runs = Runs::of(&record);
    let mut group = uniform_warp() as u32 * runs.length;
    let end = (group + runs.length).min(runs.groups);
    let (mut first, mut second) = ([0.0; 4], [0.0; 4]);
    while group < end {
        // One by one, and not by `small::run`: what loops over rows is not always inlined where a kernel has the code of many layouts.
        let rows = [
            LoadedWeights::<F>::load(rows[0], &record, group, lane() % 4),
            LoadedWeights::<F>::load(rows[1], &record, group, lane() % 4),
            LoadedWeights::<F>::load(rows[2], &record, group, lane() % 4),
            LoadedWeights::<F>::load(rows[3], &record, group, lane() % 4),
        ];
        let scales = [rows[0].scale(&record), rows[1].scale(&record), rows[2].scale(&record), rows[3].scale(&record)];
        static_for!(v in 0..VECTORS => {
            let x = a.x.at((of_column + 16 * group) as usize + 4 * v).0;
            let eight = [rows[0].eight(v, &scales[0]), rows[1].eight(v, &scales[1])];
            add_steps(&mut first, steps(eight), x);
            let eight = [rows[2].eight(v, &scales[2]), rows[3].eight(v, &scales[3])];
            add_steps(&mut second, steps(eight), x);
        });
        group += 1;
    }
    let ([a, b, c, d], [e, f, g, h]) = (first, second);
    // Not an array of arrays, which layouts that follow one another would leave in local memory.
    ([a, b, c, d, e, f, g, h], super::factor::<F>())
}

/// The outputs of a role, by way of `memory`, which has [`SUMS`] floats.
///
/// All threads of the block make this call.
#[device]
pub unsafe fn finish(given: &QuantizedArgs, role: impl Role, (sums, factor): (LaneSums, f32), memory: Shared<f32>) {
    let [a, b, c, d, e, f, g, h] = sums;
    small::store::<1, 1>(&[[[a, b, c, d]], [[e, f, g, h]]], 0, memory, 1 << given.pair());
    sync_role(role);
    if uniform_warp() == 0 {
        let place = Place { thread: lane() as u32, ..role.again() };
        let outputs = BLOCK_ROWS >> given.epilogue.shift();
        given.finish_with::<false>(place, BLOCK_ROWS, outputs, (given.root(0), 0), |row| {
            small::product_of::<1>(memory, row, given.pair(), |sum| sum * factor)
        });
    }
}
