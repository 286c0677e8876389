//! Type id 42 has three layouts in use; a file is read as the one that it must be, or refused.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Synthetic, random_matrix};
use gpu_kernels::{cases::Rng, format::Format};
use warpsmith_host::gguf::{Gguf, GgufError, GgufWriter, TensorType};
use warpsmith_host::model::ModelFile;

/// Ternary blocks of 128 as OxiBonsai writes them, or with the scale in front, as PrismML did.
fn ternary(seed: u64, blocks: usize, scale_first: bool) -> Vec<u8> {
    let mut rng = Rng(seed);
    let mut bytes = Vec::new();
    for _ in 0..blocks {
        let scale = half::f16::from_f32(0.02 + 0.01 * rng.unit()).to_le_bytes();
        let codes: Vec<u8> = (0..32).map(|_| (0..4).fold(0, |b, _| b << 2 | rng.within(0, 2) as u8)).collect();
        if scale_first {
            bytes.extend(scale);
            bytes.extend(codes);
        } else {
            bytes.extend(codes);
            bytes.extend(scale);
        }
    }
    bytes
}

fn two(kind: TensorType, cols: u64, first: Vec<u8>, second: Vec<u8>) -> Result<Gguf, GgufError> {
    let mut w = GgufWriter::new();
    w.tensor("first", &[cols, 16], kind, first).unwrap();
    w.tensor("second", &[cols, 16], kind, second).unwrap();
    w.tensor_f32("norm", &[4], &[1.0; 4]).unwrap();
    Gguf::from_bytes(w.to_bytes())
}

fn reason(result: Result<Gguf, GgufError>) -> &'static str {
    match result.unwrap_err() {
        GgufError::AmbiguousType { reason, .. } => reason,
        e => panic!("{e}"),
    }
}

#[test]
fn sizes_tell_ggml_from_the_others_and_contents_tell_those() {
    let kinds = |f: Gguf| ["first", "second"].map(|n| f.tensor(n).unwrap().info.kind);
    let mut rng = common::Rng(3);
    let mut ggml = || random_matrix(&mut rng, Format::Q2_0, 16, 1024, 0.02);
    let f = two(TensorType::Q2_0, 1024, ggml(), ggml()).unwrap();
    assert_eq!(f.tensor("first").unwrap().data.len(), 16 * 1024 / 64 * 18);
    assert_eq!(kinds(f), [TensorType::Q2_0; 2]);

    let f = two(TensorType::TQ2_0_G128, 1024, ternary(1, 128, false), ternary(2, 128, false)).unwrap();
    assert_eq!(f.tensor("first").unwrap().data.to_vec().unwrap(), ternary(1, 128, false));
    assert_eq!(kinds(f), [TensorType::TQ2_0_G128; 2]);
    let f = two(TensorType::TQ2_0_G128, 1024, ternary(1, 128, true), ternary(2, 128, true)).unwrap();
    assert_eq!(kinds(f), [TensorType::PQ2_0; 2]);
}

#[test]
fn a_file_that_is_none_or_several_is_refused() {
    let of = |first, second| two(TensorType::TQ2_0_G128, 1024, first, second);
    // Tensors of one file that contradict each other.
    assert_eq!(reason(of(ternary(1, 128, true), ternary(2, 128, false))), "its contents make sense neither way");
    // Code 3, negative scales, scales that are no numbers.
    let mut bytes = ternary(1, 128, false);
    bytes[34 * 5 + 7] = 0xFF;
    assert_eq!(reason(of(bytes, ternary(2, 128, false))), "its contents make sense neither way");
    let mut bytes = ternary(1, 128, false);
    bytes[33] |= 0x80;
    assert_eq!(reason(of(bytes, ternary(2, 128, false))), "its contents make sense neither way");
    // All codes 0x15 and the scale 0x1515: the same both ways.
    assert_eq!(reason(of(vec![0x15; 128 * 34], vec![0x15; 128 * 34])), "its contents make sense both ways");
    // 128 weights take 36 or 34 bytes, and 64 with the padding.
    let mut w = GgufWriter::new();
    w.tensor("tiny", &[128], TensorType::Q2_0, vec![0; 36]).unwrap();
    w.tensor_f32("norm", &[4], &[1.0; 4]).unwrap();
    assert_eq!(reason(Gguf::from_bytes(w.to_bytes())), "the tensors are too small to tell by their sizes");
    // Bytes of another type under the id.
    let mut w = GgufWriter::new();
    w.tensor("other", &[1024, 16], TensorType::Q8_0, vec![0; 512 * 34]).unwrap();
    w.tensor_f32("norm", &[4], &[1.0; 4]).unwrap();
    let mut bytes = w.to_bytes();
    let at = bytes.windows(5).position(|w| w == b"other").unwrap() + 5 + 4 + 16;
    assert_eq!(bytes[at], 8);
    bytes[at] = 42;
    assert_eq!(reason(Gguf::from_bytes(bytes)), "the tensor has the size of none of them");
}

#[test]
fn weights_for_transformed_activations_are_refused() {
    let model = Synthetic { formats: vec![Format::PQ2_0], ..Default::default() };
    assert_eq!(model.file().output().format, Format::PQ2_0);
    let mut w = model.writer();
    w.key("prism.hadamard.block_size", 128u32);
    let e = ModelFile::from_gguf(Gguf::from_bytes(w.to_bytes()).unwrap()).unwrap_err();
    assert!(e.to_string().contains("prism.hadamard") && e.to_string().contains("not supported"), "{e}");
}
