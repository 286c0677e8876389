//! What undefined data decides: branches, guards, addresses, operands.

use warpsmith_check::{Rule, Severity};
use warpsmith_simt::Launch;

use crate::frame::*;

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
    assert!(case.inspect(32).findings[0].memory().contains("register"));
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
    assert!(found.findings[0].memory().contains("byte 0 of the allocation of 1024 bytes"), "{}", found.findings[0]);
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
        f.memory(),
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
