//! Typed launches: what arrives at the kernel, and what is refused before it.

#![allow(clippy::unwrap_used, clippy::panic)] // Tests fail by panicking.

mod runtime_support;

use gpu_kernels::elementwise::{ResidualAdd, Swiglu, swiglu_reference};
use runtime_support::*;
use warpsmith_device::{DeviceSlice, Kernel, U32x4};
use warpsmith_driver_api::software;
use warpsmith_host::{Device, Error, KernelImage};

#[test]
fn a_launch_computes_and_is_counted() {
    let (_device, stream) = device();
    let n = 1000;
    let x = stream.upload(&(0..n).map(|i| i as f32).collect::<Vec<_>>()).unwrap();
    let mut y = stream.upload(&vec![0.5f32; n]).unwrap();
    stream.launch(Axpy { x: &x, y: &mut y, n: n as u32, a: 2.0 }).unwrap();
    let y = stream.read(&y).unwrap();
    assert!(y.iter().enumerate().all(|(i, &v)| v == 2.0 * i as f32 + 0.5));
    assert_eq!((stream.launches(), stream.copies()), (1, 3));
}

#[test]
fn slices_of_a_buffer_are_where_they_should_be() {
    let (_device, stream) = device();
    let mut cells = stream.zeros::<u32>(300).unwrap();
    stream.launch(Bump { cells: &mut cells[100..200], n: 100, by: 3 }).unwrap();
    let (head, tail) = cells.split_at_mut(250).unwrap();
    stream.launch(Bump { cells: &mut head[..1], n: 1, by: 5 }).unwrap();
    stream.launch(Bump { cells: tail, n: 50, by: 7 }).unwrap();
    let got = stream.read(&cells).unwrap();
    let want = |i| match i {
        0 => 5,
        100..200 => 3,
        250..300 => 7,
        _ => 0,
    };
    assert!(got.iter().enumerate().all(|(i, &v)| v == want(i)), "{got:?}");
}

#[test]
fn arguments_of_every_size_arrive() {
    let (_device, stream) = device();
    let mut out = stream.zeros::<u32>(9).unwrap();
    let (a, b, c, d, e) = (0xabu8, 0x1122_3344_5566_7788u64, [1, 2, 3, 4], 0xbeefu16, 1.5f32);
    stream.launch(Unpack { out: &mut out, a, b, c: U32x4(c), d, e }).unwrap();
    let got = stream.read(&out).unwrap();
    assert_eq!(got, [0xab, 0xbeef, 0x5566_7788, 0x1122_3344, 1, 2, 3, 4, 1.5f32.to_bits()]);
}

#[test]
fn gpu_kernels_need_no_load() {
    let device = Device::open(0).unwrap();
    println!("engine: {}", device.engine());
    assert!(device.libraries().is_empty());
    let stream = device.stream().unwrap();
    let gate: Vec<f32> = (0..777).map(|i| (i as f32 - 388.0) * 0.03).collect();
    let up: Vec<f32> = (0..777).map(|i| (i as f32 * 0.7).sin()).collect();
    let (g, u) = (stream.upload(&gate).unwrap(), stream.upload(&up).unwrap());
    let mut y = stream.upload(&[f32::NAN; 777]).unwrap();
    stream.launch(Swiglu { gate: &g, up: &u, y: &mut y, n: 777 }).unwrap();
    for (got, want) in stream.read(&y).unwrap().iter().zip(swiglu_reference(&gate, &up)) {
        assert!((f64::from(*got) - want).abs() <= 1e-5 * want.abs() + 1e-9, "{got} for {want}");
    }
    stream.launch(ResidualAdd { x: &g, residual: &u, y: &mut y, n: 777 }).unwrap();
    for (i, got) in stream.read(&y).unwrap().iter().enumerate() {
        assert_eq!(*got, gate[i] + up[i]);
    }
    assert_eq!(device.libraries(), ["gpu-kernels"]);
    let manifest = warpsmith_host::kernels().unwrap();
    assert!(manifest.kernel("swiglu").is_some_and(|k| k.block == Swiglu::META.block));
}

