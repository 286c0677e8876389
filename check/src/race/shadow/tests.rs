//! Spans are a short way of saying what cells say.

use warpsmith_simt::machine::lanes::lanes_of;

use super::*;
use crate::race::order::Clocks;

struct Random(u64);

impl Random {
    /// Below `end`.
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as u32) % end
    }

    /// Lanes side by side with words or vectors of 4 to 16 bytes each, or all at one place.
    fn span(&mut self, like: Span) -> Span {
        if self.below(5) == 0 {
            let from = 4 * self.below(31) as u8;
            let lanes = 1 << self.below(32) | if self.below(2) == 0 { 0 } else { 1 << self.below(32) };
            return Span { from, to: from + 4 * (1 + self.below(2) as u8), lanes, shift: TOGETHER, ..like };
        }
        let shift = 2 + self.below(3);
        let most = CHUNK as u32 >> shift;
        // Often halves and quarters.
        let units = if self.below(2) == 0 { most >> self.below(3) } else { 1 + self.below(most) };
        let first = self.below(most / units) * units;
        let lane = self.below(33 - units);
        let lanes = (u32::MAX >> (32 - units)) << lane;
        Span { from: (first << shift) as u8, to: ((first + units) << shift) as u8, lanes, shift: shift as u8, ..like }
    }
}

#[test]
fn spans_tell_of_the_clashes_that_cells_tell_of() {
    let (mut random, mut clashes, mut in_parts) = (Random(1), 0, 0);
    for round in 0..40_000 {
        let talks = random.below(2) == 0;
        let mut blocks = [Clocks::new(0, 96), Clocks::new(1, 96)];
        let (mut spans, mut cells) = (Shadow::default(), Shadow::default());
        for pc in 1..=30 {
            let block = usize::from(random.below(8) == 0);
            if random.below(2) == 0 {
                // Some warps of a block meet.
                let set = [0b011, 0b110, 0b111, 0b111][random.below(4) as usize];
                lanes_of(set).for_each(|warp| blocks[block].arrived(warp, 1, true));
                blocks[block].opened(1, set);
                continue;
            }
            let warp = random.below(3) as u8;
            let clock = blocks[block].warp(warp.into()).unwrap();
            let flags = [0, flag::WRITE, flag::WRITE, flag::STRONG, flag::STRONG | flag::WRITE, flag::NC];
            let flags = flags[random.below(if round % 2 == 0 { 3 } else { 6 }) as usize];
            let a = random.span(Span { block: block as u32, epoch: clock.epoch, pc, warp, flags, ..Span::default() });
            let now = Now { warp: clock, here: (block as u32, warp), talks };
            let (mut by_spans, mut by_cells) = (Vec::new(), Vec::new());
            spans.apply(0, &a, &now, &mut by_spans);
            cells.chunk(0).exact(0, &a, &now, &mut by_cells);
            // With whom may differ: of reads that follow each other cells forget parts, and spans wholes.
            assert_eq!(by_spans.is_empty(), by_cells.is_empty(), "round {round}, access {pc}: {a:?}");
            let writes = spans.chunk(0).spans().filter(|s| s.is(flag::WRITE)).count();
            in_parts += usize::from(writes > 1);
            if !by_spans.is_empty() {
                clashes += 1;
                break;
            }
        }
    }
    assert!(clashes > 10_000 && in_parts > 5_000, "{clashes} rounds clashed, {in_parts} writes were of parts");
}

/// Many records of four bytes, of which one of a single byte is no stand-in.
#[test]
fn a_read_of_a_byte_stands_for_no_reads_of_its_neighbours() {
    let blocks = [Clocks::new(0, 32), Clocks::new(1, 32)];
    let mut found = Vec::new();
    let mut chunk = Chunk::default();
    let mut access = |block: usize, lane: u32, (from, to): (u8, u8), flags: u8| {
        let clock = blocks[block].warp(0).unwrap();
        let like =
            Span { block: block as u32, epoch: clock.epoch, pc: lane, lanes: 1 << lane, flags, ..Span::default() };
        let now = Now { warp: clock, here: (block as u32, 0), talks: false };
        chunk.exact(0, &Span { from, to, shift: TOGETHER, ..like }, &now, &mut found);
        found.len()
    };
    for lane in 0..32 {
        assert_eq!(access(0, lane, (0, 4), 0), 0);
    }
    assert_eq!(access(1, 0, (0, 1), 0), 0);
    assert!(access(0, 0, (2, 4), flag::WRITE) > 0, "other lanes have read what this one writes");
}
