//! Our collectives over peer memory, under all checks: bit-equal with the same through host memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Convert, checked, clean, devices, numbers, ranks, rounding, twice};
use std::time::Duration;
use warpsmith_collectives::{Collective, Collectives, Error, HostRanks, Operation, PeerOptions, Peers, Reduce, Shots};
use warpsmith_device::{bf16, f16};
use warpsmith_runtime::{Device, Stream};

const SECONDS: Duration = Duration::from_secs(60);

fn peers(devices: &[Device], shots: Shots, capacity: usize) -> Vec<Peers> {
    let options = PeerOptions { capacity, shots, timeout: SECONDS };
    Peers::group(devices, warpsmith_llm::builtin_image(), options).unwrap()
}

fn compare<T: Convert>(count: usize, operation: Operation, len: usize) {
    let (devices, _turn) = devices(count);
    let host = HostRanks::group(count, SECONDS).unwrap();
    let want = ranks(&host, &devices, |rank, stream| twice::<T, _>(rank, stream, operation, len));
    for shots in [Shots::One, Shots::Two] {
        // Parts of 512 bytes too.
        let whole = matches!(operation, Operation::AllGather | Operation::ReduceScatter(_));
        for capacity in if whole { vec![1 << 16] } else { vec![1 << 16, 512] } {
            let group = peers(&devices, shots, capacity);
            let got = checked(&group, &devices, |rank, s| twice::<T, _>(rank, s, operation, len));
            assert_eq!(got, want, "{operation:?} of {len} {:?} by {count}, {shots:?}, {capacity}", T::KIND);
        }
    }
}

#[test]
fn all_reduce_has_the_bits_of_a_sum_in_the_order_of_the_ranks() {
    compare::<f32>(1, Operation::AllReduce(Reduce::Sum), 33);
    compare::<f32>(2, Operation::AllReduce(Reduce::Sum), 1);
    compare::<f32>(3, Operation::AllReduce(Reduce::Sum), 1025);
    compare::<f32>(4, Operation::AllReduce(Reduce::Max), 517);
    compare::<f16>(4, Operation::AllReduce(Reduce::Sum), 301);
    compare::<bf16>(3, Operation::AllReduce(Reduce::Sum), 77);
    compare::<bf16>(2, Operation::AllReduce(Reduce::Max), 64);
    compare::<f32>(8, Operation::AllReduce(Reduce::Sum), 77);
}

#[test]
fn slices_are_scattered_and_gathered_and_a_root_is_heard() {
    compare::<f32>(4, Operation::ReduceScatter(Reduce::Sum), 400);
    compare::<f16>(3, Operation::ReduceScatter(Reduce::Max), 600);
    compare::<f32>(3, Operation::AllGather, 999);
    compare::<bf16>(4, Operation::AllGather, 64);
    compare::<f32>(4, Operation::Broadcast { root: 2 }, 301);
    compare::<f16>(2, Operation::Broadcast { root: 0 }, 35);
    compare::<f16>(8, Operation::ReduceScatter(Reduce::Sum), 160);
    compare::<bf16>(8, Operation::AllGather, 160);
}

/// Host memory against f64, which owes nothing to either.
#[test]
fn sums_through_host_memory_are_those_of_f64() {
    fn sums<T: Convert>(count: usize) {
        let (devices, _turn) = devices(count);
        let host = HostRanks::group(count, SECONDS).unwrap();
        let got = ranks(&host, &devices, |rank, stream| {
            let mut x = stream.upload(&numbers::<T>(rank.rank(), 9, 100)).unwrap();
            rank.all_reduce(stream, &mut x, Reduce::Sum).unwrap();
            stream.read(&x).unwrap()
        });
        let all: Vec<Vec<T>> = (0..count as u32).map(|rank| numbers(rank, 9, 100)).collect();
        for i in 0..100 {
            let (sum, size) = all.iter().map(|x| x[i].value()).fold((0.0, 0.0), |(s, a), v| (s + v, a + v.abs()));
            for x in &got {
                assert!((x[i].value() - sum).abs() <= rounding(T::KIND) * size, "{i}: {:?} for {sum}", x[i]);
            }
        }
    }
    sums::<f32>(4);
    sums::<f16>(3);
    sums::<bf16>(2);
}

