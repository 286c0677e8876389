//! Blocks that talk to each other give on several cores what they give one after the other.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::*;
use warpsmith_simt::{Counters, FaultKind, MachineConfig};

const BLOCKS: u32 = 96;
const THREADS: u32 = 128;
/// What a run leaves in memory, and counts.
type Left = (Vec<u32>, Counters);

/// Runs a kernel on so many cores: `i` has numbers to work with, `o` 1024 words that are 0.
fn run(text: &str, threads: usize) -> Left {
    let rig = Rig::with(MachineConfig { threads, ..MachineConfig::default() }, text);
    let data: Vec<f32> = (0..BLOCKS * THREADS).map(|i| ((i * 7919) % 1000) as f32 / 37.0 - 11.0).collect();
    let (i, o) = (rig.upload(&data), rig.upload(&[0u32; 1024]));
    let counters = rig.run(BLOCKS, THREADS, &[i, o]);
    (rig.download(o, 1024), counters)
}

/// Every count of cores gives what one gives, again and again.
fn agrees(body: &str) -> Left {
    let registers = ".reg .b32 %r<20>; .reg .b64 %rd<9>; .reg .f32 %f<9>; .reg .pred %p<5>;
         ld.param.u64 %rd1, [i]; ld.param.u64 %rd2, [o]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;
         mad.lo.u32 %r3, %r2, 128, %r1; mul.wide.u32 %rd3, %r3, 4; add.s64 %rd1, %rd1, %rd3;";
    let text = module_text(".param .u64 i, .param .u64 o", &format!("{registers} {body} ret;"));
    let serial = run(&text, 1);
    for threads in [2, 3, 8] {
        for round in 0..8 {
            let (words, counters) = run(&text, threads);
            assert!(words == serial.0, "{threads} threads, round {round}: other bits");
            assert_eq!(counters, serial.1, "{threads} threads, round {round}");
        }
    }
    serial
}

/// Work before a block talks, more of it in some blocks; `%f1` is what it gives, another number in each thread.
const WORK: &str = "ld.global.f32 %f1, [%rd1]; and.b32 %r4, %r2, 7; mad.lo.u32 %r4, %r4, 40, 100;
     W: fma.rn.f32 %f1, %f1, 0f3F7FF000, 0f3DCCCCCD; sub.u32 %r4, %r4, 1; setp.ne.u32 %p1, %r4, 0; @%p1 bra W;";

#[test]
fn the_order_of_sums_is_that_of_blocks() {
    // Additions of floats do not commute with their rounding: another order has other bits.
    let (words, counters) =
        agrees(&format!("{WORK} atom.global.add.f32 %f2, [%rd2], %f1; red.global.add.f32 [%rd2+4], %f2;"));
    assert!(words[0] != 0 && words[1] != 0);
    assert_eq!(counters.atomics, u64::from(2 * BLOCKS * THREADS));
}

#[test]
fn the_last_block_sees_what_all_have_written() {
    // Each block writes a partial sum and draws a ticket; the last one adds them up, backwards.
    agrees(&format!(
        "{WORK} setp.ne.u32 %p2, %r1, 5; mul.wide.u32 %rd4, %r2, 4; add.s64 %rd4, %rd2, %rd4; @!%p2 st.global.f32 [%rd4+256], %f1;
         bar.sync 0; fence.acq_rel.gpu; mov.u32 %r5, 0; setp.ne.u32 %p3, %r1, 0; @!%p3 atom.global.add.u32 %r5, [%rd2], 1;
         mul.wide.u32 %rd5, %r2, 4; add.s64 %rd5, %rd2, %rd5; @!%p3 st.global.u32 [%rd5+1024], %r5;
         setp.ne.u32 %p4, %r5, {last}; @%p4 bra E; mov.f32 %f3, 0f00000000; mov.u32 %r6, {BLOCKS};
         S: sub.u32 %r6, %r6, 1; mul.wide.u32 %rd6, %r6, 4; add.s64 %rd6, %rd2, %rd6; ld.global.f32 %f4, [%rd6+256]; add.f32 %f3, %f3, %f4;
         setp.ne.u32 %p1, %r6, 0; @%p1 bra S; st.global.f32 [%rd2+4], %f3; E:",
        last = BLOCKS - 1
    ));
}

#[test]
fn warps_of_a_block_talk_in_their_order() {
    // The later a warp, the shorter its work; then all talk twice, with a barrier between.
    agrees(
        "ld.global.f32 %f1, [%rd1]; shr.u32 %r4, %r1, 5; sub.u32 %r4, 4, %r4; mul.lo.u32 %r4, %r4, 90;
         W: fma.rn.f32 %f1, %f1, 0f3F7FF000, 0f3DCCCCCD; sub.u32 %r4, %r4, 1; setp.ne.u32 %p1, %r4, 0; @%p1 bra W;
         red.global.add.f32 [%rd2], %f1; bar.sync 0; red.global.add.f32 [%rd2+4], %f1; atom.global.exch.b32 %r7, [%rd2+8], %r3;
         bar.sync 0; red.global.xor.b32 [%rd2+12], %r7; red.global.add.u32 [%rd2+12], %r7;",
    );
}

#[test]
fn lanes_that_part_talk_as_they_would_alone() {
    // Lanes of a warp talk on different ways, some not at all.
    let (words, _) = agrees(&format!(
        "{WORK} and.b32 %r5, %r1, 3; setp.eq.u32 %p2, %r5, 0; @%p2 bra A; setp.eq.u32 %p3, %r5, 1; @%p3 bra B; bra.uni C;
         A: red.global.add.f32 [%rd2], %f1; bra.uni C; B: atom.global.add.f32 %f2, [%rd2+4], %f1; st.global.f32 [%rd2+16], %f2;
         C: setp.eq.u32 %p4, %r5, 3; @%p4 red.global.add.f32 [%rd2+8], %f1;"
    ));
    assert!(words[..3].iter().all(|&w| w != 0));
}

