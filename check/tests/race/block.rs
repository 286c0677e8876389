//! Accesses of one block: shared memory, barriers, lanes of a warp.

use crate::common::Rig;
use Severity::{Error, Info, Warning};
use warpsmith_check::{CheckedMemory, Inspect};
use warpsmith_check::{Checks, Severity};
use warpsmith_simt::{Launch, MachineConfig};

use crate::frame::*;

#[test]
fn a_missing_block_barrier() {
    let read = read_other(32);
    let found = expect(&format!("st.shared.u32 [%r6], %r1; {read}"), 1, 64, SHARED);
    // One warp is too late for the other's write, one too early: one barrier is missing, so that is one finding.
    assert_eq!((found.len(), found[0].also.len()), (1, 1));
    let f = &found[0];
    assert_eq!(f.message(), "write-read race on smem+0x0 (4 bytes)");
    assert_eq!((f.sites[0].thread, f.sites[1].thread), (Some([32, 0, 0]), Some([0, 0, 0])));
    assert!(f.sites[0].ptx_text.contains("ld.shared.u32"), "{f}");
    assert!(f.sites[1].ptx_text.contains("st.shared.u32"), "{f}");
    assert_eq!(f.sites[0].note(), "reads 0x0");
    assert!(
        f.help().contains("no bar.sync, and no release and acquire, orders warp 0 lane 0 before warp 1 lane 0"),
        "{f}"
    );
    clean(&format!("st.shared.u32 [%r6], %r1; bar.sync 0; {read}"), 1, 64);
    clean(&format!("st.shared.u32 [%r6], %r1; barrier.sync 3; {read}"), 2, 96 + 32);
}

#[test]
fn lanes_of_a_warp_are_not_ordered_without_a_sync() {
    let read = read_other(1);
    let found = expect(&format!("st.shared.u32 [%r6], %r1; {read}"), 1, 32, LOCKSTEP);
    assert!(found[0].help().contains("no bar.warp.sync (__syncwarp) orders lane"), "{}", found[0]);
    assert!(found[0].help().contains("only execution in lockstep does"), "{}", found[0]);
    clean(&format!("st.shared.u32 [%r6], %r1; bar.warp.sync -1; {read}"), 1, 32);
    clean(&format!("st.shared.u32 [%r6], %r1; bar.sync 0; {read}"), 1, 32);
    // The same through generic addresses.
    let generic = "cvt.u64.u32 %rd3, %r6; cvta.shared.u64 %rd3, %rd3; st.u32 [%rd3], %r1;";
    expect(&format!("{generic} {read}"), 1, 32, LOCKSTEP);
    expect(&format!("{generic} {}", read_other(32)), 1, 64, SHARED);
}

#[test]
fn arms_of_a_branch_run_in_any_order() {
    // The lower half writes in one arm, the upper half reads in the other (CUDA C++ Programming Guide, "Independent Thread
    // Scheduling": threads of a warp can diverge and interleave anywhere).
    let arms = |sync: &str, join: &str| {
        format!(
            "setp.ge.u32 %p2, %r1, 16; @%p2 bra UPPER; st.shared.u32 [%r6], %r1; {sync} bra DONE;
             UPPER: {sync} {} {join} DONE:",
            read_other(16)
        )
    };
    let found = expect(&arms("", ""), 1, 32, SHARED);
    assert!(found[0].help().contains("different arms of a branch, which run in any order"), "{}", found[0]);
    clean(&arms("bar.warp.sync -1;", ""), 1, 32);
}

/// A tree reduction within a warp.
fn warp_reduction(sync: &str) -> String {
    let step = |n: u32| {
        format!(
            "setp.lt.u32 %p2, %r1, {n};
             @%p2 ld.shared.u32 %r11, [%r6+{}]; @%p2 ld.shared.u32 %r12, [%r6]; add.u32 %r12, %r12, %r11;
             @%p2 st.shared.u32 [%r6], %r12; {sync}\n",
            4 * n
        )
    };
    let steps: String = [16, 8, 4, 2, 1].map(step).concat();
    format!("st.shared.u32 [%r6], %r1; {sync} {steps} @%p1 ld.shared.u32 %r13, [%r5]; @%p1 st.global.u32 [%rd1], %r13;")
}