/// A ring: each rank sends to the next, three messages in a row, longer than a mailbox.
#[test]
fn messages_arrive_in_order() {
    let (devices, _turn) = devices(3);
    let group = peers(&devices, Shots::One, 256);
    let got = {
        checked(&group, &devices, |rank, stream| {
            let (next, before) = ((rank.rank() + 1) % 3, (rank.rank() + 2) % 3);
            let mut received = Vec::new();
            for round in 0..3 {
                let mut out = stream.upload(&numbers::<f32>(rank.rank(), round, 150)).unwrap();
                let mut x = stream.zeros::<f32>(150).unwrap();
                // Somebody has to receive first: a mailbox holds one part.
                if rank.rank() == 0 {
                    rank.receive(stream, &mut x, before).unwrap();
                    rank.send(stream, &mut out, next).unwrap();
                } else {
                    rank.send(stream, &mut out, next).unwrap();
                    rank.receive(stream, &mut x, before).unwrap();
                }
                rank.synchronize(stream).unwrap();
                received.push(stream.read(&x).unwrap());
            }
            received
        })
    };
    for (rank, rounds) in got.iter().enumerate() {
        for (round, x) in rounds.iter().enumerate() {
            assert_eq!(*x, numbers::<f32>((rank as u32 + 2) % 3, round as u32, 150), "rank {rank}, round {round}");
        }
    }
}

/// Messages of many lengths in a row, which the sender's blocks share out otherwise each time: none overwrites what another block's share
/// of the message before was.
#[test]
fn messages_of_other_lengths_wait_for_those_before() {
    const LENGTHS: [usize; 5] = [64, 22, 50, 9, 41];
    const MESSAGES: usize = 200;
    let (devices, _turn) = devices(2);
    let group = peers(&devices, Shots::One, 256);
    let sent = |n: usize| numbers::<f32>(0, n as u32, LENGTHS[n % LENGTHS.len()]);
    let got = checked(&group, &devices, |rank, stream| {
        let mut buffers: Vec<_> = (0..MESSAGES).map(|n| stream.upload(&sent(n)).unwrap()).collect();
        for x in &mut buffers {
            match rank.rank() {
                0 => rank.send(stream, x, 1).unwrap(),
                _ => {
                    stream.fill(x, 0.0).unwrap();
                    rank.receive(stream, x, 0).unwrap();
                }
            }
        }
        rank.synchronize(stream).unwrap();
        buffers.iter().map(|x| stream.read(x).unwrap()).collect::<Vec<_>>()
    });
    for (n, x) in got[1].iter().enumerate() {
        assert!(*x == sent(n), "message {n}");
    }
}

/// A graph of two collectives and a residual stream, replayed, beside the same eagerly; ranks that are late by turns.
#[test]
fn graphs_replay_and_late_ranks_are_waited_for() {
    let (devices, _turn) = devices(4);
    for shots in [Shots::One, Shots::Two] {
        let group = peers(&devices, shots, 4096);
        let run = |graphed: bool| {
            checked(&group, &devices, |rank, stream| {
                let mut x = stream.upload(&numbers::<f32>(rank.rank(), 1, 300)).unwrap();
                let mut y = stream.upload(&numbers::<f32>(7, 2, 300)).unwrap();
                let graph = graphed.then(|| {
                    let record = |scope: &mut warpsmith_runtime::Capture<'_>| -> Result<(), Error> {
                        rank.all_reduce_onto(&mut *scope, &mut x, &mut y)?;
                        rank.broadcast(&mut *scope, &mut x, 1)?;
                        rank.all_reduce(scope, &mut x, Reduce::Sum)
                    };
                    let mut record = record;
                    stream.try_capture(|scope| record(scope)).unwrap()
                });
                for turn in 0..4 {
                    if turn == rank.rank() {
                        std::thread::sleep(Duration::from_millis(30));
                    }
                    match &graph {
                        Some(graph) => graph.launch(stream).unwrap(),
                        None => {
                            rank.all_reduce_onto(stream, &mut x, &mut y).unwrap();
                            rank.broadcast(stream, &mut x, 1).unwrap();
                            rank.all_reduce(stream, &mut x, Reduce::Sum).unwrap();
                        }
                    }
                }
                rank.synchronize(stream).unwrap();
                let bits = |v: Vec<f32>| v.into_iter().map(f32::to_bits).collect::<Vec<_>>();
                (bits(stream.read(&x).unwrap()), bits(stream.read(&y).unwrap()))
            })
        };
        let (eager, graphed) = (run(false), run(true));
        assert_eq!(eager, graphed, "{shots:?}");
        assert!(eager.windows(2).all(|w| w[0] == w[1]), "all ranks have the same bits");
        assert_ne!(eager[0].1, numbers::<f32>(7, 2, 300).into_iter().map(f32::to_bits).collect::<Vec<_>>());
    }
}

