//! [`GraphBuilder`]: a graph made node by node, without a capture.
//!
//! A capture records one order of work. A builder also makes graphs whose parts may run side by side, and it works where
//! capturing is not possible: while another capture of the device is going on elsewhere, or under a tool that forbids
//! it. By default each operation follows the one before, as on a stream; [`GraphBuilder::after`] says otherwise for the
//! next one. Two operations without an order that touch the same memory, and not only to read it, are
//! [`Error::Unordered`]. What kernels reach by addresses that lie in device memory is not seen by that check: such launches
//! are `unsafe`.
//!
//! The graph owns what it refers to, as a captured one does, and is the same type.

use crate::capture::{Recorded, Template, failed};
use crate::graph::Graph;
use crate::launch::{LaunchCode, Owners, Prepared, launchers};
use crate::memory::unique_id;
use crate::ops::{self, Pattern};
use crate::stream::StreamInner;
use crate::sys::{self, cu};
use crate::{Error, Pinned, Stream};
use std::fmt;
use std::sync::Arc;
use warpsmith_device::{Access, AnyKernel, Confined, Contract, DeviceSlice, Element};
use warpsmith_driver_api::{CUgraphNode, Memcpy3D, MemsetNodeParams};

/// An operation of a [`GraphBuilder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    builder: u64,
    index: usize,
}

/// Makes a graph node by node.
///
/// ```no_run
/// # use warpsmith_runtime::Device;
/// # let device = Device::open(0)?;
/// # let stream = device.stream()?;
/// let (mut a, mut b) = (stream.zeros::<u32>(64)?, stream.zeros::<u32>(64)?);
/// let mut builder = stream.graph_builder()?;
/// let first = builder.fill(&mut a, 1)?;
/// builder.after(&[])?; // Need not wait for the fill of `a`.
/// let second = builder.fill(&mut b, 2)?;
/// builder.after(&first.into_iter().chain(second).collect::<Vec<_>>())?;
/// builder.copy(&a, &mut b)?;
/// builder.finish()?.launch(&stream)?;
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
pub struct GraphBuilder {
    id: u64,
    stream: Arc<StreamInner>,
    template: Template,
    recorded: Recorded,
    /// Of launches from here on.
    code: LaunchCode,
    nodes: Vec<Operation>,
    /// Indices of what the next operation follows.
    after: Vec<usize>,
    failed: Option<String>,
}

struct Operation {
    raw: CUgraphNode,
    name: &'static str,
    /// What it follows, directly or not: a bit for each operation before it.
    before: Vec<u64>,
    touches: Vec<Touch>,
}

/// Memory that an operation touches.
#[derive(Clone, Copy)]
struct Touch {
    argument: &'static str,
    start: u64,
    end: u64,
    writes: bool,
}

impl Touch {
    fn new(argument: &'static str, start: u64, bytes: u64, access: Access) -> Touch {
        Touch { argument, start, end: start.saturating_add(bytes), writes: access != Access::Read }
    }

    fn conflicts(&self, other: &Touch) -> bool {
        (self.writes || other.writes) && self.start < other.end && other.start < self.end
    }
}

impl Stream {
    /// An empty graph, to be filled node by node. The stream only says which device it is for, and is not touched until
    /// the graph is uploaded on it by [`GraphBuilder::finish`].
    pub fn graph_builder(&self) -> Result<GraphBuilder, Error> {
        self.inner.device.enter("Stream::graph_builder")?;
        Ok(GraphBuilder {
            id: unique_id(),
            stream: self.inner.clone(),
            template: Template::empty()?,
            recorded: Recorded::default(),
            code: LaunchCode::General,
            nodes: Vec::new(),
            after: Vec::new(),
            failed: None,
        })
    }
}

impl GraphBuilder {
    /// The last operation.
    pub fn last(&self) -> Option<Node> {
        Some(Node { builder: self.id, index: self.nodes.len().checked_sub(1)? })
    }

    /// What the next operation follows, instead of the last one: nothing, one, or several.
    pub fn after(&mut self, nodes: &[Node]) -> Result<(), Error> {
        if nodes.iter().any(|n| n.builder != self.id) {
            return Err(Error::OtherGraph);
        }
        self.after = nodes.iter().map(|n| n.index).collect();
        self.after.sort_unstable();
        self.after.dedup();
        Ok(())
    }

