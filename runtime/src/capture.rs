//! Stream capture: recording launches and copies into a graph.
//!
//! A capture is begun, recorded and ended by one call, [`Stream::capture`]; on every way out of the
//! closure, an error and a panic included, it is ended, and the stream is as it was before. What
//! is recorded does not run. Every buffer, staging memory and module that is recorded is retained
//! by the graph.
//!
//! The driver's relaxed mode is used: what other threads do neither breaks the capture nor is
//! refused because of it. The calling thread may do nothing but record: allocating, loading,
//! waiting, reading, another stream's work and another capture are [`Error::InsideCapture`], and
//! the scope does not offer them. Memory that is dropped meanwhile is freed afterwards. Events are
//! never part of a capture.

use crate::device::set_capturing;
use crate::graph::{Graph, Retained};
use crate::launch::{LaunchCode, Owners, Prepared, launchers};
use crate::ops::{self, Pattern};
use crate::stream::{State, StreamInner};
use crate::sys::{self, cu};
use crate::{Error, Pinned, Stream};
use std::marker::PhantomData;
use warpsmith_device::{AnyKernel, Confined, Contract, DeviceSlice, Element};
use warpsmith_driver_api::CUgraph;

/// What a closure under [`Stream::capture`] records with. What it takes is checked as a stream
/// checks it; memory that belongs to no [`Buffer`](crate::Buffer) is refused.
///
/// It cannot wait or read, as nothing runs yet:
///
/// ```compile_fail,E0599
/// # fn f(stream: &warpsmith_runtime::Stream) -> Result<(), warpsmith_runtime::Error> {
/// stream.capture(|scope| scope.synchronize())?;
/// # Ok(()) }
/// ```
///
/// It takes no host memory that could be gone, or changed, when the graph runs:
///
/// ```compile_fail,E0599
/// # fn f(stream: &warpsmith_runtime::Stream, x: &mut warpsmith_runtime::Buffer<u32>) -> Result<(), warpsmith_runtime::Error> {
/// stream.capture(|scope| scope.write(x, &[1, 2, 3]))?;
/// # Ok(()) }
/// ```
///
/// It does not leave its thread, nor its closure:
///
/// ```compile_fail,E0277
/// # fn f(stream: &warpsmith_runtime::Stream) -> Result<(), warpsmith_runtime::Error> {
/// stream.capture(|scope| {
///     std::thread::scope(|threads| {
///         threads.spawn(|| drop(scope));
///     });
///     Ok(())
/// })?;
/// # Ok(()) }
/// ```
pub struct Capture<'a> {
    pub(crate) stream: &'a StreamInner,
    pub(crate) recorded: Recorded,
    /// Of launches from here on.
    code: LaunchCode,
    /// The text of the first failure, which the closure must not ignore.
    failed: Option<String>,
    // A capture belongs to the thread that began it.
    thread: PhantomData<*const ()>,
}

/// What a closure has recorded.
#[derive(Default)]
pub struct Recorded {
    pub launches: usize,
    pub copies: usize,
    /// Nodes of other code.
    pub foreign: usize,
    pub kernels: Vec<&'static str>,
    pub retained: Retained,
}

