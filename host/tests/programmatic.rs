//! Steps of programmatic launches: the same bits, and what is said of kernels that do not wait in time, or never.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "common/device.rs"]
mod device;
mod runtime_support;

use common::*;
use gpu_kernels::format::Format;
use runtime_support::{child_passes, is_child};
use std::collections::HashMap;
use warpsmith_host::decode::{
    Activations, DecodeError, Decoder, DecoderOptions, Feed, KvType, Mode, Model, Sequence, SequenceOptions, Session,
    SessionOptions,
};
use warpsmith_host::driver::software::{self, Checks};
use warpsmith_host::{Device, Error, KernelImage, builtin_image};

/// An image of code that the test has written, under the names of its kernels: it touches their arguments alone.
const fn made(parts: (&'static str, &'static str, &'static [(u32, &'static str)])) -> KernelImage {
    // SAFETY: as above.
    unsafe { KernelImage::from_parts(parts) }
}

/// Width 256, so that blocks of every format fit.
fn wide(formats: &[Format]) -> Synthetic {
    Synthetic { hidden: 256, formats: formats.to_vec(), ..Default::default() }
}

/// A prompt in chunks, then steps: tokens, and the bits of logits.
fn session(model: &Model, options: SessionOptions) -> Vec<(u32, Vec<u32>)> {
    let mut s =
        Session::new(model, SessionOptions { decoder: DecoderOptions { chunk: 3, ..options.decoder }, ..options })
            .unwrap();
    assert_eq!(s.decoder().programmatic(), options.decoder.programmatic && model.device().sm() >= 90);
    let mut token = s.prefill(&[5, 9, 70, 31]).unwrap();
    let mut all = vec![(token, device::bits(&s.logits().unwrap()))];
    for _ in 0..3 {
        token = s.feed(token).unwrap();
        all.push((token, device::bits(&s.logits().unwrap())));
    }
    all
}

/// Three sequences of different lengths in one step, a prompt of one of them on its own kernel.
fn batch(model: &Model, options: DecoderOptions) -> Vec<Vec<u32>> {
    let mut decoder = Decoder::new(model, DecoderOptions { batch: 3, fast_prefill: true, ..options }).unwrap();
    let mut all: Vec<Sequence> = (0..3).map(|_| Sequence::new(model, SequenceOptions::default()).unwrap()).collect();
    decoder.prefill(&mut all[1], &[7, 8, 9]).unwrap();
    let mut seen = Vec::new();
    for p in 0..2 {
        let tokens = [0, 1, 2].map(|i| device::token(10 * i + p, 96));
        let mut feeds: Vec<Feed<'_>> =
            all.iter_mut().zip(tokens).map(|(sequence, token)| Feed { sequence, token }).collect();
        decoder.step(&mut feeds).unwrap();
        seen.extend((0..3).map(|i| device::bits(&decoder.logits(i).unwrap())));
    }
    seen
}

type Case = (&'static str, &'static [Format], Activations, KvType);

const MIXED: &[Format] = &[Format::F16, Format::Q8_0, Format::Q4_K, Format::F32];

fn same_bits(cases: &[Case]) {
    for &(architecture, formats, activations, kv) in cases {
        let experts = mixtures::ALL.contains(&architecture).then_some((5, 2));
        let model = device::load(&Synthetic { architecture, experts, ..wide(formats) }.file());
        let run = |mode, programmatic| {
            let decoder = DecoderOptions { mode, activations, programmatic, ..Default::default() };
            let sequence = SequenceOptions { kv, ..Default::default() };
            (session(&model, SessionOptions { sequence, decoder }), batch(&model, decoder))
        };
        // Of ordinary launches one by one; the others are looked at for races as well.
        let want = run(Mode::Eager, false);
        let _checked = software::check(Checks::ALL);
        for mode in [Mode::Eager, Mode::Graph] {
            let got = run(mode, true);
            assert_eq!(got.0, want.0, "{architecture} {formats:?} {activations} {mode:?}");
            assert_eq!(got.1, want.1, "{architecture} {formats:?} {activations} {mode:?}, three sequences");
        }
    }
}