    /// Launches from here on get code of their own, in which their values are constants, as
    /// [`Capture::specialise`](crate::Capture::specialise) says.
    pub fn specialise(&mut self) {
        self.code = LaunchCode::Special;
    }

    /// Adds a kernel launch. Checked as [`Stream::launch`] checks it.
    pub fn launch<K: Contract + Confined>(&mut self, kernel: K) -> Result<Node, Error> {
        // SAFETY: it follows no address.
        unsafe { self.launch_unchecked(kernel) }
    }

    /// Adds the launch of a kernel, also of one that follows addresses in device memory.
    ///
    /// # Safety
    /// That of [`launch_unchecked`](warpsmith_device::Launcher::launch_unchecked), for every launch of the graph; operations of
    /// the graph without an order between them count as at the same time.
    pub unsafe fn launch_unchecked<K: Contract>(&mut self, kernel: K) -> Result<Node, Error> {
        // SAFETY: the caller's promise.
        unsafe { self.launch_any(&kernel) }
    }

    /// # Safety
    /// As for `launch_unchecked`.
    unsafe fn launch_any(&mut self, kernel: &dyn AnyKernel) -> Result<Node, Error> {
        self.record("GraphBuilder::launch", |b| {
            let mut launch = Prepared::new(&b.stream.device, kernel, b.code, Owners::Known)?;
            let touches = launch.touches().map(|(n, start, bytes, a)| Touch::new(n, start, bytes, a)).collect();
            let module = launch.kernel.module.clone();
            let owners = std::mem::take(&mut launch.owners);
            let node = b.add(launch.name, touches, |b, follows, node| {
                // SAFETY: the graph is alive, its device's context current, and `follows` are nodes of it.
                unsafe { launch.add_to(b.template.raw(), follows, node) }
            })?;
            b.recorded.launches += 1;
            b.recorded.kernels.push(launch.name);
            b.recorded.retained.module(&module);
            owners.into_iter().for_each(|owner| b.recorded.retained.allocation(owner));
            Ok(node)
        })
    }

    /// Adds a copy between device slices of one length. Nothing for empty ones: `None`.
    pub fn copy<T: Element>(&mut self, from: &DeviceSlice<T>, to: &mut DeviceSlice<T>) -> Result<Option<Node>, Error> {
        const OPERATION: &str = "GraphBuilder::copy";
        self.record(OPERATION, |b| {
            ops::same_length(OPERATION, to.len(), from.len())?;
            b.copy_node(
                OPERATION,
                CopyEnd::Device(from.address().raw()),
                CopyEnd::Device(to.address().raw()),
                to.byte_len(),
                |b| {
                    let device = &b.stream.device;
                    let owners = [
                        ops::source(device, OPERATION, "from", from, Owners::Known)?,
                        ops::target(device, OPERATION, "to", to, Owners::Known)?,
                    ];
                    owners.into_iter().flatten().for_each(|owner| b.recorded.retained.allocation(owner));
                    Ok(())
                },
            )
        })
    }

    /// Adds that every element is set; see [`Launcher::fill`](crate::Launcher::fill). Nothing for an empty slice: `None`.
    pub fn fill<T: Element>(&mut self, to: &mut DeviceSlice<T>, value: T) -> Result<Option<Node>, Error> {
        const OPERATION: &str = "GraphBuilder::fill";
        self.record(OPERATION, |b| {
            let (value, size) = match Pattern::of(&value)? {
                Pattern::Byte(v) => (v.into(), 1),
                Pattern::Half(v) => (v.into(), 2),
                Pattern::Word(v) => (v, 4),
            };
            let owner = ops::target(&b.stream.device, OPERATION, "to", to, Owners::Known)?;
            let bytes = to.byte_len();
            if bytes == 0 {
                return Ok(None);
            }
            let fill = MemsetNodeParams {
                dst: to.address().raw(),
                pitch: bytes,
                value,
                element_size: size,
                width: bytes / size as usize,
                height: 1,
            };
            let touch = Touch::new("to", to.address().raw(), bytes as u64, Access::Write);
            let node = b.add(OPERATION, vec![touch], |b, follows, node| {
                let (raw, context) = (b.template.raw(), b.stream.device.raw_context());
                // SAFETY: as for a launch; the range lies in a buffer that the graph keeps, and is a whole number of
                // aligned elements of `size` bytes.
                unsafe { cu!(cuGraphAddMemsetNode(node, raw, follows.as_ptr(), follows.len(), &fill, context)) }
            })?;
            b.recorded.copies += 1;
            owner.into_iter().for_each(|owner| b.recorded.retained.allocation(owner));
            Ok(Some(node))
        })
    }

