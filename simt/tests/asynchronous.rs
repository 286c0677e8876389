//! `mbarrier`, asynchronous and bulk copies, the functions that the driver provides, `alloca`.
//!
//! Expected behaviour is that of the ISA's text: "Phase of the mbarrier object", "Tracking asynchronous operations by the
//! mbarrier object", the semantics of each instruction, and the CUDA programming guide for `printf` and `malloc`.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::*;
use std::sync::{Arc, Mutex};
use warpsmith_simt::{Fault, FaultKind};

/// One kernel with an output array of 32-bit words per thread and 1 KiB of shared memory `s`.
fn rig(body: &str) -> Rig {
    Rig::new(&module_text(
        ".param .u64 out, .param .u64 in",
        &format!(
            ".shared .align 16 .b8 s[1024]; .reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .pred %p<9>;
             ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [in]; mov.u32 %r1, %tid.x;
             mul.wide.u32 %rd3, %r1, 4; add.u64 %rd3, %rd1, %rd3;
             {body}
             ret;"
        ),
    ))
}

fn run(body: &str, threads: u32) -> Vec<u32> {
    let rig = rig(body);
    let (out, input) = (rig.upload(&vec![0u32; 1024]), rig.upload(&(0..1024).collect::<Vec<u32>>()));
    rig.run(1, threads, &[out, input]);
    rig.download(out, threads as usize)
}

fn fails(body: &str, threads: u32) -> Box<Fault> {
    let rig = rig(body);
    let out = rig.upload(&vec![0u32; 1024]);
    rig.try_run(1, threads, &[out, out]).unwrap_err()
}

const ONE: &str = "setp.ne.u32 %p1, %r1, 0;";

#[test]
fn phases_of_an_mbarrier() {
    // Two arrivals a phase. Tokens name the phase that they arrived in; parity 0 is that of the first phase.
    let got = run(
        "mbarrier.init.shared.b64 [s], 2;
         mbarrier.arrive.shared.b64 %rd4, [s];
         mbarrier.pending_count.b64 %r2, %rd4;
         mbarrier.test_wait.shared.b64 %p1, [s], %rd4; selp.b32 %r3, 1, 0, %p1;
         mbarrier.arrive.shared.b64 %rd5, [s];
         mbarrier.pending_count.b64 %r4, %rd5;
         mbarrier.test_wait.shared.b64 %p2, [s], %rd4; selp.b32 %r5, 1, 0, %p2;
         mbarrier.test_wait.parity.shared.b64 %p3, [s], 0; selp.b32 %r6, 1, 0, %p3;
         mbarrier.test_wait.parity.shared.b64 %p4, [s], 1; selp.b32 %r7, 1, 0, %p4;
         mbarrier.arrive.shared.b64 %rd6, [s], 2;
         mbarrier.try_wait.parity.shared::cta.b64 %p5, [s], 1; selp.b32 %r8, 1, 0, %p5;
         mbarrier.inval.shared.b64 [s];
         // Pending counts before the arrivals: 2, then 1.
         mad.lo.u32 %r9, %r2, 10, %r4;
         mad.lo.u32 %r9, %r9, 10, %r3; mad.lo.u32 %r9, %r9, 10, %r5; mad.lo.u32 %r9, %r9, 10, %r6;
         mad.lo.u32 %r9, %r9, 10, %r7; mad.lo.u32 %r9, %r9, 10, %r8;
         st.global.u32 [%rd3], %r9;",
        1,
    );
    assert_eq!(got, [2_101_101]);
}

#[test]
fn bytes_are_waited_for() {
    // The phase ends when the arrivals and the bytes are complete, in whatever order they come.
    let got = run(
        "mbarrier.init.shared.b64 [s], 1;
         mbarrier.arrive.expect_tx.shared.b64 %rd4, [s], 48;
         mbarrier.test_wait.shared.b64 %p1, [s], %rd4; selp.b32 %r2, 1, 0, %p1;
         mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [s], 40;
         mbarrier.test_wait.shared.b64 %p1, [s], %rd4; selp.b32 %r3, 1, 0, %p1;
         mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [s], 8;
         mbarrier.test_wait.shared.b64 %p1, [s], %rd4; selp.b32 %r4, 1, 0, %p1;
         // Bytes first.
         mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [s], 16;
         mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [s], 16;
         mbarrier.test_wait.parity.shared.b64 %p1, [s], 1; selp.b32 %r5, 1, 0, %p1;
         mbarrier.arrive.shared.b64 _, [s];
         mbarrier.test_wait.parity.shared.b64 %p1, [s], 1; selp.b32 %r6, 1, 0, %p1;
         mad.lo.u32 %r9, %r2, 10, %r3; mad.lo.u32 %r9, %r9, 10, %r4; mad.lo.u32 %r9, %r9, 10, %r5;
         mad.lo.u32 %r9, %r9, 10, %r6; st.global.u32 [%rd3], %r9;",
        1,
    );
    assert_eq!(got, [101]);
}

