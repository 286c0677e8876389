//! What the loader says of files whose architecture adds something to Llama's, and what it makes of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::*;
use gpu_kernels::format::Format;
use warpsmith_host::gguf::{Gguf, GgufWriter};
use warpsmith_host::model::{ModelError, ModelFile};

fn small(architecture: &'static str) -> Synthetic {
    let (hidden, feed_forward, head_dim, vocab) = (32, 32, 16, 8);
    Synthetic { architecture, hidden, feed_forward, head_dim, vocab, formats: vec![Format::F16], ..Default::default() }
}

fn within(w: &GgufWriter, positions: usize) -> Result<ModelFile, ModelError> {
    ModelFile::from_gguf_within(Gguf::from_bytes(w.to_bytes()).unwrap(), positions)
}

fn refused(architecture: &'static str, change: impl FnOnce(&mut GgufWriter)) -> ModelError {
    let mut w = small(architecture).writer();
    change(&mut w);
    within(&w, usize::MAX).unwrap_err()
}

fn factors(w: &mut GgufWriter, name: &str, values: &[f32]) {
    w.tensor_f32(format!("rope_factors_{name}.weight"), &[values.len() as u64], values).unwrap();
}

#[test]
fn a_fused_tensor_is_read_as_the_matrices_in_it() {
    let w = small("phi3").writer();
    let file = within(&w, usize::MAX).unwrap();
    let (q, kv, f, row) = (64, 32, 32, 32 * 2);
    let all = |name: &str| file.gguf().tensor(name).unwrap().data.to_vec().unwrap();
    let layer = &file.layers()[1];
    let mut first = 0;
    for (matrix, rows) in [(&layer.q, q), (&layer.k, kv), (&layer.v, kv)] {
        let got = file.data(matrix).to_vec().unwrap();
        assert!(got == all("blk.1.attn_qkv.weight")[first * row..(first + rows) * row], "{}", matrix.name);
        first += rows;
    }
    let both = [&layer.gate, &layer.up].map(|m| file.data(m).to_vec().unwrap());
    assert!(both.concat() == all("blk.1.ffn_up.weight"));
    assert_eq!(both[0].len(), f * row);
    // Rows that the tensor does not have are nothing.
    let beyond = warpsmith_host::model::Matrix { first_row: 33, ..layer.gate.clone() };
    assert!(file.data(&beyond).is_empty());
}

#[test]
fn fused_tensors_of_other_shapes_and_separate_ones_are_refused() {
    let e = refused("phi3", |w| {
        w.remove_tensor("blk.0.attn_qkv.weight");
        w.tensor_f32("blk.0.attn_qkv.weight", &[32, 127], &[0.5; 32 * 127]).unwrap();
    });
    assert!(e.to_string().contains("shape [32, 127], expected [32, 128]"), "{e}");
    let e = refused("phi3", |w| _ = w.tensor_f32("blk.0.ffn_gate.weight", &[32, 32], &[0.5; 1024]).unwrap());
    assert!(matches!(&e, ModelError::UnsupportedTensor { tensor, .. } if tensor == "blk.0.ffn_gate.weight"), "{e}");
    let e = refused("phi3", |w| _ = w.remove_tensor("blk.1.attn_qkv.weight"));
    assert!(matches!(&e, ModelError::MissingTensor { tensor, .. } if tensor == "blk.1.attn_qkv.weight"), "{e}");
    let e = refused("llama", |w| {
        for part in ["q", "k", "v"] {
            w.remove_tensor(&format!("blk.0.attn_{part}.weight"));
        }
        w.tensor_f32("blk.0.attn_qkv.weight", &[32, 128], &[0.5; 32 * 128]).unwrap();
    });
    assert!(matches!(&e, ModelError::MissingTensor { tensor, .. } if tensor == "blk.0.attn_q.weight"), "{e}");
    // A weight that is not finite, in rows that are not the tensor's first.
    let e = refused("phi3", |w| {
        w.tensor_data_mut("blk.0.attn_qkv.weight").unwrap()[127 * 64..][..2].copy_from_slice(&[0, 0x7e]);
    });
    assert!(e.to_string().contains("blk.0.attn_qkv.weight") && e.to_string().contains("row 127"), "{e}");
}

#[test]
fn longrope_has_the_factors_of_its_context() {
    let mut w = small("phi3").writer();
    factors(&mut w, "short", &[1.0; 8]);
    factors(&mut w, "long", &[2.0; 8]);
    // Without another context of the first training it is the model's own.
    assert_eq!(within(&w, usize::MAX).unwrap().rope_freqs().unwrap(), [1.0; 8]);
    w.key("phi3.rope.scaling.original_context_length", 32u32);
    for (positions, factor, context) in
        [(usize::MAX, 2.0, 64), (64, 2.0, 64), (33, 2.0, 33), (32, 1.0, 32), (0, 1.0, 1)]
    {
        let file = within(&w, positions).unwrap();
        assert_eq!((file.rope_freqs().unwrap()[7], file.config().context), (factor, context), "{positions}");
    }
    // Nothing else depends on how long sequences are.
    assert_eq!(within(&small("llama").writer(), 8).unwrap().config().context, 64);
    assert_eq!(within(&small("phi3").writer(), 8).unwrap().config().context, 64);
}

#[test]
fn longrope_that_is_not_whole_is_refused() {
    let e = refused("phi3", |w| factors(w, "long", &[1.0; 8]));
    assert!(matches!(&e, ModelError::MissingTensor { tensor, .. } if tensor == "rope_factors_short.weight"), "{e}");
    let e = refused("phi3", |w| {
        factors(w, "short", &[1.0; 8]);
        factors(w, "long", &[1.0; 7]);
    });
    assert!(matches!(&e, ModelError::TensorShape { tensor, .. } if tensor == "rope_factors_long.weight"), "{e}");
    let e = refused("phi3", |w| {
        factors(w, "short", &[1.0; 8]);
        factors(w, "long", &[1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
    });
    assert!(e.to_string().contains("rope_factors_long.weight") && e.to_string().contains("above zero"), "{e}");
    let e = refused("phi3", |w| _ = w.key("phi3.rope.scaling.type", "longrope").key("phi3.rope.scaling.factor", 4f32));
    assert!(matches!(&e, ModelError::Config { key, .. } if key == "phi3.rope.scaling.type"), "{e}");
    let e = refused("llama", |w| _ = w.key("llama.rope.scaling.attn_factor", 1.2f32));
    assert!(e.to_string().contains("without yarn and longrope"), "{e}");
    let e = refused("phi3", |w| _ = w.key("phi3.rope.scaling.attn_factor", f32::NAN));
    assert!(matches!(&e, ModelError::Config { key, .. } if key == "phi3.rope.scaling.attn_factor"), "{e}");
}
