//! Faults that other decoders have shipped at limits and with bad input, each as a test under the number it has in
//! the project's notes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "common/device.rs"]
mod device;

use common::*;
use device::*;
use gpu_kernels::embed::Embed;
use gpu_kernels::format::Format;
use warpsmith_driver_api::software;
use warpsmith_host::decode::{
    DecodeError, DecoderOptions, KvType, Mode, Model, SequenceOptions, Session, SessionOptions,
};
use warpsmith_host::gguf::{Gguf, TensorType};
use warpsmith_host::model::ModelFile;

fn at_the_limit(mode: Mode, kv: KvType) {
    let file = Synthetic { layers: 2, ..Default::default() }.file();
    let model = load(&file);
    let o = SessionOptions {
        sequence: SequenceOptions { capacity: Some(5), kv, ..Default::default() },
        decoder: DecoderOptions { mode, ..Default::default() },
    };
    let mut s = Session::new(&model, o).unwrap();
    for p in 0..5 {
        s.feed(token(p, 96)).unwrap();
    }
    let (cache, logits) = (s.raw_cache().unwrap(), bits(&s.logits().unwrap()));
    let stats = s.stats();
    for _ in 0..2 {
        let e = s.feed(1).unwrap_err();
        assert!(matches!(e, DecodeError::ContextFull { tokens: 1, length: 5, capacity: 5, .. }), "{e}");
    }
    assert_eq!((s.len(), s.stats()), (5, stats));
    assert_eq!(s.raw_cache().unwrap(), cache);
    assert_eq!(bits(&s.logits().unwrap()), logits);
    s.rollback(4).unwrap();
    assert_eq!(feed(&mut s, token(4, 96)), logits);
}

#[test]
fn ox_14_position_at_capacity_is_an_error() {
    for kv in KvType::ALL {
        at_the_limit(Mode::Eager, kv);
    }
}

#[test]
fn rz_7_a_replay_past_the_context_is_an_error() {
    at_the_limit(Mode::Graph, KvType::F16);
}

#[test]
fn ox_14_a_step_writes_its_own_rows_of_the_cache_and_no_others() {
    let m = Synthetic { layers: 3, ..Default::default() };
    let model = load(&m.file());
    for (kv, size) in [(KvType::F16, 2), (KvType::F32, 4)] {
        let o = SequenceOptions { capacity: Some(7), kv, ..Default::default() };
        let mut s = Session::new(&model, o).unwrap();
        let row = m.head_dim * size;
        let mut before = s.raw_cache().unwrap();
        assert_eq!(before.len(), 2 * 3 * m.kv_heads * 7 * row);
        for p in 0..7 {
            s.feed(token(p, 96)).unwrap();
            let after = s.raw_cache().unwrap();
            for (i, (b, a)) in before.chunks(row).zip(after.chunks(row)).enumerate() {
                assert_eq!(b != a, i % 7 == p, "{kv} position {p}: row {i}");
            }
            before = after;
        }
    }
}

/// FE-11 and FE-5: captured when the cache is almost empty, replayed until it is full.
#[test]
fn fe_5_fe_11_a_graph_serves_every_length_up_to_the_capacity() {
    let file = Synthetic { context: 130, ..Default::default() }.file();
    let model = load(&file);
    let (mut eager, mut graph) = (sequence(&model, Mode::Eager), sequence(&model, Mode::Graph));
    for p in 0..130 {
        assert_eq!(feed(&mut eager, token(p, 96)), feed(&mut graph, token(p, 96)), "position {p}");
    }
    for s in [&mut eager, &mut graph] {
        assert!(matches!(s.feed(0), Err(DecodeError::ContextFull { .. })));
    }
}