impl Stream {
    /// Records what `f` launches and copies into a graph. Nothing of it runs.
    ///
    /// An error of `f`, or of the driver, comes back as [`Error::CaptureFailed`], whose
    /// [`root`](Error::root) is the first failure. The stream is usable afterwards in any case.
    ///
    /// ```no_run
    /// # use warpsmith_runtime::{Device, Launcher};
    /// # let device = Device::open(0)?;
    /// # let stream = device.stream()?;
    /// let x = stream.upload(&[1u32, 2])?;
    /// let mut y = stream.zeros::<u32>(2)?;
    /// let graph = stream.capture(|scope| scope.copy(&x, &mut y))?;
    /// graph.launch(&stream)?;
    /// assert_eq!(stream.read(&y)?, [1, 2]);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    pub fn capture(&self, f: impl FnOnce(&mut Capture<'_>) -> Result<(), Error>) -> Result<Graph, Error> {
        self.try_capture(|scope| f(scope).map_err(|error| failed("recording", error)))
    }

    /// The same for a closure with an error type of its own, which is returned as it is.
    pub fn try_capture<E: From<Error>>(&self, f: impl FnOnce(&mut Capture<'_>) -> Result<(), E>) -> Result<Graph, E> {
        let (template, recorded) = self.record_graph(f)?;
        Ok(Graph::new(&self.inner, template, recorded)?)
    }

    /// Captures without making the graph executable.
    pub(crate) fn record_graph<E: From<Error>>(
        &self,
        f: impl FnOnce(&mut Capture<'_>) -> Result<(), E>,
    ) -> Result<(Template, Recorded), E> {
        self.inner.device.enter("Stream::capture")?;
        let open = OpenCapture::begin(&self.inner)?;
        let mut scope = Capture {
            stream: &self.inner,
            recorded: Recorded::default(),
            code: LaunchCode::General,
            failed: None,
            thread: PhantomData,
        };
        let result = f(&mut scope);
        // On unwinding, `open` is dropped and does the same.
        let ended = open.end();
        result?;
        if let Some(message) = scope.failed {
            return Err(failed("recording", Error::Ignored { message }).into());
        }
        let template = ended.map_err(|error| failed("ending", error))?;
        let recorded = scope.recorded;
        template.check(recorded.nodes())?;
        Ok((template, recorded))
    }
}

pub fn failed(stage: &'static str, error: Error) -> Error {
    match error {
        error @ Error::CaptureFailed { .. } => error,
        error => Error::CaptureFailed { stage, source: Box::new(error) },
    }
}

/// A capture that is going on. It ends when this is dropped at the latest.
struct OpenCapture<'a> {
    stream: &'a StreamInner,
    open: bool,
}

impl<'a> OpenCapture<'a> {
    fn begin(stream: &'a StreamInner) -> Result<OpenCapture<'a>, Error> {
        const CALL: &str = "Stream::capture";
        let mut state = stream.state_mut();
        match *state {
            State::Open => {}
            State::Capturing => return Err(Error::StreamCapturing { call: CALL }),
            State::Lost => return Err(Error::StreamLost { call: CALL }),
        }
        stream.device.memory.begin_capture();
        // SAFETY: the stream is alive and, by its state, captures nothing; its context is current.
        let begun = unsafe {
            stream
                .lane
                .begin_capture(stream.raw())
                .and_then(|()| cu!(cuStreamBeginCapture_v2(stream.raw(), sys::CAPTURE_MODE_RELAXED)))
        };
        if let Err(error) = begun {
            stream.lane.end_capture(stream.raw());
            drop(state);
            stream.device.end_capture();
            return Err(failed("beginning", error));
        }
        *state = State::Capturing;
        set_capturing(true);
        Ok(OpenCapture { stream, open: true })
    }

    fn end(mut self) -> Result<Template, Error> {
        self.close()
    }

    /// Ends the capture. Whatever happens, the stream takes work again afterwards, or is marked
    /// as lost if the driver cannot be made to end the capture.
    fn close(&mut self) -> Result<Template, Error> {
        self.open = false;
        let mut state = self.stream.state_mut();
        let bound = self.stream.device.bind_to_free();
        let ended = bound.and_then(|()| end_capture(self.stream));
        *state = match &ended {
            // A failed end may leave the capture open; try once more before giving up.
            Err(_) if is_capturing(self.stream) => {
                drop(end_capture(self.stream));
                if is_capturing(self.stream) { State::Lost } else { State::Open }
            }
            _ => State::Open,
        };
        if *state == State::Open {
            self.stream.lane.end_capture(self.stream.raw());
        }
        drop(state);
        set_capturing(false);
        self.stream.device.end_capture();
        ended
    }
}

impl Drop for OpenCapture<'_> {
    fn drop(&mut self) {
        if self.open {
            drop(self.close());
        }
    }
}

