//! Commands over two processes: the first reads and prints, and has what one alone has; and a process that goes.

use super::*;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/warpsmith-2m-q8_0.gguf");
const SPLITS: [&str; 2] = ["shares", "stages"];

/// Two processes of a command, which differ in their place alone.
fn two(args: &[&str], split: &str) -> [Child; 2] {
    let address = warpsmith_host::collectives::World::free_address().unwrap();
    [0, 1].map(|rank| {
        let place = format!("--processes={rank}/2@{address}");
        of(&[args, &["--driver", "software", "--split", split, &place]].concat()).spawn().unwrap()
    })
}

fn of(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpsmith"));
    command.args(args).current_dir(ROOT);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What both have said, of which the first reads this.
fn ended(processes: [Child; 2], input: &str) -> [Output; 2] {
    let [mut first, other] = processes;
    first.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    [first, other].map(|process| process.wait_with_output().unwrap())
}

/// What the first prints; the other prints nothing.
fn told(processes: [Child; 2], input: &str) -> String {
    let [first, other] = ended(processes, input);
    assert!(first.status.success() && other.status.success(), "{}{}", stderr(&first), stderr(&other));
    assert_eq!(stdout(&other), "");
    stdout(&first)
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect()
}

#[test]
fn a_run_of_two_has_the_tokens_and_the_logits_of_one() {
    let folder = tempfile::tempdir().unwrap();
    let logits = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let run = ["run", "--model", MODEL, "--tokens", HI_GPU, "-n", "8", "--json", "--verify", "full"];
    let alone = logits("alone");
    json(&[&run[..], &["--driver", "software", "--dump-logits", &alone]].concat());
    // Over each other's memory where there are handles of it.
    let peers = ("shares", if cfg!(target_os = "linux") { "peers" } else { "auto" });
    for (split, transport) in SPLITS.map(|split| (split, "sockets")).into_iter().chain([peers]) {
        let dumped = logits(&format!("{split} {transport}"));
        let text = told(two(&[&run[..], &["--transport", transport, "--dump-logits", &dumped]].concat(), split), "");
        let run: Value = serde_json::from_str(&text).unwrap();
        let generated = run["tokens_generated"].as_array().unwrap();
        assert_eq!(generated.iter().map(|t| t.as_u64().unwrap()).collect::<Vec<_>>(), GREEDY, "{split}");
        assert_eq!((&run["engine"]["processes"], &run["reference"]["verdict"]), (&2.into(), &"pass".into()), "{split}");
        assert_eq!(run["reference"]["positions"], 15, "{split}");
        let [alone, own] = [&alone, &dumped].map(|path| floats(&std::fs::read(path).unwrap()));
        assert_eq!(alone.len(), own.len());
        // What is added up in another order is rounded otherwise.
        let largest = alone.iter().fold(0f32, |most, x| most.max(x.abs()));
        let off = alone.iter().zip(&own).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
        assert!(off < 1e-4 * largest && largest > 1.0, "{split}: {off:e} of {largest}");
    }
}

#[test]
fn a_chat_of_two_has_the_replies_of_one() {
    let folder = tempfile::tempdir().unwrap();
    let template = folder.path().join("template.jinja");
    std::fs::write(&template, "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}").unwrap();
    let chat = ["chat", "--model", SHIPPED, "--json", "-n", "6", "--temperature", "0.7", "--seed", "5"];
    let chat = [&chat[..], &["--template", template.to_str().unwrap()]].concat();
    let said = "The man said\n\nAnd he went\n/reset\nThe man said\n";
    let turns = |text: &str| -> Vec<Value> {
        let figures = |line| {
            let turn: Value = serde_json::from_str(line).unwrap();
            ["tokens_generated", "cached", "text", "ended_by"].map(|key| turn[key].clone()).into()
        };
        text.lines().map(figures).collect()
    };
    let mut alone = of(&[&chat[..], &["--driver", "software"]].concat()).spawn().unwrap();
    alone.stdin.take().unwrap().write_all(said.as_bytes()).unwrap();
    let alone = turns(&stdout(&alone.wait_with_output().unwrap()));
    assert_eq!(alone.len(), 3);
    for split in SPLITS {
        assert_eq!(turns(&told(two(&chat, split), said)), alone, "{split}");
    }
    // What one refuses, all end with: the reader with what was wrong, the others with that it has gone.
    let long = format!("{}\n", "The man said that it was not so. ".repeat(60));
    let [first, other] = ended(two(&[&chat[..], &["--context", "64"]].concat(), "shares"), &long);
    assert_eq!((first.status.code(), other.status.code()), (Some(3), Some(1)), "{}{}", stderr(&first), stderr(&other));
    assert!(
        stderr(&first).contains("/reset") && stderr(&other).contains("rank 1 has lost rank 0"),
        "{}",
        stderr(&other)
    );
}

#[test]
fn processes_whose_replies_would_end_at_other_places_are_told() {
    let template = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(template.path(), "{{ messages[0].content }}").unwrap();
    let address = warpsmith_host::collectives::World::free_address().unwrap();
    let start = |(rank, count)| {
        let place = format!("--processes={rank}/2@{address}");
        let template = template.path().to_str().unwrap();
        let chat = ["chat", "--model", SHIPPED, "--template", template, "--driver", "software", &place, "-n", count];
        of(&chat).spawn().unwrap()
    };
    for ended in ended([(0, "4"), (1, "5")].map(start), "Hi\n") {
        assert_eq!(ended.status.code(), Some(1));
        assert!(stderr(&ended).contains("rank 1 has 5 tokens of a reply"), "{}", stderr(&ended));
    }
}

/// Each of the two goes while the other waits: for the next message, or for the next turn.
#[test]
fn a_chat_whose_process_goes_ends_at_once() {
    let template = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(template.path(), "{{ messages[0].content }}").unwrap();
    let chat = ["chat", "--model", SHIPPED, "--json", "-n", "2", "--template", template.path().to_str().unwrap()];
    for gone in [1usize, 0] {
        let mut processes = two(&chat, "shares");
        let mut input = processes[0].stdin.take().unwrap();
        input.write_all(b"The man said\n").unwrap();
        let mut turn = String::new();
        BufReader::new(processes[0].stdout.as_mut().unwrap()).read_line(&mut turn).unwrap();
        assert!(turn.contains("tokens_generated"), "{turn}");
        processes[gone].kill().unwrap();
        let start = Instant::now();
        let left = 1 - gone;
        let mut processes = processes.map(Some);
        let output = processes[left].take().unwrap().wait_with_output().unwrap();
        processes[gone].take().unwrap().wait().unwrap();
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stderr(&output).contains(&format!("rank {left} has lost rank {gone}")), "{}", stderr(&output));
        drop(input);
    }
}