#[test]
fn programmatic_steps_give_the_same_bits() {
    same_bits(&[
        ("qwen3", &[Format::F32], Activations::F32, KvType::F32),
        ("qwen3", &[Format::Q4_K], Activations::Int8, KvType::F16),
        ("qwen3", &[Format::Q1_0], Activations::Int16, KvType::Int8),
        ("qwen3", MIXED, Activations::Int8, KvType::F16),
        ("qwen3", MIXED, Activations::F16, KvType::F16),
    ]);
}

#[test]
fn programmatic_steps_of_models_with_other_norms_give_the_same_bits() {
    same_bits(&[
        ("gemma3", MIXED, Activations::Int8, KvType::F16),
        ("gemma2", MIXED, Activations::Int16, KvType::Int8),
        ("starcoder2", MIXED, Activations::Int8, KvType::F16),
        ("cohere2", MIXED, Activations::F32, KvType::F16),
        ("gpt2", &[Format::Q8_0], Activations::Int16, KvType::Int8),
    ]);
}

#[test]
fn programmatic_steps_of_experts_and_delta_nets_give_the_same_bits() {
    same_bits(&[
        ("qwen3moe", MIXED, Activations::Int16, KvType::F16),
        ("gpt-oss", MIXED, Activations::Int16, KvType::Int8),
        ("qwen2moe", MIXED, Activations::Int8, KvType::F16),
        ("qwen35", MIXED, Activations::Int16, KvType::F16),
        ("qwen3next", MIXED, Activations::Int8, KvType::F16),
        ("glm4moe", MIXED, Activations::Int16, KvType::F16),
        ("qwen3moe", &[Format::Q8_0], Activations::F16, KvType::F16),
    ]);
}

/// The body of an entry: where it begins and ends in the text.
fn body(ptx: &str, kernel: &str) -> std::ops::Range<usize> {
    let from = ptx.find(&format!(".entry {kernel}(")).unwrap();
    from..from + ptx[from..].find("\n}").unwrap()
}

/// The text of each entry, by its name: looking for one after the other would read all of it as often.
fn entries(ptx: &str) -> HashMap<&str, &str> {
    const ENTRY: &str = ".entry ";
    let entry = |at: usize| {
        let text = &ptx[at + ENTRY.len()..];
        (&text[..text.find('(').unwrap()], &text[..text.find("\n}").unwrap()])
    };
    ptx.match_indices(ENTRY).map(|(at, _)| entry(at)).collect()
}

/// What ships for the architecture of a device: texts of others would be read and copied for nothing.
fn code_of(device: &Device) -> (u32, String) {
    let (sm, text) = builtin_image().code_for(device.sm()).unwrap();
    (sm, text.into_owned())
}

const WAIT: &str = "griddepcontrol.wait;";
/// From here on the launch behind may begin.
const LAUNCH: &str = "griddepcontrol.launch_dependents;";

/// The kernels with one that waits at its end, where its results are written, instead of at its beginning.
fn late(kernel: &str) -> KernelImage {
    let (sm, mut text) = code_of(&Device::open(0).unwrap());
    assert!(sm >= 90, "sm_{sm}");
    let place = body(&text, kernel);
    assert_eq!(text[place.clone()].matches(WAIT).count(), 1, "{kernel}");
    let moved = text[place.clone()].replace(WAIT, "").replace("ret;", &format!("{WAIT} ret;"));
    text.replace_range(place, &moved);
    let image = builtin_image();
    made((image.library(), image.manifest_text(), vec![(sm, &*text.leak())].leak()))
}

/// What a step says with these kernels.
fn step(kernels: &KernelImage, activations: Activations, mode: Mode) -> Result<(), DecodeError> {
    let device = Device::open(0).unwrap();
    device.load(kernels).unwrap();
    let model = Model::load(&device, &wide(&[Format::Q8_0]).file()).unwrap();
    let options = DecoderOptions { activations, mode, programmatic: true, ..Default::default() };
    let mut session = Session::new(&model, options)?;
    session.feed(7)?;
    // The call that tells what was found.
    session.logits().map(drop)
}