#[test]
fn blocks_wait_for_later_ones() {
    // Each block waits for what the next one says, and says it on: the first one ends last.
    let (words, _) = agrees(&format!(
        "{WORK} setp.ne.u32 %p2, %r1, 0; @%p2 bra E; mul.wide.u32 %rd4, %r2, 4; add.s64 %rd4, %rd2, %rd4; setp.eq.u32 %p3, %r2, {last};
         mov.u32 %r5, 1; @%p3 bra T; P: ld.acquire.gpu.global.u32 %r5, [%rd4+4]; setp.eq.u32 %p1, %r5, 0; @%p1 bra P; add.u32 %r5, %r5, 1;
         T: st.release.gpu.global.u32 [%rd4], %r5; E:",
        last = BLOCKS - 1
    ));
    let expected: Vec<u32> = (0..BLOCKS).map(|b| BLOCKS - b).collect();
    assert_eq!(words[..BLOCKS as usize], expected);
}

#[test]
fn a_barrier_of_the_grid_is_passed() {
    // Half of the blocks come to it early; then everyone reads what everyone wrote.
    agrees(&format!(
        "{WORK} setp.ne.u32 %p2, %r1, 0; mul.wide.u32 %rd4, %r2, 4; add.s64 %rd4, %rd2, %rd4; @!%p2 st.global.f32 [%rd4+512], %f1;
         @%p2 bra J; fence.acq_rel.gpu; atom.global.add.u32 %r5, [%rd2], 1;
         P: ld.acquire.gpu.global.u32 %r5, [%rd2]; setp.lt.u32 %p1, %r5, {BLOCKS}; @%p1 bra P;
         J: bar.sync 0; sub.u32 %r6, {last}, %r2; mul.wide.u32 %rd5, %r6, 4; add.s64 %rd5, %rd2, %rd5; ld.global.f32 %f2, [%rd5+512];
         add.f32 %f2, %f2, %f1; @!%p2 st.global.f32 [%rd4+1024], %f2;",
        last = BLOCKS - 1
    ));
}

#[test]
fn who_waits_unnoticed_is_no_deadlock() {
    // What a thread is told goes through its local memory: nothing in the text says that this loop waits for the next block.
    let body = format!(
        ".local .align 4 .b8 l[4]; .reg .b32 %r<20>; .reg .b64 %rd<9>; .reg .f32 %f<9>; .reg .pred %p<5>;
         ld.param.u64 %rd1, [i]; ld.param.u64 %rd2, [o]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;
         mad.lo.u32 %r3, %r2, 128, %r1; mul.wide.u32 %rd3, %r3, 4; add.s64 %rd1, %rd1, %rd3; {WORK}
         setp.ne.u32 %p2, %r1, 0; @%p2 bra E; mul.wide.u32 %rd4, %r2, 4; add.s64 %rd4, %rd2, %rd4; setp.eq.u32 %p3, %r2, {last};
         mov.u32 %r5, 0; @%p3 bra T; P: ld.acquire.gpu.global.u32 %r6, [%rd4+4]; st.local.u32 [l], %r6; ld.local.u32 %r5, [l];
         setp.eq.u32 %p1, %r5, 0; @%p1 bra P; T: add.u32 %r5, %r5, 1; st.release.gpu.global.u32 [%rd4], %r5; E: ret;",
        last = BLOCKS - 1
    );
    let text = module_text(".param .u64 i, .param .u64 o", &body);
    let expected: Vec<u32> = (0..BLOCKS).map(|b| BLOCKS - b).collect();
    for threads in [1, 2, 3, 8] {
        for _ in 0..8 {
            assert_eq!(run(&text, threads).0[..BLOCKS as usize], expected, "{threads} threads");
        }
    }
}

#[test]
fn who_talks_at_once_is_right_too() {
    agrees(&format!(
        "setp.ne.u32 %p2, %r1, 0; @!%p2 atom.global.exch.b32 %r7, [%rd2], %r2; {WORK} @!%p2 st.global.u32 [%rd2+8], %r7;"
    ));
}

#[test]
fn the_fault_of_the_lowest_block_is_reported() {
    let text = module_text(
        ".param .u64 i, .param .u64 o",
        ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<5>; ld.param.u64 %rd2, [o]; mov.u32 %r2, %ctaid.x;
         and.b32 %r4, %r2, 7; mad.lo.u32 %r4, %r4, 40, 100; W: sub.u32 %r4, %r4, 1; setp.ne.u32 %p1, %r4, 0; @%p1 bra W;
         setp.gt.u32 %p2, %r2, 70; @%p2 trap; atom.global.add.u32 %r5, [%rd2], 1; setp.eq.u32 %p3, %r5, 6400; @%p3 trap; ret;",
    );
    for threads in [1, 2, 5] {
        let rig = Rig::with(MachineConfig { threads, ..MachineConfig::default() }, &text);
        let o = rig.upload(&[0u32; 4]);
        let fault = rig.try_run(BLOCKS, THREADS, &[o, o]).unwrap_err();
        // Block 50 draws the 6401st ticket.
        assert_eq!((fault.kind, fault.block), (FaultKind::Trap, [50, 0, 0]), "{threads} threads");
    }
}
