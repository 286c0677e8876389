//! Ranks in several processes of one machine, over handles of their memory.
//!
//! **To begin,** ranks are connected with each other as those over sockets are. Each tells all others the handle of its frame, opens theirs,
//! and tells whether it could; so that all of them become a group, or all are told who cannot reach whom.
//!
//! **While it lasts,** nothing goes over the connections. One that closes is a rank that has gone. What it did before is in the flags: a thread
//! looks whether kernels here wait for what it has not done, and only then has the group ended. A rank whose group has ended tells all others,
//! and lets its kernels go when all of them know, as what those leave in its frame means nothing.
//!
//! **In the end,** which is when the last of a rank and its graphs is dropped, its work is waited for, it closes the others' memory, and says
//! so. Its own is freed when all others have said so, or are gone. Where one does not in [`LEAVING`], the memory stays until the process ends.

mod links;
mod watch;
mod words;

use super::seat::{Seat, load};
use super::{Group, PeerOptions, Peers, words_of};
use crate::world::Purpose;
use crate::{Error, World, mesh};
use gpu_kernels::collective::MAX_RANKS;
use links::{Other, PeerLinks};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use warpsmith_device::DeviceAddress;
use warpsmith_runtime::{Buffer, BufferHandle, Device, KernelImage};
use words::Word;

/// For how long a rank that leaves waits for the others to close its memory, at most.
const LEAVING: Duration = Duration::from_secs(10);

/// The ranks of a group that other processes have.
pub struct Beyond {
    pub links: Arc<PeerLinks>,
    readers: Vec<JoinHandle<()>>,
    watch: Option<JoinHandle<()>>,
    /// Their frames, as far as they are open here.
    theirs: Vec<Buffer<u32>>,
}

/// What a rank tells of itself.
struct Introduction {
    /// What all have to have in common.
    same: String,
    machine: String,
    /// Or why it has none.
    handle: Result<BufferHandle, String>,
}

impl Introduction {
    fn text(&self) -> String {
        let (handle, why) = match &self.handle {
            Ok(handle) => (handle.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect(), ""),
            Err(why) => (String::new(), why.as_str()),
        };
        format!("{}\n{}\n{handle}\n{why}", self.same, self.machine)
    }

