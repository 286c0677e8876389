//! Graphs: what they hold, what they are launched for, and what they are updated with.

#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

mod runtime_support;

use runtime_support::*;
use warpsmith_driver_api::software::{call_counts, inject_failure, reset_call_counts};
use warpsmith_host::{Device, Error, Graph, GraphKey, Stream};

#[test]
fn a_graph_runs_what_was_recorded_and_only_when_launched() {
    let (device, stream) = device();
    let input = device.pinned::<f32>(256).unwrap();
    let output = device.pinned::<f32>(256).unwrap();
    let mut x = stream.zeros::<f32>(256).unwrap();
    let mut y = stream.zeros::<f32>(256).unwrap();
    let graph = stream
        .capture(|scope| {
            scope.write_pinned(&input, &mut x)?;
            scope.fill(&mut y, 1.0)?;
            scope.launch(Axpy { x: &x, y: &mut y, n: 256, a: 2.0 })?;
            scope.launch(Axpy { x: &x, y: &mut y, n: 128, a: 1.0 })?;
            scope.read_pinned(&y, &output)?;
            assert_eq!((scope.launches(), scope.copies()), (2, 3));
            Ok(())
        })
        .unwrap();
    assert_eq!((graph.nodes(), graph.launches(), graph.copies(), graph.replays()), (5, 2, 3, 0));
    assert_eq!(graph.kernels().get("axpy"), Some(&2));
    assert!(graph.uses(x.id()) && graph.uses(y.id()) && graph.uses(input.id()));
    assert_eq!(stream.read(&y).unwrap(), [0.0; 256], "recording does not run");
    assert_eq!(stream.launches(), 0);
    for round in 0..10 {
        input.set(&[round as f32; 256]).unwrap();
        graph.launch(&stream).unwrap();
        let got = output.get().unwrap();
        let r = round as f32;
        assert!(got[..128].iter().all(|&v| v == 1.0 + 3.0 * r));
        assert!(got[128..].iter().all(|&v| v == 1.0 + 2.0 * r));
    }
    assert_eq!(graph.replays(), 10);
}

#[test]
fn fe_1_no_event_is_part_of_a_capture() {
    let (device, stream) = device();
    let input = device.pinned::<u32>(4).unwrap();
    let mut cells = stream.zeros::<u32>(4).unwrap();
    // The staging memory is in use, with an event outstanding, when the capture begins.
    stream.write_pinned(&input, &mut cells).unwrap();
    let earlier = stream.record().unwrap();
    reset_call_counts();
    let mut inside = None;
    let graph = stream
        .capture(|scope| {
            reset_call_counts();
            scope.write_pinned(&input, &mut cells)?;
            scope.launch(Bump { cells: &mut cells, n: 4, by: 1 })?;
            let counts = call_counts();
            inside = Some(
                ["cuEventRecord", "cuStreamWaitEvent", "cuEventSynchronize", "cuEventCreate"].map(|f| counts.get(f)),
            );
            // An event from outside would isolate the capture; it cannot get in.
            let waited = stream.wait(&earlier);
            assert!(matches!(waited, Err(Error::InsideCapture { call: "Stream::wait" })));
            Ok(())
        })
        .unwrap();
    assert_eq!(inside, Some([0; 4]));
    assert_eq!(graph.nodes(), 2);
    input.set(&[7; 4]).unwrap();
    graph.launch(&stream).unwrap();
    assert_eq!(stream.read(&cells).unwrap(), [8; 4]);
}

#[test]
fn fe_2_no_host_memory_but_staging_gets_into_a_graph() {
    let (device, stream) = device();
    let mut cells = stream.zeros::<u32>(4).unwrap();
    // An ordinary host slice cannot be recorded: the scope has no such copy, the stream refuses.
    let error = stream.capture(|_| stream.write(&mut cells, &[1, 2, 3, 4])).unwrap_err();
    assert!(matches!(error.root(), Error::InsideCapture { call: "Stream::write" }), "{error}");
    // Two copies have two slots, and each replay sees the slot as it is then.
    let (a, b) = (device.pinned::<u32>(2).unwrap(), device.pinned::<u32>(2).unwrap());
    let graph = stream
        .capture(|scope| {
            scope.write_pinned(&a, &mut cells[..2])?;
            scope.write_pinned(&b, &mut cells[2..])
        })
        .unwrap();
    drop((a.set(&[9, 9]), b.set(&[9, 9])));
    for i in 0..5 {
        a.set(&[i, i + 1]).unwrap();
        b.set(&[i + 2, i + 3]).unwrap();
        graph.launch(&stream).unwrap();
        assert_eq!(stream.read(&cells).unwrap(), [i, i + 1, i + 2, i + 3]);
    }
    // The graph owns its staging memory.
    a.set(&[100, 101]).unwrap();
    b.set(&[102, 103]).unwrap();
    drop((a, b));
    graph.launch(&stream).unwrap();
    assert_eq!(stream.read(&cells).unwrap(), [100, 101, 102, 103]);
}

