//! Undefined data: kernels with one planted defect each, and their clean twins.
//!
//! What is a defect follows from the PTX ISA: "the contents of uninitialized variables/registers are undefined" (state
//! spaces), and from what a program can observe: copying undefined bytes around is harmless, deciding by them is not. The line of a
//! defect is marked in the text by `//!`, the load that brought the undefined bytes by `//?`.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../simt/tests/common/mod.rs"]
mod common;

use common::*;
use warpsmith_check::{CheckedMemory, Checks, Inspect, Inspection, Rule, Severity};
use warpsmith_simt::Launch;

const REGS: &str = ".reg .b16 %h<20>; .reg .b32 %r<60>; .reg .b64 %rd<40>; .reg .f32 %f<20>; .reg .pred %p<20>;
    ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b];
    mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;";

/// A kernel with parameters `a` and `b`; `%rd4` and `%rd5` are the thread's words of them, `%r1` its index.
fn text(before: &str, body: &str) -> String {
    format!(
        ".version 8.2\n.target sm_90\n.address_size 64\n{before}\n.visible .entry k(.param .u64 a, .param .u64 b) {{\n{REGS}\n{body}\n}}\n"
    )
}

/// Line of a mark, from 1; 0 without one.
fn marked(text: &str, mark: &str) -> u32 {
    text.lines().position(|l| l.contains(mark)).map_or(0, |i| i as u32 + 1)
}

struct Case {
    rig: Rig,
    text: String,
    a: u64,
    b: u64,
}

impl Case {
    /// 1024 bytes each: `a` has its first `defined` bytes written, `b` none.
    fn new(text: String, defined: usize) -> Case {
        let rig = Rig::new(&text);
        rig.machine.memory().track(true);
        let (a, b) = (rig.alloc(1024), rig.alloc(1024));
        let bytes: Vec<u8> = (0..defined).map(|i| (i % 7) as u8).collect();
        rig.machine.memory().write(a, &bytes).unwrap();
        Case { rig, text, a, b }
    }

    fn inspect(&self, block: u32) -> Inspection {
        let checks = Checks { init: true, ..Checks::default() };
        let params: Vec<u8> = [self.a, self.b].iter().flat_map(|p| p.to_le_bytes()).collect();
        self.rig.machine.inspect(&self.rig.instance, "k", &Launch::new([1, 1, 1], [block, 1, 1]), &params, &checks)
    }

    fn undefined(&self, bytes: u64) -> Option<(u64, u64)> {
        self.rig.machine.memory().undefined(self.b, bytes)
    }
}

/// Runs a body that must give nothing; gives the case to look at memory.
fn clean_with(before: &str, body: &str, defined: usize, block: u32) -> Case {
    let case = Case::new(text(before, body), defined);
    let found = case.inspect(block);
    assert!(found.fault.is_none(), "{}", found.fault.unwrap());
    assert!(found.findings.is_empty(), "{}\n{}", found.findings[0], case.text);
    same_results(&case, block);
    case
}

fn clean(body: &str, defined: usize) -> Case {
    clean_with("", body, defined, 32)
}

/// An unchecked launch leaves the same bits behind.
fn same_results(case: &Case, block: u32) {
    let checked: Vec<u8> = case.rig.download(case.b, 1024);
    let again = Case::new(case.text.clone(), 0);
    let before: Vec<u8> =
        (0..1024).map(|i| if case.rig.download::<u8>(case.a + i, 1)[0] == 0xA5 { 0xA5 } else { 0 }).collect();
    let defined = before.iter().take_while(|&&b| b != 0xA5).count();
    let again = if defined > 0 { Case::new(again.text, defined) } else { again };
    let params: Vec<u8> = [again.a, again.b].iter().flat_map(|p| p.to_le_bytes()).collect();
    let launch = Launch::new([1, 1, 1], [block, 1, 1]);
    again.rig.machine.launch(&again.rig.instance, "k", &launch, &params).unwrap();
    assert_eq!(again.rig.download::<u8>(again.b, 1024), checked, "{}", case.text);
}

/// Runs a body that must give one finding of a rule, at the line marked `//!`, first seen in this thread.
fn defect_with(before: &str, body: &str, defined: usize, block: u32, rule: Rule, thread: u32) -> Case {
    let case = Case::new(text(before, body), defined);
    let found = case.inspect(block);
    let all = || found.findings.iter().map(|f| format!("{f}\n")).collect::<String>();
    assert_eq!(found.findings.len(), 1, "{}{}", all(), case.text);
    let f = &found.findings[0];
    assert_eq!((f.rule, f.severity), (rule, Severity::Error), "{f}");
    assert_eq!(f.sites[0].ptx_line, marked(&case.text, "//!"), "{f}\n{}", case.text);
    assert_eq!(f.sites[0].thread, Some([thread, 0, 0]), "{f}");
    let load = marked(&case.text, "//?");
    assert_eq!(f.sites.get(1).map_or(0, |s| s.ptx_line), load, "{f}\n{}", case.text);
    assert!(!f.memory.is_empty(), "{f}");
    same_results(&case, block);
    case
}

fn defect(body: &str, defined: usize, rule: Rule, thread: u32) -> Case {
    defect_with("", body, defined, 32, rule, thread)
}

const STORE: &str = "st.global.u32 [%rd5], %r2; ret;";

#[test]
fn a_branch_on_memory_that_nobody_wrote() {
    let body = |at: &str| {
        format!(
            "ld.global.u32 %r2, [{at}]; //?
             add.u32 %r2, %r2, 1; setp.gt.u32 %p1, %r2, 5;
             @%p1 bra DONE; //!
             mov.u32 %r2, 7;
             DONE: {STORE}"
        )
    };
    let case = defect(&body("%rd4"), 64, Rule::UndefinedBranch, 16);
    assert_eq!(case.undefined(64), None);
    clean(&body("%rd4"), 128);
}