#[test]
fn waiting_threads_make_way() {
    // Producers and consumers in one warp, and in several, by two mbarriers; the waits are spin loops. Threads of the lower half
    // wait first, so that whoever spins must let the others run.
    for threads in [32u32, 256] {
        let half = threads / 2;
        let body = format!(
            "{ONE} @%p1 bra GO;
             mbarrier.init.shared.b64 [s], {half};
             GO: bar.sync 0;
             setp.ge.u32 %p2, %r1, {half};
             @%p2 bra PRODUCE;
             WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p3, [s], 0;
             @!%p3 bra WAIT;
             shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r2, %r2, %r3; ld.shared.u32 %r4, [%r2+512-{off}];
             st.global.u32 [%rd3], %r4; ret;
             PRODUCE: shl.b32 %r2, %r1, 2; mov.u32 %r3, s; sub.u32 %r5, %r2, {quarter}; add.u32 %r5, %r5, %r3;
             mul.lo.u32 %r6, %r1, 3; st.shared.u32 [%r5+16], %r6;
             mbarrier.arrive.shared.b64 _, [s];",
            off = 512 - 16,
            quarter = half * 4,
        );
        let body = body.replace(&format!("+512-{}", 512 - 16), "+16");
        let got = run(&body, threads);
        for t in 0..half {
            assert_eq!(got[t as usize], 3 * (t + half), "{threads} threads, thread {t}");
        }
    }
}

#[test]
fn arrivals_that_drop_out() {
    // After arrive_drop, later phases expect one arrival less.
    let got = run(
        "mbarrier.init.shared.b64 [s], 2;
         mbarrier.arrive_drop.shared.b64 _, [s];
         mbarrier.arrive.shared.b64 %rd4, [s];
         mbarrier.arrive.shared.b64 %rd5, [s];
         mbarrier.test_wait.shared.b64 %p1, [s], %rd5; selp.b32 %r2, 1, 0, %p1;
         mbarrier.pending_count.b64 %r3, %rd5; mad.lo.u32 %r2, %r2, 10, %r3; st.global.u32 [%rd3], %r2;",
        1,
    );
    assert_eq!(got, [11]);
}

#[test]
fn misused_mbarriers() {
    for (body, text) in [
        ("mbarrier.arrive.shared.b64 _, [s];", "no mbarrier.init"),
        ("mbarrier.init.shared.b64 [s], 0;", "initialised with 0"),
        ("mbarrier.init.shared.b64 [s], 1048576;", "1048575"),
        ("mbarrier.init.shared.b64 [s], 1; mbarrier.arrive.shared.b64 %rd4, [s], 2;", "2 arrivals"),
        (
            "mbarrier.init.shared.b64 [s], 1; mbarrier.inval.shared.b64 [s]; mbarrier.arrive.shared.b64 _, [s];",
            "no mbarrier.init",
        ),
        ("mbarrier.init.shared.b64 [s], 1; mbarrier.arrive.noComplete.shared.b64 %rd4, [s], 1;", ".noComplete"),
        ("mbarrier.init.shared.b64 [s], 1; mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [s], 1048576;", "1048575"),
        ("mov.b64 %rd4, 7; mbarrier.pending_count.b64 %r2, %rd4;", "no mbarrier operation"),
    ] {
        let f = fails(body, 1);
        assert!(f.kind == FaultKind::BarrierMisuse && f.detail().contains(text), "{body}: {f}");
    }
    assert_eq!(fails("mbarrier.init.shared.b64 [s+4], 1;", 1).kind, FaultKind::Misaligned);
    assert_eq!(fails("mbarrier.init.shared.b64 [s+1024], 1;", 1).kind, FaultKind::OutOfBounds);
    // Nobody arrives: all threads spin, and nothing changes.
    let body = "mbarrier.init.shared.b64 [s], 1;
        L: mbarrier.try_wait.parity.shared::cta.b64 %p1, [s], 0; @!%p1 bra L;";
    let text = module_text(
        ".param .u64 out, .param .u64 in",
        &format!(".shared .align 16 .b8 s[16]; .reg .pred %p<3>; {body} ret;"),
    );
    let config = warpsmith_simt::MachineConfig { threads: 1, spin_limit: 500, ..Default::default() };
    let f = Rig::with(config, &text).try_run(1, 1, &[0, 0]).unwrap_err();
    assert_eq!(f.kind, FaultKind::Deadlock);
}

