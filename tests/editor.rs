//! rust-analyzer, without any settings, sees the bodies of kernels: errors, hover, definitions and completion in the templates
//! of `warpsmith new`.
//!
//! It takes rust-analyzer (`rustup component add rust-analyzer`). Where it is missing the test says so; in CI that is a failure.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests are not seen as tests

use std::io::{BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use std::{env, fs};

use serde_json::{Value, json};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A language server, spoken to as an editor does.
struct Server {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    requests: u64,
    root: PathBuf,
}

impl Server {
    fn start(root: &Path) -> Server {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("editor-target");
        let mut child = Command::new("rust-analyzer")
            .current_dir(root)
            .env("CARGO_TARGET_DIR", target)
            // The toolchain that runs this test: the project lies outside its folder.
            .env("RUSTUP_TOOLCHAIN", env::var("RUSTUP_TOOLCHAIN").unwrap_or_default())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let to = child.stdin.take().unwrap();
        let mut pipe = BufReader::new(child.stdout.take().unwrap());
        let (send, from) = channel();
        std::thread::spawn(move || while read(&mut pipe).is_some_and(|message| send.send(message).is_ok()) {});
        let mut server = Server { child, to, from, requests: 0, root: root.to_owned() };
        // What every editor says of itself, and no option of rust-analyzer.
        let capabilities = json!({
            "experimental": { "serverStatusNotification": true },
            "textDocument": { "diagnostic": {} },
        });
        server.request(
            "initialize",
            json!({ "processId": null, "rootUri": server.uri(""), "capabilities": capabilities }),
        );
        server.say(json!({ "method": "initialized", "params": {} }));
        while server.next()["params"]["quiescent"] != true {}
        server
    }

    fn uri(&self, file: &str) -> String {
        format!("file://{}", self.root.join(file).display())
    }

    fn say(&mut self, mut message: Value) {
        message["jsonrpc"] = "2.0".into();
        let body = message.to_string();
        write!(self.to, "Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        self.to.flush().unwrap();
    }

    /// The next message; what the server asks of an editor is answered with nothing.
    fn next(&mut self) -> Value {
        let message = self.from.recv_timeout(Duration::from_secs(300)).unwrap();
        if message.get("method").is_some() && message.get("id").is_some() {
            self.say(json!({ "id": message["id"], "result": null }));
        }
        message
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        self.requests += 1;
        let id = self.requests;
        self.say(json!({ "id": id, "method": method, "params": params }));
        loop {
            let message = self.next();
            if message.get("method").is_none() && message["id"] == id {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
        }
    }

    fn open(&mut self, file: &str, version: u32, text: &str) {
        let uri = self.uri(file);
        self.say(match version {
            1 => json!({ "method": "textDocument/didOpen", "params": { "textDocument":
                { "uri": uri, "languageId": "rust", "version": 1, "text": text } } }),
            _ => json!({ "method": "textDocument/didChange", "params": { "textDocument":
                { "uri": uri, "version": version }, "contentChanges": [{ "text": text }] } }),
        });
    }

    /// Codes and places of what is underlined.
    fn diagnostics(&mut self, file: &str) -> Vec<(String, u64)> {
        let uri = self.uri(file);
        let report = self.request("textDocument/diagnostic", json!({ "textDocument": { "uri": uri } }));
        let place = |d: &Value| {
            (d["code"].as_str().unwrap_or_default().to_owned(), d["range"]["start"]["line"].as_u64().unwrap() + 1)
        };
        report["items"].as_array().unwrap().iter().map(place).collect()
    }

    /// Asks about the place where `needle` first stands in `text`, `behind` characters on.
    fn at(&mut self, method: &str, file: &str, text: &str, needle: &str, behind: usize) -> Value {
        let found = text.find(needle).unwrap_or_else(|| panic!("{needle:?} in {text}")) + behind;
        let before = &text[..found];
        let line = before.matches('\n').count();
        let character = found - before.rfind('\n').map_or(0, |newline| newline + 1);
        let uri = self.uri(file);
        self.request(
            method,
            json!({ "textDocument": { "uri": uri }, "position": { "line": line, "character": character } }),
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One message, or nothing at the end.
fn read(pipe: &mut impl std::io::BufRead) -> Option<Value> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if pipe.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse().ok()?,
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    pipe.read_exact(&mut body).ok()?;
    serde_json::from_slice(&body).ok()
}

/// Whether rust-analyzer can be started.
fn found() -> bool {
    let found = Command::new("rust-analyzer").arg("--version").output().is_ok_and(|o| o.status.success());
    assert!(found || env::var_os("CI").is_none(), "no rust-analyzer: `rustup component add rust-analyzer`");
    found
}

/// The kernels of every template, as a crate of its own.
fn project(dir: &Path) {
    let templates = Path::new(ROOT).join("templates");
    let src = dir.join("src");
    fs::create_dir_all(&src).unwrap();
    let mut modules = fs::read_to_string(templates.join("elementwise/lib.rs")).unwrap().replace("pub mod saxpy;", "");
    for (template, kernel) in [("elementwise", "saxpy"), ("reduction", "sum"), ("gemv", "gemv"), ("matmul", "matmul")] {
        let file = format!("{kernel}.rs");
        fs::copy(templates.join(template).join(&file), src.join(&file)).unwrap();
        modules += &format!("pub mod {kernel};\n");
    }
    fs::write(src.join("lib.rs"), modules).unwrap();
    let manifest = fs::read_to_string(templates.join("common/kernels.toml.in")).unwrap();
    let device = format!("{{ path = {:?} }}", Path::new(ROOT).join("device"));
    fs::write(dir.join("Cargo.toml"), manifest.replace("@DEVICE@", &device) + "\n[workspace]\n").unwrap();
}

#[test]
fn kernels_are_visible_to_rust_analyzer() {
    if !found() {
        eprintln!("skipped: no rust-analyzer; `rustup component add rust-analyzer` brings it");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    project(&root);
    let mut server = Server::start(&root);

    // Nothing is underlined or grey in what ships.
    for kernel in ["saxpy", "sum", "gemv", "matmul"] {
        let file = format!("src/{kernel}.rs");
        server.open(&file, 1, &fs::read_to_string(root.join(&file)).unwrap());
        assert_eq!(server.diagnostics(&file), [], "{file}");
    }

    let file = "src/saxpy.rs";
    let good = fs::read_to_string(root.join(file)).unwrap();
    let hover = server.at("textDocument/hover", file, &good, "x.at(i)", 2);
    let text = hover["contents"]["value"].as_str().unwrap();
    assert!(text.contains("pub unsafe fn at(self, i: usize) -> T") && text.contains("T = f32"), "{text}");
    let definition = server.at("textDocument/definition", file, &good, "global_x", 1);
    assert!(definition.to_string().contains("device/src/thread.rs"), "{definition}");
    let definition = server.at("textDocument/definition", file, &good, "fma(a", 1);
    assert!(definition.to_string().contains("device/src/math"), "{definition}");

    // Completion behind a dot that was just written.
    let typing = good.replace("x.at(i)", "x.");
    server.open(file, 2, &typing);
    let completion = server.at("textDocument/completion", file, &typing, "a, x.", 5);
    let items = completion.get("items").unwrap_or(&completion).as_array().unwrap();
    let labels: Vec<&str> = items.iter().filter_map(|item| item["label"].as_str()).collect();
    for expected in ["at", "load4", "ld_nc"] {
        assert!(labels.iter().any(|label| label.starts_with(expected)), "{expected} in {labels:?}");
    }

    // An argument too many and a number that is no index, in the line where they stand.
    let line = good[..good.find("x.at(i)").unwrap()].matches('\n').count() as u64 + 1;
    server.open(file, 3, &good.replace("x.at(i)", "x.at(i, 2)"));
    assert_eq!(server.diagnostics(file), [("E0107".to_owned(), line)]);
    server.open(file, 4, &good.replace("x.at(i)", "x.at(1.0f32)"));
    assert_eq!(server.diagnostics(file), [("E0308".to_owned(), line)]);
}
