//! Metadata of a kernel, and the traits of a launch.

use super::{ContractError, Geometry};

/// How a kernel takes one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArgKind {
    /// A buffer that is read.
    In,
    /// A buffer that is written.
    Out,
    /// A buffer that is read and written.
    InOut,
    /// A number by value.
    Scalar,
    /// A `#[repr(C)]` struct by value.
    Struct,
}

impl ArgKind {
    /// Whether the argument is a device address.
    pub const fn is_buffer(self) -> bool {
        matches!(self, ArgKind::In | ArgKind::Out | ArgKind::InOut)
    }
    /// The name that the manifest uses.
    pub const fn name(self) -> &'static str {
        match self {
            ArgKind::In => "in",
            ArgKind::Out => "out",
            ArgKind::InOut => "inout",
            ArgKind::Scalar => "scalar",
            ArgKind::Struct => "struct",
        }
    }
}

/// What a kernel may do to a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// It reads and writes.
    ReadWrite,
}

/// One argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArgMeta {
    /// Its name in the signature.
    pub name: &'static str,
    /// Its type as written, such as `In<f32>`.
    pub ty: &'static str,
    /// How it is passed.
    pub kind: ArgKind,
    /// For a buffer the type of its elements, else the type itself.
    pub element: &'static str,
    /// Bytes of the parameter: 8 for a buffer (an address), else the size of the value.
    pub size: u32,
    /// Alignment of the parameter: 8 for a buffer.
    pub align: u32,
    /// Bytes of one element; for a value, its size.
    pub element_size: u32,
    /// Alignment of one element: device addresses of the buffer must be multiples of it.
    pub element_align: u32,
    /// Of a value the words that differ between launches that are otherwise alike, as [`Element::VARIES`](crate::Element::VARIES) says;
    /// of a buffer all.
    pub varies: u32,
}

impl ArgMeta {
    /// Whether a byte of its value differs between launches that are otherwise alike, as [`varies`](Self::varies) says.
    pub const fn varies_at(&self, byte: usize) -> bool {
        byte >= 128 || self.varies >> (byte / 4) & 1 == 1
    }
}

/// One kernel, as `#[kernel]` saw it. The builder's manifest holds the same facts from the
/// device build, so a host can tell that the two builds belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelMeta {
    /// The package that the kernel stands in.
    pub library: &'static str,
    /// The PTX entry.
    pub name: &'static str,
    /// The kernels that it belongs with: by default the name of its source file.
    pub family: &'static str,
    /// Which of several versions of one kernel it is; empty if there is one.
    pub variant: &'static str,
    /// First line of its documentation.
    pub summary: &'static str,
    /// Source file.
    pub file: &'static str,
    /// Line of the function in `file`.
    pub line: u32,
    /// Threads of a block in x, y and z. It is the launch bound too.
    pub block: [u32; 3],
    /// Blocks that one multiprocessor should hold at a time; 0 says nothing.
    pub min_blocks: u32,
    /// The arguments, in order.
    pub args: &'static [ArgMeta],
}

impl KernelMeta {
    /// Threads of a block.
    pub const fn threads(&self) -> u32 {
        self.block[0] * self.block[1] * self.block[2]
    }
    /// The argument of this name.
    pub fn arg(&self, name: &str) -> Option<&'static ArgMeta> {
        self.args.iter().find(|a| a.name == name)
    }
}

