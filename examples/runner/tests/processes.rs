//! A server over two processes: clients get what they get of one, the other follows to the end, and whoever goes takes the other along.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(unix)]

mod support;

use std::process::{Command, Stdio};

use serde_json::{Value, json};
use support::{Client, Server, tiny, tokens, two};

/// Prompts that begin alike and others, drawn and not, with probabilities, at once; and one that leaves in between.
fn asked(server: &Server) -> Vec<Value> {
    let body = |prompt: &str, temperature: f64, logprobs: Option<u32>| json!({ "prompt": prompt, "max_tokens": 12, "temperature": temperature, "seed": 3, "logprobs": logprobs });
    let alike = "This begins as another one does, for more than a page of tokens, ";
    let bodies = [
        body(&format!("{alike}and ends here."), 0.0, Some(2)),
        body("Hi", 0.8, None),
        body("ab ab ab ab ab", 0.0, None),
        body(&format!("{alike}and here it goes on."), 0.9, Some(1)),
    ];
    let mut leaves = server.connect();
    let mut long = tokens("Who leaves", 400);
    long["stream"] = true.into();
    leaves.post("/v1/completions", &long);
    assert_eq!(leaves.head().0, 200);
    let mut clients: Vec<Client> = bodies.iter().map(|_| server.connect()).collect();
    clients.iter_mut().zip(&bodies).for_each(|(client, body)| client.post("/v1/completions", body));
    drop(leaves);
    let mut answers: Vec<Value> =
        clients.iter_mut().map(|client| client.answer().json()["choices"][0].clone()).collect();
    // The pages of the first are kept.
    answers.push(server.post("/v1/completions", &bodies[0]).json()["choices"][0].clone());
    answers
}

/// How far probabilities are from those of one process, which are added up in another order.
fn off(own: &Value, alone: &Value) -> f64 {
    let of = |answer: &Value| -> Vec<f64> {
        let all = answer["logprobs"]["token_logprobs"].as_array();
        all.map_or(Vec::new(), |all| all.iter().map(|p| p.as_f64().unwrap()).collect())
    };
    let (own, alone) = (of(own), of(alone));
    assert_eq!(own.len(), alone.len());
    own.iter().zip(alone).map(|(own, alone)| (own - alone).abs()).fold(0.0, f64::max)
}

#[test]
fn clients_of_two_get_what_those_of_one_get_and_both_end_when_told() {
    let options = ["--batch", "3", "--draft", "3", "--prefill", "7"];
    let alone = asked(&Server::start(&options));
    for answer in &alone {
        assert!(answer["text"].is_string(), "{answer}");
    }
    for split in ["shares", "stages"] {
        let (server, follower) = two(split, &options);
        let of_two = asked(&server);
        for (own, alone) in of_two.iter().zip(&alone) {
            assert_eq!(own["text"], alone["text"], "{split}");
            assert!(off(own, alone) < 1e-3, "{split}: {own} instead of {alone}");
        }
        assert!(server.metric("reused_tokens_total") > 0.0, "{split}");
        // As whoever started them tells both.
        follower.signal("-TERM");
        server.signal("-TERM");
        let (status, said) = server.end();
        assert!(status.success(), "{split}: {said}");
        let (status, said) = follower.end();
        assert!(status.success() && said.contains("rank 0 says when this ends"), "{split}: {said}");
    }
}

#[test]
fn prompts_of_the_command_line_run_over_two_as_well() {
    let address = warpsmith_host::collectives::World::free_address().unwrap();
    let start = |place: Option<u32>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpsmith-runner"));
        command.arg("--model").arg(tiny()).args(["-n", "5", "One", "Another"]);
        command.args(place.map(|rank| format!("--processes={rank}/2@{address}")));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let processes = [None, Some(0), Some(1)].map(start);
    let [alone, first, other] = processes.map(|process| process.wait_with_output().unwrap());
    for output in [&alone, &first, &other] {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(!alone.stdout.is_empty() && first.stdout == alone.stdout && other.stdout.is_empty());
}

/// Nobody asks for anything: it is noticed all the same.
#[test]
fn a_server_without_its_other_process_ends() {
    let (server, mut follower) = two("shares", &[]);
    assert!(!server.post("/v1/completions", &tokens("Hi", 2)).text().is_empty());
    follower.kill();
    let (status, said) = server.end();
    assert!(!status.success() && said.contains("rank 0 has lost rank 1"), "{status}: {said}");
}

#[test]
fn the_other_process_ends_without_the_server() {
    let (mut server, follower) = two("stages", &[]);
    let mut body = tokens("Hi", 400);
    body["stream"] = true.into();
    let mut client = server.connect();
    client.post("/v1/completions", &body);
    assert_eq!(client.head().0, 200);
    server.kill();
    let (status, said) = follower.end();
    assert!(!status.success() && said.contains("rank 1 has lost rank 0"), "{status}: {said}");
}
