//! Launches that talk to each other while they run: flags and atomics of `.sys` scope order what their blocks do, on one device
//! or on several.
//!
//! A block that releases at that scope says how often it has done so. Who acquires what it wrote has heard of all that the block
//! did before, and of all that the host ordered before its launch. What one launch has heard all know, like what threads of the
//! host have waited for: this misses an edge that a third launch would need, and invents none.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
}

#[derive(Default)]
struct State {
    /// By address, what its value carries.
    said: HashMap<u64, Vec<Said>>,
    heard: Vec<Heard>,
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
    blocks: HashMap<u64, u32>,
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
    fn hear(&mut self, at: u64, listener: u32) {
        for said in self.said.get(&at).into_iter().flatten().filter(|said| said.op != listener) {
            let heard = match self.heard.iter_mut().position(|h| h.op == said.op) {
                Some(at) => &mut self.heard[at],
                None => {
                    // Of what comes before it all has been heard.
                    self.heard.retain(|h| !(said.before)(h.op));
                    let (op, before) = (said.op, said.before.clone());
                    self.heard.push(Heard { op, blocks: HashMap::new(), before });
                    let last = self.heard.len() - 1;
                    &mut self.heard[last]
                }
            };
            let releases = heard.blocks.entry(said.block).or_default();
            *releases = said.releases.max(*releases);
        }
    }
}

/// What one launch says and hears, and what it uses meanwhile.
pub(crate) struct Conversation {
    speaker: Speaker,
    op: u32,
    /// Addresses that were about to be read by acquiring loads.
    listens: Vec<u64>,
    uses: BTreeMap<Tag, Vec<Use>>,
}

/// The same of a block.
#[derive(Default)]
pub(crate) struct Voice {
    releases: u32,
    /// By warp, the release that its last releasing fence was.
    fenced: HashMap<u32, u32>,
    /// By warp, what relaxed loads have read: a fence may follow.
    seen: HashMap<u32, Vec<u64>>,
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
        Conversation { speaker, op, listens: Vec::new(), uses: BTreeMap::new() }
    }

    /// What was about to be read has been read: it is known what came along.
    pub(crate) fn listen(&mut self) {
        if self.listens.is_empty() {
            return;
        }
        let mut state = self.speaker.talk.state();
        self.listens.drain(..).for_each(|at| state.hear(at, self.op));
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
            let said = state.said.entry(word.at).or_default();
            // A read-modify-write continues what it read.
            if !word.reads {
                said.clear();
            }
            let before = self.speaker.before.clone();
            said.extend(releases.map(|releases| Said { op: self.op, block, releases, before }));
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
