//! The order against what CUDA promises, and against reachability.

use super::*;

fn own(id: u64) -> Lane {
    Lane { key: StreamKey::Own(id), context: 1, blocking: false }
}
fn blocking(id: u64) -> Lane {
    Lane { blocking: true, ..own(id) }
}
fn legacy() -> Lane {
    Lane { key: StreamKey::Legacy(1), context: 1, blocking: true }
}

/// A graph's nodes by what they depend on, none of them kernels.
fn plain(nodes: &[&[usize]]) -> Vec<(Follows, Vec<usize>)> {
    nodes.iter().map(|deps| (Follows::Other, deps.to_vec())).collect()
}

#[test]
fn programmatic_launches_may_begin_before_the_kernel_in_front_has_ended() {
    use Follows::{Ended, Other};
    const BEGUN: Follows = Follows::Begun { lets_behind_wait: false };
    let mut order = Order::default();
    let copy = order.begin(own(1), Other);
    let a = order.begin(own(1), Ended);
    let b = order.begin(own(1), BEGUN);
    assert!(b.begins_early() && b.ordered_before(a.id()) && b.ordered_before_wait(copy.id()));
    assert!(!b.ordered_before_wait(a.id()));
    // `b` may have let it begin before `a` had ended.
    let c = order.begin(own(1), BEGUN);
    assert!(!c.ordered_before_wait(b.id()) && !c.ordered_before_wait(a.id()) && c.ordered_before_wait(copy.id()));
    // An ordinary launch, one behind a copy, and one whose predecessor the host has waited for.
    let d = order.begin(own(1), Ended);
    assert!(!d.begins_early() && [a.id(), b.id(), c.id()].iter().all(|&op| d.ordered_before_wait(op)));
    order.begin(own(1), Other);
    assert!(!order.begin(own(1), BEGUN).begins_early());
    let e = order.begin(own(1), Ended);
    order.stream_done(own(1));
    let f = order.begin(own(1), BEGUN);
    assert!(f.ordered_before_wait(e.id()));
    // Nodes: a copy, a kernel, two programmatic ones behind it, and one with two dependencies.
    let deps: [(Follows, &[usize]); 5] = [(Other, &[]), (Ended, &[0]), (BEGUN, &[1]), (BEGUN, &[0]), (BEGUN, &[2, 3])];
    let g = order.begin_graph(own(1), &deps.map(|(f, deps)| (f, deps.to_vec())));
    assert!(g[2].begins_early() && !g[2].ordered_before_wait(g[1].id()) && g[2].ordered_before_wait(g[0].id()));
    assert!(!g[3].begins_early() && !g[4].begins_early() && g[4].ordered_before_wait(g[2].id()));
    assert!(!order.begin(own(1), BEGUN).begins_early(), "a graph is not left before it has ended");
}

#[test]
fn what_was_before_a_launch_that_lets_the_next_begin_behind_its_wait_is_complete_then() {
    use Follows::{Ended, Other};
    const EARLY: Follows = Follows::Begun { lets_behind_wait: false };
    const BEHIND: Follows = Follows::Begun { lets_behind_wait: true };
    let mut order = Order::default();
    let copy = order.begin(own(1), Other);
    let a = order.begin(own(1), Ended);
    let b = order.begin(own(1), BEHIND);
    assert!(b.begins_early() && b.ordered_before_wait(copy.id()) && !b.ordered_before_wait(a.id()));
    let c = order.begin(own(1), EARLY);
    assert!(c.ordered_before_wait(a.id()) && !c.ordered_before_wait(b.id()));
    // `c` may let it begin while `b` runs.
    let d = order.begin(own(1), BEHIND);
    assert!(d.ordered_before_wait(a.id()) && [&b, &c].iter().all(|op| !d.ordered_before_wait(op.id())));
    let e = order.begin(own(1), EARLY);
    assert!([&a, &b, &c].iter().all(|op| e.ordered_before_wait(op.id())) && !e.ordered_before_wait(d.id()));
    // The same between the nodes of a graph.
    let deps: [(Follows, &[usize]); 4] = [(Ended, &[]), (BEHIND, &[0]), (EARLY, &[1]), (EARLY, &[2])];
    let g = order.begin_graph(own(1), &deps.map(|(f, deps)| (f, deps.to_vec())));
    assert!(g[2].begins_early() && g[2].ordered_before_wait(g[0].id()) && !g[2].ordered_before_wait(g[1].id()));
    assert!(
        g[3].ordered_before_wait(g[0].id()) && [1, 2].iter().all(|&n: &usize| !g[3].ordered_before_wait(g[n].id()))
    );
}

