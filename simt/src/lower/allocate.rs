//! Places for registers: liveness, then a linear scan over the laid-out code.
//!
//! Registers of 64 bits, of up to 32 bits, and predicates have places of their own kind, so that
//! places of different widths never overlap. Liveness is that of a single thread, which is enough:
//! lanes never touch each other's part of a row. A guarded write does not end the life of
//! the value before it.
//!
//! That holds between frames as well: lanes of one warp that are in different functions have frames in the same rows,
//! and those of another width would hold another lane's part there. So all frames above an entry's are made of
//! units of the same shape, one row of 64-bit registers and one of 32-bit registers each: see [`FrameLayout`].

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::graph::BasicBlock;
use super::operand::{P, RegisterClass, V, X};
use super::proto::Proto;
use crate::exec::{PRED_FIRST, PRED_SINK, PRED_TRUE, ROW};

/// Rows that a frame may have.
const MAX_ROWS: u32 = 16 << 10;
/// Words of bit sets per function beyond which liveness across blocks is not computed.
const MAX_WORDS: usize = 1 << 22;

/// Places of a function's registers.
pub(super) struct Places {
    /// By register: a byte offset, or a predicate slot; `u32::MAX` if it is never used.
    pub slot: Vec<u32>,
    pub row_bytes: u32,
    pub preds: u32,
    /// Registers that may be read before they are written.
    pub unset: Vec<u32>,
    /// 32-bit registers live at once.
    pub pressure: u32,
}

impl Places {
    pub(super) fn row(&self, v: V) -> u32 {
        super::operand::word(v, |r| self.slot[r as usize])
    }

    /// A destination predicate's slot.
    pub(super) fn pred(&self, p: P) -> u16 {
        match p {
            P::Reg(r, _) => self.slot[r as usize] as u16,
            P::True | P::False => PRED_TRUE,
            P::Sink => PRED_SINK,
        }
    }

    /// A source predicate: slot · 2 + negated.
    pub(super) fn source(&self, p: P) -> u16 {
        match p {
            P::Reg(r, negated) => (self.slot[r as usize] as u16) << 1 | u16::from(negated),
            P::True => PRED_TRUE << 1,
            P::False | P::Sink => PRED_TRUE << 1 | 1,
        }
    }
}

/// Where the rows of a frame lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FrameLayout {
    /// All rows of 64-bit registers, then those of 32-bit registers: for entries, whose frame is the first of every
    /// lane, so that no other overlaps it.
    Packed,
    /// Units of a row of each width, for functions: wherever frames overlap, rows of a width lie on rows of that width.
    Units,
}

/// Bytes of a unit: a row of 64-bit registers and one of 32-bit registers.
const UNIT: u32 = 3 * ROW;

impl FrameLayout {
    /// Place of row number `n` of 64-bit registers.
    fn wide(self, n: u32) -> u32 {
        match self {
            FrameLayout::Packed => n * 2 * ROW,
            FrameLayout::Units => n * UNIT,
        }
    }

    /// Place of row number `n` of 32-bit registers, behind `wide` rows of 64-bit ones.
    fn narrow(self, n: u32, wide: u32) -> u32 {
        match self {
            FrameLayout::Packed => (2 * wide + n) * ROW,
            FrameLayout::Units => n * UNIT + 2 * ROW,
        }
    }

    /// Bytes of a frame with so many rows.
    fn bytes(self, narrow: u32, wide: u32) -> u32 {
        match self {
            FrameLayout::Packed => (2 * wide + narrow) * ROW,
            FrameLayout::Units => narrow.max(wide) * UNIT,
        }
    }
}

/// Calls `f(register, is a write)` for all registers of an operation, reads first.
pub(super) fn visit(p: &Proto, mut f: impl FnMut(u32, bool)) {
    let mut read = |v: V| {
        if let V::Reg(r) = v {
            f(r, false);
        }
    };
    let guarded = p.guard != P::True;
    [p.a, p.b, p.c].into_iter().for_each(&mut read);
    if let X::Row(v) = p.x {
        read(v);
    }
    let (rows, writes) = p.list.as_ref().map_or((&[][..], &[][..]), |l| (&l.rows[..], &l.writes[..]));
    rows.iter().copied().for_each(&mut read);
    if guarded {
        writes.iter().copied().chain([p.d]).for_each(&mut read);
    }
    let mut pred = |q: P, write: bool| {
        if let P::Reg(r, _) = q {
            f(r, write);
        }
    };
    pred(p.q, false);
    pred(p.guard, false);
    if let X::Pred(q) = p.x {
        pred(q, false);
    }
    if guarded {
        pred(p.p, false);
        pred(p.r, false);
    }
    pred(p.p, true);
    pred(p.r, true);
    for v in writes.iter().copied().chain([p.d]) {
        if let V::Reg(r) = v {
            f(r, true);
        }
    }
}