#[test]
fn moving_undefined_data_is_no_finding_but_leaves_it_undefined() {
    let case = clean(&format!("ld.global.u32 %r2, [%rd4]; xor.b32 %r2, %r2, 3; {STORE}"), 64);
    assert_eq!(case.undefined(128), Some((64, 64)));
    assert_eq!(case.undefined(1024), Some((64, 960)));
    let case = clean(&format!("ld.global.u32 %r2, [%rd4]; xor.b32 %r2, %r2, 3; {STORE}"), 128);
    assert_eq!(case.undefined(128), None);
}

#[test]
fn an_address_from_undefined_data() {
    let body = "ld.global.u32 %r2, [%rd4]; //?
         and.b32 %r2, %r2, 124; cvt.u64.u32 %rd6, %r2; add.s64 %rd7, %rd1, %rd6;
         ld.global.u32 %r3, [%rd7]; //!
         mov.u32 %r2, 1; st.global.u32 [%rd5], %r2; ret;";
    defect(body, 4, Rule::UndefinedAddress, 1);
    clean(body, 128);
}

#[test]
fn an_address_of_a_store_from_undefined_data() {
    let body = "ld.global.u32 %r2, [%rd4]; //?
         and.b32 %r2, %r2, 124; cvt.u64.u32 %rd6, %r2; add.s64 %rd7, %rd2, %rd6;
         st.global.u32 [%rd7], %r1; //!
         ret;";
    defect(body, 0, Rule::UndefinedAddress, 0);
    clean(body, 128);
}

#[test]
fn a_register_read_before_it_is_written() {
    let body = |init: &str| {
        format!(
            "{init} setp.lt.u32 %p1, %r1, 4; @%p1 mov.u32 %r2, 9; setp.ne.u32 %p2, %r2, 3;\n@%p2 bra DONE; //!\nmov.u32 %r2, 1; DONE: mov.u32 %r2, 2; {STORE}"
        )
    };
    let case = defect(&body(""), 0, Rule::UndefinedBranch, 4);
    assert!(case.inspect(32).findings[0].memory.contains("register"));
    clean(&body("mov.u32 %r2, 0;"), 0);
    // A guarded read under the guard that wrote is fine.
    clean(
        &format!(
            "setp.lt.u32 %p1, %r1, 4; mov.u32 %r3, 0; @%p1 mov.u32 %r2, 9; @%p1 add.u32 %r3, %r2, 1; setp.ne.u32 %p2, %r3, 3;\n@%p2 bra DONE;\nmov.u32 %r2, 1; DONE: mov.u32 %r2, 2; {STORE}"
        ),
        0,
    );
}

#[test]
fn a_predicate_read_before_it_is_written() {
    let body = |init: &str| format!("{init} mov.u32 %r2, 1;\n@%p1 bra DONE; //!\nmov.u32 %r2, 2; DONE: {STORE}");
    defect(&body(""), 0, Rule::UndefinedBranch, 0);
    clean(&body("setp.ne.u32 %p1, %r1, 0;"), 0);
}

#[test]
fn guards_of_accesses_and_exits() {
    let guarded = |what: &str| {
        format!(
            "ld.global.u32 %r2, [%rd4]; //?
             setp.eq.u32 %p1, %r2, 12345;
             @%p1 {what} //!
             ret;"
        )
    };
    // The guard is false in every lane: nothing is executed, and that was decided by undefined data.
    defect(&guarded("st.global.u32 [%rd5], %r1;"), 0, Rule::UndefinedBranch, 0);
    defect(&guarded("exit;"), 96, Rule::UndefinedBranch, 24);
    clean(&guarded("st.global.u32 [%rd5], %r1;"), 128);
    // A guard of arithmetic only makes the result undefined, which here nobody uses.
    clean(
        &format!(
            "ld.global.u32 %r2, [%rd4]; setp.eq.u32 %p1, %r2, 12345; mov.u32 %r3, 0; @%p1 mov.u32 %r3, 1; mov.u32 %r2, 5; {STORE}"
        ),
        0,
    );
    let case = clean(
        "ld.global.u32 %r2, [%rd4]; setp.eq.u32 %p1, %r2, 12345; mov.u32 %r3, 0; @%p1 mov.u32 %r3, 1; st.global.u32 [%rd5], %r3; ret;",
        64,
    );
    assert_eq!(case.undefined(128), Some((64, 64)));
}

#[test]
fn through_shared_memory() {
    let body = |write: &str| {
        format!(
            ".shared .align 4 .b8 s[128]; mov.u32 %r4, s; shl.b32 %r5, %r1, 2; add.u32 %r6, %r4, %r5;
             {write} bar.sync 0;
             ld.shared.u32 %r2, [%r6]; //?
             setp.eq.u32 %p1, %r2, 3;
             @%p1 bra DONE; //!
             mov.u32 %r2, 7; DONE: mov.u32 %r2, 1; {STORE}"
        )
    };
    defect(&body(""), 0, Rule::UndefinedBranch, 0);
    defect(&body("setp.ne.u32 %p2, %r1, 9; @%p2 st.shared.u32 [%r6], %r1;"), 0, Rule::UndefinedBranch, 9);
    defect(&body("ld.global.u32 %r7, [%rd4]; st.shared.u32 [%r6], %r7;"), 100, Rule::UndefinedBranch, 25);
    clean(&body("st.shared.u32 [%r6], %r1;"), 0);
}

#[test]
fn generic_addresses_of_shared_and_local_memory() {
    let body = |write: &str| {
        format!(
            ".shared .align 8 .b8 s[256]; .local .align 8 .b8 l[8]; mov.u64 %rd6, s; cvta.shared.u64 %rd6, %rd6; add.s64 %rd6, %rd6, %rd3;
             mov.u64 %rd7, l; cvta.local.u64 %rd7, %rd7; {write}
             ld.u32 %r2, [%rd6]; ld.u32 %r3, [%rd7+4];
             add.u32 %r2, %r2, %r3; setp.eq.u32 %p1, %r2, 3;
             @%p1 bra DONE; //!
             mov.u32 %r2, 7; DONE: mov.u32 %r2, 1; {STORE}"
        )
    };
    let mark = |b: String, load: &str| b.replace(load, &format!("{load} //?\n"));
    let both = "st.u32 [%rd6], %r1; st.u32 [%rd7+4], %r1;";
    clean(&body(both), 0);
    defect(
        &mark(body("st.u32 [%rd6], %r1; st.u32 [%rd7], %r1;"), "ld.u32 %r3, [%rd7+4];"),
        0,
        Rule::UndefinedBranch,
        0,
    );
    defect(&mark(body("st.u32 [%rd7+4], %r1;"), "ld.u32 %r2, [%rd6];"), 0, Rule::UndefinedBranch, 0);
}