#[test]
fn a_broken_contract_names_kernel_argument_expected_and_actual() {
    let (_device, stream) = device();
    let x = stream.zeros::<f32>(10).unwrap();
    let mut y = stream.zeros::<f32>(9).unwrap();
    let error = stream.launch(Axpy { x: &x, y: &mut y, n: 10, a: 1.0 }).unwrap_err();
    assert!(
        error.to_string().starts_with("axpy: argument `y`: expected at least 10 elements (n), got 9\nhint: `check`"),
        "{error}"
    );
    assert!(std::error::Error::source(&error).is_none(), "whoever prints the causes would print the text twice");
    assert!(matches!(error, Error::Contract(e) if e.argument == "y"));
    let error = stream.launch(Axpy { x: &x, y: &mut y, n: 0, a: 1.0 }).unwrap_err();
    assert!(error.to_string().contains("grid"), "{error}");
    assert_eq!(stream.launches(), 0);
    assert_eq!(stream.read(&y).unwrap(), [0.0; 9], "nothing was launched");
}

#[test]
fn a_library_that_is_not_loaded_is_named() {
    let device = Device::open(0).unwrap();
    let stream = device.stream().unwrap();
    let mut cells = stream.zeros::<u32>(1).unwrap();
    let error = stream.launch(Bump { cells: &mut cells, n: 1, by: 1 }).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::KernelNotLoaded { kernel: "bump", library: "warpsmith-host", .. }));
    assert!(text.contains("device.load") && text.contains("loaded: none"), "{text}");
}

/// The image with another manifest.
fn with_manifest(change: impl Fn(&str) -> String) -> KernelImage {
    let changed = change(MANIFEST);
    assert_ne!(changed, MANIFEST, "the change must apply");
    image(("warpsmith-host", changed.leak(), &[(75, PTX)]))
}

#[test]
fn a_manifest_that_does_not_match_the_program_is_stale() {
    let cases: [(&str, &str, &str); 7] = [
        (r#""name": "by""#, r#""name": "step""#, "`step`"),
        (r#""name": "bump", "block": [128"#, r#""name": "bump", "block": [256"#, "[256, 1, 1]"),
        (
            r#""element": "u32", "size": 4, "align": 4, "offset": 12"#,
            r#""element": "i32", "size": 4, "align": 4, "offset": 12"#,
            "scalar i32",
        ),
        (
            r#""element": "u32", "size": 4, "align": 4, "offset": 12"#,
            r#""element": "u32", "size": 4, "align": 4, "offset": 16"#,
            "offset 16",
        ),
        (
            r#""element": "u32", "size": 4, "align": 4, "offset": 12"#,
            r#""element": "u32", "size": 8, "align": 8, "offset": 16"#,
            "8 bytes aligned to 8",
        ),
        (
            r#""name": "cells", "type": "InOut<u32>", "kind": "inout""#,
            r#""name": "cells", "type": "In<u32>", "kind": "in""#,
            "(in u32",
        ),
        (
            r#"{ "name": "by", "type": "u32", "kind": "scalar", "element": "u32", "size": 4, "align": 4, "offset": 12 }"#,
            r#"{ "name": "by", "type": "u32", "kind": "scalar", "element": "u32", "size": 4, "align": 4, "offset": 12 },
            { "name": "more", "type": "u32", "kind": "scalar", "element": "u32", "size": 4, "align": 4, "offset": 16 }"#,
            "passes 3 arguments, it takes 4",
        ),
    ];
    for (from, to, names) in cases {
        let device = Device::open(0).unwrap();
        device.load(&with_manifest(|m| m.replace(from, to))).unwrap();
        let stream = device.stream().unwrap();
        let mut cells = stream.zeros::<u32>(1).unwrap();
        let error = stream.launch(Bump { cells: &mut cells, n: 1, by: 1 }).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::StaleModule { kernel: "bump", .. }), "{text}");
        assert!(text.contains(names) && text.contains("rebuild"), "{names}: {text}");
        assert_eq!(stream.read(&cells).unwrap(), [0]);
    }
}

