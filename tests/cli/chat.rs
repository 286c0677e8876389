//! `warpsmith chat`, line by line.

use super::*;

fn chat(args: &[&str], input: &str) -> Output {
    use std::io::Write;
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpsmith"));
    command.arg("chat").args(args).current_dir(ROOT);
    command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/warpsmith-2m-q8_0.gguf");

/// Several turns: each feeds what is new, and gives what a conversation that is fed anew gives.
#[test]
fn a_chat_keeps_what_was_said_in_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let template = dir.path().join("template.jinja");
    let source = "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";
    std::fs::write(&template, source).unwrap();
    let args =
        ["--model", SHIPPED, "--template", template.to_str().unwrap(), "-n", "6", "--json", "--system", "Be brief."];
    let turns = |input: &str| -> Vec<Value> {
        let output = chat(&args, input);
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let two = turns("The man said\n\nAnd he went\n");
    assert_eq!(two.len(), 2, "empty lines say nothing");
    for turn in &two {
        assert_eq!((turn["tokens_generated"].as_array().unwrap().len(), &turn["ended_by"]), (6, &"count".into()));
    }
    let of = |turn: &Value, key: &str| turn[key].as_u64().unwrap();
    assert_eq!(of(&two[0], "cached"), 0);
    // All of the first turn is there, but perhaps for the last of its tokens, which become others beside what follows.
    let fed = two[0]["prompt"]["tokens"].as_u64().unwrap();
    assert!(of(&two[1], "cached") + 2 > fed, "{two:?}");
    let prompt = two[1]["prompt"]["tokens"].as_u64().unwrap();
    assert!(prompt < fed + 12, "only what is new is fed: {two:?}");
    // After a reset the first message gives the first reply again.
    let again = turns("The man said\nAnd he went\n/reset\nThe man said\n");
    assert_eq!(again.len(), 3);
    assert_eq!(again[2]["text"], again[0]["text"]);
    assert_eq!((&again[1]["text"], &again[0]["text"]), (&two[1]["text"], &two[0]["text"]));

    // Text streams, and closes with the rates.
    let text = chat(&args.iter().copied().filter(|a| *a != "--json").collect::<Vec<_>>(), "The man said\n");
    assert!(stdout(&text).contains(two[0]["text"].as_str().unwrap().trim()), "{}", stdout(&text));
    assert!(stdout(&text).contains("1 turns:"), "{}", stdout(&text));
    // What does not fit is told, with what to do.
    let full =
        chat(&[&args[..], &["--context", "16"]].concat(), "The man said that it was not so, and the people heard it\n");
    assert_eq!(full.status.code(), Some(3));
    assert!(stderr(&full).contains("--context") && stderr(&full).contains("/reset"), "{}", stderr(&full));
}

#[test]
fn a_model_without_a_chat_template_says_so() {
    let output = chat(&["--model", SHIPPED], "Hi\n");
    assert_eq!(output.status.code(), Some(3));
    for part in ["tokenizer.chat_template", "--template"] {
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
    }
    let bad = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(bad.path(), "{% for %}").unwrap();
    let output = chat(&["--model", SHIPPED, "--template", bad.path().to_str().unwrap()], "Hi\n");
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("line 1"), "{}", stderr(&output));
}
