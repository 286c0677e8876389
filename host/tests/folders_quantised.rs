//! Damaged quantised checkpoints: each is refused by an error that names the tensor or the key.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::folder::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::Path;
use warpsmith_host::checkpoint::CheckpointError;
use warpsmith_host::model::{ModelError, ModelFile};

const WHOLE: &str = "model.safetensors";
const QUERIES: &str = "model.layers.1.self_attn.q_proj";

fn refused(folder: &Path) -> String {
    match ModelFile::open(folder) {
        Ok(_) => panic!("it opened"),
        Err(e) => e.to_string(),
    }
}

/// The error of the model of this name with another header, or other bytes.
fn stored(name: &str, change: impl FnOnce(&mut Value, &mut Vec<u8>)) -> String {
    let folder = copy(name);
    rewrite(&folder.path().join(WHOLE), change);
    refused(folder.path())
}

fn poked(name: &str, tensor: &str, at: usize, bytes: &[u8]) -> String {
    let folder = copy(name);
    poke(&folder.path().join(WHOLE), tensor, at, bytes);
    refused(folder.path())
}

#[test]
fn methods_that_are_not_implemented_are_refused_by_name() {
    type Change = fn(&mut Value);
    let cases: [(&str, Change, &str); 29] = [
        ("gptq", |q| q["quant_method"] = json!("bitsandbytes"), "`bitsandbytes` is not supported"),
        (
            "gptq",
            |q| _ = q.as_object_mut().unwrap().remove("quant_method"),
            "`quantization_config.quant_method` is missing",
        ),
        ("gptq", |q| *q = json!("gptq"), "`quantization_config` is \"gptq\", expected an object"),
        ("gptq", |q| q["bits"] = json!(5), "with 5 bits; with 2, 3, 4 and 8 it is"),
        ("gptq", |q| q["bits"] = json!(3), "words for 32 inputs each"),
        ("gptq3", |q| q["bits"] = json!(2), "shape"),
        ("gptq", |q| q["bits"] = json!(8), "shape"),
        ("gptq", |q| q["group_size"] = json!(0), "`quantization_config.group_size` is 0"),
        ("gptq", |q| q["group_size"] = json!(32.5), "is 32.5"),
        ("gptq", |q| q["group_size"] = json!(64), "into group 1, but there are 1"),
        ("gptq", |q| q["group_size"] = json!(-1), "into group 1, but there are 1"),
        ("gptq", |q| q["checkpoint_format"] = json!("marlin"), "in the form \"marlin\""),
        ("gptq", |q| q["dynamic"] = json!({"x": {}}), "`dynamic`"),
        ("gptq", |q| q["pack_dtype"] = json!("int16"), "`pack_dtype`"),
        ("gptq", |q| q["quant_method"] = json!("fp8"), "is not supported"),
        ("awq", |q| q["version"] = json!("gemv_fast"), "in the form \"gemv_fast\""),
        ("awq", |q| q["bits"] = json!(8), "with 8 bits"),
        ("awq", |q| q["zero_point"] = json!(false), "`zero_point`"),
        ("fp8-block", |q| q["weight_block_size"] = json!([32]), "`quantization_config.weight_block_size`"),
        ("fp8-block", |q| q["weight_block_size"] = json!([0, 32]), "`quantization_config.weight_block_size`"),
        ("fp8-block", |q| q["weight_block_size"] = json!([16, 40]), "one scale for each block"),
        ("nvfp4", |q| q["quant_algo"] = json!("W4A8_AWQ"), "with \"W4A8_AWQ\""),
        (
            "nvfp4",
            |q| _ = q.as_object_mut().unwrap().remove("quant_algo"),
            "`quantization_config.quant_algo` is missing",
        ),
        ("nvfp4", |q| q["group_size"] = json!(32), "in groups of 32"),
        ("nvfp4-packed", |q| q["config_groups"]["group_0"]["weights"]["group_size"] = json!(32), "in groups of 32"),
        (
            "nvfp4-packed",
            |q| q["config_groups"]["group_0"]["weights"]["strategy"] = json!("group"),
            "4 bits and scales by group",
        ),
        ("packed4", |q| q["config_groups"]["group_1"] = json!({"weights": {"num_bits": 8}}), "several ways"),
        ("packed4", |q| q["config_groups"]["group_0"]["weights"]["num_bits"] = json!(2), "2 bits and scales by group"),
        ("packed4", |q| q["config_groups"] = json!({}), "says nothing of weights"),
    ];
    for (name, change, says) in cases {
        let folder = copy(name);
        edit(&folder.path().join("config.json"), |c| change(&mut c["quantization_config"]));
        let e = refused(folder.path());
        assert!(e.contains(says), "{name}: {e}\nexpected {says}");
    }
    // Older checkpoints have a file of its own for it.
    let folder = copy("gptq");
    let mut stated = Value::Null;
    edit(&folder.path().join("config.json"), |c| {
        stated = c.as_object_mut().unwrap().remove("quantization_config").unwrap();
        stated.as_object_mut().unwrap().remove("quant_method");
    });
    std::fs::write(folder.path().join("quantize_config.json"), stated.to_string()).unwrap();
    ModelFile::open(folder.path()).unwrap();
    edit(&folder.path().join("quantize_config.json"), |q| q["bits"] = json!(5));
    assert!(refused(folder.path()).contains("with 5 bits"));
    // Without the configuration nobody knows what the tensors are.
    let folder = copy("gptq");
    edit(&folder.path().join("config.json"), |c| _ = c.as_object_mut().unwrap().remove("quantization_config"));
    assert!(refused(folder.path()).contains("is not supported"));
}

