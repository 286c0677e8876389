//! Races under the PTX memory model: small kernels with one defect each, and their clean twins.
//!
//! What is a race follows from the PTX ISA 8.x, chapter "Memory Consistency Model" (8.10: release and acquire patterns,
//! synchronises-with, causality order; 8.7: morally strong operations), and from what `bar.sync`, `bar.warp.sync` and `.nc`
//! are defined to do.

// Tests fail by panicking, helpers included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../simt/tests/common/mod.rs"]
mod common;

use common::{Rig, module_text};
use warpsmith_check::{CheckedMemory, Inspect, Ordering};
use warpsmith_check::{Checks, Finding, Severity};
use warpsmith_simt::{Launch, MachineConfig};

use Severity::{Error, Info, Warning};

/// `%rd1` is the output, `%r1` tid, `%r2` ctaid, `%r3` ntid, `%r4` 4 tid, `%r5` the start of 4 KiB of shared memory,
/// `%r6` the thread's word there, `%rd2` the thread's word of the output, `%r10` its lane; `%p1`: tid is 0.
const HEAD: &str = "
    .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %rd<20>;
    .shared .align 16 .b8 s[4096];
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r10, %laneid;
    shl.b32 %r4, %r1, 2; mov.u32 %r5, s; add.u32 %r6, %r5, %r4;
    mad.lo.u32 %r7, %r2, %r3, %r1; mul.wide.u32 %rd2, %r7, 4; add.s64 %rd2, %rd1, %rd2;
    setp.eq.u32 %p1, %r1, 0;
";

const WORDS: usize = 4096;

fn text(globals: &str, body: &str) -> String {
    let kernel = module_text(".param .u64 p", &format!("{HEAD}{body}\n    ret;"));
    kernel.replace(".visible .entry", &format!("{globals}\n.visible .entry"))
}

/// Runs a kernel under the checks and without; results must be the same, bit for bit.
fn findings(text: &str, grid: u32, block: u32, seed: u64) -> Vec<Finding> {
    let config = MachineConfig { threads: 1, spin_limit: 1 << 12, ..MachineConfig::default() };
    let run = |checked: bool| {
        let rig = Rig::with(config, text);
        let out = rig.upload(&vec![0u32; WORDS]);
        let launch = Launch::new([grid, 1, 1], [block, 1, 1]);
        let checks = Checks { races: true, sync: true, seed, ..Checks::default() };
        let (findings, counters) = if checked {
            let i = rig.machine.inspect(&rig.instance, "k", &launch, &out.to_le_bytes(), &checks);
            assert!(i.fault.is_none(), "{}", i.fault.unwrap());
            (i.findings, i.counters)
        } else {
            (Vec::new(), rig.run(grid, block, &[out]))
        };
        (findings, counters, rig.download::<u32>(out, WORDS))
    };
    let (found, counters, result) = run(true);
    if seed == 0 {
        let (_, plain_counters, plain) = run(false);
        assert_eq!(result, plain, "a checked launch has other results");
        assert_eq!(counters, plain_counters);
        let again = run(true).0;
        assert_eq!(found, without_addresses(&again, &found), "findings depend on chance");
    }
    found
}

/// `b` if it equals `a` but for addresses, which differ between machines.
fn without_addresses(a: &[Finding], b: &[Finding]) -> Vec<Finding> {
    let key = |f: &Finding| (f.rule, f.severity, f.sites.clone(), f.help.clone(), f.count);
    let same = a.len() == b.len() && a.iter().zip(b).all(|(a, b)| key(a) == key(b));
    if same { b.to_vec() } else { a.to_vec() }
}

/// The gravest severity of each rule.
fn grades(found: &[Finding]) -> Vec<(&'static str, Severity)> {
    let mut list: Vec<_> = found.iter().map(|f| (f.rule.name(), f.severity)).collect();
    list.sort_unstable_by(|a, b| b.cmp(a));
    list.dedup_by_key(|f| f.0);
    list.reverse();
    list
}

#[track_caller]
fn expect_in(globals: &str, body: &str, grid: u32, block: u32, want: &[(&str, Severity)]) -> Vec<Finding> {
    let text = text(globals, body);
    let found = findings(&text, grid, block, 0);
    let shown: String = found.iter().map(|f| format!("{f}\n")).collect();
    assert_eq!(grades(&found), want, "{shown}\n{text}");
    found
}

#[track_caller]
fn expect(body: &str, grid: u32, block: u32, want: &[(&str, Severity)]) -> Vec<Finding> {
    expect_in("", body, grid, block, want)
}

