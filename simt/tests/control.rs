//! Divergence, barriers, collectives, calls, and their failures.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::double_comparisons,
    clippy::precedence,
    clippy::cast_abs_to_unsigned
)]

mod common;

use common::*;
use warpsmith_simt::{FaultKind, MachineConfig};

const REGS: &str = ".reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .pred %p<20>; .reg .f32 %f<9>;";
/// `%r1`: thread, `%rd2`: address of the thread's word of `o`.
const HEAD: &str = "ld.param.u64 %rd1, [o]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd1, %rd2;";

fn rig(body: &str) -> Rig {
    Rig::with(
        MachineConfig { threads: 1, spin_limit: 2000, instruction_limit: 1 << 26, ..MachineConfig::default() },
        &module_text(".param .u64 o", &format!("{REGS} {HEAD}\n{body}")),
    )
}

/// Runs a body that leaves its result in `%r2`.
fn run(body: &str, threads: u32) -> Vec<u32> {
    let rig = rig(&format!("{body}\nst.global.u32 [%rd2], %r2; ret;"));
    let o = rig.alloc(4 * u64::from(threads));
    rig.run(1, threads, &[o]);
    rig.download(o, threads as usize)
}

fn fails(body: &str, threads: u32) -> Box<warpsmith_simt::Fault> {
    let rig = rig(body);
    let o = rig.alloc(4096);
    rig.machine.memory().fill(o, &[0], 4096).unwrap();
    rig.try_run(1, threads, &[o]).unwrap_err()
}

fn threads(n: u32, f: impl Fn(u32) -> u32) -> Vec<u32> {
    (0..n).map(f).collect()
}

#[test]
fn loops_with_different_trip_counts() {
    // Collatz steps: every lane leaves at another time.
    let body = "add.u32 %r3, %r1, 1; mov.u32 %r2, 0;
        L: setp.eq.u32 %p1, %r3, 1; @%p1 bra D;
        and.b32 %r4, %r3, 1; setp.eq.u32 %p2, %r4, 0; @%p2 bra E;
        mad.lo.u32 %r3, %r3, 3, 1; bra N;
        E: shr.u32 %r3, %r3, 1;
        N: add.u32 %r2, %r2, 1; bra L;
        D:";
    let steps = |t: u32| {
        let (mut n, mut steps) = (t + 1, 0);
        while n != 1 {
            n = if n % 2 == 0 { n / 2 } else { 3 * n + 1 };
            steps += 1;
        }
        steps
    };
    assert_eq!(run(body, 200), threads(200, steps));
}

#[test]
fn lanes_meet_again_behind_a_loop() {
    // If they did not, the last add would be issued once per lane.
    let rig = rig(
        "mov.u32 %r2, 0; L: add.u32 %r2, %r2, 1; setp.le.u32 %p1, %r2, %r1; @%p1 bra L; add.u32 %r2, %r2, 100; st.global.u32 [%rd2], %r2; ret;",
    );
    let o = rig.alloc(128);
    let c = rig.run(1, 32, &[o]);
    assert_eq!(rig.download::<u32>(o, 32), threads(32, |t| t + 101));
    // 4 + 1 before, 3 per round for 32 rounds, 3 behind.
    assert_eq!(c.warp_instructions, 5 + 96 + 3);
    assert_eq!(c.lane_instructions, 32 * 8 + 3 * (1..=32).sum::<u64>());
    assert_eq!((c.branches, c.divergent_branches), (32, 31));
}

#[test]
fn nested_branches_and_early_exits() {
    let body = "mov.u32 %r2, 0; and.b32 %r3, %r1, 3; setp.eq.u32 %p1, %r3, 3; @%p1 bra X;
        setp.lt.u32 %p2, %r1, 16; @!%p2 bra B;
        setp.eq.u32 %p3, %r3, 0; @%p3 add.u32 %r2, %r2, 1; @%p3 bra J;
        add.u32 %r2, %r2, 2; bra J;
        B: add.u32 %r2, %r2, 4; setp.eq.u32 %p4, %r3, 1; @%p4 st.global.u32 [%rd2], 77; @%p4 exit;
        J: add.u32 %r2, %r2, 8; bra W;
        X: mov.u32 %r2, 99;
        W:";
    let want = |t: u32| match (t & 3, t < 16) {
        (3, _) => 99,
        (0, true) => 9,
        (_, true) => 10,
        (1, false) => 77,
        _ => 12,
    };
    assert_eq!(run(body, 64), threads(64, want));
}

