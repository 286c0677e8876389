//! Formats that llama.cpp has tables for, and NVFP4: models against what llama.cpp generates from them, and scales of matrices in tensors of
//! their own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "common/agree.rs"]
mod agree;
#[path = "common/alone.rs"]
mod alone;
mod common;
#[path = "common/device.rs"]
mod device;

use agree::*;
use common::*;
use device::*;
use gpu_kernels::format::Format;
use std::path::Path;
use warpsmith_host::decode::{KvType, Mode, Session};
use warpsmith_host::gguf::{Gguf, GgufWriter, TensorType};
use warpsmith_host::model::{ModelError, ModelFile};
use warpsmith_host::reference::{KvRounding, Reference};

/// A model of one format, which is left behind as a file for `data/greedy_formats.py`.
fn of_format(format: Format, seed: u64) -> ModelFile {
    let formats = vec![format];
    let model = Synthetic { formats, hidden: 256, feed_forward: 256, layers: 1, vocab: 48, seed, ..Default::default() };
    let mut w = model.writer();
    w.key("tokenizer.ggml.model", "none").key("qwen3.vocab_size", 48u32);
    w.write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("greedy-{format}.gguf"))).unwrap();
    file(&w).unwrap()
}

/// What llama.cpp generates: `data/greedy_formats.py` prints it.
#[test]
fn greedy_text_is_that_of_llama_cpp() {
    use Format::*;
    let texts = [
        (NVFP4, 9, [16, 44, 31, 15, 29, 15, 29, 15, 29, 9, 27, 24]),
        (IQ3_XXS, 9, [23, 26, 0, 4, 23, 31, 16, 36, 25, 0, 11, 41]),
        (IQ3_S, 3, [19, 3, 20, 40, 33, 13, 44, 16, 37, 10, 4, 19]),
        (IQ2_XXS, 3, [43, 26, 8, 19, 2, 35, 3, 27, 28, 18, 9, 28]),
        (IQ2_XS, 3, [32, 17, 36, 16, 2, 23, 42, 16, 34, 41, 27, 45]),
        (IQ2_S, 10, [1, 47, 0, 25, 45, 19, 18, 29, 3, 14, 20, 46]),
        (IQ1_S, 2, [38, 9, 29, 41, 19, 43, 1, 6, 9, 29, 32, 13]),
        (IQ1_M, 1, [39, 41, 33, 27, 35, 14, 36, 32, 14, 36, 32, 23]),
    ];
    let models = texts.map(|(format, seed, _)| of_format(format, seed));
    for (model, (format, _, text)) in models.iter().zip(texts) {
        greedy_text_of(model, format.name(), text);
    }
}

const TOKENS: [u32; 5] = [3, 1, 4, 1, 5];

fn written() -> GgufWriter {
    let formats = vec![Format::NVFP4];
    Synthetic { architecture: "qwen3moe", experts: Some((3, 2)), layers: 1, formats, ..Default::default() }.writer()
}

/// Names and numbers of the scales of all matrices of NVFP4: powers of two would hide a rounding.
fn scales(file: &Gguf) -> Vec<(String, Vec<f32>)> {
    let mut rng = Rng(5);
    let kinds = file.tensors().iter().filter(|t| t.kind == TensorType::NVFP4);
    let count = |dims: &[u64]| dims.get(2).copied().unwrap_or(1);
    let of = |n: u64, rng: &mut Rng| (0..n).map(|_| (0.6 + rng.unit()) as f32).collect();
    kinds.map(|t| (t.name.replace(".weight", ""), of(count(&t.dims), &mut rng))).collect()
}

fn logits(file: &ModelFile) -> Vec<u64> {
    let mut r = Reference::new(file, KvRounding::None);
    TOKENS.iter().flat_map(|t| r.feed(*t).unwrap().logits.iter().map(|x| x.to_bits()).collect::<Vec<_>>()).collect()
}

