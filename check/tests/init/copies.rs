//! Copies: within the device, asynchronous ones, and those that take undefined bytes to the host.

use warpsmith_check::{CheckedMemory, Checks, Inspect, Inspection, Rule, Severity};
use warpsmith_simt::Launch;

use crate::frame::*;

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
    assert!(found.findings[0].sites[0].note().contains("1 other lane"), "{}", found.findings[0]);
    memory.fill(other, &[0], 8).unwrap();
    memory.copy(case.a, other, 128).unwrap();
    assert!(case.inspect(32).findings.is_empty());
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
    assert!(!f.help().contains("has given these bytes a value"), "{f}");
    let source = format!("of the allocation of 1024 bytes at {:#x}: never written", case.a);
    assert!(f.memory().contains(&source), "{f}");
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
    assert!(f.memory().contains(&format!("1024 bytes at {:#x}: never written", case.a)), "{f}");
    let labels: Vec<String> = f.sites.iter().map(|s| s.label()).collect();
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
    assert!(f.help().starts_with("a copy within the device has brought"), "{f}");
    assert!(f.memory().contains(&format!("byte 16 of the allocation of 1024 bytes at {:#x}", case.a)), "{f}");
}

#[test]
fn memory_that_no_kernel_wrote_names_none() {
    let case = Case::new(text("", "st.global.u32 [%rd4], %r1; ret;"), 0);
    case.inspect(32);
    let f = output(&case);
    assert!(f.kernel.is_empty() && f.sites.is_empty(), "{f}");
    assert_eq!(f.help(), "no kernel, copy or fill has given these bytes a value");
    // The same buffer, beside what the kernel has written.
    let f = case.rig.machine.memory().undefined_output(case.a, 1024).unwrap();
    assert_eq!((f.kernel.as_str(), f.sites.len()), ("k", 1), "{f}");
    assert!(f.help().ends_with("the kernel stores to this allocation, but not there"), "{f}");
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
    assert_eq!(output.help(), "this follows from the race::shared that was reported for the kernel");
    assert!(output.sites.is_empty() && output.kernel == "k", "{output}");
    let (found, output) = run("bar.sync 0;");
    assert!(found.is_empty() && output.is_none(), "{found:?} {output:?}");
}
