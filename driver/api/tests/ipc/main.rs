//! Memory and events of two processes.

// Tests fail by panicking, helpers included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(target_os = "linux")]

#[path = "../common/mod.rs"]
mod common;
#[macro_use]
mod other;

use std::time::{Duration, Instant};

use common::*;
use other::*;
use warpsmith_driver_api::*;

#[track_caller]
fn opened(other: &mut Other, p: CUdeviceptr) {
    let (code, handle) = memory_handle(p);
    ok(code);
    let answer = other.ask(&format!("open {}", hex(&handle)));
    assert!(answer.starts_with("0 "), "{answer}");
}

#[test]
fn what_a_kernel_of_one_process_writes_a_kernel_of_the_other_reads() {
    let _gpu = gpu();
    let mut other = Other::new();
    // What was there before the handle was taken, and a size that is no multiple of anything.
    let n = 70_001;
    let p = upload(&vec![3; n]);
    opened(&mut other, p);
    assert_eq!(other.ask(&format!("sum {n}")), (3 * n).to_string());
    fill(p, 5, n as u32, CUstream::NULL);
    let expected = (0..n as u32).fold(0u32, |sum, i| sum.wrapping_add(5 * i));
    assert_eq!(other.ask(&format!("sum {n}")), expected.to_string());
    assert_eq!(other.ask("fill 11 70001"), "0");
    assert_eq!(download(p, n), (0..n as u32).map(|i| 11 * i).collect::<Vec<_>>());
    // Copies and fills of both sides, too.
    assert_eq!(other.ask("poke 9 100"), "0");
    assert_eq!(download(p, 101), [vec![9; 100], vec![1100]].concat());
    assert_eq!(other.ask("close"), "0");
    assert_eq!(other.ask("close"), "1");
    ok(cu!(cuMemFree_v2(p)));
}

#[test]
fn kernels_of_two_processes_take_turns() {
    let _gpu = gpu();
    let mut other = Other::new();
    let p = upload(&[0, 0]);
    opened(&mut other, p);
    let rounds = 300u32;
    other.tell(&format!("turns 1 {rounds}"));
    assert_eq!(other.hear(), "begins 0");
    ok(launch(function(load(KERNELS), "turns"), 1, 1, 0, CUstream::NULL, &[arg(&p), arg(&0u32), arg(&rounds)]));
    ok(cu!(cuCtxSynchronize()));
    assert_eq!(other.hear(), "0");
    assert_eq!(download(p, 2), [2 * rounds, 2 * rounds]);
}

#[test]
fn atomics_of_two_processes_are_atomic() {
    let _gpu = gpu();
    let mut other = Other::new();
    let p = upload(&[0; 3]);
    opened(&mut other, p);
    let times = 60_000u32;
    other.tell(&format!("count 128 {times}"));
    let (f, out) = (function(load(KERNELS), "count"), upload(&[0]));
    ok(launch(f, 1, 64, 0, CUstream::NULL, &[arg(&p), arg(&128u32), arg(&times), arg(&out)]));
    ok(cu!(cuCtxSynchronize()));
    assert_eq!(other.hear(), "0");
    assert_eq!(download(p, 3), [128, 128 * times, 128 * times]);
}

/// While another process has the flag, a kernel that waits for it is no deadlock, however long; when that has died, it is one.
#[test]
fn a_wait_for_another_process_ends_with_it() {
    for (ends_by, is_guest, after) in [("its answer", true, 12), ("its end", true, 1), ("its end", false, 1)] {
        // The first longer than it takes to find a deadlock.
        let long = Duration::from_secs(after);
        let _gpu = gpu();
        let mut other = Other::new();
        let p = if is_guest { upload(&[0, 0]) } else { open(unhex(&other.ask("alloc 2")), 1).1 };
        if is_guest {
            opened(&mut other, p);
        }
        let s = stream();
        ok(launch(function(load(KERNELS), "turns"), 1, 1, 0, s, &[arg(&p), arg(&1u32), arg(&1u32)]));
        let start = Instant::now();
        // A thread that does not call the driver.
        let ending = std::thread::spawn(move || {
            std::thread::sleep(long);
            match ends_by {
                "its answer" => assert_eq!(other.ask("poke 1 1"), "0"),
                _ => other.kill(),
            }
        });
        let code = cu!(cuStreamSynchronize(s));
        let report = software::last_report();
        assert!(start.elapsed() > long, "{ends_by}: {code}, {report:?}");
        ending.join().unwrap();
        if ends_by == "its answer" {
            ok(code);
            continue;
        }
        is(code, 719);
        let report = report.unwrap();
        assert!(report.contains("error[deadlock]") && report.contains("kernel `turns`"), "{is_guest}: {report}");
    }
}

