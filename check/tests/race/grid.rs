//! Accesses of several blocks: messages, locks, chains, and what the host orders.

use crate::common::Rig;
use Severity::{Error, Warning};
use warpsmith_check::{CheckedMemory, Inspect, Ordering};
use warpsmith_check::{Checks, Severity};
use warpsmith_simt::Launch;

use crate::frame::*;

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
    assert!(found[0].help().contains("order nothing by themselves"), "{}", found[0]);
    assert!(
        found[0].help().contains("no release and acquire at gpu scope orders block 0 before block 1"),
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
        let data = found.iter().find(|f| f.sites[0].note().contains("0x2a"));
        assert!(data.is_some_and(|f| f.help().contains("use .gpu")), "{publish} {wait}: {}", found[0]);
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
    assert!(found[0].help().contains("the scope .cta of this access does not include block 0"), "{}", found[0]);
    // Strong loads do not race with atomics, weak ones do.
    clean("atom.global.add.u32 %r9, [%rd1], 1; ld.relaxed.gpu.global.u32 %r9, [%rd1];", 3, 64);
    clean("atom.global.add.u32 %r9, [%rd1], 1; ld.volatile.global.u32 %r9, [%rd1];", 3, 64);
    expect("@%p1 atom.global.add.u32 %r9, [%rd1], 1; @%p1 ld.global.u32 %r9, [%rd1];", 3, 64, GLOBAL);
    expect("@%p1 atom.global.add.u32 %r9, [%rd1], 1; @%p1 st.global.u32 [%rd1], %r7;", 3, 64, GLOBAL);
}

#[test]
fn the_last_block_reads_what_all_have_written() {
    clean(&last_block("fence.acq_rel.gpu;", "fence.acq_rel.gpu;"), 5, 64);
    clean(&last_block("membar.gl;", "membar.gl;"), 5, 64);
    clean(&last_block("", "").replace("atom.global.add", "atom.acq_rel.gpu.global.add"), 5, 64);
    // Without any fence; with one on the releasing side only, which a relaxed atomic does not acquire.
    expect(&last_block("", ""), 5, 64, GLOBAL);
    let found = expect(&last_block("fence.acq_rel.gpu;", ""), 5, 64, &[("race::global", Warning)]);
    assert!(found[0].help().contains("does not acquire it for block"), "{}", found[0]);
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
    assert!(found[0].help().contains("LLVM up to 22 drops the ordering"), "{}", found[0]);
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
    assert!(found[0].help().contains("the read-only cache is not coherent"), "{}", found[0]);
    clean("ld.global.nc.u32 %r9, [%rd2]; add.u32 %r9, %r7, 1; st.global.u32 [%rd2+8192], %r9;", 3, 64);
}

#[test]
fn statics_that_should_have_been_shared() {
    let globals = ".global .align 4 .b8 TILE[256];";
    let body = "mov.u64 %rd3, TILE; mul.wide.u32 %rd4, %r1, 4; add.s64 %rd3, %rd3, %rd4; st.global.u32 [%rd3], %r7; bar.sync 0;
        ld.global.u32 %r9, [%rd3]; st.global.u32 [%rd2], %r9;";
    let found = expect_in(globals, body, 2, 64, &[("race::static", Error)]);
    assert!(
        found[0].help().contains("`TILE` is one variable in global memory, which all blocks share"),
        "{}",
        found[0]
    );
    assert!(found[0].memory().contains("byte 0 of the variable `TILE` (256 bytes)"), "{}", found[0]);
    expect_in(globals, body, 1, 64, &[]);
    expect_in(globals, "mov.u64 %rd3, TILE; atom.global.add.u32 %r9, [%rd3], 1;", 4, 64, &[]);
}

#[test]
fn operations_of_the_host_race_where_nothing_orders_them() {
    let rig = Rig::new(&text("", "st.global.u32 [%rd2], %r1;"));
    let memory = rig.machine.memory();
    let (a, b) = (rig.upload(&[0u32; 256]), rig.upload(&[0u32; 256]));
    let checks = Checks { races: true, ..Checks::default() };
    let launch = |p: u64, op: u32, ordered: &[u32]| {
        let before = |o: u32| ordered.contains(&o);
        let ordering = Ordering { op, name: &format!("stream {op}"), before: &before, early: None, speaker: None };
        let launch = Launch::new([4, 1, 1], [64, 1, 1]);
        let i = rig.machine.inspect_ordered(&rig.instance, "k", &launch, &p.to_le_bytes(), &checks, &ordering);
        assert!(i.fault.is_none());
        i.findings
    };
    let copy = |p: u64, bytes: u64, write: bool, op: u32, ordered: &[u32]| {
        let before = |o: u32| ordered.contains(&o);
        memory.touch(
            p,
            bytes,
            write,
            &Ordering { op, name: "cuMemcpyAsync", before: &before, early: None, speaker: None },
        )
    };
    assert_eq!(launch(a, 1, &[]), []);
    assert_eq!(launch(b, 2, &[]), [], "another buffer");
    assert_eq!(launch(a, 3, &[1]), [], "the same stream");
    let found = launch(a, 4, &[1]);
    assert_eq!(grades(&found), [("race::stream", Error)]);
    assert_eq!(found[0].message().split(" at ").next(), Some("write-write race on global memory"));
    assert_eq!(found[0].sites[0].label(), "write by kernel `k` (stream 4)");
    assert_eq!(found[0].sites[1].label(), "earlier write by kernel `k` (stream 3)");
    assert!(found[0].sites[1].ptx_text.contains("st.global.u32 [%rd2], %r1;"), "{}", found[0]);
    // A copy to the host beside the kernel that writes; then behind it.
    assert_eq!(grades(&copy(b + 1020, 4, false, 5, &[])), [("race::stream", Error)]);
    assert_eq!(copy(b + 1020, 4, false, 6, &[2]), []);
    assert_eq!(copy(b + 1024 - 8, 4, false, 7, &[2]), []);
    // The readers count, too.
    assert_eq!(grades(&copy(b + 1020, 4, true, 8, &[2, 5])), [("race::stream", Error)]);
    // Memory is freed while operation 4 may run.
    let before = |o: u32| o != 4;
    let found =
        memory.retire(a, &Ordering { op: 9, name: "cuMemFreeAsync", before: &before, early: None, speaker: None });
    assert_eq!(grades(&found), [("race::free", Error)]);
    memory.free(a).unwrap();
    memory.forget();
    assert_eq!(copy(b, 1024, true, 10, &[]), []);
}