#[test]
fn fe_11_a_prompt_longer_than_the_context_is_refused_as_a_whole() {
    let model = load(&Synthetic::default().file());
    let mut s = Session::new(&model, SequenceOptions { capacity: Some(4), ..Default::default() }).unwrap();
    let e = s.prefill(&[1, 2, 3, 4, 5]).unwrap_err();
    assert!(matches!(e, DecodeError::ContextFull { tokens: 5, length: 0, capacity: 4, most: 64 }), "{e}");
    assert!(s.is_empty() && s.stats() == Default::default());
    s.prefill(&[1, 2, 3, 4]).unwrap();
    assert!(!s.is_empty());
    assert!(matches!(s.prefill(&[]), Err(DecodeError::EmptyPrompt)));
    for capacity in [0, 65, usize::MAX] {
        let o = SequenceOptions { capacity: Some(capacity), ..Default::default() };
        assert!(matches!(Session::new(&model, o), Err(DecodeError::Capacity { .. })), "{capacity}");
    }
}

#[test]
fn ox_15_heads_that_the_kernels_cannot_hold_are_refused_before_anything_runs() {
    let file =
        Synthetic { heads: 1, kv_heads: 1, head_dim: 320, formats: vec![Format::F16], ..Default::default() }.file();
    let e = Model::load(&device(), &file).map(drop).unwrap_err();
    assert!(e.to_string().contains("qwen3.attention.key_length") && e.to_string().contains("320"), "{e}");
    // Rows that are no whole number of blocks do not even open.
    let mut w = Synthetic::default().writer();
    w.remove_tensor("output.weight");
    w.tensor("output.weight", &[96, 128], TensorType::F16, vec![0; 2 * 96 * 128]).unwrap();
    let mut bytes = w.to_bytes();
    let name = b"output.weight";
    let at = bytes.windows(name.len()).rposition(|x| x == name).unwrap() + name.len() + 20;
    bytes[at] = 41;
    let e = Gguf::from_bytes(bytes).unwrap_err();
    assert!(e.to_string().contains("not a multiple of the 128 elements"), "{e}");
}

#[test]
fn ox_18_logits_are_as_many_as_the_vocabulary_and_never_stale() {
    let model = load(&Synthetic { vocab: 97, ..Default::default() }.file());
    let mut s = sequence(&model, Mode::Graph);
    assert!(matches!(s.logits(), Err(DecodeError::NoLogits)));
    s.prefill(&[1, 2, 3]).unwrap();
    assert_eq!(s.logits().unwrap().len(), 97);
    // Nothing is forgotten, so the logits are still those of the last token.
    s.rollback(3).unwrap();
    assert_eq!(s.logits().unwrap().len(), 97);
    s.rollback(1).unwrap();
    assert!(matches!(s.logits(), Err(DecodeError::NoLogits)));
    s.feed(2).unwrap();
    s.reset();
    assert!(matches!(s.logits(), Err(DecodeError::NoLogits)));
    // A small model after a large one on the same device: nothing of the large one is left in its logits.
    let small = Synthetic { vocab: 5, ..Default::default() }.file();
    assert_eq!(fresh(&small, 0..2)[1].len(), 5);
}

#[test]
fn ox_21_ties_go_to_the_lowest_token_and_nan_never_wins() {
    let m = Synthetic { formats: vec![Format::F32], vocab: 40, ..Default::default() };
    let mut w = m.writer();
    let row = m.hidden * 4;
    let out = w.tensor_data_mut("output.weight").unwrap();
    let first: Vec<u8> = out[..row].to_vec();
    for r in 1..40 {
        out[r * row..(r + 1) * row].copy_from_slice(&first);
    }
    let file = ModelFile::from_gguf(Gguf::from_bytes(w.to_bytes()).unwrap()).unwrap();
    let mut s = sequence(&load(&file), Mode::Graph);
    assert_eq!(s.feed(7).unwrap(), 0);
    let logits = s.logits().unwrap();
    assert!(logits.iter().all(|l| l.to_bits() == logits[0].to_bits()));

    // A norm so large that every logit is inf - inf.
    let norm = w.tensor_data_mut("output_norm.weight").unwrap();
    for (i, v) in norm.chunks_exact_mut(4).enumerate() {
        v.copy_from_slice(&(if i % 2 == 0 { f32::MAX } else { -f32::MAX }).to_le_bytes());
    }
    let out = w.tensor_data_mut("output.weight").unwrap();
    out.chunks_exact_mut(4).for_each(|v| v.copy_from_slice(&1e30f32.to_le_bytes()));
    let file = ModelFile::from_gguf(Gguf::from_bytes(w.to_bytes()).unwrap()).unwrap();
    let mut s = sequence(&load(&file), Mode::Graph);
    let e = s.feed(7).unwrap_err();
    assert!(matches!(e, DecodeError::NotANumber { position: 0, .. }), "{e}");
    assert!(s.is_empty() && matches!(s.logits(), Err(DecodeError::NoLogits)));
}