#[test]
fn a_stream_is_in_order_and_two_are_not() {
    let mut order = Order::default();
    let (a, b, c) =
        (order.begin(own(1), Follows::Other), order.begin(own(1), Follows::Other), order.begin(own(2), Follows::Other));
    assert!(b.ordered_before(a.id()));
    assert!(!a.ordered_before(b.id()), "issued later");
    assert!(!a.ordered_before(a.id()), "itself");
    assert!(!c.ordered_before(a.id()) && !c.ordered_before(b.id()), "no edge");
}

#[test]
fn events_carry_what_came_before_them_and_no_more() {
    let mut order = Order::default();
    let first = order.begin(own(1), Follows::Other);
    order.record(9, own(1));
    let second = order.begin(own(1), Follows::Other);
    order.wait(own(2), 9);
    let waiter = order.begin(own(2), Follows::Other);
    assert!(waiter.ordered_before(first.id()));
    assert!(!waiter.ordered_before(second.id()));
    // Through a third stream, by a second event.
    order.record(10, own(2));
    order.wait(own(3), 10);
    let third = order.begin(own(3), Follows::Other);
    assert!(third.ordered_before(first.id()) && third.ordered_before(waiter.id()));
    assert!(!third.ordered_before(second.id()));
    // Recorded anew, the event stands for more.
    order.record(9, own(1));
    order.wait(own(3), 9);
    assert!(order.begin(own(3), Follows::Other).ordered_before(second.id()));
    order.wait(own(4), 777);
    assert!(!order.begin(own(4), Follows::Other).ordered_before(first.id()), "an event that nobody recorded");
}

#[test]
fn the_legacy_stream_orders_blocking_streams_alone() {
    let mut order = Order::default();
    let (a, free) = (order.begin(blocking(1), Follows::Other), order.begin(own(2), Follows::Other));
    let null = order.begin(legacy(), Follows::Other);
    assert!(null.ordered_before(a.id()) && !null.ordered_before(free.id()));
    let (b, other) = (order.begin(blocking(3), Follows::Other), order.begin(own(2), Follows::Other));
    assert!(b.ordered_before(null.id()) && b.ordered_before(a.id()));
    assert!(!other.ordered_before(null.id()));
    let elsewhere = Lane { context: 2, ..blocking(4) };
    assert!(!order.begin(elsewhere, Follows::Other).ordered_before(null.id()), "another context's");
}

#[test]
fn what_the_host_waited_for_is_before_what_it_issues() {
    let mut order = Order::default();
    let (a, b) = (order.begin(own(1), Follows::Other), order.begin(own(2), Follows::Other));
    order.stream_done(own(1));
    let c = order.begin(own(3), Follows::Other);
    assert!(c.ordered_before(a.id()) && !c.ordered_before(b.id()));
    order.record(5, own(2));
    let late = order.begin(own(2), Follows::Other);
    order.event_done(5);
    let d = order.begin(own(3), Follows::Other);
    assert!(d.ordered_before(b.id()) && !d.ordered_before(late.id()));
    order.context_done(1);
    assert!(order.begin(own(4), Follows::Other).ordered_before(late.id()));
    assert!(!c.ordered_before(b.id()), "what was issued before does not change");
}