#[test]
fn indexed_branches() {
    let body = "T: .branchtargets A, B, C; rem.u32 %r3, %r1, 3; brx.idx %r3, T;
        A: mov.u32 %r2, 10; bra D; B: mov.u32 %r2, 20; bra D; C: mov.u32 %r2, 30; D:";
    assert_eq!(run(body, 40), threads(40, |t| 10 * (t % 3 + 1)));
    let f = fails("T: .branchtargets A, A; brx.idx %r1, T; A: ret;", 4);
    assert_eq!((f.kind, f.thread[0]), (FaultKind::IllegalInstruction, 2));
}

#[test]
fn guarded_instructions_count_only_the_lanes_that_run() {
    let rig = rig("setp.lt.u32 %p1, %r1, 5; @%p1 st.global.u32 [%rd2], %r1; @!%p1 st.global.u32 [%rd2], 0; ret;");
    let o = rig.alloc(128);
    let c = rig.run(1, 32, &[o]);
    assert_eq!(rig.download::<u32>(o, 32), threads(32, |t| if t < 5 { t } else { 0 }));
    assert_eq!((c.warp_instructions, c.lane_instructions), (8, 32 * 7));
}

#[test]
fn shuffles() {
    assert_eq!(run("shfl.sync.bfly.b32 %r2, %r1, 5, 31, -1;", 64), threads(64, |t| t ^ 5));
    assert_eq!(run("shfl.sync.up.b32 %r2, %r1, 3, 0, -1;", 32), threads(32, |t| if t < 3 { t } else { t - 3 }));
    let body = "shfl.sync.down.b32 %r2|%p1, %r1, 1, 0x181f, -1; @!%p1 mov.u32 %r2, 1000;";
    assert_eq!(run(body, 32), threads(32, |t| if t % 8 == 7 { 1000 } else { t + 1 }));
    let body = "and.b32 %r3, %r1, 3; shfl.sync.idx.b32 %r2, %r1, %r3, 0x1c1f, 0xffffffff;";
    assert_eq!(run(body, 32), threads(32, |t| t & !3 | t & 3));
    // A sum over the warp by five exchanges.
    let sum = [16, 8, 4, 2, 1].map(|d| format!("shfl.sync.bfly.b32 %r3, %r2, {d}, 31, -1; add.u32 %r2, %r2, %r3;"));
    assert_eq!(
        run(&format!("mul.lo.u32 %r2, %r1, %r1; {}", sum.join("")), 32),
        [(0..32).map(|t| t * t).sum::<u32>(); 32]
    );
    // Lanes that are not there give nothing defined; those that are do.
    assert_eq!(run("shfl.sync.idx.b32 %r2, %r1, 3, 31, 0x1ff;", 9), [3; 9]);
}

#[test]
fn a_shuffle_copied_into_both_arms_still_exchanges() {
    let body = "setp.lt.u32 %p1, %r1, 16; @%p1 bra A;
        add.u32 %r3, %r1, 100; shfl.sync.bfly.b32 %r2, %r3, 16, 31, -1; bra J;
        A: add.u32 %r3, %r1, 200; shfl.sync.bfly.b32 %r2, %r3, 16, 31, -1;
        J:";
    assert_eq!(run(body, 32), threads(32, |t| if t < 16 { t + 16 + 100 } else { t - 16 + 200 }));
}

#[test]
fn groups_named_by_match() {
    // Each group of equal values reduces on its own, within one instruction.
    let body = "rem.u32 %r3, %r1, 5; match.any.sync.b32 %r4, %r3, -1; redux.sync.add.u32 %r2, %r1, %r4;";
    assert_eq!(run(body, 32), threads(32, |t| (0..32).filter(|u| u % 5 == t % 5).sum()));
    let body = "mov.u32 %r3, 7; match.all.sync.b32 %r2|%p1, %r3, -1; @!%p1 mov.u32 %r2, 0;";
    assert_eq!(run(body, 32), [!0; 32]);
    assert_eq!(run("match.all.sync.b32 %r2|%p1, %r1, -1; @%p1 mov.u32 %r2, 5;", 32), [0; 32]);
}

