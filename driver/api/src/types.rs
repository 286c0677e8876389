//! The C types of the driver API, as CUDA 11.4 to 13 lay them out on a 64-bit host.
//!
//! Results and enumerations are integers here: a driver may answer with a value that a Rust `enum`
//! does not have. Handles are transparent pointers that nobody dereferences; the software engine's
//! are numbers that are never given out twice.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

/// What every driver function answers; 0 is success. See [`crate::result_name`].
pub type CUresult = i32;
/// A device's ordinal.
pub type CUdevice = c_int;
/// An address in device memory.
pub type CUdeviceptr = u64;

macro_rules! handles {
    ($($(#[$m:meta])* $name:ident;)*) => {$(
        $(#[$m])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name(pub *mut c_void);
        // SAFETY: a handle is a number to us, and the driver lets any thread use it.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}
        impl $name {
            /// The null handle.
            pub const NULL: Self = Self(std::ptr::null_mut());
            pub(crate) fn id(self) -> u64 {
                self.0.addr() as u64
            }
            pub(crate) fn from_id(id: u64) -> Self {
                Self(std::ptr::without_provenance_mut(id as usize))
            }
        }
    )*};
}
handles! {
    /// A context.
    CUcontext;
    /// A loaded module.
    CUmodule;
    /// A kernel of a module.
    CUfunction;
    /// A stream; null is the legacy default stream, 1 and 2 name the legacy and the per-thread one.
    CUstream;
    /// An event.
    CUevent;
    /// A graph.
    CUgraph;
    /// A node of a graph.
    CUgraphNode;
    /// An instantiated graph.
    CUgraphExec;
    /// A memory pool.
    CUmemoryPool;
    /// A linker invocation.
    CUlinkState;
    /// A library: code that belongs to no context.
    CUlibrary;
    /// A kernel of a library.
    CUkernel;
    /// A user object, which graphs may own.
    CUuserObject;
}

/// A host function in a stream or graph.
pub type CUhostFn = Option<unsafe extern "C" fn(*mut c_void)>;
/// A host function of `cuStreamAddCallback`.
pub type CUstreamCallback = Option<unsafe extern "C" fn(CUstream, CUresult, *mut c_void)>;
/// Dynamic shared memory as a function of the block size.
pub type CUoccupancyB2DSize = Option<unsafe extern "C" fn(c_int) -> usize>;

/// A device's UUID.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUuuid {
    /// The sixteen bytes.
    pub bytes: [c_char; 16],
}

/// The answer of the old `cuDeviceGetProperties`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct CUdevprop {
    pub max_threads_per_block: c_int,
    pub max_threads_dim: [c_int; 3],
    pub max_grid_size: [c_int; 3],
    pub shared_mem_per_block: c_int,
    pub total_constant_memory: c_int,
    pub simd_width: c_int,
    pub mem_pitch: c_int,
    pub regs_per_block: c_int,
    pub clock_rate: c_int,
    pub texture_align: c_int,
}