#[test]
fn two_are_timed_as_one_is() {
    let bench = ["bench-model", "--model", MODEL, "--json", "-p", "8", "-n", "2", "-b", "2", "-r", "1"];
    for split in SPLITS {
        let report: Value = serde_json::from_str(&told(two(&bench, split), "")).unwrap();
        assert_eq!(report["engine"]["processes"], 2, "{split}");
        let tests: Vec<&str> =
            report["tests"].as_array().unwrap().iter().map(|t| t["test"].as_str().unwrap()).collect();
        assert_eq!(tests, ["pp8", "tg2", "tg2 x 2"], "{split}");
    }
}

#[test]
fn a_process_that_does_not_know_who_it_is_is_told_what_is_missing() {
    let of = |more: &[&'static str]| [&["run", "--model", MODEL, "--tokens", "1"][..], more].concat();
    refused(&of(&["--processes=2/2@127.0.0.1:1"]), 2, &["RANK/RANKS@HOST:PORT", "--processes=2/2@127.0.0.1:1"]);
    refused(&of(&["--processes=0/2"]), 2, &["RANK/RANKS@HOST:PORT"]);
    refused(&of(&["--split", "stages"]), 2, &["--processes"]);
    refused(&of(&["--processes=0/2@127.0.0.1:1", "--devices", "0,1"]), 2, &["--devices"]);
    for command in ["run", "bench-model"] {
        let output = Command::new(env!("CARGO_BIN_EXE_warpsmith"))
            .args([command, "--model", MODEL, "--processes"])
            .env("RANK", "0")
            .env_remove("WORLD_SIZE")
            .output()
            .unwrap();
        let said = stderr(&output);
        assert!(output.status.code() == Some(2) && said.contains("WORLD_SIZE=(unset)"), "{said}");
    }
}
