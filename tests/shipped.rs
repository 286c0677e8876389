//! What ships with the project: the models give the greedy text that llama.cpp gives, and the race check knows what kernels promise the launch
//! behind them.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests are not seen as tests

use std::path::Path;

use serde_json::Value;
use warpsmith_host::decode::{Model, SequenceOptions, Session};
use warpsmith_host::model::ModelFile;
use warpsmith_host::tokenizer::{Special, Tokenizer};
use warpsmith_host::{Device, builtin_image};
use warpsmith_simt::{LoadOptions, Module};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// In standard deviations of the logits. llama.cpp rounds the activations that it multiplies with quantised matrices to 8
/// bits: where its likeliest token leads by less than this, another one is no error. In
/// the texts of 200 tokens of `models/README.md` leads up to 0.006 were lost.
const NEAR_TIE: f64 = 0.05;

fn numbers(v: &Value) -> Vec<u32> {
    v.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as u32).collect()
}

/// Tokens, prompts and margins by llama.cpp; `models/compare.py` wrote them.
fn cases(file: &str) -> Vec<Value> {
    let path = Path::new(ROOT).join("tests/data/warpsmith-2m.greedy.json");
    let all: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let all = all["cases"].as_array().unwrap();
    all.iter().filter(|c| c["file"] == file).cloned().collect()
}

fn same_text_as_llama_cpp(format: &str) {
    let name = format!("warpsmith-2m-{format}.gguf");
    let file = ModelFile::open(Path::new(ROOT).join("models").join(&name)).unwrap();
    let tokenizer = Tokenizer::from_gguf(file.gguf()).unwrap();
    let device = Device::open(0).unwrap();
    let model = Model::load(&device, &file).unwrap();
    let cases = cases(&name);
    assert!(!cases.is_empty(), "no golden text for {name}");
    let (mut equal, mut of) = (0, 0);
    for case in cases {
        let prompt = tokenizer.encode(case["prompt"].as_str().unwrap(), Special::Parse).unwrap();
        assert_eq!(prompt, numbers(&case["prompt_tokens"]), "{name}: {}", case["prompt"]);
        let want = numbers(&case["tokens"]);
        let options = SequenceOptions { capacity: Some(prompt.len() + want.len()), ..Default::default() };
        let mut session = Session::new(&model, options).unwrap();
        let mut next = 0;
        for &token in &prompt {
            next = session.feed(token).unwrap();
        }
        of += want.len();
        for (&token, margin) in want.iter().zip(case["margins"].as_array().unwrap()) {
            let margin = margin.as_f64().unwrap();
            if next == token {
                equal += 1;
            } else {
                println!("{name}, {}: {next} for {token}, which leads by {margin}", case["prompt"]);
                assert!(margin < NEAR_TIE, "no near tie");
            }
            // llama.cpp's token goes in either way, so that every position is compared.
            next = session.feed(token).unwrap();
        }
    }
    println!("{name}: {equal} of {of} tokens equal");
    // A near tie that goes the other way is the exception: else this test would show little.
    assert!(10 * equal >= 9 * of, "{name}: only {equal} of {of} tokens equal");
}

#[test]
fn f16() {
    same_text_as_llama_cpp("f16");
}

#[test]
fn q8_0() {
    same_text_as_llama_cpp("q8_0");
}

#[test]
fn q4_k() {
    same_text_as_llama_cpp("q4_k");
}

#[test]
fn q1_0() {
    same_text_as_llama_cpp("q1_0");
}

#[test]
fn tq2_0() {
    same_text_as_llama_cpp("tq2_0");
}

#[test]
fn the_race_check_knows_that_kernels_let_the_next_launch_begin_behind_their_wait() {
    let image = builtin_image();
    let (sm, text) = image.code_for(90).unwrap();
    assert_eq!(sm, 90);
    let module = Module::load(&text, &LoadOptions { sm }).unwrap();
    let manifest = image.manifest().unwrap();
    let waiting = manifest.kernels.iter().filter(|kernel| kernel.waits).count();
    assert!(0 < waiting && waiting < manifest.kernels.len());
    let wrong = |waits: bool| -> Vec<_> {
        let kernels = manifest.kernels.iter().filter(|kernel| kernel.waits == waits);
        kernels.map(|kernel| &kernel.name).filter(|name| module.lets_behind_wait(name) != waits).collect()
    };
    assert_eq!(wrong(true), Vec::<&String>::new());
    assert_eq!(wrong(false), Vec::<&String>::new());
}
