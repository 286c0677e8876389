//! Ranks in several processes over each other's device memory: sums against f64, a model with the bits of as many devices of one process, and
//! what goes wrong. Under all checks of the software driver where it is not a matter of time.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "common/device.rs"]
mod device;
#[path = "../../collectives/tests/common/mod.rs"]
mod group;
#[path = "common/ranks.rs"]
mod ranks;

use common::*;
use device::*;
use group::{Convert, devices, numbers, rounding};
use ranks::*;
use std::time::{Duration, Instant};
use warpsmith_driver_api::software;
use warpsmith_host::collectives::{
    Collective, Collectives, Elements, Error, Exchange, Operation, PeerOptions, Peers, Reduce, Shots, World,
};
use warpsmith_host::decode::{DecodeError, Decoder, DecoderOptions, KvType, Mode, Model, Session, Split};
use warpsmith_host::device::{bf16, f16};
use warpsmith_host::{Device, Stream, builtin_image};

/// Of the buffers of these tests, on both sides of what is operated on: to be left alone.
const MARGIN: usize = 8;
const SECONDS: Duration = Duration::from_secs(60);

fn options(shots: Shots) -> PeerOptions {
    PeerOptions { capacity: 4096, shots, timeout: SECONDS }
}

/// What an operation makes of `x`, which has not a number on both sides.
fn operated<T: Convert>(rank: &Peers, stream: &Stream, operation: Operation, x: &[T]) -> Vec<T> {
    let poison = [T::of(f32::NAN); MARGIN];
    let mut buffer = stream.upload(&[&poison[..], x, &poison[..]].concat()).unwrap();
    rank.issue(stream.into(), operation, Elements::of(&mut buffer[MARGIN..MARGIN + x.len()])).unwrap();
    rank.synchronize(stream).unwrap();
    let got = stream.read(&buffer).unwrap();
    let around = got[..MARGIN].iter().chain(&got[MARGIN + x.len()..]);
    assert!(around.map(|v| v.bits()).all(|bits| bits == poison[0].bits()), "{operation:?} beyond its elements");
    got[MARGIN..MARGIN + x.len()].to_vec()
}

/// Whether `got` is the reduction of the elements from `first` on of all ranks, in f64.
fn is_reduced<T: Convert>(got: &[T], ranks: u32, (first, len): (usize, usize), reduce: Reduce) {
    let all: Vec<Vec<T>> = (0..ranks).map(|rank| numbers(rank, 5, len)).collect();
    for (i, x) in got.iter().enumerate() {
        let of_ranks = all.iter().map(|numbers| numbers[first + i].value());
        let (want, off) = match reduce {
            Reduce::Sum => (of_ranks.clone().sum(), rounding(T::KIND) * of_ranks.map(f64::abs).sum::<f64>()),
            Reduce::Max => (of_ranks.fold(f64::NEG_INFINITY, f64::max), 0.0),
        };
        assert!((x.value() - want).abs() <= off, "{reduce:?} of {:?} {i}: {} for {want}", T::KIND, x.value());
    }
}

/// Every operation on elements of a kind, of which a rank has `len`; those of the others are not a number before they come.
fn every_operation<T: Convert>(rank: &Peers, stream: &Stream, len: usize) {
    let (own, ranks) = (rank.rank(), rank.ranks());
    let (mine, unknown) = (numbers::<T>(own, 5, len), vec![T::of(f32::NAN); len]);
    // In parts, with a last one that is not whole words.
    let long = numbers::<T>(own, 5, 3 * len + 1);
    for reduce in [Reduce::Sum, Reduce::Max] {
        let all = operated(rank, stream, Operation::AllReduce(reduce), &long);
        is_reduced(&all, ranks, (0, long.len()), reduce);
        let scattered = operated(rank, stream, Operation::ReduceScatter(reduce), &mine);
        let slice = own as usize * len / ranks as usize..(own as usize + 1) * len / ranks as usize;
        is_reduced(&scattered[slice.clone()], ranks, (slice.start, len), reduce);
        assert!(scattered[..slice.start] == mine[..slice.start] && scattered[slice.end..] == mine[slice.end..]);
    }
    let slices = len / ranks as usize;
    let mut parts = unknown.clone();
    parts[own as usize * slices..][..slices].copy_from_slice(&mine[..slices]);
    let gathered = operated(rank, stream, Operation::AllGather, &parts);
    assert!((0..ranks).all(|r| gathered[r as usize * slices..][..slices] == numbers::<T>(r, 5, len)[..slices]));
    for root in 0..ranks {
        let told = if root == own { &mine } else { &unknown };
        assert!(operated(rank, stream, Operation::Broadcast { root }, told) == numbers::<T>(root, 5, len));
        // Everybody else gets a message.
        for other in (0..ranks).filter(|other| *other != root) {
            if own == root {
                assert!(operated(rank, stream, Operation::Send { to: other }, &mine) == mine, "it stays");
            } else if own == other {
                let got = operated(rank, stream, Operation::Receive { from: root }, &unknown);
                assert!(got == numbers::<T>(root, 5, len));
            }
        }
    }
}