/// Clean also under shuffled schedules.
#[track_caller]
fn clean(body: &str, grid: u32, block: u32) {
    expect(body, grid, block, &[]);
    for seed in 1..4 {
        let found = findings(&text("", body), grid, block, seed);
        assert_eq!(grades(&found), [], "seed {seed}: {}", found[0]);
    }
}

const SHARED: &[(&str, Severity)] = &[("race::shared", Error)];
/// Lanes of one warp that only lockstep orders.
const LOCKSTEP: &[(&str, Severity)] = &[("race::shared", Warning)];
const GLOBAL: &[(&str, Severity)] = &[("race::global", Error)];

/// Reads the shared word of thread `tid ^ x` and writes it out.
fn read_other(x: u32) -> String {
    format!("xor.b32 %r8, %r4, {}; add.u32 %r8, %r5, %r8; ld.shared.u32 %r9, [%r8]; st.global.u32 [%rd2], %r9;", 4 * x)
}

#[test]
fn a_missing_block_barrier() {
    let read = read_other(32);
    let found = expect(&format!("st.shared.u32 [%r6], %r1; {read}"), 1, 64, SHARED);
    // One warp is too late for the other's write, one too early: one barrier is missing, so that is one finding.
    assert_eq!((found.len(), found[0].also.len()), (1, 1));
    let f = &found[0];
    assert_eq!(f.message, "write-read race on smem+0x0 (4 bytes)");
    assert_eq!((f.sites[0].thread, f.sites[1].thread), (Some([32, 0, 0]), Some([0, 0, 0])));
    assert!(f.sites[0].ptx_text.contains("ld.shared.u32"), "{f}");
    assert!(f.sites[1].ptx_text.contains("st.shared.u32"), "{f}");
    assert_eq!(f.sites[0].note, "reads 0x0");
    assert!(
        f.help.contains("no bar.sync, and no release and acquire, orders warp 0 lane 0 before warp 1 lane 0"),
        "{f}"
    );
    clean(&format!("st.shared.u32 [%r6], %r1; bar.sync 0; {read}"), 1, 64);
    clean(&format!("st.shared.u32 [%r6], %r1; barrier.sync 3; {read}"), 2, 96 + 32);
}

#[test]
fn lanes_of_a_warp_are_not_ordered_without_a_sync() {
    let read = read_other(1);
    let found = expect(&format!("st.shared.u32 [%r6], %r1; {read}"), 1, 32, LOCKSTEP);
    assert!(found[0].help.contains("no bar.warp.sync (__syncwarp) orders lane"), "{}", found[0]);
    assert!(found[0].help.contains("only execution in lockstep does"), "{}", found[0]);
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
    assert!(found[0].help.contains("different arms of a branch, which run in any order"), "{}", found[0]);
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
    assert!(found[0].message.contains("the same value"), "{}", found[0]);
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
    assert!(found[0].message.contains("32 lanes of a warp write different values to smem+0x0"), "{}", found[0]);
    assert_eq!((found[0].sites[0].note.as_str(), found[0].sites[1].note.as_str()), ("writes 0x1", "writes 0x0"));
    expect("setp.eq.u32 %p2, %r10, 0; @%p2 st.shared.u32 [%r5], %r1;", 1, 64, SHARED);
    let found = expect("add.u32 %r9, %r2, 5; @%p1 st.global.u32 [%rd1+8], %r9;", 2, 32, GLOBAL);
    assert_eq!(found[0].sites[0].note, "writes 0x6 over 0x5");
    assert_eq!((found[0].sites[0].block, found[0].sites[1].block), (Some([1, 0, 0]), Some([0, 0, 0])));
    assert!(found[0].memory.contains("byte 8 of the allocation of 16384 bytes"), "{}", found[0]);
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
    assert!(found.iter().any(|f| f.help.contains("that lane has exited")), "{}", found[0]);
    clean(&body("bar.sync 0;", "bar.sync 0;"), 1, 64);
    clean(&body("bar.sync 0;", ""), 1, 64);
}

#[test]
fn blocks_with_places_of_their_own() {
    clean(
        "st.global.u32 [%rd2], %r1; ld.global.u32 %r9, [%rd2]; add.u32 %r9, %r9, 1; st.global.u32 [%rd2], %r9;",
        5,
        96,
    );
    // Each thread also reads its right neighbour, which belongs to the next block at the end of this one.
    expect("add.u32 %r9, %r1, 1; st.global.u32 [%rd2], %r9; bar.sync 0; ld.global.u32 %r9, [%rd2+4];", 3, 64, GLOBAL);
    clean("ld.global.u32 %r9, [%rd1+64]; st.global.u32 [%rd2+4096], %r9;", 5, 96);
    expect("ld.global.u32 %r9, [%rd1+64]; add.u32 %r9, %r9, %r7; st.global.u32 [%rd2], %r9;", 5, 96, GLOBAL);
}