#[test]
fn a_kernel_of_a_step_that_waits_too_late_is_found() {
    if !is_child() {
        let environment = [("WARPSMITH_DRIVER", "software"), ("WARPSMITH_CHECK", "1"), ("WARPSMITH_SM", "90")];
        return child_passes("a_kernel_of_a_step_that_waits_too_late_is_found", &environment);
    }
    let (f32, int8) = (Activations::F32, Activations::Int8);
    for (kernel, activations, mode) in
        [("gemv_q8_0", f32, Mode::Graph), ("attn_step_f16", f32, Mode::Eager), ("gemv_q8_0_i8", int8, Mode::Graph)]
    {
        let error = step(&late(kernel), activations, mode).expect_err(kernel);
        let DecodeError::Runtime(Error::Findings { text, .. }) = error else { panic!("{kernel}: {error}") };
        assert!(text.contains("a programmatic launch does not wait for the one before it"), "{kernel}: {text}");
        assert!(text.contains(&format!("in kernel `{kernel}`")), "{kernel}: {text}");
    }
}

/// The kernels with another manifest, in which those that are named never wait.
fn described(backend: &str, never: impl Fn(&str) -> bool) -> KernelImage {
    let image = builtin_image();
    let mut manifest: serde_json::Value = serde_json::from_str(image.manifest_text()).unwrap();
    manifest["backend"] = backend.into();
    for kernel in manifest["kernels"].as_array_mut().unwrap() {
        if never(kernel["name"].as_str().unwrap()) {
            kernel["waits"] = false.into();
        }
    }
    let manifest = manifest.to_string();
    let (sm, text) = code_of(&Device::open(0).unwrap());
    made((image.library(), manifest.leak(), vec![(sm, &*text.leak())].leak()))
}

#[test]
fn code_that_cannot_wait_is_launched_in_order() {
    // What the second code generator says of its kernels.
    let kernels = described("cuda_builder", |_| true);
    let device = Device::open(0).unwrap();
    device.load(&kernels).unwrap();
    let model = Model::load(&device, &wide(&[Format::Q8_0]).file()).unwrap();
    for mode in [Mode::Eager, Mode::Graph] {
        let mut session =
            Session::new(&model, DecoderOptions { mode, programmatic: true, ..Default::default() }).unwrap();
        assert!(!session.decoder().programmatic());
        session.feed(7).unwrap();
        session.logits().unwrap();
    }
}

#[test]
fn a_kernel_that_never_waits_is_refused() {
    let kernels = described("stock", |name| name == "attn_step_f16");
    let device = Device::open(0).unwrap();
    let refused = step(&kernels, Activations::F32, Mode::Eager);
    // Another device's launches are ordinary ones.
    assert_eq!(refused.is_err(), device.sm() >= 90);
    if let Err(error) = refused {
        let never = matches!(error, DecodeError::Runtime(Error::NeverWaits { kernel: "attn_step_f16" }));
        assert!(never, "{error}");
    }
}

/// What a launch finds in memory when it begins: nothing that a launch of a step writes.
const CONSTANT: [&str; 14] = [
    "weights",
    "order",
    "weight",
    "next_weight",
    "bias",
    "positions",
    "q_weight",
    "k_weight",
    "cos",
    "sin",
    "sinks",
    "a",
    "dt",
    "norm",
];

/// What a kernel finds in memory when it begins, as the launch right before it writes no such thing, beside what is [constant](CONSTANT).
fn is_settled(kernel: &str, argument: &str) -> bool {
    CONSTANT.contains(&argument) || (kernel.starts_with("attn_step_") && argument == "columns")
}

/// Whether a kernel loads from memory before it waits: an order of columns is of the weights, and columns are settled.
fn loads_early(kernel: &str) -> bool {
    kernel == "gather" || kernel.starts_with("attn_step_")
}