#[test]
fn through_local_memory() {
    let body = |write: &str| {
        format!(
            ".local .align 8 .b8 l[16];
             {write}
             ld.local.u32 %r2, [l+8]; //?
             setp.eq.u32 %p1, %r2, 0;
             @%p1 bra DONE; //!
             mov.u32 %r2, 7; DONE: mov.u32 %r2, 1; {STORE}"
        )
    };
    defect(&body("st.local.u32 [l+4], %r1;"), 0, Rule::UndefinedBranch, 0);
    defect(&body("mov.u32 %r9, 0; st.local.u8 [l+8], %r9; st.local.u16 [l+10], %r9;"), 0, Rule::UndefinedBranch, 0);
    clean(&body("st.local.v2.u32 [l+8], {%r1, %r1};"), 0);
    clean(&body("st.local.u64 [l+8], %rd1;"), 0);
}

const SQUARE: &str = ".func (.param .b32 out) square(.param .b32 in) { .reg .b32 %x<3>; ld.param.b32 %x1, [in]; mul.lo.s32 %x2, %x1, %x1; st.param.b32 [out], %x2; ret; }
.func (.reg .b32 %out) twice(.reg .b32 %in) { add.u32 %out, %in, %in; ret; }";

#[test]
fn through_calls() {
    let body = "ld.global.u32 %r2, [%rd4];
         { .param .b32 i; .param .b32 o; st.param.b32 [i], %r2; call (o), square, (i);
         ld.param.b32 %r3, [o]; //?
         }
         setp.gt.u32 %p1, %r3, 5;
         @%p1 bra DONE; //!
         mov.u32 %r3, 7; DONE: mov.u32 %r2, 1; st.global.u32 [%rd5], %r2; ret;";
    defect_with(SQUARE, body, 64, 32, Rule::UndefinedBranch, 16);
    clean_with(SQUARE, body, 128, 32);
    let body = "ld.global.u32 %r2, [%rd4];
         call (%r3), twice, (%r2); //?
         setp.gt.u32 %p1, %r3, 5;
         @%p1 bra DONE; //!
         mov.u32 %r3, 7; DONE: mov.u32 %r2, 1; st.global.u32 [%rd5], %r2; ret;";
    defect_with(SQUARE, body, 64, 32, Rule::UndefinedBranch, 16);
    clean_with(SQUARE, body, 128, 32);
}

#[test]
fn shuffles_take_the_source_lanes_word() {
    let body = |from: u32| {
        format!(
            "ld.global.u32 %r2, [%rd4]; //?
             shfl.sync.idx.b32 %r3, %r2, {from}, 31, -1;
             setp.gt.u32 %p1, %r3, 5;
             @%p1 bra DONE; //!
             mov.u32 %r3, 7; DONE: mov.u32 %r2, 1; {STORE}"
        )
    };
    // Only lanes 0 to 15 are defined: reading lane 15 is fine for all, reading lane 16 for none.
    clean(&body(15), 64);
    defect(&body(16), 64, Rule::UndefinedBranch, 0);
    let down = "ld.global.u32 %r2, [%rd4]; //?
         shfl.sync.down.b32 %r3|%p2, %r2, 1, 31, -1; setp.gt.u32 %p1, %r3, 5;
         @%p1 bra DONE; //!
         mov.u32 %r3, 7; DONE: mov.u32 %r2, 1; st.global.u32 [%rd5], %r2; ret;";
    defect(down, 64, Rule::UndefinedBranch, 15);
}

#[test]
fn a_shuffle_from_two_places_of_the_code() {
    let body = |sel: &str| {
        format!(
            "ld.global.u32 %r2, [%rd4]; //?
             setp.lt.u32 %p3, %r1, 8; mov.u32 %r4, {sel};
             @%p3 bra LOW;
             shfl.sync.idx.b32 %r3, %r2, %r4, 31, -1; bra.uni JOIN;
             LOW: shfl.sync.idx.b32 %r3, %r2, %r4, 31, -1;
             JOIN: setp.gt.u32 %p1, %r3, 5;
             @%p1 bra DONE; //!
             mov.u32 %r3, 7; DONE: mov.u32 %r2, 1; {STORE}"
        )
    };
    clean(&body("3"), 64);
    defect(&body("20"), 64, Rule::UndefinedBranch, 0);
}

#[test]
fn operands_that_decide() {
    let mask = "ld.global.u32 %r2, [%rd4]; //?
         or.b32 %r2, %r2, -1; and.b32 %r3, %r2, -1; ld.global.u32 %r6, [%rd4]; shr.u32 %r7, %r6, 31; sub.u32 %r7, %r7, %r7; add.u32 %r4, %r6, 0;
         shfl.sync.idx.b32 %r5, %r1, %r4, 31, -1; //!
         mov.u32 %r2, 1; st.global.u32 [%rd5], %r2; ret;";
    // `or` with all ones and `x - x` are defined; the shuffle's lane is not.
    let case = Case::new(text("", mask), 64);
    let found = case.inspect(32);
    assert_eq!(found.findings.len(), 1);
    assert_eq!(found.findings[0].rule, Rule::UndefinedOperand);
    assert_eq!(found.findings[0].sites[0].ptx_line, marked(&case.text, "//!"));
    assert_eq!(found.findings[0].sites[0].thread, Some([16, 0, 0]));
    clean(&mask.replace("%r1, %r4, 31", "%r1, %r7, 31").replace("-1; //!", "%r3;"), 64);
    let cas = "atom.global.cas.b32 %r3, [%rd5], 0, 1; //!
         mov.u32 %r2, 1; st.global.u32 [%rd5], %r2; ret;";
    let case = Case::new(text("", cas), 0);
    let found = case.inspect(32);
    assert_eq!(found.findings.len(), 1, "{:?}", found.findings);
    assert_eq!(found.findings[0].rule, Rule::UndefinedOperand);
    assert!(found.findings[0].memory.contains("byte 0 of the allocation of 1024 bytes"), "{}", found.findings[0]);
    clean(&cas.replace("[%rd5], 0", "[%rd4], 0"), 128);
}

