//! The GGUF reader on good, bad and hostile files, and the rules between keys and tensors.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "common/allocations.rs"]
mod allocations;
mod common;

use common::*;
use gpu_kernels::format::Format;
use warpsmith_host::gguf::{Gguf, GgufError, GgufWriter, TensorType, Value, ValueType};
use warpsmith_host::model::{Architecture, ModelError, ModelFile, RopeStyle};

/// Opens, reads every key and tensor, and tries the model; the largest allocation must stay in
/// proportion to the file.
fn survive(bytes: &[u8], what: &dyn Fn() -> String) -> Result<(), String> {
    let bound = 64 * 1024 + 16 * bytes.len();
    let input = bytes.to_vec();
    let (result, largest) = allocations::largest(|| match Gguf::from_bytes(input) {
        Err(e) => Err(e.to_string()),
        Ok(file) => {
            for (_, v) in file.keys() {
                if let Value::Array(a) = v {
                    assert_eq!(a.iter().count(), a.len(), "{}", what());
                }
            }
            for t in file.tensors() {
                assert_eq!(file.tensor(&t.name).map(|t| t.data.len() as u64), Some(t.bytes), "{}", what());
            }
            ModelFile::from_gguf(file).map(|_| ()).map_err(|e| e.to_string())
        }
    });
    assert!(largest <= bound, "{}: an allocation of {largest} bytes for a file of {}", what(), bytes.len());
    if let Err(message) = &result {
        assert!(message.len() < 4096, "{}: a message of {} bytes", what(), message.len());
    }
    result
}

fn small() -> Synthetic {
    Synthetic {
        layers: 1,
        hidden: 32,
        feed_forward: 32,
        heads: 2,
        kv_heads: 1,
        head_dim: 16,
        vocab: 8,
        formats: vec![Format::Q8_0, Format::F16, Format::F32, Format::Q4_0],
        ..Default::default()
    }
}

fn small_bytes() -> Vec<u8> {
    let mut w = small().writer();
    w.key("tokenizer.ggml.model", "gpt2")
        .key("tokenizer.ggml.tokens", (0..8).map(|i| format!("t{i}")).collect::<Vec<_>>())
        .key("tokenizer.ggml.token_type", vec![1i32; 8])
        .key("tokenizer.ggml.add_bos_token", true);
    w.to_bytes()
}

#[test]
fn reads_what_another_program_wrote() {
    let f = Gguf::open(q4_0_path()).unwrap();
    assert_eq!((f.version(), f.alignment(), f.data_offset()), (3, 32, 5952));
    assert_eq!(f.keys().count(), 23);
    assert_eq!(f.require_str("general.architecture").unwrap(), "qwen3");
    assert_eq!(f.u32("qwen3.feed_forward_length").unwrap(), Some(512));
    assert_eq!(f.f32("qwen3.rope.freq_base").unwrap(), Some(1e6));
    assert_eq!(f.f32("qwen3.attention.layer_norm_rms_epsilon").unwrap(), Some(1e-6));
    assert_eq!(f.bool("tokenizer.ggml.add_bos_token").unwrap(), Some(false));
    let tokens = f.array("tokenizer.ggml.tokens").unwrap().unwrap();
    assert_eq!((tokens.len(), tokens.element_type()), (256, ValueType::String));
    assert_eq!(tokens.iter().nth(72), Some(Value::String("H")));
    assert_eq!(tokens.iter().nth(32), Some(Value::String("Ġ")));
    assert_eq!(f.tensors().len(), 25);
    let down = f.tensor("blk.1.ffn_down.weight").unwrap();
    assert_eq!((down.info.kind, down.info.dims.as_slice()), (TensorType::Q4_0, &[512, 256][..]));
    assert_eq!((down.info.cols(), down.info.rows(), down.data.len()), (512, 256, 512 / 32 * 18 * 256));
    let m = ModelFile::from_gguf(f).unwrap();
    let c = m.config();
    assert_eq!((c.architecture, c.layers, c.hidden, c.q_dim(), c.kv_dim()), (Architecture::Qwen3, 2, 256, 256, 128));
    assert_eq!((c.vocab, c.context, c.group(), c.rope.style, c.rope.dims), (256, 512, 2, RopeStyle::Neox, 64));
    assert!(!m.tied());
    assert_eq!(m.matrices().count(), 16);
}

