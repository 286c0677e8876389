//! The activations of the options are those of the decoder, in one process and in each of two.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(unix)]

mod support;

use serde_json::Value;
use support::{Server, tokens, two};
use warpsmith_host::Device;
use warpsmith_host::decode::{Activations, Decoder, DecoderOptions, Feed, Model, Sequence, SequenceOptions};
use warpsmith_host::model::ModelFile;
use warpsmith_host::tokenizer::{Special, Tokenizer};

const PROMPT: &str = "Hi, GPU!";
const COUNT: usize = 4;

/// The logarithms of the probabilities of what a decoder generates.
fn of_a_decoder(model: &Model, prompt: &[u32], activations: Activations, tuned: bool) -> Vec<f32> {
    let mut decoder = Decoder::new(model, DecoderOptions { activations, tuned, ..Default::default() }).unwrap();
    let mut sequence = Sequence::new(model, SequenceOptions::default()).unwrap();
    let mut token = decoder.prefill(&mut sequence, prompt).unwrap();
    let mut all = vec![decoder.logprobs(0, 1, &[]).unwrap().top[0].logprob];
    while all.len() < COUNT {
        token = decoder.step(&mut [Feed { sequence: &mut sequence, token }]).unwrap()[0];
        all.push(decoder.logprobs(0, 1, &[]).unwrap().top[0].logprob);
    }
    all
}

/// Those that a server tells.
fn of_a_server(server: &Server) -> Vec<f32> {
    let mut body = tokens(PROMPT, COUNT);
    body["logprobs"] = 1.into();
    let answer = server.post("/v1/completions", &body).json();
    let told = answer["choices"][0]["logprobs"]["token_logprobs"].as_array().unwrap();
    told.iter().map(|p: &Value| p.as_f64().unwrap() as f32).collect()
}

#[test]
fn a_server_decodes_with_the_activations_that_it_is_told() {
    let path = support::data("tiny-qwen3-q4_0.gguf");
    let file = ModelFile::open(&path).unwrap();
    let prompt = Tokenizer::from_gguf(file.gguf()).unwrap().encode(PROMPT, Special::Text).unwrap();
    let model = Model::load(&Device::open(0).unwrap(), &file).unwrap();
    let cases: [(&[&str], Activations, bool); 5] = [
        (&[], Activations::Int16, false),
        (&["--activations", "exact"], Activations::F32, false),
        (&["--activations", "f16"], Activations::F16, false),
        (&["--activations", "fastest"], Activations::Int8, false),
        // No matrix of this model is large enough for them.
        (&["--activations", "fastest", "--tuned"], Activations::Int8, true),
    ];
    let mut all: Vec<Vec<f32>> = Vec::new();
    for (options, activations, tuned) in cases {
        let own = of_a_decoder(&model, &prompt, activations, tuned);
        assert_eq!(of_a_server(&Server::of(&path, options, &[])), own, "{options:?}");
        if tuned {
            assert_eq!(own, all[1], "{options:?}");
        } else {
            assert!(!all.contains(&own), "{options:?} are told from no others by this model");
        }
        all.push(own);
    }
}

/// The last layers are those of the process that follows.
#[test]
fn the_other_process_decodes_with_them_as_well() {
    let options = ["--activations", "f16"];
    let alone = of_a_server(&Server::start(&options));
    assert_ne!(alone, of_a_server(&Server::start(&[])));
    let (server, _follower) = two("stages", &options);
    assert_eq!(of_a_server(&server), alone);
}
