//! Launches that talk to each other while they run: flags and atomics of `.sys` scope order what their blocks do, on one device
//! or on several.
//!
//! A block that releases at that scope says how often it has done so. Who acquires what it wrote has heard of all that the block
//! did before, and of all that the host ordered before its launch. What one launch has heard all know, like what threads of the
//! host have waited for: this misses an edge that a third launch would need, and invents none.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use super::uses::{Use, joined};

/// Whether an operation of the host program must have ended before some launch begins.
pub type Before = Arc<dyn Fn(u32) -> bool + Send + Sync>;

/// A launch that may talk.
#[derive(Clone)]
pub struct Speaker {
    /// What is said by all of them.
    pub talk: Arc<Talk>,
    /// Which operations come before this launch.
    pub before: Before,
}

/// What launches of a process have told each other.
#[derive(Default)]
pub struct Talk {
    state: Mutex<State>,
    /// How often anything has been said: who polls looks here first, without the lock.
    said: AtomicU64,
}

#[derive(Default)]
struct State {
    /// By address, what its value carries.
    said: FxHashMap<u64, Carried>,
    heard: Vec<Heard>,
}

/// What a value carries.
#[derive(Default)]
struct Carried {
    /// By launch and block, of which the last release has all that the earlier ones have.
    said: Vec<Said>,
    /// When it changed last, by the count of all that was said: who polls it hears it once.
    since: u64,
}

/// What a value carries: all that a block did before its release of this number.
#[derive(Clone)]
struct Said {
    op: u32,
    block: u64,
    releases: u32,
    before: Before,
}

/// What has been heard of a launch, by block.
struct Heard {
    op: u32,
    blocks: FxHashMap<u64, u32>,
    before: Before,
}

/// Where a use of memory stands in what its block says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tag {
    pub block: u64,
    /// How often the block had released before.
    pub releases: u32,
    /// Strong, at `.sys` scope: such accesses do not race with each other.
    pub strong: bool,
}

impl Talk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something that operation `op` did has been heard of: at this place, or all of it if a later operation was.
    pub(crate) fn covers(&self, op: u32, tag: Option<Tag>) -> bool {
        self.state().heard.iter().any(|heard| match tag {
            Some(tag) if heard.op == op => heard.blocks.get(&tag.block).is_some_and(|&n| n > tag.releases),
            _ => heard.op != op && (heard.before)(op),
        })
    }
}

impl State {
    /// Hears what this value carries, unless it has not changed since it was heard.
    fn hear(&mut self, at: u64, listener: u32, heard: u64) {
        let Some(carried) = self.said.get(&at).filter(|carried| carried.since > heard) else { return };
        for said in carried.said.iter().filter(|said| said.op != listener) {
            let heard = match self.heard.iter_mut().position(|h| h.op == said.op) {
                Some(at) => &mut self.heard[at],
                None => {
                    // Of what comes before it all has been heard.
                    self.heard.retain(|h| !(said.before)(h.op));
                    let (op, before) = (said.op, said.before.clone());
                    self.heard.push(Heard { op, blocks: FxHashMap::default(), before });
                    let last = self.heard.len() - 1;
                    &mut self.heard[last]
                }
            };
            let releases = heard.blocks.entry(said.block).or_default();
            *releases = said.releases.max(*releases);
        }
    }
}

impl Carried {
    fn say(&mut self, said: Said) {
        match self.said.iter_mut().find(|s| (s.op, s.block) == (said.op, said.block)) {
            Some(earlier) => earlier.releases = said.releases.max(earlier.releases),
            None => self.said.push(said),
        }
    }
}

/// What one launch says and hears, and what it uses meanwhile.
pub(crate) struct Conversation {
    speaker: Speaker,
    op: u32,
    /// Addresses that were about to be read by acquiring loads.
    listens: Vec<u64>,
    /// By address, how often anything had been said when its value was heard last.
    known: FxHashMap<u64, u64>,
    uses: BTreeMap<Tag, Vec<Use>>,
}

/// The same of a block.
#[derive(Default)]
pub(crate) struct Voice {
    releases: u32,
    /// By warp, the release that its last releasing fence was.
    fenced: FxHashMap<u32, u32>,
    /// By warp, what relaxed loads have read: a fence may follow.
    seen: FxHashMap<u32, Vec<u64>>,
}

/// A strong access of `.sys` scope to one address.
pub(crate) struct Word {
    pub at: u64,
    pub reads: bool,
    pub writes: bool,
    pub acquires: bool,
    pub releases: bool,
}

impl Conversation {
    pub(crate) fn new(speaker: Speaker, op: u32) -> Conversation {
        Conversation { speaker, op, listens: Vec::new(), known: FxHashMap::default(), uses: BTreeMap::new() }
    }

    /// What was about to be read has been read: it is known what came along.
    pub(crate) fn listen(&mut self) {
        if self.listens.is_empty() {
            return;
        }
        // What a value carries is said before it is written, and this one has been read.
        let said = self.speaker.talk.said.load(Ordering::SeqCst);
        let known = &mut self.known;
        self.listens.retain(|at| known.get(at).is_none_or(|&heard| heard != said));
        if self.listens.is_empty() {
            return;
        }
        let mut state = self.speaker.talk.state();
        for at in self.listens.drain(..) {
            let heard = known.insert(at, said).unwrap_or_default();
            state.hear(at, self.op, heard);
        }
    }

    /// A fence of `.sys` scope.
    pub(crate) fn fence(&mut self, voice: &mut Voice, warp: u32, acquires: bool, releases: bool) {
        if acquires {
            self.listens.extend(voice.seen.remove(&warp).unwrap_or_default());
            self.listen();
        }
        if releases {
            voice.releases += 1;
            voice.fenced.insert(warp, voice.releases);
        }
    }

    /// A strong access of `.sys` scope, before it happens.
    pub(crate) fn word(&mut self, voice: &mut Voice, (block, warp): (u64, u32), word: &Word) {
        if word.writes {
            voice.releases += u32::from(word.releases);
            let releases = if word.releases { Some(voice.releases) } else { voice.fenced.get(&warp).copied() };
            let mut state = self.speaker.talk.state();
            let carried = state.said.entry(word.at).or_default();
            carried.since = self.speaker.talk.said.fetch_add(1, Ordering::SeqCst) + 1;
            // A read-modify-write continues what it read.
            if !word.reads {
                carried.said.clear();
            }
            if let Some(releases) = releases {
                carried.say(Said { op: self.op, block, releases, before: self.speaker.before.clone() });
            }
        }
        if word.reads && word.acquires {
            self.listens.push(word.at);
        } else if word.reads {
            let seen = voice.seen.entry(warp).or_default();
            if !seen.contains(&word.at) {
                seen.push(word.at);
            }
        }
    }

    /// Bytes of global memory are used.
    pub(crate) fn used(&mut self, voice: &Voice, strong: bool, used: Use) {
        let tag = Tag { block: used.3.1.0, releases: voice.releases, strong };
        let list = self.uses.entry(tag).or_default();
        list.push(used);
        // Loops access side by side: what is joined now and then stays short.
        if list.len() >= 4096 && list.len().is_power_of_two() {
            *list = joined(std::mem::take(list));
        }
    }

    /// All that was used, by place.
    pub(crate) fn end(mut self) -> Vec<(Tag, Vec<Use>)> {
        self.listen();
        self.uses.into_iter().map(|(tag, list)| (tag, joined(list))).collect()
    }
}
