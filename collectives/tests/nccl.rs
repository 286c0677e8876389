//! NCCL by a library that writes down how it is called: what arrives there, in which place and order.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "common/fake_nccl.rs"]
mod fake_nccl;

use common::devices;
use fake_nccl::library;
use std::time::Duration;
use warpsmith_collectives::{Collective, Collectives, Error, Library, Nccl, Reduce, UniqueId, World};
use warpsmith_device::{bf16, f16};

const SECONDS: Duration = Duration::from_secs(20);

#[test]
fn each_call_has_the_arguments_of_nccl() {
    let (devices, _turn) = devices(2);
    let (path, calls) = library();
    let library = Library::at(path).unwrap();
    assert_eq!(library.version().unwrap(), 22807);
    let id = library.unique_id().unwrap();
    assert_eq!((id.0[0], id.0[127]), (1, 128));
    let stream = devices[1].stream().unwrap();
    let (mut x, mut h) = (stream.zeros::<f32>(12).unwrap(), stream.zeros::<f16>(8).unwrap());
    let mut b = stream.zeros::<bf16>(4).unwrap();
    {
        let rank = Nccl::new(&library, &devices[1], id, (1, 2), SECONDS).unwrap();
        assert_eq!((rank.rank(), rank.ranks()), (1, 2));
        rank.all_reduce(&stream, &mut x, Reduce::Sum).unwrap();
        rank.all_reduce(&stream, &mut h, Reduce::Max).unwrap();
        rank.reduce_scatter(&stream, &mut x, Reduce::Sum).unwrap();
        rank.all_gather(&stream, &mut h).unwrap();
        rank.broadcast(&stream, &mut b, 0).unwrap();
        rank.send(&stream, &mut b, 0).unwrap();
        rank.receive(&stream, &mut x, 0).unwrap();
        rank.synchronize(&stream).unwrap();
        // Recorded, the call is made once; what it would record is the library's.
        let graph = stream.try_capture(|scope| rank.all_reduce(scope, &mut x, Reduce::Sum)).unwrap();
        assert_eq!(graph.foreign_nodes(), 0);
        assert!(matches!(rank.send(&stream, &mut b, 1), Err(Error::NoRank { rank: 1, .. })));
        assert!(matches!(rank.all_gather(&stream, &mut x[..5]), Err(Error::Slices { len: 5, ranks: 2, unit: 1, .. })));
        let mut odd = stream.zeros::<f32>(999).unwrap();
        let error = rank.all_reduce(&stream, &mut odd, Reduce::Sum).unwrap_err();
        assert!(
            matches!(&error, Error::Nccl { call: "ncclAllReduce", code: 5, text } if text == "text of 5"),
            "{error}"
        );
    }
    let (x, h, b, s) = (x.address().raw(), h.address().raw(), b.address().raw(), stream.raw().addr());
    let want = [
        "ncclCommInitRank 2 1 of 1..128".to_owned(),
        format!("ncclAllReduce {x:#x} {x:#x} 12 7 0 0xc0 {s:#x}"),
        format!("ncclAllReduce {h:#x} {h:#x} 8 6 2 0xc0 {s:#x}"),
        format!("ncclReduceScatter {x:#x} {:#x} 6 7 0 0xc0 {s:#x}", x + 24),
        format!("ncclAllGather {:#x} {h:#x} 4 6 0xc0 {s:#x}", h + 8),
        format!("ncclBroadcast {b:#x} {b:#x} 4 9 0 0xc0 {s:#x}"),
        format!("ncclSend {b:#x} 4 9 0 0xc0 {s:#x}"),
        format!("ncclRecv {x:#x} 12 7 0 0xc0 {s:#x}"),
        format!("ncclAllReduce {x:#x} {x:#x} 12 7 0 0xc0 {s:#x}"),
        "ncclCommDestroy 0xc0".to_owned(),
    ];
    let made = std::fs::read_to_string(calls).unwrap();
    let made: Vec<&str> = made.lines().filter(|l| !l.contains(" 999 ")).collect();
    assert_eq!(made, want);
}

