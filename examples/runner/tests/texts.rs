//! The texts that clients get: each what it would get alone, whole or streamed, however many at once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::{Value, json};
use support::{Server, tiny, with_keys};
use warpsmith_host::Device;
use warpsmith_host::decode::{DecoderOptions, Model, Sampling, SequenceOptions, Session, SessionOptions};
use warpsmith_host::model::ModelFile;
use warpsmith_host::tokenizer::{Special, Tokenizer};

/// What a session generates that has the model for itself.
fn alone(cases: &[(&str, usize, Sampling)], fast_prefill: bool) -> Vec<String> {
    let file = ModelFile::open(tiny()).unwrap();
    let tokenizer = Tokenizer::from_gguf(file.gguf()).unwrap();
    let model = Model::load(&Device::open(0).unwrap(), &file).unwrap();
    let text = |&(prompt, count, sampling): &(&str, usize, Sampling)| {
        let tokens = tokenizer.encode(prompt, Special::Text).unwrap();
        let sequence = SequenceOptions { sampling, ..Default::default() };
        let decoder = DecoderOptions { fast_prefill, ..Default::default() };
        let mut session = Session::new(&model, SessionOptions { sequence, decoder }).unwrap();
        let generated = session.generate(&tokens, count, |_| std::ops::ControlFlow::Continue(())).unwrap();
        let end = generated.iter().position(|t| tokenizer.is_eog(*t)).unwrap_or(generated.len());
        tokenizer.decode_continuation(&generated[..end])
    };
    cases.iter().map(text).collect()
}

fn streamed(events: &[Value]) -> String {
    events.iter().map(|e| e["choices"][0]["text"].as_str().unwrap()).collect()
}

#[test]
fn overlapping_requests_get_their_own_texts() {
    overlapping(6, &[]);
}

/// Prompts in tiles, cut as others leave room, get what they get as a whole.
#[test]
fn overlapping_prompts_in_tiles_get_their_own_texts() {
    overlapping(6, &["--fast-prefill"]);
}

/// Guesses that are verified change no text, and some of them are right.
#[test]
fn drafts_change_no_text() {
    let server = overlapping(40, &["--draft", "3"]);
    let [drafted, accepted] = ["drafted_tokens_total", "accepted_tokens_total"].map(|name| server.metric(name));
    assert!(accepted > 0.0 && drafted > accepted, "{accepted} of {drafted}");
}

/// What prompts have in common is computed once, and changes no text.
#[test]
fn prompts_that_begin_alike_are_fed_once() {
    let system = "You are asked about the meaning of it all, and answer. ".repeat(3);
    let prompts = ["One.", "Two.", "One."].map(|end| format!("{system}{end}"));
    let cases = prompts.each_ref().map(|p| (p.as_str(), 9, Sampling::default()));
    let alone = alone(&cases, false);
    let server = Server::start(&["--pool", "512"]);
    let mut reused = 0;
    for ((prompt, count, _), alone) in cases.iter().zip(&alone) {
        assert_eq!(&server.post("/v1/completions", &support::tokens(prompt, *count)).text(), alone, "{prompt}");
        let fed = server.metric("prompt_tokens_total") + server.metric("reused_tokens_total");
        reused += prompt.len();
        assert_eq!(fed, reused as f64);
    }
    // Whole pages of the second, and all but the last page of the third.
    let whole = |n: usize| (n / 16 * 16) as f64;
    assert_eq!(server.metric("reused_tokens_total"), whole(system.len()) + whole(prompts[2].len() - 1));
}