#[test]
fn a_newer_image_takes_the_place_of_an_older_one() {
    let (device, stream) = device();
    let mut cells = stream.zeros::<u32>(1).unwrap();
    stream.launch(Bump { cells: &mut cells, n: 1, by: 1 }).unwrap();
    device.load(&KERNELS).unwrap(); // The same image: nothing happens.
    let doubled = PTX.replace("add.u32 %r7, %r7, %r2;", "add.u32 %r7, %r7, %r2;\n    add.u32 %r7, %r7, %r2;");
    let code: &'static [(u32, &'static str)] = vec![(75, &*doubled.leak())].leak();
    let newer = image(("warpsmith-host", MANIFEST, code));
    let graph = stream.capture(|scope| scope.launch(Bump { cells: &mut cells, n: 1, by: 100 })).unwrap();
    device.load(&newer).unwrap();
    stream.launch(Bump { cells: &mut cells, n: 1, by: 10 }).unwrap();
    assert_eq!(stream.read(&cells).unwrap(), [21]);
    graph.launch(&stream).unwrap(); // It was captured with the older one.
    assert_eq!(stream.read(&cells).unwrap(), [121]);
    drop(device);
    graph.launch(&stream).unwrap();
    assert_eq!(stream.read(&cells).unwrap(), [221]);
}

/// The kernels, with another addend in `bump`.
fn adding(by: u32) -> KernelImage {
    let text = PTX.replace("add.u32 %r7, %r7, %r2;", &format!("add.u32 %r7, %r7, {by};"));
    let code: &'static [(u32, &'static str)] = vec![(75, &*text.leak())].leak();
    image(("warpsmith-host", MANIFEST, code))
}

/// Modules that this thread has loaded and not unloaded.
fn loaded() -> i64 {
    let counts = software::call_counts();
    let of = |name: &str| counts.get(name) as i64;
    of("cuModuleLoadDataEx") + of("cuModuleLoadData") - of("cuModuleUnload")
}

#[test]
fn modules_that_were_replaced_are_unloaded() {
    software::reset_call_counts();
    let (device, stream) = device();
    if !device.is_software() {
        return eprintln!("skipped: calls are counted by the software driver");
    }
    let mut cells = stream.zeros::<u32>(1).unwrap();
    for by in 1..=40u32 {
        device.load(&adding(by)).unwrap();
        stream.launch(Bump { cells: &mut cells, n: 1, by: 1000 }).unwrap();
        assert!(loaded() <= 1, "after {by} loads {} modules are there", loaded());
    }
    assert_eq!(stream.read(&cells).unwrap(), [820]);
    // A graph keeps what it was captured with, and only as long as it is there.
    let graph = stream.capture(|scope| scope.launch(Bump { cells: &mut cells, n: 1, by: 0 })).unwrap();
    device.load(&adding(100)).unwrap();
    device.load(&adding(200)).unwrap();
    assert_eq!(loaded(), 2);
    graph.launch(&stream).unwrap();
    assert_eq!(stream.read(&cells).unwrap(), [860]);
    drop(graph);
    device.load(&adding(300)).unwrap();
    assert_eq!(loaded(), 1);
    // One that cannot be unloaded is unloaded at the next load.
    let fails = software::inject_failure(Some("cuModuleUnload"), 0, 1);
    device.load(&adding(400)).unwrap();
    assert!(fails.fired());
    assert!(device.take_deferred_error().is_some_and(|e| e.to_string().contains("cuModuleUnload")));
    device.load(&adding(500)).unwrap();
    // Three attempts for the two: the one that failed was counted as a call.
    assert_eq!(loaded(), 0);
}

