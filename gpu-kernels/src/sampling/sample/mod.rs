//! Sampling: a token of each column, with parameters that a graph does not hold.
//!
//! | | |
//! |---|---|
//! | `logits` | f32, column `c` from `c * stride` on: `[n]`; not written |
//! | `params` | [`Sampling`] `[columns]`, in device memory |
//! | `columns` | [`Column`]: the position that the draw belongs to |
//! | `y` | u32 `[columns]`; [`NONE`](super::NONE) where every logit is NaN or not allowed |
//! | `work` | u64 [`work_len`]: what the launches leave one another |
//! | `tickets` | u32 `[columns]`: zero before the first launch, and again after every launch |
//!
//! In this order, and exactly:
//!
//! 1. Tokens that `allowed` excludes and NaN are out. Logits of tokens in `seen` are penalised ([`penalty`](super::penalty)).
//! 2. Tokens are ordered by logit, the largest first, equal ones (−0 equals 0) by index, the lowest first. With
//!    `temperature` 0 the first one is the result.
//! 3. A token weighs [`weight`], `2^40 · exp((logit - largest) / temperature)` as an integer: the weights of a column are
//!    numbers that add up the same in every order. Less than `2^-41` of the largest is 0.
//! 4. Top-k keeps the first `top_k` (0: all). Top-p keeps the shortest run from the first on whose weights reach
//!    `ceil(total * top_p)`, `total` being the weight of what top-k kept; at least one (1 or more: all).
//! 5. `r = floor(random * kept / 2^64)`, with 64 bits of [Philox](super::philox) under the seed at the position, and `kept` the
//!    weight of what is left. The result is the first token in the order of indices at which the sum of kept weights
//!    exceeds `r`.
//!
//! A column is cut into slices, a block each. `sample_best` finds the best token of each, and chooses for the columns that do not
//! draw; where one draws, `sample_weigh` sums weights in bins of logits, and `sample_draw` finds the bins that the thresholds
//! are in, lists the few tokens of these, and draws with the last of its blocks. Nothing is sorted. Where the slices are cut
//! has no influence on the result.

#[cfg(not(target_arch = "nvptx64"))]
use super::argmax::check_rows;
#[cfg(not(target_arch = "nvptx64"))]
use crate::state;
use crate::state::Column;
use warpsmith_device::prelude::*;

pub use super::definition::{RECORD, Sampling, key, logit, wanted, weight};
#[cfg(not(target_arch = "nvptx64"))]
pub use super::definition::{bitset, reference};

#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod column;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod draw;
#[cfg(any(target_arch = "nvptx64", rust_analyzer))]
mod first;
mod work;

/// Threads of a block.
pub const THREADS: u32 = 256;

/// Blocks of a launch that all find a place at once: columns are cut into no more slices.
#[cfg(not(target_arch = "nvptx64"))]
const BLOCKS: u32 = 512;

/// Tokens that a block looks at at once.
#[cfg(not(target_arch = "nvptx64"))]
const ROUND: u32 = 4 * THREADS;

/// Elements of `work` for so many columns.
#[cfg(not(target_arch = "nvptx64"))]
#[must_use]
pub fn work_len(columns: usize) -> u64 {
    columns as u64 * work::LEN as u64
}

/// Tokens of each slice of so many columns.
#[cfg(not(target_arch = "nvptx64"))]
fn slice_len(columns: usize, n: u32) -> u32 {
    let most = (BLOCKS / u32::try_from(columns.max(1)).unwrap_or(u32::MAX)).clamp(1, work::SLICES);
    n.div_ceil(most).next_multiple_of(ROUND)
}

/// The best token of each slice, and the token of each column that does not draw.
#[kernel(block = THREADS, min_blocks = 4, family = "sampling")]
#[allow(clippy::too_many_arguments)]
pub unsafe fn sample_best(
    logits: Awaited<f32>,
    params: Awaited<Sampling>,
    y: Out<u32>,
    work: InOut<u64>,
    tickets: InOut<u32>,
    n: u32,
    stride: u32,
    slice: u32,
) {
    grid::wait_dependencies();
    grid::launch_dependents();
    first::best(logits.buffer(), params.buffer(), y, (work, tickets), (n, stride, slice));
}

/// What the tokens of each bin weigh, of each column that draws.
#[kernel(block = THREADS, min_blocks = 4, family = "sampling")]
pub unsafe fn sample_weigh(
    logits: Awaited<f32>,
    params: Awaited<Sampling>,
    work: InOut<u64>,
    n: u32,
    stride: u32,
    slice: u32,
) {
    first::weigh(logits, params, work, (n, stride, slice));
}

