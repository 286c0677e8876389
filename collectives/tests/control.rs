//! What rank 0 tells the others: in order, whole, to the end; and ranks that go, that have something else in common, or that do not come.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use warpsmith_collectives::{Control, Error, Follow, Lead, World};

const SECONDS: Duration = Duration::from_secs(60);

fn worlds(ranks: u32) -> Vec<World> {
    let address = World::free_address().unwrap();
    (0..ranks).map(|rank| format!("{rank}/{ranks}@{address}").parse().unwrap()).collect()
}

/// All join, each with what it has in common and a number.
fn join(of: &[(&str, u64)], timeout: Duration) -> Vec<Result<(Control, u64), Error>> {
    std::thread::scope(|scope| {
        let worlds = worlds(of.len() as u32);
        let one = |(world, (same, number)): (World, &(&str, u64))| {
            let (same, number) = (same.to_string(), *number);
            scope.spawn(move || Control::join(&world, &same, number, timeout))
        };
        let threads: Vec<_> = worlds.into_iter().zip(of).map(one).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn ends(count: usize) -> (Lead, Vec<Follow>) {
    let mut lead = None;
    let mut follow = Vec::new();
    for joined in join(&vec![("alike", 1); count], SECONDS) {
        match joined.unwrap().0 {
            Control::Lead(end) => lead = Some(end),
            Control::Follow(end) => follow.push(end),
        }
    }
    assert_eq!(follow.len() + 1, count);
    (lead.unwrap(), follow)
}

fn lost(error: &Error) -> (u32, u32) {
    match error {
        Error::Lost { rank, lost, .. } => (*rank, *lost),
        other => panic!("{other}"),
    }
}

#[test]
fn all_hear_everything_in_order_up_to_the_end() {
    let told: Vec<Vec<u8>> =
        [0usize, 1, 4, 70_000, 3 << 20].iter().map(|n| (0..*n).map(|i| i as u8).collect()).collect();
    let (mut lead, follow) = ends(3);
    std::thread::scope(|scope| {
        for mut rank in follow {
            let told = &told;
            scope.spawn(move || {
                for want in told {
                    assert!(rank.hear().unwrap().as_ref() == Some(want), "{} bytes", want.len());
                }
                assert_eq!(rank.hear().unwrap(), None);
            });
        }
        for bytes in &told {
            lead.tell(bytes).unwrap();
        }
        lead.check().unwrap();
        lead.end().unwrap();
    });
    // One alone has nobody to tell.
    let (mut alone, others) = ends(1);
    assert!(others.is_empty());
    alone.tell(b"anything").unwrap();
    alone.end().unwrap();
}

#[test]
fn all_get_the_least_number_and_have_the_same_in_common() {
    for joined in join(&[("alike", 7), ("alike", 5), ("alike", u64::MAX)], SECONDS) {
        assert_eq!(joined.unwrap().1, 5);
    }
    for (rank, refused) in join(&[("alike", 1), ("other", 1)], SECONDS).into_iter().enumerate() {
        let Err(error) = refused else { panic!("rank {rank} has joined") };
        let text = error.to_string();
        assert!(matches!(error, Error::Rendezvous { .. }) && text.contains("rank 1 has other, rank 0 alike"), "{text}");
    }
}

#[test]
fn whoever_does_not_come_is_named() {
    let [first, _] = <[World; 2]>::try_from(worlds(2)).unwrap();
    let Err(error) = Control::join(&first, "", 0, Duration::from_millis(50)) else { panic!("nobody came") };
    assert!(matches!(&error, Error::Missing { rank: 0, missing, .. } if missing == &[1]), "{error}");
}

/// Rank 0 hears of it while it waits for something else, tells nobody any more, and the others are told by its end.
#[test]
fn a_rank_that_goes_is_noticed_at_once() {
    let (mut lead, follow) = ends(3);
    let [mut first, second] = <[Follow; 2]>::try_from(follow).ok().unwrap();
    let (sender, heard) = channel();
    let now = sender.clone();
    lead.on_loss(move || sender.send("lost").unwrap());
    let start = Instant::now();
    drop(second);
    assert_eq!(heard.recv_timeout(SECONDS).unwrap(), "lost");
    assert_eq!(lost(&lead.check().unwrap_err()), (0, 2));
    assert_eq!(lost(&lead.tell(b"more").unwrap_err()), (0, 2));
    lead.on_loss(move || now.send("at once").unwrap());
    assert_eq!(heard.try_recv().unwrap(), "at once");
    assert_eq!(lost(&lead.end().unwrap_err()), (0, 2));
    assert_eq!(lost(&first.hear().unwrap_err()), (1, 0));
    assert!(start.elapsed() < SECONDS / 2, "{:?}", start.elapsed());
}

#[test]
fn a_first_that_goes_without_a_word_is_no_end() {
    let (mut lead, follow) = ends(2);
    let [mut rank] = <[Follow; 1]>::try_from(follow).ok().unwrap();
    lead.tell(b"a").unwrap();
    drop(lead);
    assert_eq!(rank.hear().unwrap(), Some(b"a".to_vec()));
    assert_eq!(lost(&rank.hear().unwrap_err()), (1, 0));
}

#[test]
fn a_place_among_others_is_read_or_told_how_it_is_written() {
    let world: World = "1/3@node7:29501".parse().unwrap();
    assert_eq!(world, World { rank: 1, ranks: 3, local_rank: 1, address: "node7:29501".to_owned() });
    for wrong in ["", "1/3", "3/3@a:1", "-1/3@a:1", "1/3@a", "1/3@:1", "1/3@a:65536", "x/3@a:1"] {
        let error = wrong.parse::<World>().unwrap_err();
        assert!(error.to_string().starts_with(&format!("{wrong}: expected RANK/RANKS@HOST:PORT")), "{error}");
    }
}