#[test]
fn warp_synchronous_reductions() {
    expect(&warp_reduction(""), 1, 32, LOCKSTEP);
    clean(&warp_reduction("bar.warp.sync 0xffffffff;"), 1, 32);
}

#[test]
fn partial_masks_order_the_lanes_that_they_name() {
    let half = |mask: &str, x: u32| {
        format!(
            "st.shared.u32 [%r6], %r1; setp.ge.u32 %p2, %r1, 16; @%p2 bra DONE;
             bar.warp.sync {mask}; {} DONE:",
            read_other(x)
        )
    };
    clean(&half("0xffff", 1), 1, 32);
    // Lane 16 and up have not taken part.
    expect(&half("0xffff", 16), 1, 32, LOCKSTEP);
    // What a half has agreed on holds for a later sync of all.
    let both = format!(
        "{} bar.warp.sync -1; xor.b32 %r8, %r4, 64; add.u32 %r8, %r5, %r8; st.shared.u32 [%r8], %r1;",
        half("0xffff", 1)
    );
    clean(&both, 1, 32);
}

/// Rounds of: each thread writes its word, all wait, each reads another's. `step` is the distance of the buffers of two rounds.
fn rounds(step: u32) -> String {
    format!(
        "mov.u32 %r20, 0; mov.u32 %r21, 0;
         LOOP: and.b32 %r22, %r20, 1; mul.lo.u32 %r22, %r22, {step}; add.u32 %r23, %r6, %r22; add.u32 %r24, %r1, %r20;
         st.shared.u32 [%r23], %r24; bar.sync 0;
         xor.b32 %r8, %r4, 128; add.u32 %r8, %r8, %r5; add.u32 %r8, %r8, %r22; ld.shared.u32 %r9, [%r8];
         add.u32 %r21, %r21, %r9; add.u32 %r20, %r20, 1; setp.lt.u32 %p2, %r20, 6; @%p2 bra LOOP;
         st.global.u32 [%rd2], %r21;"
    )
}

#[test]
fn double_buffers_need_two_buffers() {
    expect(&rounds(0), 1, 64, SHARED);
    clean(&rounds(2048), 1, 64);
    // One buffer does with two barriers a round.
    clean(&rounds(0).replace("add.u32 %r21, %r21, %r9;", "add.u32 %r21, %r21, %r9; bar.sync 0;"), 1, 64);
}

#[test]
fn writes_after_reads() {
    let body = |sync: &str| {
        format!(
            "st.shared.u32 [%r6], %r1; bar.sync 0; {} {sync} add.u32 %r9, %r1, 7; st.shared.u32 [%r6], %r9;",
            read_other(32)
        )
    };
    expect(&body(""), 1, 64, SHARED);
    clean(&body("bar.sync 0;"), 1, 64);
    clean(&body("bar.sync 1;"), 1, 64);
}

#[test]
fn named_barriers_order_producers_before_consumers() {
    let body = |producer: &str, consumer: &str| {
        format!(
            "setp.ge.u32 %p2, %r1, 32; @%p2 bra CONSUMER; {producer} bra DONE;
             CONSUMER: {consumer} {} DONE:",
            read_other(32)
        )
    };
    clean(&body("st.shared.u32 [%r6], %r1; bar.arrive 1, 64;", "bar.sync 1, 64;"), 1, 64);
    clean(&body("st.shared.u32 [%r6], %r1; barrier.arrive 2, 64;", "barrier.sync 2, 64;"), 1, 64);
    expect(&body("bar.arrive 1, 64; st.shared.u32 [%r6], %r1;", "bar.sync 1, 64;"), 1, 64, SHARED);
    // The consumer only arrives: it does not wait.
    expect(&body("st.shared.u32 [%r6], %r1; bar.sync 1, 64;", "bar.arrive 1, 64;"), 1, 64, SHARED);
    // Two warps of three: the third is not ordered.
    let three = "st.shared.u32 [%r6], %r1; setp.ge.u32 %p2, %r1, 64; @%p2 bra DONE; bar.sync 1, 64;";
    clean(&format!("{three} {} DONE:", read_other(32)), 1, 96);
    expect(&format!("{three} ld.shared.u32 %r9, [%r5+256]; st.global.u32 [%rd2], %r9; DONE:"), 1, 96, SHARED);
}