#[test]
fn events_order_streams_of_two_processes() {
    let _gpu = gpu();
    let mut other = Other::new();
    let (p, e, s) = (upload(&[1; 8]), shared_event(), stream());
    opened(&mut other, p);
    // Before any record the event is passed, for both.
    assert_eq!(other.ask(&format!("open-event {}", hex(&event_handle(e).1))), "0");
    assert_eq!((other.ask("query").as_str(), cu!(cuEventQuery(e))), ("0", 0));
    // A kernel here that waits for the host, a write behind it, and the record behind that.
    let flag = upload(&[0, 0]);
    ok(launch(function(load(KERNELS), "turns"), 1, 1, 0, s, &[arg(&flag), arg(&1u32), arg(&1u32)]));
    ok(cu!(cuMemsetD32Async(p, 4, 8, s)));
    ok(cu!(cuEventRecord(e, s)));
    assert_eq!(other.ask("query"), "600");
    assert_eq!(other.ask("sum-behind 8"), "600", "its stream waits");
    other.tell("synchronize");
    std::thread::sleep(Duration::from_millis(300));
    assert!(other.lines.try_recv().is_err(), "it waits");
    ok(cu!(cuMemsetD32_v2(flag, 1, 1)));
    assert_eq!(other.hear(), "0");
    assert_eq!(other.ask("result"), "32");
    // The other way round: the other records behind what waits for this one.
    assert_eq!(other.ask("record"), "0");
    ok(cu!(cuStreamWaitEvent(s, e, 0)));
    ok(cu!(cuStreamSynchronize(s)));
    is(cu!(cuEventQuery(e)), 0);
    assert_eq!(other.ask("export-event"), "400", "it is not its own");
    assert_eq!(other.ask("destroy"), "0");
    ok(cu!(cuEventDestroy_v2(e)));
}

#[test]
fn an_event_whose_process_has_ended_is_an_error() {
    let _gpu = gpu();
    let mut other = Other::new();
    let (code, e) = open_event(unhex(&other.ask("event")));
    ok(code);
    assert_eq!(other.ask("hang"), "0");
    is(cu!(cuEventQuery(e)), 600);
    let s = stream();
    ok(cu!(cuStreamWaitEvent(s, e, 0)));
    is(cu!(cuStreamQuery(s)), 600);
    std::thread::sleep(Duration::from_millis(300));
    is(cu!(cuStreamQuery(s)), 600);
    other.kill();
    is(cu!(cuStreamSynchronize(s)), 719);
    let report = software::last_report().unwrap();
    assert!(report.contains("the process that recorded it has ended"), "{report}");
}

#[test]
fn misuse_is_an_error() {
    let _gpu = gpu();
    let mut other = Other::new();
    let p = upload(&[7; 1000]);
    let (code, handle) = memory_handle(p);
    ok(code);
    // The same for every address of an allocation, and every time.
    assert_eq!(hex(&memory_handle(p + 3999).1), hex(&handle));
    assert_eq!(open(handle, 1).0, 201, "in the process that it is from");
    assert_eq!(open(handle, 0).0, 1, "flags");
    assert_eq!((open(IpcHandle { reserved: [0; 64] }, 1).0, open_event(IpcHandle { reserved: [1; 64] }).0), (1, 1));
    assert_eq!(open_event(handle).0, 1, "of memory");
    // What has no handle.
    let (mut pool, mut managed, mut pinned) = (0, 0, std::ptr::null_mut());
    ok(cu!(cuMemAllocAsync(&mut pool, 64, CUstream::NULL)));
    ok(cu!(cuMemAllocManaged(&mut managed, 64, 1)));
    ok(cu!(cuMemAllocHost_v2(&mut pinned, 64)));
    let (mut variable, mut bytes) = (0, 0);
    ok(cu!(cuModuleGetGlobal_v2(&mut variable, &mut bytes, load(PTX), c"seven".as_ptr())));
    for address in [0, 1, p + 4000, pool, managed, pinned.addr() as u64, variable] {
        is(memory_handle(address).0, 1);
    }
    let attribute = |p: CUdeviceptr| {
        let mut value = 2u32;
        ok(cu!(cuPointerGetAttribute((&raw mut value).cast(), 10, p)));
        value
    };
    assert_eq!([attribute(p), attribute(pool), attribute(managed)], [1, 0, 0]);
    let mut supported = 0;
    ok(cu!(cuDeviceGetAttribute(&mut supported, 125, 0)));
    assert_eq!(supported, 1);
    // Events.
    let mut e = CUevent::NULL;
    is(cu!(cuEventCreate(&mut e, 4)), 1);
    is(event_handle(event()).0, 400);
    let e = shared_event();
    let (code, of_event) = event_handle(e);
    ok(code);
    assert_eq!(open_event(of_event).0, 201);
    is(cu!(cuEventElapsedTime(&mut 0.0, e, e)), 400);
    // Opened twice it is one address, and closed when it was closed twice.
    let order = format!("open {}", hex(&handle));
    let first = other.ask(&order);
    assert!(first.starts_with("0 ") && other.ask(&order) == first, "{first}");
    assert_eq!(other.ask(&format!("other-context {}", hex(&handle))), "201");
    assert_eq!(["export", "free", "free-async"].map(|o| other.ask(o)), ["1", "1", "1"], "it is not its own");
    assert_eq!(["close", "sum 1000", "close", "close"].map(|o| other.ask(o)), ["0", "7000", "0", "1"]);
    // It can be opened anew, at an address that has not been used.
    let again = other.ask(&order);
    assert!(again.starts_with("0 ") && again != first);
    assert_eq!(other.ask(&format!("open-event {}", hex(&of_event))), "0");
    ok(cu!(cuEventDestroy_v2(e)));
    assert_eq!(["query", "record", "destroy"].map(|o| other.ask(o)), ["400", "400", "0"]);
    assert_eq!(other.ask(&format!("open-event {}", hex(&of_event))), "400");
}