const UNSEEN: u32 = u32::MAX;
const NONE: u32 = u32::MAX;

/// Registers that live in more than one block, numbered.
fn across(protos: &[Proto], blocks: &[BasicBlock], order: &[usize], registers: usize) -> (Vec<u32>, Vec<u32>) {
    let mut home = vec![UNSEEN; registers];
    let mut number = vec![NONE; registers];
    let mut shared = Vec::new();
    for &b in order {
        for p in &protos[blocks[b].start..blocks[b].end] {
            visit(p, |r, write| {
                let r = r as usize;
                let first = home[r] == UNSEEN;
                if first {
                    home[r] = b as u32;
                }
                // A read with no write before it in its block comes from elsewhere.
                let outside = home[r] != b as u32 || (first && !write);
                if outside && number[r] == NONE {
                    number[r] = shared.len() as u32;
                    shared.push(r as u32);
                }
            });
        }
    }
    (number, shared)
}

/// Bit sets by block: registers live at its start, and at its end.
struct Live {
    words: usize,
    start: Vec<u64>,
    end: Vec<u64>,
}

fn liveness(protos: &[Proto], blocks: &[BasicBlock], order: &[usize], number: &[u32], count: usize) -> Live {
    let words = count.div_ceil(64);
    let n = blocks.len();
    let (mut reads, mut writes) = (vec![0u64; n * words], vec![0u64; n * words]);
    for &b in order {
        for p in &protos[blocks[b].start..blocks[b].end] {
            visit(p, |r, write| {
                let i = number[r as usize];
                if i == NONE {
                    return;
                }
                let (word, bit) = (b * words + i as usize / 64, 1u64 << (i % 64));
                if write {
                    writes[word] |= bit;
                } else if writes[word] & bit == 0 {
                    reads[word] |= bit;
                }
            });
        }
    }
    let mut start = reads.clone();
    let mut end = vec![0u64; n * words];
    let mut changed = true;
    while changed {
        changed = false;
        for &b in order.iter().rev() {
            for s in blocks[b].successors() {
                for w in 0..words {
                    end[b * words + w] |= start[s * words + w];
                }
            }
            for w in 0..words {
                let i = b * words + w;
                let value = reads[i] | (end[i] & !writes[i]);
                if value != start[i] {
                    start[i] = value;
                    changed = true;
                }
            }
        }
    }
    Live { words, start, end }
}

fn bits_of(words: &[u64]) -> impl Iterator<Item = usize> + '_ {
    words.iter().enumerate().flat_map(|(w, &word)| {
        let mut word = word;
        std::iter::from_fn(move || {
            if word == 0 {
                return None;
            }
            let bit = word.trailing_zeros() as usize;
            word &= word - 1;
            Some(w * 64 + bit)
        })
    })
}

/// From where to where registers are live, in positions of the laid-out code: two for each operation.
struct Lives {
    /// By register: `u32::MAX` for one that is never used.
    first: Vec<u32>,
    last: Vec<u32>,
    /// Registers that may be read before they are written.
    unset: Vec<u32>,
}

impl Lives {
    fn touch(&mut self, r: u32, at: u32) {
        let r = r as usize;
        self.first[r] = self.first[r].min(at);
        self.last[r] = self.last[r].max(at);
    }
}