/// The residual stream gets what all-reduce gives.
#[test]
fn a_sum_goes_onto_the_residual_stream() {
    let (devices, _turn) = devices(2);
    let group = peers(&devices, Shots::Two, 512);
    let got = {
        checked(&group, &devices, |rank, stream| {
            let mut x = stream.upload(&numbers::<f32>(rank.rank(), 1, 301)).unwrap();
            let mut y = stream.upload(&numbers::<f32>(9, 2, 301)).unwrap();
            rank.all_reduce_onto(stream, &mut x, &mut y).unwrap();
            rank.synchronize(stream).unwrap();
            assert_eq!(stream.read(&x).unwrap(), numbers::<f32>(rank.rank(), 1, 301), "it stays");
            stream.read(&y).unwrap()
        })
    };
    let (a, b, y) = (numbers::<f32>(0, 1, 301), numbers::<f32>(1, 1, 301), numbers::<f32>(9, 2, 301));
    let want: Vec<f32> = (0..301).map(|i| y[i] + (a[i] + b[i])).collect();
    assert_eq!(got, [want.clone(), want]);
}

/// Nobody hangs: the others are told who did not come, and the group says so from then on.
#[test]
fn a_rank_that_does_not_come_is_named() {
    let (devices, _turn) = devices(3);
    for shots in [Shots::One, Shots::Two] {
        let options = PeerOptions { capacity: 4096, shots, timeout: Duration::from_millis(300) };
        let group = Peers::group(&devices, warpsmith_llm::builtin_image(), options).unwrap();
        let ends = ranks(&group, &devices, |rank, stream| {
            if rank.rank() == 1 {
                return None;
            }
            let mut x = stream.zeros::<f32>(100).unwrap();
            rank.all_reduce(stream, &mut x, Reduce::Sum).unwrap();
            let first = rank.synchronize(stream).unwrap_err();
            Some((first, rank.all_reduce(stream, &mut x, Reduce::Sum).unwrap_err()))
        });
        for (first, then) in ends.into_iter().flatten() {
            assert!(matches!(&first, Error::Missing { missing, .. } if *missing == [1]), "{first}");
            assert!(matches!(&then, Error::Broken { missing } if *missing == [1]), "{then}");
        }
    }
    // A message that nobody sends.
    let options = PeerOptions { capacity: 4096, shots: Shots::One, timeout: Duration::from_millis(200) };
    let group = Peers::group(&devices, warpsmith_llm::builtin_image(), options).unwrap();
    let stream = devices[0].stream().unwrap();
    let mut x = stream.zeros::<f32>(4).unwrap();
    group[0].receive(&stream, &mut x, 2).unwrap();
    let error = group[0].synchronize(&stream).unwrap_err();
    assert!(matches!(&error, Error::Missing { rank: 0, missing, .. } if *missing == [2]), "{error}");
}

