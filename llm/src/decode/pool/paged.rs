//! The pages of a sequence: as many as its positions need, some of them those of other sequences too.

use super::{PageKey, Pool, Recipe};
use crate::decode::kv::Planes;
use crate::decode::{DecodeError, Model};
use gpu_kernels::state::{Column, GROUP};
use std::ops::Range;
use warpsmith_device::DeviceAddress;
use warpsmith_runtime::{Buffer, Stream};

/// The pages of one sequence.
pub(in crate::decode) struct Paged {
    pool: Pool,
    capacity: usize,
    /// `None`: given back, as no layer attends to its positions any more.
    pages: Vec<Option<u32>>,
    /// Pages before this one were given back.
    first: usize,
    /// The pages by which what its first pages hold is known, and their generations: they may be others, which hold the same, and may
    /// have been given away since.
    known: Vec<(u32, u64)>,
    /// How all positions so far were computed; `None`: not in one way.
    recipe: Option<Recipe>,
    /// On each device.
    tables: Vec<Buffer<u32>>,
}

impl Drop for Paged {
    fn drop(&mut self) {
        self.cut(0);
    }
}

impl Paged {
    pub fn new(pool: &Pool, capacity: usize) -> Result<Paged, DecodeError> {
        let tables = tables(pool.model(), capacity)?;
        let (pool, pages, known) = (pool.clone(), Vec::new(), Vec::new());
        Ok(Paged { pool, capacity, pages, first: 0, known, recipe: None, tables })
    }

    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    fn page(&self) -> usize {
        self.pool.shared.options.page
    }

    /// What a kernel of one of the devices is told of a token at `position`.
    pub fn column(&self, rank: usize, token: u32, position: usize) -> Column {
        let on = self.pool.shared.addresses.get(rank);
        let address = |i: usize| on.and_then(|on| on.get(i)).copied().unwrap_or(DeviceAddress::NULL);
        let table = self.tables.get(rank).map_or(DeviceAddress::NULL, |table| table.address());
        Column::at(token, position as u32)
            .with_caches(self.capacity as u32, address(0), address(1))
            .with_scales(address(2), address(3))
            .in_pages(self.page() as u32, table)
    }

    /// Rows at which the groups of a page begin, of the first head.
    fn groups(&self, page: u32) -> impl Iterator<Item = u32> {
        let (size, heads) = (self.page() as u32, self.pool.shared.shape.heads() as u32);
        (0..size / GROUP).map(move |group| page * heads * size + group * GROUP)
    }

    /// Makes sure that there are pages for `more` positions behind `length`, which are this sequence's alone, and gives back those that
    /// a `window` (0: none) leaves behind. If there are too few, the sequence is as it was.
    pub fn reserve(&mut self, length: usize, more: usize, window: usize) -> Result<(), DecodeError> {
        if window > 0 {
            self.leave(length.saturating_sub(window - 1));
        }
        let (page, had) = (self.page(), self.pages.len());
        let wanted = (length + more).div_ceil(page);
        // The page that is written first may have been filled before, or be another's too.
        let begun = (!length.is_multiple_of(page)).then_some(length / page).filter(|_| more > 0);
        let pool = self.pool.clone();
        let mut state = pool.lock();
        let begun_page = begun.and_then(|i| self.pages.get(i).copied()).flatten();
        let shared = begun_page.filter(|&page| state.pages[page as usize].users > 1);
        let (needed, available) = (wanted.saturating_sub(had) + usize::from(shared.is_some()), state.available());
        if needed > available {
            return Err(DecodeError::PoolFull { needed, available, pages: state.pages.len(), page });
        }
        if let (Some(page), None) = (begun_page, shared) {
            state.forget(page);
        }
        let copied = shared.and_then(|old| Some((old, state.take()?)));
        let new: Vec<u32> = (had..wanted).map_while(|_| state.take()).collect();
        if let Some((from, to)) = copied
            && let Err(error) = pool.copy(&mut state, from, to)
        {
            new.into_iter().chain([to]).for_each(|page| state.release(page));
            return Err(error);
        }
        if let (Some((old, to)), Some(i)) = (copied, begun) {
            self.pages[i] = Some(to);
            state.release(old);
            self.known.truncate(i);
        }
        drop(state);
        self.pages.extend(new.into_iter().map(Some));
        let changed = match copied.and(begun) {
            Some(i) => i..self.pages.len(),
            None => had..self.pages.len(),
        };
        self.write_table(changed)
    }

