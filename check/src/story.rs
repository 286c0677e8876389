//! How undefined data came to where it is: told by the launch that stored it, kept until somebody reads it.
//!
//! Memory holds only a number for each four undefined bytes (see `shadow`). What the number stands for is kept here for the
//! whole process, since kernels of one device store to the memory of another: one story for each pair of a place that stored
//! and a place that the undefined data was first read at. A later launch of the same kernel tells its stories anew.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use warpsmith_simt::{Nearest, Origin};

use super::defect::{Defect, OutputPast, Undefined};
use super::{Finding, Rule, Severity, Site};

/// Stories of a process beyond which no more are kept.
const MOST: usize = 1 << 16;
/// The number of a story that was not kept.
const FORGOTTEN: u32 = u32::MAX;

/// What is known of some undefined data.
#[derive(Clone, Debug, Default)]
pub(crate) struct Story {
    /// The kernel that stored it; empty if none did.
    pub kernel: String,
    /// The store, and where the data was read that it depends on.
    pub sites: Vec<Site>,
    /// The data that was undefined first.
    pub source: Option<Undefined>,
    /// Its address, if it is global memory.
    pub address: Option<u64>,
    /// A copy within the device has brought it, from there.
    pub copied: Option<Nearest>,
    /// A finding of the launch that explains it.
    pub follows: Option<Rule>,
}

impl Story {
    /// Takes over what is known of data that was read with the story of `number`.
    pub(crate) fn inherit(&mut self, number: u32, sites: &mut Vec<Site>) {
        let Some(before) = told(number) else { return };
        let own = |s: &Site| match before.kernel.is_empty() {
            true => s.clone(),
            false => Site { kind: s.kind.clone().by(&before.kernel), ..s.clone() },
        };
        sites.extend(before.sites.iter().map(own));
        self.source = before.source.clone().or(before.copied.map(Undefined::Copied));
        self.address = before.address;
    }
}

/// What tells stories apart: a program by its address, and positions in it; or allocations that were copied.
pub(crate) type StoryKey = (u64, u64, u64);

#[derive(Default)]
struct Table {
    numbers: HashMap<StoryKey, u32>,
    list: Vec<Option<Arc<Story>>>,
}

static TABLE: Mutex<Option<Table>> = Mutex::new(None);

fn table() -> MutexGuard<'static, Option<Table>> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number for a story that will be told.
pub(crate) fn number(key: StoryKey) -> u32 {
    let mut table = table();
    let table = table.get_or_insert_with(Table::default);
    if let Some(&known) = table.numbers.get(&key) {
        return known;
    }
    if table.list.len() >= MOST {
        return FORGOTTEN;
    }
    table.list.push(None);
    let number = table.list.len() as u32;
    table.numbers.insert(key, number);
    number
}

/// Tells the story of a number.
pub(crate) fn tell(number: u32, story: Story) {
    let at = (number as usize).wrapping_sub(1);
    if let Some(slot) = table().as_mut().and_then(|t| t.list.get_mut(at)) {
        *slot = Some(Arc::new(story));
    }
}

/// The story of a number, if it has one and it is told.
pub(crate) fn told(number: u32) -> Option<Arc<Story>> {
    let at = (number as usize).checked_sub(1)?;
    table().as_ref()?.list.get(at)?.clone()
}

/// The number of the story that a copy within a device has brought what nothing had given a value.
pub(crate) fn copied(from: u64, to: u64, at: &Nearest) -> u32 {
    let number = number((u64::MAX, from, to));
    tell(number, Story { address: Some(at.address), copied: Some(*at), ..Story::default() });
    number
}

/// The finding that a copy of `bytes` bytes takes `undefined` undefined ones to the host, the first of which is at `nearest`.
pub(crate) fn output(bytes: u64, undefined: u64, nearest: &Nearest, Origin { number, writer }: Origin) -> Finding {
    let (mut kernel, mut sites, mut addresses) = (String::new(), Vec::new(), vec![nearest.address]);
    let past = match (told(number), told(writer)) {
        (Some(story), _) => {
            kernel.clone_from(&story.kernel);
            match (story.follows, story.copied) {
                (Some(rule), _) => OutputPast::Follows(rule),
                (None, copied) => {
                    sites.clone_from(&story.sites);
                    addresses.extend(story.address);
                    copied.map_or_else(|| OutputPast::Stored(story.source.clone()), OutputPast::Copied)
                }
            }
        }
        (None, _) if number != 0 => OutputPast::Forgotten,
        (None, Some(writer)) => {
            kernel.clone_from(&writer.kernel);
            sites.clone_from(&writer.sites);
            OutputPast::WrittenElsewhere
        }
        (None, None) => OutputPast::Unwritten,
    };
    let defect = Defect::UndefinedOutput { bytes, undefined, nearest: *nearest, past };
    Finding { kernel, sites, addresses, ..Finding::new(Rule::UndefinedOutput, Severity::Error, defect) }
}
