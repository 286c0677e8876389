//! One piece of work, as a stream runs it at once or a graph keeps it, and the graphs that keep it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use warpsmith_simt::POISON;

use crate::software::params::Params;
use crate::software::tables::device::Device;

#[derive(Clone)]
pub(crate) enum Op {
    Kernel(Kernel),
    Copy(Copy),
    Fill(Fill),
    Host(HostCall),
    Empty,
    Child(Arc<Graph>),
    EventRecord(u64),
    EventWait(u64),
    Alloc(Arc<GraphAllocation>),
    /// Frees what an `Alloc` of this or another graph gave: device and address.
    Free(i32, u64),
}

impl Op {
    /// `CUgraphNodeType`.
    pub fn node_type(&self) -> i32 {
        match self {
            Op::Kernel(_) => 0,
            Op::Copy(_) => 1,
            Op::Fill(_) => 2,
            Op::Host(_) => 3,
            Op::Child(_) => 4,
            Op::Empty => 5,
            Op::EventWait(_) => 6,
            Op::EventRecord(_) => 7,
            Op::Alloc(_) => 10,
            Op::Free(..) => 11,
        }
    }
}

/// A kernel with its arguments, which were copied when the work was issued.
#[derive(Clone)]
pub(crate) struct Kernel {
    pub function: u64,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
    pub params: Arc<Params>,
    /// Attributes of the launch or the graph's node, by `CUlaunchAttributeID`. Of those that are kept, a cooperative launch's
    /// alone changes how it runs: its blocks have a workspace for waiting for each other.
    pub attributes: BTreeMap<u32, [u32; 16]>,
}

impl Kernel {
    /// Whether all its blocks run at once and may wait for each other.
    pub fn is_cooperative(&self) -> bool {
        self.attributes.get(&COOPERATIVE).is_some_and(|value| value[0] != 0)
    }

    /// Whether it may begin while the launch in front of it ends, where the checks ask.
    pub fn is_programmatic(&self) -> bool {
        self.attributes.get(&PROGRAMMATIC).is_some_and(|value| value[0] != 0)
    }
}

/// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`.
pub(crate) const COOPERATIVE: u32 = 2;

/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`.
pub(crate) const PROGRAMMATIC: u32 = 6;

/// Where a copy reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// `None`: host memory, read or written when the copy runs.
    pub device: Option<i32>,
    pub address: u64,
    /// Bytes from a row to the next, and from a slice to the next.
    pub pitch: usize,
    pub slice: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Copy {
    pub src: Place,
    pub dst: Place,
    /// Bytes of a row, rows of a slice, slices.
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// `height` rows of `width` elements of 1, 2 or 4 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fill {
    pub device: i32,
    pub dst: u64,
    pub pitch: usize,
    pub value: u32,
    pub element: u32,
    pub width: usize,
    pub height: usize,
}

/// A host function. Its pointers are the caller's, to whom alone they mean something.
#[derive(Clone, Copy)]
pub(crate) struct HostCall {
    pub function: HostFunction,
    pub user_data: usize,
}

#[derive(Clone, Copy)]
pub(crate) enum HostFunction {
    Plain(unsafe extern "C" fn(*mut std::ffi::c_void)),
    /// Of `cuStreamAddCallback`, with its stream.
    OfStream(unsafe extern "C" fn(crate::CUstream, crate::CUresult, *mut std::ffi::c_void), u64),
}

/// References that a graph or executable graph holds.
pub(crate) type Held = HashMap<u64, u64>;

#[derive(Clone, Default)]
pub(crate) struct Graph {
    /// In order of creation, which the handles follow.
    pub nodes: BTreeMap<u64, Node>,
    /// Whether a capture still fills it.
    pub capturing: bool,
    /// Which node of this graph a node of the original became.
    pub clone_of: HashMap<u64, u64>,
    /// References to user objects that go with the graph.
    pub objects: Held,
}

#[derive(Clone)]
pub(crate) struct Node {
    pub op: Op,
    pub deps: Vec<u64>,
}

impl Graph {
    /// An empty graph for a capture to fill.
    pub fn of_capture() -> Graph {
        Graph { capturing: true, ..Graph::default() }
    }

    /// The nodes in an order that respects every dependency, and among those the earliest created
    /// first: a captured graph comes out in the order of its capture. `None` if there is a cycle.
    pub fn topological(&self) -> Option<Vec<u64>> {
        let mut waits: HashMap<u64, usize> = HashMap::new();
        let mut dependents: HashMap<u64, Vec<u64>> = HashMap::new();
        for (id, node) in &self.nodes {
            waits.insert(*id, node.deps.len());
            for dep in &node.deps {
                dependents.entry(*dep).or_default().push(*id);
            }
        }
        let mut ready: BTreeSet<u64> = waits.iter().filter(|(_, n)| **n == 0).map(|(id, _)| *id).collect();
        let mut order = Vec::with_capacity(self.nodes.len());
        while let Some(id) = ready.pop_first() {
            order.push(id);
            for dependent in dependents.get(&id).into_iter().flatten() {
                if let Some(n) = waits.get_mut(dependent) {
                    *n -= 1;
                    if *n == 0 {
                        ready.insert(*dependent);
                    }
                }
            }
        }
        (order.len() == self.nodes.len()).then_some(order)
    }
}

/// Memory that nodes of a graph allocate and free.
pub(crate) struct GraphAllocation {
    pub device: &'static Device,
    pub address: u64,
    pub bytes: u64,
}

impl Drop for GraphAllocation {
    fn drop(&mut self) {
        // Allocated by `reserve`, and freed here alone.
        let _ = self.device.machine.memory().free(self.address);
    }
}

impl GraphAllocation {
    pub fn poison(&self) {
        // The whole of a live allocation: nothing to refuse.
        let _ = self.device.machine.memory().fill(self.address, &[POISON], self.bytes);
    }
}
