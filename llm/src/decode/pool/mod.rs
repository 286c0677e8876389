//! A pool of pages that sequences keep their keys and values in: each has as many as it needs, and those of a common beginning are
//! shared.
//!
//! A page is some positions of all layers and heads. A sequence reaches its pages by a table on the device, which kernels look into,
//! so its results are those of a cache of its own, bit for bit. A full page is known by its tokens and by those before it, and stays when
//! no sequence has it any more, until its place is needed: [`Decoder::adopt_prefix`](super::Decoder::adopt_prefix) finds it.

mod paged;

pub(super) use paged::Paged;

use super::delta::StatesShape;
use super::kv::CacheShape;
use super::{Activations, DecodeError, KvType, Model};
use gpu_kernels::state::GROUP;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use warpsmith_device::DeviceAddress;
use warpsmith_runtime::{Buffer, Device};

/// What a pool is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolOptions {
    /// Positions of all pages together; rounded up to whole pages.
    pub positions: usize,
    /// Positions of a page: a multiple of [`GROUP`].
    pub page: usize,
    /// How keys and values are stored.
    pub kv: KvType,
}

impl Default for PoolOptions {
    /// 4096 positions in pages of 16.
    fn default() -> Self {
        PoolOptions { positions: 4096, page: GROUP as usize, kv: KvType::default() }
    }
}

/// What becomes of a pool's pages: `pages = free + used + kept`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Pages in all.
    pub pages: usize,
    /// Positions of each.
    pub page: usize,
    /// Pages that hold nothing.
    pub free: usize,
    /// Pages of sequences.
    pub used: usize,
    /// Of these, pages of several sequences.
    pub shared: usize,
    /// Pages of no sequence that are kept for the next one that begins as they do.
    pub kept: usize,
    /// Device memory of the pool.
    pub bytes: u64,
}

/// How keys and values were computed that have the same bits for the same tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Recipe {
    pub activations: Activations,
    pub tuned: bool,
    /// Prompts attended in tiles.
    pub tiled: bool,
}

/// What a full page holds: its tokens, and the page before it, which stands for all tokens before. When that one is forgotten, so are those
/// that follow it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PageKey {
    before: Result<u32, Recipe>,
    tokens: Box<[u32]>,
}

#[derive(Debug, Default)]
struct Page {
    /// Sequences that have it.
    users: u32,
    /// By which it is found.
    key: Option<PageKey>,
    /// Known pages that follow it.
    following: Vec<u32>,
    /// When it was last given back.
    since: u64,
    /// How often what it held was forgotten.
    generation: u64,
}

struct PoolState {
    /// On each device keys, values, scales of keys, scales of values: page after page.
    planes: Vec<Vec<Buffer<u8>>>,
    pages: Vec<Page>,
    free: Vec<u32>,
    known: HashMap<PageKey, u32>,
    /// Pages that nobody has and that may be found, the longest unused first.
    idle: BTreeSet<(u64, u32)>,
    clock: u64,
}

struct PoolInner {
    model: Model,
    options: PoolOptions,
    /// Of one page; its capacity is the page's.
    shape: CacheShape,
    /// Bytes of a row of each plane.
    rows: Vec<usize>,
    /// Of the planes on each device.
    addresses: Vec<Vec<DeviceAddress>>,
    bytes: u64,
    state: Mutex<PoolState>,
}

