//! Clients that mean harm: what they can hold is bounded, and the next client is served.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;
use support::{Client, Server, tokens};

#[track_caller]
fn serves(server: &Server) {
    assert_eq!(server.get("/health").status, 200);
    assert!(!server.post("/v1/completions", &tokens("Hi", 2)).text().is_empty());
}

const JSON: &str = "Host: a\r\nContent-Type: application/json";

#[test]
fn lengths_that_no_memory_has() {
    let server = Server::start(&["--body-timeout", "0.3"]);
    // A length that nobody reads, on a route that has no body.
    for length in ["99999999999999", "18446744073709551613"] {
        let mut client = server.connect();
        client.send(&format!("GET /health HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"));
        assert_eq!(client.answer().status, 200);
        // Refused before any of it is read, and although none of it comes.
        let mut client = server.connect();
        client.send(&format!("POST /v1/completions HTTP/1.1\r\n{JSON}\r\nContent-Length: {length}\r\n\r\nx"));
        assert_eq!(client.answer().status, 413);
    }
    for length in ["18446744073709551615", "18446744073709551616", "-1", "1, 2", "x"] {
        let mut client = server.connect();
        client.send(&format!("POST /v1/completions HTTP/1.1\r\n{JSON}\r\nContent-Length: {length}\r\n\r\nx"));
        let (status, _) = client.head();
        assert!(status == 400 || status == 431, "{length}: {status}");
    }
    for chunk in ["ffffffffffffffff", "fffffffffffffffe", "7fffffffffffffff", "10000000000000000", "-1", "x"] {
        let mut client = server.connect();
        client.send(&format!(
            "POST /v1/completions HTTP/1.1\r\n{JSON}\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}\r\nabc\r\n0\r\n\r\n"
        ));
        let (status, _) = client.head();
        assert!(status == 400 || status == 408, "{chunk}: {status}");
    }
    serves(&server);
}

#[test]
fn bodies_have_a_size_and_a_time() {
    let server = Server::start(&["--body-timeout", "0.3", "--max-body", "1000"]);
    // As chunks, which do not say how many will come.
    let mut client = server.connect();
    let chunk = format!("{:x}\r\n{}\r\n", 600, " ".repeat(600));
    client
        .send(&format!("POST /v1/completions HTTP/1.1\r\n{JSON}\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}{chunk}"));
    assert_eq!(client.answer().status, 413);
    let mut client = server.connect();
    client.send(&format!("POST /v1/completions HTTP/1.1\r\n{JSON}\r\nContent-Length: 100\r\n\r\n{{"));
    let answer = client.answer();
    assert!(
        answer.status == 408 && answer.json()["error"]["message"].as_str().unwrap().contains("0.3 s"),
        "{answer:?}"
    );
    assert!(client.is_closed());
    // One that ends before it is complete.
    let mut client = server.connect();
    client.send(&format!("POST /v1/completions HTTP/1.1\r\n{JSON}\r\nContent-Length: 100\r\n\r\n{{"));
    client.0.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    client.0.read_to_end(&mut rest).unwrap();
    // Deeper than a parser has stack.
    let mut client = server.connect();
    client.send(&format!("POST /v1/completions HTTP/1.1\r\n{JSON}\r\nContent-Length: 900\r\n\r\n{}", "[".repeat(900)));
    assert_eq!(client.answer().status, 400);
    serves(&server);
}

#[test]
fn a_header_has_a_size() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.send(&format!("GET /health HTTP/1.1\r\nHost: a\r\nX-Long: {}", "a".repeat(17 << 10)));
    assert_eq!(client.head().0, 431);
    serves(&server);
}

/// 400 MB of header are not kept.
#[test]
#[cfg(target_os = "linux")]
fn a_header_is_not_kept_beyond_its_size() {
    let server = Server::start(&[]);
    serves(&server);
    let before = server.process("VmHWM");
    let mut client = server.connect();
    client.send("GET /health HTTP/1.1\r\nHost: a\r\nX-Long: ");
    let part = vec![b'a'; 1 << 20];
    let mut sent = 0;
    // Until the server does not listen any more.
    while sent < 400 && client.0.get_mut().write_all(&part).is_ok() {
        sent += 1;
    }
    serves(&server);
    let grown = server.process("VmHWM") - before;
    assert!(grown < 32 << 10, "{grown} KiB after {sent} MiB of header");
}

fn half_open(server: &Server, count: usize) -> Vec<Client> {
    let begin = |_| {
        let mut client = server.connect();
        client.send("GET /health HT");
        client
    };
    (0..count).map(begin).collect()
}

/// Connections cost no threads, and end when no header comes.
#[test]
#[cfg(target_os = "linux")]
fn a_thousand_half_open_connections() {
    let server = Server::start(&["--header-timeout", "8", "--max-connections", "2000"]);
    serves(&server);
    let before = server.process("Threads");
    let mut clients = half_open(&server, 1000);
    server.until("connections", |open| open >= 1000.0);
    let threads = server.process("Threads");
    assert!(threads <= before + 1, "{before} threads before, {threads} now");
    serves(&server);
    assert!(clients.iter_mut().all(Client::is_closed));
    // The ones that say nothing at all, and those that said something before.
    let mut silent = server.connect();
    let mut idle = server.connect();
    idle.send("GET /health HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(idle.answer().status, 200);
    assert!(silent.is_closed() && idle.is_closed());
}

/// Who comes when all places are taken waits until one is free, and holds none.
#[test]
fn connections_are_as_many_as_may_be() {
    let server = Server::start(&["--header-timeout", "2", "--max-connections", "3"]);
    let _clients = half_open(&server, 12);
    let open = server.metric("connections");
    assert!(open <= 3.0, "{open} connections");
    serves(&server);
}

/// A client that asks for much and takes nothing of it is left.
#[test]
fn a_client_that_does_not_read() {
    let server = Server::start(&["--write-timeout", "0.3"]);
    let mut client = server.connect();
    let stream: TcpStream = client.0.get_ref().try_clone().unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    // Answers to be, until neither side takes any more.
    let request = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1000);
    while client.0.get_mut().write_all(request.as_bytes()).is_ok() {}
    server.until("connections", |open| open == 1.0);
}

/// What goes through the tokenizer is bounded, and takes no time that grows with the square of it.
#[test]
fn long_messages_without_spaces() {
    let server = Server::start(&[]);
    for text in ["a", " ", "\n", "9", "<|im_end|>", "'", "é"] {
        let prompt = text.repeat((1 << 18) / text.len());
        let answer = server.post("/v1/completions", &json!({ "prompt": prompt, "max_tokens": 1 }));
        assert_eq!(answer.status, 400, "{text:?}: {answer:?}");
    }
    serves(&server);
}