/// One thread issues what all ranks do, each on a stream of its device.
fn together(group: &[Peers], streams: &[Stream], issue: impl Fn(&Peers, &Stream)) -> Result<(), (u32, Error)> {
    group.iter().zip(streams).for_each(|(rank, stream)| issue(rank, stream));
    let marks = Peers::marks(group, streams.iter())?;
    Peers::wait_for(group, streams.iter(), marks)
}

/// Of each column every rank has a slice, the last a shorter one, and nothing between columns is touched.
#[test]
fn slices_of_columns_are_gathered() {
    let (devices, _turn) = devices(3);
    let (columns, len, stride, slice) = (5, 50, 53, 20);
    let owner = |i: usize| (i % stride < len).then(|| (i % stride / slice) as u32);
    // All at a time, two, and one.
    for capacity in [4096, 2 * stride * 4, stride * 4] {
        let group = peers(&devices, Shots::Two, capacity);
        let streams: Vec<Stream> = devices.iter().map(|d| d.stream().unwrap()).collect();
        let mut all: Vec<_> = streams
            .iter()
            .zip(0..)
            .map(|(s, rank)| s.upload(&numbers::<f32>(rank, 4, columns * stride)).unwrap())
            .collect();
        clean(|| {
            for _ in 0..2 {
                for ((rank, stream), x) in group.iter().zip(&streams).zip(&mut all) {
                    // SAFETY: the group outlives what is launched.
                    unsafe { rank.launch_gather_columns(&mut &*stream, x, (columns, len, stride), slice) }.unwrap();
                }
            }
            together(&group, &streams, |_, _| ()).unwrap();
        });
        for (x, (stream, rank)) in all.iter().zip(streams.iter().zip(0..)) {
            let got = stream.read(x).unwrap();
            for (i, v) in got.iter().enumerate() {
                assert_eq!(
                    *v,
                    numbers::<f32>(owner(i).unwrap_or(rank), 4, columns * stride)[i],
                    "{rank} {i} {capacity}"
                );
            }
        }
    }
}

/// After a rank that did not come, and without waiting for one, the whole group is as new, and so are its graphs.
#[test]
fn a_group_recovers() {
    let (devices, _turn) = devices(3);
    let options = PeerOptions { capacity: 4096, shots: Shots::Two, timeout: Duration::from_millis(300) };
    let group = Peers::group(&devices, warpsmith_llm::builtin_image(), options).unwrap();
    let streams: Vec<Stream> = devices.iter().map(|d| d.stream().unwrap()).collect();
    let buffers = || streams.iter().map(|s| s.upload(&numbers::<f32>(7, 1, 300)).unwrap()).collect::<Vec<_>>();
    for waits in [true, false] {
        let mut lost = buffers();
        let reduce = |rank: &Peers, stream: &Stream, x: &mut _| rank.all_reduce(stream, x, Reduce::Sum).unwrap();
        for (rank, (stream, x)) in group.iter().zip(streams.iter().zip(&mut lost)).filter(|(rank, _)| rank.rank() != 1)
        {
            reduce(rank, stream, x);
        }
        if waits {
            let (rank, error) = together(&group, &streams, |_, _| ()).unwrap_err();
            assert!(matches!(&error, Error::Missing { missing, .. } if rank == 0 && *missing == [1]), "{error}");
            let (_, error) = together(&group, &streams, |_, _| ()).unwrap_err();
            assert!(matches!(&error, Error::Broken { missing } if *missing == [1]), "{error}");
        }
        Peers::recover(&group, streams.iter()).unwrap();
        let mut all = buffers();
        for (rank, (stream, x)) in group.iter().zip(streams.iter().zip(&mut all)) {
            reduce(rank, stream, x);
        }
        together(&group, &streams, |_, _| ()).unwrap();
        let want: Vec<f32> = numbers::<f32>(7, 1, 300).iter().map(|v| v + v + v).collect();
        assert!(all.iter().zip(&streams).all(|(x, s)| s.read(x).unwrap() == want), "{waits}");
    }
}