    fn write_table(&mut self, pages: Range<usize>) -> Result<(), DecodeError> {
        let of_page = self.page() / GROUP as usize;
        let entries: Vec<u32> =
            pages.clone().flat_map(|i| self.groups(self.pages[i].unwrap_or(0)).collect::<Vec<_>>()).collect();
        if entries.is_empty() {
            return Ok(());
        }
        // The last page may be longer than the capacity.
        let start = pages.start * of_page;
        for (table, rank) in self.tables.iter_mut().zip(self.pool.shared.model.all_ranks()) {
            let fits = entries.len().min(table.len() - start);
            rank.stream.write(&mut table[start..start + fits], &entries[..fits])?;
        }
        Ok(())
    }

    /// Gives back the pages of positions before `position`.
    fn leave(&mut self, position: usize) {
        let until = (position / self.page()).min(self.pages.len());
        if until > self.first {
            let mut state = self.pool.lock();
            for page in self.pages[self.first..until].iter_mut().filter_map(Option::take) {
                state.release(page);
            }
            drop(state);
            self.first = until;
        }
    }

    /// The first position that is still there.
    pub fn first_position(&self) -> usize {
        self.first * self.page()
    }

    /// Gives back the pages behind the first `length` positions.
    pub fn cut(&mut self, length: usize) {
        let keep = length.div_ceil(self.page());
        let mut state = self.pool.lock();
        // The last goes first, so that it is given away before those that it follows.
        for page in self.pages.drain(keep.min(self.pages.len())..).rev().flatten() {
            state.release(page);
        }
        drop(state);
        self.known.truncate(length / self.page());
        self.first = self.first.min(self.pages.len());
        if length == 0 {
            self.recipe = None;
        }
    }

    /// Takes note that positions up to those of `tokens` are cached, and were computed by this recipe.
    pub fn filled(&mut self, before: usize, tokens: &[u32], recipe: Option<Recipe>) {
        if before == 0 {
            self.recipe = recipe;
        } else if self.recipe != recipe {
            self.recipe = None;
        }
        let Some(recipe) = self.recipe else { return };
        let size = self.page();
        let mut state = self.pool.lock();
        while let Some(part) = tokens.get(self.known.len() * size..(self.known.len() + 1) * size) {
            let Some(Some(page)) = self.pages.get(self.known.len()).copied() else { return };
            let before = match self.known.last() {
                None => Err(recipe),
                Some(&(page, generation)) if state.pages[page as usize].generation == generation => Ok(page),
                // Nothing stands for the tokens before any more.
                Some(_) => {
                    self.recipe = None;
                    return;
                }
            };
            let key = PageKey { before, tokens: part.into() };
            let page = match state.known.get(&key) {
                Some(&same) => same,
                None => {
                    if let Ok(before) = before {
                        state.pages[before as usize].following.push(page);
                    }
                    state.pages[page as usize].key = Some(key.clone());
                    state.known.insert(key, page);
                    page
                }
            };
            self.known.push((page, state.pages[page as usize].generation));
        }
    }

    /// Begins with the pages that are known to hold the first of `tokens`, all but the last at most; how many tokens that are. The
    /// sequence is empty.
    pub fn adopt(&mut self, tokens: &[u32], recipe: Recipe) -> Result<usize, DecodeError> {
        let size = self.page();
        let mut state = self.pool.lock();
        let mut before = Err(recipe);
        for part in tokens[..tokens.len().saturating_sub(1)].chunks_exact(size) {
            let Some(&page) = state.known.get(&PageKey { before, tokens: part.into() }) else { break };
            state.share(page);
            self.pages.push(Some(page));
            self.known.push((page, state.pages[page as usize].generation));
            before = Ok(page);
        }
        drop(state);
        self.recipe = Some(recipe);
        if let Err(error) = self.write_table(0..self.pages.len()) {
            self.cut(0);
            return Err(error);
        }
        Ok(self.pages.len() * size)
    }