/// `CUDA_KERNEL_NODE_PARAMS`, first version (no kernel and context handle).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct KernelNodeParams {
    pub func: CUfunction,
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared_mem_bytes: c_uint,
    pub kernel_params: *mut *mut c_void,
    pub extra: *mut *mut c_void,
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct KernelNodeParamsV2 {
    pub v1: KernelNodeParams,
    pub kern: *mut c_void,
    pub ctx: CUcontext,
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct MemsetNodeParams {
    pub dst: CUdeviceptr,
    pub pitch: usize,
    pub value: c_uint,
    pub element_size: c_uint,
    pub width: usize,
    pub height: usize,
}

/// `CUDA_HOST_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct HostNodeParams {
    pub function: CUhostFn,
    pub user_data: *mut c_void,
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Memcpy2D {
    pub src_x_in_bytes: usize,
    pub src_y: usize,
    pub src_memory_type: c_uint,
    pub src_host: *const c_void,
    pub src_device: CUdeviceptr,
    pub src_array: *mut c_void,
    pub src_pitch: usize,
    pub dst_x_in_bytes: usize,
    pub dst_y: usize,
    pub dst_memory_type: c_uint,
    pub dst_host: *mut c_void,
    pub dst_device: CUdeviceptr,
    pub dst_array: *mut c_void,
    pub dst_pitch: usize,
    pub width_in_bytes: usize,
    pub height: usize,
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Memcpy3D {
    pub src_x_in_bytes: usize,
    pub src_y: usize,
    pub src_z: usize,
    pub src_lod: usize,
    pub src_memory_type: c_uint,
    pub src_host: *const c_void,
    pub src_device: CUdeviceptr,
    pub src_array: *mut c_void,
    pub reserved0: *mut c_void,
    pub src_pitch: usize,
    pub src_height: usize,
    pub dst_x_in_bytes: usize,
    pub dst_y: usize,
    pub dst_z: usize,
    pub dst_lod: usize,
    pub dst_memory_type: c_uint,
    pub dst_host: *mut c_void,
    pub dst_device: CUdeviceptr,
    pub dst_array: *mut c_void,
    pub reserved1: *mut c_void,
    pub dst_pitch: usize,
    pub dst_height: usize,
    pub width_in_bytes: usize,
    pub height: usize,
    pub depth: usize,
}

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct ArrayDescriptor {
    pub width: usize,
    pub height: usize,
    pub format: c_uint,
    pub channels: c_uint,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct ArrayDescriptor3D {
    pub width: usize,
    pub height: usize,
    pub depth: usize,
    pub format: c_uint,
    pub channels: c_uint,
    pub flags: c_uint,
}

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct GraphExecUpdateResultInfo {
    pub result: c_int,
    pub error_node: CUgraphNode,
    pub error_from_node: CUgraphNode,
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct GraphInstantiateParams {
    pub flags: c_ulonglong,
    pub upload_stream: CUstream,
    pub error_node: CUgraphNode,
    pub result: c_int,
}

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct MemLocation {
    pub kind: c_int,
    pub id: c_int,
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct MemAccessDesc {
    pub location: MemLocation,
    pub flags: c_int,
}

/// `CUipcMemHandle` and `CUipcEventHandle`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct IpcHandle {
    pub reserved: [c_char; 64],
}

/// `CUgraphEdgeData`; all zero for an ordinary edge.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct GraphEdgeData {
    pub from_port: u8,
    pub to_port: u8,
    pub kind: u8,
    pub reserved: [u8; 5],
}

/// `CUgraphNodeParams`: the kind of a node and, by kind, its parameters.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct GraphNodeParams {
    pub kind: c_int,
    pub reserved0: [c_int; 3],
    pub parameters: [u64; 29],
    pub reserved2: u64,
}

/// `CUDA_MEMCPY_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct MemcpyNodeParams {
    pub flags: c_int,
    pub reserved: c_int,
    pub context: CUcontext,
    pub copy: Memcpy3D,
}

/// `CUDA_MEMSET_NODE_PARAMS_v2`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct MemsetNodeParamsV2 {
    pub v1: MemsetNodeParams,
    pub context: CUcontext,
}

/// `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct MemPoolProps {
    pub alloc_type: c_int,
    pub handle_types: c_int,
    pub location: MemLocation,
    pub win32_security_attributes: *mut c_void,
    pub reserved: [u8; 64],
}

/// `CUlaunchAttribute`: the id, padding, and a 64-byte union.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct LaunchAttribute {
    pub id: c_uint,
    pub pad: [u8; 4],
    pub value: [c_uint; 16],
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct LaunchConfig {
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared_mem_bytes: c_uint,
    pub stream: CUstream,
    pub attributes: *mut LaunchAttribute,
    pub num_attributes: c_uint,
}
