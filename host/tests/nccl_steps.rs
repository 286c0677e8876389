//! Steps of a decoder over NCCL: what it is asked for in a step and where, eagerly and recorded, by a library that writes that down. It is
//! that of a group of one, in which what each collective gives is there already, so that the text is that of one device.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "common/device.rs"]
mod device;
#[path = "../../collectives/tests/common/fake_nccl.rs"]
mod fake_nccl;
#[allow(dead_code)]
#[path = "../../collectives/tests/common/several.rs"]
mod several;

use common::*;
use device::*;
use gpu_kernels::format::Format;
use std::time::Duration;
use warpsmith_host::collectives::{Library, Nccl};
use warpsmith_host::decode::{KvType, Mode, Model, Session, Split};

#[test]
fn a_step_asks_nccl_for_two_sums_a_layer_the_logits_and_the_token() {
    let (devices, _turn) = several::devices(1);
    let (path, calls) = fake_nccl::library();
    let m = Synthetic { layers: 3, hidden: 256, vocab: 98, formats: vec![Format::Q8_0], ..Default::default() };
    let file = m.file();
    let mut alone = Session::new(&Model::load(&devices[0], &file).unwrap(), options(Mode::Graph, KvType::F16)).unwrap();
    let tokens: Vec<u32> = (0..4).map(|p| token(p, m.vocab)).collect();
    let want: Vec<u32> = tokens.iter().map(|t| alone.feed(*t).unwrap()).collect();
    let library = Library::at(path).unwrap();
    for split in [Split::Shares, Split::Stages] {
        let rank = Nccl::new(&library, &devices[0], library.unique_id().unwrap(), (0, 1), Duration::from_secs(20));
        let model = Model::load_rank(&devices[0], &file, rank.unwrap(), split).unwrap();
        for mode in [Mode::Eager, Mode::Graph] {
            let mut session = Session::new(&model, options(mode, KvType::F16)).unwrap();
            let _ = std::fs::remove_file(&calls);
            let got: Vec<u32> = tokens.iter().map(|t| session.feed(*t).unwrap()).collect();
            assert_eq!(got, want, "{split:?} {mode:?}");
            let text = std::fs::read_to_string(&calls).unwrap();
            let words = |line: &'static str| move |l: &&str| l.starts_with(line);
            // Recorded, a call is made once.
            let steps = if mode == Mode::Eager { tokens.len() } else { 1 };
            let all: Vec<&str> = text.lines().collect();
            let of = |line| all.iter().copied().filter(words(line)).collect::<Vec<_>>();
            let (sums, gathered, told) = (of("ncclAllReduce"), of("ncclAllGather"), of("ncclBroadcast"));
            let of_layers = if split == Split::Shares { 2 * m.layers + 1 } else { 0 };
            assert_eq!(all.len(), steps * (of_layers + 1), "{split:?} {mode:?}: {text}");
            assert_eq!(told.len(), steps);
            // A word, as f32.
            assert!(
                told.iter().all(|l| l.split(' ').nth(3) == Some("1") && l.split(' ').nth(4) == Some("7")),
                "{text}"
            );
            if split == Split::Shares {
                // The width of the residual stream, in place; slices of whole vectors of four logits.
                let in_place = |l: &&str| l.split(' ').nth(1) == l.split(' ').nth(2);
                assert!(sums.iter().all(in_place) && sums.iter().all(|l| l.split(' ').nth(3) == Some("256")), "{text}");
                assert!(gathered.iter().all(|l| l.split(' ').nth(3) == Some("100")), "{text}");
            }
        }
    }
}