#[test]
fn a_library_that_is_not_there_is_an_error_that_names_it() {
    let error = Library::at("libnccl-of-nobody.so.2").err().unwrap();
    assert!(matches!(&error, Error::NoNccl { path, .. } if path.ends_with("libnccl-of-nobody.so.2")), "{error}");
    assert!(error.to_string().contains("WARPSMITH_NCCL"), "{error}");
}

fn world(list: &[(&str, &str)]) -> Result<World, Error> {
    World::by(|name| list.iter().find(|v| v.0 == name).map(|v| v.1.to_owned()))
}

#[test]
fn launchers_say_who_a_process_is() {
    let of = |rank, ranks, local_rank, address: &str| World { rank, ranks, local_rank, address: address.to_owned() };
    assert_eq!(world(&[]).unwrap(), of(0, 1, 0, "127.0.0.1:29501"));
    let torchrun =
        [("RANK", "5"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1"), ("MASTER_ADDR", "node3"), ("MASTER_PORT", "1000")];
    assert_eq!(world(&torchrun).unwrap(), of(5, 8, 1, "node3:1001"));
    let mpi = [
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("OMPI_COMM_WORLD_SIZE", "2"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
        ("WARPSMITH_RENDEZVOUS", "head:77"),
    ];
    assert_eq!(world(&mpi).unwrap(), of(1, 2, 1, "head:77"));
    let slurm = [
        ("SLURM_PROCID", "3"),
        ("SLURM_NTASKS", "4"),
        ("SLURM_LOCALID", "0"),
        ("SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"),
    ];
    assert_eq!(world(&slurm).unwrap(), of(3, 4, 0, "10.0.0.1:29501"));
    for (list, variable) in [
        (&[("RANK", "x")][..], "RANK"),
        (&[("RANK", "1")], "WORLD_SIZE"),
        (&[("RANK", "2"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0")], "RANK"),
        (&[("MASTER_PORT", "65535")], "MASTER_PORT"),
    ] {
        let error = world(list).unwrap_err();
        assert!(matches!(&error, Error::Variable { variable: name, .. } if *name == variable), "{error}");
    }
}

#[test]
fn ranks_meet_and_share_an_id() {
    let address = World::free_address().unwrap();
    let of = |rank| World { rank, ranks: 3, local_rank: 0, address: address.clone() };
    let mut id = UniqueId::default();
    id.0[5] = 42;
    let share = |rank: u32| of(rank).share(|| Ok(id), SECONDS).unwrap().0;
    std::thread::scope(|scope| {
        let others = [1, 2].map(|rank| scope.spawn(move || share(rank)));
        std::thread::sleep(Duration::from_millis(50));
        // A stranger keeps nobody from coming.
        let stranger = scope.spawn(|| {
            use std::io::Write;
            let mut stream = std::net::TcpStream::connect(&of(0).address);
            for _ in 0..50 {
                if stream.is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(2));
                stream = std::net::TcpStream::connect(&of(0).address);
            }
            stream.map(|mut s| s.write_all(b"GET / HTTP/1.0\r\n\r\n")).is_ok()
        });
        assert_eq!(share(0), id.0);
        others.into_iter().for_each(|other| assert_eq!(other.join().unwrap(), id.0));
        let _ = stranger.join();
    });
}

#[test]
fn ranks_that_do_not_come_are_named() {
    let address = World::free_address().unwrap();
    let short = Duration::from_millis(200);
    let of = |rank| World { rank, ranks: 3, local_rank: 0, address: address.clone() };
    std::thread::scope(|scope| {
        let one = scope.spawn(|| of(1).share(|| Ok(UniqueId::default()), SECONDS));
        let error = of(0).share(|| Ok(UniqueId::default()), short).unwrap_err();
        assert!(matches!(&error, Error::Missing { rank: 0, missing, .. } if *missing == [2]), "{error}");
        // Who has come is told.
        let told = one.join().unwrap().unwrap_err();
        assert!(matches!(&told, Error::Rendezvous { reason, .. } if reason.contains("for rank 2")), "{told}");
    });
    let error = of(2).share(|| Ok(UniqueId::default()), short).unwrap_err();
    assert!(matches!(&error, Error::Missing { rank: 2, missing, .. } if *missing == [0]), "{error}");
}