#[test]
fn votes() {
    let body = |vote: &str| {
        format!(
            "ld.global.u32 %r2, [%rd4]; //?
             setp.ge.u32 %p1, %r2, 0; setp.eq.u32 %p4, %r2, 99; {vote}
             @%p2 bra DONE; //!
             mov.u32 %r3, 7; DONE: mov.u32 %r2, 1; {STORE}"
        )
    };
    defect(
        &body("vote.sync.all.pred %p2, %p4, -1;").replace("setp.eq.u32 %p4, %r2, 99", "setp.ne.u32 %p4, %r2, 99"),
        64,
        Rule::UndefinedBranch,
        0,
    );
    // A defined false decides `all`, and x ≥ 0 is true whatever x is.
    clean(&body("vote.sync.all.pred %p2, %p4, -1;"), 64);
    clean(&body("vote.sync.all.pred %p2, %p1, -1;"), 0);
    // Of a ballot, only the bits of undefined lanes are undefined.
    clean(&body("vote.sync.ballot.b32 %r3, %p4, -1; and.b32 %r3, %r3, 0xffff; setp.eq.u32 %p2, %r3, 0;"), 64);
    defect(
        &body("vote.sync.ballot.b32 %r3, %p4, -1; and.b32 %r3, %r3, 0x1ffff; setp.eq.u32 %p2, %r3, 0;"),
        64,
        Rule::UndefinedBranch,
        0,
    );
}

#[test]
fn bits_of_bytes_that_are_defined() {
    // Of each word, only byte 1 is defined: what compilers do to take it out leaves no undefined bit.
    let before = "mov.u16 %h1, 5; st.global.u8 [%rd4+1], %h1; ld.global.u32 %r2, [%rd4];";
    let ways = [
        "shr.u32 %r3, %r2, 8; and.b32 %r3, %r3, 255;",
        "bfe.u32 %r3, %r2, 8, 8;",
        "prmt.b32 %r3, %r2, 0, 0x7771;",
        "and.b32 %r3, %r2, 0xff00;",
        "or.b32 %r3, %r2, 0xffff00ff; xor.b32 %r3, %r3, 0xffff00ff;",
        "lop3.b32 %r3, %r2, 0xff00, 0, 0xc0;",
        "shl.b32 %r3, %r2, 16; shr.s32 %r3, %r3, 24;",
        "mov.b32 {%h2, %h3}, %r2; shr.u16 %h2, %h2, 8; cvt.u32.u16 %r3, %h2;",
        "bfi.b32 %r3, 0, %r2, 16, 16; bfi.b32 %r3, 0, %r3, 0, 8;",
        "shf.r.wrap.b32 %r3, %r2, %r2, 8; cvt.u32.u8 %r3, %r3;",
        "cvt.u64.u32 %rd9, %r2; shr.u64 %rd9, %rd9, 8; cvt.u8.u64 %r3, %rd9;",
        "brev.b32 %r3, %r2; shr.u32 %r3, %r3, 16; and.b32 %r3, %r3, 255;",
        "shr.u32 %r4, %r2, 8; cvt.rn.f32.u8 %f1, %r4; mov.b32 %r3, %f1;",
    ];
    let after = |mask: &str| {
        format!("{mask} setp.gt.u32 %p1, %r3, 5;\n@%p1 bra DONE; //!\nmov.u32 %r3, 7; DONE: mov.u32 %r2, 1; {STORE}")
    };
    for way in ways {
        clean(&format!("{before} {way} {}", after("")), 0);
        // The same of byte 2 is undefined.
        let other = format!("{} //?\n {way} {}", before.replace("%rd4+1", "%rd4+2"), after(""));
        defect(&other, 0, Rule::UndefinedBranch, 0);
    }
}

#[test]
fn parts_of_vectors() {
    // The compiler loads four floats; one lane of them was never written and is not used.
    let body = |used: &str| {
        format!(
            "mul.wide.u32 %rd6, %r1, 16; add.s64 %rd6, %rd1, %rd6; mov.f32 %f9, 0f3F800000;
             st.global.v2.f32 [%rd6], {{%f9, %f9}}; st.global.f32 [%rd6+8], %f9;
             ld.global.v4.f32 {{%f1, %f2, %f3, %f4}}, [%rd6]; //?
             add.f32 %f5, %f1, %f2; add.f32 %f5, %f5, {used}; setp.gt.f32 %p1, %f5, 0f40000000;
             @%p1 bra DONE; //!
             mov.f32 %f5, %f9; DONE: mov.u32 %r2, 1; {STORE}"
        )
    };
    clean(&body("%f3"), 0);
    defect(&body("%f4"), 0, Rule::UndefinedBranch, 0);
}

#[test]
fn padding_of_structs() {
    // struct { u8 a; /* 3 bytes of padding */ u32 b; }: copied as one word of 64 bits, then used by fields.
    let body =
        "mul.wide.u32 %rd6, %r1, 8; add.s64 %rd6, %rd1, %rd6; mul.wide.u32 %rd7, %r1, 8; add.s64 %rd7, %rd2, %rd7;
         mov.u16 %h1, 3; st.global.u8 [%rd6], %h1; st.global.u32 [%rd6+4], %r1;
         ld.global.u64 %rd8, [%rd6]; st.global.u64 [%rd7], %rd8;
         ld.global.u8 %h2, [%rd7]; ld.global.u32 %r3, [%rd7+4]; setp.eq.u16 %p1, %h2, 3;
         @%p1 bra DONE;
         st.global.u32 [%rd7+4], %r1; DONE: ret;";
    let case = clean(body, 0);
    // A copy of the whole to the host takes the padding along; a copy of the fields does not.
    assert_eq!(case.undefined(256), Some((1, 96)));
    assert_eq!(case.rig.machine.memory().undefined(case.b + 4, 4), None);
}