#[test]
fn votes_and_reductions() {
    let odd = "and.b32 %r3, %r1, 1; setp.ne.u32 %p1, %r3, 0;";
    assert_eq!(run(&format!("{odd} vote.sync.ballot.b32 %r2, %p1, -1;"), 32), [0xaaaa_aaaa; 32]);
    assert_eq!(run(&format!("{odd} vote.sync.any.pred %p2, %p1, -1; selp.u32 %r2, 1, 0, %p2;"), 32), [1; 32]);
    assert_eq!(run(&format!("{odd} vote.sync.all.pred %p2, %p1, -1; selp.u32 %r2, 1, 0, %p2;"), 32), [0; 32]);
    assert_eq!(run(&format!("{odd} vote.sync.uni.pred %p2, !%p1, -1; selp.u32 %r2, 1, 0, %p2;"), 32), [0; 32]);
    assert_eq!(run("sub.s32 %r3, %r1, 9; redux.sync.min.s32 %r2, %r3, -1;", 32), [-9i32 as u32; 32]);
    assert_eq!(run("redux.sync.max.u32 %r2, %r1, -1;", 32), [31; 32]);
    assert_eq!(run("redux.sync.xor.b32 %r2, %r1, -1;", 32), [0; 32]);
    assert_eq!(run("elect.sync %r2|%p1, -1; @%p1 mov.u32 %r2, 50;", 32), threads(32, |t| if t == 0 { 50 } else { 0 }));
    assert_eq!(
        run("setp.lt.u32 %p1, %r1, 4; mov.u32 %r2, 0; @%p1 activemask.b32 %r2;", 32),
        threads(32, |t| if t < 4 { 15 } else { 0 })
    );
    // Exited lanes are not waited for.
    let body = "setp.ge.u32 %p1, %r1, 20; @%p1 st.global.u32 [%rd2], 0; @%p1 exit; redux.sync.add.u32 %r2, %r1, -1;";
    assert_eq!(run(body, 32), threads(32, |t| if t < 20 { (0..20).sum() } else { 0 }));
}

#[test]
fn barriers_order_warps() {
    let text = module_text(
        ".param .u64 o",
        &format!(
            ".shared .align 4 .b8 s[1024]; {REGS} {HEAD}
             mov.u32 %r3, s; shl.b32 %r4, %r1, 2; add.u32 %r4, %r3, %r4; st.shared.u32 [%r4], %r1; bar.sync 0;
             sub.u32 %r5, 255, %r1; shl.b32 %r5, %r5, 2; add.u32 %r5, %r3, %r5; ld.shared.u32 %r2, [%r5];
             st.global.u32 [%rd2], %r2; ret;"
        ),
    );
    let rig = Rig::new(&text);
    let o = rig.alloc(1024);
    let c = rig.run(1, 256, &[o]);
    assert_eq!(rig.download::<u32>(o, 256), threads(256, |t| 255 - t));
    assert_eq!(c.barriers, 8);
}

#[test]
fn barrier_reductions_and_ids() {
    let odd = "setp.lt.u32 %p1, %r1, 70;";
    assert_eq!(run(&format!("{odd} bar.red.popc.u32 %r2, 1, %p1;"), 128), [70; 128]);
    assert_eq!(run(&format!("{odd} bar.red.and.pred %p2, 2, %p1; selp.u32 %r2, 1, 0, %p2;"), 128), [0; 128]);
    assert_eq!(run(&format!("{odd} barrier.red.or.pred %p2, 2, !%p1; selp.u32 %r2, 1, 0, %p2;"), 128), [1; 128]);
    // Warps 0 and 1 synchronise among themselves by count; the others pass.
    assert_eq!(run("setp.ge.u32 %p1, %r1, 64; @%p1 bra D; barrier.sync 3, 64; D: mov.u32 %r2, 4;", 128), [4; 128]);
    // Exited warps are not waited for.
    let body = "setp.ge.u32 %p1, %r1, 64; @%p1 st.global.u32 [%rd2], 0; @%p1 exit; bar.sync 0; mov.u32 %r2, 1;";
    assert_eq!(run(body, 128), threads(128, |t| u32::from(t < 64)));
}

