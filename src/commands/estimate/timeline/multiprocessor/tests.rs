//! The multiprocessor on programs of a few instructions, whose clocks are counted by hand.

use super::*;
use crate::commands::estimate::timeline::operands::Register;
use crate::commands::estimate::timeline::operation::Ask;

const CLOCKS: Clocks = Clocks {
    memory: 800.0,
    l2: 200.0,
    l1: 40.0,
    memory_rate: 16.0,
    l2_rate: 32.0,
    code: 0,
    next_code: 0,
    code_ahead: 1,
    block: 100,
    before: 0,
};

fn operation(effect: Effect, reads: &[Register], writes: &[Register]) -> Operation {
    Operation { reads: reads.to_vec(), writes: writes.to_vec(), pipe: Pipe::F32, busy: 1.0, effect, line: 0 }
}

/// `R1 = R1 + 1`.
fn add() -> Operation {
    operation(Effect::Result(5, Wait::Arithmetic), &[1], &[1])
}

fn load(bytes: f64, from: Register, to: Register) -> Operation {
    let effect = Effect::Load(Load { bytes, of_memory: true, copies: false, share: 1.0 });
    operation(effect, &[from], &[to])
}

fn ask(bytes: f64, share: f64) -> Operation {
    operation(Effect::Ask(Ask { bytes, share }), &[], &[])
}

fn ran(
    operations: &[Operation],
    warps: &[Vec<u32>],
    (blocks, resident): (u64, u64),
    clocks: &Clocks,
) -> MultiprocessorRun {
    run(&MultiprocessorWork { operations, warps, last: warps, blocks, resident }, clocks)
}

/// One warp, all operations in order.
fn alone(operations: &[Operation]) -> MultiprocessorRun {
    let order = (0..operations.len() as u32).collect();
    ran(operations, &[order], (1, 1), &CLOCKS)
}

fn waited(ran: &MultiprocessorRun, wait: Wait) -> u64 {
    ran.waits.iter().map(|w| w[wait as usize]).sum()
}

#[test]
fn an_instruction_waits_for_the_results_that_it_reads() {
    let ran = alone(&[add(), add(), add(), add()]);
    // Issued at 0, 5, 10 and 15.
    assert_eq!((ran.clocks, waited(&ran, Wait::Arithmetic)), (16, 3 * 4));
    let apart: Vec<Operation> = (2..6).map(|r| operation(Effect::Result(5, Wait::Arithmetic), &[1], &[r])).collect();
    assert_eq!(alone(&apart).clocks, 4);
}

#[test]
fn loads_that_are_asked_for_together_are_waited_for_once() {
    let used = |r: Register| operation(Effect::Result(5, Wait::Arithmetic), &[r], &[9]);
    // 512 bytes take memory 32 clocks.
    let together = alone(&[load(512.0, 1, 2), load(512.0, 1, 3), used(2), used(3)]);
    assert_eq!(together.clocks, 64 + 800 + 1);
    let one_by_one = alone(&[load(512.0, 1, 2), used(2), load(512.0, 9, 3), used(3)]);
    assert!(one_by_one.clocks > 2 * (32 + 800), "{}", one_by_one.clocks);
    assert!(waited(&one_by_one, Wait::Memory) > 2 * 820);
}

#[test]
fn memory_delivers_its_share_however_many_warps_ask() {
    let operations = [load(512.0, 1, 2), operation(Effect::Result(5, Wait::Arithmetic), &[2], &[9])];
    let of = |warps: usize| ran(&operations, &vec![vec![0, 1]; warps], (1, 1), &CLOCKS).clocks;
    assert_eq!(of(32) - of(16), 16 * 32);
}

#[test]
fn what_another_warp_has_loaded_is_in_the_first_cache() {
    let shared = Effect::Load(Load { bytes: 512.0, of_memory: false, copies: false, share: 1.0 });
    let operations = [operation(shared, &[1], &[2]), operation(Effect::Result(5, Wait::Arithmetic), &[2], &[9])];
    let ran = ran(&operations, &vec![vec![0, 1]; 16], (1, 1), &CLOCKS);
    // One way to L2, not sixteen.
    assert!((200 + 16..260).contains(&ran.clocks), "{}", ran.clocks);
    assert!(waited(&ran, Wait::Cache) > 16 * 150);
}