#[test]
fn copies_in_groups_and_at_barriers() {
    // 4, 8 and 16 bytes; a smaller source size fills the rest with zeros, a true ignore-src predicate all of it.
    let got = run(
        "shl.b32 %r2, %r1, 4; mov.u32 %r3, s; add.u32 %r2, %r2, %r3; mul.wide.u32 %rd4, %r1, 16; add.u64 %rd4, %rd2, %rd4;
         and.b32 %r4, %r1, 15; setp.eq.u32 %p1, %r1, 3;
         cp.async.cg.shared.global [%r2], [%rd4], 16, %r4;
         cp.async.commit_group; cp.async.wait_group 0;
         @%p1 cp.async.ca.shared.global [%r2], [%rd4+8], 8;
         cp.async.wait_all;
         ld.shared.v4.u32 {%r5,%r6,%r7,%r8}, [%r2];
         xor.b32 %r5, %r5, %r6; xor.b32 %r5, %r5, %r7; xor.b32 %r5, %r5, %r8; st.global.u32 [%rd3], %r5;",
        32,
    );
    for (t, &value) in got.iter().enumerate() {
        let mut bytes = [0u8; 16];
        let source: Vec<u8> = (0..4).flat_map(|i| (4 * t as u32 + i).to_le_bytes()).collect();
        let n = t & 15;
        bytes[..n].copy_from_slice(&source[..n]);
        if t == 3 {
            bytes[..8].copy_from_slice(&source[8..16]);
        }
        let want = bytes.chunks(4).fold(0, |x, w| x ^ u32::from_le_bytes(w.try_into().unwrap()));
        assert_eq!(value, want, "thread {t}");
    }
    // The ISA: without .noinc the arrival is not counted against the expected ones; with it, it is one of them.
    let got = run(
        "mbarrier.init.shared.b64 [s], 1;
         cp.async.ca.shared.global [s+16], [%rd2], 4;
         cp.async.mbarrier.arrive.shared.b64 [s];
         mbarrier.test_wait.parity.shared.b64 %p1, [s], 0; selp.b32 %r2, 1, 0, %p1;
         cp.async.mbarrier.arrive.noinc.shared.b64 [s];
         mbarrier.test_wait.parity.shared.b64 %p1, [s], 0; selp.b32 %r3, 1, 0, %p1;
         mad.lo.u32 %r2, %r2, 10, %r3; st.global.u32 [%rd3], %r2;",
        1,
    );
    assert_eq!(got, [1]);
}

