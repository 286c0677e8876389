//! Launches of graphs with code of their own, in which their scalars are constants.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashSet;

mod common;
#[path = "common/device.rs"]
mod device;
#[path = "common/loads.rs"]
mod loads;
mod runtime_support;

use common::*;
use gpu_kernels::elementwise::ResidualAdd;
use gpu_kernels::format::Format;
use loads::{fresh, loaded};
use runtime_support::{Axpy, KERNELS};
use warpsmith_host::decode::{
    Activations, Decoder, DecoderOptions, ListedLaunch, Mode, Model, Sequence, SequenceOptions, Session, SessionOptions,
};
use warpsmith_host::device::launch::Start;
use warpsmith_host::driver::software;
use warpsmith_host::{Buffer, Constants, Device, Error, Graph, Stream, builtin_image};

/// The sum of a buffer's first `n` elements with themselves, recorded with code of its own.
fn recorded(stream: &Stream, x: &Buffer<f32>, y: &mut Buffer<f32>, n: u32) -> Result<Graph, Error> {
    stream.capture(|scope| {
        scope.specialise();
        scope.launch(ResidualAdd { x, residual: x, y, n })
    })
}

fn doubled(stream: &Stream, x: &Buffer<f32>, y: &mut Buffer<f32>, n: u32) -> Graph {
    recorded(stream, x, y, n).unwrap()
}

/// The launches of a step of one token.
fn listed(model: &Model, options: DecoderOptions) -> Vec<ListedLaunch> {
    let mut sequence = Sequence::new(model, SequenceOptions::default()).unwrap();
    Decoder::new(model, options).unwrap().list_step(&mut sequence, 0).unwrap()
}

#[test]
fn equal_launches_share_their_code_and_no_others() {
    let Some((device, stream)) = fresh() else { return };
    let x = stream.upload(&[1.0f32; 64]).unwrap();
    let mut y = stream.zeros::<f32>(64).unwrap();
    let mut z = stream.zeros::<f32>(64).unwrap();
    let all = [
        (doubled(&stream, &x, &mut y, 64), 1, [2.0; 64]),
        (doubled(&stream, &x, &mut z, 64), 1, [2.0; 64]),
        (doubled(&stream, &x, &mut y, 32), 2, std::array::from_fn(|i| if i < 32 { 2.0 } else { 0.0 })),
    ];
    assert_eq!(loaded(), 2);
    // What is no part of a graph has the code for all launches.
    stream.launch(ResidualAdd { x: &x, residual: &x, y: &mut y, n: 64 }).unwrap();
    assert_eq!(loaded(), 3);
    for (graph, _, want) in &all {
        stream.fill(&mut y, 0.0).unwrap();
        graph.launch(&stream).unwrap();
        let got = stream.read(if graph.uses(z.id()) { &z } else { &y }).unwrap();
        assert_eq!(got, want);
    }
    device.warm_specialised(&ResidualAdd { x: &x, residual: &x, y: &mut y, n: 64 }).unwrap();
    assert_eq!(loaded(), 3);
    device.warm_specialised(&ResidualAdd { x: &x, residual: &x, y: &mut y, n: 16 }).unwrap();
    assert_eq!(loaded(), 4);
    drop(doubled(&stream, &x, &mut y, 16));
    assert_eq!(loaded(), 4);
}