#[test]
fn operations_of_processes_have_the_results_of_f64() {
    const NAME: &str = "operations_of_processes_have_the_results_of_f64";
    in_processes(NAME, 2, |rank| {
        let stream = rank.device.stream().unwrap();
        for shots in [Shots::One, Shots::Two] {
            let group = rank.peers(options(shots)).unwrap();
            every_operation::<f32>(&group, &stream, 600);
            every_operation::<f16>(&group, &stream, 604);
            every_operation::<bf16>(&group, &stream, 604);
        }
    });
    // A graph of two collectives that keeps the group, replayed.
    in_processes(NAME, 3, |rank| {
        let stream = rank.device.stream().unwrap();
        let group = rank.peers(options(Shots::Two)).unwrap();
        let mut x = stream.upload(&numbers::<f32>(group.rank(), 1, 301)).unwrap();
        let mut y = stream.upload(&numbers::<f32>(9, 2, 301)).unwrap();
        let graph = stream
            .try_capture(|scope| {
                group.all_reduce_onto(&mut *scope, &mut x, &mut y)?;
                group.broadcast(scope, &mut x, 2)
            })
            .unwrap();
        graph.launch(&stream).unwrap();
        graph.launch(&stream).unwrap();
        group.synchronize(&stream).unwrap();
        drop(group);
        let of = |rank| numbers::<f32>(rank, 1, 301);
        let (a, b, c, y0) = (of(0), of(1), of(2), numbers::<f32>(9, 2, 301));
        let want = |i: usize| y0[i] + ((a[i] + b[i]) + c[i]) + ((c[i] + c[i]) + c[i]);
        assert_eq!(stream.read(&y).unwrap(), (0..301).map(want).collect::<Vec<_>>());
    });
}

fn dense() -> Synthetic {
    Synthetic { layers: 3, hidden: 128, feed_forward: 256, ..Synthetic::divisible() }
}

/// A norm of its own behind every sum, windows, and layer norms.
fn models() -> [Synthetic; 3] {
    let small = Synthetic { hidden: 128, feed_forward: 128, layers: 2, ..dense() };
    let gemma = Synthetic { architecture: "gemma3", window: 3, ..small.clone() };
    [dense(), gemma, Synthetic { architecture: "starcoder2", head_dim: 32, ..small }]
}

/// Tokens, and the bits of all logits, of a prompt and of steps, eager and by graph; and the launches of a step.
fn decoded(model: &Model) -> String {
    let mut all = Vec::new();
    for mode in [Mode::Eager, Mode::Graph] {
        let mut session = Session::new(model, device::options(mode, KvType::F16)).unwrap();
        let mut bits = Vec::new();
        let tokens = session.generate(&[3, 1, 4, 15, 9], 5, |_| std::ops::ControlFlow::Continue(())).unwrap();
        for token in [7, 8] {
            bits.extend(feed(&mut session, token));
        }
        let mixed = bits.iter().fold(0u64, |n, &bit| n.rotate_left(5).wrapping_mul(0x9E37_79B9) ^ u64::from(bit));
        all.push(format!("{tokens:?} {} {mixed:x}", bits.len()));
    }
    assert_eq!(all[0], all[1]);
    let mut decoder = Decoder::new(model, DecoderOptions::default()).unwrap();
    format!("{} in {} launches", all[0], decoder.launches_per_step(1, KvType::F16).unwrap())
}

