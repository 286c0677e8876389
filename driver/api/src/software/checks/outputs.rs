//! What a program is told by its kernels: a digest of every copy from a device to the host, for `warpsmith check --seeds`,
//! which compares them between schedules.
//!
//! Copies are kept by the thread that issued them, in its order: that does not depend on how threads overtake each other.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hasher};
use std::sync::Mutex;

use warpsmith_check::HostSite;
use warpsmith_check::record::{self, CopiedBy, Record};

use super::caller;
use crate::lock::lock;
use crate::software::tables::{
    ops::{Copy, Place},
    software::engine,
};

/// Copies of a thread that are kept one by one; those after go into one digest.
const MOST: usize = 1 << 16;
/// Device addresses lie above those of host memory.
const DEVICE_BASE: u64 = 1 << 48;
static OUTPUTS: Mutex<Option<Outputs>> = Mutex::new(None);

#[derive(Default)]
struct Outputs {
    threads: BTreeMap<u64, ThreadCopies>,
    sites: Vec<HostSite>,
    known: HashMap<Vec<usize>, usize>,
}

/// The copies of a thread.
#[derive(Default)]
struct ThreadCopies {
    copies: Vec<Copied>,
    more: u64,
    rest: DefaultHasher,
}

struct Copied {
    site: usize,
    bytes: u64,
    digest: u64,
}

/// A copy is done.
pub(crate) fn copied(op: &Copy) {
    let to_host = op.dst.device.is_none() || op.dst.address < DEVICE_BASE;
    let (Some(device), true, true) = (op.src.device, to_host, caller::keeps_outputs()) else { return };
    let Some(digest) = digest(device, &op.src, op) else { return };
    let (key, trace) = caller::output_lane();
    let known = lock(&OUTPUTS).get_or_insert_with(Outputs::default).known.get(&trace).copied();
    // Names are looked up once for each place.
    let site = known.is_none().then(caller::site);
    let mut guard = lock(&OUTPUTS);
    let Outputs { threads, sites, known } = guard.get_or_insert_with(Outputs::default);
    let site = *known.entry(trace).or_insert_with(|| {
        let site = site.unwrap_or_default();
        sites.iter().position(|s| *s == site).unwrap_or_else(|| {
            sites.push(site);
            sites.len() - 1
        })
    });
    let lane = threads.entry(key).or_default();
    let bytes = (op.width * op.height * op.depth) as u64;
    if lane.copies.len() < MOST {
        lane.copies.push(Copied { site, bytes, digest });
    } else {
        lane.more += 1;
        lane.rest.write_u64(bytes);
        lane.rest.write_u64(digest);
    }
}

/// Of what the copy has read; its source is as it was.
fn digest(device: i32, src: &Place, op: &Copy) -> Option<u64> {
    let found = engine().and_then(|e| e.device(device)).ok()?;
    let mut hasher = DefaultHasher::new();
    let mut row = vec![0u8; op.width];
    for z in 0..op.depth {
        for y in 0..op.height {
            let address = src.address.wrapping_add((z * src.slice + y * src.pitch) as u64);
            found.machine.memory().read(address, &mut row).ok()?;
            hasher.write(&row);
        }
    }
    Some(hasher.finish())
}

/// All of it, for the report file; `None` if it is not wanted.
pub(super) fn record() -> Option<Record> {
    let outputs = OUTPUTS.try_lock();
    let (true, Ok(guard)) = (caller::keeps_outputs(), outputs) else { return None };
    let empty = Outputs::default();
    let outputs = guard.as_ref().unwrap_or(&empty);
    let hexadecimal = |digest: u64| format!("{digest:016x}");
    let threads = outputs.threads.values().map(|lane| CopiedBy {
        copies: lane.copies.iter().map(|c| (c.site, c.bytes, hexadecimal(c.digest))).collect(),
        more: lane.more,
        rest: hexadecimal(lane.rest.finish()),
    });
    let process = std::process::id();
    Some(Record::Outputs(record::Outputs { process, sites: outputs.sites.clone(), threads: threads.collect() }))
}
