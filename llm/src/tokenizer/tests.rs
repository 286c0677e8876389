use super::*;
use crate::gguf::{GgufError, GgufWriter};
use serde_json::Value as Json;

/// Vocabularies, merges and encodings made by another program (see `made_by` in the file).
fn fixture() -> Json {
    serde_json::from_str(include_str!("../../tests/data/bpe.json")).unwrap()
}

/// The same of rules that came later; `make_rules.py` beside it wrote them.
fn later() -> Json {
    serde_json::from_str(include_str!("../../tests/data/rules.json")).unwrap()
}

fn texts(v: &Json) -> Vec<String> {
    v.as_array().unwrap().iter().map(|s| s.as_str().unwrap().to_owned()).collect()
}

fn file(pre: &str, tokens: Vec<String>, merges: Vec<String>) -> GgufWriter {
    let types = tokens.iter().map(|t| if t.starts_with("<|") { 3 } else { 1 }).collect::<Vec<i32>>();
    let mut w = GgufWriter::new();
    w.key("tokenizer.ggml.model", "gpt2")
        .key("tokenizer.ggml.pre", pre)
        .key("tokenizer.ggml.tokens", tokens)
        .key("tokenizer.ggml.merges", merges)
        .key("tokenizer.ggml.token_type", types)
        .key("tokenizer.ggml.add_bos_token", false);
    w
}

fn tokenizer(w: &GgufWriter) -> Result<Tokenizer, TokenizerError> {
    Tokenizer::from_gguf(&Gguf::from_bytes(w.to_bytes()).unwrap())
}

fn bytes_only() -> GgufWriter {
    file("gpt-2", bpe::byte_characters().iter().map(|c| c.to_string()).collect(), Vec::new())
}

#[test]
fn encodes_as_the_oracle_does() {
    for rule in fixture()["rules"].as_array().unwrap().iter().chain(later()["rules"].as_array().unwrap()) {
        let pre = rule["pre"].as_str().unwrap();
        let t = tokenizer(&file(pre, texts(&rule["tokens"]), texts(&rule["merges"]))).unwrap();
        // The oracle's llama-bpe case was made without Llama 3's short cut for whole words; with merges
        // in order of frequency both give the same tokens, except where a word can only be reached by
        // the short cut, which the fixture avoids.
        for case in rule["cases"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            let ids: Vec<u32> = case["ids"].as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect();
            assert_eq!(t.encode(text, Special::Parse).unwrap(), ids, "{pre}: {text:?}");
            if !text.contains("<|") {
                assert_eq!(t.decode(&ids), text, "{pre}");
            }
        }
    }
}

#[test]
fn control_tokens_are_parsed_only_on_request_and_never_shown() {
    let rules = fixture();
    let rule = &rules["rules"][0];
    let t = tokenizer(&file("qwen2", texts(&rule["tokens"]), texts(&rule["merges"]))).unwrap();
    let start = t.id("<|start|>").unwrap();
    assert_eq!(t.encode("<|start|>", Special::Parse).unwrap(), [start]);
    let as_text = t.encode("<|start|>", Special::Text).unwrap();
    assert!(!as_text.contains(&start));
    assert_eq!(t.decode(&as_text), "<|start|>");
    assert_eq!(t.decode(&[start]), "");
}

#[test]
fn a_character_over_several_tokens_appears_when_complete() {
    let t = tokenizer(&bytes_only()).unwrap();
    let mut s = t.stream();
    let got: Vec<String> = "é🙂".bytes().map(|b| s.push(b.into())).collect();
    assert_eq!(got, ["", "é", "", "", "", "🙂"]);
    // A broken sequence is shown once it cannot become valid; what follows is intact.
    let mut s = t.stream();
    assert_eq!([0xf0, 0x9f, b'a'].map(|b: u8| s.push(b.into())).concat(), "\u{fffd}a");
    assert_eq!(s.push(0xe2), "");
    assert_eq!(s.finish(), "\u{fffd}");
}

#[test]
fn every_byte_has_its_own_character() {
    for b in 0..=255u8 {
        let text = bpe::to_characters(&[b]);
        assert_eq!(bpe::to_bytes(&text), Some(vec![b]));
    }
    assert_eq!(bpe::to_characters(b" \n"), "ĠĊ");
    assert_eq!(bpe::to_bytes("→"), None);
}

#[test]
fn long_text_does_not_take_quadratic_time() {
    let mut tokens: Vec<String> = bpe::byte_characters().iter().map(|c| c.to_string()).collect();
    let mut merges = Vec::new();
    for n in 1..12usize {
        let half = "a".repeat(1 << (n - 1));
        merges.push(format!("{half} {half}"));
        tokens.push(format!("{half}{half}"));
    }
    let t = tokenizer(&file("gpt-2", tokens, merges)).unwrap();
    let ids = t.encode(&"a".repeat(1 << 18), Special::Text).unwrap();
    assert_eq!(ids, vec![266; (1 << 18) >> 11]);
    let spaces = format!("{}x\n", " ".repeat(1 << 16));
    for pre in ["gpt-2", "qwen2", "llama-bpe", "smollm", "default", "tekken", "gpt-4o", "llama4", "qwen35"] {
        let mut w = bytes_only();
        w.key("tokenizer.ggml.pre", pre);
        let t = tokenizer(&w).unwrap();
        assert_eq!(t.decode(&t.encode(&spaces, Special::Text).unwrap()), spaces, "{pre}");
    }
}