    fn of(text: &str) -> Option<Introduction> {
        let mut lines = text.splitn(4, '\n').map(str::to_owned);
        let (same, machine, digits, why) = (lines.next()?, lines.next()?, lines.next()?, lines.next()?);
        if digits.is_empty() {
            return Some(Introduction { same, machine, handle: Err(why) });
        }
        let byte = |i: usize| digits.get(2 * i..2 * i + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
        let bytes: Vec<u8> = (0..digits.len() / 2).map_while(byte).collect();
        Some(Introduction { same, machine, handle: Ok(BufferHandle::from_bytes(bytes.try_into().ok()?)) })
    }

    /// Its frame of so many words, opened on a device.
    fn open(&self, device: &Device, machine: &str, words: usize) -> Result<Buffer<u32>, String> {
        if self.machine != machine {
            return Err("it is on another machine".to_owned());
        }
        let handle = self.handle.clone().map_err(|why| format!("it has no handle: {why}"))?;
        // SAFETY: who has made it frees it when it was closed here, and kernels order what they do there by flags.
        let frame = unsafe { device.open_buffer::<u32>(handle) }.map_err(|error| error.to_string())?;
        if frame.len() == words { Ok(frame) } else { Err(format!("it has {} words, not {words}", frame.len())) }
    }
}

/// What tells this machine from others, as long as it runs.
fn machine() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

impl Peers {
    /// A rank of `world`, whose ranks are processes of one machine, on a device that reaches those of all others. `image` has the kernels of
    /// `gpu-kernels`. All ranks make the call, with the same options, and wait for each other.
    ///
    /// # Errors
    /// [`Error::Unreachable`], on all ranks, where one of them cannot get at the memory of another; [`Error::Missing`] with the ranks that did
    /// not come in time, [`Error::Lost`] with one that came and went; [`Error::Rendezvous`] for ranks that cannot be a group; more ranks than
    /// there can be, and failed allocations.
    pub fn join(world: &World, device: &Device, image: &KernelImage, options: PeerOptions) -> Result<Peers, Error> {
        let (start, ranks, rank) = (Instant::now(), world.ranks, world.rank);
        if !(1..=MAX_RANKS).contains(&ranks) {
            return Err(Error::Ranks { ranks: ranks as usize, most: MAX_RANKS });
        }
        load(device, image)?;
        let capacity = words_of(&options);
        let seat = Arc::new(Seat::new(device, (rank, ranks), capacity)?);
        let beside = device.stream()?;
        let streams = mesh::connect(world, Purpose::Peers, options.timeout)?;
        let (links, readers) = PeerLinks::new(rank, streams).map_err(|error| world.failed(error))?;
        let watch = {
            let (seat, links) = (seat.clone(), links.clone());
            let named = std::thread::Builder::new().name(format!("watch of rank {rank}"));
            named.spawn(move || watch::watch(&seat, &links, &beside, options.timeout))
        };
        let mut beyond = Beyond { links, readers, watch: None, theirs: Vec::new() };
        let met = watch.map_err(|error| world.failed(error)).and_then(|watch| {
            beyond.watch = Some(watch);
            beyond.meet(world, &seat, options, start + options.timeout)
        });
        let table = met.and_then(|addresses| seat.table(&addresses));
        let (tables, failure) = match table {
            Ok(table) => (vec![table], None),
            Err(error) => (Vec::new(), Some(error)),
        };
        // Where it has failed, dropping it leaves the others.
        let missing = Mutex::default();
        let group =
            Arc::new(Group { seats: vec![seat], tables, ranks, capacity, options, missing, beyond: Some(beyond) });
        failure.map_or(Ok(Peers { rank, place: 0, group }), Err)
    }
}

impl Beyond {
    /// Exchanges handles, and opens the frames of all others; the addresses of all frames here.
    fn meet(
        &mut self,
        world: &World,
        seat: &Seat,
        options: PeerOptions,
        until: Instant,
    ) -> Result<Vec<DeviceAddress>, Error> {
        let (rank, words) = (seat.rank, seat.frame.len());
        let same = format!("{} bytes at a time and {:?}", options.capacity, options.shots);
        let own = Introduction { same, machine: machine(), handle: seat.frame.handle().map_err(|e| e.to_string()) };
        self.links.tell(&Word::Frame(own.text()));
        self.all_have(seat, until, options.timeout, |other| other.frame.is_some())?;
        let (mut addresses, mut refused) = (Vec::new(), None);
        for (number, other) in (0..).zip(self.links.all()) {
            if number == rank {
                addresses.push(seat.frame.address());
                continue;
            }
            let theirs = other.frame.as_deref().and_then(Introduction::of);
            let theirs = theirs.ok_or_else(|| world.failed(format!("rank {number} brings something else")))?;
            if theirs.same != own.same {
                let reason = format!("rank {number} stages {}, rank {rank} {}", theirs.same, own.same);
                return Err(world.failed(reason));
            }
            match theirs.open(&seat.device, &own.machine, words) {
                Ok(frame) => {
                    addresses.push(frame.address());
                    self.theirs.push(frame);
                }
                Err(reason) => refused = refused.or(Some((number, reason))),
            }
        }
        self.links.tell(&Word::Opened(refused.clone()));
        self.all_have(seat, until, options.timeout, |other| other.opened.is_some())?;
        let told = (0..).zip(self.links.all()).map(|(number, other)| match number == rank {
            true => (number, refused.clone()),
            false => (number, other.opened.flatten()),
        });
        // All ranks say the same.
        match told.into_iter().find_map(|(rank, refused)| refused.map(|(other, reason)| (rank, other, reason))) {
            Some((rank, other, reason)) => Err(Error::Unreachable { rank, other, reason }),
            None => Ok(addresses),
        }
    }

    fn all_have(
        &self,
        seat: &Seat,
        until: Instant,
        waited: Duration,
        has: impl Fn(&Other) -> bool,
    ) -> Result<(), Error> {
        let without = self.links.wait_until(until, has);
        let rank = seat.rank;
        match without.iter().find(|(_, other)| other.is_away()) {
            Some((lost, _)) => {
                let reason = "it has gone before the group began".to_owned();
                Err(Error::Lost { rank, lost: *lost, reason })
            }
            None if without.is_empty() => Ok(()),
            None => Err(Error::Missing { rank, missing: without.into_iter().map(|(rank, _)| rank).collect(), waited }),
        }
    }

    /// Leaves the others, whose memory is closed here. Whether they have all closed that of this rank.
    pub fn part(&mut self, seat: &Seat, timeout: Duration) -> bool {
        self.links.closing(Instant::now() + timeout);
        // An error has nobody to be told; the memory is then not reached any more.
        let _ = seat.device.synchronize();
        self.links.stop_watch();
        if let Some(watch) = self.watch.take() {
            // It has ended or panicked; neither matters any more.
            let _ = watch.join();
        }
        self.theirs.clear();
        self.links.tell(&Word::Bye);
        let still = self.links.wait_until(Instant::now() + timeout.min(LEAVING), Other::is_away);
        self.links.close();
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        still.is_empty()
    }
}