/// The token of each column that draws, by top-k, top-p and a seed.
#[kernel(block = THREADS, min_blocks = 2, family = "sampling")]
#[allow(clippy::too_many_arguments)]
pub unsafe fn sample_draw(
    logits: Awaited<f32>,
    params: Awaited<Sampling>,
    columns: Awaited<Column>,
    y: Out<u32>,
    work: InOut<u64>,
    tickets: InOut<u32>,
    n: u32,
    stride: u32,
    slice: u32,
) {
    grid::wait_dependencies();
    grid::launch_dependents();
    let given = (logits.buffer(), params.buffer(), columns.buffer());
    draw::draw(given, y, (work, tickets), (n, stride, slice));
}

/// The launches that choose a token of each column.
#[cfg(not(target_arch = "nvptx64"))]
pub struct Sample<'a> {
    /// The logits.
    pub logits: &'a DeviceSlice<f32>,
    /// How each column is sampled.
    pub params: &'a DeviceSlice<Sampling>,
    /// Where each column is.
    pub columns: &'a DeviceSlice<Column>,
    /// The tokens.
    pub y: &'a mut DeviceSlice<u32>,
    /// What the launches leave one another, [`work_len`] numbers.
    pub work: &'a mut DeviceSlice<u64>,
    /// A counter a column, zero.
    pub tickets: &'a mut DeviceSlice<u32>,
    /// Tokens of the vocabulary.
    pub n: u32,
    /// Elements from a column's logits to the next.
    pub stride: u32,
}

#[cfg(not(target_arch = "nvptx64"))]
impl Sample<'_> {
    /// Launches `sample_best`, and with `draws` the two behind it: without, columns that are not [greedy](Sampling::is_greedy) get
    /// no token. `programmatic`: as programmatic launches.
    ///
    /// # Errors
    /// What the launcher reports, a broken contract first of all.
    ///
    /// # Safety
    /// As for [`Launcher::launch_unchecked`], of the bitsets that `params` lead to, which have a bit for each token; and with
    /// `programmatic` as for [`Programmatic::new`].
    pub unsafe fn launch<L: Launcher>(self, on: &mut L, draws: bool, programmatic: bool) -> Result<(), L::Error> {
        let Sample { logits, params, columns, y, work, tickets, n, stride } = self;
        let slice = slice_len(params.len(), n);
        let best =
            SampleBest { logits, params, y: &mut *y, work: &mut *work, tickets: &mut *tickets, n, stride, slice };
        // SAFETY: the caller's promise.
        unsafe { on.launch_programmatic(best, programmatic) }?;
        if !draws {
            return Ok(());
        }
        let weigh = SampleWeigh { logits, params, work: &mut *work, n, stride, slice };
        // SAFETY: the caller's promise.
        unsafe { on.launch_programmatic(weigh, programmatic) }?;
        let draw = SampleDraw { logits, params, columns, y, work, tickets, n, stride, slice };
        // SAFETY: the caller's promise.
        unsafe { on.launch_programmatic(draw, programmatic) }
    }
}

/// Rows of `n` logits, of which all [`weight`]s may be added up.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn check_logits(
    m: &'static KernelMeta,
    logits: &DeviceSlice<f32>,
    (columns, n, stride): (usize, u32, u32),
) -> Result<(), ContractError> {
    contract::within(m, "n", n, 1u32, ((1u32 << 24) - 1, "the weights of more tokens do not add up in 64 bits"))?;
    check_rows(m, "logits", logits, (columns, n, stride))
}

/// What all three launches have.
#[cfg(not(target_arch = "nvptx64"))]
fn check(
    m: &'static KernelMeta,
    logits: &DeviceSlice<f32>,
    (params, work): (&DeviceSlice<Sampling>, &DeviceSlice<u64>),
    (n, stride, slice): (u32, u32, u32),
) -> Result<(), ContractError> {
    let columns = params.len();
    contract::within(m, "params", columns, 1u32, (Geometry::MAX_GRID[1], "rows of a grid"))?;
    check_logits(m, logits, (columns, n, stride))?;
    contract::at_least(m, "work", work.len(), (work_len(columns), "work_len"))?;
    contract::multiple_of(m, "slice", slice, ROUND)?;
    let least = n.div_ceil(work::SLICES);
    contract::within(m, "slice", slice, (least, "in no more slices than there is room for"), u32::MAX)
}