#[test]
fn start_and_end_tokens() {
    let mut w = bytes_only();
    w.key("tokenizer.ggml.bos_token_id", 7u32)
        .key("tokenizer.ggml.eos_token_id", 9u32)
        .key("tokenizer.ggml.add_bos_token", true);
    let t = tokenizer(&w).unwrap();
    assert_eq!((t.bos(), t.eos(), t.adds_bos()), (Some(7), Some(9), true));
    assert_eq!(t.encode("A", Special::Text).unwrap(), [7, 65 - 33 + 33]);
    w.key("tokenizer.ggml.bos_token_id", 256u32);
    let e = tokenizer(&w).unwrap_err();
    assert!(matches!(e, TokenizerError::SpecialId { id: 256, tokens: 256, .. }), "{e}");
}

#[test]
fn everything_that_ends_a_reply_is_an_end() {
    let with = |tokens: &[(&str, i32)], keys: &[(&str, u32)]| {
        let mut w = bytes_only();
        let base = (0..256).map(|b| bpe::byte_characters()[b].to_string());
        let all: Vec<String> = base.chain(tokens.iter().map(|t| t.0.to_owned())).collect();
        let types: Vec<i32> = [1i32; 256].into_iter().chain(tokens.iter().map(|t| t.1)).collect();
        w.key("tokenizer.ggml.tokens", all).key("tokenizer.ggml.token_type", types);
        for (key, id) in keys {
            w.key(format!("tokenizer.ggml.{key}_token_id"), *id);
        }
        tokenizer(&w).unwrap()
    };
    // Named by keys, whatever their texts; by their texts, whatever the keys.
    let t = with(&[("<a>", 3), ("<b>", 3), ("<c>", 3), ("<|im_end|>", 3)], &[("eos", 256), ("eot", 257), ("eom", 258)]);
    assert_eq!(t.eog(), [256, 257, 258, 259]);
    assert!(t.is_eog(259) && !t.is_eog(65));
    // A name that nothing else has counts though the file has it as an ordinary token, and is then not shown.
    let t = with(&[("<|im_end|>", 1), ("</s>", 1), ("<|end_of_text|>", 4)], &[]);
    assert_eq!((t.eog(), t.decode(&[256, 257])), (&[256, 258][..], "</s>".to_owned()));
    assert_eq!(with(&[("</s>", 3)], &[]).eog(), [256]);
    // Harmony: an end of a part is none of the reply.
    let t = with(&[("<|end|>", 3), ("<|return|>", 3), ("<|call|>", 3)], &[]);
    assert_eq!(t.eog(), [257, 258]);
    assert_eq!(with(&[("<|end|>", 3)], &[]).eog(), [256]);
    // Files are separated by tokens with keys, or with names.
    assert_eq!(with(&[("<|file_sep|>", 3), ("<|fim_pad|>", 1), ("<PAD>", 3)], &[]).eog(), [256, 258]);
    assert_eq!(with(&[("<|file_sep|>", 3), ("<x>", 3)], &[("fim_sep", 257)]).eog(), [257]);
    let mut w = bytes_only();
    w.key("tokenizer.ggml.eot_token_id", 256u32);
    assert!(matches!(tokenizer(&w), Err(TokenizerError::SpecialId { key: "tokenizer.ggml.eot_token_id", .. })));
}

#[test]
fn what_cannot_be_used_is_named() {
    let mut w = bytes_only();
    w.key("tokenizer.ggml.model", "bert");
    let e = tokenizer(&w).unwrap_err();
    assert!(e.to_string().contains("`bert`") && e.to_string().contains("--tokens"), "{e}");
    w.remove_key("tokenizer.ggml.model");
    assert!(matches!(tokenizer(&w), Err(TokenizerError::Gguf(GgufError::MissingKey { .. }))));

    let e = tokenizer(&file("kimi-k2", vec!["a".into()], vec![])).unwrap_err();
    assert!(matches!(&e, TokenizerError::Rule { name } if name == "kimi-k2"), "{e}");
    let e = tokenizer(&file("gpt-2", vec!["a".into(), "a".into()], vec![])).unwrap_err();
    assert!(matches!(e, TokenizerError::DuplicateToken { first: 0, second: 1, .. }));
    let e = tokenizer(&file("gpt-2", vec!["a".into()], vec!["ab".into()])).unwrap_err();
    assert!(matches!(e, TokenizerError::Merge { index: 0, .. }));
    let t = tokenizer(&file("gpt-2", vec!["a".into()], vec![])).unwrap();
    assert!(matches!(t.encode("ab", Special::Text), Err(TokenizerError::Byte { byte: b'b' })));
    assert_eq!(t.decode(&[0, 1, u32::MAX]), "a");

    let mut w = bytes_only();
    w.key("tokenizer.ggml.token_type", vec![1i32]);
    assert!(matches!(tokenizer(&w), Err(TokenizerError::Length { expected: 256, actual: 1, .. })));
    w.key("tokenizer.ggml.tokens", vec![1u32]);
    assert!(matches!(tokenizer(&w), Err(TokenizerError::Gguf(GgufError::KeyType { .. }))));
}
