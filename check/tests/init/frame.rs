//! How these kernels are made and run, and what is expected of them.

use crate::common::*;
use warpsmith_check::{CheckedMemory, Checks, Inspect, Inspection, Rule, Severity};
use warpsmith_simt::Launch;

pub const REGS: &str = ".reg .b16 %h<20>; .reg .b32 %r<60>; .reg .b64 %rd<40>; .reg .f32 %f<20>; .reg .pred %p<20>;
    ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b];
    mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;";

/// A kernel with parameters `a` and `b`; `%rd4` and `%rd5` are the thread's words of them, `%r1` its index.
pub fn text(before: &str, body: &str) -> String {
    format!(
        ".version 8.2\n.target sm_90\n.address_size 64\n{before}\n.visible .entry k(.param .u64 a, .param .u64 b) {{\n{REGS}\n{body}\n}}\n"
    )
}

/// Line of a mark, from 1; 0 without one.
pub fn marked(text: &str, mark: &str) -> u32 {
    text.lines().position(|l| l.contains(mark)).map_or(0, |i| i as u32 + 1)
}

pub struct Case {
    pub rig: Rig,
    pub text: String,
    pub a: u64,
    pub b: u64,
}

impl Case {
    /// 1024 bytes each: `a` has its first `defined` bytes written, `b` none.
    pub fn new(text: String, defined: usize) -> Case {
        let rig = Rig::new(&text);
        rig.machine.memory().track(true);
        let (a, b) = (rig.alloc(1024), rig.alloc(1024));
        let bytes: Vec<u8> = (0..defined).map(|i| (i % 7) as u8).collect();
        rig.machine.memory().write(a, &bytes).unwrap();
        Case { rig, text, a, b }
    }

    pub fn inspect(&self, block: u32) -> Inspection {
        let checks = Checks { init: true, ..Checks::default() };
        let params: Vec<u8> = [self.a, self.b].iter().flat_map(|p| p.to_le_bytes()).collect();
        self.rig.machine.inspect(&self.rig.instance, "k", &Launch::new([1, 1, 1], [block, 1, 1]), &params, &checks)
    }

    pub fn undefined(&self, bytes: u64) -> Option<(u64, u64)> {
        self.rig.machine.memory().undefined(self.b, bytes)
    }
}

/// Runs a body that must give nothing; gives the case to look at memory.
pub fn clean_with(before: &str, body: &str, defined: usize, block: u32) -> Case {
    let case = Case::new(text(before, body), defined);
    let found = case.inspect(block);
    assert!(found.fault.is_none(), "{}", found.fault.unwrap());
    assert!(found.findings.is_empty(), "{}\n{}", found.findings[0], case.text);
    same_results(&case, block);
    case
}

pub fn clean(body: &str, defined: usize) -> Case {
    clean_with("", body, defined, 32)
}

/// An unchecked launch leaves the same bits behind.
pub fn same_results(case: &Case, block: u32) {
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
pub fn defect_with(before: &str, body: &str, defined: usize, block: u32, rule: Rule, thread: u32) -> Case {
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
    assert!(!f.memory().is_empty(), "{f}");
    same_results(&case, block);
    case
}

pub fn defect(body: &str, defined: usize, rule: Rule, thread: u32) -> Case {
    defect_with("", body, defined, 32, rule, thread)
}

pub const STORE: &str = "st.global.u32 [%rd5], %r2; ret;";
