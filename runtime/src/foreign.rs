//! Handles of other code on the same driver: contexts, streams, events, memory and graphs of `cust`, `cudarc` and others.
//!
//! The driver knows one kind of each, whoever made it. What this crate borrows it uses like its own, and does not destroy; the
//! functions are `unsafe`, since nothing but the caller knows how long a handle lives and what else is done with it.

use crate::capture::{Capture, Recorded, Template, count_nodes, failed};
use crate::launch::Owners;
use crate::memory::{Allocation, Place, unique_id};
use crate::ops;
use crate::stream::StreamInner;
use crate::sys::{code, cu};
use crate::{Buffer, Device, Error, Event, Graph, Stream};
use std::ffi::c_void;
use std::sync::{Arc, Mutex};
use warpsmith_device::{DeviceSlice, Element};
use warpsmith_driver_api::{CUcontext, CUevent, CUgraph, CUstream};

/// Refuses where handles of another driver would reach one that follows them blindly.
pub fn one_driver(call: &'static str) -> Result<(), Error> {
    match (warpsmith_driver_api::engine(), warpsmith_driver_api::other_driver()) {
        (Some(ours @ warpsmith_driver_api::Engine::Cuda { .. }), Some(other)) => {
            Err(Error::TwoDrivers { call, ours: ours.to_string(), other })
        }
        _ => Ok(()),
    }
}

/// Says that there are two drivers, if that is why one of them does not know a handle.
pub fn explain(call: &'static str, error: Error) -> Error {
    let unknown = matches!(error, Error::Driver { code: code::INVALID_CONTEXT | code::INVALID_HANDLE, .. });
    match (warpsmith_driver_api::engine(), warpsmith_driver_api::other_driver()) {
        (Some(ours), Some(other)) if unknown => Error::TwoDrivers { call, ours: ours.to_string(), other },
        _ => error,
    }
}

impl Stream {
    /// A stream of other code, a `CUstream`. Dropping it waits for its work, and leaves it alive.
    ///
    /// What this crate issues on it is ordered with other streams of this crate by the memory that they use; what the other code
    /// issues is not seen.
    ///
    /// # Safety
    /// `raw` is a live stream, and stays so until this one has been dropped. Work that other code issues on it, or elsewhere, is
    /// ordered with what this crate does to the same memory.
    pub unsafe fn from_raw(device: &Device, raw: *mut c_void) -> Result<Stream, Error> {
        const CALL: &str = "Stream::from_raw";
        device.inner.enter(CALL)?;
        one_driver(CALL)?;
        let mut context = CUcontext::NULL;
        // SAFETY: the caller's promise; `context` is a live pointer variable.
        unsafe { cu!(cuStreamGetCtx(CUstream(raw), &mut context)) }.map_err(|error| explain(CALL, error))?;
        if context != device.inner.raw_context() {
            return Err(Error::ForeignContext { call: CALL });
        }
        Ok(Stream::of(&device.inner, CUstream(raw), true))
    }

    /// Lets other code issue on the stream, behind what used `memory` on other streams; they wait for it in turn. `f` gets the
    /// `CUstream`, and what it gives is given back.
    ///
    /// # Errors
    /// A stream that is being captured ([`Capture::foreign`] is for those), memory of another device, and those of the driver.
    ///
    /// # Safety
    /// `f` issues on that stream alone, and what it issues touches this memory alone, or what nobody else uses meanwhile.
    pub unsafe fn foreign<T: Element, R>(
        &self,
        memory: &mut DeviceSlice<T>,
        f: impl FnOnce(*mut c_void) -> R,
    ) -> Result<R, Error> {
        const CALL: &str = "Stream::foreign";
        self.inner.issue(CALL, |stream| {
            let uses = ops::target(&self.inner.device, CALL, "memory", memory, Owners::Any)?;
            // SAFETY: `issue` has seen that the stream is open, and has made its context current.
            unsafe { self.inner.lane.issue(stream, &uses, || Ok(f(stream.0.cast()))) }
        })
    }

    /// The `CUstream`, for other code on the same driver: alive as long as this stream, and not to be captured or destroyed.
    pub fn raw(&self) -> *mut c_void {
        self.inner.raw().0
    }
}

impl Event {
    /// An event of other code, a `CUevent`, that was recorded. It is not destroyed.
    ///
    /// # Safety
    /// `raw` is a live event of the device's context, and stays so until this one has been dropped.
    pub unsafe fn from_raw(device: &Device, raw: *mut c_void) -> Result<Event, Error> {
        const CALL: &str = "Event::from_raw";
        device.inner.enter(CALL)?;
        one_driver(CALL)?;
        let event = Event::borrowed(&device.inner, CUevent(raw));
        event.is_done().map_err(|error| explain(CALL, error))?;
        Ok(event)
    }

    /// The `CUevent`, for other code on the same driver: alive as long as this event.
    pub fn raw(&self) -> *mut c_void {
        self.raw.0.cast()
    }
}

