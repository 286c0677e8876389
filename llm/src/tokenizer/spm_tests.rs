use super::*;
use crate::gguf::{GgufError, GgufWriter};
use serde_json::Value as Json;

/// Vocabularies and encodings made by SentencePiece (see `made_by` in the file).
fn fixture() -> Vec<Json> {
    let all: Json = serde_json::from_str(include_str!("../../tests/data/spm.json")).unwrap();
    all["models"].as_array().unwrap().clone()
}

fn strings(v: &Json) -> Vec<String> {
    v.as_array().unwrap().iter().map(|s| s.as_str().unwrap().to_owned()).collect()
}

fn file(model: &Json) -> GgufWriter {
    let mut w = GgufWriter::new();
    w.key("tokenizer.ggml.model", "llama")
        .key("tokenizer.ggml.tokens", strings(&model["tokens"]))
        .key(
            "tokenizer.ggml.scores",
            model["scores"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect::<Vec<_>>(),
        )
        .key(
            "tokenizer.ggml.token_type",
            model["types"].as_array().unwrap().iter().map(|v| v.as_i64().unwrap() as i32).collect::<Vec<_>>(),
        )
        .key("tokenizer.ggml.add_bos_token", false)
        .key("tokenizer.ggml.add_space_prefix", model["add_space_prefix"].as_bool().unwrap());
    w
}

fn tokenizer(w: &GgufWriter) -> Result<Tokenizer, TokenizerError> {
    Tokenizer::from_gguf(&Gguf::from_bytes(w.to_bytes()).unwrap())
}

/// A vocabulary of `<unk> <s> </s>`, all bytes, and these with scores that fall from 0.
fn small(more: &[&str], kind: i32) -> GgufWriter {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    tokens.extend((0..=255u8).map(|b| format!("<0x{b:02X}>")));
    let mut types = [2, 3, 3].to_vec();
    types.extend([6; 256]);
    let mut scores = vec![0.0f32; tokens.len()];
    for (i, text) in more.iter().enumerate() {
        tokens.push((*text).to_owned());
        types.push(kind);
        scores.push(-(i as f32));
    }
    let mut w = GgufWriter::new();
    w.key("tokenizer.ggml.model", "llama")
        .key("tokenizer.ggml.tokens", tokens)
        .key("tokenizer.ggml.scores", scores)
        .key("tokenizer.ggml.token_type", types);
    w
}

#[test]
fn encodes_and_decodes_as_sentencepiece_does() {
    for model in fixture() {
        let t = tokenizer(&file(&model)).unwrap();
        for case in model["cases"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            let ids: Vec<u32> = case["ids"].as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect();
            assert_eq!(t.encode(text, Special::Text).unwrap(), ids, "{text:?}");
            assert_eq!(t.decode(&ids), case["decoded"].as_str().unwrap(), "{text:?}");
        }
    }
}

#[test]
fn random_text_comes_back() {
    // Numerical Recipes' linear congruential generator.
    let mut state = 1u32;
    let mut random = move |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % below
    };
    for model in fixture() {
        let t = tokenizer(&file(&model)).unwrap();
        for _ in 0..300 {
            let text: String = (0..random(60))
                .map(|_| match random(4) {
                    0 => ' ',
                    1 => char::from(97 + random(26) as u8),
                    2 => char::from(random(128) as u8),
                    // What is no token is spelled in bytes; U+2581 alone comes back as a space.
                    _ => char::from_u32(random(0x11_0000)).filter(|&c| c != spm::SPACE).unwrap_or('\u{fffd}'),
                })
                .collect();
            let ids = t.encode(&text, Special::Text).unwrap();
            assert_eq!(t.decode(&ids), text);
            assert!(ids.iter().all(|&id| id > 2), "text must not become a control token: {text:?}");
        }
    }
}

#[test]
fn the_best_score_is_merged_first_and_the_leftmost_among_equals() {
    let t = tokenizer(&small(&["bc", "ab", "cd", "a", "b", "c", "d"], 1)).unwrap();
    let pieces = |text| -> Vec<String> {
        let ids = t.encode(text, Special::Text).unwrap();
        // Start token, and the three bytes of the space in front.
        ids[4..].iter().map(|&i| t.token(i).unwrap().to_owned()).collect()
    };
    assert_eq!(pieces("abcd"), ["a", "bc", "d"]);
    assert_eq!(pieces("abab"), ["ab", "ab"]);
    assert_eq!(pieces("aé"), ["a", "<0xC3>", "<0xA9>"]);
    let w = small(&["aa", "a"], 1);
    let t = tokenizer(&w).unwrap();
    let ids = t.encode("aaa", Special::Text).unwrap();
    assert_eq!(ids[4..], [259, 260]);
}