#[test]
fn a_scale_beside_a_matrix_is_as_one_in_its_blocks() {
    let mut beside = written();
    let file = Gguf::from_bytes(beside.to_bytes()).unwrap();
    let all = scales(&file);
    assert!(all.len() > 6 && all.iter().any(|(_, s)| s.len() == 3));
    let mut within = written();
    for (name, scales) in &all {
        beside.tensor_f32(format!("{name}.scale"), &[scales.len() as u64], scales).unwrap();
        // Of activations, which are none of four bits here.
        beside.tensor_f32(format!("{name}.input_scale"), &[1], &[7.0]).unwrap();
        let weight = format!("{name}.weight");
        let t = file.tensor(&weight).unwrap();
        let bytes = t.data.to_vec().unwrap();
        let each = bytes.len() / scales.len();
        let scaled = bytes.chunks(each).zip(scales).flat_map(|(matrix, scale)| {
            matrix.chunks(36).flat_map(|block| [block, &scale.to_le_bytes()].concat()).collect::<Vec<u8>>()
        });
        within.remove_tensor(&weight);
        within.tensor(weight, &t.info.dims, TensorType::NVFP4_SCALED, scaled.collect()).unwrap();
    }
    let open = |w: &GgufWriter| ModelFile::from_gguf(Gguf::from_bytes(w.to_bytes()).unwrap()).unwrap();
    let (beside, within, plain) = (open(&beside), open(&within), open(&written()));
    assert_eq!(beside.layers()[0].attn_output.format, Format::NVFP4_SCALED);
    assert!(logits(&beside) == logits(&within) && logits(&beside) != logits(&plain));
    // Some rows, from any byte on.
    let matrix = &beside.layers()[0].down;
    let (data, whole) = (beside.data(matrix), within.data(matrix).to_vec().unwrap());
    assert!(data.to_vec().unwrap() == whole);
    for (at, len) in [(0, 1), (39, 2), (36, 4), (41, 200), (whole.len() - 45, 45)] {
        let mut part = vec![0; len];
        data.read(at, &mut part).unwrap();
        assert_eq!(part, whole[at..at + len], "{at} {len}");
    }
    // On the device, to the bit.
    let fed = |file: &ModelFile| {
        let model = load(file);
        let mut session = Session::new(&model, exact(Mode::Graph, KvType::F32)).unwrap();
        let mut all = Vec::new();
        for token in TOKENS {
            session.feed(token).unwrap();
            all.extend(session.logits().unwrap().iter().map(|x| x.to_bits()));
        }
        all
    };
    assert!(fed(&beside) == fed(&within));
}

#[test]
fn scales_that_are_no_numbers_or_of_another_shape_are_refused_by_name() {
    let refused = |name: &str, dims: &[u64], values: &[f32]| {
        let mut w = written();
        w.tensor_f32(name, dims, values).unwrap();
        ModelFile::from_gguf(Gguf::from_bytes(w.to_bytes()).unwrap()).unwrap_err()
    };
    let shape = |e: &ModelError, name: &str| matches!(e, ModelError::TensorShape { tensor, .. } if tensor == name);
    let e = refused("blk.0.attn_q.scale", &[2], &[1.0; 2]);
    assert!(shape(&e, "blk.0.attn_q.scale"), "{e}");
    let e = refused("blk.0.ffn_up_exps.scale", &[2], &[1.0; 2]);
    assert!(shape(&e, "blk.0.ffn_up_exps.scale"), "{e}");
    let e = refused("blk.0.attn_q.scale", &[1], &[f32::NAN]);
    assert!(e.to_string().contains("blk.0.attn_q.scale"), "{e}");
    // More than a record holds.
    let e = refused("blk.0.attn_q.scale", &[1], &[1e37]);
    assert!(e.to_string().contains("blk.0.attn_q.weight") && e.to_string().contains("scale"), "{e}");
    // Of the router, which is of f32.
    let e = refused("blk.0.ffn_gate_inp.scale", &[1], &[1.0]);
    assert!(matches!(e, ModelError::UnsupportedTensor { .. }), "{e}");
}
