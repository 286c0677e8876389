//! Collectives over TCP, under all checks: bit-equal with the same among threads, recorded as well; and ranks that go, that differ, or that
//! do not come.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Convert, checked, devices, numbers, ranks, twice};
use std::time::{Duration, Instant};
use warpsmith_collectives::{
    Collective, Collectives, Elements, Error, HostRanks, Operation, Reduce, SocketOptions, Sockets, World,
};
use warpsmith_device::{bf16, f16};
use warpsmith_runtime::{Device, Stream};

const SECONDS: Duration = Duration::from_secs(60);

fn world(address: &str, rank: usize, ranks: usize) -> World {
    World { rank: rank as u32, ranks: ranks as u32, local_rank: rank as u32, address: address.to_owned() }
}

/// A group of threads, as processes would be one.
fn sockets(devices: &[Device], options: SocketOptions) -> Vec<Sockets> {
    let address = World::free_address().unwrap();
    std::thread::scope(|scope| {
        let join = |(rank, device)| {
            let world = world(&address, rank, devices.len());
            scope.spawn(move || Sockets::join(&world, device, options).unwrap())
        };
        let threads: Vec<_> = devices.iter().enumerate().map(join).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn options(capacity: usize, timeout: Duration) -> SocketOptions {
    SocketOptions { capacity, timeout }
}

/// [`twice`] by two launches of a graph.
fn by_graph<T: Convert>(rank: &Sockets, stream: &Stream, operation: Operation, len: usize) -> Vec<u32> {
    let mut x = stream.upload(&numbers::<T>(rank.rank(), 5, len)).unwrap();
    let graph = stream.try_capture(|scope| rank.issue(scope.into(), operation, Elements::of(&mut x))).unwrap();
    assert!(graph.foreign_nodes() >= 1 && graph.launches() == 0);
    graph.launch(stream).unwrap();
    graph.launch(stream).unwrap();
    rank.synchronize(stream).unwrap();
    stream.read(&x).unwrap().into_iter().map(Convert::bits).collect()
}

fn compare<T: Convert>(count: usize, operation: Operation, len: usize) {
    let (devices, _turn) = devices(count);
    let host = HostRanks::group(count, SECONDS).unwrap();
    let want = ranks(&host, &devices, |rank, stream| twice::<T, _>(rank, stream, operation, len));
    // Parts of 512 bytes too.
    let whole = matches!(operation, Operation::AllGather | Operation::ReduceScatter(_));
    for capacity in if whole { vec![1 << 16] } else { vec![1 << 16, 512] } {
        let group = sockets(&devices, options(capacity, SECONDS));
        let got = checked(&group, &devices, |rank, s| twice::<T, _>(rank, s, operation, len));
        assert_eq!(got, want, "{operation:?} of {len} {:?} by {count}, {capacity}", T::KIND);
        let got = checked(&group, &devices, |rank, s| by_graph::<T>(rank, s, operation, len));
        assert_eq!(got, want, "{operation:?} of {len} {:?} by {count}, {capacity}, recorded", T::KIND);
    }
}

#[test]
fn results_have_the_bits_of_sums_in_the_order_of_the_ranks() {
    compare::<f32>(1, Operation::AllReduce(Reduce::Sum), 33);
    compare::<f32>(3, Operation::AllReduce(Reduce::Sum), 1025);
    compare::<f16>(4, Operation::AllReduce(Reduce::Sum), 301);
    compare::<bf16>(2, Operation::AllReduce(Reduce::Max), 77);
    compare::<f32>(4, Operation::AllReduce(Reduce::Max), 17);
    compare::<f32>(4, Operation::ReduceScatter(Reduce::Sum), 400);
    compare::<f16>(3, Operation::ReduceScatter(Reduce::Max), 600);
    compare::<f32>(3, Operation::AllGather, 999);
    compare::<bf16>(4, Operation::AllGather, 64);
    compare::<f32>(4, Operation::Broadcast { root: 2 }, 301);
    compare::<f16>(2, Operation::Broadcast { root: 0 }, 35);
}

/// A ring: each rank sends to the next, three messages in a row, in several parts.
#[test]
fn messages_arrive_in_order() {
    let (devices, _turn) = devices(3);
    let group = sockets(&devices, options(256, SECONDS));
    let got = checked(&group, &devices, |rank, stream| {
        let (next, before) = ((rank.rank() + 1) % 3, (rank.rank() + 2) % 3);
        let round = |round| {
            let mut out = stream.upload(&numbers::<f32>(rank.rank(), round, 150)).unwrap();
            let mut x = stream.zeros::<f32>(150).unwrap();
            rank.send(stream, &mut out, next).unwrap();
            rank.receive(stream, &mut x, before).unwrap();
            rank.synchronize(stream).unwrap();
            stream.read(&x).unwrap()
        };
        [0, 1, 2].map(round)
    });
    for (rank, rounds) in got.iter().enumerate() {
        for (round, x) in rounds.iter().enumerate() {
            assert_eq!(*x, numbers::<f32>((rank as u32 + 2) % 3, round as u32, 150), "rank {rank}, round {round}");
        }
    }
}

#[test]
fn what_cannot_be_is_said_before_anything_is_issued() {
    let (devices, _turn) = devices(1);
    let [rank] = &sockets(&devices, options(64, SECONDS))[..] else { panic!() };
    let stream = devices[0].stream().unwrap();
    let mut x = stream.zeros::<f32>(17).unwrap();
    assert!(matches!(rank.send(&stream, &mut x, 1), Err(Error::NoRank { rank: 1, ranks: 1, .. })));
    assert!(matches!(rank.all_gather(&stream, &mut x), Err(Error::TooLong { len: 17, most: 16, .. })));
    rank.all_gather(&stream, &mut x[..0]).unwrap();
    rank.synchronize(&stream).unwrap();
}

/// What every rank's `synchronize` says when one of them does something else, and how long that took.
fn with(
    count: usize,
    timeout: Duration,
    does: impl Fn(&Sockets, &Stream) -> Result<(), Error> + Sync,
) -> Vec<Result<(), Error>> {
    let (devices, _turn) = devices(count);
    let group = sockets(&devices, options(1 << 12, timeout));
    let start = Instant::now();
    let results = std::thread::scope(|scope| {
        let run = |(rank, device): (Sockets, &Device)| {
            let (does, device) = (&does, device.clone());
            scope.spawn(move || {
                let stream = device.stream().unwrap();
                let result = does(&rank, &stream);
                let first = result.and_then(|()| rank.synchronize(&stream));
                if first.is_err() {
                    // From then on the group is no more.
                    let mut x = stream.zeros::<f32>(4).unwrap();
                    let again = rank.all_reduce(&stream, &mut x, Reduce::Sum);
                    assert!(matches!(again, Err(Error::Broken { .. })), "{again:?}");
                    assert!(matches!(rank.synchronize(&stream), Err(Error::Broken { .. })));
                }
                first
            })
        };
        let threads: Vec<_> = group.into_iter().zip(&devices).map(run).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    results
}

#[test]
fn a_rank_that_leaves_is_named_at_once() {
    let results = with(3, SECONDS, |rank, stream| {
        let mut x = stream.zeros::<f32>(100)?;
        rank.all_reduce(stream, &mut x, Reduce::Sum)?;
        rank.synchronize(stream)?;
        if rank.rank() == 1 {
            rank.leave();
            return Ok(());
        }
        rank.all_reduce(stream, &mut x, Reduce::Sum)
    });
    for rank in [0, 2] {
        let error = results[rank].as_ref().unwrap_err();
        assert!(matches!(error, Error::Lost { lost: 1, .. }), "{rank}: {error}");
    }
    assert!(matches!(&results[1], Err(Error::Broken { .. })), "{:?}", results[1]);
}

#[test]
fn ranks_that_do_not_do_the_same_are_told() {
    let results = with(2, SECONDS, |rank, stream| {
        let mut x = stream.zeros::<f32>(100)?;
        match rank.rank() {
            0 => rank.all_reduce(stream, &mut x, Reduce::Sum),
            _ => rank.all_reduce(stream, &mut x[..99], Reduce::Sum),
        }
    });
    let texts: Vec<String> = results.iter().map(|r| r.as_ref().unwrap_err().to_string()).collect();
    let differs = results.iter().filter(|r| matches!(r, Err(Error::Differs { .. }))).count();
    assert!(differs >= 1, "{texts:?}");
    assert!(texts.iter().all(|t| t.contains("all-reduce (sum) of 100 f32") && t.contains("of 99 f32")), "{texts:?}");
}

#[test]
fn a_rank_that_does_not_come_is_named_after_the_time_that_was_said() {
    let results = with(3, Duration::from_millis(300), |rank, stream| {
        let mut x = stream.zeros::<f32>(100)?;
        if rank.rank() == 2 {
            std::thread::sleep(Duration::from_secs(2));
            return Ok(());
        }
        rank.all_reduce(stream, &mut x, Reduce::Sum)
    });
    let named = |error: &Error| match error {
        Error::Missing { missing, waited, .. } => *missing == [2] && *waited >= Duration::from_millis(300),
        // The other was first to notice.
        Error::Lost { lost: 2, .. } => true,
        _ => false,
    };
    for rank in [0, 1] {
        let error = results[rank].as_ref().unwrap_err();
        assert!(named(error), "{rank}: {error}");
    }
}

/// Ranks that cannot be a group, each with what all of them are told.
#[test]
fn ranks_that_cannot_be_a_group_are_told_why() {
    let (devices, _turn) = devices(2);
    let meet = |worlds: [World; 2]| {
        let join = |(world, device): (&World, &Device)| Sockets::join(world, device, options(64, SECONDS)).err();
        std::thread::scope(|scope| {
            let threads = worlds.each_ref().map(|world| scope.spawn(|| join((world, &devices[0]))));
            threads.map(|t| t.join().unwrap().map(|e| e.to_string()).unwrap_or_default())
        })
    };
    let (at, start) = (World::free_address().unwrap(), Instant::now());
    for text in meet([world(&at, 0, 2), world(&at, 1, 3)]) {
        assert!(text.contains("rank 1 says that there are 3 ranks, rank 0 2"), "{text}");
    }
    let (at, text) = (World::free_address().unwrap(), "there are two ranks");
    let same = World { rank: 1, ranks: 3, local_rank: 0, address: at.clone() };
    let first = world(&at, 0, 3);
    std::thread::scope(|scope| {
        let two = [&same, &same].map(|w| scope.spawn(|| Sockets::join(w, &devices[1], options(64, SECONDS)).err()));
        let zero = Sockets::join(&first, &devices[0], options(64, SECONDS)).err().unwrap();
        assert!(zero.to_string().contains(text), "{zero}");
        for thread in two {
            let error = thread.join().unwrap().unwrap();
            assert!(error.to_string().contains(text), "{error}");
        }
    });
    assert!(start.elapsed() < Duration::from_secs(20));
}