#[test]
fn barriers_with_a_reduction_order_as_well() {
    let read = read_other(32);
    clean(&format!("st.shared.u32 [%r6], %r1; setp.gt.u32 %p3, %r1, 3; bar.red.popc.u32 %r9, 0, %p3; {read}"), 1, 64);
}

#[test]
fn same_values_are_graded_down() {
    // All threads of one warp, in one instruction.
    let found = expect("mov.u32 %r9, 1; st.shared.u32 [%r5], %r9;", 1, 32, &[("race::shared", Info)]);
    assert!(found[0].message().contains("the same value"), "{}", found[0]);
    // Two warps: the second one's write changes nothing.
    let one = "setp.eq.u32 %p2, %r10, 0; mov.u32 %r9, 1; @%p2 st.shared.u32 [%r5], %r9;";
    expect(one, 1, 64, &[("race::shared", Warning)]);
    // Blocks.
    expect("mov.u32 %r9, 1; @%p1 st.global.u32 [%rd1], %r9;", 3, 32, &[("race::global", Warning)]);
    // A flag that several set and one reads after a barrier: the write of the same value is what is left.
    expect(
        &format!("{one} bar.sync 0; ld.shared.u32 %r9, [%r5]; st.global.u32 [%rd2], %r9;"),
        1,
        64,
        &[("race::shared", Warning)],
    );
}

#[test]
fn different_values_are_errors() {
    let found = expect("st.shared.u32 [%r5], %r1;", 1, 32, SHARED);
    assert!(found[0].message().contains("32 lanes of a warp write different values to smem+0x0"), "{}", found[0]);
    assert_eq!((found[0].sites[0].note().as_str(), found[0].sites[1].note().as_str()), ("writes 0x1", "writes 0x0"));
    expect("setp.eq.u32 %p2, %r10, 0; @%p2 st.shared.u32 [%r5], %r1;", 1, 64, SHARED);
    let found = expect("add.u32 %r9, %r2, 5; @%p1 st.global.u32 [%rd1+8], %r9;", 2, 32, GLOBAL);
    assert_eq!(found[0].sites[0].note(), "writes 0x6 over 0x5");
    assert_eq!((found[0].sites[0].block, found[0].sites[1].block), (Some([1, 0, 0]), Some([0, 0, 0])));
    assert!(found[0].memory().contains("byte 8 of the allocation of 16384 bytes"), "{}", found[0]);
}

#[test]
fn neighbouring_bytes_are_separate() {
    clean("add.u32 %r8, %r5, %r1; st.shared.u8 [%r8], %r1;", 1, 128);
    clean(
        "shl.b32 %r8, %r1, 1; add.u32 %r8, %r5, %r8; st.shared.u16 [%r8], %r1; bar.sync 0; ld.shared.u32 %r9, [%r5]; st.global.u32 [%rd2], %r9;",
        1,
        128,
    );
    // Even bytes by one warp, odd ones by another.
    let interleaved = "shl.b32 %r8, %r10, 1; shr.u32 %r9, %r1, 5; add.u32 %r8, %r8, %r9; add.u32 %r8, %r8, %r5;";
    clean(&format!("{interleaved} st.shared.u8 [%r8], %r1;"), 1, 64);
    expect(&format!("{interleaved} st.shared.u8 [%r8], %r1; ld.shared.u16 %h1, [%r5];"), 1, 64, SHARED);
    // Blocks next to each other in global memory.
    clean("cvt.u64.u32 %rd3, %r7; add.s64 %rd3, %rd1, %rd3; st.global.u8 [%rd3], %r1;", 3, 33);
}