#[test]
fn overwritten_before_use() {
    clean(
        &format!(
            "ld.global.u32 %r2, [%rd4]; add.u32 %r2, %r2, 1; mov.u32 %r2, 4; setp.eq.u32 %p1, %r2, 4;\n@%p1 bra DONE;\nmov.u32 %r2, 2; DONE: {STORE}"
        ),
        0,
    );
    // In memory as well.
    clean(
        "st.global.u32 [%rd4], %r1; ld.global.u32 %r2, [%rd4]; setp.eq.u32 %p1, %r2, 4;\n@%p1 bra DONE;\nmov.u32 %r2, 2; DONE: ret;",
        0,
    );
}

#[test]
fn predicates_decide_like_booleans() {
    let body = |logic: &str| {
        format!(
            "ld.global.u32 %r2, [%rd4]; //?
             setp.lt.u32 %p1, %r1, 16; setp.gt.u32 %p2, %r2, 5; {logic}
             @%p3 bra DONE; //!
             mov.u32 %r3, 7; DONE: mov.u32 %r2, 1; {STORE}"
        )
    };
    // Threads 16 to 31 have undefined words, and false decides `and` there.
    clean(&body("and.pred %p3, %p1, %p2;"), 64);
    clean(&body("setp.gt.and.u32 %p3, %r2, 5, %p1;"), 64);
    clean(&body("selp.u32 %r4, %r2, 0, %p1; setp.ne.u32 %p3, %r4, 0;"), 64);
    clean(&body("setp.ge.u32 %p4, %r1, 16; or.pred %p3, %p4, %p2;"), 64);
    defect(&body("or.pred %p3, %p1, %p2;"), 64, Rule::UndefinedBranch, 16);
    defect(&body("setp.gt.or.u32 %p3, %r2, 5, %p1;"), 64, Rule::UndefinedBranch, 16);
    defect(&body("xor.pred %p3, %p1, %p2;"), 64, Rule::UndefinedBranch, 16);
    defect(&body("selp.u32 %r4, 1, 2, %p2; setp.ne.u32 %p3, %r4, 1;"), 64, Rule::UndefinedBranch, 16);
    clean(&body("selp.u32 %r4, 2, 2, %p2; setp.ne.u32 %p3, %r4, 1;"), 64);
}

#[test]
fn arithmetic_spreads() {
    let body = |how: &str| {
        format!(
            "ld.global.u32 %r2, [%rd4]; //?
             {how} setp.eq.u32 %p1, %r3, 5;
             @%p1 bra DONE; //!
             mov.u32 %r3, 7; DONE: mov.u32 %r2, 1; {STORE}"
        )
    };
    for how in [
        "mul.lo.u32 %r3, %r2, 0;",
        "mad.lo.u32 %r3, %r2, 3, %r1;",
        "cvt.rn.f32.u32 %f1, %r2; fma.rn.f32 %f1, %f1, %f1, %f1; mov.b32 %r3, %f1;",
        "add.cc.u32 %r4, %r2, 1; addc.u32 %r3, %r1, 0;",
        "popc.b32 %r3, %r2;",
        "mul.wide.u32 %rd9, %r2, %r1; cvt.u32.u64 %r3, %rd9;",
        "min.s32 %r3, %r2, %r1;",
        "redux.sync.add.u32 %r3, %r2, -1;",
        "match.any.sync.b32 %r3, %r2, -1;",
    ] {
        defect(&body(how), 0, Rule::UndefinedBranch, 0);
        clean(&body(how), 128);
    }
    clean(&body("xor.b32 %r3, %r2, %r2;"), 0);
    clean(&body("sub.s32 %r3, %r2, %r2;"), 0);
}

/// The high half of a product has the high bits of its factors in its low bits, with a carry as without.
#[test]
fn high_halves_of_products_mix_all_bits() {
    let body = |how: &str| {
        format!(
            "ld.global.u32 %r2, [%rd4]; //?
             {how} and.b32 %r3, %r3, 1; setp.eq.u32 %p1, %r3, 1;
             @%p1 bra DONE; //!
             mov.u32 %r3, 7; DONE: mov.u32 %r2, 1; {STORE}"
        )
    };
    for how in [
        "mul.hi.u32 %r3, %r2, 7;",
        "mad.hi.u32 %r3, %r2, 7, 0;",
        "mad.lo.cc.u32 %r4, %r1, 3, 0; madc.hi.u32 %r3, %r2, 7, 0;",
    ] {
        // Two bytes of the first word have a value.
        defect(&body(how), 2, Rule::UndefinedBranch, 0);
        clean(&body(how), 128);
    }
}

#[test]
fn atomics_add_to_what_memory_holds() {
    let body = "atom.global.add.u32 %r2, [%rd5], 1; //?
         setp.eq.u32 %p1, %r2, 0;
         @%p1 bra DONE; //!
         mov.u32 %r2, 1; DONE: ret;";
    let case = defect(body, 0, Rule::UndefinedBranch, 0);
    assert_eq!(case.undefined(128), Some((0, 128)), "a sum with something undefined is undefined");
    clean(&format!("mov.u32 %r9, 0; st.global.u32 [%rd5], %r9;\n{body}"), 0);
    let case = clean("atom.global.exch.b32 %r2, [%rd5], 1; ret;", 0);
    assert_eq!(case.undefined(128), None);
}

