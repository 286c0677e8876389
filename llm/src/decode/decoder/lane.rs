//! What a decoder has on a device of its model, and what its steps are told there: their columns, and how they attend.

use super::runs::RunStages;
use crate::decode::rope::RopeTables;
use crate::decode::shape::Shape;
use crate::decode::workspace::Workspace;
use gpu_kernels::attention::prefill::QueryTile;
use gpu_kernels::state::Column;
use std::ops::Range;
use warpsmith_runtime::{Device, Error, Pinned, Stream};

/// A stream of a device, and what the steps on it work with.
pub(super) struct Lane {
    pub stream: Stream,
    pub tables: RopeTables,
    pub buffers: Workspace,
    pub stages: Stages,
    /// Where the model has delta nets.
    pub runs: Option<RunStages>,
}

/// Steps whose columns may be on their way to the device at once, so that several chunks of a prompt may be queued.
const STAGES: usize = 4;

/// Host memory of a step's columns on their way.
struct StagingBuffers {
    columns: Pinned<Column>,
    steps: Pinned<Column>,
    tiles: Pinned<QueryTile>,
}

/// The stages of a decoder, which take turns.
pub(super) struct Stages {
    stages: Vec<StagingBuffers>,
    next: usize,
    /// What is staged next.
    columns: Vec<Column>,
    tiles: Vec<QueryTile>,
}

/// Tokens of one sequence that attend in tiles, by the columns that they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// The first; others but the last follow it.
    pub first: usize,
    pub count: usize,
    pub last: usize,
    /// The position of the first.
    pub position: u32,
}

impl Run {
    /// A prompt alone in a step: `count` columns, of which the last `predicted` are predicted from, placed as
    /// [`stage_columns`](Decoder::stage_columns) does.
    pub fn of(shape: Shape, count: usize, predicted: usize, position: u32) -> Run {
        let first = if predicted == count { shape.columns - count } else { 0 };
        let last = if predicted == 0 { count - 1 } else { shape.columns - 1 };
        Run { first, count, last, position }
    }
}

impl Stages {
    /// For steps of so many columns, of which so many are predicted from.
    pub fn new(device: &Device, columns: usize, predicted: usize) -> Result<Stages, Error> {
        let tiles = Shape::most_tiles(columns);
        let stage = |_| {
            Ok(StagingBuffers {
                columns: device.pinned(columns)?,
                steps: device.pinned(predicted)?,
                tiles: device.pinned(tiles)?,
            })
        };
        Ok(Stages {
            stages: (0..STAGES).map(stage).collect::<Result<_, Error>>()?,
            next: 0,
            columns: vec![Column::default(); columns],
            tiles: Vec::with_capacity(tiles),
        })
    }

    /// Most columns of a step.
    pub fn columns(&self) -> usize {
        self.columns.len()
    }
}

impl Lane {
    /// Queues columns for the cells on the device: the last `predicted` of them as the last of the shape's, the others as its first.
    /// Columns between are of no sequence: they store nothing, and attend to nothing. `runs`: those that attend in tiles, where the
    /// shape has tiles.
    pub fn stage_columns(
        &mut self,
        shape: Shape,
        columns: &[Column],
        predicted: usize,
        (runs, head_dim): (&[Run], u32),
    ) -> Result<(), Error> {
        let stages = &mut self.stages;
        let used = stages.columns.get_mut(..shape.columns).unwrap_or_default();
        used.fill(Column::default());
        let (others, last) = columns.split_at(columns.len() - predicted);
        used[..others.len()].copy_from_slice(others);
        used[shape.columns - predicted..].copy_from_slice(last);
        let stage = &stages.stages[stages.next];
        stages.next = (stages.next + 1) % stages.stages.len();
        // Waits if the copy of STAGES steps ago is not done.
        stage.columns.with_mut(|cells| cells[..used.len()].copy_from_slice(used))?;
        // No kernel reads the rest.
        self.stream.write_pinned_part(&stage.columns, &mut self.buffers.columns[..shape.columns])?;
        if shape.tiles == 0 {
            return Ok(());
        }
        cut(&mut stages.tiles, runs, others.len()..shape.columns - predicted, head_dim);
        stages.tiles.resize(shape.tiles, QueryTile::default());
        stage.tiles.with_mut(|cells| cells[..shape.tiles].copy_from_slice(&stages.tiles))?;
        self.stream.write_pinned_part(&stage.tiles, &mut self.buffers.tiles[..shape.tiles])?;
        if shape.steps == 0 {
            return Ok(());
        }
        // What attends in a tile has no place here: nothing is done for it, or NaN is written before the tiles are launched.
        let first = shape.columns - shape.steps;
        for run in runs.iter().filter(|run| run.last >= first) {
            used[run.last] = Column::default();
        }
        stage.steps.with_mut(|cells| cells[..shape.steps].copy_from_slice(&used[first..]))?;
        self.stream.write_pinned_part(&stage.steps, &mut self.buffers.steps[..shape.steps])
    }
}

/// Cuts runs into tiles, those of the latest positions first, as their blocks take longest; and columns of no sequence.
fn cut(tiles: &mut Vec<QueryTile>, runs: &[Run], none: Range<usize>, head_dim: u32) {
    let tiles_of =
        |first: usize, count: usize, last: usize| QueryTile::cut(first as u32, count as u32, last as u32, head_dim);
    let mut with_ends: Vec<(u32, QueryTile)> = Vec::new();
    for run in runs {
        let mut end = run.position;
        for tile in tiles_of(run.first, run.count, run.last) {
            end += tile.count;
            with_ends.push((end, tile));
        }
    }
    with_ends.sort_by_key(|(end, _)| std::cmp::Reverse(*end));
    tiles.clear();
    tiles.extend(with_ends.into_iter().map(|(_, tile)| tile));
    if !none.is_empty() {
        tiles.extend(tiles_of(none.start, none.len(), none.end - 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_in_one_tile_and_the_longest_come_first() {
        let runs = [
            Run { first: 0, count: 3, last: 2, position: 7 },
            Run { first: 3, count: 300, last: 395, position: 100 },
            Run { first: 302, count: 1, last: 397, position: 900 },
        ];
        for head_dim in [64, 256] {
            let mut tiles = Vec::new();
            cut(&mut tiles, &runs, 302..390, head_dim);
            let mut columns: Vec<u32> = tiles.iter().flat_map(|t| (0..t.count).map(|i| t.column(i))).collect();
            assert_eq!(tiles[0], QueryTile { first: 302, count: 1, last: 397 });
            assert_eq!(tiles[1].last, 395);
            columns.sort_unstable();
            let all: Vec<u32> = (0..390).chain([395, 397]).collect();
            assert_eq!(columns, all, "{head_dim}");
        }
    }
}