/// A block for each slice of each column.
#[cfg(not(target_arch = "nvptx64"))]
fn slices(columns: usize, n: u32, slice: u32) -> Geometry {
    Geometry::grid(n.div_ceil(slice.max(1)), columns as u64, 1u32)
}

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for SampleBest<'_> {
    fn geometry(&self) -> Geometry {
        slices(self.params.len(), self.n, self.slice)
    }
    fn check(&self) -> Result<(), ContractError> {
        let (m, columns) = (Self::META, self.params.len());
        check(m, self.logits, (self.params, self.work), (self.n, self.stride, self.slice))?;
        contract::at_least(m, "tickets", self.tickets.len(), (columns, "columns"))?;
        contract::at_least(m, "y", self.y.len(), (columns, "columns"))
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for SampleWeigh<'_> {
    fn geometry(&self) -> Geometry {
        slices(self.params.len(), self.n, self.slice)
    }
    fn check(&self) -> Result<(), ContractError> {
        check(Self::META, self.logits, (self.params, self.work), (self.n, self.stride, self.slice))
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for SampleDraw<'_> {
    fn geometry(&self) -> Geometry {
        slices(self.params.len(), self.n, self.slice)
    }
    fn check(&self) -> Result<(), ContractError> {
        let (m, columns) = (Self::META, self.columns.len());
        state::check_columns(m, self.columns)?;
        contract::exactly(m, "params", self.params.len(), (columns, "columns"))?;
        check(m, self.logits, (self.params, self.work), (self.n, self.stride, self.slice))?;
        contract::at_least(m, "tickets", self.tickets.len(), (columns, "columns"))?;
        contract::at_least(m, "y", self.y.len(), (columns, "columns"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_names_the_argument() {
        // SAFETY: nothing is launched, so nothing reads or writes the memory.
        let launch = |logits, params, y, n| unsafe {
            SampleDraw {
                logits: DeviceSlice::from_raw(0x1000, logits),
                params: DeviceSlice::from_raw(0x1000, params),
                columns: DeviceSlice::from_raw(0x1000, 2),
                y: DeviceSlice::from_raw_mut(0x2000, y),
                work: DeviceSlice::from_raw_mut(0x3000, 2 * work::LEN),
                tickets: DeviceSlice::from_raw_mut(0x4000, 2),
                n,
                stride: 10,
                slice: 1024,
            }
            .check()
        };
        assert!(launch(20, 2, 2, 10).is_ok());
        assert_eq!(launch(19, 2, 2, 10).unwrap_err().argument, "logits");
        assert_eq!(launch(20, 1, 2, 10).unwrap_err().argument, "params");
        assert_eq!(launch(20, 2, 1, 10).unwrap_err().argument, "y");
        assert_eq!(launch(20, 2, 2, 1 << 24).unwrap_err().argument, "n");
        // SAFETY: as above.
        let best = |work, tickets, slice| unsafe {
            SampleBest {
                logits: DeviceSlice::from_raw(0x1000, 600_000),
                params: DeviceSlice::from_raw(0x1000, 2),
                y: DeviceSlice::from_raw_mut(0x2000, 2),
                work: DeviceSlice::from_raw_mut(0x3000, work),
                tickets: DeviceSlice::from_raw_mut(0x4000, tickets),
                n: 300_000,
                stride: 300_000,
                slice,
            }
            .check()
        };
        assert!(best(2 * work::LEN, 2, 2048).is_ok());
        assert_eq!(best(2 * work::LEN - 1, 2, 2048).unwrap_err().argument, "work");
        assert_eq!(best(2 * work::LEN, 1, 2048).unwrap_err().argument, "tickets");
        for slice in [0, 1024, 2047] {
            assert_eq!(best(2 * work::LEN, 2, slice).unwrap_err().argument, "slice");
        }
    }

    #[test]
    fn slices_find_places_on_the_device_and_in_the_work() {
        for columns in [1, 2, 3, 8, 100, 512, 5000] {
            for n in [1u32, 1024, 1025, 32000, 151_936, 262_144, 300_000, (1 << 24) - 1] {
                let slices = n.div_ceil(slice_len(columns, n));
                assert!(slices <= work::SLICES && slices as usize * columns <= (BLOCKS as usize).max(columns));
            }
        }
        assert_eq!((slice_len(1, 151_936), slice_len(64, 151_936)), (1024, 19456));
    }
}