fn end_capture(stream: &StreamInner) -> Result<Template, Error> {
    let mut graph = CUgraph::NULL;
    // SAFETY: the stream is alive; `graph` is a live pointer variable.
    let ended = unsafe { cu!(cuStreamEndCapture(stream.raw(), &mut graph)) };
    // What there is of a graph is owned from here on, also if the capture failed.
    let template = Template { raw: graph };
    ended.map(|()| template)
}

/// Whether the driver says so. If it cannot say, the context is lost and every call will fail.
fn is_capturing(stream: &StreamInner) -> bool {
    let mut status = sys::CAPTURE_STATUS_NONE;
    // SAFETY: the stream is alive; `status` is a live integer.
    let asked = unsafe { cu!(cuStreamIsCapturing(stream.raw(), &mut status)) };
    asked.is_ok() && status != sys::CAPTURE_STATUS_NONE
}

/// A graph that is not executable yet. Destroyed when dropped.
pub struct Template {
    raw: CUgraph,
}

impl Template {
    /// A graph without nodes. The context is current.
    pub fn empty() -> Result<Template, Error> {
        let mut graph = CUgraph::NULL;
        // SAFETY: `graph` is a live pointer variable.
        unsafe { cu!(cuGraphCreate(&mut graph, 0)) }?;
        Ok(Template { raw: graph })
    }

    /// One that this owns from here on.
    pub fn of(raw: CUgraph) -> Template {
        Template { raw }
    }

    pub fn raw(&self) -> CUgraph {
        self.raw
    }

    /// Whether the driver recorded as much as we did: a launch that went elsewhere, or a node that
    /// nobody asked for, is found here.
    pub fn check(&self, recorded: usize) -> Result<(), Error> {
        // SAFETY: the graph is alive.
        let nodes = unsafe { count_nodes(self.raw) }.map_err(|error| failed("counting nodes", error))?;
        if nodes == recorded {
            return Ok(());
        }
        Err(failed("counting nodes", Error::NodeCount { nodes, recorded }))
    }
}

/// The nodes of a graph.
///
/// # Safety
/// It is alive.
pub unsafe fn count_nodes(graph: CUgraph) -> Result<usize, Error> {
    let mut nodes = 0usize;
    // SAFETY: the caller's promise; without an array of nodes, only their number is written.
    unsafe { cu!(cuGraphGetNodes(graph, std::ptr::null_mut(), &mut nodes)) }?;
    Ok(nodes)
}

impl Drop for Template {
    fn drop(&mut self) {
        if !self.raw.0.is_null() {
            // SAFETY: made by the end of a capture, destroyed here only. Executable graphs made
            // of it do not refer to it.
            let _ = unsafe { cu!(cuGraphDestroy(self.raw)) };
        }
    }
}