    /// The same pages for another sequence. What either writes is its own from then on.
    pub fn fork(&self) -> Result<Paged, DecodeError> {
        let mut fork = Paged::new(&self.pool, self.capacity)?;
        let mut state = self.pool.lock();
        self.pages.iter().flatten().for_each(|&page| state.share(page));
        drop(state);
        fork.pages.clone_from(&self.pages);
        fork.known.clone_from(&self.known);
        (fork.first, fork.recipe) = (self.first, self.recipe);
        fork.write_table(0..fork.pages.len())?;
        Ok(fork)
    }

    pub fn set_capacity(&mut self, capacity: usize) -> Result<(), DecodeError> {
        self.tables = tables(self.pool.model(), capacity)?;
        self.capacity = capacity;
        self.write_table(0..self.pages.len())
    }

    /// The first `length` positions of every plane, `[head][position][row]` of all key heads of the model; zeros of those that were given
    /// back.
    pub fn read(&self, length: usize) -> Result<Vec<Vec<u8>>, DecodeError> {
        let model = self.pool.model();
        let mut parts = Vec::with_capacity(model.ranks());
        for (number, rank) in model.all_ranks().enumerate() {
            parts.push(self.read_of(number, length, &rank.stream)?);
        }
        Ok(Planes::of(model).joined(parts))
    }

    /// The inverse of `read`, into pages that were reserved. The lengths were compared before.
    pub fn write(&mut self, length: usize, planes: &[Vec<u8>]) -> Result<(), DecodeError> {
        let pool = self.pool.clone();
        let shares = Planes::of(pool.model());
        for (number, rank) in pool.model().all_ranks().enumerate() {
            self.write_of(number, length, &shares.share(number, planes), &rank.stream)?;
        }
        Ok(())
    }

    fn read_of(&self, rank: usize, length: usize, stream: &Stream) -> Result<Vec<Vec<u8>>, DecodeError> {
        let (size, heads) = (self.page(), self.pool.shared.shape.heads());
        let state = self.pool.lock();
        let mut planes = Vec::new();
        for (plane, &row) in self.pool.shared.rows.iter().enumerate() {
            let mut out = vec![0; heads * length * row];
            for (i, page) in self.pages.iter().enumerate().take(length.div_ceil(size)) {
                let Some(page) = *page else { continue };
                let there = size.min(length - i * size);
                let of_page = &state.planes[rank][plane][self.pool.place(plane, page)];
                for head in 0..heads {
                    let rows = stream.read(&of_page[head * size * row..][..there * row])?;
                    out[(head * length + i * size) * row..][..there * row].copy_from_slice(&rows);
                }
            }
            planes.push(out);
        }
        Ok(planes)
    }

    fn write_of(&mut self, rank: usize, length: usize, planes: &[Vec<u8>], stream: &Stream) -> Result<(), DecodeError> {
        let (size, heads) = (self.page(), self.pool.shared.shape.heads());
        let mut state = self.pool.lock();
        for (plane, (bytes, &row)) in planes.iter().zip(&self.pool.shared.rows).enumerate() {
            for (i, page) in self.pages.iter().enumerate().take(length.div_ceil(size)) {
                let Some(page) = *page else { continue };
                let there = size.min(length - i * size);
                let place = self.pool.place(plane, page);
                let of_page = &mut state.planes[rank][plane][place];
                for head in 0..heads {
                    let rows = &bytes[(head * length + i * size) * row..][..there * row];
                    stream.write(&mut of_page[head * size * row..][..there * row], rows)?;
                }
            }
        }
        Ok(())
    }
}

/// Tables of a sequence, one on each device.
fn tables(model: &Model, capacity: usize) -> Result<Vec<Buffer<u32>>, DecodeError> {
    Ok(model.devices().map(|device| device.alloc(entries(capacity))).collect::<Result<_, _>>()?)
}

/// Entries of the table of a sequence.
fn entries(capacity: usize) -> usize {
    capacity.div_ceil(GROUP as usize)
}