#[test]
fn a_load_whose_guard_does_not_hold_loads_nothing() {
    let ahead = Effect::Load(Load { bytes: 512.0, of_memory: true, copies: false, share: 0.5 });
    let operations = [operation(ahead, &[1], &[2]), operation(Effect::Result(5, Wait::Arithmetic), &[2], &[1])];
    let of = |turns: usize| ran(&operations, &[[0, 1].repeat(turns)], (1, 1), &CLOCKS).clocks;
    // The second of two turns is behind the guard.
    assert!(of(2) < of(1) + 800 && of(4) > of(2) + 800, "{} {} {}", of(1), of(2), of(4));
}

#[test]
fn warps_at_a_barrier_wait_for_the_last_of_them() {
    let operations = [add(), operation(Effect::Barrier, &[], &[]), add()];
    let long: Vec<u32> = vec![0, 0, 0, 0, 0, 0, 1, 2];
    let all = ran(&operations, &[vec![1, 2], long.clone()], (1, 1), &CLOCKS);
    let only = ran(&operations, &[long], (1, 1), &CLOCKS);
    assert_eq!(all.clocks, only.clocks);
    assert!(waited(&all, Wait::Barrier) > waited(&only, Wait::Barrier) + 20);
    // Who has ended is not waited for.
    assert!(ran(&operations, &[vec![0], vec![1, 2]], (1, 1), &CLOCKS).clocks < 40);
}

#[test]
fn code_comes_once_for_all_warps_and_ahead_of_its_use() {
    let line = |line: u32| Operation { line, ..operation(Effect::Result(1, Wait::Arithmetic), &[], &[]) };
    let operations: Vec<Operation> = (0..8).map(line).collect();
    let order: Vec<u32> = (0..8).collect();
    let cold = |ahead: u32| Clocks { code: 100, next_code: 10, code_ahead: ahead, ..CLOCKS };
    let of = |warps: usize, ahead: u32| ran(&operations, &vec![order.clone(); warps], (1, 1), &cold(ahead)).clocks;
    assert_eq!(of(1, 1), 8 * 100 + 8);
    assert!(of(1, 4) < 2 * 150 && of(4, 1) <= of(1, 1) + 4, "{} {}", of(1, 4), of(4, 1));
}

#[test]
fn a_block_begins_where_another_has_ended() {
    let of = |blocks, resident| ran(&[add(), add()], &[vec![0, 1]], (blocks, resident), &CLOCKS).clocks;
    assert_eq!((of(1, 1), of(2, 2), of(2, 1)), (6, 6, 5 + 100 + 6));
}

#[test]
fn groups_of_copies_are_waited_for_in_order() {
    let copy = Effect::Load(Load { bytes: 512.0, of_memory: true, copies: true, share: 1.0 });
    let all = |left: usize| {
        let copies = [copy, Effect::Commit, copy, Effect::Commit, Effect::WaitCopies(left)];
        alone(&copies.map(|effect| operation(effect, &[], &[]))).clocks
    };
    assert_eq!((all(2), all(1), all(0)), (5, 32 + 800 + 1, 64 + 800 + 1));
}

#[test]
fn a_fence_waits_for_stores() {
    let of = |first: Effect| alone(&[first, Effect::Fence].map(|effect| operation(effect, &[], &[]))).clocks;
    assert_eq!((of(Effect::Store), of(Effect::Result(1, Wait::Arithmetic))), (201, 2));
}

