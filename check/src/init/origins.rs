//! Where undefined values came from: the loads that brought them, what had been stored there, and the stories of the launch's
//! own stores.

use std::collections::HashMap;

use crate::defect::{self, Undefined, Within};
use crate::place::Place;
use crate::raw::RawSite;
use crate::story::{self, Story};
use crate::{Detail, Rule, Site, SiteKind};
use warpsmith_simt::machine::memory::Snapshot;

/// A load that brought undefined bytes into registers: the last one at its position with the same past.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub pc: u32,
    pub thread: (u64, u32, u32),
    pub place: Place,
    pub address: u64,
    /// Bytes of the access, and which of them are undefined.
    pub bytes: u64,
    pub missing: u64,
    /// How the bytes came to where they were loaded from.
    pub past: Provenance,
}

impl Origin {
    /// Where the first undefined byte is.
    fn first(&self) -> u64 {
        self.address.wrapping_add(self.missing.trailing_zeros().into())
    }

    /// The same, if that is an address of global memory.
    pub(super) fn global(&self) -> Option<u64> {
        matches!(self.place, Place::Global | Place::Other).then(|| self.first())
    }
}

/// How undefined bytes of memory came there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Provenance {
    /// Nothing has been stored there.
    #[default]
    Unwritten,
    /// This launch has stored what has this origin, to shared or local memory.
    Stored(u32),
    /// A launch or a copy has stored it to global memory.
    Told(u32),
}

/// The origin of registers that nobody has written.
pub(super) const UNSET: u32 = 0;

/// Where undefined values came from, by their numbers from 1.
#[derive(Default)]
pub(super) struct Origins {
    list: Vec<Origin>,
    known: HashMap<(u32, Provenance), u32>,
    /// Stores of undefined data to global memory: what it came from, position, and the number of their story; and stores to
    /// allocations, with the first thread.
    stores: HashMap<(u32, u32), (u32, Thread)>,
    writers: HashMap<u32, (u32, Thread)>,
}

type Thread = (u64, u32, u32);

/// Loads and stores that a story goes back.
const STEPS: u32 = 4;

impl Origins {
    /// The number of an origin. The past of what was stored in this launch is that of its first load, so that a value which
    /// goes round and round has one origin.
    pub(super) fn add(&mut self, mut origin: Origin) -> u32 {
        if let Provenance::Stored(before) = origin.past
            && let Some(Origin { past: past @ (Provenance::Stored(_) | Provenance::Told(_)), .. }) = self.get(before)
        {
            origin.past = past;
        }
        let list = &mut self.list;
        let id = *self.known.entry((origin.pc, origin.past)).or_insert_with(|| {
            list.push(origin);
            list.len() as u32
        });
        list[id as usize - 1] = origin;
        id
    }

    /// The origin of a number, if it has one.
    pub(super) fn get(&self, id: u32) -> Option<Origin> {
        self.list.get((id as usize).checked_sub(1)?).copied()
    }

    /// The number of the story that the operation at `pc` of a program stores undefined data to global memory.
    pub(super) fn stored(&mut self, program: u64, origin: u32, pc: u32, thread: Thread) -> u32 {
        let first = self.get(origin).map_or(u64::MAX, |o| u64::from(o.pc));
        // What was read from global memory has a story of its own.
        let past = match self.get(origin).map(|o| o.past) {
            Some(Provenance::Told(number)) => number,
            _ => 0,
        };
        let key = (program, u64::from(pc) << 32 | u64::from(past), first);
        self.stores.entry((origin, pc)).or_insert_with(|| (story::number(key), thread)).0
    }

    /// The number of the story that the operation at `pc` of a program stores to an allocation.
    pub(super) fn wrote(&mut self, program: u64, pc: u32, thread: Thread) -> u32 {
        self.writers.entry(pc).or_insert_with(|| (story::number((program, u64::from(pc), u64::MAX - 1)), thread)).0
    }

    /// Tells the stories of the launch's stores; `follows` says which finding explains a load's undefined bytes.
    pub(super) fn tell(
        &self,
        kernel: &str,
        memory: &Snapshot,
        follows: &dyn Fn(u32) -> Option<Rule>,
        finish: &dyn Fn(RawSite) -> Site,
    ) {
        let site =
            |kind, thread: Thread, pc: u32| finish(RawSite { kind, thread: Some(thread), pc, detail: Detail::None });
        for (&pc, &(number, thread)) in &self.writers {
            let sites = vec![site(SiteKind::Store, thread, pc)];
            story::tell(number, Story { kernel: kernel.to_string(), sites, ..Story::default() });
        }
        let own: HashMap<u32, (u32, u32, Thread)> =
            self.stores.iter().map(|(&(origin, pc), &(number, thread))| (number, (origin, pc, thread))).collect();
        for (&(origin, pc), &(number, thread)) in &self.stores {
            let mut sites = vec![site(SiteKind::UndefinedStore { kernel: None }, thread, pc)];
            let mut told = Story { kernel: kernel.to_string(), ..Story::default() };
            let (mut at, mut steps) = (origin, 0);
            loop {
                let Some(o) = self.get(at) else {
                    told.source = Some(Undefined::Register);
                    break;
                };
                sites.push(site(SiteKind::UndefinedLoad { kernel: None }, o.thread, o.pc));
                told.source = Some(described(memory, &o));
                told.address = o.global();
                told.follows = told.follows.or_else(|| follows(o.pc));
                steps += 1;
                at = match o.past {
                    Provenance::Stored(before) if steps < STEPS => before,
                    Provenance::Told(number) if steps < STEPS => match own.get(&number) {
                        Some(&(before, pc, thread)) => {
                            sites.push(site(SiteKind::StoredBefore { kernel: None }, thread, pc));
                            before
                        }
                        None => {
                            told.inherit(number, &mut sites);
                            break;
                        }
                    },
                    _ => break,
                };
            }
            told.sites = sites;
            story::tell(number, told);
        }
    }
}

/// Which bytes are undefined, and why.
pub(super) fn described(memory: &Snapshot, o: &Origin) -> Undefined {
    let at = o.first();
    let (space, within) = match o.place {
        Place::Global => (warpsmith_simt::Place::Global, Within::allocation(memory, at)),
        Place::Shared => (warpsmith_simt::Place::Shared, Within::Unknown),
        Place::Local => (warpsmith_simt::Place::Local, Within::Unknown),
        Place::Other => (warpsmith_simt::Place::Param, Within::Unknown),
    };
    let past = match o.past {
        Provenance::Unwritten => defect::Past::Unwritten,
        Provenance::Stored(_) => defect::Past::Stored { kernel: None },
        Provenance::Told(number) => {
            let kernel = story::told(number).map(|s| s.kernel.clone()).filter(|kernel| !kernel.is_empty());
            defect::Past::Stored { kernel }
        }
    };
    Undefined::Loaded { space, at, bytes: o.bytes, undefined: o.missing.count_ones(), within, past }
}