#[test]
fn groups_that_do_not_exist_are_refused_by_their_column() {
    let index = format!("{QUERIES}.g_idx");
    for group in [2i32, -1, i32::MAX, i32::MIN] {
        let folder = copy("gptq");
        poke(&folder.path().join(WHOLE), &index, 4 * 7, &group.to_le_bytes());
        let e = ModelFile::open(folder.path()).unwrap_err();
        let ModelError::Checkpoint(CheckpointError::GroupIndex { tensor, column, group: g, groups }) = &e else {
            panic!("{e}")
        };
        assert_eq!((tensor, *column, *g, *groups), (&index, 7, group, 2));
    }
    let e = stored("gptq", |h, _| h[&index]["shape"] = json!([64, 1]));
    assert!(e.contains(&index) && e.contains("one number for each column"), "{e}");
    let e = stored("gptq", |h, _| h[&index]["dtype"] = json!("F32"));
    assert!(e.contains(&index) && e.contains("has type F32, supported here: I32"), "{e}");
}

#[test]
fn parts_that_are_missing_or_do_not_fit_each_other_are_named() {
    let at = |part: &str| format!("{QUERIES}.{part}");
    for (name, parts) in [
        ("gptq", &["qzeros", "scales"][..]),
        ("awq", &["qzeros", "scales"]),
        ("packed4", &["weight_shape", "weight_scale", "weight_zero_point"]),
        ("fp8-tensor", &["weight_scale"]),
        ("fp8-channel", &["weight_scale"]),
        ("nvfp4", &["weight_scale", "weight_scale_2"]),
        ("nvfp4-packed", &["weight_scale", "weight_global_scale"]),
    ] {
        for part in parts {
            let e = stored(name, |h, _| {
                let tensor = h.as_object_mut().unwrap().remove(&at(part)).unwrap();
                h["left.out"] = tensor;
            });
            assert!(e.contains(&format!("tensor `{}` is missing", at(part))), "{name} {part}: {e}");
        }
    }
    for (name, part, shape) in [
        ("gptq", "qweight", json!([512])),
        ("gptq", "qzeros", json!([8, 2])),
        ("gptq", "scales", json!([64, 2])),
        ("awq", "qweight", json!([8, 64])),
        ("awq", "qzeros", json!([16, 1])),
        ("packed4", "weight_scale", json!([2, 64])),
        ("packed4", "weight_zero_point", json!([2, 8])),
        ("fp8-channel", "weight_scale", json!([1, 64])),
        ("nvfp4", "weight", json!([128, 16])),
        ("nvfp4", "weight_scale", json!([4, 64])),
        ("nvfp4-packed", "weight_scale", json!([128, 2])),
    ] {
        let e = stored(name, |h, _| h[at(part)]["shape"] = shape);
        assert!(e.contains(QUERIES) && e.contains("has the shape"), "{name} {part}: {e}");
    }
    for (name, part, dtype) in [
        ("gptq", "qweight", "F32"),
        ("gptq", "qzeros", "F32"),
        ("gptq", "scales", "I16"),
        ("fp8-block", "weight", "I8"),
        ("nvfp4", "weight_scale", "U8"),
        ("nvfp4-packed", "weight_packed", "I8"),
    ] {
        let e = stored(name, |h, _| h[at(part)]["dtype"] = json!(dtype));
        assert!(e.contains(&at(part)) && e.contains(&format!("has type {dtype}")), "{name} {part}: {e}");
    }
    let e = poked("packed4", &at("weight_shape"), 8, &65i64.to_le_bytes());
    assert!(e.contains(&at("weight_packed")) && e.contains("[64, 65] weights"), "{e}");
    let e = poked("packed4", &at("weight_shape"), 0, &(-1i64).to_le_bytes());
    assert!(e.contains(&at("weight_packed")), "{e}");
    // Zeros in every bias add nothing; another number does.
    let e = poked("gptq", "model.layers.0.mlp.down_proj.bias", 2, &[0, 0x3c]);
    assert!(e.contains("`model.layers.0.mlp.down_proj.bias` is not supported"), "{e}");
}

