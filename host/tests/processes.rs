//! One model over several processes: the tokens of one process with as many devices, with shares of every layer and with layers of their
//! own; and what goes wrong. As threads under all checks of the software driver, and as processes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "common/agree.rs"]
mod agree;
#[path = "common/alone.rs"]
mod alone;
mod common;
#[path = "common/device.rs"]
mod device;
#[path = "common/ranks.rs"]
mod ranks;
#[allow(dead_code)]
#[path = "../../collectives/tests/common/several.rs"]
mod several;

use agree::*;
use alone::*;
use common::*;
use device::*;
use ranks::*;
use several::devices;
use warpsmith_driver_api::software;
use warpsmith_host::Device;
use warpsmith_host::collectives::{Collective, World};
use warpsmith_host::decode::{
    DecodeError, Decoder, DecoderOptions, Draft, Feed, KvType, Mode, Model, Part, Pool, PoolOptions, Predict,
    Predicted, Routes, Sequence, SequenceOptions, Session, Split,
};
use warpsmith_host::model::{ModelError, ModelFile};

fn dense() -> Synthetic {
    Synthetic { layers: 4, hidden: 128, feed_forward: 256, ..Synthetic::divisible() }
}

fn experts() -> Synthetic {
    let (architecture, experts) = ("qwen2moe", Some((8, 2)));
    Synthetic { architecture, experts, hidden: 128, feed_forward: 128, layers: 2, ..dense() }
}

/// Windows in three of four layers, and scaled embeddings.
fn windows() -> Synthetic {
    Synthetic { architecture: "gemma3", window: 3, hidden: 128, feed_forward: 128, layers: 7, ..dense() }
}

fn layer_norms() -> Synthetic {
    Synthetic { architecture: "starcoder2", hidden: 128, feed_forward: 128, head_dim: 32, layers: 3, ..dense() }
}

/// Three delta nets to a layer that attends, and heads of values that have key heads in turn.
fn delta_nets() -> Synthetic {
    let (hidden, feed_forward, head_dim) = (128, 128, 32);
    Synthetic { architecture: "qwen35", delta: [2, 4, 32], interval: 4, hidden, feed_forward, head_dim, ..dense() }
}

const PROMPT: [u32; 5] = [3, 1, 4, 15, 9];

/// The greedy text of a prompt, by a decoder of this mode.
fn text(model: &Model, mode: Mode) -> Vec<u32> {
    let mut session = Session::new(model, options(mode, KvType::F16)).unwrap();
    session.generate(&PROMPT, 6, |_| std::ops::ControlFlow::Continue(())).unwrap()
}

/// Every rank has the text of one device, eager and by graph, and the logits and experts of the reference, of single steps and of prompts.
fn same_over(rank: &Rank, ranks: usize, what: &str, m: &Synthetic, split: Split) {
    let (file, number) = (m.file(), rank.rank);
    let (want, one) = of_one(&rank.device, &file, |one| (text(one, Mode::Eager), look(one)));
    let model = rank.model(&file, split).unwrap();
    for mode in [Mode::Eager, Mode::Graph] {
        assert_eq!(text(&model, mode), want, "{what}, {split:?}, {number} of {ranks}, {mode:?}");
        let mut session = Session::new(&model, exact(mode, KvType::F32)).unwrap();
        let off = distance(&file, &mut session, 3);
        assert!(off <= 1e-4, "{what}, {split:?}, {number} of {ranks}, {mode:?}: {off:e}");
    }
    let (rows, experts, next) = look(&model);
    let (of_one, experts_of_one, next_of_one) = one;
    assert_eq!((experts, next), (experts_of_one, next_of_one), "{split:?}");
    for (row, one) in rows.iter().zip(&of_one) {
        assert_eq!(row.experts, one.experts, "{split:?}");
        // What is added up in another order is rounded otherwise.
        let off = worst(row.logits.iter().map(|&v| v.into()), one.logits.iter().map(|&v| v.into()));
        let want: Vec<f64> = one.logits.iter().map(|&v| v.into()).collect();
        assert!(off < 1e-4 * deviation(&want), "{split:?}: {off:e}");
    }
    assert_eq!(rows.len(), of_one.len());
}

/// What a model on one device gives. Every rank asks for it, and no check watches: those of other tests have. Findings of before would be
/// forgotten, so it is asked for first.
fn of_one<R>(device: &Device, file: &ModelFile, f: impl FnOnce(&Model) -> R) -> R {
    let _unwatched = software::check(software::Checks::default());
    f(&Model::load(device, file).unwrap())
}

