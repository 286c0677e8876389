//! A buffer and an event of one process in another one.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

mod runtime_support;

use runtime_support::*;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use warpsmith_driver_api::cuIpcCloseMemHandle;
use warpsmith_driver_api::software::{self, Checks};
use warpsmith_host::device::{Element, U32x4};
use warpsmith_host::{Buffer, BufferHandle, Device, Error, EventHandle, Passage};

const HANDLE: &str = "WARPSMITH_TEST_HANDLE";
const N: u32 = 1002;

const EVENT: &str = "WARPSMITH_TEST_EVENT";
const GONE: &str = "WARPSMITH_TEST_EVENT_GONE";
const WAITS: &str = "WARPSMITH_TEST_WAITS";

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes<const LEN: usize>(text: &str) -> [u8; LEN] {
    let byte = |i: usize| u8::from_str_radix(&text[2 * i..][..2], 16).unwrap();
    (0..text.len() / 2).map(byte).collect::<Vec<u8>>().try_into().unwrap()
}

fn text(handle: BufferHandle) -> String {
    digits(&handle.to_bytes())
}

fn handle(text: &str) -> BufferHandle {
    BufferHandle::from_bytes(bytes(text))
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

/// What is recorded here comes before what waits for it there, and the other way round.
#[test]
fn an_event_orders_streams_of_two_processes() {
    let (device, stream) = device();
    assert!(device.can_share().unwrap());
    let (event, gone) = (device.shared_event().unwrap(), device.shared_event().unwrap());
    assert!(event.is_done().unwrap(), "before any record");
    event.synchronize().unwrap();
    let mut cells = stream.zeros::<u32>(N as usize).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let waits = folder.path().join("waits");
    let (handle, event_handle) = (text(cells.handle().unwrap()), digits(&event.handle().unwrap().to_bytes()));
    let gone_handle = digits(&gone.handle().unwrap().to_bytes());
    drop(gone);
    // The host writes when the other process waits.
    let staging = device.pinned::<u32>(N as usize).unwrap();
    let (path, start) = (waits.clone(), Instant::now());
    let write = Arc::new(move |cells: &mut [u32]| {
        while !path.exists() && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(5));
        }
        cells.fill(40);
    });
    stream.through_host(&mut cells, &staging, Passage::Back, write).unwrap();
    stream.record_shared(&event).unwrap();
    assert!(!event.is_done().unwrap());
    let environment =
        [(HANDLE, handle.as_str()), (EVENT, &event_handle), (GONE, &gone_handle), (WAITS, waits.to_str().unwrap())];
    child_passes("the_process_that_waits", &environment);
    // It has recorded last.
    stream.wait_shared(&event).unwrap();
    assert!(stream.read(&cells).unwrap().iter().all(|cell| *cell == 42));
    event.synchronize().unwrap();
    assert!(event.is_done().unwrap());
}

#[test]
fn the_process_that_waits() {
    let variable = |name| std::env::var(name).ok();
    let (Some(given), Some(of_event), Some(gone), Some(waits)) =
        (variable(HANDLE), variable(EVENT), variable(GONE), variable(WAITS))
    else {
        assert!(!is_child());
        return;
    };
    let (device, stream) = device();
    // SAFETY: the other process keeps both until this one has ended.
    let open_event = |text: &str| unsafe { device.open_event(EventHandle::from_bytes(bytes(text))) };
    let refused = open_event(&gone).unwrap_err();
    assert!(matches!(refused, Error::Driver { call: "cuIpcOpenEventHandle", code: 400, .. }), "{refused}");
    let event = open_event(&of_event).unwrap();
    assert!(matches!(event.handle(), Err(Error::Driver { call: "cuIpcGetEventHandle", code: 400, .. })));
    let mut cells = open::<u32>(&device, handle(&given)).unwrap();
    assert!(!event.is_done().unwrap());
    stream.wait_shared(&event).unwrap();
    stream.launch(Bump { cells: &mut cells, n: N, by: 2 }).unwrap();
    stream.record_shared(&event).unwrap();
    std::fs::write(Path::new(&waits), "").unwrap();
    event.synchronize().unwrap();
    assert!(stream.read(&cells).unwrap().iter().all(|cell| *cell == 42));
}

#[test]
fn what_is_no_event_of_several_processes_is_refused() {
    let (device, stream) = device();
    let event = device.shared_event().unwrap();
    // SAFETY: nothing is opened.
    let open = |bytes| unsafe { device.open_event(EventHandle::from_bytes(bytes)) }.unwrap_err();
    let own = open(event.handle().unwrap().to_bytes());
    assert!(matches!(own, Error::Driver { call: "cuIpcOpenEventHandle", code: 201, .. }), "{own}");
    let none = open([0; EventHandle::BYTES]);
    assert!(matches!(none, Error::Driver { call: "cuIpcOpenEventHandle", code: 1, .. }), "{none}");
    let buffer = stream.zeros::<u32>(4).unwrap().handle().unwrap().to_bytes();
    assert!(matches!(open(buffer[..64].try_into().unwrap()), Error::Driver { code: 1, .. }), "a handle of memory");
    let inside = stream.capture(|_| stream.record_shared(&event)).unwrap_err();
    assert!(
        inside.to_string().contains("Stream::record_shared is not possible while this thread captures"),
        "{inside}"
    );
}
