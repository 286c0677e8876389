//! The one error type of the runtime.
//!
//! Names and numbers are in the fields, for programs; the text says the same for people, and what
//! to do about it. A failed call never leaves half of its effect behind: nothing was launched,
//! and streams stay usable unless the text says that the device is lost.

mod words;

use crate::sys::code;
use std::fmt;
use warpsmith_device::ContractError;
use words::{Archs, List, Part, Plural, contract_hint, hint};

/// What went wrong in the runtime.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A driver function failed.
    #[error("{call} failed: {name} ({code}): {text}{}{}", Part("\n", detail), Part("\nhint: ", hint))]
    Driver {
        /// The function of the CUDA driver API.
        call: &'static str,
        /// Its answer.
        code: i32,
        /// The name of the answer, such as `CUDA_ERROR_INVALID_VALUE`.
        name: &'static str,
        /// The answer in words.
        text: &'static str,
        /// The software driver's report of the fault, or the compiler's log.
        detail: Option<String>,
        /// What to do about it.
        hint: Option<&'static str>,
    },
    /// Two copies of the CUDA driver are loaded in this process, and a handle is of the other one.
    #[error(
        "{call}: this process has two CUDA drivers: this crate runs on {ours}, and other code loaded {other}; handles of one mean \
         nothing to the other\nhint: let the other code open its device first, with the software driver's `libcuda.so.1` on the \
         loader's path, and this crate joins it; or run both on NVIDIA's driver"
    )]
    TwoDrivers {
        /// What was called.
        call: &'static str,
        /// The engine of this crate.
        ours: String,
        /// The library that other code has loaded.
        other: String,
    },
    /// Memory that was to be adopted belongs to an allocation that the device knows.
    #[error("Buffer::from_raw: {bytes} bytes at {address:#x} belong to a buffer that exists already")]
    Owned {
        /// Where the memory starts.
        address: u64,
        /// Its bytes.
        bytes: u64,
    },
    /// A handle of another process's buffer does not fit what it is opened as, or its memory.
    #[error("Device::open_buffer: a handle of {bytes} bytes, {why}")]
    Handle {
        /// Bytes of the buffer, as the handle has them.
        bytes: u64,
        /// What does not fit.
        why: String,
    },
    /// A device whose events processes cannot share.
    #[error(
        "{call}: device {device} shares no events with other processes (`CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED` is 0)"
    )]
    NotShared {
        /// What was called.
        call: &'static str,
        /// The device.
        device: u32,
    },
    /// A handle that was to be adopted is of another context.
    #[error(
        "{call}: it belongs to another context than the device; `Device::from_context` makes the device of a context"
    )]
    ForeignContext {
        /// What was called.
        call: &'static str,
    },
    /// There is no engine to run on.
    #[error(
        "no engine to run on: {reason}\nhint: set WARPSMITH_DRIVER=software for the software driver, \
         which needs no GPU; `warpsmith doctor` says what is found"
    )]
    NoEngine {
        /// What the driver said.
        reason: String,
    },
    /// The engine has no device of this ordinal.
    #[error(
        "no device {ordinal}: the engine ({engine}) has {count} device{}\nhint: ordinals start at 0; \
         WARPSMITH_DEVICES=n gives the software driver n devices, CUDA_VISIBLE_DEVICES limits the real one, \
         and WARPSMITH_DRIVER chooses between them",
        Plural(*count)
    )]
    NoDevice {
        /// The ordinal that was asked for.
        ordinal: u32,
        /// How many devices there are.
        count: u32,
        /// The engine that runs.
        engine: String,
    },
    /// Device memory is exhausted.
    #[error(
        "out of device memory: {requested} bytes were requested, {free} of {total} are free\n\
         hint: drop buffers that are no longer needed; WARPSMITH_MEMORY sizes the software device"
    )]
    OutOfMemory {
        /// Bytes that were asked for; `u64::MAX` where the size overflows.
        requested: u64,
        /// Bytes that were free afterwards, fragmentation aside.
        free: u64,
        /// Bytes of the device.
        total: u64,
    },
    /// Page-locked host memory is exhausted.
    #[error("no {requested} bytes of page-locked host memory can be had")]
    OutOfHostMemory {
        /// Bytes that were asked for; `u64::MAX` where the size overflows.
        requested: u64,
    },
    /// A launch breaks its kernel's contract.
    #[error("{0}\nhint: {hint}", hint = contract_hint(.0))]
    Contract(ContractError),
    /// A launch asks for more than the device or the compiled kernel can give.
    #[error(
        "{kernel}: {what}: {requested} requested, the limit is {limit}\nhint: `geometry` of its contract asks for \
         them; `Device::limits` says what there is"
    )]
    LaunchLimit {
        /// The kernel.
        kernel: &'static str,
        /// Which limit, with its unit.
        what: &'static str,
        /// What the launch asks for.
        requested: u64,
        /// What there is.
        limit: u64,
    },
    /// A kernel with barriers of the whole grid was launched as if it had none.
    #[error(
        "{kernel}: it has barriers of the whole grid (`grid::sync`), and its launch is not cooperative\nhint: let \
         `geometry` of its contract end in `.cooperative()`"
    )]
    NotCooperative {
        /// The kernel.
        kernel: &'static str,
    },
    /// A kernel that never waits was launched as if it did.
    #[error(
        "{kernel}: it never waits for the launches before it (`grid::wait_dependencies`), and its launch is programmatic: the launch \
         behind it would run beside them\nhint: let it wait, in every thread and before it touches what they touch, or launch it \
         without `Geometry::programmatic`"
    )]
    NeverWaits {
        /// The kernel.
        kernel: &'static str,
    },
    /// The blocks of a cooperative launch cannot be on the device at the same time.
    #[error(
        "{kernel}: {blocks} blocks in a cooperative launch, and {resident} can be on the device at the same time \
         ({per_multiprocessor} on each of {multiprocessors} multiprocessors)\nhint: launch as many as \
         `Device::resident_blocks` says, and let each do several blocks' work in a loop; fewer registers or less shared \
         memory let more fit"
    )]
    TooManyResident {
        /// The kernel.
        kernel: &'static str,
        /// Blocks of the launch.
        blocks: u64,
        /// Blocks that fit.
        resident: u64,
        /// Blocks that fit on one multiprocessor.
        per_multiprocessor: u32,
        /// Multiprocessors of the device.
        multiprocessors: u32,
    },
    /// A buffer argument is a null pointer.
    #[error("{kernel}: argument `{argument}` is a null pointer (address {address:#x})")]
    NullPointer {
        /// The kernel or the operation.
        kernel: &'static str,
        /// The argument.
        argument: &'static str,
        /// The address, which is on the first page.
        address: u64,
    },
    /// A slice reaches beyond the allocation that it starts in.
    #[error(
        "{operation}: `{argument}` reaches from {address:#x} over {bytes} bytes, beyond the end of its \
         allocation ({base:#x}, {size} bytes)"
    )]
    OutOfRange {
        /// The kernel or the operation.
        operation: &'static str,
        /// The argument.
        argument: &'static str,
        /// Where the slice starts.
        address: u64,
        /// Bytes of the slice.
        bytes: u64,
        /// Where the allocation starts.
        base: u64,
        /// Bytes of the allocation.
        size: u64,
    },
    /// Memory, a stream or a graph of another device.
    #[error("{operation}: {what} belongs to device {owner}, not to device {device}")]
    ForeignDevice {
        /// The kernel or the operation.
        operation: &'static str,
        /// The argument, or the kind of object.
        what: &'static str,
        /// The device that it belongs to.
        owner: u32,
        /// The device of the stream.
        device: u32,
    },
    /// Kernels of one device cannot reach the memory of another.
    #[error(
        "device {device} has no access to the memory of device {peer}\n\
         hint: `Stream::copy_peer` copies between them all the same; `nvidia-smi topo -p2p r` shows which devices reach each other"
    )]
    NoPeerAccess {
        /// The device whose kernels were to reach it.
        device: u32,
        /// The device that has the memory.
        peer: u32,
    },
    /// Memory that a graph could not keep alive.
    #[error(
        "{operation}: `{argument}` (address {address:#x}) belongs to no buffer of this device, so a graph could \
         not keep it alive\nhint: inside a capture, use slices of a `Buffer` only"
    )]
    UnknownOwner {
        /// The kernel or the operation.
        operation: &'static str,
        /// The argument.
        argument: &'static str,
        /// Its address.
        address: u64,
    },
    /// Two lengths that must be equal are not.
    #[error(
        "{operation}: lengths differ: the destination has {to} elements, the source {from}\nhint: a slice of the \
         longer one, `&x[..n]`, has the length of the other"
    )]
    SizeMismatch {
        /// The operation.
        operation: &'static str,
        /// Elements of the destination.
        to: usize,
        /// Elements of the source.
        from: usize,
    },
    /// An index is not within a staging buffer.
    #[error("{operation}: index {index} is not within {len} elements")]
    OutOfBounds {
        /// The operation.
        operation: &'static str,
        /// The index.
        index: usize,
        /// How many elements there are.
        len: usize,
    },
    /// A value that the driver's fill functions cannot repeat.
    #[error(
        "fill: a value of {bytes} bytes that is not a repeated pattern of 1, 2 or 4 bytes\nhint: write the \
         elements from the host, or with a kernel"
    )]
    FillPattern {
        /// Bytes of the value.
        bytes: usize,
    },
    /// The kernel's library is not loaded on the device.
    #[error(
        "{kernel}: its library `{library}` is not loaded on this device (loaded: {})\nhint: call \
         `device.load(&IMAGE)` once, with `static IMAGE: KernelImage = include_kernels!(\"…\")`",
        List(loaded)
    )]
    KernelNotLoaded {
        /// The kernel.
        kernel: &'static str,
        /// The library that it belongs to.
        library: &'static str,
        /// The libraries that are loaded.
        loaded: Vec<String>,
    },
    /// The compiled kernel and its description on the host come from different sources.
    #[error(
        "{kernel}: the loaded library `{library}` does not match this program: {difference}\nhint: rebuild both \
         from the same sources, or load the image that belongs to this program"
    )]
    StaleModule {
        /// The kernel.
        kernel: &'static str,
        /// The library.
        library: &'static str,
        /// What differs, and how.
        difference: String,
    },
    /// A kernel image that cannot be used.
    #[error("kernel image `{library}`: {problem}")]
    Image {
        /// The library.
        library: String,
        /// What is wrong with it.
        problem: String,
    },
    /// No code of an image runs on the device.
    #[error(
        "kernel image `{library}` has code for {}, and none of it runs on this device (sm_{sm})\nhint: name an \
         older architecture in `KernelCrate::archs`: code runs on its own architecture and newer ones",
        Archs(available)
    )]
    NoCodeForDevice {
        /// The library.
        library: String,
        /// The device's compute capability.
        sm: u32,
        /// What the image holds.
        available: Vec<u32>,
    },
    /// The driver refused a library's code.
    #[error("loading `{library}` (code for sm_{sm}) failed: {source}")]
    ModuleLoad {
        /// The library.
        library: String,
        /// The architecture of the code that was chosen.
        sm: u32,
        /// The driver's answer, with the compiler's log.
        source: Box<Error>,
    },
    /// A call that is not possible while the calling thread captures.
    #[error(
        "{call} is not possible while this thread captures a graph\nhint: inside `capture`, use only the scope; \
         allocate, load, synchronise and read before or after"
    )]
    InsideCapture {
        /// The call.
        call: &'static str,
    },
    /// A call on a stream that another thread captures.
    #[error("{call}: another thread is capturing this stream\nhint: give every thread its own stream")]
    StreamCapturing {
        /// The call.
        call: &'static str,
    },
    /// A stream whose capture could not be ended.
    #[error("{call}: a capture of this stream could not be ended\nhint: make another stream")]
    StreamLost {
        /// The call.
        call: &'static str,
    },
    /// A capture failed; there is no graph, and the stream is as before.
    #[error("capture failed while {stage}: {source}")]
    CaptureFailed {
        /// What was being done.
        stage: &'static str,
        /// Why it failed.
        source: Box<Error>,
    },
    /// What other code says that works on a stream or in a capture.
    #[error(transparent)]
    Foreign(Box<dyn std::error::Error + Send + Sync>),
    /// An operation inside a capture failed and the closure went on.
    #[error("the closure ignored the failure of an operation: {message}\nhint: hand it on, with `?`")]
    Ignored {
        /// The text of the first failure.
        message: String,
    },
    /// A captured graph does not hold what was recorded.
    #[error("the captured graph has {nodes} nodes, {recorded} operations were recorded")]
    NodeCount {
        /// Nodes of the graph.
        nodes: usize,
        /// Launches, copies and fills of the closure.
        recorded: usize,
    },
    /// Two operations of a graph touch the same memory in no order.
    #[error(
        "`{}` of `{}` and `{}` of `{}` (operation {index}) touch the same memory in no order\n\
         hint: let the one follow the other, by `GraphBuilder::after`", second.1, second.0, first.1, first.0
    )]
    Unordered {
        /// Operation and argument of what is there.
        first: (&'static str, &'static str),
        /// Which operation it is, from 0 on.
        index: usize,
        /// Operation and argument of what was to be added.
        second: (&'static str, &'static str),
    },
    /// A node of one graph was named to another.
    #[error("the node belongs to another graph builder")]
    OtherGraph,
    /// A graph that does not fit what it is to be used for.
    #[error("graph mismatch: {what}: the graph has {graph}, asked for {asked}\nhint: capture it again")]
    GraphMismatch {
        /// What differs.
        what: String,
        /// What the graph was captured with.
        graph: String,
        /// What it was asked for.
        asked: String,
    },
    /// The checks of the software driver have found errors in what this thread did.
    #[error("the checks found {count} error{}:\n{text}", Plural(u32::try_from(*count).unwrap_or(u32::MAX)))]
    Findings {
        /// How many, by place.
        count: usize,
        /// The reports.
        text: String,
    },
    /// Staging memory that the device may still be using, because waiting for it failed.
    #[error("{call}: waiting for the device to finish with this staging memory has failed; it is not accessed again")]
    StagingLost {
        /// The call.
        call: &'static str,
    },
}

