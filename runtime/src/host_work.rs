//! Work of the host in the order of a stream: between a copy to staging memory and a copy back. On a GPU the stream waits for it
//! meanwhile, and so does what follows.

use crate::launch::Owners;
use crate::sys::cu;
use crate::{Capture, Error, Pinned, Stream, ops};
use std::ffi::c_void;
use std::sync::Arc;
use warpsmith_device::{DeviceSlice, Element};
use warpsmith_driver_api::CUstream;

/// What the host does with elements in staging memory. It must not call the driver, and has to come to an end; a panic ends the process.
pub type HostWork<T> = Arc<dyn Fn(&mut [T]) + Send + Sync>;

/// A call of such a function with the first elements of staging memory.
struct Call<T> {
    work: HostWork<T>,
    base: *mut T,
    len: usize,
}

// SAFETY: the function may go to any thread, and the address is used within `run` alone, where the stream's order gives it to nobody else.
unsafe impl<T: Element> Send for Call<T> {}
// SAFETY: as above.
unsafe impl<T: Element> Sync for Call<T> {}

impl<T: Element> Call<T> {
    fn run(&self) {
        // SAFETY: `through_host` has seen that there are as many elements, all bits of which are valid; copies and calls of a stream follow one
        // another, streams wait for each other's uses of staging memory, and the host for all of them.
        (self.work)(unsafe { std::slice::from_raw_parts_mut(self.base, self.len) });
    }
}

/// The call of a stream, which takes place once.
unsafe extern "C" fn run_once<T: Element>(call: *mut c_void) {
    // SAFETY: `Arc::into_raw` gave the address, once for each call that was issued.
    unsafe { Arc::from_raw(call.cast::<Call<T>>().cast_const()) }.run();
}

/// The call of a graph, which keeps it.
unsafe extern "C" fn run_again<T: Element>(call: *mut c_void) {
    // SAFETY: the graph that launches this keeps the call.
    unsafe { &*call.cast::<Call<T>>() }.run();
}

/// What passes through the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// The elements are copied there, and stay as they are.
    There,
    /// What the host makes of staging memory is copied back.
    Back,
    /// Both.
    Both,
}

/// A slice on the device, and as many elements of staging memory.
struct Ends<T> {
    device: u64,
    base: *mut T,
    len: usize,
    passage: Passage,
}

impl<T: Element> Ends<T> {
    /// How many copies there are.
    fn copies(&self) -> usize {
        if self.passage == Passage::Both { 2 } else { 1 }
    }

    fn call(&self, work: HostWork<T>) -> Arc<Call<T>> {
        Arc::new(Call { work, base: self.base, len: self.len })
    }

    /// Up to the call.
    ///
    /// # Safety
    /// The stream is alive, both ends are until its work has ended, and the function may be called with the address.
    unsafe fn issue(
        &self,
        stream: CUstream,
        function: unsafe extern "C" fn(*mut c_void),
        call: *mut c_void,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe {
            if self.passage != Passage::Back {
                cu!(cuMemcpyDtoHAsync_v2(self.base.cast(), self.device, self.len * size_of::<T>(), stream))?;
            }
            cu!(cuLaunchHostFunc(stream, Some(function), call))
        }
    }

    /// What is behind it.
    ///
    /// # Safety
    /// As for `issue`.
    unsafe fn back(&self, stream: CUstream) -> Result<(), Error> {
        if self.passage == Passage::There {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { cu!(cuMemcpyHtoDAsync_v2(self.device, self.base.cast(), self.len * size_of::<T>(), stream)) }
    }
}

fn room<T: Element>(operation: &'static str, x: &DeviceSlice<T>, staging: &Pinned<T>) -> Result<(), Error> {
    if x.len() <= staging.len() {
        return Ok(());
    }
    Err(Error::SizeMismatch { operation, to: staging.len(), from: x.len() })
}

impl Stream {
    /// Copies `x` to the first elements of `staging`, runs `work` with them on the host, and copies them back, in the order of the stream; of
    /// the copies those that `passage` says. Does not wait.
    ///
    /// # Errors
    /// Staging memory that is too small or of another device, and those of the driver.
    pub fn through_host<T: Element>(
        &self,
        x: &mut DeviceSlice<T>,
        staging: &Pinned<T>,
        passage: Passage,
        work: HostWork<T>,
    ) -> Result<(), Error> {
        const CALL: &str = "Stream::through_host";
        room(CALL, x, staging)?;
        if x.is_empty() {
            return Ok(());
        }
        self.inner.issue(CALL, |stream| {
            let uses = ops::target(&self.inner.device, CALL, "x", x, Owners::Any)?;
            self.inner.same_device(CALL, "staging memory", &staging.inner().device)?;
            let issue = || {
                staging.inner().use_on(CALL, &self.inner, |base| {
                    let ends = Ends::<T> { device: x.address().raw(), base: base.cast(), len: x.len(), passage };
                    let call = Arc::into_raw(ends.call(work)).cast_mut();
                    // SAFETY: the slice is borrowed, and its owner and the staging memory wait for what was issued before they go. The call is
                    // given away once.
                    let issued = unsafe { ends.issue(stream, run_once::<T>, call.cast()) };
                    if issued.is_err() {
                        // SAFETY: nobody will call it.
                        drop(unsafe { Arc::from_raw(call) });
                    }
                    // SAFETY: as above.
                    issued.and_then(|()| unsafe { ends.back(stream) })
                })
            };
            // SAFETY: `issue` has seen that the stream is open, and has made its context current.
            unsafe { self.inner.lane.issue(stream, &uses, issue) }
        })
    }
}

impl Capture<'_> {
    /// Records what [`Stream::through_host`] issues: copies, and a node that is [foreign](crate::Graph::foreign_nodes). The graph keeps
    /// all of it.
    ///
    /// # Errors
    /// As for streams.
    pub fn through_host<T: Element>(
        &mut self,
        x: &mut DeviceSlice<T>,
        staging: &Pinned<T>,
        passage: Passage,
        work: HostWork<T>,
    ) -> Result<(), Error> {
        const CALL: &str = "Capture::through_host";
        room(CALL, x, staging)?;
        if x.is_empty() {
            return Ok(());
        }
        self.record(|stream, recorded| {
            let owner = ops::target(&stream.device, CALL, "x", x, Owners::Known)?;
            stream.same_device(CALL, "staging memory", &staging.inner().device)?;
            let base = staging.inner().address(CALL)?;
            let ends = Ends::<T> { device: x.address().raw(), base: base.cast(), len: x.len(), passage };
            let call = ends.call(work);
            // SAFETY: the graph keeps the slice's owner, the staging memory and the call.
            unsafe {
                ends.issue(stream.raw(), run_again::<T>, Arc::as_ptr(&call).cast_mut().cast())?;
                ends.back(stream.raw())?;
            }
            recorded.copies += ends.copies();
            recorded.foreign += 1;
            owner.into_iter().for_each(|owner| recorded.retained.allocation(owner));
            recorded.retained.pinned(staging.inner());
            recorded.retained.keeper(call);
            Ok(())
        })
    }
}