#[test]
fn what_cannot_be_done_is_said() {
    let (devices, _turn) = devices(3);
    let group = peers(&devices, Shots::One, 1024);
    let stream = devices[0].stream().unwrap();
    let mut x = stream.zeros::<f32>(100).unwrap();
    let error = group[0].all_gather(&stream, &mut x).unwrap_err();
    assert!(matches!(error, Error::Slices { len: 100, ranks: 3, unit: 1, .. }), "{error}");
    let mut h = stream.zeros::<f16>(9).unwrap();
    assert!(matches!(group[0].all_gather(&stream, &mut h), Err(Error::Slices { unit: 2, .. })));
    let mut long = stream.zeros::<f32>(300).unwrap();
    assert!(matches!(group[0].all_gather(&stream, &mut long), Err(Error::TooLong { len: 300, most: 256, .. })));
    assert!(matches!(group[0].broadcast(&stream, &mut x, 3), Err(Error::NoRank { rank: 3, ranks: 3, .. })));
    assert!(matches!(group[0].send(&stream, &mut x, 0), Err(Error::NoRank { rank: 0, .. })));
    let none = Peers::group(&[], warpsmith_llm::builtin_image(), PeerOptions::default());
    assert!(matches!(none, Err(Error::Ranks { ranks: 0, most: 16 })));
    let host = HostRanks::group(1, SECONDS).unwrap();
    let captured = stream.try_capture(|scope| host[0].all_reduce(scope, &mut x, Reduce::Sum));
    assert!(matches!(captured, Err(Error::NotCapturable("all-reduce"))));
    // Memory of another device.
    let mut far = devices[1].stream().unwrap().zeros::<f32>(4).unwrap();
    let error = group[0].all_reduce(&stream, &mut far, Reduce::Sum).unwrap_err();
    assert!(
        matches!(error, Error::Runtime(warpsmith_runtime::Error::ForeignDevice { owner: 1, device: 0, .. })),
        "{error}"
    );
}

/// Host ranks also name who is missing.
#[test]
fn a_rank_that_does_not_come_through_host_memory_is_named() {
    let (devices, _turn) = devices(3);
    let host = HostRanks::group(3, Duration::from_millis(200)).unwrap();
    let ends = ranks(&host, &devices, |rank, stream| {
        let mut x = stream.zeros::<f32>(4).unwrap();
        (rank.rank() != 2).then(|| rank.all_reduce(stream, &mut x, Reduce::Sum).unwrap_err())
    });
    for error in ends.into_iter().flatten() {
        assert!(
            matches!(&error, Error::Missing { missing, .. } | Error::Broken { missing } if *missing == [2]),
            "{error}"
        );
    }
}

/// The runtime's own copies between devices.
#[test]
fn buffers_are_copied_between_devices_and_by_graphs() {
    let (devices, _turn) = devices(2);
    let (a, b) = (devices[0].stream().unwrap(), devices[1].stream().unwrap());
    clean(|| {
        let (mut near, mut far) = (a.zeros::<u32>(1000).unwrap(), b.zeros::<u32>(1000).unwrap());
        a.fill(&mut near, 7).unwrap();
        // Each waits for what used the memory on the other device, without being told.
        b.copy_peer(&near, &mut far).unwrap();
        a.fill(&mut near, 9).unwrap();
        assert_eq!(b.read(&far).unwrap(), [7; 1000]);
        let graph = a.capture(|scope| scope.copy_peer(&near, &mut far)).unwrap();
        graph.launch(&a).unwrap();
        assert_eq!(b.read(&far).unwrap(), [9; 1000]);
        let error = a.copy_peer(&near[..4], &mut far).unwrap_err();
        assert!(matches!(error, warpsmith_runtime::Error::SizeMismatch { to: 1000, from: 4, .. }));
    });
    assert!(devices[0].can_access(&devices[1]).unwrap() && !devices[0].can_access(&devices[0]).unwrap());
    devices[0].enable_peer(&devices[1]).unwrap();
    devices[0].enable_peer(&devices[1]).unwrap();
    devices[0].enable_peer(&devices[0]).unwrap();
}