#[test]
fn scales_that_records_do_not_hold_are_named_by_their_row() {
    let infinite = half::f16::INFINITY.to_le_bytes();
    let e = poked("gptq", "model.layers.0.self_attn.v_proj.scales", 2 * 5, &infinite);
    assert!(e.contains("v_proj.scales` has the scale inf for row 5"), "{e}");
    // Of bf16, which holds what f16 does not.
    let e = poked("packed4", &format!("{QUERIES}.weight_scale"), 0, &half::bf16::from_f32(1e6).to_le_bytes());
    assert!(e.contains("weight_scale` has the scale") && e.contains("for row 0"), "{e}");
    // Of columns in another order; weights that become F16 are told where they are.
    let nan = half::f16::NAN.to_le_bytes();
    let e = poked("gptq", &format!("{QUERIES}.scales"), 2 * 5, &nan);
    assert!(e.contains("q_proj.scales` has the scale NaN for row 5"), "{e}");
    let e = poked("gptq-order", "model.layers.1.self_attn.o_proj.scales", 2 * 5, &nan);
    assert!(e.contains("blk.1.attn_output.weight"), "{e}");
    let e = poked("fp8-block", &format!("{QUERIES}.weight"), 64, &[0x7f]);
    assert!(e.contains("blk.1.attn_q.weight") && e.contains("row 1"), "{e}");
    // Of 16 columns; of a matrix, as a factor and as a divisor.
    for scale in [0x7f, 0xb8] {
        let e = poked("nvfp4", &format!("{QUERIES}.weight_scale"), 5, &[scale]);
        // The second row of a head, whose halves take turns in GGUF.
        assert!(e.contains("blk.1.attn_q.weight") && e.contains("row 2, columns 0..64"), "{e}");
    }
    let e = poked("nvfp4", &format!("{QUERIES}.weight_scale_2"), 0, &f32::INFINITY.to_le_bytes());
    assert!(e.contains("weight_scale_2` has the scale inf"), "{e}");
    let e = poked("nvfp4-packed", &format!("{QUERIES}.weight_global_scale"), 0, &0f32.to_le_bytes());
    assert!(e.contains("weight_global_scale` has the scale 0"), "{e}");
    let e = poked("fp8-wide", "model.layers.0.self_attn.q_proj.weight", 128, &[0xff]);
    assert!(e.contains("blk.0.attn_q.weight") && e.contains("row 1, columns 0..128"), "{e}");
    let e = poked("fp8-tensor", &format!("{QUERIES}.weight_scale"), 0, &half::bf16::from_f32(1e9).to_le_bytes());
    assert!(e.contains("blk.1.attn_q.weight"), "{e}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// Bytes that change anywhere in a quantised checkpoint's header or tensors, or in its configuration: an error or a model, and no
    /// panic.
    #[test]
    fn damaged_quantised_checkpoints_never_panic(
        which in 0usize..9, damage in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..9), config in any::<bool>()
    ) {
        let folder = copy(["gptq", "awq", "packed4", "fp8-channel", "fp8-block", "fp8-wide", "nvfp4", "nvfp4-packed", "gptq-order"][which]);
        let path = folder.path().join(if config { "config.json" } else { WHOLE });
        let mut bytes = std::fs::read(&path).unwrap();
        // Headers are where most can go wrong.
        let len = bytes.len();
        for (i, (at, value)) in damage.into_iter().enumerate() {
            bytes[at % if i % 2 == 0 { len.min(6000) } else { len }] = value;
        }
        std::fs::write(&path, bytes).unwrap();
        match ModelFile::open(folder.path()) {
            Ok(model) => prop_assert_eq!(model.layers().len(), if which == 5 { 1 } else { 2 }),
            Err(e) => prop_assert!(!e.to_string().is_empty()),
        }
    }
}
