//! A buffer of one process in another one.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

mod runtime_support;

use runtime_support::*;
use warpsmith_driver_api::cuIpcCloseMemHandle;
use warpsmith_driver_api::software::{self, Checks};
use warpsmith_host::device::{Element, U32x4};
use warpsmith_host::{Buffer, BufferHandle, Device, Error};

const HANDLE: &str = "WARPSMITH_TEST_HANDLE";
const N: u32 = 1002;

fn text(handle: BufferHandle) -> String {
    handle.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn handle(text: &str) -> BufferHandle {
    let bytes: Vec<u8> = (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..][..2], 16).unwrap()).collect();
    BufferHandle::from_bytes(bytes.try_into().unwrap())
}

fn open<T: Element>(device: &Device, handle: BufferHandle) -> Result<Buffer<T>, Error> {
    // SAFETY: the processes of these tests take turns.
    unsafe { device.open_buffer(handle) }
}

#[test]
fn another_process_reads_and_writes_a_buffer() {
    let _checks = software::check(Checks::ALL);
    let (_device, stream) = device();
    let cells = stream.upload(&(0..N).collect::<Vec<u32>>()).unwrap();
    let handle = text(cells.handle().unwrap());
    assert_eq!(handle, text(cells.handle().unwrap()), "of one buffer there is one handle");
    child_passes("the_other_process", &[(HANDLE, &handle)]);
    assert_eq!(stream.read(&cells).unwrap(), (0..N).map(|i| i + 3).collect::<Vec<_>>());
    // Nobody has it open any more.
    drop(cells);
    stream.synchronize().unwrap();
    assert!(software::take_findings().is_empty());
}

/// Launches and a graph, which keeps the memory open.
#[test]
fn the_other_process() {
    let Ok(given) = std::env::var(HANDLE) else {
        assert!(!is_child());
        return;
    };
    let (device, stream) = device();
    let mut cells = open::<u32>(&device, handle(&given)).unwrap();
    assert_eq!(stream.read(&cells).unwrap(), (0..N).collect::<Vec<_>>());
    stream.launch(Bump { cells: &mut cells, n: N, by: 1 }).unwrap();
    let graph = stream.capture(|scope| scope.launch(Bump { cells: &mut cells, n: N, by: 1 })).unwrap();
    graph.launch(&stream).unwrap();
    let twice = open::<u32>(&device, handle(&given)).unwrap_err();
    assert!(matches!(twice, Error::Owned { .. }), "{twice}");
    let address = cells.address().raw();
    drop(cells);
    graph.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    drop(graph);
    // SAFETY: nobody uses it any more.
    assert_ne!(unsafe { cuIpcCloseMemHandle(address) }, 0, "it was not closed");
    // Of elements of any size that fits, and again where it was closed.
    let pairs = open::<u64>(&device, handle(&given)).unwrap();
    assert_eq!((pairs.len(), stream.read(&pairs[..1]).unwrap()[0]), (N as usize / 2, 3 | 4 << 32));
    assert!(matches!(open::<U32x4>(&device, handle(&given)), Err(Error::Handle { bytes: 4008, .. })));
    let mut long = handle(&given).to_bytes();
    long[70] = 1;
    let refused = open::<u32>(&device, BufferHandle::from_bytes(long)).unwrap_err();
    assert!(matches!(refused, Error::Handle { .. }), "{refused}");
}

#[test]
fn what_cannot_be_opened_is_refused() {
    let (device, stream) = device();
    let cells = stream.zeros::<u32>(4).unwrap();
    let own = open::<u32>(&device, cells.handle().unwrap()).unwrap_err();
    assert!(matches!(own, Error::Driver { call: "cuIpcOpenMemHandle_v2", code: 201, .. }), "{own}");
    let none = open::<u32>(&device, BufferHandle::from_bytes([0; BufferHandle::BYTES])).unwrap_err();
    assert!(matches!(none, Error::Driver { call: "cuIpcOpenMemHandle_v2", .. }), "{none}");
    let inside = stream.capture(|_| cells.handle().map(drop)).unwrap_err();
    assert!(inside.to_string().contains("Buffer::handle is not possible while this thread captures"), "{inside}");
}