#[test]
fn bulk_copies() {
    // Global to shared, completing at an mbarrier; shared to shared; shared to global; reductions.
    let got = run(
        &format!(
            "mov.u32 %r20, s; add.u32 %r21, %r20, 16; add.u32 %r22, %r20, 256;
             {ONE} @%p1 bra WAIT;
             mbarrier.init.shared.b64 [s], 1;
             fence.mbarrier_init.release.cluster; fence.proxy.async;
             mbarrier.arrive.expect_tx.shared.b64 _, [s], 256;
             cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r21], [%rd2], 128, [%r20];
             cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r22], [%r21], 128, [%r20];
             WAIT: bar.sync 0;
             L: mbarrier.try_wait.parity.shared::cta.b64 %p2, [s], 0; @!%p2 bra L;
             {ONE} @%p1 bra END;
             cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r22], 128;
             cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r21], 64;
             cp.reduce.async.bulk.global.shared::cta.bulk_group.max.s32 [%rd1+64], [%r21], 64;
             cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; cp.async.bulk.wait_group 0;
             cp.async.bulk.prefetch.L2.global [%rd2], 64;
             END: bar.sync 0;"
        ),
        64,
    );
    for t in 0..32u32 {
        // 0 + t, then t + t below 16; the maximum with t - 16 changes nothing above.
        assert_eq!(got[t as usize], if t < 16 { 2 * t } else { t }, "{t}");
    }
    let f = fails("mov.u32 %r2, s; cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], 24;", 1);
    assert!(f.kind == FaultKind::IllegalInstruction && f.detail().contains("multiples of 16"), "{f}");
    let f = fails("mov.u32 %r2, s; cp.async.bulk.global.shared::cta.bulk_group [%rd1+8], [%r2], 16;", 1);
    assert_eq!(f.kind, FaultKind::Misaligned);
    let f = fails("mov.u32 %r2, s; cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], 8192;", 1);
    assert!(f.kind == FaultKind::OutOfBounds && f.detail().contains("8192"), "{f}");
    let f = fails(
        "mov.u32 %r2, s; cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2+16], [%rd1], 16, [%r2];",
        1,
    );
    assert!(f.kind == FaultKind::BarrierMisuse, "{f}");
}

/// A module with the driver's functions declared, and a format string `f`.
fn library(body: &str, format: &str) -> Rig {
    let bytes: Vec<String> = format.bytes().chain([0]).map(|b| b.to_string()).collect();
    Rig::new(&format!(
        ".version 8.2\n.target sm_90\n.address_size 64\n
         .extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
         .extern .func (.param .b64 r) malloc (.param .b64 a);
         .extern .func free (.param .b64 a);
         .global .align 1 .b8 f[{n}] = {{{list}}};
         .global .align 1 .b8 text[6] = {{104, 101, 108, 108, 111, 0}};
         .visible .entry k(.param .u64 out, .param .u64 in) {{
         .local .align 8 .b8 a[64]; .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .pred %p<9>;
         .reg .b64 %SP; .param .b64 p0; .param .b64 p1; .param .b32 r0; .param .b64 r1;
         ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 8; add.u64 %rd3, %rd1, %rd3;
         {body} ret; }}",
        n = bytes.len(),
        list = bytes.join(", "),
    ))
}

const PRINT: &str = "mov.u64 %rd4, a; cvta.local.u64 %rd5, %rd4; mov.u64 %rd6, f; cvta.global.u64 %rd7, %rd6;
    st.param.b64 [p0], %rd7; st.param.b64 [p1], %rd5;
    call.uni (r0), vprintf, (p0, p1); ld.param.b32 %r9, [r0]; st.global.u32 [%rd3], %r9;";

fn printed(rig: &Rig, blocks: u32, threads: u32) -> (String, Vec<u64>) {
    let text = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&text);
    rig.machine.on_print(move |bytes| sink.lock().unwrap().extend_from_slice(bytes));
    let out = rig.upload(&[0u64; 64]);
    rig.run(blocks, threads, &[out, 0]);
    let text = String::from_utf8(text.lock().unwrap().clone()).unwrap();
    (text, rig.download(out, 64))
}

#[test]
fn kernels_print() {
    // Arguments stand as C promotes them: int 4 bytes, long long, pointers and double 8, each aligned.
    let rig = library(
        &format!(
            "st.local.u32 [a], %r1; mov.b64 %rd8, -5; st.local.b64 [a+8], %rd8; mov.b64 %rd9, 0d4002000000000000;
             st.local.b64 [a+16], %rd9; mov.u64 %rd10, text; cvta.global.u64 %rd10, %rd10; st.local.b64 [a+24], %rd10;
             mov.u32 %r2, 0xff; st.local.u32 [a+32], %r2; mov.u32 %r3, 6; st.local.u32 [a+36], %r3; st.local.u32 [a+40], %r1;
             {PRINT}"
        ),
        "%d %lld %.3f [%7s] %#06x|%*u|%%\n",
    );
    let (text, returned) = printed(&rig, 1, 3);
    let want: String = (0..3).map(|t| format!("{t} -5 2.250 [  hello] 0x00ff|     {t}|%\n")).collect();
    assert_eq!(text, want);
    // The programming guide: the number of arguments; the width is one.
    assert_eq!(returned[..3], [7, 7, 7]);
    let (text, returned) = printed(&library(PRINT, "plain"), 2, 1);
    assert_eq!((text.as_str(), returned[0]), ("plainplain", 0));
    let bad = library(&format!("mov.b64 %rd8, 64; st.local.b64 [a], %rd8; {PRINT}"), "%s");
    let out = bad.upload(&[0u64; 64]);
    let f = bad.try_run(1, 1, &[out, 0]).unwrap_err();
    assert!(f.kind == FaultKind::OutOfBounds && f.address == Some(64), "{f}");
}

