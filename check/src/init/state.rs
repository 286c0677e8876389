//! What the checker of undefined data knows of a launch, of the block that runs, and of its warps.

use super::allocation::Known;
use super::exchange::Brought;
use super::origins::{Origins, Provenance};
use super::registers::Registers;
use crate::findings::Findings;
use crate::raw::RawSite;
use crate::{Rule, Site};
use warpsmith_simt::machine::block::Grid;
use warpsmith_simt::machine::lanes::lanes_of;
use warpsmith_simt::machine::memory::Snapshot;
use warpsmith_simt::machine::note::Notes;
use warpsmith_simt::machine::program::{Function, Program};
use warpsmith_simt::machine::shadow::low;
use warpsmith_simt::machine::{Cx, LANES, uniform};
use warpsmith_simt::observer::LocalCopy;

/// What is known of a launch.
pub(crate) struct Init {
    program: *const Program,
    pub(super) sites: Vec<Known>,
    pub(super) origins: Origins,
    pub(super) brought: Brought,
}

impl Init {
    pub(crate) fn new(grid: &Grid<'_>) -> Init {
        Init {
            program: std::ptr::from_ref(grid.program),
            sites: vec![Known::default(); grid.program.sites as usize + 1],
            origins: Origins::default(),
            brought: Brought::default(),
        }
    }

    /// What tells the program from others while it lives.
    pub(super) fn program(&self) -> u64 {
        self.program as usize as u64
    }

    /// Tells how the undefined data came to where it is that the launch leaves in global memory.
    pub(crate) fn tell(
        &self,
        kernel: &str,
        memory: &Snapshot,
        follows: &dyn Fn(u32) -> Option<Rule>,
        finish: &dyn Fn(RawSite) -> Site,
    ) {
        self.origins.tell(kernel, memory, follows, finish);
    }
}

/// What is known of a warp.
#[derive(Default)]
pub(super) struct WarpInit {
    pub(super) registers: Registers,
    /// Undefined bytes of local memory, four bits a word: word `w` of lane `l` is element `32 w + l`.
    pub(super) local: Vec<u8>,
    /// Of each such word, the origin of the undefined data that was stored there, plus 1; empty until some is.
    local_origins: Vec<u32>,
    pub(super) tainted: bool,
    pub(super) branches: u32,
}

impl WarpInit {
    /// Lanes enter a frame: what they may read before they write it is undefined.
    pub(super) fn enter(&mut self, row: u32, pred: u32, local: u32, function: &Function, lanes: u32) {
        self.registers.reserve((row + function.row_bytes) / 4, pred + function.preds);
        let words = (local + function.local_bytes).div_ceil(4) as usize;
        if self.local.len() < words * LANES {
            self.local.resize(words * LANES, 0);
        }
        for word in self.local[(local / 4) as usize * LANES..words * LANES].chunks_mut(LANES) {
            lanes_of(lanes).for_each(|l| word[l] = 15);
        }
        if !self.local_origins.is_empty() {
            self.local_origins.resize(self.local.len(), 0);
            for word in self.local_origins[(local / 4) as usize * LANES..words * LANES].chunks_mut(LANES) {
                lanes_of(lanes).for_each(|l| word[l] = 0);
            }
        }
        for &(at, wide) in &function.unset_rows {
            self.registers.unset(row + at, wide, lanes);
        }
        for &p in &function.unset_preds {
            self.registers.unset_pred(pred + p, lanes);
        }
        self.tainted |= !function.unset_rows.is_empty() || !function.unset_preds.is_empty();
    }

    pub(super) fn copy_local(&mut self, &LocalCopy { from, to, bytes }: &LocalCopy, lanes: u32) {
        for word in 0..bytes.div_ceil(4) {
            let (from, to) = ((from / 4 + word) as usize * LANES, (to / 4 + word) as usize * LANES);
            for lane in lanes_of(lanes) {
                self.local[to + lane] = self.local[from + lane];
                if !self.local_origins.is_empty() {
                    self.local_origins[to + lane] = self.local_origins[from + lane];
                }
            }
        }
    }

    /// Sets the defined bytes of a lane's local memory, and where the others came from.
    pub(super) fn set_local(&mut self, at: u64, n: u64, lane: usize, bits: u64, origin: u32) {
        for i in 0..n {
            let word = ((at + i) / 4) as usize * LANES + lane;
            let Some(mask) = self.local.get_mut(word) else { continue };
            let bit = 1 << ((at + i) & 3);
            if bits >> i & 1 != 0 {
                *mask &= !bit;
                continue;
            }
            *mask |= bit;
            self.local_origins.resize(self.local.len(), 0);
            self.local_origins[word] = origin + 1;
        }
    }