#[test]
fn vectors_overlap_what_they_contain() {
    let body = |sync: &str| {
        format!(
            "setp.ge.u32 %p2, %r1, 32; @%p2 bra READ;
             shl.b32 %r8, %r1, 4; add.u32 %r8, %r8, %r5; st.shared.v4.u32 [%r8], {{%r1, %r1, %r1, %r10}};
             READ: {sync} ld.shared.u32 %r9, [%r6+128]; st.global.u32 [%rd2], %r9;"
        )
    };
    expect(&body(""), 1, 64, SHARED);
    clean(&body("bar.sync 0;"), 1, 64);
    // Pairs of lanes store 8 bytes to one place.
    let pairs = "and.b32 %r8, %r4, 0xfffffff8; add.u32 %r8, %r8, %r5; st.shared.v2.u32 [%r8], {%r1, %r1};";
    expect(pairs, 1, 32, SHARED);
}

#[test]
fn transposed_tiles() {
    // Thread (x, y) of 32×8 writes s[x][y], reads s[y][x] as rows of 32.
    let body = |sync: &str| {
        format!(
            "shr.u32 %r8, %r1, 5; mad.lo.u32 %r8, %r10, 8, %r8; shl.b32 %r8, %r8, 2; add.u32 %r8, %r8, %r5;
             st.shared.u32 [%r8], %r1; {sync} ld.shared.u32 %r9, [%r6]; st.global.u32 [%rd2], %r9;"
        )
    };
    expect(&body(""), 1, 256, SHARED);
    clean(&body("bar.sync 0;"), 2, 256);
    // Twice in a row: after the chunk was split into cells.
    let twice = format!("{} bar.sync 0; {}", body("bar.sync 0;"), body("bar.sync 0;").replace("%r9", "%r19"));
    clean(&twice, 1, 256);
}

#[test]
fn threads_that_exit_take_no_part_in_barriers() {
    // Lane 5 of warp 1 writes and exits; the others wait and read what it wrote.
    let body = |early: &str, late: &str| {
        format!(
            "st.shared.u32 [%r6], %r1; {early} setp.eq.u32 %p2, %r1, 37; @%p2 exit; {late}
             ld.shared.u32 %r9, [%r5+148]; st.global.u32 [%rd2], %r9;"
        )
    };
    let found = expect(&body("", "bar.sync 0;"), 1, 64, SHARED);
    assert!(found.iter().any(|f| f.help().contains("that lane has exited")), "{}", found[0]);
    clean(&body("bar.sync 0;", "bar.sync 0;"), 1, 64);
    clean(&body("bar.sync 0;", ""), 1, 64);
}

#[test]
fn histograms_in_shared_memory() {
    let body = |sync: &str| {
        format!(
            "mov.u32 %r9, 0; st.shared.u32 [%r6], %r9; bar.sync 0;
             and.b32 %r8, %r1, 7; shl.b32 %r8, %r8, 2; add.u32 %r8, %r8, %r5; atom.shared.add.u32 %r9, [%r8], 1;
             {sync} setp.lt.u32 %p2, %r1, 8; @%p2 ld.shared.u32 %r9, [%r6]; @%p2 red.global.add.u32 [%rd1], %r9;"
        )
    };
    clean(&body("bar.sync 0;"), 3, 128);
    expect(&body(""), 1, 128, SHARED);
    expect(&body("bar.warp.sync -1;"), 1, 128, SHARED);
}

