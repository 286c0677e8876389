//! Ranks as processes, over TCP: what a rank has is copied to the host, goes to the others, and what comes of it is copied back. It needs
//! neither NCCL nor devices that reach each other, and takes the time of copies, of the network and of sums on the host.
//!
//! The exchange is [work of the host](warpsmith_runtime::HostWork) in the order of the stream, so that it is issued, or recorded in a graph,
//! like any other. Every rank is connected with every other, and a thread for each takes in what comes; so nobody who sends waits for
//! long, and a rank whose process ends is noticed at once by those that wait for it.

mod exchange;
mod frame;
mod links;

use crate::world::Purpose;
use crate::{Collective, Elements, Error, On, Operation, World, mesh};
use exchange::exchange;
use frame::Call;
use links::Links;
use std::sync::Arc;
use std::time::Duration;
use warpsmith_runtime::{Device, Event, HostWork, Passage, Pinned, Stream};

/// How ranks over TCP are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// Bytes of page-locked memory that are staged at a time; all-reduce, broadcast and messages of more go in parts.
    pub capacity: usize,
    /// For how long a rank waits for another: to meet, and in each exchange.
    pub timeout: Duration,
}

impl Default for SocketOptions {
    fn default() -> SocketOptions {
        SocketOptions { capacity: 4 << 20, timeout: Duration::from_secs(60) }
    }
}

/// A rank of a group of processes. Threads can be ranks as well where host functions of several devices run side by side, as on the software
/// driver; CUDA does not promise that.
///
/// What it issues goes through one piece of staging memory: its operations follow one another, on whatever streams, as they were issued.
/// Recorded ones follow one another where their graphs do. A group that has failed stays so; what was issued then ends without its results.
pub struct Sockets {
    links: Arc<Links>,
    staging: Pinned<u8>,
    options: SocketOptions,
}

impl Sockets {
    /// A rank of `world`, for a device of this process. All ranks make the call.
    ///
    /// # Errors
    /// [`Error::Missing`] with the ranks that did not come in time, [`Error::Rendezvous`] for ranks that cannot be a group, and failed
    /// allocations.
    pub fn join(world: &World, device: &Device, options: SocketOptions) -> Result<Sockets, Error> {
        // Whole elements, also of slices.
        let capacity = options.capacity.max(4 * world.ranks as usize) / 4 * 4;
        let staging = device.pinned(capacity)?;
        let streams = mesh::connect(world, Purpose::Sockets, options.timeout)?;
        let links = Links::new(world.rank, streams, options.timeout).map_err(|error| world.failed(error))?;
        Ok(Sockets { links: Arc::new(links), staging, options: SocketOptions { capacity, ..options } })
    }

    fn issue_part(
        &self,
        on: &mut On<'_, '_>,
        call: Call,
        elements: &mut Elements<'_>,
        first: usize,
    ) -> Result<(), Error> {
        let links = self.links.clone();
        let work: HostWork<u8> = Arc::new(move |bytes| exchange(&links, call, bytes));
        let passage = match call.operation {
            Operation::Send { .. } => Passage::There,
            Operation::Receive { .. } => Passage::Back,
            Operation::Broadcast { root } if root != self.links.rank() => Passage::Back,
            Operation::Broadcast { .. } => Passage::There,
            _ => Passage::Both,
        };
        let part = elements.bytes(first, call.len);
        Ok(match on {
            On::Stream(stream) => stream.through_host(part, &self.staging, passage, work),
            On::Capture(capture) => capture.through_host(part, &self.staging, passage, work),
        }?)
    }
}

impl Collective for Sockets {
    fn rank(&self) -> u32 {
        self.links.rank()
    }

    fn ranks(&self) -> u32 {
        self.links.ranks()
    }

    fn issue(&self, mut on: On<'_, '_>, operation: Operation, mut x: Elements<'_>) -> Result<(), Error> {
        operation.check(self.rank(), self.ranks(), x.len(), 1)?;
        self.links.usable()?;
        let (len, kind) = (x.len(), x.kind());
        let most = self.options.capacity / (2 * kind.halves());
        let whole = matches!(operation, Operation::ReduceScatter(_) | Operation::AllGather);
        if whole && len > most {
            return Err(Error::TooLong { operation: operation.name(), len, most });
        }
        for first in (0..len).step_by(most) {
            let call = Call { operation, kind, len: most.min(len - first), timeout: self.options.timeout };
            self.issue_part(&mut on, call, &mut x, first)?;
        }
        Ok(())
    }

    fn wait(&self, _: &Stream, mark: Event) -> Result<(), Error> {
        let mut pause = Duration::from_micros(20);
        // An exchange that fails ends, and so do those behind it.
        while !mark.is_done()? {
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(2));
        }
        self.links.usable()
    }

    fn leave(&self) {
        self.links.leave("it failed");
    }
}