#[test]
fn special_tokens_and_the_space_after_them() {
    let t = tokenizer(&small(&["\u{2581}a", "a", "\u{2581}"], 1)).unwrap();
    let (space_a, a, space) = (259, 260, 261);
    // SentencePiece's ids and llama.cpp's defaults: a start token, no end token, a space in front.
    assert_eq!((t.bos(), t.eos(), t.adds_bos()), (Some(1), Some(2), true));
    assert_eq!(t.encode("a", Special::Parse).unwrap(), [1, space_a]);
    assert_eq!(t.encode("a</s>a", Special::Parse).unwrap(), [1, space_a, 2, space_a]);
    assert_eq!(t.encode("", Special::Parse).unwrap(), [1]);
    let plain = t.encode("</s>", Special::Text).unwrap();
    assert!(!plain.contains(&2));
    assert_eq!(t.decode(&plain), "</s>");
    // The space in front belongs to the start of a text only.
    assert_eq!(t.decode(&[1, space_a, space_a]), "a a");
    assert_eq!(t.decode_continuation(&[space_a]), " a");
    assert_eq!(t.decode(&[space, space_a, a]), " aa");

    let mut w = small(&["\u{2581}a", "a", "\u{2581}"], 1);
    w.key("tokenizer.ggml.add_space_prefix", false).key("tokenizer.ggml.add_eos_token", true);
    let t = tokenizer(&w).unwrap();
    assert_eq!(t.encode("a", Special::Parse).unwrap(), [1, a, 2]);
    assert_eq!(t.decode(&[1, space_a, 2]), " a");
}

#[test]
fn user_defined_tokens_are_matched_as_a_whole() {
    let t = tokenizer(&small(&["<tool>", "<tool>x"], 4)).unwrap();
    assert_eq!(t.encode("<tool>x<tool>", Special::Text).unwrap(), [1, 260, 259]);
    assert_eq!(t.decode(&[260]), "<tool>x");
    let t = tokenizer(&small(&["gone"], 5)).unwrap();
    assert_eq!(t.decode(&[259]), "");
}

#[test]
fn a_character_of_byte_tokens_appears_when_complete() {
    let t = tokenizer(&small(&[], 1)).unwrap();
    let mut s = t.continue_stream();
    let got: Vec<String> = "é🙂".bytes().map(|b| s.push(3 + u32::from(b))).collect();
    assert_eq!(got, ["", "é", "", "", "", "🙂"]);
}

#[test]
fn long_text_does_not_take_quadratic_time() {
    let t = tokenizer(&small(&["aa", "aaaa", "aaaaaaaa", "a"], 1)).unwrap();
    let n = 1 << 18;
    let ids = t.encode(&"a".repeat(n), Special::Text).unwrap();
    assert_eq!(ids.len(), 4 + n / 8);
}

#[test]
fn what_cannot_be_used_is_named() {
    let mut w = small(&["a"], 1);
    w.key("tokenizer.ggml.scores", vec![0.0f32; 3]);
    assert!(matches!(tokenizer(&w), Err(TokenizerError::Length { expected: 260, actual: 3, .. })));
    w.key("tokenizer.ggml.scores", vec![f32::NAN; 260]);
    assert!(matches!(tokenizer(&w), Err(TokenizerError::Score { index: 0 })));
    w.key("tokenizer.ggml.scores", vec![1u32; 260]);
    assert!(matches!(tokenizer(&w), Err(TokenizerError::Gguf(GgufError::KeyType { .. }))));
    w.remove_key("tokenizer.ggml.scores");
    assert!(matches!(tokenizer(&w), Err(TokenizerError::Gguf(GgufError::MissingKey { .. }))));

    let mut w = GgufWriter::new();
    w.key("tokenizer.ggml.model", "llama")
        .key("tokenizer.ggml.tokens", vec!["a".to_owned()])
        .key("tokenizer.ggml.scores", vec![0.0f32])
        .key("tokenizer.ggml.add_space_prefix", false);
    let t = tokenizer(&w).unwrap();
    assert_eq!((t.bos(), t.encode("aa", Special::Text).unwrap()), (None, vec![0, 0]));
    assert!(matches!(t.encode("ab", Special::Text), Err(TokenizerError::Byte { byte: b'b' })));
}

/// As llama.cpp 0.3.36 (llama-cpp-python) encodes it with a model whose name has `phi-3` in it; by hand, with the same vocabulary.
#[test]
fn special_tokens_of_phi_3_take_the_white_space_behind_them() {
    let mut w = small(&["<|user|>", "<|endoftext|>"], 3);
    w.key("tokenizer.ggml.add_space_prefix", false).key("tokenizer.ggml.add_bos_token", false);
    let byte = |b: u8| 3 + u32::from(b);
    let (space, [a, line, tab]) = ([0xe2, 0x96, 0x81].map(byte), b"A\n\t".map(byte));
    let text = "<s> A<|user|>\n \tA<|endoftext|>\nA</s>\n<|user|>\n";
    let all = |architecture: &str| {
        let mut w = w.clone();
        w.key("general.architecture", architecture);
        tokenizer(&w).unwrap().encode(text, Special::Parse).unwrap()
    };
    let begin = [&[1][..], &space, &[a, 259]].concat();
    assert_eq!(all("phi3"), [&begin[..], &[a, 260, line, a, 2, 259]].concat());
    let kept = [&[line][..], &space, &[tab, a, 260, line, a, 2, line, 259, line]].concat();
    assert_eq!(all("llama"), [begin, kept].concat());
}
