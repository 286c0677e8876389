//! Requests that compete: for places, for memory, and with those who have left.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::json;
use support::{Client, Server, tiny, tokens};
use warpsmith_host::Device;
use warpsmith_host::decode::{Decoder, DecoderOptions, KvType, Model, Sequence};
use warpsmith_host::gguf::Gguf;
use warpsmith_host::model::ModelFile;

/// Positions of the model.
const CONTEXT: usize = 512;

/// Device memory for the model, the engine, and so many sequences of the whole context with a cache of f32.
fn memory_for(sequences: f64) -> String {
    let file = ModelFile::open(tiny()).unwrap();
    let model = Model::load(&Device::open(0).unwrap(), &file).unwrap();
    let least = DecoderOptions { batch: 8, chunk: 1, ..Default::default() };
    let least = Decoder::device_bytes(&model, &least).unwrap() as f64;
    let sequence = Sequence::device_bytes(&model, CONTEXT, KvType::F32).unwrap() as f64;
    // Buffers for more tokens at once take an eighth of what is free, at most, and the pool leaves an eighth of the rest.
    let free = (sequences * sequence * 8.0 / 7.0 + least) * 8.0 / 7.0;
    (Model::device_bytes(&file).unwrap() + free as u64).to_string()
}

fn long(prompt: &str, max_tokens: usize) -> serde_json::Value {
    let mut body = tokens(prompt, max_tokens);
    body["stream"] = true.into();
    body
}

/// A request that runs: its first token is there.
fn running(server: &Server, max_tokens: usize) -> Client {
    let mut client = server.connect();
    client.post("/v1/completions", &long("Hi", max_tokens));
    assert_eq!(client.head().0, 200);
    assert!(!client.chunk().is_empty());
    client
}

/// Sixty clients that leave cost the next one next to nothing.
#[test]
fn who_leaves_takes_the_work_along() {
    let server = Server::start(&["--batch", "2"]);
    let clients: Vec<Client> = (0..60)
        .map(|i| {
            let mut client = server.connect();
            let mut body = long(&format!("Client {i}"), CONTEXT);
            body["stream"] = (i % 2 == 0).into();
            client.post("/v1/completions", &body);
            client
        })
        .collect();
    server.until("requests_queued", |queued| queued >= 50.0);
    drop(clients);
    assert!(!server.post("/v1/completions", &tokens("Hi", 3)).text().is_empty());
    assert_eq!(server.metric("requests_ended_total"), 61.0);
    let generated = server.metric("generated_tokens_total");
    assert!(generated < 60.0 * CONTEXT as f64 / 10.0, "{generated} tokens for nobody");
}

/// The same for a client that waits for a whole answer, which nothing is written to.
#[test]
fn who_leaves_while_nothing_is_written() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.post("/v1/completions", &tokens("Hi", CONTEXT));
    server.until("sequences", |running| running == 1.0);
    drop(client);
    server.until("sequences", |running| running == 0.0);
    let text = String::from_utf8(server.get("/metrics").body).unwrap();
    assert!(text.contains("warpsmith_requests_ended_total{reason=\"left\"} 1"), "{text}");
}

#[test]
fn a_full_queue_is_told() {
    let server = Server::start(&["--batch", "1", "--queue", "2"]);
    let first = running(&server, CONTEXT);
    let mut waiting = [server.connect(), server.connect()];
    for client in &mut waiting {
        client.post("/v1/completions", &tokens("Hi", 2));
    }
    server.until("requests_queued", |queued| queued == 2.0);
    let answer = server.post("/v1/completions", &tokens("Hi", 2));
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("1")), "{answer:?}");
    let error = &answer.json()["error"];
    assert_eq!((&error["type"], &error["code"]), (&json!("rate_limit_error"), &json!("queue_full")));
    drop(first);
    for client in &mut waiting {
        assert!(!client.answer().text().is_empty());
    }
    assert!(!server.post("/v1/completions", &tokens("Hi", 2)).text().is_empty());
}

/// Device memory for two sequences, and three that want one.
#[test]
fn who_finds_no_memory_waits() {
    let server = Server::of(&tiny(), &["--kv", "f32"], &[("WARPSMITH_MEMORY", &memory_for(2.4))]);
    let mut clients: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.post("/v1/completions", &long("Hi", CONTEXT));
    }
    server.until("requests_queued", |queued| queued >= 1.0);
    server.until("generated_tokens_total", |tokens| tokens > CONTEXT as f64 / 4.0);
    assert_eq!((server.metric("sequences"), server.metric("requests_queued")), (2.0, 1.0));
    let answers: Vec<_> = clients.iter_mut().map(|c| c.answer().events()).collect();
    assert!(answers.iter().all(|events| events.len() > CONTEXT / 4), "{answers:?}");
    let same = |events: &[serde_json::Value]| events.iter().map(|e| e["choices"].clone()).collect::<Vec<_>>();
    assert!(answers.iter().all(|events| same(events) == same(&answers[0])));
    assert!(server.metric("requests_set_aside_total") >= 1.0);
}

/// What can never fit is told at once, and who asks for less is served.
#[test]
fn what_never_fits_is_refused() {
    let server = Server::of(&tiny(), &["--kv", "f32"], &[("WARPSMITH_MEMORY", &memory_for(0.5))]);
    let answer = server.post("/v1/completions", &tokens("Hi", CONTEXT));
    let error = &answer.json()["error"];
    assert_eq!((answer.status, &error["code"]), (507, &json!("insufficient_memory")), "{error}");
    assert!(error["message"].as_str().unwrap().contains("512 positions"), "{error}");
    assert!(!server.post("/v1/completions", &tokens("Hi", 8)).text().is_empty());
}

/// A request that fails in the engine fails alone.
#[test]
fn a_failure_is_of_one_request() {
    // With activations of the range of f32, the last norm multiplies by so much that `Z`, whose embedding is far larger than others, becomes infinite there, and its
    // logits the differences of infinities.
    let file = Gguf::open(tiny()).unwrap();
    let mut bytes = std::fs::read(tiny()).unwrap();
    let place = |name: &str| {
        let tensor = file.tensors().iter().find(|t| t.name == name).unwrap();
        tensor.offset as usize
    };
    let hidden = 256;
    let row = place("token_embd.weight") + usize::from(b'Z') * hidden * 2;
    bytes[row..row + hidden * 2].copy_from_slice(&0x7bffu16.to_le_bytes().repeat(hidden));
    let norm = place("output_norm.weight");
    for weight in bytes[norm..norm + hidden * 4].chunks_exact_mut(4) {
        let value = f32::from_le_bytes(weight.try_into().unwrap());
        weight.copy_from_slice(&(value * 1e34).to_le_bytes());
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();

    let server = Server::of(&path, &["--activations", "exact"], &[]);
    // It does not come to a `Z` of its own by then.
    let mut other = running(&server, 200);
    let answer = server.post("/v1/completions", &tokens("zZ", 4));
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (500, &json!("engine_error")), "{answer:?}");
    let mut rest = String::new();
    loop {
        match other.chunk() {
            chunk if chunk.is_empty() => break,
            chunk => rest += &String::from_utf8(chunk).unwrap(),
        }
    }
    assert!(rest.ends_with("data: [DONE]\n\n") && !rest.contains("error"), "{rest}");
    assert!(!server.post("/v1/completions", &tokens("Hi", 4)).text().is_empty());
}
