//! A server as its users start it, and a client that sends what it is told to, byte for byte.
#![allow(dead_code)] // not every test uses all of it

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// For what has to happen, however busy the machine is.
pub const LONG: Duration = Duration::from_secs(120);

/// 256 tokens, one a byte, and a context of 512.
pub fn tiny() -> PathBuf {
    data("tiny-qwen3-f16.gguf")
}

/// A file of the tests' models.
pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(name)
}

pub struct Server {
    child: Child,
    pub address: SocketAddr,
    errors: Mutex<Receiver<String>>,
    said: String,
}

impl Server {
    pub fn start(options: &[&str]) -> Server {
        Server::of(&tiny(), options, &[])
    }

    pub fn of(model: &Path, options: &[&str], variables: &[(&str, &str)]) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpsmith-runner"));
        command.arg("--model").arg(model).args(["--listen", "127.0.0.1:0", "--name", "tiny"]).args(options);
        command.envs(variables.iter().copied()).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, errors) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut server =
            Server { child, address: ([127, 0, 0, 1], 0).into(), errors: Mutex::new(errors), said: String::new() };
        while server.address.port() == 0 {
            let line =
                server.errors.get_mut().unwrap().recv_timeout(LONG).unwrap_or_else(|e| panic!("{e}: {}", server.said));
            if let Some(rest) = line.strip_prefix("serving http://") {
                server.address = rest.trim_end_matches("/v1").parse().unwrap();
            }
            server.said += &format!("{line}\n");
        }
        server
    }

    /// Whatever becomes of it.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    /// A field of `/proc/PID/status`.
    pub fn process(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|l| l.strip_prefix(field)?.strip_prefix(':')).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    pub fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap().success());
    }

    /// Waits for its end; gives what it said on standard error, too.
    pub fn end(mut self) -> (ExitStatus, String) {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                self.said.extend(self.errors.get_mut().unwrap().iter().map(|l| l + "\n"));
                return (status, std::mem::take(&mut self.said));
            }
            assert!(start.elapsed() < LONG, "the server does not end: {}", self.said);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        Client(BufReader::new(stream))
    }

    pub fn get(&self, path: &str) -> Answer {
        let mut client = self.connect();
        client.send(&format!("GET {path} HTTP/1.1\r\nHost: here\r\n\r\n"));
        client.answer()
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        let mut client = self.connect();
        client.post(path, body);
        client.answer()
    }

    /// The sum of a metric's samples.
    pub fn metric(&self, name: &str) -> f64 {
        let text = String::from_utf8(self.get("/metrics").body).unwrap();
        let mut sum = 0.0;
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            if sample.split('{').next() == Some(&format!("warpsmith_{name}")) || sample == format!("warpsmith_{name}") {
                sum += value.parse::<f64>().unwrap();
            }
        }
        sum
    }

    /// Waits until a metric is what it should become.
    pub fn until(&self, name: &str, holds: impl Fn(f64) -> bool) {
        let start = Instant::now();
        loop {
            let value = self.metric(name);
            if holds(value) {
                return;
            }
            assert!(start.elapsed() < LONG, "{name} stays at {value}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The process that follows.
pub struct Follower(Child);

impl Follower {
    pub fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.0.id().to_string()]).status().unwrap().success());
    }

    pub fn kill(&mut self) {
        self.0.kill().unwrap();
    }

    pub fn end(mut self) -> (ExitStatus, String) {
        let start = Instant::now();
        while self.0.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < LONG, "the process does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut said = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.0.wait().unwrap(), said)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server, and the other process of it.
pub fn two(split: &str, options: &[&str]) -> (Server, Follower) {
    let address = warpsmith_host::collectives::World::free_address().unwrap();
    let place = |rank: u32| format!("--processes={rank}/2@{address}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpsmith-runner"));
    command.arg("--model").arg(tiny()).args(options).args(["--split", split, &place(1)]);
    let follower = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let server = Server::start(&[options, &["--split", split, &place(0)]].concat());
    (server, Follower(follower))
}