#[test]
fn copies_between_allocations_carry_the_bits() {
    let case = Case::new(
        text(
            "",
            "ld.global.u32 %r2, [%rd4]; //?\nsetp.eq.u32 %p1, %r2, 5;\n@%p1 bra DONE; //!\nmov.u32 %r2, 1; DONE: ret;",
        ),
        0,
    );
    let memory = case.rig.machine.memory();
    let other = case.rig.alloc(1024);
    memory.write(other + 8, &[1; 120]).unwrap();
    memory.copy(case.a, other, 128).unwrap();
    let found = case.inspect(32);
    assert_eq!(found.findings.len(), 1);
    assert_eq!(found.findings[0].sites[0].thread, Some([0, 0, 0]));
    assert!(found.findings[0].sites[0].note.contains("1 other lane"), "{}", found.findings[0]);
    memory.fill(other, &[0], 8).unwrap();
    memory.copy(case.a, other, 128).unwrap();
    assert!(case.inspect(32).findings.is_empty());
}

#[test]
fn module_variables_and_parameters_are_defined() {
    clean_with(
        ".global .u32 g[32];",
        "mov.u64 %rd6, g; add.s64 %rd6, %rd6, %rd3; ld.global.u32 %r2, [%rd6]; setp.eq.u32 %p1, %r2, 5;\n@%p1 bra DONE;\nmov.u32 %r2, 1; DONE: st.global.u32 [%rd5], %r2; ret;",
        0,
        32,
    );
}

#[test]
fn matrices_mix_rows_and_columns() {
    // Row `g` of D depends on row `g` of A, column `n` on column `n` of B: lanes 4g to 4g+3 hold row g of A and column g of B.
    let body = |undefined: &str, lane: u32| {
        format!(
            "mov.u32 %r10, 0; mov.u32 %r11, 0; mov.u32 %r12, 0; ld.global.u32 %r2, [%rd4]; //?
             {undefined}
             mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;
             mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {{%f1,%f2,%f3,%f4}}, {{%r10,%r11}}, {{%r12}}, {{%f1,%f2,%f3,%f4}};
             setp.ne.u32 %p2, %r1, {lane}; @%p2 bra DONE; setp.gt.f32 %p1, %f1, 0f3F800000;
             @%p1 bra DONE; //!
             mov.u32 %r2, 3; DONE: mov.u32 %r2, 1; {STORE}"
        )
    };
    // Words 0 to 30 are defined: only lane 31 brings something undefined, row 7 of A, or column 7 of B.
    let a = "mov.u32 %r10, %r2;";
    let b = "mov.u32 %r12, %r2;";
    defect(&body(a, 28), 124, Rule::UndefinedBranch, 28);
    clean(&body(a, 27), 124);
    clean(&body(b, 28), 124);
    // Lane 3 holds columns 6 and 7 of row 0; `%f1` is column 6.
    clean(&body(b, 3), 124);
    defect(&body(b, 3).replace("setp.gt.f32 %p1, %f1", "setp.gt.f32 %p1, %f2"), 124, Rule::UndefinedBranch, 3);
}

#[test]
fn matrices_from_shared_memory() {
    let body = |count: u32| {
        format!(
            ".shared .align 16 .b8 s[128]; mov.u32 %r4, s; shl.b32 %r5, %r1, 2; add.u32 %r6, %r4, %r5;
             setp.lt.u32 %p2, %r1, {count}; @%p2 st.shared.u32 [%r6], %r1; bar.sync 0;
             and.b32 %r7, %r1, 7; shl.b32 %r7, %r7, 4; add.u32 %r7, %r7, %r4;
             ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r2}}, [%r7]; //?
             setp.eq.u32 %p1, %r2, 3;
             @%p1 bra DONE; //!
             mov.u32 %r2, 7; DONE: mov.u32 %r2, 1; {STORE}"
        )
    };
    clean(&body(32), 0);
    defect(&body(30), 0, Rule::UndefinedBranch, 30);
}

#[test]
fn stores_of_tiles_and_bulk_copies_define_memory() {
    let tile = "mov.f32 %f1, 0f3F800000; wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd2], {%f1,%f1,%f1,%f1,%f1,%f1,%f1,%f1}, 16; ret;";
    assert_eq!(clean(tile, 0).undefined(1024), None);
    let load = "wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {%f1,%f2,%f3,%f4,%f5,%f6,%f7,%f8}, [%rd1], 16; //?
        add.f32 %f9, %f1, %f2; setp.gt.f32 %p1, %f9, 0f40000000;
        @%p1 bra DONE; //!
        mov.u32 %r2, 3; DONE: mov.u32 %r2, 1; st.global.u32 [%rd5], %r2; ret;";
    // Row 7 ends at byte 512; lane 28 holds the first elements of rows 7 and 15, `%f1` and `%f2` those of row 7.
    clean(load, 512);
    defect(load, 448, Rule::UndefinedBranch, 28);
    let bulk = ".shared .align 16 .b8 s[128]; .shared .align 8 .b64 m; mov.u32 %r4, s; mov.u32 %r8, m;
        setp.eq.u32 %p2, %r1, 0; @%p2 mbarrier.init.shared.b64 [%r8], 1; bar.sync 0; @!%p2 bra WAIT;
        mbarrier.arrive.expect_tx.shared.b64 %rd9, [%r8], 128;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%rd1], 128, [%r8];
        WAIT: mbarrier.test_wait.parity.shared.b64 %p3, [%r8], 0; @!%p3 bra WAIT;
        shl.b32 %r5, %r1, 2; add.u32 %r6, %r4, %r5;
        ld.shared.u32 %r2, [%r6]; //?
        setp.eq.u32 %p1, %r2, 3;
        @%p1 bra DONE; //!
        mov.u32 %r2, 7; DONE: mov.u32 %r2, 1; st.global.u32 [%rd5], %r2; ret;";
    clean(bulk, 128);
    defect(bulk, 124, Rule::UndefinedBranch, 31);
}

#[test]
fn halves_of_packed_floats() {
    let body = |half: &str| {
        format!(
            "mov.u16 %h1, 0x3c00; st.global.u16 [%rd4], %h1;
             ld.global.u32 %r2, [%rd4]; //?
             add.rn.f16x2 %r3, %r2, %r2; mov.b32 {{%h2, %h3}}, %r3; setp.eq.u16 %p1, {half}, 0x4000;
             @%p1 bra DONE; //!
             mov.u32 %r2, 7; DONE: mov.u32 %r2, 1; {STORE}"
        )
    };
    clean(&body("%h2"), 0);
    defect(&body("%h3"), 0, Rule::UndefinedBranch, 0);
}

