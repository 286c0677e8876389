//! Whether decoding agrees with the reference, and whether a sequence has the same bits in every step.
#![allow(dead_code)]

use crate::{alone::*, common::*, device::*};
use gpu_kernels::format::Format;
use warpsmith_driver_api::software::{self, Checks};
use warpsmith_host::decode::{
    Activations, Decoder, DecoderOptions, Feed, KvType, Mode, Model, Part, Pool, PoolOptions, Predict, Sequence,
    SequenceOptions, Session,
};
use warpsmith_host::gguf::{Gguf, GgufWriter};
use warpsmith_host::model::{ModelError, ModelFile};
use warpsmith_host::reference::{KvRounding, Reference};

pub fn file(w: &GgufWriter) -> Result<ModelFile, ModelError> {
    ModelFile::from_gguf(Gguf::from_bytes(w.to_bytes()).unwrap())
}

/// The greatest difference to the reference over `tokens` positions, in standard deviations of the logits.
pub fn distance(file: &ModelFile, s: &mut Session, tokens: usize) -> f64 {
    let mut reference = Reference::new(file, KvRounding::None);
    let (mut off, mut squares, mut count) = (0f64, 0f64, 0usize);
    for p in 0..tokens {
        let t = token(p, file.config().vocab);
        let want = reference.feed(t).unwrap().logits;
        s.feed(t).unwrap();
        off = off.max(worst(s.logits().unwrap().iter().map(|&v| v.into()), want.iter().copied()));
        squares += want.iter().map(|x| x * x).sum::<f64>();
        count += want.len();
    }
    off / (squares / count as f64).sqrt()
}

/// The reference and the device give the logits that another program has written beside a file under `data`, for ten tokens of 48.
pub fn has_the_logits_of_another_program(name: &str) {
    let data = root().join("host/tests/data");
    let file = ModelFile::open(data.join(format!("{name}.gguf"))).unwrap();
    let want = read_f64(&data.join(format!("{name}.logits.f64")));
    assert_eq!(want.len(), 480, "{name}");
    let mut reference = Reference::new(&file, KvRounding::None);
    for (token, want) in FED.into_iter().zip(want.chunks(48)) {
        let d = worst(reference.feed(token).unwrap().logits, want.iter().copied());
        assert!(d < 1e-9 * deviation(want), "{name} token {token}: {d:e} of the reference");
    }
    decodes_as_another_program(name, &load(&file));
}

const FED: [u32; 10] = [3, 1, 4, 1, 5, 9, 2, 6, 47, 0];

/// Of these logits those of a loaded model, on whatever devices.
pub fn decodes_as_another_program(name: &str, model: &Model) {
    let want = read_f64(&root().join(format!("host/tests/data/{name}.logits.f64")));
    assert_eq!(want.len(), 480, "{name}");
    let mut s = Session::new(model, exact(Mode::Graph, KvType::F32)).unwrap();
    for (token, want) in FED.into_iter().zip(want.chunks(48)) {
        s.feed(token).unwrap();
        let d = worst(s.logits().unwrap().iter().map(|&v| v.into()), want.iter().copied());
        assert!(d < 1e-4 * deviation(want), "{name} token {token}: {d:e}");
    }
}

/// Files under `data` have the logits and the greedy texts that other programs give for them, under all checks.
pub fn are_decoded_as_by_others<const N: usize>(texts: &[(&str, [u32; N])]) {
    let _checked = software::check(Checks::ALL);
    for &(name, text) in texts {
        has_the_logits_of_another_program(name);
        greedy_text(name, text);
    }
}

/// The greedy text of a file under `data`, on the device and by the reference, against what llama.cpp generates.
pub fn greedy_text<const N: usize>(name: &str, want: [u32; N]) {
    greedy_text_of(&ModelFile::open(root().join(format!("host/tests/data/{name}.gguf"))).unwrap(), name, want);
}

/// The same of any file.
pub fn greedy_text_of<const N: usize>(file: &ModelFile, name: &str, want: [u32; N]) {
    let mut s = Session::new(&load(file), options(Mode::Graph, KvType::F16)).unwrap();
    let mut reference = Reference::new(file, KvRounding::F16);
    let (prompt, mut next) = ([3, 1, 4], [0; 2]);
    let mut text = Vec::new();
    for p in 0..prompt.len() + N - 1 {
        let fed = |of: usize| prompt.get(p).copied().unwrap_or(next[of]);
        next = [s.feed(fed(0)).unwrap(), reference.feed(fed(1)).unwrap().argmax()];
        text.push(next);
    }
    assert_eq!(text[prompt.len() - 1..], want.map(|t| [t; 2]), "{name}");
}