#[test]
fn while_a_stream_is_captured_replaced_modules_stay() {
    let (device, stream) = device();
    let other = device.stream().unwrap();
    let mut cells = stream.zeros::<u32>(1).unwrap();
    device.load(&adding(1)).unwrap();
    stream.launch(Bump { cells: &mut cells, n: 1, by: 0 }).unwrap();
    stream.synchronize().unwrap();
    let graph = other
        .capture(|scope| {
            let device = device.clone();
            std::thread::spawn(move || device.load(&adding(2))).join().unwrap()?;
            scope.launch(Bump { cells: &mut cells, n: 1, by: 0 })
        })
        .unwrap();
    graph.launch(&other).unwrap();
    assert_eq!(other.read(&cells).unwrap(), [3]);
    device.load(&adding(3)).unwrap();
    graph.launch(&other).unwrap();
    assert_eq!(other.read(&cells).unwrap(), [5]);
    assert!(device.take_deferred_error().is_none());
}

#[test]
fn rz_24_images_are_told_apart_by_their_text() {
    // The same library and the same kernel name with other code must never be served from a cache.
    let (device, stream) = device();
    let mut cells = stream.zeros::<u32>(1).unwrap();
    for by in 1..=5u32 {
        device.load(&adding(by)).unwrap();
        stream.launch(Bump { cells: &mut cells, n: 1, by: 1000 }).unwrap();
    }
    assert_eq!(stream.read(&cells).unwrap(), [1 + 2 + 3 + 4 + 5]);
}