#[test]
fn kernels_allocate() {
    let get = |bytes: u64| {
        format!("mov.b64 %rd8, {bytes}; st.param.b64 [p0], %rd8; call.uni (r1), malloc, (p0); ld.param.b64 %rd9, [r1];")
    };
    let put = "st.param.b64 [p0], %rd9; call.uni free, (p0);";
    let rig = library(
        &format!("{} st.u32 [%rd9+12], %r1; ld.u32 %r5, [%rd9+12]; st.global.u32 [%rd3], %r5; {put}", get(16)),
        "",
    );
    let before = rig.machine.memory().live_allocations();
    let out = rig.upload(&[0u64; 64]);
    rig.run(1, 40, &[out, 0]);
    let got: Vec<u64> = rig.download(out, 40);
    assert!(got.iter().enumerate().all(|(t, &v)| v == t as u64));
    assert_eq!(rig.machine.memory().live_allocations(), before + 1, "all freed again");
    // What is beyond the heap's limit is a null pointer.
    let rig = library(&format!("{} st.global.u64 [%rd3], %rd9;", get(1 << 20)), "");
    rig.machine.set_heap_limit(3 << 20);
    let out = rig.upload(&[1u64; 64]);
    rig.run(1, 5, &[out, 0]);
    let got: Vec<u64> = rig.download(out, 5);
    assert!(got[..3].iter().all(|&p| p != 0 && p % 16 == 0) && got[3..] == [0, 0]);
    // Used after it was freed, freed twice, beyond its end.
    let fault = |body: &str| {
        let rig = library(body, "");
        let out = rig.upload(&[0u64; 64]);
        rig.try_run(1, 1, &[out, 0]).unwrap_err().kind
    };
    assert_eq!(fault(&format!("{} ld.u32 %r5, [%rd9]; {put} ld.u32 %r5, [%rd9];", get(16))), FaultKind::OutOfBounds);
    assert_eq!(fault(&format!("{} {put} {put}", get(16))), FaultKind::HeapMisuse);
    assert_eq!(fault(&format!("{} st.u32 [%rd9+16], %r1;", get(16))), FaultKind::OutOfBounds);
}