    /// Adds a copy of staging memory, as it will be when the graph runs, to the device.
    pub fn write_pinned<T: Element>(
        &mut self,
        from: &Pinned<T>,
        to: &mut DeviceSlice<T>,
    ) -> Result<Option<Node>, Error> {
        const OPERATION: &str = "GraphBuilder::write_pinned";
        self.record(OPERATION, |b| {
            ops::same_length(OPERATION, to.len(), from.len())?;
            let base = from.inner().address(OPERATION)? as u64;
            b.copy_node(OPERATION, CopyEnd::Host(base), CopyEnd::Device(to.address().raw()), to.byte_len(), |b| {
                b.stream.same_device(OPERATION, "staging memory", &from.inner().device)?;
                let owner = ops::target(&b.stream.device, OPERATION, "to", to, Owners::Known)?;
                owner.into_iter().for_each(|owner| b.recorded.retained.allocation(owner));
                b.recorded.retained.pinned(from.inner());
                Ok(())
            })
        })
    }

    /// Adds a copy of device memory to staging memory.
    pub fn read_pinned<T: Element>(&mut self, from: &DeviceSlice<T>, to: &Pinned<T>) -> Result<Option<Node>, Error> {
        const OPERATION: &str = "GraphBuilder::read_pinned";
        self.record(OPERATION, |b| {
            ops::same_length(OPERATION, to.len(), from.len())?;
            let base = to.inner().address(OPERATION)? as u64;
            b.copy_node(OPERATION, CopyEnd::Device(from.address().raw()), CopyEnd::Host(base), from.byte_len(), |b| {
                b.stream.same_device(OPERATION, "staging memory", &to.inner().device)?;
                let owner = ops::source(&b.stream.device, OPERATION, "from", from, Owners::Known)?;
                owner.into_iter().for_each(|owner| b.recorded.retained.allocation(owner));
                b.recorded.retained.pinned(to.inner());
                Ok(())
            })
        })
    }

    /// Makes the graph executable and uploads it. An operation that failed, whether its error was looked at or not,
    /// makes this fail too.
    pub fn finish(self) -> Result<Graph, Error> {
        self.stream.device.enter("GraphBuilder::finish")?;
        if let Some(message) = self.failed {
            return Err(failed("recording", Error::Ignored { message }));
        }
        self.template.check(self.recorded.launches + self.recorded.copies)?;
        Graph::new(&self.stream, self.template, self.recorded)
    }

    fn record<R>(
        &mut self,
        call: &'static str,
        f: impl FnOnce(&mut GraphBuilder) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let result = self.stream.device.enter(call).and_then(|()| f(self));
        if let Err(error) = &result {
            self.failed.get_or_insert_with(|| error.to_string());
        }
        result
    }

    /// Adds a node behind those that the next operation follows, if its memory allows that.
    fn add(
        &mut self,
        name: &'static str,
        touches: Vec<Touch>,
        issue: impl FnOnce(&GraphBuilder, &[CUgraphNode], *mut CUgraphNode) -> Result<(), Error>,
    ) -> Result<Node, Error> {
        let mut before = vec![0u64; self.nodes.len().div_ceil(64)];
        for &index in &self.after {
            if let Some(node) = self.nodes.get(index) {
                before.iter_mut().zip(&node.before).for_each(|(to, from)| *to |= from);
            }
            if let Some(word) = before.get_mut(index / 64) {
                *word |= 1 << (index % 64);
            }
        }
        for (index, other) in self.nodes.iter().enumerate() {
            if before.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1) {
                continue;
            }
            for (a, b) in other.touches.iter().flat_map(|a| touches.iter().map(move |b| (a, b))) {
                if a.conflicts(b) {
                    let (first, second) = ((other.name, a.argument), (name, b.argument));
                    return Err(Error::Unordered { first, index, second });
                }
            }
        }
        let follows: Vec<CUgraphNode> = self.after.iter().filter_map(|&i| self.nodes.get(i)).map(|n| n.raw).collect();
        let mut raw = CUgraphNode::NULL;
        issue(self, &follows, &mut raw)?;
        let index = self.nodes.len();
        self.nodes.push(Operation { raw, name, before, touches });
        self.after = vec![index];
        Ok(Node { builder: self.id, index })
    }

    fn copy_node(
        &mut self,
        name: &'static str,
        from: CopyEnd,
        to: CopyEnd,
        bytes: usize,
        retain: impl FnOnce(&mut GraphBuilder) -> Result<(), Error>,
    ) -> Result<Option<Node>, Error> {
        retain(self)?;
        if bytes == 0 {
            return Ok(None);
        }
        let copy = copy_params(from, to, bytes);
        let touches = vec![
            Touch::new("from", from.address(), bytes as u64, Access::Read),
            Touch::new("to", to.address(), bytes as u64, Access::Write),
        ];
        let node = self.add(name, touches, |b, follows, node| {
            let (raw, context) = (b.template.raw(), b.stream.device.raw_context());
            // SAFETY: as for a launch; both ranges lie in memory that the graph keeps.
            unsafe { cu!(cuGraphAddMemcpyNode(node, raw, follows.as_ptr(), follows.len(), &copy, context)) }
        })?;
        self.recorded.copies += 1;
        Ok(Some(node))
    }
}

