//! The tables of docs/models.md against what the loader says.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::*;
use gpu_kernels::format::Format;
use gpu_kernels::gemv::Activations;
use warpsmith_host::gguf::{Gguf, GgufWriter};
use warpsmith_host::model::ModelFile;
use warpsmith_host::tokenizer::Tokenizer;

fn chapter() -> String {
    std::fs::read_to_string(root().join("docs/models.md")).unwrap()
}

/// A model of that architecture, of the shape of the nearest one that there is.
fn writer(architecture: &str) -> GgufWriter {
    let known = ["qwen3", "qwen2", "qwen35"]
        .into_iter()
        .chain(families::ALL.map(|(name, _)| name))
        .chain(layer_normed::KINDS.map(|(name, _)| name))
        .chain(mixtures::ALL)
        .find(|a| *a == architecture)
        .unwrap_or("llama");
    let experts = mixtures::ALL.contains(&known).then_some((8, 2));
    let formats = vec![Format::F16];
    let model = Synthetic { architecture: known, layers: 1, head_dim: 32, experts, formats, ..Default::default() };
    let mut w = model.writer();
    w.key("general.architecture", architecture);
    w
}

fn opened(w: &GgufWriter) -> Result<(), String> {
    let gguf = Gguf::from_bytes(w.to_bytes()).map_err(|e| e.to_string())?;
    let file = ModelFile::from_gguf(gguf).map_err(|e| e.to_string())?;
    file.check_kernels().map_err(|e| e.to_string())
}

#[test]
fn every_row_of_the_table_is_what_the_loader_says() {
    let (mut loaded, mut refused) = (0, 0);
    for row in chapter().lines().filter(|l| l.contains("| loads |") || l.contains("| refused |")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [_, in_file, verdict, says] = cells[..] else { panic!("{row}") };
        // The architecture, and keys as `name = number`.
        let mut said = in_file.split(", ").map(|part| part.trim_matches('`'));
        let mut w = writer(said.next().unwrap());
        for key in said {
            let (name, number) = key.split_once(" = ").unwrap();
            let mut n: u32 = number.parse().unwrap();
            if name.ends_with("key_length") {
                // A model of that size throughout: the kernels are what is missing.
                let model = Synthetic {
                    architecture: "llama",
                    layers: 1,
                    head_dim: n as usize,
                    formats: vec![Format::F16],
                    ..Default::default()
                };
                w = model.writer();
            }
            if name.ends_with("head_count") {
                let (formats, heads) = (vec![Format::F16], n as usize);
                let shape = Synthetic { architecture: "falcon", layers: 1, heads, kv_heads: 1, ..Default::default() };
                w = Synthetic { head_dim: 32, formats, ..shape }.writer();
            }
            if name.ends_with("expert_count") {
                let (formats, experts) = (vec![Format::F16], Some((n as usize, 2)));
                w = Synthetic { architecture: "llama", layers: 1, experts, formats, ..Default::default() }.writer();
            }
            if name.ends_with("sliding_window") {
                n = n.min(63);
            }
            w.key(name, n);
        }
        match (verdict, opened(&w)) {
            ("loads", Ok(())) => loaded += 1,
            ("refused", Err(e)) => {
                assert!(!says.is_empty() && e.contains(says), "{row}\n{e}");
                refused += 1;
            }
            (_, got) => panic!("{row}\n{got:?}"),
        }
    }
    assert!(loaded >= 5 && loaded + refused >= 19, "{loaded} {refused}");
}

#[test]
fn every_rule_that_is_named_splits_text() {
    let chapter = chapter();
    let section = chapter.split("## Text").nth(1).unwrap().split("## Chat").next().unwrap();
    let list = section.split("\n\n").find(|p| p.starts_with("`qwen2`")).unwrap();
    let names: Vec<&str> = list.split('`').filter(|n| !n.trim().is_empty()).collect();
    assert!(names.len() >= 16, "{names:?}");
    for name in names {
        let mut w = GgufWriter::new();
        w.key("tokenizer.ggml.model", "gpt2")
            .key("tokenizer.ggml.pre", name)
            .key("tokenizer.ggml.tokens", vec!["a".to_owned(), "b".to_owned()]);
        let gguf = Gguf::from_bytes(w.to_bytes()).unwrap();
        let tokenizer = Tokenizer::from_gguf(&gguf).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(tokenizer.encode("ab", warpsmith_host::tokenizer::Special::Text).unwrap(), [0, 1], "{name}");
    }
}

/// Each format once, with the activations that it has products for.
#[test]
fn the_table_of_formats_is_what_products_take() {
    let chapter = chapter();
    let table = chapter.split("\n## Formats").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = table.lines().skip_while(|l| !l.starts_with("|---")).skip(1).take_while(|l| l.starts_with('|'));
    let mut told = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        for name in cells[0].split([',', ';']).map(str::trim) {
            let format: Format = name.parse().unwrap();
            let takes = Activations::ALL.into_iter().filter(|a| a.take(format)).map(Activations::name);
            assert_eq!(cells[3], takes.collect::<Vec<_>>().join(", "), "{name}");
            told.push(format);
        }
    }
    told.sort();
    let mut all = Format::ALL.to_vec();
    all.sort();
    assert_eq!(told, all);
}