#[test]
fn producers_and_consumers_of_named_barriers() {
    // Warp 0 produces ten values, warp 1 consumes them: barrier 1 says full, barrier 2 says empty.
    let text = module_text(
        ".param .u64 o",
        &format!(
            ".shared .align 4 .b8 s[128]; {REGS} {HEAD} and.b32 %r3, %r1, 31; shl.b32 %r3, %r3, 2; mov.u32 %r4, s; add.u32 %r3, %r3, %r4;
             mov.u32 %r5, 0; mov.u32 %r2, 0; setp.ge.u32 %p1, %r1, 32; @%p1 bra C;
             P: bar.sync 2, 64; add.u32 %r6, %r5, %r1; st.shared.u32 [%r3], %r6; bar.arrive 1, 64;
             add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 10; @%p2 bra P; bra D;
             C: bar.arrive 2, 64; bar.sync 1, 64; ld.shared.u32 %r6, [%r3]; add.u32 %r2, %r2, %r6;
             add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 10; @%p2 bra C;
             D: st.global.u32 [%rd2], %r2; ret;"
        ),
    );
    let rig = Rig::new(&text);
    let o = rig.alloc(256);
    rig.run(1, 64, &[o]);
    assert_eq!(rig.download::<u32>(o, 64)[32..], threads(32, |l| 45 + 10 * l));
}

#[test]
fn a_lock_between_lanes_of_a_warp_makes_progress() {
    let text = module_text(
        ".param .u64 o, .param .u64 lock",
        &format!(
            "{REGS} ld.param.u64 %rd1, [o]; ld.param.u64 %rd3, [lock];
             L: atom.global.cas.b32 %r3, [%rd3], 0, 1; setp.ne.u32 %p1, %r3, 0; @%p1 bra L;
             ld.volatile.global.u32 %r4, [%rd1]; add.u32 %r4, %r4, 1; st.volatile.global.u32 [%rd1], %r4;
             membar.gl; atom.global.exch.b32 %r5, [%rd3], 0; ret;"
        ),
    );
    let rig = Rig::new(&text);
    let (o, lock) = (rig.upload(&[0u32]), rig.upload(&[0u32]));
    rig.run(3, 96, &[o, lock]);
    assert_eq!(rig.download::<u32>(o, 1), [288]);
}

#[test]
fn a_warp_can_wait_for_another_without_a_barrier() {
    let text = module_text(
        ".param .u64 o, .param .u64 flag",
        &format!(
            "{REGS} {HEAD} ld.param.u64 %rd3, [flag]; mov.u32 %r2, 5; setp.lt.u32 %p1, %r1, 32; @!%p1 bra W;
             L: ld.acquire.gpu.global.u32 %r3, [%rd3]; setp.eq.u32 %p2, %r3, 0; @%p2 bra L; add.u32 %r2, %r3, 1; bra D;
             W: setp.eq.u32 %p3, %r1, 63; @%p3 st.release.gpu.global.u32 [%rd3], 41;
             D: st.global.u32 [%rd2], %r2; ret;"
        ),
    );
    let rig = Rig::new(&text);
    let (o, flag) = (rig.alloc(256), rig.upload(&[0u32]));
    rig.run(1, 64, &[o, flag]);
    assert_eq!(rig.download::<u32>(o, 64), threads(64, |t| if t < 32 { 42 } else { 5 }));
}

#[test]
fn blocks_can_wait_for_later_blocks() {
    // A barrier of the whole grid: every block adds one and waits until all have.
    let text = module_text(
        ".param .u64 o, .param .u64 count",
        &format!(
            "{REGS} {HEAD} ld.param.u64 %rd3, [count]; mov.u32 %r4, %nctaid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra B;
             red.release.gpu.global.add.u32 [%rd3], 1;
             L: ld.acquire.gpu.global.u32 %r3, [%rd3]; setp.lt.u32 %p2, %r3, %r4; @%p2 bra L;
             B: bar.sync 0; ld.volatile.global.u32 %r2, [%rd3]; st.global.u32 [%rd2], %r2; ret;"
        ),
    );
    let rig = Rig::new(&text);
    let (o, count) = (rig.alloc(256), rig.upload(&[0u32]));
    rig.run(50, 64, &[o, count]);
    assert_eq!(rig.download::<u32>(o, 64), [50; 64]);
}