/// Logits and experts of every token of a prompt, with the probabilities that follow from the last; experts of a step, and the token
/// before it.
fn look(model: &Model) -> (Vec<Predicted>, Routes, u32) {
    let of = exact(Mode::Graph, KvType::F32);
    let mut decoder = Decoder::new(model, DecoderOptions { prompt_logits: true, ..of.decoder }).unwrap();
    let mut sequence = Sequence::new(model, of.sequence).unwrap();
    let mut rows = Vec::new();
    let next = decoder.prefill_each(&mut sequence, &PROMPT, |row| rows.push(row)).unwrap();
    assert_eq!(decoder.logits(0).unwrap(), rows.last().unwrap().logits);
    let top = decoder.logprobs(0, 1, &[next]).unwrap();
    assert_eq!(top.top, top.asked, "the most likely token is chosen");
    decoder.step(&mut [Feed { sequence: &mut sequence, token: 7 }]).unwrap();
    (rows, decoder.experts(0).unwrap(), next)
}

#[test]
fn shares_have_the_text_of_one_device_and_agree_with_the_reference() {
    const NAME: &str = "shares_have_the_text_of_one_device_and_agree_with_the_reference";
    in_processes(NAME, 1, |rank| same_over(rank, 1, "alone", &dense(), Split::Shares));
    in_processes(NAME, 2, |rank| {
        same_over(rank, 2, "experts", &experts(), Split::Shares);
        same_over(rank, 2, "layer norms", &layer_norms(), Split::Shares);
        same_over(rank, 2, "delta nets", &delta_nets(), Split::Shares);
    });
    let tied = Synthetic { layers: 2, tied: true, ..dense() };
    in_processes(NAME, 4, |rank| same_over(rank, 4, "tied", &tied, Split::Shares));
}

#[test]
fn stages_have_the_text_of_one_device_and_agree_with_the_reference() {
    const NAME: &str = "stages_have_the_text_of_one_device_and_agree_with_the_reference";
    in_processes(NAME, 2, |rank| {
        same_over(rank, 2, "experts", &experts(), Split::Stages);
        // Other layers than in another place would have a window.
        same_over(rank, 2, "windows", &windows(), Split::Stages);
        same_over(rank, 2, "layer norms", &layer_norms(), Split::Stages);
    });
    let tied = Synthetic { tied: true, layers: 3, ..dense() };
    // Of the delta nets' layers the first two have no cache, and the last has no state.
    in_processes(NAME, 3, |rank| {
        same_over(rank, 3, "tied", &tied, Split::Stages);
        same_over(rank, 3, "delta nets", &delta_nets(), Split::Stages);
    });
}

/// Prompts and decoding sequences side by side, in pages or not, chosen by all kinds of sampling; and steps that follow one another unread.
fn mixed(model: &Model) -> Vec<u32> {
    let mut decoder = Decoder::new(model, DecoderOptions { batch: 3, ..Default::default() }).unwrap();
    let pool = Pool::new(model, PoolOptions { positions: 256, ..Default::default() }).unwrap();
    let mut sequences: Vec<Sequence> = (0..3)
        .map(|s| {
            let options = SequenceOptions { sampling: sampling(s), ..Default::default() };
            if s == 1 { Sequence::in_pool(&pool, options).unwrap() } else { Sequence::new(model, options).unwrap() }
        })
        .collect();
    let [a, b, c] = &mut sequences[..] else { panic!() };
    let mut tokens = vec![decoder.prefill(a, &[1, 2, 3]).unwrap()];
    let first = tokens.clone();
    let mut parts = [
        Part { sequence: a, tokens: &first, predict: Predict::Next },
        Part { sequence: b, tokens: &[4, 5, 6, 7, 8, 9], predict: Predict::Next },
        Part { sequence: c, tokens: &[10, 11], predict: Predict::Nothing },
    ];
    tokens.extend(decoder.step_mixed(&mut parts).unwrap());
    let feeds = vec![Feed { sequence: a, token: tokens[1] }, Feed { sequence: b, token: tokens[2] }];
    let mut pipeline = decoder.pipeline(feeds).unwrap();
    for _ in 0..5 {
        tokens.extend(pipeline.next_tokens().unwrap().unwrap());
    }
    // A step runs that nobody asks for.
    drop(pipeline);
    tokens.push(decoder.step(&mut [Feed { sequence: c, token: 7 }]).unwrap()[0]);
    let snapshot = c.snapshot().unwrap();
    c.reset();
    c.restore(&snapshot).unwrap();
    tokens.push(decoder.step(&mut [Feed { sequence: c, token: 8 }]).unwrap()[0]);
    tokens
}