/// Pages for the keys and values of sequences of one model. Clones are the same pool.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<PoolInner>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("options", self.options()).field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Pool {
    /// A pool of empty pages. If it does not fit into free memory, nothing is allocated.
    pub fn new(model: &Model, options: PoolOptions) -> Result<Pool, DecodeError> {
        let PoolOptions { positions, page, kv } = options;
        if page == 0 || !page.is_multiple_of(GROUP as usize) || page > 1 << 16 || positions == 0 {
            return Err(DecodeError::Pages { positions, page });
        }
        let pages = positions.div_ceil(page);
        let shape = CacheShape::new(model.share(), page);
        let memory = model.memory_info()?;
        let needed = Pool::device_bytes(model, options);
        // Kernels count rows in 32 bits.
        let rows = (pages as u64).checked_mul((shape.heads() * page) as u64).filter(|&rows| rows <= u32::MAX.into());
        let (Some(bytes), Some(_)) = (needed.filter(|&n| n <= memory.free), rows) else {
            return Err(DecodeError::Memory {
                what: "the pool",
                needed: needed.unwrap_or(u64::MAX),
                parts: format!("keys and values of {positions} positions in {kv}"),
                free: memory.free,
                total: memory.total,
                hint: "ask for fewer positions or a smaller cache type",
            });
        };
        let rows = shape.row_bytes(kv);
        let alloc = |device: &Device, row: &usize| device.alloc::<u8>(pages * shape.heads() * page * row);
        let on = |device: &Device| rows.iter().map(|row| alloc(device, row)).collect::<Result<Vec<_>, _>>();
        let planes = model.devices().map(on).collect::<Result<Vec<_>, _>>()?;
        let state = PoolState {
            pages: (0..pages).map(|_| Page::default()).collect(),
            free: (0..pages as u32).rev().collect(),
            known: HashMap::new(),
            idle: BTreeSet::new(),
            clock: 0,
            planes,
        };
        let addresses = state.planes.iter().map(|on| on.iter().map(|p| p.address()).collect()).collect();
        let (model, state) = (model.clone(), Mutex::new(state));
        Ok(Pool { shared: Arc::new(PoolInner { model, options, shape, rows, addresses, bytes, state }) })
    }

    /// Device memory that a pool takes, of several devices on each; `None` if no address can hold it.
    pub fn device_bytes(model: &Model, options: PoolOptions) -> Option<u64> {
        let positions = options.positions.checked_next_multiple_of(options.page.max(1))?;
        CacheShape::new(model.share(), positions).bytes(options.kv)
    }

    /// Positions of the largest pool that takes at most so many bytes, in whole pages of these `options`.
    pub fn positions_in(model: &Model, bytes: u64, options: PoolOptions) -> usize {
        let page = options.page.max(1);
        let fits = |pages: usize| {
            let options = PoolOptions { positions: pages.saturating_mul(page), ..options };
            Pool::device_bytes(model, options).is_some_and(|needed| needed <= bytes)
        };
        // The most pages that fit are in `least .. most`.
        let (mut least, mut most) = (0, 1);
        while fits(most) {
            (least, most) = (most, most * 2);
        }
        while most - least > 1 {
            let middle = least.midpoint(most);
            if fits(middle) { least = middle } else { most = middle }
        }
        least * page
    }

    /// The same beside the states of so many sequences in it, which those have whose layers are
    /// [delta nets](crate::model::DeltaNets).
    pub fn positions_beside(model: &Model, bytes: u64, sequences: usize, options: PoolOptions) -> usize {
        let states = StatesShape::of(model).map_or(0, StatesShape::bytes).saturating_mul(sequences as u64);
        Pool::positions_in(model, bytes.saturating_sub(states), options)
    }

    /// What it was made with.
    pub fn options(&self) -> &PoolOptions {
        &self.shared.options
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.shared.model
    }

    /// What has become of its pages.
    pub fn stats(&self) -> PoolStats {
        let state = self.lock();
        let count = |f: &dyn Fn(&Page) -> bool| state.pages.iter().filter(|p| f(p)).count();
        PoolStats {
            pages: state.pages.len(),
            page: self.shared.options.page,
            free: state.free.len(),
            used: count(&|p| p.users > 0),
            shared: count(&|p| p.users > 1),
            kept: count(&|p| p.users == 0 && p.key.is_some()),
            bytes: self.shared.bytes,
        }
    }

    /// Gives up the pages that no sequence has.
    pub fn clear(&self) {
        let mut state = self.lock();
        while let Some(page) = state.evict() {
            state.free.push(page);
        }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        // What is done under the lock leaves the state whole at every point where it may panic.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a page lies in a plane, in bytes.
    fn place(&self, plane: usize, page: u32) -> Range<usize> {
        let bytes = self.shared.shape.heads() * self.shared.options.page * self.shared.rows[plane];
        page as usize * bytes..(page as usize + 1) * bytes
    }
}

impl PoolState {
    /// A page that nobody has, of which nothing is known.
    fn take(&mut self) -> Option<u32> {
        let page = self.free.pop().or_else(|| self.evict())?;
        self.pages[page as usize].users = 1;
        Some(page)
    }

    /// The page that was not used for longest, which is forgotten.
    fn evict(&mut self) -> Option<u32> {
        let (_, page) = self.idle.pop_first()?;
        self.forget(page);
        Some(page)
    }

    /// What a page holds is not known any more, nor what those hold that follow it; of these, pages that nobody has are free.
    fn forget(&mut self, page: u32) {
        let mut all = vec![page];
        while let Some(next) = all.pop() {
            let of = &mut self.pages[next as usize];
            let Some(key) = of.key.take() else { continue };
            of.generation += 1;
            all.append(&mut of.following);
            if of.users == 0 && next != page {
                self.idle.remove(&(of.since, next));
                self.free.push(next);
            }
            if let Ok(before) = key.before {
                self.pages[before as usize].following.retain(|&p| p != next);
            }
            self.known.remove(&key);
        }
    }

    /// Pages that are free, or would be.
    fn available(&self) -> usize {
        self.free.len() + self.idle.len()
    }

    fn share(&mut self, page: u32) {
        let of = &mut self.pages[page as usize];
        of.users += 1;
        self.idle.remove(&(of.since, page));
    }

    fn release(&mut self, page: u32) {
        self.clock += 1;
        let of = &mut self.pages[page as usize];
        of.users -= 1;
        of.since = self.clock;
        if of.users == 0 {
            if of.key.is_some() {
                self.idle.insert((of.since, page));
            } else {
                self.free.push(page);
            }
        }
    }
}

impl Pool {
    /// Copies a page, on every device.
    fn copy(&self, state: &mut PoolState, from: u32, to: u32) -> Result<(), DecodeError> {
        for (rank, on) in self.shared.model.all_ranks().zip(&mut state.planes) {
            for (plane, all) in on.iter_mut().enumerate() {
                let (from, to) = (self.place(plane, from), self.place(plane, to));
                let length = from.len();
                let Some((low, high)) = all.split_at_mut(from.start.max(to.start)) else { continue };
                if from.start < to.start {
                    rank.stream.copy(&low[from], &mut high[..length])?;
                } else {
                    rank.stream.copy(&high[..length], &mut low[to])?;
                }
            }
        }
        for rank in self.shared.model.all_ranks() {
            rank.stream.synchronize()?;
        }
        Ok(())
    }
}