/// A model without a file, as for what is projected, has the tensors of one with its numbers.
pub fn described_has_the_tensors_of(file: &ModelFile, format: Format) {
    let described = ModelFile::described(file.config().clone(), format, false).unwrap();
    let named = |f: &ModelFile| f.matrices().map(|m| (m.name.clone(), m.rows, m.cols)).collect::<Vec<_>>();
    assert_eq!(named(&described), named(file));
}

/// What a model and decoders of it ask for ahead is what they take. Alone in its process.
pub fn memory_is_as_said(file: &ModelFile) -> Model {
    let d = device();
    let free = || d.memory_info().unwrap().free;
    let start = free();
    let model = load(file);
    let before = free();
    assert_eq!(Model::device_bytes(file).unwrap(), start - before);
    for activations in Activations::ALL {
        let options = DecoderOptions { batch: 8, activations, ..Default::default() };
        let decoder = Decoder::new(&model, options).unwrap();
        assert_eq!(Decoder::device_bytes(&model, decoder.options()), Some(before - free()), "{activations}");
    }
    model
}

/// With a cache of f32: exact activations as in `decode.rs`, and those of 16 bits as `verify` bounds them.
pub fn agrees(what: &dyn std::fmt::Debug, file: &ModelFile) {
    let model = load(file);
    for mode in [Mode::Eager, Mode::Graph] {
        let mut s = Session::new(&model, exact(mode, KvType::F32)).unwrap();
        let d = distance(file, &mut s, 6);
        assert!(d <= 1e-4, "{mode:?} {d:e} {what:?}");
    }
    let mut s = Session::new(&model, options(Mode::Graph, KvType::F32)).unwrap();
    let d = distance(file, &mut s, 6);
    assert!(d <= 2.1e-3 * (file.config().layers as f64).sqrt(), "int16: {d:e} {what:?}");
}

/// The bits of a sequence alone, in batches, as prompts of any cut, and in mixed steps.
pub fn same_bits(model: &Model) {
    let want: Vec<Alone> = (0..4).map(|s| Alone::new(model, s, (9 + s, 17), KvType::F16)).collect();
    let options = DecoderOptions { batch: 4, drafts: 24, ..Default::default() };
    let mut decoder = Decoder::new(model, options).unwrap();
    let pool = Pool::new(model, PoolOptions { positions: 256, ..Default::default() }).unwrap();
    for paged in [false, true] {
        let mut all: Vec<Sequence> = (0..4)
            .map(|s| match paged {
                true => {
                    Sequence::in_pool(&pool, SequenceOptions { sampling: sampling(s), ..Default::default() }).unwrap()
                }
                false => empty(model, s, KvType::F16),
            })
            .collect();
        // Whole prompts of two, beside parts of the others'.
        let counts = [9, 10, 4, 5];
        let mut parts: Vec<Part<'_>> = all
            .iter_mut()
            .zip(counts)
            .enumerate()
            .map(|(s, (sequence, count))| Part { sequence, tokens: &want[s].tokens[..count], predict: Predict::Each })
            .collect();
        decoder.step_mixed(&mut parts).unwrap();
        let places = (0..4).flat_map(|s| (0..counts[s]).map(move |p| (s, p)));
        for (place, (s, p)) in places.enumerate() {
            assert_eq!(bits(&decoder.logits(place).unwrap()), want[s].logits[p], "paged {paged}: sequence {s} at {p}");
        }
        for _ in 0..6 {
            let lengths: Vec<usize> = all.iter().map(Sequence::len).collect();
            let mut feeds: Vec<Feed<'_>> = all
                .iter_mut()
                .enumerate()
                .map(|(s, sequence)| Feed { token: want[s].tokens[sequence.len()], sequence })
                .collect();
            decoder.step(&mut feeds).unwrap();
            for (s, p) in lengths.into_iter().enumerate() {
                assert_eq!(bits(&decoder.logits(s).unwrap()), want[s].logits[p], "paged {paged}: sequence {s} at {p}");
            }
        }
    }
    for chunk in [1, 3, 64] {
        let mut decoder = Decoder::new(model, DecoderOptions { chunk, ..Default::default() }).unwrap();
        let mut sequence = empty(model, 0, KvType::F16);
        decoder.prefill(&mut sequence, &want[0].tokens[..14]).unwrap();
        assert_eq!(bits(&decoder.logits(0).unwrap()), want[0].logits[13], "chunks of {chunk}");
    }
}