impl<T: Element> Buffer<T> {
    /// A buffer of `len` elements of memory that other code has allocated. Graphs keep it like any other.
    ///
    /// `keeper` is what owns the memory, or `()` where somebody else sees to that. It is dropped when the last user of the memory
    /// is gone, the graphs among them, and when what they issued has ended.
    ///
    /// # Safety
    /// Until `keeper` is dropped (with `()`: until the buffer and all graphs that use it are) the bytes are one live allocation
    /// of the device's context, and what other code does to them is ordered with what this crate does.
    pub unsafe fn from_raw(
        device: &Device,
        address: u64,
        len: usize,
        keeper: impl Send + Sync + 'static,
    ) -> Result<Buffer<T>, Error> {
        const CALL: &str = "Buffer::from_raw";
        device.inner.enter(CALL)?;
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64).max(1);
        if address == 0 || !address.is_multiple_of(align_of::<T>() as u64) {
            return Err(Error::NullPointer { kernel: CALL, argument: "address", address });
        }
        if !matches!(device.inner.memory.place(address, 1), Place::Unknown) {
            return Err(Error::Owned { address, bytes });
        }
        let allocation = Arc::new(Allocation {
            device: device.inner.clone(),
            address,
            bytes,
            id: unique_id(),
            uses: Mutex::default(),
            keeper: Some(Box::new(keeper)),
        });
        device.inner.memory.remember(&allocation);
        Ok(Buffer::new(allocation, len))
    }
}

impl Capture<'_> {
    /// Lets other code record on the stream: `f` gets the `CUstream` that is being captured, and may issue on it whatever a capture takes,
    /// such as calls of cuBLAS or NCCL. The graph counts its nodes ([`Graph::foreign_nodes`]) and keeps `keeper`, which owns what
    /// they work with; of memory of this crate, [`uses`](Capture::uses) and [`writes`](Capture::writes) say that they work on it.
    ///
    /// What `f` gives is given back. Where it is an error, the closure of the capture should return it: what was recorded up to there is
    /// part of the graph.
    ///
    /// # Safety
    /// `f` issues on that stream alone, leaves it capturing, and neither ends nor begins a capture. What it records is valid for each launch of
    /// the graph: the memory lives as long as the graph does, by `keeper` or because the closure said that it is used, and nothing else
    /// touches it meanwhile.
    pub unsafe fn foreign<R>(
        &mut self,
        keeper: impl Send + Sync + 'static,
        f: impl FnOnce(*mut c_void) -> R,
    ) -> Result<R, Error> {
        self.record(|stream, recorded| {
            let before = nodes_so_far(stream)?;
            let result = f(stream.raw().0);
            let after = nodes_so_far(stream)?;
            recorded.foreign += after.saturating_sub(before);
            recorded.retained.keeper(keeper);
            Ok(result)
        })
    }

    /// Says that [other code](Capture::foreign) reads this memory: the graph keeps it, and its launches are ordered with what other streams
    /// do to it.
    pub fn uses<T: Element>(&mut self, memory: &DeviceSlice<T>) -> Result<(), Error> {
        self.record(|stream, recorded| {
            let owner = ops::source(&stream.device, "Capture::uses", "memory", memory, Owners::Known)?;
            owner.into_iter().for_each(|owner| recorded.retained.allocation(owner));
            Ok(())
        })
    }

    /// Says that [other code](Capture::foreign) writes this memory, and may read it.
    pub fn writes<T: Element>(&mut self, memory: &mut DeviceSlice<T>) -> Result<(), Error> {
        self.record(|stream, recorded| {
            let owner = ops::target(&stream.device, "Capture::writes", "memory", memory, Owners::Known)?;
            owner.into_iter().for_each(|owner| recorded.retained.allocation(owner));
            Ok(())
        })
    }
}

/// The nodes that a capture has by now.
fn nodes_so_far(stream: &StreamInner) -> Result<usize, Error> {
    let (mut status, mut id, mut graph) = (0, 0, CUgraph::NULL);
    let none = std::ptr::null_mut();
    // SAFETY: the stream is alive and being captured; the variables are live, and what is null is not written.
    unsafe {
        cu!(cuStreamGetCaptureInfo_v2(stream.raw(), &mut status, &mut id, &mut graph, none, std::ptr::null_mut()))?;
        if graph.0.is_null() { Err(Error::StreamLost { call: "Capture::foreign" }) } else { count_nodes(graph) }
    }
}

impl Graph {
    /// A graph of other code, a `CUgraph` that was captured or built, made executable for streams of this crate. The `CUgraph` may be changed
    /// or destroyed afterwards. All of its nodes are [foreign](Graph::foreign_nodes).
    ///
    /// `keeper` owns what the nodes work with, or is `()` where somebody else sees to that. It is dropped with the graph, when its launches
    /// have ended.
    ///
    /// # Safety
    /// `raw` is a live graph of the device's context. For each launch, what its nodes work on is alive, and what else is done to it is ordered
    /// with the launch.
    pub unsafe fn from_raw(
        stream: &Stream,
        raw: *mut c_void,
        keeper: impl Send + Sync + 'static,
    ) -> Result<Graph, Error> {
        const CALL: &str = "Graph::from_raw";
        stream.inner.device.enter(CALL)?;
        one_driver(CALL)?;
        let mut clone = CUgraph::NULL;
        // SAFETY: the caller's promise; `clone` is a live pointer variable.
        unsafe { cu!(cuGraphClone(&mut clone, CUgraph(raw.cast()))) }.map_err(|error| explain(CALL, error))?;
        let template = Template::of(clone);
        // SAFETY: the clone is alive.
        let foreign = unsafe { count_nodes(clone) }.map_err(|error| failed("counting nodes", error))?;
        let mut recorded = Recorded { foreign, ..Recorded::default() };
        recorded.retained.keeper(keeper);
        Graph::new(&stream.inner, template, recorded)
    }
}