#[test]
fn deadlocks_are_proved_and_explained() {
    // Half of the warp waits at a barrier, the other in a collective that names all.
    let f = fails(
        "setp.lt.u32 %p1, %r1, 16; @%p1 bra A; bar.sync 0; ret; A: shfl.sync.idx.b32 %r2, %r1, 0, 31, -1; ret;",
        32,
    );
    assert_eq!(f.kind, FaultKind::Deadlock);
    assert!(f.detail().contains("wait at barrier 0, which lanes 0x0000ffff of the warp have not reached"), "{f}");
    assert!(f.detail().contains("wait in a collective of lanes 0xffffffff for lanes 0xffff0000"), "{f}");
    // A warp that waits for a count that never comes.
    let f = fails("setp.ge.u32 %p1, %r1, 32; @%p1 exit; barrier.sync 1, 64; ret;", 64);
    assert_eq!(f.kind, FaultKind::Deadlock);
    assert!(f.detail().contains("(32 of 64 threads)"), "{f}");
    // Two barriers crosswise.
    let f = fails("setp.ge.u32 %p1, %r1, 32; @%p1 bra B; bar.sync 1; ret; B: bar.sync 2; ret;", 64);
    assert!(f.kind == FaultKind::Deadlock && f.detail().contains("barrier 1, which warps 1"), "{f}");
    // Spinning on memory that nobody changes.
    let f = fails("L: ld.volatile.global.u32 %r3, [%rd1]; setp.eq.u32 %p1, %r3, 0; @%p1 bra L; ret;", 64);
    assert!(f.kind == FaultKind::Deadlock && f.detail().contains("spin"), "{f}");
}

#[test]
fn misused_barriers_and_masks() {
    let f = fails("setp.lt.u32 %p1, %r1, 16; @%p1 bra A; bar.sync 0; bra J; A: bar.sync 0; J: ret;", 32);
    assert_eq!(f.kind, FaultKind::DivergentBarrier);
    // Without `.aligned` the same is allowed.
    let rig = rig("setp.lt.u32 %p1, %r1, 16; @%p1 bra A; barrier.sync 0; bra J; A: barrier.sync 0; J: ret;");
    rig.run(1, 32, &[0]);
    let f = fails("shfl.sync.idx.b32 %r2, %r1, 0, 31, 0xff;", 32);
    assert!(f.kind == FaultKind::MaskMisuse && f.detail().contains("lane 8"), "{f}");
    let f = fails("setp.lt.u32 %p1, %r1, 32; @%p1 bar.sync 1, 32; @!%p1 bar.sync 1, 64; ret;", 64);
    assert!(matches!(f.kind, FaultKind::DivergentBarrier | FaultKind::Deadlock), "{f}");
    let f = fails("bar.sync %r1; ret;", 32);
    assert_eq!(f.kind, FaultKind::DivergentBarrier);
    let f = fails("mov.u32 %r2, 33; bar.sync 0, %r2; ret;", 64);
    assert!(f.detail().contains("whole warps"), "{f}");
}

#[test]
fn traps_and_limits() {
    let f = fails("setp.eq.u32 %p1, %r1, 37; @%p1 trap; ret;", 64);
    assert_eq!((f.kind, f.thread), (FaultKind::Trap, [37, 0, 0]));
    let f = fails("L: add.u32 %r2, %r2, 1; bra L;", 1);
    assert_eq!(f.kind, FaultKind::InstructionLimit);
}

