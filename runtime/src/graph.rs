//! [`Graph`]: recorded work that is launched as one.
//!
//! A graph owns what it was captured with: the memory of every buffer, staging memory, the code of
//! the kernels. Buffers, streams and the device handle may be dropped in any order; a replay never
//! reaches memory that has been given to someone else. What a graph was made for is written down
//! in its [`GraphKey`], and [`Graph::launch_checked`] refuses to replay it for anything else.
//!
//! Launch arguments are frozen at the capture. What changes from launch to launch is read from
//! device memory, or from [`Pinned`](crate::Pinned) memory by a recorded copy.

use crate::capture::{Capture, Recorded, Template, failed};
use crate::memory::{Dead, lock};
use crate::module::LoadedModule;
use crate::order::Use;
use crate::pinned::PinnedInner;
use crate::stream::StreamInner;
use crate::sys::cu;
use crate::{DeviceInner, Error, Stream};
use std::any::Any;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use warpsmith_driver_api::{CUgraphExec, CUgraphNode};

/// A captured graph, ready to be launched.
pub struct Graph {
    // Taken by `drop` alone.
    parts: Option<GraphParts>,
    nodes: usize,
    launches: usize,
    copies: usize,
    foreign: usize,
    kernels: BTreeMap<&'static str, usize>,
    key: GraphKey,
    replays: AtomicU64,
    /// An update failed midway.
    void: bool,
}

/// What a graph depends on: names with the ids of what they meant when it was captured.
///
/// Any number that changes whenever the thing changes will do: [`Buffer::id`](crate::Buffer::id),
/// a generation that is counted up, a size.
///
/// ```
/// use warpsmith_runtime::GraphKey;
/// let captured = GraphKey::new().with("weights", 7).with("context", 512);
/// let asked = GraphKey::new().with("weights", 7).with("context", 1024);
/// assert!(captured.matches(&asked).unwrap_err().to_string().contains("context"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GraphKey(Vec<(&'static str, u64)>);

impl GraphKey {
    /// The key of what depends on nothing.
    pub fn new() -> GraphKey {
        GraphKey::default()
    }

    /// The same with another part.
    #[must_use]
    pub fn with(mut self, name: &'static str, id: u64) -> GraphKey {
        self.0.push((name, id));
        self
    }

    /// Its parts.
    pub fn parts(&self) -> &[(&'static str, u64)] {
        &self.0
    }

    /// Whether `asked` is the same, part for part; else an error that names the first difference.
    pub fn matches(&self, asked: &GraphKey) -> Result<(), Error> {
        let longest = self.0.len().max(asked.0.len());
        for i in 0..longest {
            let (graph, asked) = (self.0.get(i), asked.0.get(i));
            if graph != asked {
                let name = graph.or(asked).map_or("", |(name, _)| name);
                let show = |part: Option<&(&str, u64)>| match part {
                    Some((name, id)) => format!("{name} {id}"),
                    None => "none".to_owned(),
                };
                return Err(Error::GraphMismatch {
                    what: format!("key part `{name}`"),
                    graph: show(graph),
                    asked: show(asked),
                });
            }
        }
        Ok(())
    }
}

/// What a graph keeps alive.
#[derive(Default)]
pub struct Retained {
    allocations: BTreeMap<u64, Use>,
    // In the order of their ids, in which they are locked.
    pinned: BTreeMap<u64, Arc<PinnedInner>>,
    modules: Vec<Arc<LoadedModule>>,
    /// What other code works with.
    keepers: Vec<Box<dyn Any + Send + Sync>>,
}

impl Retained {
    pub fn allocation(&mut self, (owner, writes): Use) {
        self.allocations.entry(owner.id).or_insert((owner, false)).1 |= writes;
    }

    pub fn pinned(&mut self, memory: &Arc<PinnedInner>) {
        self.pinned.insert(memory.id, memory.clone());
    }

    pub fn keeper(&mut self, keeper: impl Send + Sync + 'static) {
        self.keepers.push(Box::new(keeper));
    }