#[test]
fn memory_that_is_freed_while_another_process_has_it_is_gone_there_too() {
    let _gpu = gpu();
    let mut other = Other::new();
    let p = upload(&[7; 1000]);
    opened(&mut other, p);
    let handle = memory_handle(p).1;
    software::take_report();
    ok(cu!(cuMemFree_v2(p)));
    let report = software::last_report().unwrap();
    assert!(report.contains("4000 bytes, was freed while another process had it open"), "{report}");
    assert_eq!(other.ask("poke 1 1"), "1");
    assert_eq!(other.ask("fill 1 64"), "700");
    let report = other.ask("report");
    assert!(report.contains("of 4000 bytes") && report.contains("that has been freed"), "{report}");
    // Nobody else opens it, and who has closed it is not told of.
    let mut late = Other::new();
    assert_eq!(late.ask(&format!("open {}", hex(&handle))), "400 0");
    let p = upload(&[7; 1000]);
    opened(&mut late, p);
    assert_eq!(late.ask("close"), "0");
    software::take_report();
    ok(cu!(cuMemFree_v2(p)));
    assert_eq!(software::last_report(), None);
}

/// Files of memory that have names.
fn named() -> Vec<std::ffi::OsString> {
    let files = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|f| f.file_name());
    files.filter(|name| name.to_string_lossy().contains("warpsmith")).collect()
}

#[test]
fn a_process_that_dies_leaves_its_memory_to_those_that_have_it_and_nothing_else() {
    let _gpu = gpu();
    let mut other = Other::new();
    let handle = unhex(&other.ask("alloc 1000"));
    assert_eq!(other.ask("fill 2 1000"), "0");
    let (code, p) = open(handle, 1);
    ok(code);
    other.kill();
    assert_eq!(download(p, 3), [0, 2, 4]);
    let out = sum(p, 1000, CUstream::NULL);
    assert_eq!(download(out, 1), [999_000]);
    ok(cu!(cuIpcCloseMemHandle(p)));
    // Nobody has it any more.
    is(open(handle, 1).0, 400);
    assert_eq!(named(), Vec::<std::ffi::OsString>::new());
}

/// The checks know what they cannot see: what other processes write is defined, and what orders operations may lead through them.
#[test]
fn checks_hold_their_peace_where_others_write() {
    let _gpu = gpu();
    let _guard = software::check(software::Checks::ALL);
    let mut other = Other::with(&[("WARPSMITH_CHECK", "1")]);
    let p = alloc(4000);
    opened(&mut other, p);
    assert_eq!(other.ask("fill 3 1000"), "0");
    assert_eq!(download(p, 2), [0, 3]);
    let (a, b) = (stream(), stream());
    fill(p, 1, 1000, a);
    assert_eq!(other.ask("sum 1000"), "499500");
    fill(p, 2, 1000, b);
    let found = software::take_findings();
    assert!(found.is_empty(), "{found:?}");
    let start = Instant::now();
    let mut own = Other::new();
    let (code, q) = open(unhex(&own.ask("alloc 10")), 1);
    ok(code);
    assert_eq!(software::allocation_at(q + 39).unwrap().kind, software::AllocationKind::Interprocess);
    ok(cu!(cuIpcCloseMemHandle(q)));
    assert!(software::allocation_at(q).unwrap().freed.is_some() && start.elapsed() < Duration::from_secs(120));
}
