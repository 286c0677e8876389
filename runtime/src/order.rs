//! The order of work on different streams.
//!
//! The rule: *memory knows which streams used it last, and another stream waits for them.* An operation that writes waits for
//! what reads and wrote the same allocation before, one that reads for what wrote it. So what a safe program computes does not
//! depend on which streams it uses.
//!
//! What it costs: nothing is asked of the driver while one stream uses the memory. Where another one does, and the host, an event
//! or an earlier wait has not ordered the two already, an event is recorded behind the work of the first, and the second waits
//! for it. It is kept by allocation: two streams that write different parts of one buffer take turns.
//!
//! Each operation of a stream has a number. A [`Lane`] knows up to which its operations were issued, and up to which they are
//! known to have ended. An operation notes its number with the memory it uses before it is issued, all of it under one lock, and
//! then waits for the numbers that it found there. Whom it waits for noted its own before; so nobody waits in a circle.

use crate::Error;
use crate::memory::{Allocation, lock};
use crate::sys::{self, cu};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use warpsmith_driver_api::{CUcontext, CUevent, CUstream};

/// Memory that an operation uses, and whether it writes there.
pub type Use = (Arc<Allocation>, bool);

/// A stream, as far as the order of its work goes. What remembers it may outlive the stream.
pub struct Lane {
    pub id: u64,
    /// That of its stream's device.
    context: CUcontext,
    /// Held while an operation is issued: the number of the last one.
    turn: Mutex<u64>,
    issued: Mutex<u64>,
    changed: Condvar,
    ended: AtomicU64,
    place: Mutex<WaitPoint>,
    /// Up to which numbers of other lanes this one has waited.
    known: Mutex<HashMap<u64, u64>>,
}

/// Where others wait for a lane.
enum WaitPoint {
    /// Behind what the stream was given so far.
    Stream(CUstream),
    /// The stream is being captured: behind what it was given before.
    Before(Option<OrderEvent>),
    /// Its work has ended.
    Ended,
}

/// Other lanes that are remembered; beyond these all are forgotten, which costs a wait too many.
const KNOWN: usize = 256;

/// Taken while the numbers of an operation are noted with all of its memory.
static NOTING: Mutex<()> = Mutex::new(());

/// An event without a time.
struct OrderEvent(CUevent);

impl OrderEvent {
    /// At the end of what a stream was given so far.
    ///
    /// # Safety
    /// The stream is alive and not being captured; its device's context is current.
    unsafe fn record(stream: CUstream) -> Result<OrderEvent, Error> {
        let mut raw = CUevent::NULL;
        // SAFETY: `raw` is a live pointer variable; the stream is the caller's promise.
        unsafe {
            cu!(cuEventCreate(&mut raw, sys::EVENT_DISABLE_TIMING))?;
            let event = OrderEvent(raw);
            cu!(cuEventRecord(raw, stream))?;
            Ok(event)
        }
    }

    /// # Safety
    /// The stream is alive, and its device's context is current.
    unsafe fn hold_back(&self, stream: CUstream) -> Result<(), Error> {
        // SAFETY: the event lives as long as `self`; the stream is the caller's promise.
        unsafe { cu!(cuStreamWaitEvent(stream, self.0, 0)) }
    }
}

impl Drop for OrderEvent {
    fn drop(&mut self) {
        // SAFETY: made by `record`, destroyed here only; the driver keeps what streams still wait for.
        let _ = unsafe { cu!(cuEventDestroy_v2(self.0)) };
    }
}

impl Lane {
    pub fn new(id: u64, stream: CUstream, context: CUcontext) -> Arc<Lane> {
        Arc::new(Lane {
            id,
            context,
            turn: Mutex::new(0),
            issued: Mutex::new(0),
            changed: Condvar::new(),
            ended: AtomicU64::new(0),
            place: Mutex::new(WaitPoint::Stream(stream)),
            known: Mutex::default(),
        })
    }

