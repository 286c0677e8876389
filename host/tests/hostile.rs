//! Headers whose numbers lie, several at a time: an error, no panic, and no memory that the file does not justify.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "common/allocations.rs"]
mod allocations;
mod common;

use common::*;
use gpu_kernels::format::Format;
use proptest::prelude::*;
use std::sync::OnceLock;
use warpsmith_host::decode::Model;
use warpsmith_host::gguf::{Gguf, GgufWriter, OwnedValue, Value};
use warpsmith_host::model::{ModelError, ModelFile};
use warpsmith_host::tokenizer::Tokenizer;

/// A model of each architecture, with the keys and tensors that only it has, and a tokenizer.
fn bases() -> &'static [GgufWriter] {
    static BASES: OnceLock<Vec<GgufWriter>> = OnceLock::new();
    BASES.get_or_init(|| {
        ["qwen3", "qwen2", "llama", "qwen3moe"]
            .map(|architecture| {
                let model = Synthetic {
                    architecture,
                    experts: (architecture == "qwen3moe").then_some((3, 2)),
                    layers: 1,
                    hidden: 32,
                    feed_forward: 32,
                    heads: 2,
                    kv_heads: 1,
                    head_dim: 32,
                    vocab: 8,
                    rope_freqs: architecture == "llama",
                    window: 16,
                    formats: vec![Format::Q8_0, Format::F16, Format::F32],
                    ..Default::default()
                };
                let mut w = model.writer();
                let key = |part: &str| format!("{architecture}.{part}");
                w.key(key("rope.dimension_count"), 32u32)
                    .key(key("vocab_size"), 8u32)
                    .key(key("expert_count"), if architecture == "qwen3moe" { 3u32 } else { 0 })
                    .key(key("expert_gating_func"), 1u32)
                    .key(key("rope.scaling.type"), "yarn")
                    .key(key("rope.scaling.factor"), 2f32)
                    .key(key("rope.scaling.original_context_length"), 16u32)
                    .key(key("rope.scaling.yarn_beta_fast"), 32f32)
                    .key(key("rope.scaling.yarn_beta_slow"), 1f32)
                    .key("general.alignment", 32u32)
                    .key("split.count", 1u32)
                    .key("split.no", 0u32)
                    .key("tokenizer.ggml.model", if architecture == "llama" { "llama" } else { "gpt2" })
                    .key("tokenizer.ggml.pre", "qwen2")
                    .key("tokenizer.ggml.tokens", (0..8).map(|i| format!("t{i}")).collect::<Vec<_>>())
                    .key("tokenizer.ggml.token_type", vec![1i32; 8])
                    .key("tokenizer.ggml.scores", vec![0f32; 8])
                    .key("tokenizer.ggml.bos_token_id", 1u32)
                    .key("tokenizer.ggml.eos_token_id", 2u32);
                w
            })
            .into()
    })
}