/// A graph with everything that it could lose: two buffers, staging memory, a module.
struct World {
    device: Option<Device>,
    stream: Option<Stream>,
    buffer: Option<warpsmith_host::Buffer<u32>>,
    input: Option<warpsmith_host::Pinned<u32>>,
    output: warpsmith_host::Pinned<u32>,
    graph: Option<Graph>,
}

impl World {
    fn new() -> World {
        let (device, stream) = device();
        let (input, output) = (device.pinned(64).unwrap(), device.pinned(64).unwrap());
        let mut buffer = stream.zeros::<u32>(64).unwrap();
        let mut scratch = stream.zeros::<u32>(64).unwrap();
        let graph = stream
            .capture(|scope| {
                scope.write_pinned(&input, &mut scratch)?;
                scope.launch(Bump { cells: &mut scratch, n: 64, by: 1 })?;
                scope.copy(&scratch, &mut buffer)?;
                scope.read_pinned(&buffer, &output)
            })
            .unwrap();
        input.set(&[41; 64]).unwrap();
        World {
            device: Some(device),
            stream: Some(stream),
            buffer: Some(buffer),
            input: Some(input),
            output,
            graph: Some(graph),
        }
    }
}

#[test]
fn fe_3_drop_order_fuzz() {
    // One stream that survives, to replay on and to take the memory that is freed.
    let (keeper, other) = device();
    let mut random = Random(7);
    for _ in 0..120 {
        let mut world = World::new();
        let mut filler = Vec::new();
        let mut order = [0, 1, 2, 3, 4];
        for i in (1..5).rev() {
            order.swap(i, random.below(i + 1));
        }
        for step in order {
            match step {
                0 => drop(world.device.take()),
                1 => drop(world.stream.take()),
                2 => drop(world.buffer.take()),
                3 => drop(world.input.take()),
                _ => drop(world.graph.take()),
            }
            // Whoever gets freed memory now must not be hit by a replay.
            let values = vec![0xdead_beef_u32; 64];
            filler.push(other.upload(&values).unwrap());
            if let Some(graph) = &world.graph {
                let stream = world.stream.as_ref().unwrap_or(&other);
                graph.launch(stream).unwrap();
                assert_eq!(world.output.get().unwrap(), [42; 64]);
            }
            for buffer in &filler {
                assert_eq!(other.read(buffer).unwrap(), values);
            }
        }
    }
    assert!(keeper.take_deferred_error().is_none());
}

#[test]
fn fe_3_a_graph_dropped_right_after_its_launch_finishes() {
    let (device, stream) = device();
    let mut cells = stream.zeros::<u32>(1 << 16).unwrap();
    for _ in 0..20 {
        let graph = stream.capture(|scope| scope.launch(Bump { cells: &mut cells, n: 1 << 16, by: 1 })).unwrap();
        graph.launch(&stream).unwrap();
    }
    assert!(stream.read(&cells).unwrap().iter().all(|&v| v == 20));
    assert!(device.take_deferred_error().is_none());
}

#[test]
fn fe_9_a_thousand_replays() {
    let (device, stream) = device();
    let mut cells = stream.zeros::<u32>(256).unwrap();
    let live = device.live_allocations();
    let graph = stream
        .capture(|scope| {
            scope.launch(Bump { cells: &mut cells, n: 256, by: 1 })?;
            scope.launch(Bump { cells: &mut cells[..128], n: 128, by: 1 })
        })
        .unwrap();
    assert_eq!(graph.flags().unwrap(), 0, "nothing is freed by a launch");
    reset_call_counts();
    for _ in 0..1000 {
        graph.launch(&stream).unwrap();
    }
    let counts = call_counts();
    for allocates in
        ["cuMemAlloc_v2", "cuMemAllocHost_v2", "cuModuleLoadDataEx", "cuGraphInstantiateWithFlags", "cuGraphUpload"]
    {
        assert_eq!(counts.get(allocates), 0, "rz_23: {allocates} per replay");
    }
    assert_eq!(counts.get("cuGraphLaunch"), 1000);
    let got = stream.read(&cells).unwrap();
    assert!(got[..128].iter().all(|&v| v == 2000) && got[128..].iter().all(|&v| v == 1000));
    assert_eq!(device.live_allocations(), live);
}