#[test]
fn threads_that_want_the_same_code_at_once_load_it_once() {
    let Some((device, stream)) = fresh() else { return };
    let x = stream.upload(&[1.0f32; 64]).unwrap();
    let barrier = std::sync::Barrier::new(4);
    let sum: u64 = std::thread::scope(|scope| {
        let one = || {
            software::reset_call_counts();
            let mut y = device.alloc::<f32>(64).unwrap();
            barrier.wait();
            device.warm_specialised(&ResidualAdd { x: &x, residual: &x, y: &mut y, n: 64 }).unwrap();
            loaded()
        };
        let all: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(sum, 1);
}

#[test]
fn graphs_made_node_by_node_have_it_too_from_where_it_is_asked_for() {
    let Some((_device, stream)) = fresh() else { return };
    let x = stream.upload(&[1.0f32; 64]).unwrap();
    let (mut y, mut z) = (stream.zeros::<f32>(64).unwrap(), stream.zeros::<f32>(64).unwrap());
    let mut builder = stream.graph_builder().unwrap();
    builder.launch(ResidualAdd { x: &x, residual: &x, y: &mut y, n: 64 }).unwrap();
    assert_eq!(loaded(), 1);
    builder.specialise();
    builder.launch(ResidualAdd { x: &y, residual: &x, y: &mut z, n: 64 }).unwrap();
    assert_eq!(loaded(), 2);
    let mut builder = stream.graph_builder().unwrap();
    builder.specialise();
    builder.launch(ResidualAdd { x: &x, residual: &x, y: &mut y, n: 64 }).unwrap();
    builder.launch(ResidualAdd { x: &y, residual: &x, y: &mut z, n: 64 }).unwrap();
    assert_eq!(loaded(), 2);
    builder.finish().unwrap().launch(&stream).unwrap();
    assert_eq!((stream.read(&y).unwrap(), stream.read(&z).unwrap()), (vec![2.0; 64], vec![3.0; 64]));
}

#[test]
fn code_that_no_graph_has_any_more_is_unloaded_when_there_is_much_of_it() {
    let Some((device, stream)) = fresh() else { return };
    let x = stream.upload(&[1.0f32; 1024]).unwrap();
    let mut y = stream.zeros::<f32>(1024).unwrap();
    let kept = doubled(&stream, &x, &mut y, 1024);
    for n in 1..=600 {
        drop(doubled(&stream, &x, &mut y, n));
        if n % 100 == 0 {
            device.load(builtin_image()).unwrap();
        }
    }
    let unloaded = software::call_counts().get("cuModuleUnload");
    assert_eq!(loaded(), 601);
    assert!((300..600).contains(&unloaded), "{unloaded}");
    kept.launch(&stream).unwrap();
    assert_eq!(stream.read(&y).unwrap(), [2.0; 1024]);
    // What was unloaded is loaded again.
    doubled(&stream, &x, &mut y, 1).launch(&stream).unwrap();
    assert_eq!(loaded(), 602);
}

#[test]
fn a_text_that_was_not_cut_has_one_code() {
    let Some((device, stream)) = fresh() else { return };
    device.load(&KERNELS).unwrap();
    let before = loaded();
    let x = stream.upload(&[1.0f32; 64]).unwrap();
    let mut y = stream.zeros::<f32>(64).unwrap();
    let graph = stream
        .capture(|scope| {
            scope.specialise();
            scope.launch(Axpy { x: &x, y: &mut y, n: 64, a: 3.0 })
        })
        .unwrap();
    assert_eq!(loaded(), before);
    graph.launch(&stream).unwrap();
    assert_eq!(stream.read(&y).unwrap(), [3.0; 64]);
}

#[test]
fn a_kernel_with_a_memory_of_its_own_has_one_code() {
    let (_, stream) = (Device::open(0).unwrap(), Device::open(0).unwrap().stream().unwrap());
    let x = stream.upload(&[1.0f32; 8]).unwrap();
    let mut y = stream.zeros::<f32>(8).unwrap();
    let constants = Constants::of(&Axpy { x: &x, y: &mut y, n: 8, a: 3.0 });
    assert!(!constants.is_empty());
    let entry = |name: &str| {
        format!(
            ".visible .entry {name}(.param .u64 x, .param .u64 y, .param .u32 n, .param .f32 a)\n{{\n.reg .b32 %r<2>;\n.reg .f32 %f<2>;\n\
             ld.param.u32 %r1, [n];\nld.param.f32 %f1, [a];\nret;\n}}\n"
        )
    };
    const HEAD: &str = ".version 8.0\n.target sm_90\n.address_size 64\n";
    let known = constants.in_text(&format!("{HEAD}{}", entry("axpy")), "axpy").unwrap();
    assert!(known.contains("mov.b32 %r1, 0x8;\nmov.b32 %f1, 0x40400000;"), "{known}");
    for (more, alone) in [
        (".global .u32 calls;\n", false),
        (".visible .global .align 4 .b8 table[4] = {1, 2, 3, 4};\n", false),
        (&*entry("other"), false),
        (".global .align 1 .b8 alloc_0123456789abcdef0123456789abcdef[2] = {1, 2};\n", true),
        (".shared .align 4 .b8 tile[64];\n.const .u32 one = 1;\n", true),
        (".func f()\n{\nret;\n}\n", true),
    ] {
        let text = format!("{HEAD}{more}{}", entry("axpy"));
        assert_eq!(constants.in_text(&text, "axpy").is_some(), alone, "{more}");
    }
    // A function that approximates what it may know keeps all of it as it was.
    let function =
        ".func f(.param .f32 v)\n{\n.reg .f32 %f<3>;\nld.param.f32 %f1, [v];\nrcp.approx.f32 %f2, %f1;\nret;\n}\n";
    assert_eq!(constants.in_text(&format!("{HEAD}{function}{}", entry("axpy")), "axpy"), None);
    assert_eq!(Constants::default().in_text(&entry("axpy"), "axpy"), None);
}

#[test]
fn code_that_does_not_load_is_an_error_and_loads_later() {
    let Some((_device, stream)) = fresh() else { return };
    let x = stream.upload(&[1.0f32; 64]).unwrap();
    let mut y = stream.zeros::<f32>(64).unwrap();
    let guard = software::inject_failure(Some("cuModuleLoadDataEx"), 0, 2);
    let refused = recorded(&stream, &x, &mut y, 64);
    assert!(guard.fired());
    let error = refused.unwrap_err();
    let Error::CaptureFailed { source, .. } = &error else { panic!("{error}") };
    assert!(matches!(**source, Error::ModuleLoad { .. }), "{error}");
    drop(guard);
    doubled(&stream, &x, &mut y, 64).launch(&stream).unwrap();
    assert_eq!(stream.read(&y).unwrap(), [2.0; 64]);
}

#[test]
fn steps_of_one_token_have_code_of_their_own_and_the_same_bits() {
    const MIXED: &[Format] = &[Format::F16, Format::Q8_0, Format::Q4_K, Format::F32];
    for (architecture, formats, activations) in [
        ("qwen3", &[Format::Q1_0][..], Activations::Int16),
        ("qwen3", &[Format::Q4_K, Format::Q6_K], Activations::Int16),
        ("gemma3", MIXED, Activations::Int8),
        ("gpt2", &[Format::Q8_0], Activations::F32),
        ("qwen3moe", MIXED, Activations::F16),
        ("qwen35", MIXED, Activations::Int16),
    ] {
        let experts = mixtures::ALL.contains(&architecture).then_some((5, 2));
        let formats = formats.to_vec();
        let synthetic = Synthetic { architecture, experts, hidden: 256, formats, ..Default::default() };
        let model = device::load(&synthetic.file());
        let run = |specialise: bool, mode| {
            let decoder = DecoderOptions { activations, mode, specialise: Some(specialise), ..Default::default() };
            let mut session = Session::new(&model, SessionOptions { decoder, ..Default::default() }).unwrap();
            let mut token = session.prefill(&[5, 9, 70]).unwrap();
            let mut seen = Vec::new();
            for _ in 0..3 {
                token = session.feed(token).unwrap();
                seen.push((token, device::bits(&session.logits().unwrap())));
            }
            (seen, listed(&model, decoder))
        };
        let (want, eager) = run(true, Mode::Eager);
        let (same, general) = run(false, Mode::Graph);
        let (got, special) = run(true, Mode::Graph);
        assert_eq!(same, want, "{architecture}");
        assert_eq!(got, want, "{architecture}");
        // On GPUs it is the default.
        let default = listed(&model, DecoderOptions { activations, ..Default::default() });
        let has_own = default.iter().any(|launch| !launch.constants.is_empty());
        assert_eq!(has_own, !model.device().is_software(), "{architecture}");
        assert!(eager.iter().chain(&general).all(|launch| launch.constants.is_empty()), "{architecture}");
        let with_values = |launch: &&ListedLaunch| launch.arguments.iter().any(|(meta, _)| !meta.kind.is_buffer());
        let many = special.iter().filter(with_values).count();
        assert!(many > 10, "{architecture}: {many}");
        assert!(special.iter().filter(with_values).all(|launch| !launch.constants.is_empty()), "{architecture}");
    }
}

#[test]
fn layers_share_their_code_however_many_there_are() {
    for architecture in ["qwen3", "gemma3", "gpt2", "qwen3moe", "gpt-oss", "qwen35", "glm4moe"] {
        let experts = mixtures::ALL.contains(&architecture).then_some((5, 2));
        let of = |layers| {
            let formats = vec![Format::Q8_0];
            let file = Synthetic { architecture, experts, hidden: 256, layers, formats, ..Default::default() }.file();
            let listed = listed(&device::load(&file), DecoderOptions { specialise: Some(true), ..Default::default() });
            let codes: HashSet<_> =
                listed.iter().map(|launch| (launch.kernel.name, launch.constants.clone())).collect();
            (listed.len(), codes)
        };
        let ((launches, codes), (more, same)) = (of(8), of(16));
        assert!(more > launches + 30, "{architecture}: {launches}, {more}");
        assert_eq!(same, codes, "{architecture}");
    }
}

#[test]
fn layers_in_one_launch_have_the_code_for_all_launches() {
    let file = Synthetic { hidden: 256, formats: vec![Format::Q8_0], ..Default::default() }.file();
    let model = device::load(&file);
    let decoder = DecoderOptions { persistent: true, specialise: Some(true), ..Default::default() };
    let mut session = Session::new(&model, SessionOptions { decoder, ..Default::default() }).unwrap();
    session.feed(7).unwrap();
    let listed = listed(&model, decoder);
    let together = |launch: &&ListedLaunch| launch.geometry.start == Start::Cooperative;
    assert_eq!(listed.iter().filter(together).count(), 1);
    assert!(listed.iter().all(|launch| launch.constants.is_empty() == together(&launch)));
}