    /// Issues an operation behind everything that used its memory on other lanes.
    ///
    /// # Safety
    /// `stream` is this lane's, alive and not being captured; its device's context is current.
    pub unsafe fn issue<'a, R>(
        self: &Arc<Lane>,
        stream: CUstream,
        uses: impl IntoIterator<Item = &'a Use>,
        operation: impl FnOnce() -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut turn = lock(&self.turn);
        *turn += 1;
        // Whatever happens, nobody waits for its issue afterwards.
        let number = Issued { lane: self, number: *turn };
        for (other, upto) in self.note(number.number, uses) {
            // SAFETY: the caller's promise.
            unsafe { self.follow(stream, &other, upto) }?;
        }
        operation()
    }

    /// Notes an operation with its memory. What it has to wait for: other lanes, up to a number.
    fn note<'a>(self: &Arc<Lane>, number: u64, uses: impl IntoIterator<Item = &'a Use>) -> Vec<(Arc<Lane>, u64)> {
        let mut waits = Vec::new();
        let _all_or_nothing = lock(&NOTING);
        for (memory, writes) in uses {
            lock(&memory.uses).note(self, number, *writes, &mut waits);
        }
        waits
    }

    /// Makes `stream` wait for the operations of another lane up to a number.
    ///
    /// # Safety
    /// As for [`Lane::issue`].
    unsafe fn follow(&self, stream: CUstream, other: &Lane, upto: u64) -> Result<(), Error> {
        let known = lock(&self.known).get(&other.id).is_some_and(|&n| n >= upto);
        if known || other.ended.load(Ordering::Acquire) >= upto {
            return Ok(());
        }
        let reached = other.wait_until_issued(upto);
        match &*lock(&other.place) {
            // SAFETY: a stream is destroyed only after its lane says `Ended`, and captured only while it says `Before`;
            // the rest is the caller's promise.
            WaitPoint::Stream(raw) => unsafe { self.record_on(other, *raw)?.hold_back(stream) }?,
            // SAFETY: the caller's promise.
            WaitPoint::Before(Some(event)) => unsafe { event.hold_back(stream) }?,
            WaitPoint::Before(None) | WaitPoint::Ended => {}
        }
        self.knows(other.id, reached);
        Ok(())
    }

    /// An event behind the work of another lane's stream, which is of the same device or of one that it has copied to or from.
    ///
    /// # Safety
    /// That stream is alive and not being captured; the context of this lane is current.
    unsafe fn record_on(&self, other: &Lane, stream: CUstream) -> Result<OrderEvent, Error> {
        if other.context == self.context {
            // SAFETY: the caller's promise.
            return unsafe { OrderEvent::record(stream) };
        }
        // An event is of the context that its stream is of.
        // SAFETY: the context of a live stream is alive.
        unsafe {
            cu!(cuCtxSetCurrent(other.context))?;
            let event = OrderEvent::record(stream);
            cu!(cuCtxSetCurrent(self.context))?;
            event
        }
    }

    fn wait_until_issued(&self, upto: u64) -> u64 {
        let mut issued = lock(&self.issued);
        while *issued < upto {
            issued = self.changed.wait(issued).unwrap_or_else(PoisonError::into_inner);
        }
        *issued
    }

    /// Takes note that this lane comes after the operations of another up to a number.
    pub fn knows(&self, other: u64, upto: u64) {
        let mut known = lock(&self.known);
        if known.len() >= KNOWN {
            known.clear();
        }
        let entry = known.entry(other).or_default();
        *entry = upto.max(*entry);
    }

    /// The number of the last operation that was issued.
    pub fn issued(&self) -> u64 {
        *lock(&self.issued)
    }

    /// Takes note that the operations up to a number have ended.
    pub fn ended(&self, upto: u64) {
        self.ended.fetch_max(upto, Ordering::AcqRel);
    }

    /// The stream is about to be captured: others wait for what came before.
    ///
    /// # Safety
    /// As for [`Lane::issue`].
    pub unsafe fn begin_capture(&self, stream: CUstream) -> Result<(), Error> {
        let idle = self.ended.load(Ordering::Acquire) >= self.issued();
        // SAFETY: the caller's promise.
        let before = if idle { None } else { Some(unsafe { OrderEvent::record(stream) }?) };
        *lock(&self.place) = WaitPoint::Before(before);
        Ok(())
    }

    /// It is captured no more.
    pub fn end_capture(&self, stream: CUstream) {
        *lock(&self.place) = WaitPoint::Stream(stream);
    }

    /// Waits, on the host, for the operations up to a number. The context is current.
    fn settle(&self, upto: u64) -> Result<(), Error> {
        if self.ended.load(Ordering::Acquire) >= upto {
            return Ok(());
        }
        self.wait_until_issued(upto);
        match &*lock(&self.place) {
            // SAFETY: a stream is destroyed only after its lane says `Ended`, and captured only while it says `Before`.
            WaitPoint::Stream(raw) => unsafe { cu!(cuStreamSynchronize(*raw)) }?,
            // SAFETY: the event lives as long as it stands there.
            WaitPoint::Before(Some(event)) => unsafe { cu!(cuEventSynchronize(event.0)) }?,
            WaitPoint::Before(None) | WaitPoint::Ended => {}
        }
        self.ended(upto);
        Ok(())
    }

    /// The stream's work has ended, and the stream is about to be destroyed.
    pub fn close(&self) {
        *lock(&self.place) = WaitPoint::Ended;
        self.ended(u64::MAX);
    }
}

/// Says that an operation was issued, or never will be, when it is dropped.
struct Issued<'a> {
    lane: &'a Lane,
    number: u64,
}

impl Drop for Issued<'_> {
    fn drop(&mut self) {
        *lock(&self.lane.issued) = self.number;
        self.lane.changed.notify_all();
    }
}

/// Who used an allocation last.
#[derive(Default)]
pub struct Uses {
    write: Option<Mark>,
    /// Since that.
    reads: Vec<Mark>,
}

struct Mark {
    lane: Arc<Lane>,
    number: u64,
}

impl Mark {
    fn has_ended(&self) -> bool {
        self.lane.ended.load(Ordering::Acquire) >= self.number
    }
}

impl Uses {
    /// Waits, on the host, for all of them. The context is current.
    pub fn settle(&self) -> Result<(), Error> {
        self.write.iter().chain(&self.reads).try_for_each(|mark| mark.lane.settle(mark.number))
    }

    fn note(&mut self, lane: &Arc<Lane>, number: u64, writes: bool, waits: &mut Vec<(Arc<Lane>, u64)>) {
        let others = self.write.iter().chain(self.reads.iter().filter(|_| writes));
        for mark in others.filter(|m| m.lane.id != lane.id && !m.has_ended()) {
            match waits.iter_mut().find(|(of, _)| of.id == mark.lane.id) {
                Some((_, upto)) => *upto = mark.number.max(*upto),
                None => waits.push((mark.lane.clone(), mark.number)),
            }
        }
        let same = |m: &&mut Mark| m.lane.id == lane.id;
        let new = || Mark { lane: lane.clone(), number };
        if writes {
            self.reads.clear();
            match self.write.as_mut().filter(same) {
                Some(mark) => mark.number = number,
                None => self.write = Some(new()),
            }
        } else {
            match self.reads.iter_mut().find(same) {
                Some(mark) => mark.number = number,
                None => {
                    self.reads.retain(|m| !m.has_ended());
                    self.reads.push(new());
                }
            }
        }
    }
}