#[test]
fn a_graph_is_not_replayed_for_another_key() {
    let (_device, stream) = device();
    let mut cells = stream.zeros::<u32>(4).unwrap();
    let weights = stream.upload(&[1u32]).unwrap();
    let key = GraphKey::new().with("weights", weights.id()).with("context", 512);
    assert_eq!(key.parts(), [("weights", weights.id()), ("context", 512)]);
    let graph =
        stream.capture(|scope| scope.launch(Bump { cells: &mut cells, n: 4, by: 1 })).unwrap().with_key(key.clone());
    graph.launch_checked(&stream, &key).unwrap();
    // The same values at a new buffer, which may even have the old one's address.
    drop(weights);
    let weights = stream.upload(&[1u32]).unwrap();
    let asked = GraphKey::new().with("weights", weights.id()).with("context", 512);
    let error = graph.launch_checked(&stream, &asked).unwrap_err();
    assert!(matches!(&error, Error::GraphMismatch { what, .. } if what.contains("weights")), "{error}");
    for other in [GraphKey::new(), key.clone().with("norm", 1)] {
        assert!(matches!(graph.launch_checked(&stream, &other), Err(Error::GraphMismatch { .. })));
    }
    assert_eq!(graph.replays(), 1);
    assert_eq!(stream.read(&cells).unwrap(), [1; 4]);
}

#[test]
fn a_graph_takes_new_arguments_but_not_another_shape() {
    let (_device, stream) = device();
    let mut a = stream.zeros::<u32>(128).unwrap();
    let mut b = stream.zeros::<u32>(128).unwrap();
    let mut graph = stream
        .capture(|scope| {
            scope.launch(Bump { cells: &mut a, n: 128, by: 1 })?;
            scope.launch(Bump { cells: &mut a, n: 128, by: 1 })
        })
        .unwrap();
    graph.launch(&stream).unwrap();
    graph
        .update(&stream, |scope| {
            scope.launch(Bump { cells: &mut b, n: 64, by: 10 })?;
            scope.launch(Bump { cells: &mut b, n: 64, by: 20 })
        })
        .unwrap();
    assert!(graph.uses(b.id()) && !graph.uses(a.id()));
    graph.launch(&stream).unwrap();
    assert_eq!(stream.read(&a).unwrap(), [2; 128]);
    let got = stream.read(&b).unwrap();
    assert!(got[..64].iter().all(|&v| v == 30) && got[64..].iter().all(|&v| v == 0));

    let error = graph.update(&stream, |scope| scope.launch(Bump { cells: &mut a, n: 1, by: 1 })).unwrap_err();
    assert!(matches!(&error, Error::GraphMismatch { .. }), "{error}");
    let error = graph.update(&stream, |scope| scope.launch(Bump { cells: &mut a, n: 0, by: 1 })).unwrap_err();
    assert!(matches!(error.root(), Error::Contract(_)), "{error}");
    graph.launch(&stream).unwrap();
    assert_eq!(stream.read(&b).unwrap()[0], 60, "the graph is as it was");
    // A failure of the driver's own: the graph does not pretend.
    let guard = inject_failure(Some("cuGraphExecUpdate"), 0, 999);
    let update = graph.update(&stream, |scope| {
        scope.launch(Bump { cells: &mut a, n: 64, by: 10 })?;
        scope.launch(Bump { cells: &mut a, n: 64, by: 20 })
    });
    drop(guard);
    assert!(matches!(update, Err(Error::Driver { call: "cuGraphExecUpdate", .. })), "{update:?}");
    assert!(matches!(graph.launch(&stream), Err(Error::GraphMismatch { .. })));
    drop(graph);
    all_is_well(&stream);
}

#[test]
fn graphs_run_on_any_stream_of_their_device_and_from_any_thread() {
    let (device, stream) = device();
    let mut cells = stream.zeros::<u32>(64).unwrap();
    let output = device.pinned::<u32>(64).unwrap();
    let graph = stream
        .capture(|scope| {
            scope.launch(Bump { cells: &mut cells, n: 64, by: 1 })?;
            scope.read_pinned(&cells, &output)
        })
        .unwrap();
    stream.synchronize().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let own = device.stream().unwrap();
                for _ in 0..25 {
                    graph.launch(&own).unwrap();
                }
                own.synchronize().unwrap();
            });
        }
    });
    assert_eq!(output.get().unwrap(), [100; 64]);
    assert_eq!(graph.replays(), 100);
}

#[test]
fn builtin_kernels_can_be_captured_before_their_first_launch() {
    use gpu_kernels::elementwise::ResidualAdd;
    let device = Device::open(0).unwrap();
    let stream = device.stream().unwrap();
    let x = stream.upload(&[1.0f32; 100]).unwrap();
    let mut y = stream.upload(&[f32::NAN; 100]).unwrap();
    let graph = stream.capture(|scope| scope.launch(ResidualAdd { x: &x, residual: &x, y: &mut y, n: 100 })).unwrap();
    graph.launch(&stream).unwrap();
    assert_eq!(stream.read(&y).unwrap(), [2.0; 100]);
}