/// Waits until `[%rd1+offset]` is at least `value`, by loads of the given kind.
fn spin(load: &str, offset: u32, value: &str) -> String {
    let label = format!("SPIN{offset}{}", value.trim_start_matches('%'));
    format!("{label}: {load} %r30, [%rd1+{offset}]; setp.lt.u32 %p7, %r30, {value}; @%p7 bra {label};")
}

/// Block 0 writes data and sets a flag, block 1 waits for it and reads.
fn message(publish: &str, wait: &str) -> String {
    format!(
        "@!%p1 bra DONE; setp.ne.u32 %p2, %r2, 0; @%p2 bra READER;
         mov.u32 %r9, 42; st.global.u32 [%rd1+1024], %r9; mov.u32 %r11, 1; {publish} bra DONE;
         READER: {wait} ld.global.u32 %r9, [%rd1+1024]; st.global.u32 [%rd1+2048], %r9; DONE:"
    )
}

#[test]
fn releases_and_acquires_pass_messages() {
    let relaxed = spin("ld.relaxed.gpu.global.u32", 0, "1");
    let acquire = spin("ld.acquire.gpu.global.u32", 0, "1");
    let volatile = spin("ld.volatile.global.u32", 0, "1");
    clean(&message("st.release.gpu.global.u32 [%rd1], %r11;", &acquire), 2, 32);
    clean(&message("st.release.sys.global.u32 [%rd1], %r11;", &spin("ld.acquire.sys.global.u32", 0, "1")), 2, 32);
    clean(
        &message(
            "fence.acq_rel.gpu; st.relaxed.gpu.global.u32 [%rd1], %r11;",
            &format!("{relaxed} fence.acq_rel.gpu;"),
        ),
        2,
        32,
    );
    clean(&message("membar.gl; st.volatile.global.u32 [%rd1], %r11;", &format!("{volatile} membar.gl;")), 2, 32);
    clean(&message("fence.sc.gpu; atom.global.exch.b32 %r12, [%rd1], %r11;", &acquire), 2, 32);
    clean(&message("red.release.gpu.global.add.u32 [%rd1], %r11;", &acquire), 2, 32);
    // A relaxed store of the releasing thread to the same place still carries the release.
    clean(
        &message(
            "st.release.gpu.global.u32 [%rd1], %r11; st.relaxed.gpu.global.u32 [%rd1], 2;",
            &spin("ld.acquire.gpu.global.u32", 0, "2"),
        ),
        2,
        32,
    );
    // Nothing, half of it, the wrong half, the wrong order.
    let found = expect(&message("st.relaxed.gpu.global.u32 [%rd1], %r11;", &relaxed), 2, 32, GLOBAL);
    assert!(found[0].help.contains("order nothing by themselves"), "{}", found[0]);
    assert!(
        found[0].help.contains("no release and acquire at gpu scope orders block 0 before block 1"),
        "{}",
        found[0]
    );
    expect(&message("st.release.gpu.global.u32 [%rd1], %r11;", &relaxed), 2, 32, GLOBAL);
    expect(&message("st.relaxed.gpu.global.u32 [%rd1], %r11;", &acquire), 2, 32, GLOBAL);
    expect(&message("st.volatile.global.u32 [%rd1], %r11;", &format!("{volatile} membar.gl;")), 2, 32, GLOBAL);
    expect(
        &message(
            "st.relaxed.gpu.global.u32 [%rd1], %r11; fence.acq_rel.gpu;",
            &format!("fence.acq_rel.gpu; {relaxed}"),
        ),
        2,
        32,
        GLOBAL,
    );
}