const FUNCTIONS: &str = ".version 8.0\n.target sm_90\n.address_size 64
.func (.param .b32 ret) fib(.param .b32 n) {
    .reg .b32 %r<9>; .reg .pred %p<2>;
    ld.param.u32 %r1, [n]; setp.lt.u32 %p1, %r1, 2; mov.u32 %r2, %r1; @%p1 bra D;
    sub.u32 %r3, %r1, 1; sub.u32 %r4, %r1, 2;
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %r3; call.uni (b), fib, (a); ld.param.b32 %r5, [b]; }
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %r4; call.uni (b), fib, (a); ld.param.b32 %r6, [b]; }
    add.u32 %r2, %r5, %r6;
    D: st.param.b32 [ret], %r2; ret;
}
.func (.reg .u32 %o) twice(.reg .u32 %i) { add.u32 %o, %i, %i; ret; }
.func (.param .b64 ret) square(.param .b64 n) { .reg .b64 %rd<3>; ld.param.u64 %rd1, [n]; mul.lo.u64 %rd2, %rd1, %rd1; st.param.b64 [ret], %rd2; ret; }
.func (.param .b64 ret) negate(.param .b64 n) { .reg .b64 %rd<3>; ld.param.u64 %rd1, [n]; neg.s64 %rd2, %rd1; st.param.b64 [ret], %rd2; ret; }
.func fill(.param .b64 p, .param .b32 v) { .reg .b64 %rd<3>; .reg .b32 %r<3>; ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [v]; st.u32 [%rd1], %r1; ret; }
.func forever() { call.uni forever; ret; }
.global .align 8 .u64 TABLE[2] = {square, negate};
";

fn call(body: &str, threads: u32) -> Result<Vec<u32>, Box<warpsmith_simt::Fault>> {
    let text = format!(
        "{FUNCTIONS}.visible .entry k(.param .u64 o) {{ .local .align 4 .b8 mine[8]; {REGS} {HEAD}\n{body}\nst.global.u32 [%rd2], %r2; ret; }}"
    );
    let rig = Rig::new(&text);
    let o = rig.alloc(4 * u64::from(threads));
    rig.try_run(1, threads, &[o])?;
    Ok(rig.download(o, threads as usize))
}

#[test]
fn calls_and_recursion() {
    let fib = |n: u32| (0..n).fold((0, 1), |(a, b), _| (b, a + b)).0;
    let body = "{ .param .b32 a; .param .b32 b; and.b32 %r3, %r1, 15; st.param.b32 [a], %r3; call.uni (b), fib, (a); ld.param.b32 %r2, [b]; }";
    assert_eq!(call(body, 48).unwrap(), threads(48, |t| fib(t & 15)));
    assert_eq!(call("call (%r2), twice, (%r1);", 40).unwrap(), threads(40, |t| 2 * t));
    // A pointer to the caller's local memory stays valid in the callee.
    let body = "mov.u64 %rd3, mine; cvta.local.u64 %rd4, %rd3; add.u32 %r3, %r1, 5;
        { .param .b64 a; .param .b32 b; st.param.b64 [a], %rd4; st.param.b32 [b], %r3; call.uni fill, (a, b); } ld.local.u32 %r2, [mine];";
    assert_eq!(call(body, 40).unwrap(), threads(40, |t| t + 5));
}

#[test]
fn indirect_calls() {
    let body = "and.b32 %r3, %r1, 1; mul.wide.u32 %rd3, %r3, 8; mov.u64 %rd4, TABLE; add.s64 %rd4, %rd4, %rd3; ld.global.u64 %rd5, [%rd4];
        cvt.u64.u32 %rd6, %r1;
        { .param .b64 a; .param .b64 b; st.param.b64 [a], %rd6; proto : .callprototype (.param .b64 _) _ (.param .b64 _);
          call (b), %rd5, (a), proto; ld.param.b64 %rd7, [b]; } cvt.u32.u64 %r2, %rd7;";
    assert_eq!(call(body, 40).unwrap(), threads(40, |t| if t & 1 == 0 { t * t } else { t.wrapping_neg() }));
    // Numbers that are no function, and functions that this kernel cannot name.
    for target in ["4096", "0xb00000000008", "0xb00000000060", "0xb00000000040", "0xb00000000000"] {
        let f = call(&body.replace("ld.global.u64 %rd5, [%rd4];", &format!("mov.u64 %rd5, {target};")), 1).unwrap_err();
        assert_eq!(f.kind, FaultKind::IllegalInstruction, "{target}");
    }
}

#[test]
fn endless_recursion_overflows() {
    assert_eq!(call("call.uni forever;", 3).unwrap_err().kind, FaultKind::StackOverflow);
}