/// What processes do, started by the tests below.
#[test]
fn a_process() {
    let Some((task, world)) = task() else { return };
    let device = Device::open(0).unwrap();
    let join = || Peers::join(&world, &device, builtin_image(), PeerOptions { timeout: SECONDS, ..Default::default() });
    match task.as_str() {
        "bits" => {
            for model in models() {
                let model = Model::load_rank(&device, &model.file(), join().unwrap(), Split::Shares).unwrap();
                println!("said: {}", decoded(&model));
            }
            let model = Model::load_rank(&device, &dense().file(), join().unwrap(), Split::Stages).unwrap();
            let mut session = Session::new(&model, device::options(Mode::Graph, KvType::F16)).unwrap();
            let tokens = session.generate(&[3, 1, 4], 5, |_| std::ops::ControlFlow::Continue(())).unwrap();
            println!("said: {tokens:?}");
        }
        "death" | "failure" | "death of stages" => {
            let split = if task.ends_with("stages") { Split::Stages } else { Split::Shares };
            let model = Model::load_rank(&device, &dense().file(), join().unwrap(), split).unwrap();
            steps(&model, &task, world.rank == 1);
        }
        // Who waits does so by its stream alone.
        _ => {
            let (group, stream) = (join().unwrap(), device.stream().unwrap());
            let mut x = stream.zeros::<f32>(100).unwrap();
            group.all_reduce(&stream, &mut x, Reduce::Sum).unwrap();
            group.synchronize(&stream).unwrap();
            if group.rank() == 1 {
                println!("said: dies");
                std::process::exit(3);
            }
            if task == "receive" {
                group.receive(&stream, &mut x, 1).unwrap();
            } else {
                group.all_reduce(&stream, &mut x, Reduce::Sum).unwrap();
            }
            stream.synchronize().unwrap();
            println!("said: {}", group.all_reduce(&stream, &mut x, Reduce::Sum).unwrap_err());
        }
    }
}

const TWO: [(usize, usize); 2] = [(0, 2), (1, 2)];