#[test]
fn division_by_zero_is_a_warning() {
    let body = |divisor: &str| format!("sub.u32 %r3, %r1, 3;\ndiv.u32 %r2, 100, {divisor}; //!\n{STORE}");
    let case = Case::new(text("", &body("%r3")), 0);
    let found = case.inspect(32);
    assert_eq!(found.findings.len(), 1);
    let f = &found.findings[0];
    assert_eq!((f.rule, f.severity), (Rule::DivisionByZero, Severity::Warning));
    assert_eq!(f.sites[0].ptx_line, marked(&case.text, "//!"));
    assert_eq!(f.sites[0].thread, Some([3, 0, 0]));
    clean(&body("7"), 0);
    clean(&body("%r3").replace("sub.u32 %r3, %r1, 3", "add.u32 %r3, %r1, 1"), 0);
}

#[test]
fn findings_are_grouped_and_name_the_allocation() {
    let case = Case::new(
        text(
            "",
            "mov.u32 %r9, 0; LOOP: ld.global.u32 %r2, [%rd4]; setp.eq.u32 %p1, %r2, 77;\n@%p1 bra DONE; //!\nadd.u32 %r9, %r9, 1; setp.lt.u32 %p2, %r9, 10; @%p2 bra LOOP; DONE: ret;",
        ),
        0,
    );
    let found = case.inspect(64);
    assert_eq!(found.findings.len(), 1);
    let f = &found.findings[0];
    assert_eq!(f.count, 20, "ten rounds of two warps");
    assert_eq!(
        f.memory,
        format!("4 of 4 bytes, from byte 124 of the allocation of 1024 bytes at {:#x}: never written", case.a)
            .replace("byte 124", "byte 0")
    );
}

#[test]
fn a_launch_without_checks_counts_as_having_written() {
    let case = Case::new(text("", "st.global.u32 [%rd5], %r1; ret;"), 0);
    let params: Vec<u8> = [case.a, case.b].iter().flat_map(|p| p.to_le_bytes()).collect();
    case.rig.machine.launch(&case.rig.instance, "k", &Launch::new([1, 1, 1], [32, 1, 1]), &params).unwrap();
    assert_eq!(case.undefined(1024), None);
}

/// A copy of a word to shared memory by each thread, then `wait`, then a read by the same thread.
fn staged(wait: &str) -> String {
    format!(
        ".shared .align 16 .b8 s[256]; mov.u32 %r4, s; shl.b32 %r5, %r1, 2; add.u32 %r6, %r4, %r5;
         cp.async.ca.shared.global [%r6], [%rd4], 4; //?
         {wait}
         ld.shared.u32 %r2, [%r6]; //!
         {STORE}"
    )
}

fn waits(body: &str) -> Case {
    Case::new(text("", body), 1024)
}

fn watch(case: &Case) -> Inspection {
    let params: Vec<u8> = [case.a, case.b].iter().flat_map(|p| p.to_le_bytes()).collect();
    let launch = Launch::new([1, 1, 1], [32, 1, 1]);
    case.rig.machine.inspect(&case.rig.instance, "k", &launch, &params, &Checks::ALL)
}

#[test]
fn asynchronous_copies_are_waited_for() {
    // The ISA, `cp.async.wait_group N`: "wait until N or fewer of the most recent cp.async-groups are pending and all the prior
    // cp.async-groups committed by the executing threads are complete". A group that is not committed is not waited for.
    let more = "cp.async.ca.shared.global [%r6+128], [%rd4], 4; cp.async.commit_group;";
    for (wait, fine) in [
        ("", false),
        ("cp.async.wait_all;", true),
        ("cp.async.commit_group;", false),
        ("cp.async.wait_group 0;", false),
        ("cp.async.commit_group; cp.async.wait_group 0;", true),
        ("cp.async.commit_group; cp.async.wait_group 1;", false),
        (&format!("cp.async.commit_group; {more} cp.async.wait_group 1;"), true),
        (&format!("cp.async.commit_group; {more} cp.async.wait_group 2;"), false),
        ("setp.ne.u32 %p1, %r1, 9; cp.async.commit_group; @%p1 cp.async.wait_group 0;", false),
    ] {
        let case = waits(&staged(wait));
        let found = watch(&case);
        if fine {
            assert!(found.findings.is_empty(), "{wait}: {}", found.findings[0]);
            continue;
        }
        assert_eq!(found.findings.len(), 1, "{wait}");
        let f = &found.findings[0];
        assert_eq!(f.rule, Rule::MissingWait, "{f}");
        assert_eq!(f.sites[0].ptx_line, marked(&case.text, "//!"), "{f}");
        assert_eq!(f.sites[1].ptx_line, marked(&case.text, "//?"), "{f}");
        let (thread, count) = if wait.contains("%p1") { (9, 1) } else { (0, 32) };
        assert_eq!((f.sites[0].thread, f.count), (Some([thread, 0, 0]), count), "{wait}: {f}");
    }
}

#[test]
fn asynchronous_copies_carry_undefined_bytes() {
    let body = staged("cp.async.wait_all;").replace("4; //?", "4;").replace("//!", "//?").replace(
        STORE,
        "setp.eq.u32 %p1, %r2, 3;\n@%p1 bra DONE; //!\nmov.u32 %r2, 4; DONE: mov.u32 %r2, 1; st.global.u32 [%rd5], %r2; ret;",
    );
    defect(&body, 64, Rule::UndefinedBranch, 16);
    clean(&body, 128);
    // What is not copied is filled with zeros.
    clean(&body.replace("[%rd4], 4;", "[%rd4], 4, 0;"), 0);
    defect(&body.replace("[%rd4], 4;", "[%rd4], 4, 1;"), 0, Rule::UndefinedBranch, 0);
}

/// What a copy of the first word of `b` to the host is told about.
fn output(case: &Case) -> warpsmith_check::Finding {
    case.rig.machine.memory().undefined_output(case.b, 4).unwrap()
}

