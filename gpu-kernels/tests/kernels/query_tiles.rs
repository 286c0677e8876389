//! Prompts in tiles: what a column gets does not depend on the tile it is in, nor on where its caches lie.

use crate::columns::{Bench, POSITIONS, Sequence};
use gpu_kernels::attention::prefill::QueryTile;
use gpu_kernels::kv::KvType;
use gpu_kernels::state::Column;
use half::f16;
use std::ops::Range;
use warpsmith_device::Element;

const HEAD_DIM: u32 = 64;

/// Runs a part of each sequence in one launch: the last column of each part behind all others, and columns of no sequence between.
/// The outputs of each part, in the order of its positions.
fn step<T: Element>(
    bench: &mut Bench,
    parts: &[(&Sequence<T>, Range<usize>)],
    (kv, rounds): (KvType, bool),
) -> Vec<Vec<Vec<u32>>> {
    let others: usize = parts.iter().map(|(_, range)| range.len() - 1).sum();
    const BETWEEN: usize = 3;
    let (mut columns, mut tiles) = (Vec::new(), Vec::new());
    for (i, (sequence, range)) in parts.iter().enumerate() {
        let last = (others + BETWEEN + i) as u32;
        tiles.push(QueryTile::cut(columns.len() as u32, range.len() as u32, last, HEAD_DIM).collect::<Vec<_>>());
        columns.extend(range.clone().take(range.len() - 1).map(|p| sequence.column(p)));
    }
    tiles.push(vec![QueryTile { first: others as u32, count: BETWEEN as u32, last: (others + BETWEEN - 1) as u32 }]);
    columns.extend([Column::default(); BETWEEN]);
    columns.extend(parts.iter().map(|(sequence, range)| sequence.column(range.end - 1)));
    // The order of tiles is the caller's, and some may have no columns.
    let mut in_order: Vec<QueryTile> = tiles.iter().rev().flatten().copied().collect();
    in_order.insert(1, QueryTile::default());
    let y = bench.prefill(&columns, &in_order, kv, rounds);
    for between in &y[others..others + BETWEEN] {
        assert!(between.iter().all(|v| f32::from_bits(*v).is_nan()), "{kv}: a column of no sequence");
    }
    let of_tile = |tile: &QueryTile| (0..tile.count).map(|i| y[tile.column(i) as usize].clone()).collect::<Vec<_>>();
    tiles[..parts.len()].iter().map(|tiles| tiles.iter().flat_map(of_tile).collect()).collect()
}

/// Pieces of a prompt, the last of which is more than a block.
const PIECES: [&[usize]; 3] = [&[0, 1, 6, 17, 150], &[0, 63, 64, 80, 150], &[0, 50, 100, 149, 150]];

fn nothing_depends_on_tiles<T: Element>((kv, rounds): (KvType, bool)) {
    let mut bench = Bench::new();
    for window in [0, 23, 70] {
        bench.window = window;
        let whole = Sequence::<T>::new(&bench.gpu, POSITIONS);
        let want = step(&mut bench, &[(&whole, 0..POSITIONS)], (kv, rounds)).remove(0);
        for page in [16, 48] {
            let [mut a, mut c] = [POSITIONS, POSITIONS + 9].map(|n| Sequence::<T>::in_pages(&bench.gpu, n, page));
            let b = Sequence::<T>::new(&bench.gpu, POSITIONS + 30);
            for i in 0..4 {
                let [ra, rb, rc] = PIECES.map(|cuts| cuts[i]..cuts[i + 1]);
                // Pages that a window has left are given back.
                for (sequence, range) in [(&mut a, &ra), (&mut c, &rc)] {
                    let from = if window == 0 { 0 } else { (range.start + 1).saturating_sub(window as usize) };
                    sequence.lay(&bench.gpu, page, from);
                }
                let got = step(&mut bench, &[(&a, ra.clone()), (&b, rb.clone()), (&c, rc.clone())], (kv, rounds));
                for (got, range) in got.iter().zip([ra, rb, rc]) {
                    assert!(*got == want[range.clone()], "{kv}: {range:?}, window {window}, pages of {page}");
                }
            }
        }
    }
}

#[test]
fn nothing_depends_on_tiles_f16() {
    nothing_depends_on_tiles::<f16>((KvType::F16, true));
}

#[test]
fn nothing_depends_on_tiles_f32() {
    nothing_depends_on_tiles::<f32>((KvType::F32, true));
}

/// Those with the bits of single steps, over caches of every type.
#[test]
fn nothing_depends_on_tiles_exactly() {
    nothing_depends_on_tiles::<f16>((KvType::F16, false));
    nothing_depends_on_tiles::<i8>((KvType::Int8, false));
}

/// Weights over int8 caches are rounded by the scales of the tile's keys, and so it is cut alike here.
#[test]
fn nothing_depends_on_pages_int8() {
    let (mut bench, kv) = (Bench::new(), KvType::Int8);
    for window in [0, 23, 70] {
        bench.window = window;
        let whole = Sequence::<i8>::new(&bench.gpu, POSITIONS);
        let mut in_pages = Sequence::<i8>::in_pages(&bench.gpu, POSITIONS, 16);
        // Rows that are not the sequence's, whose scales would show.
        in_pages.scale(&bench.gpu, 1e9);
        for range in PIECES[1].windows(2).map(|cut| cut[0]..cut[1]) {
            let from = if window == 0 { 0 } else { (range.start + 1).saturating_sub(window as usize) };
            in_pages.lay(&bench.gpu, 16, from);
            let want = step(&mut bench, &[(&whole, range.clone())], (kv, true));
            let got = step(&mut bench, &[(&in_pages, range.clone())], (kv, true));
            assert!(want == got, "{range:?}, window {window}");
        }
    }
}