/// Takes a kernel's arguments one by one, in the order of its signature.
pub trait ArgSink {
    /// A buffer: `bytes` from `address` on stay borrowed for as long as the launch value lives.
    fn buffer(&mut self, arg: &'static ArgMeta, address: u64, bytes: u64, access: Access);
    /// A value: its bytes, `arg.size` of them.
    fn scalar(&mut self, arg: &'static ArgMeta, bytes: &[u8]);
}

/// The parameters of a launch, which `args` hands over, in one block, as simulators and drivers take them whole: each at a multiple
/// of its alignment.
pub fn param_block(args: impl FnOnce(&mut dyn ArgSink)) -> Vec<u8> {
    #[derive(Default)]
    struct ParamBlock(Vec<u8>);

    impl ParamBlock {
        fn push(&mut self, align: u32, bytes: &[u8]) {
            self.0.resize(self.0.len().next_multiple_of(align.max(1) as usize), 0);
            self.0.extend_from_slice(bytes);
        }
    }

    impl ArgSink for ParamBlock {
        fn buffer(&mut self, _: &'static ArgMeta, address: u64, _: u64, _: Access) {
            self.push(8, &address.to_le_bytes());
        }
        fn scalar(&mut self, arg: &'static ArgMeta, bytes: &[u8]) {
            self.push(arg.align, bytes);
        }
    }

    let mut block = ParamBlock::default();
    args(&mut block);
    block.0
}

/// A launch of one kernel: the struct that `#[kernel]` makes on the host.
///
/// # Safety
/// `META` describes the kernel of that name in the library, and `args` hands every argument of
/// `META.args` to the sink exactly once and in that order, buffers to `buffer`, values to `scalar`
/// with `size` bytes. `#[kernel]` writes implementations; there is no need to write one by hand.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a kernel launch",
    note = "`#[kernel]` on `unsafe fn name` makes the launch struct `Name`"
)]
pub unsafe trait Kernel {
    /// What is known about the kernel.
    const META: &'static KernelMeta;
    /// Hands the arguments to `sink`.
    fn args(&self, sink: &mut dyn ArgSink);
}

/// What a kernel asks of a launch. Its author writes it, next to the kernel.
///
/// A runtime calls `check` before each launch and launches only if it passes: the kernel may rely
/// on everything that `check` says, and reads and writes unchecked memory on the strength of it.
#[diagnostic::on_unimplemented(
    message = "the kernel of `{Self}` has no contract",
    label = "cannot be launched: nothing says how many blocks it wants and which lengths it needs",
    note = "write `impl Contract for {Self}` with `geometry` and `check` next to the kernel"
)]
pub trait Contract: Kernel {
    /// Blocks, threads and dynamic shared memory for these arguments.
    fn geometry(&self) -> Geometry;
    /// Lengths against shapes. Aliasing needs no check: the borrows exclude it.
    fn check(&self) -> Result<(), ContractError>;
}

/// A [`Contract`] of any kernel: what takes launches is compiled once, and not for every kernel.
pub trait AnyKernel {
    /// [`Kernel::META`].
    fn meta(&self) -> &'static KernelMeta;
    /// [`Contract::geometry`].
    fn geometry(&self) -> Geometry;
    /// [`Contract::check`].
    fn check(&self) -> Result<(), ContractError>;
    /// [`Kernel::args`].
    fn args(&self, sink: &mut dyn ArgSink);
}

impl<K: Contract> AnyKernel for K {
    fn meta(&self) -> &'static KernelMeta {
        K::META
    }
    fn geometry(&self) -> Geometry {
        Contract::geometry(self)
    }
    fn check(&self) -> Result<(), ContractError> {
        Contract::check(self)
    }
    fn args(&self, sink: &mut dyn ArgSink) {
        Kernel::args(self, sink);
    }
}

/// A kernel that reaches the buffers of its arguments and no other memory, so that the borrows of its launch say all that
/// it may touch.
///
/// `#[kernel]` implements it where no type of an argument holds a [`DeviceAddress`](crate::DeviceAddress), and where the
/// attribute says `addresses = "ignored"`.
///
/// # Safety
/// It dereferences no address that it did not get as an `In`, `Awaited`, `Out` or `InOut` argument.
#[diagnostic::on_unimplemented(
    message = "the kernel of `{Self}` follows addresses in device memory",
    label = "not checked by `launch`: what the addresses lead to",
    note = "`unsafe {{ … .launch_unchecked(…) }}` takes it; its caller keeps that memory alive and apart from what else is written"
)]
pub unsafe trait Confined: Kernel {}

/// Whether the arguments fit the parameters that every driver accepts.
#[doc(hidden)]
pub const fn args_fit(args: &[ArgMeta]) -> bool {
    let (mut bytes, mut i) = (0u32, 0);
    while i < args.len() {
        bytes = bytes.next_multiple_of(args[i].align) + args[i].size;
        i += 1;
    }
    bytes <= 4096
}