/// The lines of an entry that a thread may come by before it waits.
fn before_waits(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let label = |name: &str| lines.iter().position(|line| line.strip_prefix(name) == Some(":")).unwrap();
    let (mut seen, mut ways) = (vec![false; lines.len()], vec![0]);
    while let Some(mut at) = ways.pop() {
        while at < lines.len() && !std::mem::replace(&mut seen[at], true) {
            let line = lines[at];
            assert!(!line.contains("brx"), "{line}");
            // A panic ends the launch with an error.
            if line == WAIT || line.starts_with("trap;") {
                seen[at] = false;
                break;
            }
            if line == "ret;" || line == "exit;" {
                break;
            }
            if line.contains("bra") && line.ends_with(';') {
                let target = line.split_whitespace().last().unwrap().trim_end_matches(';');
                ways.push(label(target));
                if !line.starts_with('@') {
                    break;
                }
            }
            at += 1;
        }
    }
    lines.into_iter().zip(seen).filter_map(|(line, seen)| seen.then_some(line)).collect()
}

#[test]
fn every_kernel_that_reads_of_launches_before_waits_for_them() {
    let image = builtin_image();
    let manifest = image.manifest().unwrap();
    let (sm, ptx) = image.code_for(u32::MAX).unwrap();
    assert!(sm >= 90, "sm_{sm}");
    let (texts, mut waiting) = (entries(&ptx), 0);
    for kernel in &manifest.kernels {
        let awaits = kernel.args.iter().any(|a| a.ty.starts_with("Awaited<"));
        assert_eq!(kernel.waits, awaits, "{}", kernel.name);
        if !awaits {
            continue;
        }
        waiting += 1;
        for arg in kernel.args.iter().filter(|a| a.ty.starts_with("In<")) {
            assert!(is_settled(&kernel.name, &arg.name), "{}: {} is read before the wait", kernel.name, arg.name);
        }
        let text = texts[&*kernel.name];
        // Products of bit planes have bodies for wide and other blocks, each with a wait of its own.
        let parts: Vec<&str> = text.split(WAIT).collect();
        let planes = ["gemv_q1_0_i", "gemv_q2_0_i"].iter().any(|product| kernel.name.starts_with(product));
        let most = 1 + usize::from(planes);
        assert!((2..=most + 1).contains(&parts.len()), "{} waits {} times", kernel.name, parts.len() - 1);
        // Behind each wait, and nowhere else, the launch behind may begin: so all that was before the launch before is complete.
        for behind in &parts[1..] {
            let between = behind.find(LAUNCH).map(|at| &behind[..at]).unwrap_or_else(|| panic!("{}", kernel.name));
            for other in ["\n$", "bra.uni", "bra \t", "\tret;", "\tld.global", "\tld.b", "\tst.", "\tbar."] {
                assert!(!between.contains(other), "{}: {other} in {between}", kernel.name);
            }
        }
        assert_eq!(text.matches(LAUNCH).count(), parts.len() - 1, "{}", kernel.name);
        // All threads wait: nothing ends before, and nothing is accessed.
        for line in before_waits(text) {
            let accesses = ["ret;", "exit;", "st.global", "atom.", "red.", "bar.", "ld.v", "ld.b", "st.v", "st.b"];
            let loads = (!loads_early(&kernel.name)).then_some("ld.global");
            for instruction in accesses.into_iter().chain(loads) {
                let found = line.split_whitespace().any(|word| word.starts_with(instruction));
                assert!(!found, "{}: {line} before the wait", kernel.name);
            }
        }
    }
    // 23 formats twice, 20 products with codes of one column and 20 of many, 22 and 22 with f16, 8 that write codes or f16, 3 attentions for
    // steps, 6 for prompts and 3 with caps, 3 stores, 4 of mixtures of experts, 5 of delta nets, 3 of
    // sampling, and six.
    assert_eq!(waiting, 46 + 20 + 20 + 22 + 22 + 8 + 3 + 6 + 3 + 3 + 4 + 5 + 3 + 6);
}