#[test]
fn mixed_steps_and_pipelines_choose_the_tokens_of_one_device() {
    in_processes("mixed_steps_and_pipelines_choose_the_tokens_of_one_device", 2, |rank| {
        let file = Synthetic { layers: 2, ..dense() }.file();
        let want = of_one(&rank.device, &file, mixed);
        for split in [Split::Shares, Split::Stages] {
            assert_eq!(mixed(&rank.model(&file, split).unwrap()), want, "{split:?}");
        }
    });
}

/// Rolled back to where no state is, so that tokens are fed again; forked, and guessed wrong.
fn undone(model: &Model) -> Vec<u32> {
    let mut decoder = Decoder::new(model, DecoderOptions { drafts: 3, ..Default::default() }).unwrap();
    let pool = Pool::new(model, PoolOptions { positions: 256, ..Default::default() }).unwrap();
    let mut tokens = Vec::new();
    let of = SequenceOptions::default();
    for mut sequence in [Sequence::new(model, of).unwrap(), Sequence::in_pool(&pool, of).unwrap()] {
        tokens.push(decoder.prefill(&mut sequence, &[3, 1, 4, 1, 5, 9, 2, 6]).unwrap());
        sequence.rollback(3).unwrap();
        tokens.push(decoder.step(&mut [Feed { sequence: &mut sequence, token: 8 }]).unwrap()[0]);
        let mut fork = sequence.fork().unwrap();
        let draft = Draft { sequence: &mut fork, token: 7, draft: &[1, 2, 3] };
        tokens.extend(decoder.step_drafts(&mut [draft]).unwrap().concat());
        for sequence in [&mut fork, &mut sequence] {
            tokens.push(decoder.step(&mut [Feed { sequence, token: 5 }]).unwrap()[0]);
        }
        let snapshot = sequence.snapshot().unwrap();
        sequence.rollback(2).unwrap();
        tokens.push(decoder.step(&mut [Feed { sequence: &mut sequence, token: 8 }]).unwrap()[0]);
        sequence.restore(&snapshot).unwrap();
        tokens.push(decoder.step(&mut [Feed { sequence: &mut sequence, token: 6 }]).unwrap()[0]);
    }
    tokens
}

#[test]
fn states_are_undone_and_copied_on_all_ranks() {
    in_processes("states_are_undone_and_copied_on_all_ranks", 3, |rank| {
        let file = delta_nets().file();
        let want = of_one(&rank.device, &file, |one| (undone(one), mixed(one)));
        let stages = rank.model(&file, Split::Stages).unwrap();
        assert_eq!((undone(&stages), mixed(&stages)), want);
    });
    in_processes("states_are_undone_and_copied_on_all_ranks", 2, |rank| {
        let file = Synthetic { layers: 2, interval: 2, ..delta_nets() }.file();
        let want = of_one(&rank.device, &file, |one| (undone(one), mixed(one)));
        let shares = rank.model(&file, Split::Shares).unwrap();
        assert_eq!((undone(&shares), mixed(&shares)), want);
    });
}

/// Each has what it computes with, and no more.
#[test]
fn a_rank_has_its_part_of_the_weights_alone() {
    let (all, _turn) = devices(1);
    let (device, file) = (&all[0], dense().file());
    let whole = Model::device_bytes(&file).unwrap();
    let bytes = [0, 1].map(|rank| Model::device_bytes(&file.stage(rank, 2).unwrap()).unwrap());
    // A norm and what small allocations are padded to are there twice.
    assert!(bytes.iter().sum::<u64>() <= whole + 4096, "{bytes:?} {whole}");
    let free = || device.memory_info().unwrap().free;
    for rank in [0, 1] {
        let before = free();
        let stage = Model::reserve(device, &file.stage(rank, 2).unwrap()).unwrap();
        assert_eq!((before - free(), stage.bytes()), (bytes[rank], bytes[rank]));
    }
    let many = file.stage(0, 5).err().unwrap();
    assert!(matches!(&many, ModelError::Stages { processes: 5, .. }), "{many}");
    let delta = delta_nets().file();
    let states = |file: &ModelFile| Sequence::state_bytes(&Model::reserve(device, file).unwrap());
    let of_stages = [0, 1, 2].map(|rank| states(&delta.stage(rank, 3).unwrap()));
    assert_eq!((of_stages.iter().sum::<u64>(), of_stages[2]), (states(&delta), 0));
}