#[test]
fn what_was_asked_for_ahead_is_nearer() {
    let used = || operation(Effect::Result(5, Wait::Arithmetic), &[2], &[9]);
    let wait = || operation(Effect::WaitBefore, &[], &[]);
    let clocks = Clocks { before: 1000, ..CLOCKS };
    let of = |all: Vec<Operation>| {
        let order = (0..all.len() as u32).collect();
        ran(&all, &[order], (1, 1), &clocks).clocks
    };
    let asked = of(vec![ask(512.0, 1.0), wait(), load(512.0, 1, 2), used()]);
    let not = of(vec![wait(), load(512.0, 1, 2), used()]);
    assert!((1200..1240).contains(&asked) && not > 1800, "{asked} {not}");
    // What was asked for last, and comes last, is not waited for by who reads what was asked for first.
    let behind = of(vec![ask(512.0, 1.0), wait(), ask(1e5, 1.0), load(512.0, 1, 2), used()]);
    assert_eq!(behind, asked + 1);
    // A guard that never holds asks for nothing.
    assert_eq!(of(vec![ask(512.0, 0.0), wait(), load(512.0, 1, 2), used()]), not);
}

#[test]
fn what_a_block_asked_for_and_left_is_there_for_the_one_that_takes_its_place() {
    // Its own bytes, and as many again or more.
    let of = |more: f64, blocks: u64, resident: u64| {
        let used = operation(Effect::Result(5, Wait::Arithmetic), &[2], &[9]);
        let all = [ask(512.0, 1.0), ask(more, 1.0), load(512.0, 1, 2), used];
        ran(&all, &[vec![0, 1, 2, 3]], (blocks, resident), &CLOCKS).clocks
    };
    let next = |more: f64| of(more, 2, 1) - of(more, 1, 1);
    // From memory, and from L2: what was asked for is not asked for again.
    assert!((800..1000).contains(&next(0.0)), "{}", next(0.0));
    assert!((100 + 200..100 + 250).contains(&next(512.0)), "{}", next(512.0));
    // One beside it has asked for what it loads itself.
    assert!(of(512.0, 2, 2) < of(512.0, 1, 1) + 100);
    // More than a block loads is more than it needed, and no store of bytes.
    let few = of(5120.0, 3, 1) - of(5120.0, 2, 1);
    assert!(few > next(512.0), "{few}");
}

#[test]
fn the_path_has_each_clock_once_and_goes_over_barriers_to_the_warp_that_was_last() {
    // Warp 0 waits at a barrier for warp 1, which waits for memory.
    let operations = [
        load(512.0, 1, 2),
        operation(Effect::Result(5, Wait::Arithmetic), &[2], &[9]),
        operation(Effect::Barrier, &[], &[]),
        add(),
        add(),
    ];
    let of = |blocks| ran(&operations, &[vec![2, 3, 4], vec![0, 1, 2]], (blocks, 1), &CLOCKS);
    let one = of(1);
    let on_path = |ran: &MultiprocessorRun, wait: Wait| -> u64 {
        ran.path.clocks.iter().filter(|(of, _)| of.1 == Some(wait)).map(|(_, n)| n).sum()
    };
    assert_eq!(one.path.total(), one.clocks);
    assert_eq!((on_path(&one, Wait::Memory), on_path(&one, Wait::Barrier)), (31 + 800, BARRIER - 1));
    // Of all warps the one at the barrier waits as long.
    assert!(waited(&one, Wait::Barrier) > 800, "{one:?}");
    // Blocks behind others come behind what those end with.
    let three = of(3);
    assert_eq!(three.path.total(), three.clocks);
    assert_eq!(on_path(&three, Wait::Memory), 3 * (31 + 800));
}

#[test]
fn the_block_that_begins_last_has_an_order_of_its_own() {
    let operations = [add(), operation(Effect::Result(5, Wait::Arithmetic), &[1], &[1])];
    let (few, many) = (vec![vec![0]], vec![[0; 50].to_vec()]);
    let of = |blocks, resident| {
        let work = MultiprocessorWork { operations: &operations, warps: &few, last: &many, blocks, resident };
        run(&work, &CLOCKS).clocks
    };
    // 50 additions one after the other, after 1 and a block's change, or beside it.
    assert_eq!(of(1, 1), 49 * 5 + 1);
    assert_eq!(of(2, 1), 1 + 100 - 1 + 49 * 5 + 1);
    assert!(of(2, 2) <= of(1, 1) + 2);
}