    pub fn module(&mut self, module: &Arc<LoadedModule>) {
        if !self.modules.iter().any(|m| Arc::ptr_eq(m, module)) {
            self.modules.push(module.clone());
        }
    }
}

/// The executable graph and what it owns; destroyed as a whole, after its last launch.
pub struct GraphParts {
    device: Arc<DeviceInner>,
    exec: CUgraphExec,
    retained: Retained,
    /// The streams that it was launched on since they were last waited for. Locked by a launch:
    /// the driver allows one at a time.
    in_flight: Mutex<Vec<Arc<StreamInner>>>,
}

impl Graph {
    /// Makes a captured graph executable and uploads it.
    pub(crate) fn new(stream: &Arc<StreamInner>, template: Template, recorded: Recorded) -> Result<Graph, Error> {
        let mut exec = CUgraphExec::NULL;
        // SAFETY: the template is alive; `exec` is a live pointer variable. No flags: freeing on
        // launch is for graphs with allocations, which a capture of ours cannot hold.
        unsafe { cu!(cuGraphInstantiateWithFlags(&mut exec, template.raw(), 0)) }
            .map_err(|error| failed("instantiating", error))?;
        let graph = Graph {
            nodes: recorded.nodes(),
            launches: recorded.launches,
            copies: recorded.copies,
            foreign: recorded.foreign,
            kernels: count(&recorded.kernels),
            key: GraphKey::new(),
            replays: AtomicU64::new(0),
            void: false,
            parts: Some(GraphParts {
                device: stream.device.clone(),
                exec,
                retained: recorded.retained,
                in_flight: Mutex::new(vec![stream.clone()]), // The upload.
            }),
        };
        stream
            .issue("Stream::capture", |raw| {
                // SAFETY: executable graph and stream are alive.
                unsafe { cu!(cuGraphUpload(exec, raw)) }
            })
            .map_err(|error| failed("uploading", error))?;
        Ok(graph)
    }

    /// The same graph with a key.
    #[must_use]
    pub fn with_key(mut self, key: GraphKey) -> Graph {
        self.key = key;
        self
    }

    /// What it was captured for.
    pub fn key(&self) -> &GraphKey {
        &self.key
    }

    /// Its nodes: launches, copies and fills, and those of other code.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Its kernel launches.
    pub fn launches(&self) -> usize {
        self.launches
    }

    /// Its copies and fills.
    pub fn copies(&self) -> usize {
        self.copies
    }

    /// Its nodes that [other code](Capture::foreign) recorded.
    pub fn foreign_nodes(&self) -> usize {
        self.foreign
    }

    /// Its kernels, and how often each is launched.
    pub fn kernels(&self) -> &BTreeMap<&'static str, usize> {
        &self.kernels
    }

    /// How often it was launched.
    pub fn replays(&self) -> u64 {
        self.replays.load(Ordering::Relaxed)
    }

    /// What the driver says that it was instantiated with (`CUgraphInstantiate_flags`): 0, in particular nothing that frees memory
    /// when it is launched.
    pub fn flags(&self) -> Result<u64, Error> {
        const CALL: &str = "Graph::flags";
        let (mut flags, Some(parts)) = (0, &self.parts) else { return Ok(0) };
        parts.device.enter(CALL)?;
        // SAFETY: the executable graph is alive, and `flags` is a live variable.
        unsafe { cu!(cuGraphExecGetFlags(parts.exec, &mut flags)) }?;
        Ok(flags)
    }

    /// The executable graph, a `CUgraphExec`, for other code on the same driver: alive as long as this graph, and to be launched by nobody
    /// while [`launch`](Graph::launch) may be; what it works on is not ordered then with other streams.
    pub fn raw(&self) -> *mut c_void {
        self.parts.as_ref().map_or(std::ptr::null_mut(), |parts| parts.exec.0.cast())
    }

    /// Whether it refers to the buffer or staging memory of this id.
    pub fn uses(&self, id: u64) -> bool {
        self.parts.as_ref().is_some_and(|parts| {
            parts.retained.allocations.contains_key(&id) || parts.retained.pinned.contains_key(&id)
        })
    }

