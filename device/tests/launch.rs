//! What `#[kernel]` gives on the host.

use warpsmith_device::prelude::*;

/// Parameters by value.
#[derive(Clone, Copy, Element)]
#[repr(C)]
pub struct Window {
    /// First position.
    pub start: u32,
    /// Positions.
    pub len: u32,
    /// Factor.
    pub scale: f32,
}

const ROWS: usize = 4;

/// Normalises rows: `"quoted" {braces}` and \ survive.
///
/// More.
#[kernel(block = (32, ROWS), min_blocks = 2, variant = "v2", family = "norms", name = "demo_norm")]
#[allow(clippy::needless_range_loop)]
pub unsafe fn demo(
    /// The input.
    x: In<f32>,
    mut y: Out<f16>,
    acc: InOut<[u32; 2]>,
    w: Window,
    n: u32,
    eps: f64,
) {
    y.set(0, x.at(0));
}

impl Contract for Demo<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::blocks(self.n)
    }
    fn check(&self) -> Result<(), ContractError> {
        contract::at_least(Self::META, "x", self.x.len(), (self.n, "n"))
    }
}

/// No buffers, no lifetime.
#[kernel(block = 1)]
pub unsafe fn nothing() {}

/// Name, address, bytes and access of a buffer; name and bytes of a value.
type Seen = (&'static str, u64, u64, Option<Access>, Vec<u8>);

#[derive(Default)]
struct Record(Vec<Seen>);

impl ArgSink for Record {
    fn buffer(&mut self, arg: &'static ArgMeta, address: u64, bytes: u64, access: Access) {
        self.0.push((arg.name, address, bytes, Some(access), Vec::new()));
    }
    fn scalar(&mut self, arg: &'static ArgMeta, bytes: &[u8]) {
        assert_eq!(bytes.len(), arg.size as usize);
        self.0.push((arg.name, 0, 0, None, bytes.to_vec()));
    }
}

fn slice<'a, T: Element>(address: u64, len: usize) -> &'a mut DeviceSlice<T> {
    // SAFETY: nothing reads device memory in these tests, and the addresses do not overlap.
    unsafe { DeviceSlice::from_raw_mut(address, len) }
}

#[test]
fn metadata() {
    let m = Demo::META;
    assert_eq!((m.library, m.name, m.family, m.variant), ("warpsmith-device", "demo_norm", "norms", "v2"));
    assert_eq!(m.summary, r#"Normalises rows: `"quoted" {braces}` and \ survive."#);
    assert!(m.file.ends_with("tests/launch.rs"), "{}", m.file);
    let source = include_str!("launch.rs");
    let line = source.lines().position(|l| l.starts_with("pub unsafe fn demo(")).map(|n| n as u32 + 1);
    assert_eq!(Some(m.line), line);
    assert_eq!((m.block, m.threads(), m.min_blocks), ([32, 4, 1], 128, 2));
    let args: Vec<_> = m
        .args
        .iter()
        .map(|a| (a.name, a.ty, a.kind, a.element, a.size, a.align, a.element_size, a.element_align))
        .collect();
    assert_eq!(
        args,
        [
            ("x", "In<f32>", ArgKind::In, "f32", 8, 8, 4, 4),
            ("y", "Out<f16>", ArgKind::Out, "f16", 8, 8, 2, 2),
            ("acc", "InOut<[u32; 2]>", ArgKind::InOut, "[u32; 2]", 8, 8, 8, 4),
            ("w", "Window", ArgKind::Struct, "Window", 12, 4, 12, 4),
            ("n", "u32", ArgKind::Scalar, "u32", 4, 4, 4, 4),
            ("eps", "f64", ArgKind::Scalar, "f64", 8, 8, 8, 8),
        ]
    );
    assert_eq!((Nothing::META.name, Nothing::META.family, Nothing::META.min_blocks), ("nothing", "launch", 0));
    assert!(Nothing::META.args.is_empty());
}

#[test]
fn arguments_in_order() {
    let launch = Demo {
        x: slice(0x1000, 10),
        y: slice(0x2000, 20),
        acc: slice(0x3000, 3),
        w: Window { start: 1, len: 2, scale: 1.0 },
        n: 10,
        eps: 0.5,
    };
    let mut record = Record::default();
    launch.args(&mut record);
    let mut window = Vec::new();
    window.extend(1u32.to_le_bytes());
    window.extend(2u32.to_le_bytes());
    window.extend(1f32.to_le_bytes());
    assert_eq!(
        record.0,
        [
            ("x", 0x1000, 40, Some(Access::Read), vec![]),
            ("y", 0x2000, 40, Some(Access::Write), vec![]),
            ("acc", 0x3000, 24, Some(Access::ReadWrite), vec![]),
            ("w", 0, 0, None, window),
            ("n", 0, 0, None, 10u32.to_le_bytes().to_vec()),
            ("eps", 0, 0, None, 0.5f64.to_le_bytes().to_vec()),
        ]
    );
    assert_eq!(launch.check(), Ok(()));
    let short = Demo { n: 11, ..launch };
    let error = short.check().unwrap_err();
    assert_eq!(error.to_string(), "demo_norm: argument `x`: expected at least 11 elements (n), got 10");
}

#[test]
fn slices() {
    let s = slice::<f32>(0x1000, 100);
    assert_eq!((s.len(), s.byte_len(), s.address().raw(), s.is_empty()), (100, 400, 0x1000, false));
    assert_eq!(format!("{s:?}"), "DeviceSlice { address: 0x1000, len: 100 }");
    let part = &s[10..20];
    assert_eq!((part.address().raw(), part.len()), (0x1028, 10));
    assert_eq!((s[..=4].len(), s[95..].len(), s[..].len(), s[3..=3].address().raw()), (5, 5, 100, 0x100c));
    assert!(s.get(90..101).is_none());
    #[allow(clippy::reversed_empty_ranges)]
    let reversed = s.get(5..4).is_none();
    assert!(reversed);
    assert!(s.get(..=usize::MAX).is_none());
    assert_eq!(s.get(100..).map(DeviceSlice::len), Some(0));
    assert!(s.split_at(101).is_none());
    let (a, b) = s.split_at_mut(30).unwrap();
    assert_eq!((a.len(), b.len(), a.address().raw() + 120), (30, 70, b.address().raw()));
    assert!(b.split_at_mut(71).is_none());
    let both = (&mut a[1..], &mut b[..1]);
    assert_eq!((both.0.len(), both.1.len()), (29, 1));
}

#[test]
fn an_empty_slice_has_an_aligned_address() {
    for s in [DeviceSlice::<U32x4>::empty(), &*slice(0, 0), DeviceSlice::empty_mut()] {
        assert_eq!((s.len(), s.address().raw() % 16), (0, 0));
        assert_ne!(s.address().raw(), 0);
    }
}

#[test]
fn casts_check_address_and_length() {
    let s = slice::<f32>(0x1004, 9);
    assert_eq!(s.cast::<u32>().map(DeviceSlice::len), Some(9));
    assert_eq!(s.cast::<u8>().map(DeviceSlice::len), Some(36));
    assert!(s.cast::<u64>().is_none(), "address");
    assert!(slice::<f32>(0x1000, 9).cast::<F32x4>().is_none(), "length");
    let mut m = slice::<f32>(0x1000, 8);
    assert_eq!(m.cast_mut::<F32x4>().map(|v| (v.address().raw(), v.len())), Some((0x1000, 2)));
    assert!(m.cast::<[f32; 0]>().is_none());
    m = &mut m[..0];
    assert_eq!(m.cast::<F32x4>().map(DeviceSlice::len), Some(0));
}

#[test]
fn slices_cross_threads_like_slices() {
    fn send_sync<T: Send + Sync + ?Sized>() {}
    send_sync::<DeviceSlice<f32>>();
}

#[test]
#[should_panic(expected = "range 3..101 is not within a device slice of length 100")]
fn indexing_out_of_range_panics_with_numbers() {
    let _ = &slice::<f32>(0x1000, 100)[3..101];
}

#[test]
fn geometry_saturates_and_is_refused() {
    let meta = Demo::META;
    assert_eq!(Geometry::blocks(7u64).grid, [7, 1, 1]);
    let shaped = Geometry::grid(1u32, 2usize, 3i32).shared(48 * 1024usize);
    assert_eq!((shaped.grid, shaped.block, shaped.dynamic_shared), ([1, 2, 3], None, 49152));
    for (g, text) in [
        (Geometry::blocks(0u32), "argument `grid`: expected 1 to [2147483647, 65535, 65535] blocks, got [0, 1, 1]"),
        (
            Geometry::blocks(u64::MAX),
            "argument `grid`: expected 1 to [2147483647, 65535, 65535] blocks, got [4294967295, 1, 1]",
        ),
        (
            Geometry::blocks(-1i64),
            "argument `grid`: expected 1 to [2147483647, 65535, 65535] blocks, got [4294967295, 1, 1]",
        ),
        (
            Geometry::grid(1u32, 65536u32, 1u32),
            "argument `grid`: expected 1 to [2147483647, 65535, 65535] blocks, got [1, 65536, 1]",
        ),
        (
            Geometry::blocks(1u32).block([0, 1, 1]),
            "argument `block`: expected 1 to [1024, 1024, 64] threads, got [0, 1, 1]",
        ),
        (
            Geometry::blocks(1u32).block([64, 4, 1]),
            "argument `block`: expected at most 128 threads (the kernel is compiled for [32, 4, 1]), got [64, 4, 1], which is 256",
        ),
    ] {
        assert_eq!(g.check(meta).unwrap_err().to_string(), format!("demo_norm: {text}"));
    }
    assert_eq!(Geometry::blocks(1u32).block([128, 1, 1]).check(meta), Ok(()));
    assert_eq!(Geometry::blocks(1u32).block_for(meta), [32, 4, 1]);
}

#[test]
fn contract_messages() {
    let m = Demo::META;
    let text = |r: Result<(), ContractError>| r.unwrap_err().to_string();
    assert_eq!(
        text(contract::exactly(m, "w", 128, (256u32, "cols"))),
        "demo_norm: argument `w`: expected 256 elements (cols), got 128"
    );
    assert_eq!(text(contract::exactly(m, "w", 0, 1)), "demo_norm: argument `w`: expected 1 element, got 0");
    assert_eq!(
        text(contract::multiple_of(m, "cols", 5u32, 4)),
        "demo_norm: argument `cols`: expected a multiple of 4, got 5"
    );
    assert_eq!(contract::multiple_of(m, "cols", 0u32, 4), Ok(()));
    assert!(contract::multiple_of(m, "cols", 4u32, 0).is_err());
    assert_eq!(
        text(contract::within(m, "cols", (9u32, "cols"), 1, 8)),
        "demo_norm: argument `cols`: expected 1 to 8, got 9 (cols)"
    );
    assert_eq!(
        text(contract::require(m, false, "y", "it apart from `x`", "the same")),
        "demo_norm: argument `y`: expected it apart from `x`, got the same"
    );
    assert_eq!(contract::product(m, "x", &[3, 4, 5]), Ok(60));
    assert_eq!(contract::product(m, "x", &[]), Ok(1));
    assert!(contract::product(m, "x", &[1 << 32, 1 << 32]).is_err());
    assert!(contract::product(m, "x", &[1 << 32, 1 << 31]).is_err());
    assert!(
        text(contract::at_least(m, "x", usize::MAX - 1, -1))
            .contains("expected at least 18446744073709551615 elements")
    );
}

/// A struct in which some bytes differ between launches.
#[derive(Clone, Copy, Element)]
#[repr(C)]
pub struct Place {
    /// Rows.
    pub rows: u32,
    /// The layer's number.
    #[varies]
    pub layer: u32,
    /// What is looked up.
    pub table: DeviceAddress,
}

/// One in another, and behind the bytes that are told apart.
#[derive(Clone, Copy, Element)]
#[repr(C)]
pub struct Places {
    /// Columns.
    pub cols: u64,
    /// The first one.
    pub first: Place,
    /// What follows.
    pub links: [DeviceAddress; 1],
    /// As many as there is room for.
    pub numbers: [u32; 24],
    /// What is no constant.
    pub behind: u64,
}

/// One whose fields are less than a word.
#[derive(Clone, Copy, Element)]
#[repr(C)]
pub struct Halves {
    /// The lower one.
    pub low: u16,
    /// The upper one.
    #[varies]
    pub high: u16,
    /// Behind them.
    pub word: u32,
}

/// All of which varies.
#[derive(Clone, Copy, Element)]
#[repr(transparent)]
pub struct Marked(#[varies] [u32; 40]);

/// Takes all of them.
#[kernel(block = 1)]
pub unsafe fn scattered(x: In<u32>, n: u32, p: Places, marked: Marked, at: Place) {}

#[test]
fn addresses_and_what_is_marked_varies() {
    assert_eq!((Window::VARIES, <[f32; 4]>::VARIES), (0, 0));
    assert_eq!((DeviceAddress::VARIES, Place::VARIES, Marked::VARIES), (0b11, 0b1110, u32::MAX));
    assert_eq!(Halves::VARIES, 1);
    assert_eq!(Places::VARIES, 0b11 << 6 | 0b1110 << 2);
    let varies = |arg: usize, byte: usize| Scattered::META.args[arg].varies_at(byte);
    assert!((0..8).all(|byte| varies(0, byte)), "an address");
    assert!((0..4).all(|byte| !varies(1, byte)));
    assert_eq!((0..16).filter(|byte| !varies(4, *byte)).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!((0..12).all(|byte| !varies(2, byte)) && (12..32).all(|byte| varies(2, byte)));
    assert!((32..128).all(|byte| !varies(2, byte)) && (128..136).all(|byte| varies(2, byte)));
    assert!(varies(3, 0) && varies(3, 159));
}