/// An end of a copy. Host and device addresses share one space.
#[derive(Clone, Copy)]
enum CopyEnd {
    Device(u64),
    Host(u64),
}

impl CopyEnd {
    fn address(self) -> u64 {
        match self {
            CopyEnd::Device(address) | CopyEnd::Host(address) => address,
        }
    }

    /// Type of memory, host address, device address.
    fn parts(self) -> (u32, u64, u64) {
        match self {
            CopyEnd::Device(address) => (sys::MEMORY_TYPE_DEVICE, 0, address),
            CopyEnd::Host(address) => (sys::MEMORY_TYPE_HOST, address, 0),
        }
    }
}

/// One row of `bytes` bytes.
fn copy_params(from: CopyEnd, to: CopyEnd, bytes: usize) -> Memcpy3D {
    let ((from_type, from_host, from_device), (to_type, to_host, to_device)) = (from.parts(), to.parts());
    Memcpy3D {
        src_x_in_bytes: 0,
        src_y: 0,
        src_z: 0,
        src_lod: 0,
        src_memory_type: from_type,
        src_host: from_host as *const _,
        src_device: from_device,
        src_array: std::ptr::null_mut(),
        reserved0: std::ptr::null_mut(),
        src_pitch: bytes,
        src_height: 1,
        dst_x_in_bytes: 0,
        dst_y: 0,
        dst_z: 0,
        dst_lod: 0,
        dst_memory_type: to_type,
        dst_host: to_host as *mut _,
        dst_device: to_device,
        dst_array: std::ptr::null_mut(),
        reserved1: std::ptr::null_mut(),
        dst_pitch: bytes,
        dst_height: 1,
        width_in_bytes: bytes,
        height: 1,
        depth: 1,
    }
}

impl fmt::Debug for GraphBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.nodes.iter().map(|n| n.name).collect();
        f.debug_struct("GraphBuilder").field("nodes", &names).field("after", &self.after).finish_non_exhaustive()
    }
}

/// Operations in order, as on a stream.
#[derive(Debug)]
pub struct InOrder<'a>(&'a mut GraphBuilder);

impl GraphBuilder {
    /// What takes launches and copies as a [`Launcher`](crate::Launcher), each behind the last.
    pub fn in_order(&mut self) -> InOrder<'_> {
        InOrder(self)
    }
}

impl InOrder<'_> {
    unsafe fn launch_any(&mut self, kernel: &dyn AnyKernel) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe { self.0.launch_any(kernel) }.map(|_| ())
    }
    fn copy<T: Element>(&mut self, from: &DeviceSlice<T>, to: &mut DeviceSlice<T>) -> Result<(), Error> {
        self.0.copy(from, to).map(|_| ())
    }
    fn fill<T: Element>(&mut self, to: &mut DeviceSlice<T>, value: T) -> Result<(), Error> {
        self.0.fill(to, value).map(|_| ())
    }
    fn write_pinned<T: Element>(&mut self, from: &Pinned<T>, to: &mut DeviceSlice<T>) -> Result<(), Error> {
        self.0.write_pinned(from, to).map(|_| ())
    }
    fn read_pinned<T: Element>(&mut self, from: &DeviceSlice<T>, to: &Pinned<T>) -> Result<(), Error> {
        self.0.read_pinned(from, to).map(|_| ())
    }
}

launchers!(InOrder<'_> => InOrder<'_>);