#[test]
fn a_model_of_two_processes_has_the_bits_of_two_devices_of_one() {
    let children = start("a_process", "bits", &TWO, &World::free_address().unwrap());
    let (all, _turn) = devices(2);
    let of_devices = |model: &Synthetic| decoded(&Model::load_over(&all, &model.file()).unwrap());
    let mut want: Vec<String> = models().iter().map(of_devices).collect();
    let alone = Model::load(&all[0], &dense().file()).unwrap();
    let mut session = Session::new(&alone, device::options(Mode::Graph, KvType::F16)).unwrap();
    let tokens = session.generate(&[3, 1, 4], 5, |_| std::ops::ControlFlow::Continue(())).unwrap();
    want.push(format!("{tokens:?}"));
    let [first, other] = <[Vec<String>; 2]>::try_from(said(children)).unwrap();
    assert_eq!(first, want);
    // The first alone chooses tokens.
    let without_launches =
        |all: &[String]| all.iter().map(|s| s.split(" in ").next().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(without_launches(&other), without_launches(&want));
}

#[test]
fn a_process_that_dies_or_fails_is_named_by_the_other() {
    for (task, reason) in [
        ("death", "has lost rank 1: its process has closed"),
        ("death of stages", "has lost rank 1: its process has closed"),
        ("failure", "has lost rank 1: it has left the group: it failed"),
    ] {
        let said = said(start("a_process", task, &TWO, &World::free_address().unwrap()));
        assert!(said[1] == ["dies"] || said[1][0].contains("cuGraphLaunch"), "{task}: {:?}", said[1]);
        // Who leaves may be ahead: what it says is heard at once.
        let at = |step: usize| said[0][0].starts_with(&format!("{step} {step} "));
        assert!((at(4) || task == "failure" && at(3)) && said[0][0].contains(reason), "{task}: {:?}", said[0]);
    }
    for task in ["reduce", "receive"] {
        let said = said(start("a_process", task, &TWO, &World::free_address().unwrap()));
        assert!(said[0][0].contains("has lost rank 1: its process has closed"), "{task}: {:?}", said[0]);
    }
}

#[test]
fn ranks_of_processes_end_together() {
    in_processes("ranks_of_processes_end_together", 2, |rank| {
        let stream = rank.device.stream().unwrap();
        let mut x = stream.zeros::<f32>(300).unwrap();
        let first = rank.rank == 0;
        // The first leaves at once, and keeps its memory until the other has closed it.
        let group = rank.peers(options(Shots::One)).unwrap();
        group.all_reduce(&stream, &mut x, Reduce::Sum).unwrap();
        group.synchronize(&stream).unwrap();
        let (start, late) = (Instant::now(), Duration::from_millis(700));
        if !first {
            std::thread::sleep(late);
            let issued = group.all_reduce(&stream, &mut x, Reduce::Sum);
            let error = issued.and_then(|()| group.synchronize(&stream)).unwrap_err();
            assert!(matches!(&error, Error::Lost { rank: 1, lost: 0, .. }), "{error}");
        }
        drop(group);
        assert!(start.elapsed() > late / 2 && start.elapsed() < 6 * late, "{:?}", start.elapsed());
        assert_eq!(software::last_report(), None);
        // What one has issued that the other never does.
        let group = rank.peers(options(Shots::One)).unwrap();
        if first {
            let issued = group.all_reduce(&stream, &mut x, Reduce::Sum);
            let error = issued.and_then(|()| group.synchronize(&stream)).unwrap_err();
            assert!(matches!(&error, Error::Lost { lost: 1, reason, .. } if reason.contains("left")), "{error}");
            let error = group.synchronize(&stream).unwrap_err();
            assert!(matches!(&error, Error::Broken { missing } if *missing == [1]), "{error}");
        }
        drop(group);
        // Who is there and does nothing.
        let short = PeerOptions { timeout: Duration::from_secs(2), ..options(Shots::Two) };
        let group = rank.peers(short).unwrap();
        if first {
            group.all_reduce(&stream, &mut x, Reduce::Sum).unwrap();
            let error = group.synchronize(&stream).unwrap_err();
            assert!(matches!(&error, Error::Missing { rank: 0, missing, .. } if *missing == [1]), "{error}");
        } else {
            let start = Instant::now();
            let told = std::iter::from_fn(|| {
                std::thread::sleep(Duration::from_millis(20));
                Some(group.synchronize(&stream))
            });
            let error = told.take_while(|_| start.elapsed() < SECONDS).find_map(Result::err).unwrap();
            assert!(matches!(&error, Error::Lost { lost: 0, .. }), "{error}");
        }
    });
}

#[test]
fn who_cannot_be_a_group_is_told() {
    const NAME: &str = "who_cannot_be_a_group_is_told";
    in_processes(NAME, 2, |rank| {
        let other = PeerOptions { capacity: 4096 << rank.rank, ..options(Shots::One) };
        let error = rank.peers(other).err().unwrap();
        assert!(matches!(&error, Error::Rendezvous { reason, .. } if reason.contains("8192 bytes")), "{error}");
        // A handle that the driver does not take, of one rank; and memory that has none.
        for (call, code, name, ends) in [
            ("cuIpcOpenMemHandle_v2", 217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", (1, 0)),
            ("cuIpcGetMemHandle", 801, "CUDA_ERROR_NOT_SUPPORTED", (0, 1)),
        ] {
            let fails = || (rank.rank == 1).then(|| software::inject_failure(Some(call), 0, code));
            let injected = fails();
            let error = rank.peers(options(Shots::One)).err().unwrap();
            drop(injected);
            let text = error.to_string();
            let same = matches!(&error, Error::Unreachable { rank, other, .. } if (*rank, *other) == ends);
            assert!(same && text.contains(name), "{text}");
            let injected = fails();
            let device = &rank.device;
            let joined = Exchange::PeersOrSockets.join(&rank.world, device, builtin_image(), SECONDS).unwrap();
            drop(injected);
            assert!(Peers::of(&joined).is_none(), "they meet over sockets");
            let stream = device.stream().unwrap();
            let mut x = stream.upload(&[1.0f32]).unwrap();
            joined.all_reduce(&stream, &mut x, Reduce::Sum).unwrap();
            joined.synchronize(&stream).unwrap();
            assert_eq!(stream.read(&x).unwrap(), [2.0]);
        }
        // A column of logits that it has no room for.
        let group = rank.peers(PeerOptions { capacity: 256, ..options(Shots::One) }).unwrap();
        let model = Model::load_rank(&rank.device, &dense().file(), group, Split::Shares).unwrap();
        let error = Decoder::new(&model, DecoderOptions::default()).err().unwrap();
        assert!(matches!(error, DecodeError::Collective(Error::TooLong { len: 128, most: 64, .. })), "{error}");
    });
    if task().is_some() {
        return;
    }
    // Threads of one process, whose handles are for others.
    let ((all, _turn), address) = (devices(2), World::free_address().unwrap());
    std::thread::scope(|scope| {
        let join = |(rank, device)| {
            let world = World { rank, ranks: 2, local_rank: rank, address: address.clone() };
            scope.spawn(move || Peers::join(&world, device, builtin_image(), options(Shots::One)).err().unwrap())
        };
        let threads: Vec<_> = (0..).zip(&all).map(join).collect();
        for thread in threads {
            let error = thread.join().unwrap();
            assert!(matches!(&error, Error::Unreachable { rank: 0, other: 1, .. }), "{error}");
        }
    });
}