impl Capture<'_> {
    /// Kernels recorded so far.
    pub fn launches(&self) -> usize {
        self.recorded.launches
    }

    /// Copies and fills recorded so far.
    pub fn copies(&self) -> usize {
        self.recorded.copies
    }

    /// Nodes that [other code](Capture::foreign) recorded so far.
    pub fn foreign_nodes(&self) -> usize {
        self.recorded.foreign
    }

    /// Launches from here on get code of their own, in which the values that they pass (scalars and structs, but no addresses, nor fields
    /// marked `#[varies]`) are constants: they never change in a graph, and its kernels have neither the branches that they decide against
    /// nor the instructions that compute with them. Results have the same bits. It is compiled when it is first recorded, 0.1 to 0.2 s a
    /// launch on a GPU, unless an equal launch was, in this process or, by the cache of compiled code, in another.
    ///
    /// The code for all launches is taken by cooperative launches, for kernels with variables in global memory that may be written or with
    /// functions that approximate what they are given, for kernels that came as a text that was not cut into modules, and where the
    /// program carries machine code for the device.
    ///
    /// ```no_run
    /// # use warpsmith_runtime::{Buffer, Device, Error, Stream};
    /// # use gpu_kernels::elementwise::Swiglu;
    /// # fn f(stream: &Stream, gate: &Buffer<f32>, up: &Buffer<f32>, y: &mut Buffer<f32>) -> Result<(), Error> {
    /// let graph = stream.capture(|scope| {
    ///     scope.specialise();
    ///     scope.launch(Swiglu { gate, up, y, n: 4096 })
    /// })?;
    /// # Ok(()) }
    /// ```
    pub fn specialise(&mut self) {
        self.code = LaunchCode::Special;
    }

    pub(crate) fn record<R>(
        &mut self,
        f: impl FnOnce(&StreamInner, &mut Recorded) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let result = f(self.stream, &mut self.recorded);
        if let Err(error) = &result {
            self.failed.get_or_insert_with(|| error.to_string());
        }
        result
    }

    /// Records a kernel launch.
    pub fn launch<K: Contract + Confined>(&mut self, kernel: K) -> Result<(), Error> {
        // SAFETY: it follows no address.
        unsafe { self.launch_unchecked(kernel) }
    }

    /// Records the launch of a kernel, also of one that follows addresses in device memory.
    ///
    /// # Safety
    /// That of [`launch_unchecked`](warpsmith_device::Launcher::launch_unchecked), for every launch of the graph.
    pub unsafe fn launch_unchecked<K: Contract>(&mut self, kernel: K) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe { self.launch_any(&kernel) }
    }

    /// # Safety
    /// As for `launch_unchecked`.
    unsafe fn launch_any(&mut self, kernel: &dyn AnyKernel) -> Result<(), Error> {
        let code = self.code;
        self.record(|stream, recorded| {
            let mut launch = Prepared::new(&stream.device, kernel, code, Owners::Known)?;
            // SAFETY: the stream is alive; `Stream::capture` has made its context current, and
            // nothing that runs in between changes that on this thread.
            unsafe { launch.enqueue(stream.raw()) }?;
            recorded.launches += 1;
            recorded.kernels.push(launch.name);
            recorded.retained.module(&launch.kernel.module);
            launch.owners.into_iter().for_each(|owner| recorded.retained.allocation(owner));
            Ok(())
        })
    }

    /// Records a copy between device slices of one length.
    pub fn copy<T: Element>(&mut self, from: &DeviceSlice<T>, to: &mut DeviceSlice<T>) -> Result<(), Error> {
        const OPERATION: &str = "Capture::copy";
        self.record(|stream, recorded| {
            ops::same_length(OPERATION, to.len(), from.len())?;
            let owners = [
                ops::source(&stream.device, OPERATION, "from", from, Owners::Known)?,
                ops::target(&stream.device, OPERATION, "to", to, Owners::Known)?,
            ];
            recorded.copied(owners, to.is_empty(), || {
                // SAFETY: two borrowed slices of one length; `&mut` keeps them apart. The graph
                // keeps their owners.
                unsafe {
                    cu!(cuMemcpyDtoDAsync_v2(to.address().raw(), from.address().raw(), to.byte_len(), stream.raw()))
                }
            })
        })
    }

    /// Records that every element is set; see [`Launcher::fill`](crate::Launcher::fill).
    pub fn fill<T: Element>(&mut self, to: &mut DeviceSlice<T>, value: T) -> Result<(), Error> {
        const OPERATION: &str = "Capture::fill";
        self.record(|stream, recorded| {
            let pattern = Pattern::of(&value)?;
            let owner = ops::target(&stream.device, OPERATION, "to", to, Owners::Known)?;
            recorded.copied([owner], to.byte_len() == 0, || {
                // SAFETY: the slice is borrowed exclusively and aligned for its elements, each of
                // which is a whole number of patterns. The graph keeps its owner.
                unsafe { pattern.fill(to.address().raw(), to.byte_len(), stream.raw()) }
            })
        })
    }

    /// Records a copy of staging memory, as it will be when the graph runs, to the device.
    pub fn write_pinned<T: Element>(&mut self, from: &Pinned<T>, to: &mut DeviceSlice<T>) -> Result<(), Error> {
        const OPERATION: &str = "Capture::write_pinned";
        self.record(|stream, recorded| {
            ops::same_length(OPERATION, to.len(), from.len())?;
            let owner = ops::target(&stream.device, OPERATION, "to", to, Owners::Known)?;
            stream.same_device(OPERATION, "staging memory", &from.inner().device)?;
            let base = from.inner().address(OPERATION)?;
            recorded.copied([owner], to.is_empty(), || {
                // SAFETY: both have `byte_len` bytes. The graph keeps both, and takes note of the
                // use at each of its launches.
                unsafe { cu!(cuMemcpyHtoDAsync_v2(to.address().raw(), base.cast(), to.byte_len(), stream.raw())) }
            })?;
            recorded.retained.pinned(from.inner());
            Ok(())
        })
    }

    /// Records a copy of device memory to staging memory.
    pub fn read_pinned<T: Element>(&mut self, from: &DeviceSlice<T>, to: &Pinned<T>) -> Result<(), Error> {
        const OPERATION: &str = "Capture::read_pinned";
        self.record(|stream, recorded| {
            ops::same_length(OPERATION, to.len(), from.len())?;
            let owner = ops::source(&stream.device, OPERATION, "from", from, Owners::Known)?;
            stream.same_device(OPERATION, "staging memory", &to.inner().device)?;
            let base = to.inner().address(OPERATION)?;
            recorded.copied([owner], from.is_empty(), || {
                // SAFETY: as in `write_pinned`, in the other direction.
                unsafe { cu!(cuMemcpyDtoHAsync_v2(base.cast(), from.address().raw(), from.byte_len(), stream.raw())) }
            })?;
            recorded.retained.pinned(to.inner());
            Ok(())
        })
    }
}