#[test]
fn accesses_stay_in_their_shared_variable() {
    let bounds: &[(&str, Severity)] = &[("memory::out-of-bounds", Error)];
    // Variables of a module lie in front of those of a function: 128 bytes of `t`, then 4096 of `s`.
    let globals = ".shared .align 4 .b8 t[128];";
    let use_t =
        "mov.u32 %r20, t; shl.b32 %r21, %r10, 2; add.u32 %r20, %r20, %r21; st.shared.u32 [%r20], %r1; bar.sync 0;";
    let at = |access: &str| format!("{use_t} {access}");
    let found = expect_in(globals, &at("st.shared.u32 [%r20+4], %r1;"), 1, 32, bounds);
    assert_eq!(
        found[0].message(),
        "store of 4 bytes runs out of the shared variable `t`: in `s` (4096 bytes at offset 128)"
    );
    let said =
        "offset 128 of shared memory, 0 bytes past the end of `t`; the address was made from 128 bytes at offset 0";
    assert_eq!(found[0].memory(), said);
    assert_eq!(found[0].sites[0].thread, Some([31, 0, 0]));
    let found = expect_in(globals, &at("ld.shared.u32 %r9, [%r6+-4];"), 1, 32, bounds);
    assert!(found[0].memory().contains("4 bytes before `s`"), "{}", found[0]);
    expect_in(globals, &at("ld.shared.u32 %r9, [%r20]; st.shared.u32 [%r6+3968], %r1;"), 1, 32, &[]);
    // An address that one of two variables gives may reach both.
    let either = format!("{use_t} setp.lt.u32 %p2, %r1, 16; selp.u32 %r22, %r6, %r20, %p2; st.shared.u32 [%r22], %r1;");
    expect_in(globals, &either, 1, 32, &[]);
    // What comes out of memory is not followed.
    let stored = format!(
        "{use_t} add.u32 %r22, %r20, 128; st.global.u32 [%rd2], %r22; ld.global.u32 %r23, [%rd2]; ld.shared.u32 %r24, [%r23];"
    );
    let found = findings(&text(globals, &stored), 1, 32, 0);
    assert!(found.iter().all(|f| f.rule.name() != "memory::out-of-bounds"), "{found:?}");
}

#[test]
fn addresses_at_the_end_of_all_are_refused_without_wrapping() {
    // Each lane some bytes before 2^64 or 2^32, at which sums wrap; alone, side by side, and all at one place.
    let kinds = [
        ("global", "ld.global.u32 %r9, [%rd3];"),
        ("global", "st.global.u64 [%rd3], %rd1;"),
        ("global", "ld.global.v4.u32 {%r20, %r21, %r22, %r23}, [%rd3];"),
        ("global", "atom.global.add.u32 %r9, [%rd3], 1;"),
        ("global", "atom.global.cas.b64 %rd5, [%rd3], %rd1, %rd2;"),
        ("global", "ld.u32 %r9, [%rd3];"),
        ("global", "st.v2.u64 [%rd3], {%rd1, %rd2};"),
        ("global", "cp.async.ca.shared.global [%r5], [%rd3], 16;"),
        ("global", "cp.async.bulk.global.shared::cta.bulk_group [%rd3], [%r5], 64;"),
        ("shared", "ld.shared.u32 %r9, [%r8];"),
        ("shared", "st.shared.v2.u64 [%r8], {%rd1, %rd2};"),
        ("shared", "atom.shared.add.u64 %rd5, [%r8], 1;"),
        ("shared", "cp.async.ca.shared.global [%r8], [%rd1], 16;"),
        ("shared", "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r20, %r21, %r22, %r23}, [%r8];"),
        ("shared", "mbarrier.init.shared.b64 [%r8], 1;"),
        ("local", "ld.local.u64 %rd5, [%r8];"),
        ("local", "st.local.v4.u32 [%r8], {%r1, %r1, %r1, %r1};"),
    ];
    for (space, access) in kinds {
        for (step, back) in [(0, 16), (4, 16), (16, 512), (4, 128), (16, 16), (0, 1)] {
            let body = format!(
                "mul.lo.u32 %r8, %r10, {step}; sub.u32 %r8, %r8, {back}; cvt.u64.u32 %rd3, %r10; mul.lo.u64 %rd3, %rd3, {step};
                 sub.u64 %rd3, %rd3, {back}; {access}"
            );
            let rig = Rig::with(MachineConfig { threads: 1, ..MachineConfig::default() }, &text("", &body));
            rig.machine.memory().track(true);
            let out = rig.upload(&vec![0u32; WORDS]);
            let launch = Launch::new([1, 1, 1], [32, 1, 1]);
            for profile in [false, true] {
                let checks = Checks { profile, ..Checks::ALL };
                let ran = rig.machine.inspect(&rig.instance, "k", &launch, &out.to_le_bytes(), &checks);
                assert!(ran.fault.is_some(), "{space} {access} steps of {step} from {back} before the end");
            }
        }
    }
}