#[test]
fn images_that_cannot_be_used_say_why() {
    let device = Device::open(0).unwrap();
    let load = |manifest, code| device.load(&image(("warpsmith-host", manifest, code)));
    let error = load(MANIFEST, &[(75, "this is not PTX")]).unwrap_err();
    let text = error.to_string();
    assert!(matches!(&error, Error::ModuleLoad { sm: 75, .. }), "{text}");
    // NVIDIA's driver looks for PTX first, and says that it is no image (200).
    let expected = if device.is_software() { (218, "line 1") } else { (200, "not recognized") };
    assert_eq!(error.code(), Some(expected.0), "{text}");
    assert!(text.contains(expected.1), "the compiler's log: {text}");

    let error = load("{", &[(75, PTX)]).unwrap_err();
    assert!(error.to_string().contains("does not parse"), "{error}");
    let error = load(r#"{"library":"other","kernels":[]}"#, &[(75, PTX)]).unwrap_err();
    assert!(error.to_string().contains("of library `other`"), "{error}");
    let error = load(MANIFEST, &[(200, PTX)]).unwrap_err();
    assert!(matches!(&error, Error::NoCodeForDevice { available, .. } if available == &[200]));
    let error = load(MANIFEST, &[]).unwrap_err();
    assert!(error.to_string().contains("no architecture"), "{error}");
    let error =
        load(r#"{"library":"warpsmith-host","kernels":[{"name":"gone","block":[1,1,1],"args":[]}]}"#, &[(75, PTX)])
            .unwrap_err();
    assert!(error.to_string().contains("no kernel `gone`"), "{error}");
    let error = load(MANIFEST, &[(75, "\0")]).unwrap_err();
    assert!(error.to_string().contains("zero byte"), "{error}");
    // None of it did harm.
    device.load(&KERNELS).unwrap();
    let stream = device.stream().unwrap();
    let mut cells = stream.zeros::<u32>(1).unwrap();
    stream.launch(Bump { cells: &mut cells, n: 1, by: 1 }).unwrap();
    assert_eq!(stream.read(&cells).unwrap(), [1]);
}

#[test]
fn the_newest_code_that_runs_is_chosen() {
    let image = image(("l", "{}", &[(75, "a"), (90, "c"), (80, "b"), (120, "d")]));
    for (sm, best) in [(75, 75), (79, 75), (80, 80), (89, 80), (90, 90), (103, 90), (120, 120), (121, 120)] {
        assert_eq!(image.code_for(sm).unwrap().0, best);
    }
    assert!(matches!(image.code_for(70), Err(Error::NoCodeForDevice { sm: 70, .. })));
}

#[test]
fn fe_6_dynamic_shared_memory_above_48_kib_is_opted_into_or_refused_with_the_limit() {
    let (device, stream) = device();
    let mut out = stream.zeros::<u32>(1).unwrap();
    let limit = device.limits().shared_optin;
    assert!(limit > 49152, "{limit}");
    // 48 KiB less a word, 48 KiB, a word more, and all there is.
    for bytes in [4, 49148, 49152, 49156, limit] {
        stream.fill(&mut out, 0).unwrap();
        stream.launch(LastWord { out: &mut out, words: bytes / 4 }).unwrap();
        assert_eq!(stream.read(&out).unwrap(), [7], "{bytes} bytes");
    }
    let error = stream.launch(LastWord { out: &mut out, words: limit / 4 + 1 }).unwrap_err();
    match error {
        Error::LaunchLimit { kernel: "last_word", requested, limit: l, .. } => {
            assert_eq!((requested, l), (u64::from(limit) / 4 * 4 + 4, u64::from(limit)));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn rz_20_null_pointers_are_refused_before_the_launch() {
    let (_device, stream) = device();
    // SAFETY: never reaches the device: that is the test.
    let null: &mut DeviceSlice<u32> = unsafe { DeviceSlice::from_raw_mut(0, 4) };
    let error = stream.launch(Bump { cells: null, n: 4, by: 1 }).unwrap_err();
    assert!(matches!(error, Error::NullPointer { kernel: "bump", argument: "cells", .. }), "{error}");
    // SAFETY: as above.
    let null: &mut DeviceSlice<u32> = unsafe { DeviceSlice::from_raw_mut(0, 4) };
    assert!(matches!(stream.fill(null, 1).unwrap_err(), Error::NullPointer { .. }));
    let mut cells = stream.zeros::<u32>(4).unwrap();
    stream.launch(Bump { cells: &mut cells, n: 4, by: 1 }).unwrap();
    assert_eq!(stream.read(&cells).unwrap(), [1; 4], "the device is not lost");
}

#[test]
fn rz_20_code_that_does_not_load_leaves_a_usable_device() {
    let (device, stream) = device();
    for _ in 0..3 {
        let bad = image(("bad", r#"{"library":"bad","kernels":[]}"#, &[(75, ".version 99.9\n.target sm_75\nrubbish")]));
        assert!(matches!(device.load(&bad), Err(Error::ModuleLoad { .. })));
        let mut cells = stream.zeros::<u32>(4).unwrap();
        stream.launch(Bump { cells: &mut cells, n: 4, by: 2 }).unwrap();
        assert_eq!(stream.read(&cells).unwrap(), [2; 4]);
    }
}

#[test]
fn a_slice_beyond_its_allocation_is_refused() {
    let (_device, stream) = device();
    let cells = stream.zeros::<u32>(16).unwrap();
    // SAFETY: never reaches the device: that is the test.
    let beyond: &mut DeviceSlice<u32> = unsafe { DeviceSlice::from_raw_mut(cells.address().raw() + 32, 16) };
    let error = stream.launch(Bump { cells: beyond, n: 1, by: 1 }).unwrap_err();
    assert!(matches!(error, Error::OutOfRange { argument: "cells", size: 64, bytes: 64, .. }), "{error}");
}

#[test]
fn launches_are_profiled_per_kernel() {
    let (_device, stream) = device();
    let x = stream.zeros::<f32>(1 << 12).unwrap();
    let mut y = stream.zeros::<f32>(1 << 12).unwrap();
    let mut cells = stream.zeros::<u32>(1).unwrap();
    let ((), profile) = stream
        .profile(|stream| {
            for _ in 0..3 {
                stream.launch(Axpy { x: &x, y: &mut y, n: 1 << 12, a: 1.0 })?;
            }
            stream.launch(Bump { cells: &mut cells, n: 1, by: 1 })
        })
        .unwrap();
    let launches: Vec<_> = profile.kernels.iter().map(|k| (k.name, k.launches)).collect();
    assert_eq!(launches.len(), 2);
    assert!(launches.contains(&("axpy", 3)) && launches.contains(&("bump", 1)), "{launches:?}");
    assert!(profile.kernels.windows(2).all(|k| k[0].time >= k[1].time));
    assert_eq!(profile.total(), profile.kernels.iter().map(|k| k.time).sum());
    // Outside of it nothing is measured.
    stream.launch(Bump { cells: &mut cells, n: 1, by: 1 }).unwrap();
    let ((), profile) = stream.profile(|_| Ok(())).unwrap();
    assert!(profile.kernels.is_empty());
}

#[test]
fn cooperative_launches_have_all_their_blocks_on_the_device_or_are_refused() {
    let (device, stream) = device();
    let run = |word: &mut _, out: &mut _, cooperative| stream.launch(Meet { word, out, cooperative });
    let (mut word, mut out) = (stream.zeros::<u32>(1).unwrap(), stream.zeros::<u32>(24).unwrap());
    run(&mut word, &mut out, 1).unwrap();
    assert_eq!(stream.read(&out).unwrap(), [24; 24]);

    let error = run(&mut word, &mut out, 0).unwrap_err();
    assert!(matches!(error, Error::NotCooperative { kernel: "meet" }), "{error}");
    let most = device.resident_blocks(Meet::META, 0).unwrap();
    assert!(most >= u64::from(device.limits().multiprocessors), "{most}");
    let mut many = stream.zeros::<u32>(most as usize + 1).unwrap();
    match run(&mut word, &mut many, 1).unwrap_err() {
        Error::TooManyResident { kernel: "meet", blocks, resident, per_multiprocessor, multiprocessors } => {
            assert_eq!((blocks, resident), (most + 1, most));
            assert_eq!(resident, u64::from(per_multiprocessor) * u64::from(multiprocessors));
        }
        other => panic!("{other}"),
    }
    // More shared memory for each, fewer blocks.
    let (shared, processors) = (device.limits().shared_optin, device.limits().multiprocessors);
    assert_eq!(device.resident_blocks(LastWord::META, shared).unwrap(), u64::from(processors));

    // Recorded, and as a node.
    for built in [false, true] {
        let (mut word, mut out) = (stream.zeros::<u32>(1).unwrap(), stream.zeros::<u32>(9).unwrap());
        let graph = if built {
            let mut builder = stream.graph_builder().unwrap();
            builder.fill(&mut word, 0).unwrap();
            builder.launch(Meet { word: &mut word, out: &mut out, cooperative: 1 }).unwrap();
            builder.finish().unwrap()
        } else {
            let record = |scope: &mut warpsmith_host::Capture<'_>| {
                scope.fill(&mut word, 0)?;
                scope.launch(Meet { word: &mut word, out: &mut out, cooperative: 1 })
            };
            stream.capture(record).unwrap()
        };
        graph.launch(&stream).unwrap();
        graph.launch(&stream).unwrap();
        assert_eq!(stream.read(&out).unwrap(), [9; 9]);
    }
}

/// Waits for the launch before.
const WAIT: &str = "griddepcontrol.wait;";

#[test]
fn programmatic_launches_give_what_ordered_ones_give() {
    let (device, stream) = device();
    let x: Vec<u32> = (0..256).collect();
    // Code that waits where the device has the instruction, and the code without, which runs everywhere.
    for image in [kernels_that_wait("before the load", WAIT), KERNELS] {
        let oldest = image.code().unwrap()[0].0;
        if oldest > device.sm() || (oldest < 90 && device.sm() >= 90 && !device.is_software()) {
            continue;
        }
        device.load(&image).unwrap();
        let (a, mut b, mut c) =
            (stream.upload(&x).unwrap(), stream.zeros::<u32>(256).unwrap(), stream.zeros::<u32>(256).unwrap());
        stream.launch(Follow { x: &a, y: &mut b }).unwrap();
        stream.launch(Follow { x: &b, y: &mut c }).unwrap();
        assert_eq!(stream.read(&c).unwrap(), x.iter().map(|v| v + 2).collect::<Vec<_>>());
        for built in [false, true] {
            stream.fill(&mut c, 0).unwrap();
            let graph = if built {
                let mut builder = stream.graph_builder().unwrap();
                builder.launch(Follow { x: &a, y: &mut b }).unwrap();
                builder.launch(Follow { x: &b, y: &mut c }).unwrap();
                builder.finish().unwrap()
            } else {
                let record = |scope: &mut warpsmith_host::Capture<'_>| {
                    scope.launch(Follow { x: &a, y: &mut b })?;
                    scope.launch(Follow { x: &b, y: &mut c })
                };
                stream.capture(record).unwrap()
            };
            graph.launch(&stream).unwrap();
            assert_eq!(stream.read(&c).unwrap(), x.iter().map(|v| v + 2).collect::<Vec<_>>());
        }
    }
}

/// What the checks say of two launches of `follow`, the second reading what the first writes, with so many other ones between them.
fn following(device: &Device, kernels: &KernelImage, between: usize, capture: bool) -> Option<String> {
    device.load(kernels).unwrap();
    let stream = device.stream().unwrap();
    let a = stream.upload(&[7u32; 128]).unwrap();
    let (mut b, mut c) = (stream.zeros::<u32>(128).unwrap(), stream.zeros::<u32>(128).unwrap());
    let mut others: Vec<_> = (0..between).map(|_| stream.zeros::<u32>(128).unwrap()).collect();
    stream.synchronize().unwrap();
    let mut launches = |on: &mut dyn FnMut(Follow<'_>) -> Result<(), Error>| {
        on(Follow { x: &a, y: &mut b })?;
        others.iter_mut().try_for_each(|other| on(Follow { x: &a, y: other }))?;
        on(Follow { x: &b, y: &mut c })
    };
    if capture {
        let graph = stream.capture(|scope| launches(&mut |launch| scope.launch(launch))).unwrap();
        graph.launch(&stream).unwrap();
    } else {
        launches(&mut |launch| stream.launch(launch)).unwrap();
    }
    match stream.read(&c) {
        Ok(c) => {
            assert_eq!(c, [9; 128]);
            None
        }
        Err(Error::Findings { text, .. }) => Some(text),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn what_a_programmatic_launch_reads_before_it_waits_is_a_race() {
    if !is_child() {
        let environment = [("WARPSMITH_DRIVER", "software"), ("WARPSMITH_CHECK", "1"), ("WARPSMITH_SM", "90")];
        return child_passes("what_a_programmatic_launch_reads_before_it_waits_is_a_race", &environment);
    }
    let (device, _) = device();
    for capture in [false, true] {
        assert_eq!(following(&device, &kernels_that_wait("before the load", WAIT), 0, capture), None);
        // The first launch has the same defect, behind a fill that has ended: only what may still run is a race.
        let text = following(&device, &kernels_that_wait("behind the load", WAIT), 0, capture).expect("a finding");
        assert!(text.contains("error[race::stream]: write-read race on global memory"), "{text}");
        assert!(text.contains("a programmatic launch does not wait for the one before it"), "{text}");
        assert!(text.contains("call `grid::wait_dependencies()`"), "{text}");
        assert_eq!(text.matches("error[").count(), 1, "{text}");
    }
}

#[test]
fn what_was_written_before_the_launch_before_may_be_read_early_if_that_lets_others_begin_behind_its_wait() {
    const NAME: &str =
        "what_was_written_before_the_launch_before_may_be_read_early_if_that_lets_others_begin_behind_its_wait";
    if !is_child() {
        let environment = [("WARPSMITH_DRIVER", "software"), ("WARPSMITH_CHECK", "1"), ("WARPSMITH_SM", "90")];
        return child_passes(NAME, &environment);
    }
    let (device, _) = device();
    const LAUNCH: &str = "griddepcontrol.launch_dependents;";
    let behind = kernels_that_wait("behind the load", &format!("{WAIT} {LAUNCH}"));
    // The launch before may have let it begin while the first one ran.
    let ahead = kernels_that_wait("behind the load", &format!("{LAUNCH} {WAIT}"));
    let unnamed = kernels_that_wait("behind the load", WAIT);
    for capture in [false, true] {
        for between in 1..4 {
            assert_eq!(following(&device, &behind, between, capture), None, "{between} {capture}");
            for early in [&ahead, &unnamed] {
                let text = following(&device, early, between, capture).expect("a finding");
                assert!(text.contains("a programmatic launch does not wait for the one before it"), "{text}");
            }
        }
        assert!(following(&device, &behind, 0, capture).is_some());
    }
}