#[test]
fn an_output_names_the_store_and_the_first_load() {
    let body = "ld.global.u32 %r2, [%rd4]; //?\nadd.u32 %r2, %r2, 1;\nst.global.u32 [%rd5], %r2; //!\nret;";
    let case = Case::new(text("", body), 0);
    // A buffer that has been zeroed and then poisoned has been given a value.
    case.rig.machine.memory().fill(case.b, &[0], 1024).unwrap();
    assert!(case.inspect(32).findings.is_empty());
    let f = output(&case);
    assert_eq!((f.rule, f.severity, f.kernel.as_str()), (Rule::UndefinedOutput, Severity::Error, "k"));
    let lines: Vec<u32> = f.sites.iter().map(|s| s.ptx_line).collect();
    assert_eq!(lines, [marked(&case.text, "//!"), marked(&case.text, "//?")], "{f}");
    assert!(!f.help.contains("has given these bytes a value"), "{f}");
    let source = format!("of the allocation of 1024 bytes at {:#x}: never written", case.a);
    assert!(f.memory.contains(&source), "{f}");
    // Bytes beside it are as they were.
    assert_eq!(case.rig.machine.memory().undefined_output(case.b + 128, 896), None);
    assert_eq!(case.rig.machine.memory().undefined_output(case.b, 0), None, "nothing is copied");
}

#[test]
fn the_origin_travels_through_launches_and_copies() {
    // A word goes from `a` to `b`, as 128 bytes do by a copy on to a third buffer, which is then the kernel's source.
    let body = "ld.global.u32 %r2, [%rd4];\nst.global.u32 [%rd5], %r2;\nret;";
    let case = Case::new(text("", body), 0);
    let memory = case.rig.machine.memory();
    case.inspect(32);
    let third = case.rig.alloc(1024);
    memory.copy(third, case.b, 128).unwrap();
    let f = memory.undefined_output(third, 128).unwrap();
    assert_eq!((f.kernel.as_str(), f.sites.len()), ("k", 2), "{f}");
    let launch = Launch::new([1, 1, 1], [32, 1, 1]);
    let fourth = case.rig.alloc(1024);
    let params: Vec<u8> = [third, fourth].iter().flat_map(|p| p.to_le_bytes()).collect();
    let checks = Checks { init: true, ..Checks::default() };
    case.rig.machine.inspect(&case.rig.instance, "k", &launch, &params, &checks);
    let f = memory.undefined_output(fourth, 128).unwrap();
    assert!(f.memory.contains(&format!("1024 bytes at {:#x}: never written", case.a)), "{f}");
    let labels: Vec<&str> = f.sites.iter().map(|s| s.label.as_str()).collect();
    assert_eq!(labels.len(), 4, "{labels:?}");
    assert_eq!(labels[2], "store of undefined data by kernel `k`");
}

#[test]
fn copies_of_what_nobody_wrote_say_so() {
    let case = Case::new(text("", "ret;"), 0);
    let memory = case.rig.machine.memory();
    memory.fill(case.b, &[0], 1024).unwrap();
    memory.copy(case.b, case.a + 16, 64).unwrap();
    let f = output(&case);
    assert!(f.help.starts_with("a copy within the device has brought"), "{f}");
    assert!(f.memory.contains(&format!("byte 16 of the allocation of 1024 bytes at {:#x}", case.a)), "{f}");
}

#[test]
fn memory_that_no_kernel_wrote_names_none() {
    let case = Case::new(text("", "st.global.u32 [%rd4], %r1; ret;"), 0);
    case.inspect(32);
    let f = output(&case);
    assert!(f.kernel.is_empty() && f.sites.is_empty(), "{f}");
    assert_eq!(f.help, "no kernel, copy or fill has given these bytes a value");
    // The same buffer, beside what the kernel has written.
    let f = case.rig.machine.memory().undefined_output(case.a, 1024).unwrap();
    assert_eq!((f.kernel.as_str(), f.sites.len()), ("k", 1), "{f}");
    assert!(f.help.ends_with("the kernel stores to this allocation, but not there"), "{f}");
}

#[test]
fn what_a_missing_barrier_leaves_undefined_follows_from_its_race() {
    // Warp 0 reads what warp 1 has not written yet; that decides a branch, and goes to the output.
    let body = |sync: &str| {
        format!(
            ".shared .align 4 .b8 s[256]; mov.u32 %r9, s; shl.b32 %r10, %r1, 2; add.u32 %r11, %r9, %r10; st.shared.u32 [%r11], %r1; {sync}
             xor.b32 %r10, %r10, 128; add.u32 %r11, %r9, %r10; ld.shared.u32 %r2, [%r11]; st.global.u32 [%rd5], %r2;
             setp.eq.u32 %p1, %r2, 77; @%p1 bra DONE; st.global.u32 [%rd5+512], %r1; DONE: ret;"
        )
    };
    let run = |sync: &str| {
        let case = Case::new(text("", &body(sync)), 0);
        let params: Vec<u8> = [case.a, case.b].iter().flat_map(|p| p.to_le_bytes()).collect();
        let launch = Launch::new([1, 1, 1], [64, 1, 1]);
        let found = case.rig.machine.inspect(&case.rig.instance, "k", &launch, &params, &Checks::ALL);
        (found.findings, case.rig.machine.memory().undefined_output(case.b, 256))
    };
    let (found, output) = run("");
    let [cause] = &found[..] else { panic!("{found:?}") };
    assert_eq!((cause.rule, cause.severity), (Rule::RaceShared, Severity::Error));
    assert!(cause.also.iter().any(|a| a.rule == Rule::UndefinedBranch), "{cause}");
    let shown = cause.to_string();
    assert!(shown.contains("\n  also init::branch: ") && shown.lines().count() < 16, "{shown}");
    let output = output.unwrap();
    assert_eq!(output.help, "this follows from the race::shared that was reported for the kernel");
    assert!(output.sites.is_empty() && output.kernel == "k", "{output}");
    let (found, output) = run("bar.sync 0;");
    assert!(found.is_empty() && output.is_none(), "{found:?} {output:?}");
}