/// A connection that stays open.
pub struct Client(pub BufReader<TcpStream>);

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// The text of a completion.
    pub fn text(&self) -> String {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        self.json()["choices"][0]["text"].as_str().unwrap().to_owned()
    }

    /// The events of a stream, which ends as it should.
    pub fn events(&self) -> Vec<Value> {
        assert_eq!(self.header("content-type"), Some("text/event-stream"), "{self:?}");
        let body = String::from_utf8(self.body.clone()).unwrap();
        let mut events: Vec<&str> = body.split("\n\n").filter_map(|e| e.strip_prefix("data: ")).collect();
        assert_eq!(events.pop(), Some("[DONE]"), "{body}");
        events.into_iter().map(|e| serde_json::from_str(e).unwrap()).collect()
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let fields = head.lines().filter_map(|l| l.split_once(':'));
    fields.into_iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.trim())
}

impl Client {
    pub fn send(&mut self, bytes: &str) {
        self.0.get_mut().write_all(bytes.as_bytes()).unwrap();
    }

    pub fn post(&mut self, path: &str, body: &Value) {
        let body = body.to_string();
        let head = "Host: here\r\nContent-Type: application/json";
        self.send(&format!("POST {path} HTTP/1.1\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        assert!(line.ends_with("\r\n"), "the connection ended within {line:?}");
        line.truncate(line.len() - 2);
        line
    }

    pub fn head(&mut self) -> (u16, String) {
        let mut head = String::new();
        loop {
            match self.line() {
                line if line.is_empty() => break,
                line => head += &(line + "\n"),
            }
        }
        (head.split(' ').nth(1).unwrap().parse().unwrap(), head)
    }

    /// The next part of a body in chunks; empty at its end.
    pub fn chunk(&mut self) -> Vec<u8> {
        let length = usize::from_str_radix(&self.line(), 16).unwrap();
        let mut chunk = vec![0; length];
        self.0.read_exact(&mut chunk).unwrap();
        assert_eq!(self.line(), "");
        chunk
    }

    pub fn answer(&mut self) -> Answer {
        let (status, head) = self.head();
        let mut body = Vec::new();
        if let Some(length) = header(&head, "content-length") {
            body.resize(length.parse().unwrap(), 0);
            self.0.read_exact(&mut body).unwrap();
        } else {
            assert_eq!(header(&head, "transfer-encoding"), Some("chunked"), "{head}");
            let start = Instant::now();
            loop {
                match self.chunk() {
                    chunk if chunk.is_empty() => break,
                    chunk => body.extend(chunk),
                }
                // Comments keep a stream alive that does not end.
                assert!(start.elapsed() < LONG, "a stream without an end: {}", String::from_utf8_lossy(&body));
            }
        }
        Answer { status, head, body }
    }

    /// Whether the server closes the connection, having said nothing more.
    pub fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => rest.is_empty(),
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// A request for a text of so many tokens.
pub fn tokens(prompt: &str, max_tokens: usize) -> Value {
    json!({ "prompt": prompt, "max_tokens": max_tokens })
}

/// A copy of the tiny model with further keys, in `folder`.
pub fn with_keys(folder: &Path, texts: &[(&str, &str)], numbers: &[(&str, u32)]) -> PathBuf {
    const STRING: u32 = 8;
    const U32: u32 = 4;
    let text = |s: &str| [&(s.len() as u64).to_le_bytes()[..], s.as_bytes()].concat();
    let mut keys = Vec::new();
    for (key, value) in texts {
        keys.extend([text(key), STRING.to_le_bytes().to_vec(), text(value)].concat());
    }
    for (key, value) in numbers {
        keys.extend([text(key), U32.to_le_bytes().to_vec(), value.to_le_bytes().to_vec()].concat());
    }
    // Tensors stay where they are modulo the alignment.
    let filler = [text("general.filler"), STRING.to_le_bytes().to_vec()].concat();
    let missing = (keys.len() + filler.len() + 8).next_multiple_of(32) - keys.len() - filler.len() - 8;
    keys.extend([filler, text(&"-".repeat(missing))].concat());
    let mut file = std::fs::read(tiny()).unwrap();
    let count = u64::from_le_bytes(file[16..24].try_into().unwrap()) + (texts.len() + numbers.len() + 1) as u64;
    file[16..24].copy_from_slice(&count.to_le_bytes());
    file.splice(24..24, keys);
    let path = folder.join("model.gguf");
    std::fs::write(&path, file).unwrap();
    path
}
