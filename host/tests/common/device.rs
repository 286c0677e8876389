//! What the tests on a device share.
#![allow(dead_code)]

#[path = "own_device.rs"]
mod own_device;

use crate::common::*;
use gpu_kernels::format::Format;
use own_device::own_device;
use std::path::PathBuf;
use std::sync::Once;
use warpsmith_host::Device;
use warpsmith_host::decode::{
    Activations, DecoderOptions, KvType, Mode, Model, SequenceOptions, Session, SessionOptions,
};
use warpsmith_host::model::ModelFile;

/// A device of whatever engine runs; says once which.
pub fn device() -> Device {
    static SAY: Once = Once::new();
    let device = own_device();
    SAY.call_once(|| eprintln!("engine: {} ({})", device.engine(), device.name()));
    device
}

pub fn load(file: &ModelFile) -> Model {
    Model::load(&device(), file).unwrap()
}

pub fn tiny(path: PathBuf) -> Model {
    load(&ModelFile::open(path).unwrap())
}

/// What a decoder does unless it is told otherwise.
pub fn options(mode: Mode, kv: KvType) -> SessionOptions {
    SessionOptions {
        sequence: SequenceOptions { kv, ..Default::default() },
        decoder: DecoderOptions { mode, ..Default::default() },
    }
}

/// The same with activations of f32, which prompts are multiplied with too.
pub fn exact(mode: Mode, kv: KvType) -> SessionOptions {
    let options = options(mode, kv);
    SessionOptions { decoder: DecoderOptions { activations: Activations::F32, ..options.decoder }, ..options }
}

pub fn sequence(model: &Model, mode: Mode) -> Session {
    Session::new(model, options(mode, KvType::F16)).unwrap()
}

/// Bits, so that equality is that of bits and not of numbers.
pub fn bits(v: &[f32]) -> Vec<u32> {
    v.iter().map(|x| x.to_bits()).collect()
}

/// Feeds a token and gives the bits of its logits.
pub fn feed(s: &mut Session, token: u32) -> Vec<u32> {
    s.feed(token).unwrap();
    bits(&s.logits().unwrap())
}

/// A token for every position, all over the vocabulary.
pub fn token(position: usize, vocab: usize) -> u32 {
    (Rng(position as u64).next() % vocab as u64) as u32
}

/// Logits of a fresh sequence of a freshly loaded model.
pub fn fresh(file: &ModelFile, tokens: std::ops::Range<usize>) -> Vec<Vec<u32>> {
    let mut s = sequence(&load(file), Mode::Eager);
    tokens.map(|p| feed(&mut s, token(p, file.config().vocab))).collect()
}

/// Three models of equal depth: two of one shape, one of another format.
pub fn trio() -> [ModelFile; 3] {
    let a = Synthetic { seed: 11, ..Default::default() };
    let b = Synthetic { seed: 12, ..a.clone() };
    let c = Synthetic { formats: vec![Format::Q1_0], seed: 13, ..a.clone() };
    [a.file(), b.file(), c.file()]
}

/// Runs an ignored test of the same file in a process of its own, on a software device with this much memory.
pub fn in_its_own_process(test: &str, memory: &str) {
    let out = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .envs([("WARPSMITH_DRIVER", "software"), ("WARPSMITH_MEMORY", memory)])
        .output()
        .unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success() && text.contains("1 passed"), "{text}");
}