#[test]
fn memory_on_the_stack() {
    // Each thread takes its own number of bytes, twice; the function gives all back when it returns.
    let rig = Rig::new(
        ".version 8.2\n.target sm_90\n.address_size 64\n
         .func (.param .b32 r) g(.param .b32 n) {
            .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>;
            ld.param.b32 %r1, [n]; cvt.u64.u32 %rd1, %r1; shl.b64 %rd1, %rd1, 2;
            stacksave.u64 %rd6;
            alloca.u64 %rd2, %rd1, 16; alloca.u64 %rd3, %rd1;
            cvta.local.u64 %rd4, %rd2;
            mov.u32 %r2, 0;
            L: setp.ge.u32 %p1, %r2, %r1; @%p1 bra E;
            mul.wide.u32 %rd5, %r2, 4; add.u64 %rd7, %rd4, %rd5; st.u32 [%rd7], %r2; add.u64 %rd8, %rd3, %rd5; st.local.u32 [%rd8], %r1;
            add.u32 %r2, %r2, 1; bra L;
            E: sub.u32 %r3, %r1, 1; mul.wide.u32 %rd5, %r3, 4; add.u64 %rd7, %rd2, %rd5; ld.local.u32 %r4, [%rd7];
            add.u64 %rd8, %rd3, %rd5; ld.local.u32 %r5, [%rd8]; mad.lo.u32 %r4, %r4, 1000, %r5;
            and.b64 %rd2, %rd2, 15; cvt.u32.u64 %r6, %rd2; add.u32 %r4, %r4, %r6;
            st.param.b32 [r], %r4; ret; }
         .visible .entry k(.param .u64 out) {
            .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>; .param .b32 a; .param .b32 b;
            ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 8; add.u64 %rd1, %rd1, %rd2;
            stacksave.u64 %rd3;
            mov.u32 %r3, 0;
            L: add.u32 %r2, %r1, 1; st.param.b32 [a], %r2; call.uni (b), g, (a); ld.param.b32 %r4, [b];
            add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 5000; @%p1 bra L;
            stacksave.u64 %rd4; sub.u64 %rd4, %rd4, %rd3; cvt.u32.u64 %r5, %rd4;
            st.global.v2.u32 [%rd1], {%r4, %r5}; ret; }",
    );
    let out = rig.upload(&[0u32; 64]);
    rig.run(1, 32, &[out]);
    let got: Vec<u32> = rig.download(out, 64);
    for t in 0..32u32 {
        assert_eq!(got[2 * t as usize..][..2], [t * 1000 + t + 1, 0]);
    }
    let f = fails("mov.b64 %rd4, 1000000; alloca.u64 %rd5, %rd4;", 1);
    assert_eq!(f.kind, FaultKind::StackOverflow);
    let f = fails("mov.b64 %rd4, 8; alloca.u64 %rd5, %rd4; st.local.u32 [%rd5+8], %r1;", 1);
    assert_eq!(f.kind, FaultKind::OutOfBounds);
    let f = fails("mov.b64 %rd4, 8; stackrestore.u64 %rd4;", 1);
    assert_eq!(f.kind, FaultKind::IllegalInstruction);
}

#[test]
fn what_is_not_there_is_named_with_its_line() {
    for (instruction, name) in [
        ("wgmma.fence.sync.aligned;", "wgmma.fence.sync.aligned"),
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r1, %r2}], [%r3];",
            "cp.async.bulk.tensor",
        ),
        ("suld.b.1d.b32.trap %r1, [%rd1, {%r2}];", "suld.b.1d.b32.trap"),
        ("tex.1d.v4.f32.s32 {%f1,%f2,%f3,%f4}, [%rd1, {%r2}];", "tex.1d.v4.f32.s32"),
        (
            "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2}, {%r3,%r4}, {%f1,%f2,%f3,%f4}, %r5, 0x0;",
            "mma.sp",
        ),
    ] {
        let text = format!(
            ".version 8.4\n.target sm_90a\n.address_size 64\n.visible .entry k() {{\n.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>;\n{instruction}\nret;\n}}\n"
        );
        let log = load_error(&text);
        assert!(log.contains(name) && log.contains("not supported") && log.contains("line 6"), "{instruction}: {log}");
    }
    let log = load_error(
        ".version 8.4\n.target sm_90\n.address_size 64\n.visible .entry k() .reqnctapercluster 2, 1, 1 {\nret;\n}\n",
    );
    assert!(log.contains("clusters"), "{log}");
}

/// A cluster is one block: 96 threads arrive, do something else, and wait; another round follows. Threads that have exited are not
/// waited for.
#[test]
fn the_barrier_of_a_cluster_of_one_block() {
    let text = module_text(
        ".param .u64 out",
        "  .shared .align 4 .b8 m[384]; .reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .pred %p<3>;
  ld.param.b64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  setp.ge.u32 %p1, %r1, 90;
  @%p1 exit;
  mov.u32 %r2, m;
  mad.lo.u32 %r3, %r1, 4, %r2;
  st.shared.u32 [%r3], %r1;
  barrier.cluster.arrive;
  add.u32 %r4, %r1, 45;
  setp.ge.u32 %p2, %r4, 90;
  @%p2 sub.u32 %r4, %r4, 90;
  mad.lo.u32 %r4, %r4, 4, %r2;
  barrier.cluster.wait;
  ld.shared.u32 %r5, [%r4];
  barrier.cluster.arrive.release.aligned;
  barrier.cluster.wait.acquire.aligned;
  st.shared.u32 [%r3], %r5;
  barrier.cluster.arrive.relaxed;
  barrier.cluster.wait;
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.shared.u32 %r6, [%r3];
  st.global.u32 [%rd3], %r6;
  ret;",
    );
    let rig = Rig::new(&text);
    let out = rig.alloc(4 * 90);
    rig.run(2, 96, &[out]);
    let want: Vec<u32> = (0..90).map(|i| (i + 45) % 90).collect();
    assert_eq!(rig.download::<u32>(out, 90), want);
    let f = fails("barrier.cluster.wait;", 32);
    assert_eq!(f.kind, FaultKind::DivergentBarrier);
    assert!(f.detail().contains("has not arrived"), "{f}");
    let f = fails("barrier.cluster.arrive; barrier.cluster.arrive;", 32);
    assert!(f.kind == FaultKind::DivergentBarrier && f.detail().contains("before it has waited"), "{f}");
    let f = fails("setp.lt.u32 %p1, %r1, 32; @%p1 barrier.cluster.arrive; @%p1 barrier.cluster.wait; bar.sync 0;", 64);
    assert_eq!(f.kind, FaultKind::Deadlock);
    assert!(f.detail().contains("the barrier of the cluster, which warps 1 have not reached"), "{f}");
}

