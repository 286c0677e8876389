//! One piece of work, as a stream runs it at once or a graph keeps it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::graph::Graph;
use super::graph_memory::GraphAllocation;
use super::params::Params;

#[derive(Clone)]
pub(super) enum Op {
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
pub(super) struct Kernel {
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
pub(super) const COOPERATIVE: u32 = 2;
/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`.
pub(super) const PROGRAMMATIC: u32 = 6;

/// Where a copy reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// `None`: host memory, read or written when the copy runs.
    pub device: Option<i32>,
    pub address: u64,
    /// Bytes from a row to the next, and from a slice to the next.
    pub pitch: usize,
    pub slice: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Copy {
    pub src: Place,
    pub dst: Place,
    /// Bytes of a row, rows of a slice, slices.
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// `height` rows of `width` elements of 1, 2 or 4 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fill {
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
pub(super) struct HostCall {
    pub function: HostFunction,
    pub user_data: usize,
}

#[derive(Clone, Copy)]
pub(super) enum HostFunction {
    Plain(unsafe extern "C" fn(*mut std::ffi::c_void)),
    /// Of `cuStreamAddCallback`, with its stream.
    OfStream(unsafe extern "C" fn(crate::CUstream, crate::CUresult, *mut std::ffi::c_void), u64),
}
