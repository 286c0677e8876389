//! Graphs with other code on the same driver: what it records into ours, graphs of its own on our streams, and ours on its.

#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

mod runtime_support;

use runtime_support::*;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use warpsmith_driver_api::software::{self, Checks, inject_failure};
use warpsmith_driver_api::{
    CUgraph, CUgraphExec, CUstream, cuGraphDestroy, cuGraphLaunch, cuMemsetD32Async, cuStreamBeginCapture_v2,
    cuStreamCreate, cuStreamDestroy_v2, cuStreamEndCapture, cuStreamSynchronize,
};
use warpsmith_host::{Error, Graph};

/// Counts how often it was dropped.
struct Keeper(Arc<AtomicUsize>);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// What another library does: words of memory are set.
fn memset(address: u64, value: u32, words: usize, stream: *mut c_void) -> i32 {
    // SAFETY: the tests give live memory of so many words and a live stream.
    unsafe { cuMemsetD32Async(address, value, words, CUstream(stream)) }
}

#[test]
fn other_code_records_into_a_graph() {
    let (_device, stream) = device();
    let dropped = Arc::new(AtomicUsize::new(0));
    let mut cells = stream.zeros::<u32>(4).unwrap();
    let id = cells.id();
    let graph = stream
        .capture(|scope| {
            scope.launch(Bump { cells: &mut cells, n: 4, by: 1 })?;
            scope.writes(&mut cells)?;
            let address = cells.address().raw();
            // SAFETY: two words of a buffer that the graph keeps.
            let result = unsafe { scope.foreign(Keeper(dropped.clone()), |raw| memset(address, 7, 2, raw)) }?;
            assert_eq!((result, scope.foreign_nodes()), (0, 1));
            scope.launch(Bump { cells: &mut cells, n: 4, by: 1 })
        })
        .unwrap();
    assert_eq!((graph.nodes(), graph.launches(), graph.copies(), graph.foreign_nodes()), (3, 2, 0, 1));
    assert!(graph.uses(id));
    assert_eq!(stream.read(&cells).unwrap(), [0; 4], "recording does not run");
    graph.launch(&stream).unwrap();
    graph.launch(&stream).unwrap();
    assert_eq!(stream.read(&cells).unwrap(), [8, 8, 4, 4]);
    // The graph keeps the memory, and what the other code works with.
    drop(cells);
    graph.launch(&stream).unwrap();
    assert_eq!(dropped.load(Ordering::SeqCst), 0);
    drop(graph);
    stream.synchronize().unwrap();
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
}

/// What only other code uses is ordered with other streams, as the closure has said what it does.
#[test]
fn memory_of_other_code_is_ordered_between_streams() {
    let (device, stream) = device();
    // Accesses that nothing orders are findings.
    let _checked = software::check(Checks::ALL);
    let other = device.stream().unwrap();
    let mut cells = stream.zeros::<u32>(1 << 16).unwrap();
    let mut copy = stream.zeros::<u32>(1 << 16).unwrap();
    let graph = stream
        .capture(|scope| {
            scope.writes(&mut cells)?;
            let (address, n) = (cells.address().raw(), cells.len());
            // SAFETY: the words of a buffer that the graph keeps.
            let result = unsafe { scope.foreign((), |raw| memset(address, 5, n, raw)) }?;
            assert_eq!(result, 0);
            Ok(())
        })
        .unwrap();
    for round in 1..20 {
        graph.launch(&stream).unwrap();
        other.copy(&cells, &mut copy).unwrap();
        assert!(other.read(&copy).unwrap().iter().all(|&v| v == 5), "{round}");
        other.launch(Bump { cells: &mut cells, n: 1 << 16, by: round }).unwrap();
        assert!(other.read(&cells).unwrap().iter().all(|&v| v == 5 + round), "{round}");
    }
}

#[test]
fn an_update_needs_as_many_foreign_nodes() {
    let (_device, stream) = device();
    let mut cells = stream.zeros::<u32>(4).unwrap();
    let address = cells.address().raw();
    let mut graph = stream.capture(|scope| scope.fill(&mut cells, 1)).unwrap();
    let error = graph
        .update(&stream, |scope| {
            scope.fill(&mut cells, 2)?;
            // SAFETY: words of a buffer that lives on.
            unsafe { scope.foreign((), |raw| memset(address, 3, 4, raw)) }.map(drop)
        })
        .unwrap_err();
    assert!(matches!(&error, Error::GraphMismatch { .. }), "{error}");
    assert!(error.to_string().contains("1 nodes of other code"), "{error}");
    graph.launch(&stream).unwrap();
    assert_eq!(stream.read(&cells).unwrap(), [1; 4]);
}