/// Numbers that overflow sums and products, or that a size of this file comes near.
const NUMBERS: [u64; 24] = [
    0,
    1,
    2,
    3,
    16,
    31,
    32,
    33,
    64,
    256,
    4096,
    32768,
    65535,
    65536,
    131072,
    (1 << 31) - 2,
    1 << 31,
    (1 << 31) + 2,
    u32::MAX as u64,
    1 << 32,
    1 << 61,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// As the type that the file has: what does not fit is stored wider, which is a file like any other.
fn value(old: &Value<'_>, n: u64) -> OwnedValue {
    match (old, u32::try_from(n)) {
        (Value::F32(_), _) => OwnedValue::F32(match n % 5 {
            0 => f32::NAN,
            1 => f32::INFINITY,
            2 => -1.0,
            3 => n as f32,
            _ => 1.0 / n as f32,
        }),
        (_, Ok(n)) => OwnedValue::U32(n),
        (_, Err(_)) => OwnedValue::U64(n),
    }
}

/// Opens the bytes as a program would, up to where a device is needed.
fn survives(bytes: Vec<u8>, what: &dyn Fn() -> String) -> Result<(), String> {
    let size = bytes.len();
    let (result, largest) = allocations::largest(|| {
        let gguf = Gguf::from_bytes(bytes).map_err(|e| e.to_string())?;
        // Either may be wrong without the other.
        let _ = Tokenizer::from_gguf(&gguf).map_err(|e| e.to_string());
        let file = ModelFile::from_gguf(gguf).map_err(|e| e.to_string())?;
        file.check_kernels().map_err(|e| e.to_string())?;
        Model::device_bytes(&file).map_err(|e| e.to_string()).map(|_| ())
    });
    assert!(largest <= 64 * 1024 + 16 * size, "{}: {largest} bytes at once for a file of {size}", what());
    if let Err(message) = &result {
        assert!(message.len() < 4096, "{}: {message}", what());
    }
    result
}

/// The keys of a file that hold numbers, with one of each.
fn numbers(w: &GgufWriter) -> Vec<(String, OwnedValue)> {
    let gguf = Gguf::from_bytes(w.to_bytes()).unwrap();
    gguf.keys()
        .filter(|(_, v)| !matches!(v, Value::String(_) | Value::Array(_)))
        .map(|(k, v)| (k.to_owned(), value(&v, 1)))
        .collect()
}

#[test]
fn the_models_that_are_mutated_are_good_ones() {
    for w in bases() {
        survives(w.to_bytes(), &|| "as it is".into()).unwrap();
        assert!(numbers(w).len() >= 18, "{:?}", numbers(w));
    }
}

/// Sizes that multiply: heads, key heads and their width, each with each.
#[test]
fn products_of_sizes_ask_for_no_memory() {
    for w in bases() {
        let gguf = Gguf::from_bytes(w.to_bytes()).unwrap();
        let a = gguf.require_str("general.architecture").unwrap().to_owned();
        let heads = [1, 2, 256, 32768, (1 << 31) - 2, 1 << 31, u32::MAX];
        for &h in &heads {
            for &kv in heads.iter().filter(|&&kv| kv == h || h % kv.max(1) == 0) {
                for &width in &heads {
                    let mut w = w.clone();
                    w.key(format!("{a}.attention.head_count"), h)
                        .key(format!("{a}.attention.head_count_kv"), kv)
                        .key(format!("{a}.attention.key_length"), width)
                        .key(format!("{a}.attention.value_length"), width)
                        .key(format!("{a}.rope.dimension_count"), width.min(32) & !1);
                    let _ = survives(w.to_bytes(), &|| format!("{a}: {h}/{kv} heads of {width}"));
                }
            }
        }
    }
}

/// Offsets of the numbers in a tensor's entry, after its name: dimensions, two sizes, type, offset.
const FIELDS: [(usize, usize); 5] = [(0, 4), (4, 8), (12, 8), (20, 4), (24, 8)];

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..Default::default() })]

    /// Any numbers of keys and of tensors, several at once.
    #[test]
    fn no_header_numbers_do_harm(
        base in 0usize..3,
        keys in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(NUMBERS.to_vec())), 0..7),
        tensors in prop::collection::vec(
            (any::<prop::sample::Index>(), 0usize..FIELDS.len(), prop::sample::select(NUMBERS.to_vec())), 0..3),
    ) {
        let mut w = bases()[base].clone();
        let named = numbers(&w);
        for (key, n) in &keys {
            let (name, old) = key.get(&named);
            let old = if matches!(old, OwnedValue::F32(_)) { Value::F32(0.0) } else { Value::U32(0) };
            w.key(name.as_str(), value(&old, *n));
        }
        let mut bytes = w.to_bytes();
        let names: Vec<String> =
            Gguf::from_bytes(bases()[base].to_bytes()).unwrap().tensors().iter().map(|t| t.name.clone()).collect();
        for (tensor, field, n) in &tensors {
            let name = tensor.get(&names);
            let entry = [&(name.len() as u64).to_le_bytes()[..], name.as_bytes()].concat();
            // An entry of one dimension is shorter: the number before may have hit the next one's name.
            let Some(at) = bytes.windows(entry.len()).position(|w| w == entry) else { continue };
            let (offset, size) = (at + entry.len() + FIELDS[*field].0, FIELDS[*field].1);
            bytes[offset..offset + size].copy_from_slice(&n.to_le_bytes()[..size]);
        }
        let _ = survives(bytes, &|| format!("base {base}: {keys:?} {tensors:?}"));
    }
}

/// What kernels do not have is said with the key that asks for it, before anything is uploaded.
#[test]
fn heads_that_no_kernel_has_are_refused_with_their_key() {
    let model = |heads: usize, kv_heads: usize, head_dim: usize| Synthetic {
        architecture: "llama",
        hidden: heads * head_dim,
        heads,
        kv_heads,
        head_dim,
        layers: 1,
        formats: vec![Format::F16],
        ..Default::default()
    };
    let refused = |w: &GgufWriter| {
        let file = ModelFile::from_gguf(Gguf::from_bytes(w.to_bytes()).unwrap()).unwrap();
        file.check_kernels().unwrap_err()
    };
    let e = refused(&model(2, 1, 48).writer());
    assert!(matches!(&e, ModelError::Config { key, .. } if key == "llama.attention.key_length"), "{e}");
    assert!(e.to_string().contains("48") && e.to_string().contains("32, 64, 80, 96, 128, 192, 256"), "{e}");
    let mut w = model(2, 1, 48).writer();
    w.remove_key("llama.attention.key_length").remove_key("llama.attention.value_length");
    let e = refused(&w);
    assert!(matches!(&e, ModelError::Config { key, .. } if key == "llama.attention.head_count"), "{e}");
    let e = refused(&model(34, 2, 32).writer());
    assert!(matches!(&e, ModelError::Config { key, .. } if key == "llama.attention.head_count_kv"), "{e}");
    for head_dim in [32, 64, 80, 96, 128, 192, 256] {
        model(2, 1, head_dim).file().check_kernels().unwrap();
    }
}
