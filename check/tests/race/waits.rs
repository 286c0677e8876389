//! Collectives and barriers in disagreement, and who waits for whom.

use crate::common::Rig;
use Severity::{Error, Warning};
use warpsmith_check::Inspect;
use warpsmith_check::{Checks, Finding, Severity};
use warpsmith_simt::{Launch, MachineConfig};

use crate::frame::*;

#[test]
fn collectives_that_a_compiler_has_split() {
    // The duplicated shuffle of stock rustc: one call, copied into both arms.
    let split = "setp.lt.u32 %p2, %r1, 16; mov.u32 %r11, %r1; @%p2 bra LOW;
         shfl.sync.bfly.b32 %r9, %r11, 16, 31, -1; bra DONE; LOW: shfl.sync.bfly.b32 %r9, %r11, 16, 31, -1; DONE: st.global.u32 [%rd2], %r9;";
    let found = expect(split, 1, 32, &[("sync::split-collective", Error)]);
    assert!(
        found[0].message().contains("0xffffffff of one collective (shfl.sync.bfly) arrive from 2 places"),
        "{}",
        found[0]
    );
    assert_eq!(found[0].sites.len(), 2);
    clean("mov.u32 %r11, %r1; shfl.sync.bfly.b32 %r9, %r11, 16, 31, -1; st.global.u32 [%rd2], %r9;", 1, 32);
    let halves =
        split.replacen("31, -1", "31, 0xffff0000", 1).replace("31, -1", "31, 0xffff").replace("16, 31", "8, 31");
    clean(&halves, 1, 32);
    let sync = "setp.lt.u32 %p2, %r1, 16; @%p2 bra LOW; bar.warp.sync -1; bra DONE; LOW: bar.warp.sync -1; DONE:";
    expect(sync, 1, 32, &[]);
}

#[test]
fn shuffles_from_lanes_that_take_no_part() {
    let inactive: &[(&str, Severity)] = &[("sync::inactive-source", Warning)];
    let low = "setp.ge.u32 %p2, %r1, 16; @%p2 bra DONE; shfl.sync.down.b32 %r9, %r1, 8, 31, 0xffff; DONE:";
    let found = expect(low, 1, 32, inactive);
    assert!(
        found[0].message().contains("a shuffle reads lane 16, which the membermask 0x0000ffff does not name"),
        "{}",
        found[0]
    );
    clean(&low.replace("8, 31", "8, 0x100f"), 1, 32);
    let gone = "setp.eq.u32 %p2, %r1, 3; @%p2 exit; shfl.sync.idx.b32 %r9, %r1, 3, 31, -1;";
    let found = expect(gone, 1, 32, inactive);
    assert!(found[0].message().contains("lane 3, which has exited"), "{}", found[0]);
}

#[test]
fn barriers_in_disagreement() {
    let divergence: &[(&str, Severity)] = &[("sync::barrier-divergence", Error)];
    let mixed =
        "setp.ge.u32 %p2, %r1, 32; @%p2 bra RED; bar.sync 0; bra DONE; RED: bar.red.popc.u32 %r9, 0, %p1; DONE:";
    let found = expect(mixed, 1, 64, divergence);
    assert!(found[0].message().contains("bar.sync and bar.red.popc on barrier 0"), "{}", found[0]);
    // A producer that does not wait for its consumer.
    let overrun = "setp.ge.u32 %p2, %r1, 32; @%p2 bra CONSUMER; bar.arrive 1, 96; bar.arrive 1, 96; bra DONE; CONSUMER: bar.sync 1, 96; DONE:";
    let found = expect(overrun, 1, 64, divergence);
    assert!(found[0].message().contains("arrives at barrier 1 again"), "{}", found[0]);
}

fn faulty(body: &str, grid: u32, block: u32) -> (Vec<Finding>, String) {
    let config = MachineConfig { threads: 1, spin_limit: 1 << 10, ..MachineConfig::default() };
    let rig = Rig::with(config, &text("", body));
    let out = rig.upload(&vec![0u32; WORDS]);
    let launch = Launch::new([grid, 1, 1], [block, 1, 1]);
    let checks = Checks { races: true, sync: true, ..Checks::default() };
    let i = rig.machine.inspect(&rig.instance, "k", &launch, &out.to_le_bytes(), &checks);
    (i.findings, i.fault.expect("a fault").to_string())
}