#[test]
fn failed_assertions_give_their_text() {
    let text = ".version 8.0\n.target sm_90\n.address_size 64
        .extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
        .global .align 1 .b8 MESSAGE[6] = {120, 32, 62, 32, 48, 0};
        .global .align 1 .b8 FILE[5] = {97, 46, 114, 115, 0};
        .visible .entry k() { .reg .b64 %rd<5>; mov.u64 %rd1, MESSAGE; mov.u64 %rd2, FILE;
            { .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;
              st.param.b64 [a], %rd1; st.param.b64 [b], %rd2; st.param.b32 [c], 17; st.param.b64 [d], %rd2; st.param.b64 [e], 1;
              call.uni __assertfail, (a, b, c, d, e); }
            ret; }";
    let f = Rig::new(text).try_run(1, 1, &[]).unwrap_err();
    assert_eq!(f.kind, FaultKind::AssertFailed);
    assert!(f.detail().contains("a.rs:17") && f.detail().contains("`x > 0`"), "{f}");
}

#[test]
fn matrix_products() {
    // D = A·B + C with small integers, which are exact however they are summed.
    let text = module_text(
        ".param .u64 a, .param .u64 b, .param .u64 o",
        "
        .shared .align 16 .b8 s[512]; .reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .f32 %f<20>;
        ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [o]; mov.u32 %r1, %tid.x;
        mul.wide.u32 %rd4, %r1, 16; add.s64 %rd5, %rd1, %rd4; ld.global.v4.u32 {%r2,%r3,%r4,%r5}, [%rd5];
        mov.u32 %r6, s; shl.b32 %r7, %r1, 4; add.u32 %r8, %r6, %r7; st.shared.v4.u32 [%r8], {%r2,%r3,%r4,%r5}; bar.sync 0;
        // A is 16×16 f16, row-major: lanes 0-15 point to the left halves of rows, 16-31 to the right ones.
        and.b32 %r9, %r1, 15; shl.b32 %r9, %r9, 5; shr.u32 %r10, %r1, 4; shl.b32 %r10, %r10, 4; add.u32 %r9, %r9, %r10; add.u32 %r9, %r9, %r6;
        ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r11,%r12,%r13,%r14}, [%r9];
        // B is 16×8, column-major: two consecutive k of a column make a register.
        shr.u32 %r15, %r1, 2; and.b32 %r16, %r1, 3; mul.wide.u32 %rd6, %r15, 32; add.s64 %rd6, %rd2, %rd6; mul.wide.u32 %rd7, %r16, 4; add.s64 %rd6, %rd6, %rd7;
        ld.global.u32 %r17, [%rd6]; ld.global.u32 %r18, [%rd6+16];
        mov.f32 %f1, 0f3F800000;
        mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f2,%f3,%f4,%f5}, {%r11,%r12,%r13,%r14}, {%r17,%r18}, {%f1,%f1,%f1,%f1};
        shl.b32 %r19, %r15, 3; shl.b32 %r20, %r16, 1; add.u32 %r19, %r19, %r20; mul.wide.u32 %rd8, %r19, 4; add.s64 %rd9, %rd3, %rd8;
        st.global.v2.f32 [%rd9], {%f2,%f3}; st.global.v2.f32 [%rd9+256], {%f4,%f5}; ret;",
    );
    let rig = Rig::new(&text);
    let a: Vec<i32> = (0..256).map(|i| (i * 7 % 11) - 5).collect();
    let b: Vec<i32> = (0..128).map(|i| (i * 5 % 13) - 6).collect();
    let h = |v: &[i32]| v.iter().map(|&x| half::f16::from_f32(x as f32).to_bits()).collect::<Vec<u16>>();
    // b[n][k] in memory is B[k][n].
    let (pa, pb, o) = (rig.upload(&h(&a)), rig.upload(&h(&b)), rig.alloc(512));
    let c = rig.run(1, 32, &[pa, pb, o]);
    let out: Vec<f32> = rig.download(o, 128);
    for m in 0..16 {
        for n in 0..8 {
            let want: i32 = (0..16).map(|k| a[16 * m + k] * b[16 * n + k]).sum::<i32>() + 1;
            assert_eq!(out[8 * m + n], want as f32, "{m} {n}");
        }
    }
    assert_eq!(c.matrix_instructions, 1);
}