/// FE-27 and OX-17: the last token is fine, the one after it is an error.
#[test]
fn fe_27_tokens_outside_the_vocabulary_are_refused() {
    let model = load(&Synthetic { vocab: 77, ..Default::default() }.file());
    let mut s = sequence(&model, Mode::Graph);
    s.feed(76).unwrap();
    for bad in [77, 78, u32::MAX] {
        let e = s.prefill(&[1, bad]).unwrap_err();
        assert!(matches!(e, DecodeError::Token { token, index: 1, vocab: 77 } if token == bad), "{e}");
        assert!(matches!(s.feed_with_hidden(bad), Err(DecodeError::Token { .. })));
    }
    assert_eq!(s.len(), 1);
}

/// FE-17: sizes in elements and bytes are not mixed up, for either element type, beyond the first layer.
#[test]
fn fe_17_f16_and_f32_caches_hold_the_same_values() {
    let m = Synthetic { layers: 4, kv_heads: 4, ..Default::default() };
    let model = load(&m.file());
    let run = |kv| {
        let mut s = Session::new(&model, SequenceOptions { capacity: Some(9), kv, ..Default::default() }).unwrap();
        s.prefill(&(0..9).map(|p| token(p, 96)).collect::<Vec<_>>()).unwrap();
        s.snapshot().unwrap()
    };
    let (half, full) = (run(KvType::F16), run(KvType::F32));
    assert_eq!(half.keys().len() * 2, full.keys().len());
    assert_eq!(full.values().len(), 4 * 4 * 9 * 64 * 4);
    for (h, f) in [(half.keys(), full.keys()), (half.values(), full.values())] {
        let pairs = h.as_chunks::<2>().0.iter().zip(f.as_chunks::<4>().0);
        for (i, (h, f)) in pairs.enumerate() {
            let (h, f) = (half::f16::from_le_bytes(*h).to_f32(), f32::from_le_bytes(*f));
            // The first layer's entries are exactly rounded; later layers also see rounded attention.
            assert!((h - f).abs() <= 4e-3 * (1.0 + f.abs()), "element {i}: {h} {f}");
            if i < 4 * 9 * 64 {
                assert_eq!(h, half::f16::from_f32(f).to_f32(), "element {i}");
            }
        }
    }
}

/// RZ-12: IQ4_NL and Q4_0 have blocks of one size; only the declared type decides.
#[test]
fn rz_12_types_are_declared_and_never_inferred_from_sizes() {
    let mut w = Synthetic::default().writer();
    let data = w.tensor_data_mut("output.weight").unwrap().to_vec();
    w.remove_tensor("output.weight");
    w.tensor("output.weight", &[128, 96], TensorType::IQ4_NL, data).unwrap();
    let file = ModelFile::from_gguf(Gguf::from_bytes(w.to_bytes()).unwrap()).unwrap();
    assert_eq!(file.output().format, Format::IQ4_NL);
    // The same bytes mean other numbers.
    let bytes = file.data(file.output()).to_vec().unwrap();
    assert_ne!(Format::IQ4_NL.decode(&bytes, 96, 128).unwrap(), Format::Q4_0.decode(&bytes, 96, 128).unwrap());
    // And the file's hint about its type is not believed either.
    let mut w = Synthetic::default().writer();
    w.key("general.file_type", 7u32);
    ModelFile::from_gguf(Gguf::from_bytes(w.to_bytes()).unwrap()).unwrap();
}