#[test]
fn faults_about_waiting_name_everybody_who_waits() {
    // Lanes at two aligned barriers.
    let (found, _) =
        faulty("setp.lt.u32 %p2, %r1, 7; @%p2 bra LOW; bar.sync 0; bra DONE; LOW: bar.sync 0; DONE:", 1, 32);
    assert_eq!(grades(&found), [("sync::barrier-divergence", Error)]);
    assert_eq!(found[0].sites.len(), 2);
    assert!(found[0].sites.iter().any(|s| s.label() == "warp 0, lanes 0x0000007f: wait at barrier 0"), "{}", found[0]);
    // Three warps are counted, one has exited, one waits elsewhere.
    let (found, fault) = faulty(
        "setp.ge.u32 %p2, %r1, 64; @%p2 exit; setp.ge.u32 %p3, %r1, 32; @%p3 bra SECOND; bar.sync 1, 96; bra DONE; SECOND: bar.sync 2, 96; DONE:",
        1,
        96,
    );
    assert_eq!(grades(&found), [("sync::barrier-missing", Error)]);
    let labels: Vec<String> = found[0].sites.iter().map(|s| s.label()).collect();
    assert_eq!(labels.len(), 3, "{labels:?}");
    assert!(labels[0].starts_with("warp 0, lanes 0xffffffff: wait at barrier 1 (32 of 96 threads)"), "{labels:?}");
    assert!(labels[1].starts_with("warp 1, lanes 0xffffffff: wait at barrier 2"), "{labels:?}");
    assert_eq!(labels[2], "warp 2, lanes 0xffffffff: have exited");
    assert!(fault.contains("warp 2, lanes 0xffffffff, PTX line 14: have exited"), "{fault}");
    // A named lane that never comes, because it waits for the others elsewhere.
    let (found, fault) = faulty(
        "setp.eq.u32 %p2, %r1, 4; @%p2 bra FOUR; bar.warp.sync -1; bra DONE; FOUR: shfl.sync.idx.b32 %r9, %r1, 0, 31, -1; DONE:",
        1,
        32,
    );
    assert_eq!(grades(&found), [("sync::deadlock", Error)]);
    assert!(fault.contains("for lanes 0x00000010"), "{fault}");
    // A lane that its own mask does not name.
    let (found, _) = faulty("shfl.sync.idx.b32 %r9, %r1, 0, 31, 0xff;", 1, 32);
    assert_eq!(grades(&found), [("sync::membermask", Error)]);
}

#[test]
fn a_spin_beside_a_barrier_is_no_missing_barrier() {
    // Thread 0 waits for a flag that warp 1 would set behind the barrier.
    let (found, fault) = faulty(
        "@!%p1 bra WAIT; SPIN: ld.volatile.global.u32 %r9, [%rd1+64]; setp.eq.u32 %p2, %r9, 0; @%p2 bra SPIN;
         WAIT: bar.sync 0; setp.eq.u32 %p3, %r1, 32; mov.u32 %r9, 1; @%p3 st.volatile.global.u32 [%rd1+64], %r9;",
        1,
        64,
    );
    assert_eq!(grades(&found), [("sync::deadlock", Error)]);
    assert!(found[0].sites[0].label().ends_with("spin"), "{}", found[0]);
    assert!(found[0].help().contains("a loop that waits needs somebody who ends it"), "{}", found[0]);
    assert!(fault.contains("wait at barrier 0"), "{fault}");
}