/// Five requests on three places, of `count` tokens and more.
fn overlapping(count: usize, more: &[&str]) -> Server {
    // The third prompt is fed in parts, while others are served.
    let long = "The third of them is long. ".repeat(9);
    let prompts = ["Hi, GPU!", "a", &long, "zz top", "one more than the batch"];
    let sampling =
        |i: usize| Sampling { temperature: if i.is_multiple_of(2) { 0.0 } else { 0.9 }, seed: 7, ..Default::default() };
    let cases: Vec<_> = prompts.iter().enumerate().map(|(i, p)| (*p, count + i, sampling(i))).collect();
    let alone = alone(&cases, more.contains(&"--fast-prefill"));
    let running = Server::start(&[&["--batch", "3", "--prefill", "50"], more].concat());
    let server = &running;
    std::thread::scope(|threads| {
        let clients: Vec<_> = cases
            .iter()
            .enumerate()
            .map(|(i, (prompt, count, s))| {
                let body = json!({
                    "prompt": prompt, "max_tokens": count, "temperature": s.temperature, "seed": s.seed,
                    "stream": i == 1 || i == 2,
                });
                threads.spawn(move || server.post("/v1/completions", &body))
            })
            .collect();
        for (i, client) in clients.into_iter().enumerate() {
            let answer = client.join().unwrap();
            let got = if i == 1 || i == 2 { streamed(&answer.events()) } else { answer.text() };
            assert_eq!(got, alone[i], "{:?}", prompts[i]);
        }
    });
    assert_eq!(server.metric("requests_ended_total"), 5.0);
    assert_eq!(server.metric("prompt_tokens_total"), prompts.iter().map(|p| p.len()).sum::<usize>() as f64);
    running
}

/// A client that waits for the end of a stream, on a connection that goes on.
#[test]
fn streams_end_on_connections_that_stay_open() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let mut texts = Vec::new();
    for stream in [true, false, true] {
        let mut body = support::tokens("Hi, GPU!", 5);
        body["stream"] = stream.into();
        client.post("/v1/completions", &body);
        let answer = client.answer();
        texts.push(if stream { streamed(&answer.events()) } else { answer.text() });
    }
    assert!(!texts[0].is_empty() && texts[0] == texts[1] && texts[1] == texts[2], "{texts:?}");
}

#[test]
fn a_text_ends_before_a_stop_text() {
    let server = Server::start(&[]);
    let whole = server.post("/v1/completions", &support::tokens("Hi, GPU!", 60)).text();
    let letters: Vec<char> = whole.chars().collect();
    // Two characters from the middle, that may come in pieces.
    let stop: String = letters[letters.len() / 2..][..2].iter().collect();
    let want = &whole[..whole.find(&stop).unwrap()];
    for stream in [false, true] {
        let body = json!({
            "prompt": "Hi, GPU!", "max_tokens": 60, "stop": ["never said", stop], "stream": stream,
        });
        let answer = server.post("/v1/completions", &body);
        let (text, reason) = if stream {
            let events = answer.events();
            (streamed(&events), events.last().unwrap()["choices"][0]["finish_reason"].clone())
        } else {
            let generated = answer.json()["usage"]["completion_tokens"].as_u64().unwrap();
            assert!(generated < 60, "{generated} tokens: the engine went on");
            (answer.text(), answer.json()["choices"][0]["finish_reason"].clone())
        };
        assert_eq!((text.as_str(), reason.as_str()), (want, Some("stop")));
    }
}

/// The end of a turn is another token than the end of a text.
#[test]
fn every_token_that_ends_a_reply_ends_it() {
    let file = ModelFile::open(tiny()).unwrap();
    let tokenizer = Tokenizer::from_gguf(file.gguf()).unwrap();
    let model = Model::load(&Device::open(0).unwrap(), &file).unwrap();
    let mut session = Session::new(&model, SessionOptions::default()).unwrap();
    let prompt = tokenizer.encode("Hi, GPU!", Special::Text).unwrap();
    let generated = session.generate(&prompt, 12, |_| std::ops::ControlFlow::Continue(())).unwrap();
    let (at, &end) = generated.iter().enumerate().skip(3).find(|(i, t)| !generated[..*i].contains(t)).unwrap();
    assert_ne!(Some(end), tokenizer.eos());

    let folder = tempfile::tempdir().unwrap();
    let path = with_keys(folder.path(), &[], &[("tokenizer.ggml.eot_token_id", end)]);
    let server = Server::of(&path, &[], &[]);
    let answer = server.post("/v1/completions", &support::tokens("Hi, GPU!", 12)).json();
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!(answer["usage"]["completion_tokens"], at);
}
