//! GPTQ's act-order on the device: the logits of another implementation with every kind of activations, the bits of a sequence in steps of any
//! kind, on several devices, what is launched and what it takes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "common/agree.rs"]
mod agree;
#[path = "common/alone.rs"]
mod alone;
mod common;
#[path = "common/device.rs"]
mod device;
#[path = "common/over.rs"]
mod over;
#[path = "../../collectives/tests/common/several.rs"]
mod several;

use agree::{memory_is_as_said, same_bits};
use common::{folder::folders, *};
use device::*;
use gpu_kernels::format::Format::{F16, Q4_0, Q5_0};
use over::same_over;
use several::devices;
use warpsmith_driver_api::software::{self, Checks};
use warpsmith_host::decode::{Activations, DecoderOptions, KvType, Mode, Model, NotPersistent, Session};
use warpsmith_host::model::ModelFile;

fn folder(name: &str) -> ModelFile {
    ModelFile::open(folders().join(name)).unwrap()
}

/// One order for several matrices, one for each, and none; downs of experts beside gates that are F16.
const NAMES: [&str; 2] = ["gptq-order", "gptq-experts"];

#[test]
fn every_kind_of_activations_gives_the_logits_of_another_implementation() {
    let _checked = software::check(Checks::ALL);
    for name in NAMES {
        let model = load(&folder(name));
        let want = read_f64(&folders().join(format!("{name}.logits.f64")));
        for (activations, bound) in [
            (Activations::F32, 1e-4),
            (Activations::F16x2, 2.0 / 1024.0),
            (Activations::Int16, 2.1e-3),
            (Activations::F16, 4.0 / 1024.0),
            (Activations::Int8, 0.35),
        ] {
            // What `verify` allows two layers.
            let bound = bound * 2f64.sqrt() * deviation(&want);
            for mode in [Mode::Eager, Mode::Graph] {
                let mut options = options(mode, KvType::F32);
                options.decoder = DecoderOptions { activations, persistent: true, ..options.decoder };
                let mut session = Session::new(&model, options).unwrap();
                for (token, want) in [3, 1, 4, 1, 5, 9, 2, 6, 47, 0].into_iter().zip(want.chunks(48)) {
                    session.feed(token).unwrap();
                    let logits = session.logits().unwrap();
                    let d = worst(logits.iter().map(|x| f64::from(*x)), want.iter().copied());
                    assert!(d < bound, "{name} {activations} {mode:?}: {d:e} of {bound:e}");
                }
            }
        }
    }
}

#[test]
fn a_sequence_has_the_same_bits_in_every_step() {
    same_bits(&load(&folder("gptq-order")));
}

/// The output of attention is divided by its inputs, and so of F16 there.
#[test]
fn several_devices_have_the_text_of_one() {
    let (all, _turn) = devices(2);
    let file = folder("gptq-order");
    let share = file.share(1, 2).unwrap();
    let formats = |file: &ModelFile| {
        let layer = &file.layers()[0];
        [&layer.attn_output, &layer.down, layer.q.as_ref().unwrap()].map(|m| (m.format, m.columns.is_some()))
    };
    assert_eq!(formats(&file), [(Q5_0, true), (Q5_0, false), (Q5_0, true)]);
    assert_eq!(formats(&share), [(F16, false), (Q5_0, false), (Q5_0, true)]);
    same_over("act-order", &file, &all, &[2]);
}

/// A launch for each order: of queries, keys and values together, of the output, and of gates and ups.
#[test]
fn activations_are_gathered_once_for_each_order() {
    let of = |name: &str, activations| {
        let mut options = options(Mode::Eager, KvType::F16);
        options.decoder.activations = activations;
        let mut session = Session::new(&load(&folder(name)), options).unwrap();
        session.feed(1).unwrap();
        let (_, profile) = session.profile(|s| s.feed(2)).unwrap();
        let launches = |name: &str| profile.kernels.iter().find(|k| k.name == name).map_or(0, |k| k.launches);
        (launches("gather"), launches("quantize_i16"), session.launches_per_step())
    };
    // The first layer has nine launches: gather, two products; attention; gather, output; gather, gates and ups; down. The second has two more for
    // queries and for keys, none for the output, one for gates; and ups and what comes of both are a launch each.
    assert_eq!(of("gptq-order", Activations::F32), (6, 0, 1 + 9 + 12 + 2));
    // What gates and ups give apart is quantized in a launch of its own.
    assert_eq!(of("gptq-order", Activations::Int16), (6, 1, 1 + 9 + 13 + 2));
    assert_eq!(of("awq", Activations::Int16).0, 0);
}

#[test]
fn layers_with_act_order_are_several_launches() {
    let options = DecoderOptions { persistent: true, activations: Activations::F32, ..Default::default() };
    let decoder = warpsmith_host::decode::Decoder::new(&load(&folder("gptq-order")), options).unwrap();
    assert_eq!((decoder.persistent_layers(), decoder.not_persistent()), (0, Some((0, NotPersistent::Columns))));
}

/// A weight takes the bits of its format, and an order four bytes a column.
#[test]
fn weights_with_act_order_keep_their_bits() {
    let file = folder("gptq-order");
    let mut bytes = 0;
    for (number, layer) in file.layers().iter().enumerate() {
        for m in layer.matrices() {
            let uneven = number == 1 && m.name.contains("attn_output");
            let symmetric =
                m.name.contains("attn_v") || m.name.contains("ffn_gate") || (number == 0 && m.name.contains("ffn_up"));
            let format = if uneven {
                F16
            } else if symmetric {
                Q4_0
            } else {
                Q5_0
            };
            assert_eq!(m.format, format, "{}", m.name);
            bytes += (16 * format.tensor_vectors(m.rows, m.cols).unwrap()).next_multiple_of(512);
        }
    }
    // Of 64 columns each: three orders in either layer.
    bytes += 6 * 512;
    // Embedding, head: 48 rows of 64 in F16. Norms.
    bytes += 2 * 48 * 64 * 2 + 5 * 512;
    assert_eq!(Model::device_bytes(&file).unwrap(), bytes as u64);
}

#[test]
fn memory_is_as_it_was_said() {
    in_its_own_process("inner_memory", "64M");
}

#[test]
#[ignore = "run by `memory_is_as_it_was_said` in a process of its own"]
fn inner_memory() {
    for name in NAMES {
        drop(memory_is_as_said(&folder(name)));
    }
}