#[test]
fn barriers_that_threads_go_around() {
    let missing: &[(&str, Severity)] = &[("sync::barrier-missing", Warning)];
    let branch =
        |c: &str| format!("setp.ge.u32 %p2, {c}, 32; @%p2 bra SKIP; bar.sync 0; SKIP: st.global.u32 [%rd2], %r1;");
    let found = expect(&branch("%r1"), 1, 96, missing);
    assert!(found[0].message().contains("the 64 threads that went around it have exited"), "{}", found[0]);
    // All threads of a block take the same way.
    clean(&branch("%r3"), 1, 64);
    clean(&branch("%r3"), 1, 32);
    // Within a loop, where threads come by as often as others wait.
    let rounds = |c: &str| {
        format!(
            "mov.u32 %r20, 0; LOOP: setp.ge.u32 %p2, {c}, 32; @%p2 bra SKIP; bar.sync 0; SKIP: st.global.u32 [%rd2], %r20;
             add.u32 %r20, %r20, 1; setp.lt.u32 %p3, %r20, 3; @%p3 bra LOOP;"
        )
    };
    expect(&rounds("%r1"), 1, 64, missing);
    clean(&rounds("%r3"), 1, 64);
    // Threads that return early, before the barrier or out of a loop with barriers, are not counted, which is what it is for.
    clean("setp.ge.u32 %p2, %r1, 50; @%p2 bra DONE; bar.sync 0; st.global.u32 [%rd2], %r1; DONE: ret;", 1, 96);
    clean("setp.ge.u32 %p2, %r1, 50; @%p2 exit; bar.sync 0; st.global.u32 [%rd2], %r1;", 1, 96);
    clean(
        "mov.u32 %r20, 0; LOOP: setp.ge.u32 %p2, %r20, %r1; @%p2 bra OUT; bar.sync 0; add.u32 %r20, %r20, 32; bra LOOP;
         OUT: st.global.u32 [%rd2], %r1;",
        1,
        32,
    );
    // Both arms have one.
    clean(
        "setp.ge.u32 %p2, %r1, 32; @%p2 bra UPPER; bar.sync 0; bra JOIN; UPPER: bar.sync 0; JOIN: st.global.u32 [%rd2], %r1;",
        1,
        64,
    );
    // A number of threads counts those that come.
    clean("setp.ge.u32 %p2, %r1, 64; @%p2 bra SKIP; bar.sync 1, 64; SKIP: st.global.u32 [%rd2], %r1;", 1, 96);
}

#[test]
fn masks_that_disagree() {
    let mask: &[(&str, Severity)] = &[("sync::membermask", Error)];
    let halves = |lower: &str, upper: &str, call: &str| {
        format!("setp.lt.u32 %p2, %r10, 16; selp.b32 %r11, {lower}, {upper}, %p2; {call} st.global.u32 [%rd2], %r1;")
    };
    for call in
        ["bar.warp.sync %r11;", "vote.sync.ballot.b32 %r12, %p1, %r11;", "shfl.sync.bfly.b32 %r12, %r1, 1, 31, %r11;"]
    {
        let found = expect(&halves("0xffff", "-1", call), 1, 32, mask);
        assert!(found[0].message().contains("lanes 0xffff0000 wait for lanes 0x0000ffff"), "{}", found[0]);
        clean(&halves("0xffff", "0xffff0000", call), 1, 64);
        clean(&halves("-1", "-1", call), 1, 64);
    }
    // A part meets by itself, then all.
    clean(&halves("0xffff", "0xffff0000", "bar.warp.sync %r11; bar.warp.sync -1;"), 1, 32);
    let first = "setp.lt.u32 %p2, %r10, 16; @!%p2 bra ALL; bar.warp.sync 0xffff; ALL: bar.warp.sync -1; st.global.u32 [%rd2], %r1;";
    clean(first, 1, 32);
    // Lanes that have met all others may exit, whoever names them afterwards.
    clean(
        "bar.warp.sync -1; setp.ge.u32 %p2, %r10, 16; @%p2 exit; bar.warp.sync -1; st.global.u32 [%rd2], %r1;",
        1,
        32,
    );
    clean("setp.ge.u32 %p2, %r10, 16; @%p2 exit; bar.warp.sync -1; st.global.u32 [%rd2], %r1;", 1, 32);
    // Lanes of a lower half end after a vote of their own, those of the upper half after one of all.
    let arms = "setp.ge.u32 %p2, %r10, 16; @%p2 bra UPPER; vote.sync.any.pred %p3, %p1, 0xffff; bra DONE; UPPER: vote.sync.any.pred %p3, %p1, -1; DONE:";
    expect(arms, 1, 32, mask);
    clean(&arms.replace("%p1, -1", "%p1, 0xffff0000"), 1, 32);
}