#[test]
fn scopes_must_include_the_other_thread() {
    let acquire = |scope: &str| spin(&format!("ld.acquire.{scope}.global.u32"), 0, "1");
    let scope: &[(&str, Severity)] = &[("race::scope", Error)];
    for (publish, wait) in [
        ("st.release.cta.global.u32 [%rd1], %r11;", acquire("gpu")),
        ("st.release.gpu.global.u32 [%rd1], %r11;", acquire("cta")),
        ("st.release.cluster.global.u32 [%rd1], %r11;", acquire("cluster")),
        ("fence.acq_rel.cta; st.relaxed.gpu.global.u32 [%rd1], %r11;", acquire("gpu")),
        (
            "fence.acq_rel.gpu; st.relaxed.gpu.global.u32 [%rd1], %r11;",
            spin("ld.relaxed.gpu.global.u32", 0, "1") + "fence.acq_rel.cta;",
        ),
    ] {
        let found = expect(&message(publish, &wait), 2, 32, scope);
        let data = found.iter().find(|f| f.sites[0].note.contains("0x2a"));
        assert!(data.is_some_and(|f| f.help.contains("use .gpu")), "{publish} {wait}: {}", found[0]);
    }
    // Within a block, block scope is enough, through shared and through global memory.
    let within = |flag: &str| {
        format!(
            "st.shared.u32 [%r5+64], 0; bar.sync 0;
             setp.eq.u32 %p3, %r1, 32; mov.u32 %r11, 1; @%p1 bra WRITE; @%p3 bra READ; bra DONE;
             WRITE: mov.u32 %r9, 9; st.global.u32 [%rd1+1024], %r9; st.release.cta.{flag}, %r11; bra DONE;
             READ: ld.acquire.cta.{}; setp.eq.u32 %p4, %r12, 0; @%p4 bra READ;
             ld.global.u32 %r9, [%rd1+1024]; st.global.u32 [%rd1+2048], %r9; DONE:",
            flag.replace(".u32 ", ".u32 %r12, ")
        )
    };
    let zero = |flag: &str| {
        within(flag).replace("st.shared.u32 [%r5+64], 0", "mov.u32 %r13, 0; @%p1 st.shared.u32 [%r5+64], %r13")
    };
    clean(&zero("shared.u32 [%r5+64]"), 1, 64);
    clean(&zero("global.u32 [%rd1]"), 1, 64);
    expect(&zero("shared.u32 [%r5+64]").replace(".release.cta", ".relaxed.cta"), 1, 64, GLOBAL);
}