/// FE-28: a graph that was cut into pieces cost more than the launches that it stood for. Here it is one call, whatever the step has.
#[test]
fn fe_28_a_step_by_graph_is_one_launch_and_never_more_calls_than_an_eager_one() {
    for layers in [1, 6] {
        let model = load(&Synthetic { layers, ..Default::default() }.file());
        let calls = |mode| {
            let mut s = sequence(&model, mode);
            for p in 0..3 {
                s.feed(token(p, 96)).unwrap();
            }
            software::reset_call_counts();
            s.feed(token(3, 96)).unwrap();
            let launches = s.launches_per_step() as u64;
            (software::call_counts(), launches)
        };
        let ((eager, launches), (graph, _)) = (calls(Mode::Eager), calls(Mode::Graph));
        let [by_eager, by_graph] =
            [&eager, &graph].map(|c| (c.get("cuLaunchKernel") + c.get("cuLaunchKernelEx"), c.get("cuGraphLaunch")));
        assert_eq!((by_eager, by_graph), ((launches, 0), (0, 1)), "{layers} layers");
        assert!(graph.total() <= eager.total() - launches + 1, "{layers} layers: {graph:?} for {eager:?}");
    }
}

/// OX-17: offsets in bytes beyond 2³². Memory that nobody touches costs nothing, so the table is as large as it says.
#[test]
fn ox_17_a_row_that_lies_beyond_four_gibibytes() {
    let device = device();
    if !device.is_software() {
        return eprintln!("skipped: a GPU's memory is not there for tests to take");
    }
    let stream = device.stream().unwrap();
    let (format, vocab, cols) = (Format::F16, 16_500usize, 131_072usize);
    let row: Vec<u8> = (0..cols).flat_map(|i| half::f16::from_f32((i % 1000) as f32).to_le_bytes()).collect();
    let record = format.repack(&row, 1, cols).unwrap();
    let vectors = format.tensor_vectors(vocab, cols).unwrap();
    let mut table = device.alloc::<warpsmith_device::U32x4>(vectors).unwrap();
    let start = (vocab - 1) * record.len();
    assert!((start * 16) as u64 > 1 << 32);
    stream.write(&mut table[start..start + record.len()], &record).unwrap();
    let columns = stream.upload(&[gpu_kernels::state::Column::at(vocab as u32 - 1, 0)]).unwrap();
    let mut y = stream.zeros::<f32>(cols).unwrap();
    let (vocab, cols) = (vocab as u32, cols as u32);
    let embed = Embed {
        format,
        table: &table,
        columns: &columns,
        chosen: warpsmith_device::DeviceSlice::empty(),
        y: &mut y,
        next: None,
        quantized: None,
        vocab,
        cols,
        stride: cols,
    };
    embed.launch(&mut &stream).unwrap();
    assert_eq!(stream.read(&y).unwrap(), format.decode(&row, 1, cols as usize).unwrap());
}

/// FE-23: zero points of another engine's codes were taken for those of the symmetric ones. Codes that the format does not have
/// are refused by name; nothing is computed from the rest.
#[test]
fn fe_22_fe_23_weights_that_come_with_zero_points_or_an_order_are_refused() {
    for part in ["qzeros", "g_idx", "scales"] {
        let name = format!("blk.0.attn_q.{part}");
        let mut w = Synthetic::default().writer();
        w.tensor_f32(name.clone(), &[4], &[7.0; 4]).unwrap();
        let error = ModelFile::from_gguf(Gguf::from_bytes(w.to_bytes()).unwrap()).unwrap_err().to_string();
        assert!(error.contains(&name), "{error}");
    }
}