    /// Runs it once, in the order of `stream`. Does not wait.
    pub fn launch(&self, stream: &Stream) -> Result<(), Error> {
        const CALL: &str = "Graph::launch";
        let Some(parts) = &self.parts else { return Ok(()) };
        if self.void {
            return Err(Error::GraphMismatch {
                what: "an update failed midway".to_owned(),
                graph: "parts of two captures".to_owned(),
                asked: "one of them".to_owned(),
            });
        }
        stream.inner.same_device(CALL, "the graph", &parts.device)?;
        stream.inner.issue(CALL, |_| {
            stream.inner.timed("graph", || parts.launch(CALL, &stream.inner))?;
            self.replays.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
    }

    /// Runs it once if it was captured for `key`, else says which part of the key differs.
    pub fn launch_checked(&self, stream: &Stream, key: &GraphKey) -> Result<(), Error> {
        self.key.matches(key)?;
        self.launch(stream)
    }

    /// Captures `f` and puts its launch arguments, buffers and sizes into this graph, which is
    /// cheaper than another graph. The work must be of the same shape: the same kernels and copies
    /// in the same order. If it is not, the graph is as it was. If the driver fails midway, which
    /// may leave some of both in it, the graph refuses to be launched again.
    ///
    /// Waits for the launches of the graph so far. The key stays; `with_key` changes it.
    pub fn update(
        &mut self,
        stream: &Stream,
        f: impl FnOnce(&mut Capture<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        const CALL: &str = "Graph::update";
        let (template, recorded) = stream.record_graph(|scope| f(scope).map_err(|error| failed("recording", error)))?;
        let mismatch =
            |what: &str, graph: String, asked: String| Error::GraphMismatch { what: what.to_owned(), graph, asked };
        let Some(parts) = &mut self.parts else { return Ok(()) };
        stream.inner.same_device(CALL, "the graph", &parts.device)?;
        let kernels = count(&recorded.kernels);
        if (&kernels, recorded.copies, recorded.foreign) != (&self.kernels, self.copies, self.foreign) {
            let show = |kernels, copies, foreign| match foreign {
                0 => format!("{kernels:?} and {copies} copies"),
                _ => format!("{kernels:?}, {copies} copies and {foreign} nodes of other code"),
            };
            return Err(mismatch(
                "kernels and copies",
                show(&self.kernels, self.copies, self.foreign),
                show(&kernels, recorded.copies, recorded.foreign),
            ));
        }
        parts.settle(CALL)?;
        let (mut node, mut result) = (CUgraphNode::NULL, 0);
        // SAFETY: both graphs are alive, and no launch of this one is under way.
        let updated = unsafe { cu!(cuGraphExecUpdate(parts.exec, template.raw(), &mut node, &mut result)) };
        if let Err(error) = updated {
            const TOPOLOGY_AND_LATER: std::ops::RangeInclusive<i32> = 2..=7;
            return Err(match result {
                r if TOPOLOGY_AND_LATER.contains(&r) => mismatch(
                    "the driver cannot update it in place",
                    format!("{} nodes", self.nodes),
                    update_result(r).to_owned(),
                ),
                _ => {
                    self.void = true;
                    error
                }
            });
        }
        parts.retained = recorded.retained;
        Ok(())
    }
}

fn count(kernels: &[&'static str]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for kernel in kernels {
        *counts.entry(*kernel).or_default() += 1;
    }
    counts
}

/// `CUgraphExecUpdateResult` in words.
fn update_result(result: i32) -> &'static str {
    match result {
        2 => "another topology",
        3 => "another type of node",
        4 => "another function",
        5 => "other parameters than an update can change",
        6 => "something that an update cannot do",
        7 => "a function that cannot take the place of the old one",
        _ => "an unknown difference",
    }
}

impl GraphParts {
    /// Launches on a stream whose state is held.
    fn launch(&self, call: &'static str, stream: &Arc<StreamInner>) -> Result<(), Error> {
        // SAFETY: the stream's state is held: it is open, and its context is current.
        unsafe { stream.lane.issue(stream.raw(), self.retained.allocations.values(), || self.enqueue(call, stream)) }
    }

    fn enqueue(&self, call: &'static str, stream: &Arc<StreamInner>) -> Result<(), Error> {
        let mut in_flight = lock(&self.in_flight);
        let mut staging: Vec<_> = self.retained.pinned.values().map(|p| p.lock()).collect();
        for memory in &mut staging {
            memory.before_use(call, stream)?;
        }
        if !in_flight.iter().any(|s| s.id == stream.id) {
            in_flight.push(stream.clone());
        }
        // SAFETY: executable graph and stream are alive; the lock makes this its only launch.
        unsafe { cu!(cuGraphLaunch(self.exec, stream.raw())) }?;
        let mut noted = Ok(());
        for memory in &mut staging {
            noted = noted.and(memory.after_use(call, stream));
        }
        noted
    }

    /// Waits for all launches so far.
    fn settle(&self, call: &'static str) -> Result<(), Error> {
        let mut in_flight = lock(&self.in_flight);
        for stream in in_flight.iter() {
            stream.issue_bound(call, |raw| {
                // SAFETY: the stream is alive.
                unsafe { cu!(cuStreamSynchronize(raw)) }
            })?;
        }
        in_flight.clear();
        Ok(())
    }

    /// Waits for its launches and destroys it. The context is current. While one of its streams
    /// is being captured, it waits for the end of that.
    pub fn destroy(self) {
        let device = self.device.clone();
        match self.settle("drop") {
            Err(Error::StreamCapturing { .. }) => return device.discard(Dead::Graph(self)),
            Err(error) => device.defer_error(error),
            Ok(()) => {}
        }
        // SAFETY: made by `Graph::new`, destroyed here only, and its launches have ended (or the
        // context is lost, and nothing runs any more).
        if let Err(error) = unsafe { cu!(cuGraphExecDestroy(self.exec)) } {
            device.defer_error(error);
        }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let Some(parts) = self.parts.take() {
            let device = parts.device.clone();
            device.discard(Dead::Graph(parts));
        }
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph")
            .field("nodes", &self.nodes)
            .field("launches", &self.launches)
            .field("copies", &self.copies)
            .field("key", &self.key)
            .field("replays", &self.replays())
            .finish()
    }
}