#[test]
fn branches_of_a_graph_are_not_ordered() {
    let mut order = Order::default();
    let before = order.begin(own(1), Follows::Other);
    // A diamond with a tail on one side: 0 -> {1 -> 4, 2} -> 3.
    let nodes = order.begin_graph(own(1), &plain(&[&[], &[0], &[0]]));
    assert!(nodes.iter().all(|n| n.ordered_before(before.id())));
    assert!(nodes[1].ordered_before(nodes[0].id()) && nodes[2].ordered_before(nodes[0].id()));
    assert!(!nodes[2].ordered_before(nodes[1].id()), "two branches");
    let after = order.begin(own(1), Follows::Other);
    assert!(nodes.iter().all(|n| after.ordered_before(n.id())), "a launch is done before what follows it");
    let other = order.begin(own(2), Follows::Other);
    assert!(nodes.iter().all(|n| !other.ordered_before(n.id())));

    let diamond = order.begin_graph(own(1), &plain(&[&[], &[0], &[0], &[1, 2], &[2]]));
    assert!((0..3).all(|n| diamond[3].ordered_before(diamond[n].id())));
    assert!(!diamond[4].ordered_before(diamond[3].id()) && !diamond[4].ordered_before(diamond[1].id()));
    assert!(diamond.iter().all(|n| n.ordered_before(nodes[2].id())), "one launch after the other");
    // Nodes without edges.
    let loose = order.begin_graph(own(1), &plain(&[&[], &[], &[]]));
    assert!(!loose[2].ordered_before(loose[0].id()) && !loose[1].ordered_before(loose[0].id()));
}

/// Against reachability in the graph of edges, worked out the slow way.
#[test]
fn agrees_with_reachability() {
    let mut order = Order::default();
    let mut seed = 1u64;
    let mut random = |n: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % n
    };
    // Sets of operations: done before the next one of each stream, at each event, known to the host.
    let mut streams: Vec<HashSet<OpId>> = vec![HashSet::new(); 5];
    let mut events: Vec<HashSet<OpId>> = vec![HashSet::new(); 4];
    let mut host: HashSet<OpId> = HashSet::new();
    let lanes = [own(1), own(2), blocking(3), blocking(4), legacy()];
    let feeds = |lane: usize| -> &[usize] { [&[0][..], &[1], &[2, 4], &[3, 4], &[2, 3, 4]][lane] };
    for _ in 0..1500 {
        let (lane, event) = (random(5) as usize, random(4) as usize);
        let before = |streams: &[HashSet<OpId>], host: &HashSet<OpId>| {
            let mut all = host.clone();
            feeds(lane).iter().for_each(|s| all.extend(&streams[*s]));
            all
        };
        match random(20) {
            0..12 => {
                let op = order.begin(lanes[lane], Follows::Other);
                let mut all = before(&streams, &host);
                for earlier in 1..op.id() {
                    assert_eq!(op.ordered_before(earlier), all.contains(&earlier), "{earlier} before {}", op.id());
                }
                all.insert(op.id());
                streams[lane] = all;
            }
            12..15 => {
                order.record(event as u64, lanes[lane]);
                events[event] = before(&streams, &host);
            }
            15..18 => {
                order.wait(lanes[lane], event as u64);
                let known = events[event].clone();
                streams[lane].extend(known);
            }
            18 => {
                order.event_done(event as u64);
                host.extend(&events[event]);
            }
            _ if random(10) == 0 => {
                order.stream_done(lanes[lane]);
                host = before(&streams, &host);
            }
            _ => {}
        }
    }
}

#[test]
fn memory_stays_bounded() {
    let mut order = Order::default();
    for round in 0..200u64 {
        let lane = own(round + 1);
        for _ in 0..100 {
            order.begin_graph(lane, &plain(&[&[], &[0], &[0]]));
        }
        order.stream_destroyed(lane.key);
        order.context_done(1);
    }
    assert!(order.places.chunks.len() <= 1, "settled operations are forgotten");
    assert!(order.ticks.len() <= 3 && order.streams.is_empty(), "timelines are used again");
    // Without any wait the window is bounded, and what falls out of it counts as ordered.
    let first = order.begin(own(1), Follows::Other).id();
    for _ in 0..MOST + 2 * CHUNK {
        order.begin(own(2), Follows::Other);
    }
    assert!(order.places.chunks.len() <= MOST / CHUNK);
    assert!(order.begin(own(2), Follows::Other).ordered_before(first));
}
