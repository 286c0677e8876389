//! How the server ends: what runs is finished, in the time that there is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(unix)]

mod support;

use std::net::TcpStream;

use support::{Client, Server, tokens};

/// A stream of many tokens, of which the first is there.
fn running(server: &Server, max_tokens: usize) -> Client {
    let mut client = server.connect();
    let mut body = tokens("Hi", max_tokens);
    body["stream"] = true.into();
    client.post("/v1/completions", &body);
    assert_eq!(client.head().0, 200);
    assert!(!client.chunk().is_empty());
    client
}

fn rest(client: &mut Client) -> String {
    let mut text = String::new();
    loop {
        match client.chunk() {
            chunk if chunk.is_empty() => return text,
            chunk => text += &String::from_utf8(chunk).unwrap(),
        }
    }
}

#[test]
fn what_runs_and_waits_is_finished() {
    for signal in ["-TERM", "-INT"] {
        let server = Server::start(&["--batch", "1", "--shutdown-timeout", "100"]);
        let mut idle = server.connect();
        idle.send("GET /health HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(idle.answer().status, 200);
        let mut first = running(&server, 100);
        let mut waiting = server.connect();
        waiting.post("/v1/completions", &tokens("Hi", 3));
        server.until("requests_queued", |queued| queued == 1.0);
        server.signal(signal);
        // Connections that do nothing end, and new ones are refused.
        assert!(idle.is_closed());
        assert!(TcpStream::connect(server.address).is_err());
        assert!(rest(&mut first).ends_with("data: [DONE]\n\n"));
        assert!(!waiting.answer().text().is_empty());
        assert!(first.is_closed() && waiting.is_closed());
        let (status, said) = server.end();
        assert!(status.success() && said.contains("no new requests") && !said.contains("dropped"), "{status}: {said}");
    }
}

#[test]
fn what_takes_too_long_is_dropped() {
    let server = Server::start(&["--shutdown-timeout", "0.1"]);
    let _clients = [running(&server, 500), running(&server, 500), running(&server, 500)];
    server.signal("-TERM");
    let (status, said) = server.end();
    assert!(status.success() && said.contains("dropped"), "{status}: {said}");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let server = Server::start(&["--shutdown-timeout", "1000"]);
    let mut client = running(&server, 500);
    let _others = [running(&server, 500), running(&server, 500)];
    server.signal("-TERM");
    // The first has been seen when the listener is gone.
    while TcpStream::connect(server.address).is_ok() {}
    server.signal("-TERM");
    let (status, said) = server.end();
    assert_eq!(status.code(), Some(143), "{said}");
    assert!(said.contains("ended at once"), "{said}");
    let mut text = String::new();
    let _ = std::io::Read::read_to_string(&mut client.0, &mut text);
    assert!(!text.contains("[DONE]"));
}

#[test]
fn options_that_make_no_sense_are_refused() {
    for (options, part) in [
        (["--batch", "0"], "1..=1024"),
        (["--shutdown-timeout=-1", "-n1"], "0 to 86400"),
        (["--write-timeout", "1e99"], "0 to 86400"),
        (["--max-header", "100"], "8192"),
        (["--temperature", "nan"], "temperature"),
        (["--chat-template", "/nowhere"], "/nowhere"),
    ] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_warpsmith-runner"));
        let output = command.arg("--model").arg(support::tiny()).args(options).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(part), "{options:?}: {said}");
    }
}