#[test]
fn what_the_writer_writes_is_read_back() {
    let mut w = GgufWriter::new();
    w.alignment(64)
        .key("a.u8", 7u8)
        .key("a.i64", -5i64)
        .key("a.f64", 0.1f64)
        .key("a.text", "héllo")
        .key("a.texts", vec!["".to_owned(), "x".to_owned()])
        .key("a.floats", vec![1.5f32, -2.0]);
    w.tensor_f32("t", &[3, 1, 1, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
    w.tensor("b", &[128], TensorType::Q1_0, vec![9; 18]).unwrap();
    for version in [2, 3] {
        let f = Gguf::from_bytes(w.version(version).to_bytes()).unwrap();
        assert_eq!((f.version(), f.alignment()), (version, 64));
        assert_eq!(f.u64("a.u8").unwrap(), Some(7));
        assert_eq!(f.get("a.i64"), Some(Value::I64(-5)));
        assert_eq!(f.f32("a.f64").unwrap(), Some(0.1));
        assert_eq!(f.str("a.text").unwrap(), Some("héllo"));
        let floats: Vec<_> = f.array("a.floats").unwrap().unwrap().iter().collect();
        assert_eq!(floats, [Value::F32(1.5), Value::F32(-2.0)]);
        let t = f.tensor("t").unwrap();
        assert_eq!((t.info.cols(), t.info.rows(), t.info.offset % 64), (3, 2, 0));
        assert_eq!(t.data.to_vec().unwrap()[4..8], 1f32.to_le_bytes());
        assert_eq!(f.tensor("b").unwrap().data.to_vec().unwrap(), [9; 18]);
        assert!(f.tensor("").is_none() && f.get("a").is_none());
    }
    let e = w.tensor("short", &[32], TensorType::Q4_0, vec![0; 17]).unwrap_err();
    assert!(matches!(e, GgufError::WriteLength { expected: 18, actual: 17, .. }), "{e}");
}

/// A header is read in pieces, of which the first is a mebibyte: here it ends in the third.
#[test]
fn a_header_of_several_megabytes_is_read_to_its_end() {
    let words: Vec<String> = (0..200_000).map(|i| format!("word{i:06}")).collect();
    let mut w = small().writer();
    w.key("tokenizer.ggml.tokens", words.clone());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.gguf");
    std::fs::write(&path, w.to_bytes()).unwrap();
    let file = Gguf::open(&path).unwrap();
    assert!(file.data_offset() > 3 << 20, "{}", file.data_offset());
    let Some(Value::Array(tokens)) = file.get("tokenizer.ggml.tokens") else { panic!("no tokens") };
    assert!(tokens.iter().eq(words.iter().map(|w| Value::String(w))));
    // Its tensors lie behind it.
    let small = Gguf::from_bytes(small().writer().to_bytes()).unwrap();
    for t in small.tensors() {
        let (a, b) = (small.tensor(&t.name).unwrap().data, file.tensor(&t.name).unwrap().data);
        assert_eq!(a.to_vec().unwrap(), b.to_vec().unwrap(), "{}", t.name);
    }
    // The same cut short in its third piece.
    std::fs::write(&path, &w.to_bytes()[..5 << 19]).unwrap();
    assert!(matches!(Gguf::open(&path), Err(GgufError::Truncated { .. })));
}

#[test]
fn every_truncation_is_an_error() {
    let whole = small_bytes();
    survive(&whole, &|| "whole".into()).unwrap();
    let header = Gguf::from_bytes(whole.clone()).unwrap().data_offset() as usize;
    for n in (0..header).chain((header..whole.len()).step_by(61)).chain([whole.len() - 1]) {
        let e = survive(&whole[..n], &|| format!("cut at {n}"));
        assert!(e.is_err(), "cut at {n} of {}", whole.len());
    }
}

#[test]
fn no_changed_header_byte_does_harm() {
    let whole = small_bytes();
    let header = Gguf::from_bytes(whole.clone()).unwrap().data_offset() as usize;
    let mut bytes = whole.clone();
    for at in 0..header {
        let old = bytes[at];
        for new in [0, 1, 9, 0x7f, 0x80, 0xff, old ^ 1, old.wrapping_add(1), old ^ 0x20] {
            bytes[at] = new;
            let _ = survive(&bytes, &|| format!("byte {at} = {new:#04x}"));
        }
        bytes[at] = old;
    }
}

#[test]
fn no_changed_header_field_does_harm() {
    let whole = small_bytes();
    let n = whole.len() as u64;
    let header = Gguf::from_bytes(whole.clone()).unwrap().data_offset() as usize;
    let values = [u64::MAX, i64::MAX as u64, 1 << 63, 1 << 61, 1 << 32, u32::MAX.into(), n, n + 1, n / 8, n / 14, 0];
    for at in 0..header - 8 {
        for v in values {
            let mut bytes = whole.clone();
            bytes[at..at + 8].copy_from_slice(&v.to_le_bytes());
            let _ = survive(&bytes, &|| format!("u64 at {at} = {v:#x}"));
        }
    }
}

fn patched(find: &[u8], skip: usize, new: &[u8]) -> Result<Gguf, GgufError> {
    let mut bytes = small_bytes();
    let at = bytes.windows(find.len()).position(|w| w == find).unwrap() + find.len() + skip;
    bytes[at..at + new.len()].copy_from_slice(new);
    Gguf::from_bytes(bytes)
}

#[test]
fn header_faults_have_names() {
    let at = |offset: usize, new: &[u8]| {
        let mut b = small_bytes();
        b[offset..offset + new.len()].copy_from_slice(new);
        Gguf::from_bytes(b).unwrap_err()
    };
    assert!(matches!(at(0, b"GGML"), GgufError::Magic { .. }));
    assert!(matches!(Gguf::from_bytes(vec![]), Err(GgufError::Magic { .. })));
    assert!(matches!(at(4, &[0, 0, 0, 3]), GgufError::BigEndian { field: 0x0300_0000 }));
    assert!(matches!(at(4, &[1, 0, 0, 0]), GgufError::Version { version: 1 }));
    assert!(matches!(at(4, &[4, 0, 0, 0]), GgufError::Version { version: 4 }));
    assert!(matches!(at(8, &u64::MAX.to_le_bytes()), GgufError::Count { count: u64::MAX, .. }));
    assert!(matches!(at(16, &(1u64 << 40).to_le_bytes()), GgufError::Count { .. }));
    assert!(matches!(at(24, &0u64.to_le_bytes()), GgufError::NameLength { length: 0, .. }));
    assert!(matches!(at(24, &65536u64.to_le_bytes()), GgufError::NameLength { length: 65536, .. }));
    assert!(matches!(at(24, &65535u64.to_le_bytes()), GgufError::Truncated { needed: 65535, .. }));
    assert!(matches!(at(32, &[0xff]), GgufError::Text { .. }));
    assert!(matches!(at(32, &[0]), GgufError::Text { .. }));
}

#[test]
fn key_faults_name_the_key_and_the_place() {
    let e = patched(b"qwen3.block_count", 0, &[13, 0, 0, 0]).unwrap_err();
    assert!(e.to_string().starts_with("key `qwen3.block_count` has value type 13 at offset"), "{e}");
    let e = patched(b"general.architecture", 4, &u64::MAX.to_le_bytes()).unwrap_err();
    assert!(matches!(&e, GgufError::Truncated { needed: u64::MAX, .. }), "{e}");
    let e = patched(b"general.architecture", 12, &[0xc0]).unwrap_err();
    assert!(matches!(&e, GgufError::Text { .. }), "{e}");
    let e = patched(b"tokenizer.ggml.tokens", 4, &[9, 0, 0, 0]).unwrap_err();
    assert!(matches!(&e, GgufError::NestedArray { .. }), "{e}");
    let e = patched(b"tokenizer.ggml.tokens", 8, &(1u64 << 50).to_le_bytes()).unwrap_err();
    assert!(matches!(&e, GgufError::Count { count, .. } if *count == 1 << 50), "{e}");
    let e = patched(b"tokenizer.ggml.add_bos_token", 4, &[2]).unwrap_err();
    assert!(matches!(&e, GgufError::Bool { value: 2, .. }), "{e}");
    let find = |b: &[u8], s: &[u8]| b.windows(s.len()).position(|w| w == s).unwrap();
    let mut w = GgufWriter::new();
    w.key("one", 1u32).key("two", 2u32);
    let mut b = w.to_bytes();
    let at = find(&b, b"two");
    b[at..at + 3].copy_from_slice(b"one");
    let e = Gguf::from_bytes(b).unwrap_err();
    assert!(matches!(&e, GgufError::DuplicateKey { key, offset: 43 } if key == "one"), "{e:?}");

    let f = Gguf::from_bytes(w.to_bytes()).unwrap();
    assert!(matches!(f.str("one"), Err(GgufError::KeyType { .. })));
    assert!(matches!(f.require_u32("three"), Err(GgufError::MissingKey { .. })));
    for bad in [0u32, 3, 33] {
        let mut w = GgufWriter::new();
        w.key("general.alignment", bad);
        assert!(matches!(Gguf::from_bytes(w.to_bytes()), Err(GgufError::Alignment { value }) if value == bad));
    }
    let mut w = GgufWriter::new();
    w.key("general.alignment", 32u64);
    assert!(matches!(Gguf::from_bytes(w.to_bytes()), Err(GgufError::KeyType { .. })));
}

/// Offsets in the entry of a tensor with two dimensions, after its name.
const COUNT: usize = 0;
const NE0: usize = 4;
const NE1: usize = 12;
const TYPE: usize = 20;
const OFFSET: usize = 24;

#[test]
fn tensor_faults_name_the_tensor() {
    let v = b"blk.0.attn_v.weight";
    let fault = |skip, new: &[u8]| patched(v, skip, new).unwrap_err();
    for e in [
        fault(COUNT, &[0, 0, 0, 0]),
        fault(COUNT, &[5, 0, 0, 0]),
        fault(NE0, &0u64.to_le_bytes()),
        fault(NE1, &u64::MAX.to_le_bytes()),
        fault(NE1, &(1u64 << 58).to_le_bytes()),
        fault(TYPE, &[4, 0, 0, 0]),
        fault(TYPE, &[42, 0, 0, 0]),
        fault(TYPE, &[0xff; 4]),
        fault(TYPE, &[12, 0, 0, 0]),
        fault(OFFSET, &1u64.to_le_bytes()),
        fault(OFFSET, &(u64::MAX - 31).to_le_bytes()),
        fault(OFFSET, &(1u64 << 20).to_le_bytes()),
        fault(OFFSET, &0u64.to_le_bytes()),
    ] {
        assert!(e.to_string().contains("blk.0.attn_v.weight"), "{e}");
    }
    assert!(matches!(fault(COUNT, &[5, 0, 0, 0]), GgufError::Dimensions { count: 5, .. }));
    assert!(matches!(fault(NE0, &0u64.to_le_bytes()), GgufError::Shape { .. }));
    // No reading of id 42 has blocks of 32.
    assert!(matches!(fault(TYPE, &[42, 0, 0, 0]), GgufError::RowLength { row: 32, block: 64, .. }));
    assert!(matches!(fault(TYPE, &[99, 0, 0, 0]), GgufError::UnknownType { id: 99, .. }));
    // A type with blocks of 256 on rows of 32.
    assert!(matches!(fault(TYPE, &[12, 0, 0, 0]), GgufError::RowLength { row: 32, block: 256, .. }));
    assert!(matches!(fault(OFFSET, &8u64.to_le_bytes()), GgufError::Misaligned { start: 8, alignment: 32, .. }));
    assert!(matches!(fault(OFFSET, &(1u64 << 20).to_le_bytes()), GgufError::OutsideFile { .. }));
    assert!(matches!(fault(OFFSET, &0u64.to_le_bytes()), GgufError::Overlap { start: 0, .. }));
    tensors_are_packed_in_order();
    let mut w = GgufWriter::new();
    w.tensor_f32("same", &[1], &[0.0]).unwrap().tensor_f32("same", &[1], &[0.0]).unwrap();
    assert!(matches!(Gguf::from_bytes(w.to_bytes()), Err(GgufError::DuplicateTensor { .. })));
    for (length, good) in [(63, true), (64, false)] {
        let mut w = GgufWriter::new();
        w.tensor_f32("n".repeat(length), &[1], &[0.0]).unwrap();
        assert_eq!(Gguf::from_bytes(w.to_bytes()).is_ok(), good);
    }
}

/// ggml's rule (gguf.cpp, `gguf_init_from_reader`): each offset is the padded end of the tensor before it.
fn tensors_are_packed_in_order() {
    let of = |offsets: [u64; 3], end: usize| {
        let mut w = GgufWriter::new();
        for name in ["a", "b", "c"] {
            w.tensor_f32(name, &[8], &[0.0; 8]).unwrap();
        }
        let mut b = w.to_bytes();
        for (name, offset) in [b'a', b'b', b'c'].into_iter().zip(offsets) {
            let entry = [1, 0, 0, 0, 0, 0, 0, 0, name, 1, 0, 0, 0];
            let at = b.windows(entry.len()).position(|w| w == entry).unwrap() + entry.len() + 8 + 4;
            b[at..at + 8].copy_from_slice(&offset.to_le_bytes());
        }
        b.resize(b.len() + end, 0);
        Gguf::from_bytes(b)
    };
    assert!(of([0, 32, 64], 0).is_ok());
    for (offsets, tensor, expected) in
        [([0, 32, 96], "c", 64), ([0, 64, 32], "b", 32), ([32, 64, 96], "a", 0), ([64, 0, 32], "a", 0)]
    {
        let e = of(offsets, 64).unwrap_err();
        let named =
            matches!(&e, GgufError::Gap { tensor: t, expected: x, alignment: 32, .. } if t == tensor && *x == expected);
        assert!(named, "{offsets:?}: {e}");
    }
}

#[test]
fn files_that_are_no_files() {
    assert!(matches!(Gguf::open("no/such/model.gguf"), Err(GgufError::Io { .. })));
    assert!(matches!(Gguf::open(root()), Err(GgufError::Io { .. })));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("empty.gguf");
    std::fs::write(&path, []).unwrap();
    assert!(matches!(Gguf::open(&path), Err(GgufError::Magic { .. })));
    let path = dir.path().join("model.gguf");
    small().writer().write(&path).unwrap();
    assert_eq!(ModelFile::open(&path).unwrap().gguf().path(), Some(path.as_path()));
}

fn model(w: &GgufWriter) -> Result<ModelFile, ModelError> {
    ModelFile::from_gguf(Gguf::from_bytes(w.to_bytes()).unwrap())
}

fn refused(change: impl FnOnce(&mut GgufWriter)) -> ModelError {
    let mut w = small().writer();
    change(&mut w);
    model(&w).unwrap_err()
}

/// RZ-13: keys are checked against each other, nothing is guessed from names that look alike.
#[test]
fn rz_13_configurations_that_make_no_model_are_refused() {
    let set = |key: &'static str, v: u32| refused(move |w| _ = w.key(key, v)).to_string();
    assert!(set("qwen3.attention.head_count_kv", 3).contains("divisor of the 2 query heads"));
    assert!(set("qwen3.attention.head_count", 0).contains("expected one or more"));
    assert!(set("qwen3.attention.key_length", 15).contains("even"));
    assert!(set("qwen3.attention.value_length", 8).contains("value heads of another width"));
    assert!(set("qwen3.rope.dimension_count", 18).contains("at most the head width 16"));
    assert!(set("qwen3.vocab_size", 9).contains("token_embd.weight has 8 rows"));
    assert!(set("qwen3.block_count", u32::MAX).contains("`blk.1."), "{}", set("qwen3.block_count", u32::MAX));
    assert!(set("qwen3.expert_count", 8).contains("mixture"));
    assert!(set("qwen3.attention.sliding_window_pattern", 2).contains("some of the layers"));
    for (window, want) in [(7, 7), (64, 0), (65, 0), (0, 0)] {
        let mut w = Synthetic { context: 64, ..small() }.writer();
        w.key("qwen3.attention.sliding_window", window as u32);
        assert_eq!(model(&w).unwrap().config().window, want);
    }
    let e = refused(|w| _ = w.key("qwen3.attention.sliding_window", "wide"));
    assert!(e.to_string().contains("sliding_window"), "{e}");
    assert!(set("split.count", 2).contains("part 1 of 2"));
    for key in [
        "block_count",
        "embedding_length",
        "feed_forward_length",
        "context_length",
        "attention.head_count",
        "attention.layer_norm_rms_epsilon",
    ] {
        let key = format!("qwen3.{key}");
        let e = refused(|w| _ = w.remove_key(&key));
        assert!(matches!(&e, ModelError::Gguf(GgufError::MissingKey { key: k }) if *k == key), "{e}");
    }
    for bad in [f32::NAN, f32::INFINITY, -1.0] {
        let e = refused(|w| _ = w.key("qwen3.attention.layer_norm_rms_epsilon", bad));
        assert!(matches!(e, ModelError::Config { .. }), "{e}");
        let e = refused(|w| _ = w.key("qwen3.rope.freq_base", bad));
        assert!(matches!(e, ModelError::Config { .. }), "{e}");
    }
    let e = refused(|w| _ = w.key("qwen3.block_count", "two"));
    assert!(e.to_string().contains("holds the string \"two\""), "{e}");
    // The number of key heads is the number of heads only if the file does not say.
    let mut w = Synthetic { kv_heads: 2, ..small() }.writer();
    w.remove_key("qwen3.attention.head_count_kv");
    assert_eq!(model(&w).unwrap().config().kv_heads, 2);
}

#[test]
fn unknown_architectures_and_scalings_are_refused_with_the_reason() {
    let e = refused(|w| _ = w.key("general.architecture", "mamba"));
    let said = e.to_string();
    let supported =
        said.strip_prefix("architecture `mamba` is not supported; supported are `qwen3`, `qwen3moe`, ").unwrap();
    assert!(supported.ends_with("`falcon`, `llama4`, `hunyuan-dense` and `hunyuan-moe`"), "{said}");
    assert_eq!(supported.matches('`').count() / 2 + 2, Architecture::ALL.len(), "{said}");
    let e = refused(|w| _ = w.key("qwen3.rope.scaling.type", "longrope").key("qwen3.rope.scaling.factor", 4f32));
    assert!(e.to_string().contains("`none`, `linear` and `yarn`"), "{e}");
    let e = refused(|w| _ = w.key("qwen3.rope.scaling.type", "linear").key("qwen3.rope.scaling.factor", 0f32));
    assert!(e.to_string().contains("above zero"), "{e}");
    let linear = Synthetic { linear_scale: Some(4.0), ..small() }.file();
    assert_eq!(linear.config().rope.scale, 4.0);
}

#[test]
fn tensors_of_wrong_shape_type_or_presence_are_refused() {
    let replace = |name: &'static str, dims: &'static [u64]| {
        refused(move |w| {
            w.remove_tensor(name);
            let n = dims.iter().product::<u64>() as usize;
            w.tensor_f32(name, dims, &vec![0.5; n]).unwrap();
        })
    };
    let e = replace("blk.0.attn_k.weight", &[32, 32]);
    assert!(e.to_string().contains("`blk.0.attn_k.weight` has the shape [32, 32], expected [32, 16]"), "{e}");
    assert!(matches!(replace("output_norm.weight", &[31]), ModelError::TensorShape { .. }));
    assert!(matches!(replace("output_norm.weight", &[32, 2]), ModelError::TensorShape { .. }));
    assert!(matches!(replace("output.weight", &[32, 9]), ModelError::TensorShape { .. }));
    // Transposed is not the same, even with as many elements.
    assert!(matches!(replace("blk.0.attn_q_norm.weight", &[4, 4]), ModelError::TensorShape { .. }));

    for name in ["blk.0.ffn_up.weight", "output_norm.weight", "token_embd.weight", "blk.0.attn_q_norm.weight"] {
        let e = refused(|w| _ = w.remove_tensor(name));
        assert!(matches!(&e, ModelError::MissingTensor { tensor, .. } if tensor == name), "{e}");
    }
    let e = refused(|w| {
        w.remove_tensor("blk.0.ffn_up.weight");
        w.tensor("blk.0.ffn_up.weight", &[32, 32], TensorType::Q8_1, vec![0; 36 * 32]).unwrap();
    });
    assert!(e.to_string().contains("has type Q8_1, supported here: F32, F16, BF16, Q1_0"), "{e}");
    let e = refused(|w| {
        w.remove_tensor("output_norm.weight");
        w.tensor("output_norm.weight", &[32], TensorType::F16, vec![0; 64]).unwrap();
    });
    assert!(matches!(e, ModelError::TensorType { actual: "F16", .. }), "{e}");
    // Without an own output tensor the embeddings serve, and say so.
    let tied = Synthetic { tied: true, ..small() }.file();
    assert!(tied.tied() && tied.output() == tied.embedding());
}

#[test]
fn tensors_that_would_change_the_result_are_refused_and_others_ignored() {
    for name in [
        "blk.0.attn_q.bias",
        "output.bias",
        "output.scale",
        "blk.0.ffn_gate_inp.weight",
        "blk.0.ffn_up_exps.weight",
        "blk.0.attn_sub_norm.weight",
        "token_embd_norm.weight",
        "rope_factors_long.weight",
        "blk.0.anything.weight",
    ] {
        let e = refused(|w| _ = w.tensor_f32(name, &[1], &[0.0]).unwrap());
        assert!(matches!(&e, ModelError::UnsupportedTensor { tensor, .. } if tensor == name), "{e}");
    }
    let mut llama = Synthetic { architecture: "llama", ..small() }.writer();
    llama.tensor_f32("blk.0.attn_q_norm.weight", &[16], &[1.0; 16]).unwrap();
    assert!(matches!(model(&llama), Err(ModelError::UnsupportedTensor { .. })));
    let mut w = small().writer();
    w.tensor_f32("note", &[1], &[0.0]).unwrap().tensor_f32("blk.1.nextn.eh_proj.weight", &[1], &[0.0]).unwrap();
    model(&w).unwrap();
}

#[test]
fn a_scale_that_is_not_finite_is_refused_with_tensor_and_block() {
    for (bits, name) in [(0x7e00u16, "NaN"), (0x7c00, "inf"), (0xfc00, "-inf")] {
        let e = refused(|w| {
            let data = w.tensor_data_mut("blk.0.attn_v.weight").unwrap();
            data[3 * 18..3 * 18 + 2].copy_from_slice(&bits.to_le_bytes());
        });
        let text = e.to_string();
        assert!(text.contains("blk.0.attn_v.weight") && text.contains("block 3") && text.contains(name), "{text}");
    }
    let e = refused(|w| w.tensor_data_mut("output_norm.weight").unwrap()[..4].copy_from_slice(&[0, 0, 0xc0, 0x7f]));
    assert!(e.to_string().contains("output_norm.weight"), "{e}");
}