launchers!(Capture<'_> => Capture<'_>);

impl Recorded {
    /// Everything that was recorded.
    pub fn nodes(&self) -> usize {
        self.launches + self.copies + self.foreign
    }

    /// Issues and counts a copy, unless it is empty, and keeps the owners of its memory.
    pub fn copied<const N: usize>(
        &mut self,
        owners: [Option<super::order::Use>; N],
        empty: bool,
        issue: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        if empty {
            return Ok(());
        }
        issue()?;
        self.copies += 1;
        owners.into_iter().flatten().for_each(|owner| self.retained.allocation(owner));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;

    #[test]
    fn rz_3_nodes_that_nobody_recorded_are_found() {
        let stream = Device::open(0).unwrap().stream().unwrap();
        let mut cells = stream.zeros::<u32>(4).unwrap();
        let error = stream
            .capture(|scope| {
                scope.fill(&mut cells, 1)?;
                // As another library would that got hold of the stream.
                // SAFETY: 16 bytes of a live buffer on a live stream.
                unsafe { cu!(cuMemsetD8Async(cells.address().raw(), 0, 16, scope.stream.raw())) }
            })
            .unwrap_err();
        assert!(matches!(error.root(), Error::NodeCount { nodes: 2, recorded: 1 }), "{error}");
        assert_eq!(stream.read(&cells).unwrap(), [0; 4], "the stream goes on");
    }

    #[test]
    fn rz_3_operations_that_left_no_node_are_found() {
        let stream = Device::open(0).unwrap().stream().unwrap();
        let error = stream
            .capture(|scope| {
                scope.recorded.launches += 1;
                Ok(())
            })
            .unwrap_err();
        assert!(matches!(error.root(), Error::NodeCount { nodes: 0, recorded: 1 }), "{error}");
    }
}