    pub(super) fn past_of_local(&self, at: u64, lane: usize) -> Provenance {
        past(self.local_origins.get((at / 4) as usize * LANES + lane))
    }
}

/// The past of what lies where this was noted.
fn past(noted: Option<&u32>) -> Provenance {
    noted.and_then(|n| n.checked_sub(1)).map_or(Provenance::Unwritten, Provenance::Stored)
}

/// What is known of a block.
#[derive(Default)]
pub(crate) struct BlockInit {
    pub(super) warps: Vec<WarpInit>,
    /// Defined bytes of shared memory.
    shared: Vec<u64>,
    /// Of each four bytes of it, the origin of the undefined data that was stored there, plus 1; empty until some is.
    shared_origins: Vec<u32>,
}

impl BlockInit {
    pub(crate) fn new(grid: &Grid<'_>, on: bool) -> BlockInit {
        let Some(function) = grid.program.functions.get(grid.entry as usize).filter(|_| on) else {
            return BlockInit::default();
        };
        let mut warps = Vec::new();
        for _ in 0..grid.threads.div_ceil(LANES as u32) {
            let mut warp = WarpInit::default();
            warp.enter(0, 0, 0, function, !0);
            warps.push(warp);
        }
        // One word more: an access that ends at the last byte may look at the next.
        let mut shared = vec![0u64; grid.shared_bytes as usize / 64 + 2];
        // What is reserved begins as zeros.
        for at in (grid.shared_bytes - grid.reserved) as usize..grid.shared_bytes as usize {
            shared[at / 64] |= 1 << (at % 64);
        }
        BlockInit { warps, shared, shared_origins: Vec::new() }
    }

    /// Whether the `n` bytes of shared memory from `at`, at most 64, are defined, one bit each.
    pub(super) fn shared(&self, at: u64, n: u64) -> u64 {
        let (i, bit) = ((at >> 6) as usize, at & 63);
        let (Some(&first), Some(&second)) = (self.shared.get(i), self.shared.get(i + 1)) else { return low(n) };
        let bits = if bit == 0 { first } else { first >> bit | second << (64 - bit) };
        bits & low(n)
    }

    /// Whether the `n` bytes of shared memory from `at` are all defined.
    pub(super) fn shared_defined(&self, (at, n): (u64, u64)) -> bool {
        let Some(last) = at.checked_add(n - 1).map(|last| last / 64) else { return false };
        let Some(words) = self.shared.get((at / 64) as usize..=last as usize) else { return false };
        let [first, .., end] = words else { return !words[0] >> (at % 64) & low(n) == 0 };
        let inner = words[1..words.len() - 1].iter().fold(!0, |all, word| all & word);
        !first >> (at % 64) == 0 && inner == !0 && !end & low((at + n - 1) % 64 + 1) == 0
    }

    pub(super) fn past_of_shared(&self, at: u64) -> Provenance {
        past(self.shared_origins.get((at / 4) as usize))
    }

    pub(super) fn set_shared(&mut self, at: u64, n: u64, bits: u64, origin: u32) {
        let missing = !bits & low(n);
        if missing != 0 {
            self.shared_origins.resize(self.shared.len() * 16, 0);
            for byte in positions(missing) {
                if let Some(noted) = self.shared_origins.get_mut(((at + byte) / 4) as usize) {
                    *noted = origin + 1;
                }
            }
        }
        let mut done = 0;
        warpsmith_simt::machine::shadow::spans(at, n, |i, mask| {
            if let Some(word) = self.shared.get_mut(i) {
                *word = *word & !mask | bits >> done << mask.trailing_zeros() & mask;
            }
            done += mask.count_ones();
            true
        });
    }
}

/// The positions of the bits that are set.
fn positions(mut bits: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let at = bits.trailing_zeros();
        bits &= bits.wrapping_sub(1);
        (at < 64).then_some(at.into())
    })
}

/// The running warp.
pub(crate) fn warp(cx: &Cx) -> usize {
    cx.uniform[uniform::WARPID] as usize
}

/// The checker at work: what it knows, and where findings go.
pub(crate) struct InitCheck<'a> {
    /// The program's notes.
    pub notes: &'a Notes,
    pub launch: &'a mut Init,
    pub block: &'a mut BlockInit,
    /// The block's linear index.
    pub index: u64,
    pub findings: &'a mut Findings,
}
