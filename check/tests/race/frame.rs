//! How these kernels are made and run, and what is expected of them.

use crate::common::{Rig, module_text};
use Severity::{Error, Warning};
use warpsmith_check::Inspect;
use warpsmith_check::{Checks, Finding, Severity};
use warpsmith_simt::{Launch, MachineConfig};

/// `%rd1` is the output, `%r1` tid, `%r2` ctaid, `%r3` ntid, `%r4` 4 tid, `%r5` the start of 4 KiB of shared memory,
/// `%r6` the thread's word there, `%rd2` the thread's word of the output, `%r10` its lane; `%p1`: tid is 0.
pub const HEAD: &str = "
    .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %rd<20>;
    .shared .align 16 .b8 s[4096];
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r10, %laneid;
    shl.b32 %r4, %r1, 2; mov.u32 %r5, s; add.u32 %r6, %r5, %r4;
    mad.lo.u32 %r7, %r2, %r3, %r1; mul.wide.u32 %rd2, %r7, 4; add.s64 %rd2, %rd1, %rd2;
    setp.eq.u32 %p1, %r1, 0;
";

pub const WORDS: usize = 4096;

pub fn text(globals: &str, body: &str) -> String {
    let kernel = module_text(".param .u64 p", &format!("{HEAD}{body}\n    ret;"));
    kernel.replace(".visible .entry", &format!("{globals}\n.visible .entry"))
}

/// Runs a kernel under the checks and without; results must be the same, bit for bit.
pub fn findings(text: &str, grid: u32, block: u32, seed: u64) -> Vec<Finding> {
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
pub fn without_addresses(a: &[Finding], b: &[Finding]) -> Vec<Finding> {
    let key = |f: &Finding| (f.rule, f.severity, f.sites.clone(), f.help().clone(), f.count);
    let same = a.len() == b.len() && a.iter().zip(b).all(|(a, b)| key(a) == key(b));
    if same { b.to_vec() } else { a.to_vec() }
}

/// The gravest severity of each rule.
pub fn grades(found: &[Finding]) -> Vec<(&'static str, Severity)> {
    let mut list: Vec<_> = found.iter().map(|f| (f.rule.name(), f.severity)).collect();
    list.sort_unstable_by(|a, b| b.cmp(a));
    list.dedup_by_key(|f| f.0);
    list.reverse();
    list
}

#[track_caller]
pub fn expect_in(globals: &str, body: &str, grid: u32, block: u32, want: &[(&str, Severity)]) -> Vec<Finding> {
    let text = text(globals, body);
    let found = findings(&text, grid, block, 0);
    let shown: String = found.iter().map(|f| format!("{f}\n")).collect();
    assert_eq!(grades(&found), want, "{shown}\n{text}");
    found
}

#[track_caller]
pub fn expect(body: &str, grid: u32, block: u32, want: &[(&str, Severity)]) -> Vec<Finding> {
    expect_in("", body, grid, block, want)
}

/// Clean also under shuffled schedules.
#[track_caller]
pub fn clean(body: &str, grid: u32, block: u32) {
    expect(body, grid, block, &[]);
    for seed in 1..4 {
        let found = findings(&text("", body), grid, block, seed);
        assert_eq!(grades(&found), [], "seed {seed}: {}", found[0]);
    }
}

pub const SHARED: &[(&str, Severity)] = &[("race::shared", Error)];

/// Lanes of one warp that only lockstep orders.
pub const LOCKSTEP: &[(&str, Severity)] = &[("race::shared", Warning)];

pub const GLOBAL: &[(&str, Severity)] = &[("race::global", Error)];

/// Reads the shared word of thread `tid ^ x` and writes it out.
pub fn read_other(x: u32) -> String {
    format!("xor.b32 %r8, %r4, {}; add.u32 %r8, %r5, %r8; ld.shared.u32 %r9, [%r8]; st.global.u32 [%rd2], %r9;", 4 * x)
}

/// Waits until `[%rd1+offset]` is at least `value`, by loads of the given kind.
pub fn spin(load: &str, offset: u32, value: &str) -> String {
    let label = format!("SPIN{offset}{}", value.trim_start_matches('%'));
    format!("{label}: {load} %r30, [%rd1+{offset}]; setp.lt.u32 %p7, %r30, {value}; @%p7 bra {label};")
}

/// Block 0 writes data and sets a flag, block 1 waits for it and reads.
pub fn message(publish: &str, wait: &str) -> String {
    format!(
        "@!%p1 bra DONE; setp.ne.u32 %p2, %r2, 0; @%p2 bra READER;
         mov.u32 %r9, 42; st.global.u32 [%rd1+1024], %r9; mov.u32 %r11, 1; {publish} bra DONE;
         READER: {wait} ld.global.u32 %r9, [%rd1+1024]; st.global.u32 [%rd1+2048], %r9; DONE:"
    )
}

/// Blocks add up their own words; the last one to finish adds up the sums.
pub fn last_block(release: &str, acquire: &str) -> String {
    format!(
        "add.u32 %r9, %r2, 3; @!%p1 bra JOIN; mul.wide.u32 %rd3, %r2, 4; add.s64 %rd3, %rd1, %rd3; st.global.u32 [%rd3+256], %r9;
         {release} atom.global.add.u32 %r11, [%rd1], 1; {acquire} st.shared.u32 [%r5], %r11;
         JOIN: bar.sync 0; ld.shared.u32 %r11, [%r5]; mov.u32 %r12, %nctaid.x; sub.u32 %r12, %r12, 1;
         setp.ne.u32 %p2, %r11, %r12; @%p2 bra DONE;
         mul.wide.u32 %rd4, %r1, 4; add.s64 %rd4, %rd1, %rd4; setp.gt.u32 %p3, %r1, %r12;
         @!%p3 ld.global.u32 %r13, [%rd4+256]; @!%p3 red.global.add.u32 [%rd1+128], %r13; DONE:"
    )
}