#[test]
fn ranks_that_do_not_have_the_same_are_told() {
    const NAME: &str = "ranks_that_do_not_have_the_same_are_told";
    in_processes(NAME, 3, |rank| {
        let layers = if rank.rank == 2 { 5 } else { 4 };
        let error = rank.model(&Synthetic { layers, ..dense() }.file(), Split::Stages).err().unwrap();
        let (first, text) = (if rank.rank == 2 { 0 } else { 2 }, error.to_string());
        assert!(matches!(error, DecodeError::Disagree { other, .. } if other == first), "{}: {text}", rank.rank);
        assert!(text.contains("another model file"), "{text}");
    });
    in_processes(NAME, 2, |rank| {
        let model = rank.model(&dense().file(), Split::Shares).unwrap();
        let options = |batch| DecoderOptions { batch, ..Default::default() };
        let different = Decoder::new(&model, options(1 + rank.rank)).err().unwrap();
        let what = "other options of its decoder";
        assert!(matches!(different, DecodeError::Disagree { what: w, .. } if w == what), "{different}");
        // A second decoder beside the first; one behind it.
        let decoder = Decoder::new(&model, options(1)).unwrap();
        assert!(matches!(Decoder::new(&model, options(1)).err().unwrap(), DecodeError::OneDecoder));
        drop(decoder);
        // A chunk that only one of them has room for.
        let chunk = DecoderOptions { chunk: [64, 32][rank.rank], ..options(1) };
        assert_eq!(Decoder::new(&model, chunk).unwrap().chunk(), 32);
        let persistent = Decoder::new(&model, DecoderOptions { persistent: true, ..options(1) }).err().unwrap();
        assert!(matches!(persistent, DecodeError::OneDevice { devices: 2, .. }), "{persistent}");
        assert_eq!(text(&model, Mode::Graph).len(), 6);
    });
}

/// What processes do, started by the tests below.
#[test]
fn a_process() {
    let Some((task, world)) = task() else { return };
    let device = Device::open(world.local_rank % Device::count().unwrap()).unwrap();
    let member = match warpsmith_host::collectives::Sockets::join(&world, &device, OPTIONS) {
        Ok(member) => member,
        Err(error) => return println!("said: {error}"),
    };
    assert_eq!((member.rank(), member.ranks()), (world.rank, world.ranks));
    let split = if task.ends_with("stages") { Split::Stages } else { Split::Shares };
    let model = Model::load_rank(&device, &dense().file(), member, split).unwrap();
    if task.starts_with("text") {
        return println!("said: {:?}", text(&model, Mode::Graph));
    }
    steps(&model, &task, world.rank == 1);
}

fn all(ranks: usize) -> Vec<(usize, usize)> {
    (0..ranks).map(|rank| (rank, ranks)).collect()
}

#[test]
fn processes_have_the_text_of_one_with_as_many_devices() {
    let file = dense().file();
    let want = |ranks: usize| {
        let (devices, _turn) = devices(ranks);
        format!("{:?}", text(&Model::load_over(&devices, &file).unwrap(), Mode::Graph))
    };
    for (ranks, task) in [(1, "text"), (2, "text"), (4, "text"), (2, "text of stages")] {
        let want = want(ranks);
        for said in said(start("a_process", task, &all(ranks), &World::free_address().unwrap())) {
            assert_eq!(said, [want.as_str()], "{ranks}, {task}");
        }
    }
}

#[test]
fn a_process_that_dies_is_named_by_the_others() {
    for (task, ranks) in [("death", 2), ("death of stages", 3)] {
        let said = said(start("a_process", task, &all(ranks), &World::free_address().unwrap()));
        assert_eq!(said[1], ["dies"]);
        for rank in (0..ranks).filter(|rank| *rank != 1) {
            let text = &said[rank][0];
            assert!(text.starts_with("4 4 ") && text.contains("has lost rank 1"), "{task}, {rank}: {text}");
        }
    }
}

/// It goes on, and says so to the others, which would wait for it.
#[test]
fn a_process_whose_step_fails_is_named_by_the_others() {
    for (task, ranks) in [("failure", 2), ("failure of stages", 3)] {
        let said = said(start("a_process", task, &all(ranks), &World::free_address().unwrap()));
        assert!(said[1][0].starts_with("4 4 ") && said[1][0].contains("cuGraphLaunch"), "{:?}", said[1]);
        for rank in (0..ranks).filter(|rank| *rank != 1) {
            let text = &said[rank][0];
            let left = text.contains("lost rank 1") && text.contains("it failed");
            assert!(text.starts_with("4 4 ") && left, "{task}, {rank}: {text}");
        }
    }
}

#[test]
fn processes_that_are_told_different_numbers_do_not_become_a_group() {
    let said = said(start("a_process", "text", &[(0, 2), (1, 3)], &World::free_address().unwrap()));
    for text in said.concat() {
        assert!(text.contains("rank 1 says that there are 3 ranks, rank 0 2"), "{text}");
    }
}