#[test]
fn a_failure_while_other_code_records_ends_the_capture() {
    let (device, stream) = device();
    let mut cells = stream.zeros::<u32>(4).unwrap();
    let address = cells.address().raw();
    for call in ["cuStreamGetCaptureInfo_v2", "cuGraphGetNodes"] {
        let guard = inject_failure(Some(call), 1, 999);
        let error = stream
            .capture(|scope| {
                // SAFETY: words of a buffer that lives on.
                unsafe { scope.foreign((), |raw| memset(address, 3, 4, raw)) }.map(drop)
            })
            .unwrap_err();
        assert!(guard.fired() && error.to_string().contains(call), "{call}: {error}");
        drop(guard);
        stream.fill(&mut cells, 6).unwrap();
        assert_eq!(stream.read(&cells).unwrap(), [6; 4]);
    }
    // An error of the closure's own, after something was recorded.
    let error = stream
        .try_capture(|scope| {
            // SAFETY: words of a buffer that lives on.
            match unsafe { scope.foreign((), |raw| memset(address, 3, 1 << 40, raw)) }? {
                0 => Ok(()),
                code => Err(Error::Ignored { message: format!("their code {code}") }),
            }
        })
        .unwrap_err();
    // NVIDIA's driver records it, and finds the error when the graph is made.
    let says = if device.is_software() { "their code" } else { "cuGraphInstantiate" };
    assert!(error.to_string().contains(says), "{error}");
    assert_eq!(stream.read(&cells).unwrap(), [6; 4]);
}

/// A graph that other code has captured, and which it destroys at once.
fn theirs(address: u64) -> CUgraph {
    let (mut stream, mut graph) = (CUstream::NULL, CUgraph::NULL);
    // SAFETY: live variables; the memory is the test's.
    unsafe {
        assert_eq!(cuStreamCreate(&mut stream, 1), 0);
        assert_eq!(cuStreamBeginCapture_v2(stream, 2), 0);
        assert_eq!(cuMemsetD32Async(address, 9, 4, stream), 0);
        assert_eq!(cuMemsetD32Async(address, 4, 1, stream), 0);
        assert_eq!(cuStreamEndCapture(stream, &mut graph), 0);
        assert_eq!(cuStreamDestroy_v2(stream), 0);
    }
    graph
}

#[test]
fn a_graph_of_other_code_runs_on_our_streams_and_ours_on_theirs() {
    let (device, stream) = device();
    let dropped = Arc::new(AtomicUsize::new(0));
    let mut cells = stream.zeros::<u32>(4).unwrap();
    stream.synchronize().unwrap();
    let raw = theirs(cells.address().raw());
    // SAFETY: the graph is alive, and works on a buffer that outlives it.
    let graph = unsafe { Graph::from_raw(&stream, raw.0.cast(), Keeper(dropped.clone())) }.unwrap();
    // SAFETY: ours is a clone.
    assert_eq!(unsafe { cuGraphDestroy(raw) }, 0);
    assert_eq!((graph.nodes(), graph.foreign_nodes(), graph.launches()), (2, 2, 0));
    graph.launch(&stream).unwrap();
    assert_eq!(stream.read(&cells).unwrap(), [4, 9, 9, 9]);
    drop(graph);
    stream.synchronize().unwrap();
    assert_eq!(dropped.load(Ordering::SeqCst), 1);

    let ours = stream.capture(|scope| scope.launch(Bump { cells: &mut cells, n: 4, by: 10 })).unwrap();
    let other = device.stream().unwrap();
    // SAFETY: graph and stream are alive, and nothing else runs.
    unsafe {
        assert_eq!(cuGraphLaunch(CUgraphExec(ours.raw().cast()), CUstream(other.raw())), 0);
        assert_eq!(cuStreamSynchronize(CUstream(other.raw())), 0);
    }
    assert_eq!(stream.read(&cells).unwrap(), [14, 19, 19, 19]);
}

#[test]
fn what_is_no_graph_is_refused() {
    let (device, stream) = device();
    if !device.is_software() {
        return eprintln!("skipped: a GPU's driver follows handles");
    }
    let mut nothing = [0u64; 64];
    for raw in [std::ptr::null_mut(), nothing.as_mut_ptr().cast()] {
        // SAFETY: the software driver looks handles up, and follows none.
        let error = unsafe { Graph::from_raw(&stream, raw, ()) }.unwrap_err();
        assert!(error.to_string().contains("cuGraphClone"), "{error}");
    }
}