/// By the ISA: `st.async` writes what the mbarrier's phase then makes visible, and completes its bytes there; `red.async` adds, in the
/// sum of all lanes 0 + 1 + … + 31 = 496 to the 7 that was there, or wraps at its bound with `.inc` (32 increments modulo 5 + 1: 2).
#[test]
fn asynchronous_stores_complete_at_an_mbarrier() {
    let text = module_text(
        ".param .u64 out",
        "  .shared .align 16 .b8 m[2048]; .shared .align 8 .b64 ready; .reg .b32 %r<12>; .reg .b64 %rd<6>; .reg .pred %p<3>;
  ld.param.b64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, m;
  setp.ne.u32 %p1, %r1, 0;
  @!%p1 mbarrier.init.shared.b64 [ready], 32;
  @!%p1 st.shared.u32 [m+1024], 7;
  @!%p1 st.shared.u32 [m+1028], 0;
  @!%p1 st.shared.u64 [m+1032], -1;
  bar.sync 0;
  xor.b32 %r3, %r1, 31;
  mad.lo.u32 %r4, %r3, 16, %r2;
  mad.lo.u32 %r5, %r3, 8, %r2;
  mov.u32 %r6, ready;
  mapa.shared::cluster.u32 %r6, %r6, 0;
  add.u32 %r7, %r1, 100;
  cvt.u64.u32 %rd2, %r1;
  mbarrier.arrive.expect_tx.shared.b64 _, [ready], 40;
  st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r4], {%r1, %r7, %r1, %r7}, [%r6];
  st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u64 [%r5+512], %rd2, [%r6];
  red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [m+1024], %r1, [%r6];
  red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.inc.u32 [m+1028], 5, [%r6];
  red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u64 [m+1032], %rd2, [%r6];
WAIT:
  mbarrier.try_wait.parity.shared.b64 %p2, [ready], 0;
  @!%p2 bra WAIT;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd3, %rd1, %rd3;
  mad.lo.u32 %r4, %r1, 16, %r2;
  mad.lo.u32 %r5, %r1, 8, %r2;
  ld.shared.u32 %r8, [%r4+4];
  ld.shared.u32 %r9, [%r5+512];
  mad.lo.u32 %r8, %r9, 1000, %r8;
  st.global.u32 [%rd3], %r8;
  @%p1 bra DONE;
  ld.shared.u32 %r8, [m+1024];
  st.global.u32 [%rd1+128], %r8;
  ld.shared.u32 %r8, [m+1028];
  st.global.u32 [%rd1+132], %r8;
  ld.shared.u32 %r8, [m+1032];
  st.global.u32 [%rd1+136], %r8;
DONE:
  ret;",
    );
    // 16 + 8 + 4 + 4 + 8 bytes a lane.
    let rig = Rig::new(&text);
    let out = rig.alloc(140);
    rig.run(1, 32, &[out]);
    let mut want: Vec<u32> = (0..32).map(|i| (31 - i) * 1000 + (31 - i) + 100).collect();
    want.extend([503, 2, 495]);
    assert_eq!(rig.download::<u32>(out, 35), want);
}