/// The text of `Display`: what a `main` that returns the error, or an `unwrap`, prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// The error of a driver function that answered `code`.
    pub(crate) fn driver(call: &'static str, answered: i32) -> Error {
        // `cust` and the link layer fold codes that they do not know into one; the driver crate
        // remembers the real one.
        let code = match warpsmith_driver_api::last_raw_result() {
            raw if answered == code::UNKNOWN && raw != 0 => raw,
            _ => answered,
        };
        let detail = is_fault(code).then(warpsmith_driver_api::software::last_report).flatten();
        if is_fault(code) {
            // The fault is told here; as a finding it would be told again by whatever runs on this thread next.
            warpsmith_driver_api::software::take_findings();
        }
        Error::Driver {
            call,
            code,
            name: warpsmith_driver_api::result_name(code),
            text: warpsmith_driver_api::result_text(code),
            detail,
            hint: hint(code),
        }
    }

    /// The driver's code, if a driver function is the origin.
    pub fn code(&self) -> Option<i32> {
        match self.root() {
            Error::Driver { code, .. } => Some(*code),
            Error::OutOfMemory { .. } | Error::OutOfHostMemory { .. } => Some(code::OUT_OF_MEMORY),
            _ => None,
        }
    }

    /// The innermost error: what failed first.
    pub fn root(&self) -> &Error {
        match self {
            Error::CaptureFailed { source, .. } | Error::ModuleLoad { source, .. } => source.root(),
            other => other,
        }
    }

    /// Whether the device's context is lost: a kernel faulted, and every later call fails too.
    pub fn is_device_lost(&self) -> bool {
        self.code().is_some_and(is_fault)
    }
}

/// Whether a code says that a kernel faulted, which a context does not survive.
fn is_fault(code: i32) -> bool {
    matches!(code, 700 | 702 | 710 | 714..=720)
}

// Not as its source: the text has all that it says.
impl From<ContractError> for Error {
    fn from(error: ContractError) -> Error {
        Error::Contract(error)
    }
}

#[cfg(test)]
mod tests;
