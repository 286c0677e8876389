//! The server as clients see it: requests that overlap get what each would get alone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;

use serde_json::{Value, json};
use tiny_http::Server;
use warpsmith_host::Device;
use warpsmith_host::decode::{KvType, Model, Sampling, Session, SessionOptions};
use warpsmith_host::model::ModelFile;
use warpsmith_host::tokenizer::{Special, Tokenizer};
use warpsmith_runner::engine::{self, Options};
use warpsmith_runner::http::{self, Service};

fn post(address: SocketAddr, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all((head + body).as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn text_of(body: &str) -> String {
    let value: Value = serde_json::from_str(body).unwrap();
    value["choices"][0]["text"].as_str().unwrap().to_owned()
}

/// The texts of a stream's events.
fn streamed(body: &str) -> String {
    let events: Vec<&str> = body.split("\n\n").filter_map(|e| e.strip_prefix("data: ")).collect();
    assert_eq!(events.last(), Some(&"[DONE]"), "{body}");
    events[..events.len() - 1].iter().map(|e| text_of(e)).collect()
}

#[test]
fn overlapping_requests_get_their_own_texts() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/tiny-qwen3-f16.gguf");
    let file = ModelFile::open(path).unwrap();
    let tokenizer = Tokenizer::from_gguf(file.gguf()).unwrap();
    let model = Model::load(&Device::open(0).unwrap(), &file).unwrap();

    let prompts = ["Hi, GPU!", "a", "The second of them", "zz top", "one more than the batch"];
    let sampling =
        |i: usize| Sampling { temperature: if i.is_multiple_of(2) { 0.0 } else { 0.9 }, seed: 7, ..Default::default() };
    let alone: Vec<String> = prompts
        .iter()
        .enumerate()
        .map(|(i, prompt)| {
            let tokens = tokenizer.encode(prompt, Special::Text).unwrap();
            let options = SessionOptions { capacity: Some(64), sampling: sampling(i), ..Default::default() };
            let mut session = Session::new(&model, options).unwrap();
            let generated = session.generate(&tokens, 6 + i, |_| std::ops::ControlFlow::Continue(())).unwrap();
            let end = generated.iter().position(|t| Some(*t) == tokenizer.eos()).unwrap_or(generated.len());
            tokenizer.decode(&generated[..end])
        })
        .collect();

    let server = Server::http("127.0.0.1:0").unwrap();
    let address = server.server_addr().to_ip().unwrap();
    let (queue, requests) = channel();
    let options = Options { batch: 3, context: Some(64), kv: KvType::F16, end: tokenizer.eos() };
    let service = Arc::new(Service { tokenizer, model: "test".into(), queue });
    std::thread::scope(|threads| {
        let engine = threads.spawn({
            let (model, options) = (&model, &options);
            move || engine::serve(model, options, &requests)
        });
        // The engine ends when the queue does: the service goes with its thread.
        let listener = threads.spawn({
            let server = &server;
            move || http::run(server, &service)
        });
        let clients: Vec<_> = (0..prompts.len())
            .map(|i| {
                threads.spawn(move || {
                    let s = sampling(i);
                    let body = json!({
                        "prompt": prompts[i], "max_tokens": 6 + i, "temperature": s.temperature, "seed": s.seed,
                        "stream": i == 1 || i == 2,
                    });
                    post(address, "/v1/completions", &body.to_string())
                })
            })
            .collect();
        for (i, client) in clients.into_iter().enumerate() {
            let (status, body) = client.join().unwrap();
            assert_eq!(status, 200, "{body}");
            let got = if i == 1 || i == 2 { streamed(&body) } else { text_of(&body) };
            assert_eq!(got, alone[i], "{:?}", prompts[i]);
        }
        for (path, body, status, part) in [
            ("/v1/completions", "{", 400, "EOF"),
            ("/v1/completions", r#"{"prompt": ""}"#, 400, "empty"),
            ("/v1/completions", r#"{"prompt": "a", "speed": 1}"#, 400, "speed"),
            ("/v1/completions", r#"{"prompt": "a", "temperature": -1}"#, 500, "temperature"),
            ("/v1/elsewhere", "{}", 404, "elsewhere"),
        ] {
            let (got, text) = post(address, path, body);
            assert!(got == status && text.contains(part), "{body}: {got} {text}");
        }
        let long = json!({ "prompt": "a".repeat(100), "max_tokens": 1 });
        let (status, text) = post(address, "/v1/completions", &long.to_string());
        assert!(status == 500 && text.contains("do not fit"), "{text}");
        server.unblock();
        listener.join().unwrap();
        engine.join().unwrap().unwrap();
    });
}