#[test]
fn atomics_race_only_beyond_their_scope() {
    clean("atom.global.add.u32 %r9, [%rd1], 1;", 4, 64);
    clean("red.relaxed.gpu.global.add.u32 [%rd1], 1;", 4, 64);
    clean("red.relaxed.cta.global.add.u32 [%rd1], 1;", 1, 256);
    let found = expect("red.relaxed.cta.global.add.u32 [%rd1], 1;", 2, 64, &[("race::scope", Error)]);
    assert!(found[0].help.contains("the scope .cta of this access does not include block 0"), "{}", found[0]);
    // Strong loads do not race with atomics, weak ones do.
    clean("atom.global.add.u32 %r9, [%rd1], 1; ld.relaxed.gpu.global.u32 %r9, [%rd1];", 3, 64);
    clean("atom.global.add.u32 %r9, [%rd1], 1; ld.volatile.global.u32 %r9, [%rd1];", 3, 64);
    expect("@%p1 atom.global.add.u32 %r9, [%rd1], 1; @%p1 ld.global.u32 %r9, [%rd1];", 3, 64, GLOBAL);
    expect("@%p1 atom.global.add.u32 %r9, [%rd1], 1; @%p1 st.global.u32 [%rd1], %r7;", 3, 64, GLOBAL);
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

/// Blocks add up their own words; the last one to finish adds up the sums.
fn last_block(release: &str, acquire: &str) -> String {
    format!(
        "add.u32 %r9, %r2, 3; @!%p1 bra JOIN; mul.wide.u32 %rd3, %r2, 4; add.s64 %rd3, %rd1, %rd3; st.global.u32 [%rd3+256], %r9;
         {release} atom.global.add.u32 %r11, [%rd1], 1; {acquire} st.shared.u32 [%r5], %r11;
         JOIN: bar.sync 0; ld.shared.u32 %r11, [%r5]; mov.u32 %r12, %nctaid.x; sub.u32 %r12, %r12, 1;
         setp.ne.u32 %p2, %r11, %r12; @%p2 bra DONE;
         mul.wide.u32 %rd4, %r1, 4; add.s64 %rd4, %rd1, %rd4; setp.gt.u32 %p3, %r1, %r12;
         @!%p3 ld.global.u32 %r13, [%rd4+256]; @!%p3 red.global.add.u32 [%rd1+128], %r13; DONE:"
    )
}

#[test]
fn the_last_block_reads_what_all_have_written() {
    clean(&last_block("fence.acq_rel.gpu;", "fence.acq_rel.gpu;"), 5, 64);
    clean(&last_block("membar.gl;", "membar.gl;"), 5, 64);
    clean(&last_block("", "").replace("atom.global.add", "atom.acq_rel.gpu.global.add"), 5, 64);
    // Without any fence; with one on the releasing side only, which a relaxed atomic does not acquire.
    expect(&last_block("", ""), 5, 64, GLOBAL);
    let found = expect(&last_block("fence.acq_rel.gpu;", ""), 5, 64, &[("race::global", Warning)]);
    assert!(found[0].help.contains("does not acquire it for block"), "{}", found[0]);
    expect(&last_block("", "fence.acq_rel.gpu;"), 5, 64, GLOBAL);
    expect(&last_block("fence.acq_rel.cta;", "fence.acq_rel.gpu;"), 5, 64, &[("race::scope", Error)]);
}

/// Thread 0 of each block adds to `[%rd1+1024]` under a lock at `[%rd1]`.
fn lock(take: &str, give: &str) -> String {
    format!(
        "@!%p1 bra DONE; mov.u32 %r12, 0; mov.u32 %r13, 1;
         TAKE: {take} setp.ne.u32 %p2, %r11, 0; @%p2 bra TAKE; {}
         ld.global.u32 %r9, [%rd1+1024]; add.u32 %r9, %r9, 1; st.global.u32 [%rd1+1024], %r9; {give} DONE:",
        if take.contains("exch") && give.contains("fence") { "fence.acq_rel.gpu;" } else { "" }
    )
}

#[test]
fn spin_locks() {
    let cas = "atom.acquire.gpu.global.cas.b32 %r11, [%rd1], %r12, %r13;";
    clean(&lock(cas, "st.release.gpu.global.u32 [%rd1], %r12;"), 4, 32);
    clean(&lock(cas, "atom.release.gpu.global.exch.b32 %r11, [%rd1], %r12;"), 4, 32);
    clean(
        &lock("atom.global.exch.b32 %r11, [%rd1], %r13;", "fence.acq_rel.gpu; st.relaxed.gpu.global.u32 [%rd1], %r12;"),
        4,
        32,
    );
    // As rustc with LLVM 22 compiles `swap(1, Acquire)` and `store(0, Release)`.
    let found = expect(
        &lock("atom.global.exch.b32 %r11, [%rd1], %r13;", "st.release.gpu.global.u32 [%rd1], %r12;"),
        4,
        32,
        &[("race::global", Warning)],
    );
    assert!(found[0].help.contains("LLVM up to 22 drops the ordering"), "{}", found[0]);
    let relaxed = lock("atom.global.exch.b32 %r11, [%rd1], %r13;", "st.relaxed.gpu.global.u32 [%rd1], %r12;");
    expect(&relaxed, 4, 32, GLOBAL);
    expect(&lock(cas, "st.release.cta.global.u32 [%rd1], %r12;"), 4, 32, &[("race::scope", Error)]);
}

/// A chained scan: each block waits for the one before it.
fn look_back(release: &str, acquire: &str) -> String {
    format!(
        "@!%p1 bra DONE; mul.wide.u32 %rd3, %r2, 8; add.s64 %rd3, %rd1, %rd3; mov.u32 %r20, 1; mov.u32 %r21, 0;
         setp.eq.u32 %p2, %r2, 0; @%p2 bra FIRST;
         WAIT: ld.relaxed.gpu.global.u32 %r22, [%rd3+504]; setp.eq.u32 %p3, %r22, 0; @%p3 bra WAIT; {acquire}
         ld.global.u32 %r21, [%rd3+508];
         FIRST: add.u32 %r21, %r21, %r2; st.global.u32 [%rd3+516], %r21; {release}
         st.relaxed.gpu.global.u32 [%rd3+512], %r20; DONE:"
    )
}

#[test]
fn decoupled_look_back() {
    clean(&look_back("fence.acq_rel.gpu;", "fence.acq_rel.gpu;"), 200, 32);
    clean(&look_back("membar.gl;", "membar.gl;"), 9, 64);
    expect(&look_back("", ""), 9, 32, GLOBAL);
    expect(&look_back("fence.acq_rel.gpu;", ""), 9, 32, GLOBAL);
    expect(&look_back("", "fence.acq_rel.gpu;"), 9, 32, GLOBAL);
}

/// All blocks meet at a counter between writing and reading each other's words; they must be resident together.
fn grid_barrier(before: &str, after: &str) -> String {
    format!(
        "add.u32 %r9, %r7, 1; st.global.u32 [%rd2+1024], %r9; bar.sync 0; @!%p1 bra JOIN; {before}
         red.relaxed.gpu.global.add.u32 [%rd1], 1; mov.u32 %r14, %nctaid.x; {} {after}
         JOIN: bar.sync 0; mov.u32 %r15, %nctaid.x; mul.lo.u32 %r15, %r15, %r3; sub.u32 %r15, %r15, 1; sub.u32 %r15, %r15, %r7;
         mul.wide.u32 %rd3, %r15, 4; add.s64 %rd3, %rd1, %rd3; ld.global.u32 %r9, [%rd3+1024]; st.global.u32 [%rd2+8192], %r9;",
        spin("ld.relaxed.gpu.global.u32", 0, "%r14")
    )
}

#[test]
fn grid_barriers() {
    clean(&grid_barrier("fence.acq_rel.gpu;", "fence.acq_rel.gpu;"), 6, 64);
    expect(&grid_barrier("", ""), 6, 64, GLOBAL);
    expect(&grid_barrier("fence.acq_rel.gpu;", ""), 6, 64, GLOBAL);
}

#[test]
fn compare_and_swap_loops_may_start_from_a_weak_load() {
    // Maximum, as LLVM expands it.
    let max = "ld.global.u32 %r11, [%rd1];
         LOOP: max.u32 %r12, %r11, %r7; atom.relaxed.gpu.global.cas.b32 %r13, [%rd1], %r11, %r12;
         setp.ne.u32 %p2, %r13, %r11; mov.b32 %r11, %r13; @%p2 bra LOOP;";
    clean(max, 3, 64);
    clean(
        &max.replace("max.u32", "and.b32")
            .replace("LOOP: and.b32 %r12, %r11, %r7;", "LOOP: and.b32 %r12, %r11, %r7; not.b32 %r12, %r12;"),
        2,
        32,
    );
    // A byte in a word: shifted and masked; the address is rounded down.
    let byte = "cvt.u64.u32 %rd3, %r2; add.s64 %rd3, %rd1, %rd3; and.b64 %rd4, %rd3, -4; cvt.u32.u64 %r14, %rd3; and.b32 %r14, %r14, 3;
         shl.b32 %r14, %r14, 3; mov.u32 %r15, 255; shl.b32 %r15, %r15, %r14; not.b32 %r16, %r15; mov.u32 %r17, 1; shl.b32 %r17, %r17, %r14;
         ld.global.u32 %r11, [%rd4];
         LOOP: add.u32 %r12, %r11, %r17; and.b32 %r12, %r12, %r15; and.b32 %r13, %r11, %r16; or.b32 %r12, %r12, %r13;
         atom.relaxed.sys.global.cas.b32 %r18, [%rd4], %r11, %r12;
         setp.ne.u32 %p2, %r18, %r11; mov.b32 %r11, %r18; @%p2 bra LOOP;";
    clean(byte, 4, 32);
    // A pair of halves, and subtraction of floats.
    clean(&max.replace("max.u32 %r12, %r11, %r7", "add.rn.f16x2 %r12, %r11, %r10"), 2, 32);
    // The loaded value goes elsewhere too: a race.
    expect(&max.replace("LOOP:", "@%p1 st.global.u32 [%rd2+512], %r11; LOOP:"), 3, 64, GLOBAL);
    expect(
        &max.replace("LOOP:", "setp.gt.u32 %p3, %r11, 1000; @%p3 bra OUT; LOOP:")
            .replace("@%p2 bra LOOP;", "@%p2 bra LOOP; OUT:"),
        3,
        64,
        GLOBAL,
    );
    // Another address.
    expect(
        &max.replace("ld.global.u32 %r11, [%rd1]", "ld.global.u32 %r11, [%rd1+4]")
            .replace("mov.b32 %r11, %r13;", "mov.b32 %r11, %r13; red.global.add.u32 [%rd1+4], 1;"),
        3,
        64,
        GLOBAL,
    );
    // A seed is no licence for plain stores.
    expect(&format!("@%p1 st.global.u32 [%rd1], %r7; {max}"), 3, 64, GLOBAL);
}

#[test]
fn non_coherent_loads() {
    let stale: &[(&str, Severity)] = &[("memory::stale-read", Error)];
    // Own data, written before; written after; another block's.
    expect("add.u32 %r9, %r7, 1; st.global.u32 [%rd2], %r9; ld.global.nc.u32 %r9, [%rd2];", 1, 32, stale);
    expect("ld.global.nc.u32 %r9, [%rd2]; add.u32 %r9, %r7, 1; st.global.u32 [%rd2], %r9;", 1, 32, stale);
    let found = expect(
        "ld.global.nc.u32 %r9, [%rd1+4]; add.u32 %r9, %r7, 1; @%p1 st.global.u32 [%rd2], %r9; bar.sync 0; setp.eq.u32 %p2, %r7, 32; @%p2 st.global.u32 [%rd1+4], %r9;",
        2,
        32,
        stale,
    );
    assert!(found[0].help.contains("the read-only cache is not coherent"), "{}", found[0]);
    clean("ld.global.nc.u32 %r9, [%rd2]; add.u32 %r9, %r7, 1; st.global.u32 [%rd2+8192], %r9;", 3, 64);
}

#[test]
fn statics_that_should_have_been_shared() {
    let globals = ".global .align 4 .b8 TILE[256];";
    let body = "mov.u64 %rd3, TILE; mul.wide.u32 %rd4, %r1, 4; add.s64 %rd3, %rd3, %rd4; st.global.u32 [%rd3], %r7; bar.sync 0;
        ld.global.u32 %r9, [%rd3]; st.global.u32 [%rd2], %r9;";
    let found = expect_in(globals, body, 2, 64, &[("race::static", Error)]);
    assert!(found[0].help.contains("`TILE` is one variable in global memory, which all blocks share"), "{}", found[0]);
    assert!(found[0].memory.contains("byte 0 of the variable `TILE` (256 bytes)"), "{}", found[0]);
    expect_in(globals, body, 1, 64, &[]);
    expect_in(globals, "mov.u64 %rd3, TILE; atom.global.add.u32 %r9, [%rd3], 1;", 4, 64, &[]);
}

#[test]
fn collectives_that_a_compiler_has_split() {
    // The duplicated shuffle of stock rustc: one call, copied into both arms.
    let split = "setp.lt.u32 %p2, %r1, 16; mov.u32 %r11, %r1; @%p2 bra LOW;
         shfl.sync.bfly.b32 %r9, %r11, 16, 31, -1; bra DONE; LOW: shfl.sync.bfly.b32 %r9, %r11, 16, 31, -1; DONE: st.global.u32 [%rd2], %r9;";
    let found = expect(split, 1, 32, &[("sync::split-collective", Error)]);
    assert!(
        found[0].message.contains("0xffffffff of one collective (shfl.sync.bfly) arrive from 2 places"),
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
        found[0].message.contains("a shuffle reads lane 16, which the membermask 0x0000ffff does not name"),
        "{}",
        found[0]
    );
    clean(&low.replace("8, 31", "8, 0x100f"), 1, 32);
    let gone = "setp.eq.u32 %p2, %r1, 3; @%p2 exit; shfl.sync.idx.b32 %r9, %r1, 3, 31, -1;";
    let found = expect(gone, 1, 32, inactive);
    assert!(found[0].message.contains("lane 3, which has exited"), "{}", found[0]);
}

#[test]
fn barriers_in_disagreement() {
    let divergence: &[(&str, Severity)] = &[("sync::barrier-divergence", Error)];
    let mixed =
        "setp.ge.u32 %p2, %r1, 32; @%p2 bra RED; bar.sync 0; bra DONE; RED: bar.red.popc.u32 %r9, 0, %p1; DONE:";
    let found = expect(mixed, 1, 64, divergence);
    assert!(found[0].message.contains("bar.sync and bar.red.popc on barrier 0"), "{}", found[0]);
    // A producer that does not wait for its consumer.
    let overrun = "setp.ge.u32 %p2, %r1, 32; @%p2 bra CONSUMER; bar.arrive 1, 96; bar.arrive 1, 96; bra DONE; CONSUMER: bar.sync 1, 96; DONE:";
    let found = expect(overrun, 1, 64, divergence);
    assert!(found[0].message.contains("arrives at barrier 1 again"), "{}", found[0]);
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
    assert!(found[0].sites.iter().any(|s| s.label == "warp 0, lanes 0x0000007f: wait at barrier 0"), "{}", found[0]);
    // Three warps are counted, one has exited, one waits elsewhere.
    let (found, fault) = faulty(
        "setp.ge.u32 %p2, %r1, 64; @%p2 exit; setp.ge.u32 %p3, %r1, 32; @%p3 bra SECOND; bar.sync 1, 96; bra DONE; SECOND: bar.sync 2, 96; DONE:",
        1,
        96,
    );
    assert_eq!(grades(&found), [("sync::barrier-missing", Error)]);
    let labels: Vec<&str> = found[0].sites.iter().map(|s| s.label.as_str()).collect();
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
fn operations_of_the_host_race_where_nothing_orders_them() {
    let rig = Rig::new(&text("", "st.global.u32 [%rd2], %r1;"));
    let memory = rig.machine.memory();
    let (a, b) = (rig.upload(&[0u32; 256]), rig.upload(&[0u32; 256]));
    let checks = Checks { races: true, ..Checks::default() };
    let launch = |p: u64, op: u32, ordered: &[u32]| {
        let before = |o: u32| ordered.contains(&o);
        let ordering = Ordering { op, name: &format!("stream {op}"), before: &before, early: None };
        let launch = Launch::new([4, 1, 1], [64, 1, 1]);
        let i = rig.machine.inspect_ordered(&rig.instance, "k", &launch, &p.to_le_bytes(), &checks, &ordering);
        assert!(i.fault.is_none());
        i.findings
    };
    let copy = |p: u64, bytes: u64, write: bool, op: u32, ordered: &[u32]| {
        let before = |o: u32| ordered.contains(&o);
        memory.touch(p, bytes, write, &Ordering { op, name: "cuMemcpyAsync", before: &before, early: None })
    };
    assert_eq!(launch(a, 1, &[]), []);
    assert_eq!(launch(b, 2, &[]), [], "another buffer");
    assert_eq!(launch(a, 3, &[1]), [], "the same stream");
    let found = launch(a, 4, &[1]);
    assert_eq!(grades(&found), [("race::stream", Error)]);
    assert_eq!(found[0].message.split(" at ").next(), Some("write-write race on global memory"));
    assert_eq!(found[0].sites[0].label, "write by kernel `k` (stream 4)");
    assert_eq!(found[0].sites[1].label, "earlier write by kernel `k` (stream 3)");
    assert!(found[0].sites[1].ptx_text.contains("st.global.u32 [%rd2], %r1;"), "{}", found[0]);
    // A copy to the host beside the kernel that writes; then behind it.
    assert_eq!(grades(&copy(b + 1020, 4, false, 5, &[])), [("race::stream", Error)]);
    assert_eq!(copy(b + 1020, 4, false, 6, &[2]), []);
    assert_eq!(copy(b + 1024 - 8, 4, false, 7, &[2]), []);
    // The readers count, too.
    assert_eq!(grades(&copy(b + 1020, 4, true, 8, &[2, 5])), [("race::stream", Error)]);
    // Memory is freed while operation 4 may run.
    let before = |o: u32| o != 4;
    let found = memory.retire(a, &Ordering { op: 9, name: "cuMemFreeAsync", before: &before, early: None });
    assert_eq!(grades(&found), [("race::free", Error)]);
    memory.free(a).unwrap();
    memory.forget();
    assert_eq!(copy(b, 1024, true, 10, &[]), []);
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
    assert!(found[0].sites[0].label.ends_with("spin"), "{}", found[0]);
    assert!(found[0].help.contains("a loop that waits needs somebody who ends it"), "{}", found[0]);
    assert!(fault.contains("wait at barrier 0"), "{fault}");
}

#[test]
fn barriers_that_threads_go_around() {
    let missing: &[(&str, Severity)] = &[("sync::barrier-missing", Warning)];
    let branch =
        |c: &str| format!("setp.ge.u32 %p2, {c}, 32; @%p2 bra SKIP; bar.sync 0; SKIP: st.global.u32 [%rd2], %r1;");
    let found = expect(&branch("%r1"), 1, 96, missing);
    assert!(found[0].message.contains("the 64 threads that went around it have exited"), "{}", found[0]);
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
        assert!(found[0].message.contains("lanes 0xffff0000 wait for lanes 0x0000ffff"), "{}", found[0]);
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
        found[0].message,
        "store of 4 bytes runs out of the shared variable `t`: in `s` (4096 bytes at offset 128)"
    );
    let said =
        "offset 128 of shared memory, 0 bytes past the end of `t`; the address was made from 128 bytes at offset 0";
    assert_eq!(found[0].memory, said);
    assert_eq!(found[0].sites[0].thread, Some([31, 0, 0]));
    let found = expect_in(globals, &at("ld.shared.u32 %r9, [%r6+-4];"), 1, 32, bounds);
    assert!(found[0].memory.contains("4 bytes before `s`"), "{}", found[0]);
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