/// Where registers are live.
fn lives(protos: &[Proto], blocks: &[BasicBlock], order: &[usize], registers: usize) -> Lives {
    let (number, shared) = across(protos, blocks, order, registers);
    let mut lives = Lives { first: vec![u32::MAX; registers], last: vec![0; registers], unset: Vec::new() };
    let mut position = 0u32;
    let words = blocks.len().saturating_mul(shared.len().div_ceil(64));
    let live = (words <= MAX_WORDS).then(|| liveness(protos, blocks, order, &number, shared.len()));
    for &b in order {
        if let Some(live) = &live {
            let set = &live.start[b * live.words..][..live.words];
            bits_of(set).for_each(|i| lives.touch(shared[i], position));
        }
        for p in &protos[blocks[b].start..blocks[b].end] {
            visit(p, |r, write| lives.touch(r, if write || p.apart { position + 1 } else { position }));
            if p.apart {
                // A place must be held until all of the operation is done, and from its start.
                visit(p, |r, write| {
                    if !write {
                        lives.touch(r, position);
                    }
                });
            }
            position += 2;
        }
        if let Some(live) = &live {
            let set = &live.end[b * live.words..][..live.words];
            bits_of(set).for_each(|i| lives.touch(shared[i], position - 1));
        }
    }
    match (&live, order.first()) {
        (Some(live), Some(&entry)) => {
            lives.unset.extend(bits_of(&live.start[entry * live.words..][..live.words]).map(|i| shared[i]));
        }
        _ => {
            for &r in &shared {
                lives.touch(r, 0);
                lives.touch(r, position);
            }
            lives.unset.extend(&shared);
        }
    }
    lives
}

/// Places of each class, numbered from 0.
struct Numbered {
    /// By register: its place, or `u32::MAX`.
    slot: Vec<u32>,
    /// How many there are: rows of 32 bits, of 64 bits, predicates.
    count: [u32; 3],
    /// 32-bit registers live at once.
    pressure: u32,
}

/// The linear scan: a register gets a place that is free where its life begins.
fn scan(lives: &Lives, classes: &[RegisterClass]) -> Result<Numbered, String> {
    let Lives { first, last, .. } = lives;
    let registers = classes.len();
    let mut queue: Vec<u32> = (0..registers as u32).filter(|&r| first[r as usize] != u32::MAX).collect();
    queue.sort_unstable_by_key(|&r| first[r as usize]);
    let mut slot = vec![u32::MAX; registers];
    // By class: places in use by when they end, free places, how many there are.
    let mut active: [BinaryHeap<Reverse<(u32, u32)>>; 3] = Default::default();
    let mut free: [Vec<u32>; 3] = Default::default();
    let mut count = [0u32; 3];
    let (mut now, mut pressure) = ([0u32; 3], 0);
    for &r in &queue {
        let class = match classes[r as usize] {
            RegisterClass::Narrow => 0,
            RegisterClass::Wide => 1,
            RegisterClass::Pred => 2,
            RegisterClass::Other => return Err("registers of 128 bits are not supported".to_string()),
        };
        let start = first[r as usize];
        for c in 0..3 {
            while let Some(&Reverse((end, place))) = active[c].peek() {
                if end >= start {
                    break;
                }
                active[c].pop();
                free[c].push(place);
                now[c] -= 1;
            }
        }
        let place = free[class].pop().unwrap_or_else(|| {
            count[class] += 1;
            count[class] - 1
        });
        active[class].push(Reverse((last[r as usize], place)));
        now[class] += 1;
        pressure = pressure.max(now[0] + 2 * now[1]);
        slot[r as usize] = place;
    }
    Ok(Numbered { slot, count, pressure })
}

/// Gives every register its place.
pub(super) fn allocate(
    protos: &[Proto],
    blocks: &[BasicBlock],
    order: &[usize],
    classes: &[RegisterClass],
    shape: FrameLayout,
) -> Result<Places, String> {
    let lives = lives(protos, blocks, order, classes.len());
    let Numbered { mut slot, count, pressure } = scan(&lives, classes)?;
    if count[0] + 2 * count[1] > MAX_ROWS || count[2] + u32::from(PRED_FIRST) > 1 << 14 {
        return Err("too many registers are live at once".to_string());
    }
    for (s, class) in slot.iter_mut().zip(classes).filter(|(s, _)| **s != u32::MAX) {
        *s = match class {
            RegisterClass::Wide => shape.wide(*s),
            RegisterClass::Pred => *s + u32::from(PRED_FIRST),
            _ => shape.narrow(*s, count[1]),
        };
    }
    Ok(Places {
        slot,
        row_bytes: shape.bytes(count[0], count[1]),
        preds: count[2] + u32::from(PRED_FIRST),
        unset: lives.unset,
        pressure,
    })
}
