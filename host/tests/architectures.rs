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
        let matrix = matrix.as_ref().unwrap();
        let got = file.data(matrix).to_vec().unwrap();
        assert!(got == all("blk.1.attn_qkv.weight")[first * row..(first + rows) * row], "{}", matrix.name);
        first += rows;
    }
    let gate = layer.gate.as_ref().unwrap();
    let both = [gate, &layer.up].map(|m| file.data(m).to_vec().unwrap());
    assert!(both.concat() == all("blk.1.ffn_up.weight"));
    assert_eq!(both[0].len(), f * row);
    // Rows that the tensor does not have are nothing.
    let beyond = warpsmith_host::model::Matrix { first_row: 33, ..gate.clone() };
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

#[test]
fn windows_and_rotations_of_layers_are_as_the_architecture_or_the_file_says() {
    let model = Synthetic { layers: 13, window: 5, ..small("gemma3") };
    let open = |change: &dyn Fn(&mut GgufWriter)| {
        let mut w = model.writer();
        w.key("gemma3.rope.freq_base", 1e6f32)
            .key("gemma3.rope.scaling.type", "linear")
            .key("gemma3.rope.scaling.factor", 8f32);
        change(&mut w);
        within(&w, usize::MAX)
    };
    let usual = open(&|_| ()).unwrap();
    let c = usual.config();
    let windows: Vec<usize> = (0..13).map(|layer| c.window_of(layer)).collect();
    assert_eq!(windows, [5, 5, 5, 5, 5, 0, 5, 5, 5, 5, 5, 0, 5]);
    let rotation = |layer| c.rope_of(layer).map(|r| (r.base, r.scale));
    assert_eq!((rotation(4), rotation(5), rotation(12)), (Some((1e4, 1.0)), Some((1e6, 8.0)), Some((1e4, 1.0))));
    // Pages behind the windows stay, as long as a layer sees all of them.
    assert_eq!(c.reach(), 0);
    assert_eq!(Synthetic { window: 5, ..small("llama") }.file().config().reach(), 5);
    let other = open(&|w| {
        w.key("gemma3.attention.sliding_window_pattern", 2u32).key("gemma3.rope.freq_base_swa", 5e3f32);
    });
    let other = other.unwrap();
    let c = other.config();
    assert_eq!((c.window_of(0), c.window_of(1), c.rope_of(2).map(|r| r.base)), (5, 0, Some(5e3)));
    // A window as wide as the context is none, but the layers rotate as they did.
    let wide = open(&|w| _ = w.key("gemma3.attention.sliding_window", 64u32)).unwrap();
    assert_eq!((wide.config().window_of(0), wide.config().rope_of(0).map(|r| r.base)), (0, Some(1e4)));
    for (key, value) in [("gemma3.rope.freq_base_swa", 0f32), ("gemma3.rope.freq_base_swa", f32::NAN)] {
        let e = open(&|w| _ = w.key(key, value)).unwrap_err();
        assert!(matches!(&e, ModelError::Config { key: k, .. } if k == key), "{e}");
    }
    let e = open(&|w| _ = w.key("gemma3.attention.sliding_window_pattern", 0u32)).unwrap_err();
    assert!(e.to_string().contains("one or more"), "{e}");
    let e = refused("llama", |w| _ = w.key("llama.attention.sliding_window_pattern", 2u32));
    assert!(e.to_string().contains("some of the layers"), "{e}");
}

#[test]
fn norms_behind_the_parts_of_a_layer_are_there_where_the_architecture_has_them() {
    for name in ["blk.1.post_attention_norm.weight", "blk.0.post_ffw_norm.weight"] {
        let e = refused("gemma3", |w| _ = w.remove_tensor(name));
        assert!(matches!(&e, ModelError::MissingTensor { tensor, .. } if tensor == name), "{e}");
        let e = refused("qwen3", |w| _ = w.tensor_f32(name, &[32], &[1.0; 32]).unwrap());
        assert!(matches!(&e, ModelError::UnsupportedTensor { tensor, .. } if tensor == name), "{e}");
    }
}

/// Gemma 3 27B: 5376 elements and 32 heads of 128; its scores are divided by the root of 168.
#[test]
fn scores_of_the_model_of_62_layers_are_divided_by_another_root() {
    let of = |layers, hidden| Synthetic { layers, hidden, heads: 2, kv_heads: 1, ..small("gemma3") }.file();
    assert_eq!(of(62, 48).config().score_scale, 1.0 / 24f64.sqrt());
    assert_eq!((of(61, 48).config().score_scale, of(2, 48).config().score_scale), (0.25, 0.25));
}

#[test]
fn caps_are_as_the_architecture_or_the_file_says() {
    let open = |change: &dyn Fn(&mut GgufWriter)| {
        let mut w = small("gemma2").writer();
        change(&mut w);
        within(&w, usize::MAX).map(|f| (f.config().score_cap, f.config().logit_cap))
    };
    assert_eq!(open(&|_| ()).unwrap(), (50.0, 30.0));
    let (score, logit) = ("gemma2.attn_logit_softcapping", "gemma2.final_logit_softcapping");
    assert_eq!(open(&|w| _ = w.key(score, 2f32).key(logit, 0f32)).unwrap(), (2.0, 0.0));
    for (key, value) in [(score, -1f32), (logit, f32::INFINITY), (score, f32::NAN)] {
        let e = open(&|w| _ = w.key(key, value)).unwrap_err();
        assert!(matches!(&e, ModelError::Config { key: k, .. } if k == key), "{e}");
    }
    let e = refused("gemma3", |w| _ = w.key("gemma3.final_logit_softcapping", 30f32));
    assert!(e.to_string().contains("capped logits are not supported"), "{e}");
    within(small("gemma3").writer().key("gemma3.final_logit_softcapping", 0f32), usize::MAX).unwrap();
}
