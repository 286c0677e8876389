//! Races among the access patterns of real kernels: groups of 16 bytes far apart, swizzled vectors, whole warps.
//!
//! Random programs are compared with an oracle that knows nothing of how the checker stores accesses. A program is a
//! sequence of steps that all threads take: an access at offsets from a table, or a synchronisation of some threads. By the
//! PTX ISA 8.x, chapter "Memory Consistency Model", two accesses of different threads race if they overlap, one writes, and
//! nothing orders them; in such a program, the threads that an access happens before are its own thread and, in order, all
//! that take part in a synchronisation with one of them.

// Tests fail by panicking, helpers included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../simt/tests/common/mod.rs"]
mod common;

use common::{Rig, Rng, module_text};
use warpsmith_check::{CheckedMemory, Inspect, Ordering};
use warpsmith_check::{Checks, Finding, Severity};
use warpsmith_simt::{Launch, MachineConfig};

const REGION: u32 = 8192;
const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Debug)]
enum Step {
    /// Bytes of each thread, whether it writes, and where each thread of the grid does so.
    Access(u32, bool, Vec<u32>),
    Block,
    Warp,
    /// The first `n` warps of each block.
    Some(u32),
}

#[derive(Debug)]
struct Program {
    blocks: u32,
    warps: u32,
    shared: bool,
    steps: Vec<Step>,
}

/// Where a thread accesses `bytes` bytes; `n` is its number among those that take part.
fn pattern(kind: u64, lane: u32, warp: u32, n: u32, bytes: u32, k: u32) -> u32 {
    let at = match kind {
        // Side by side.
        0 => n * bytes + 512 * (k % 2),
        // Four lanes side by side, eight groups 512 bytes apart.
        1 => lane / 4 * 512 + lane % 4 * 4 + 16 * (k % 8) + 128 * warp,
        // A vector of each row of 128 bytes, swizzled.
        2 => lane * 128 + (((lane & 7) ^ k) & 7) * 16 + 4096 * (warp % 2),
        // A permutation of side by side.
        3 => (n ^ (n >> 3 & 7) ^ (k % 4)) * bytes,
        // One place for all.
        4 => 64 * (k % 32),
        // Transposed.
        _ => (lane * 4 + warp % 4) * bytes + 2048 * (k % 2),
    };
    at % REGION / bytes * bytes
}

impl Program {
    fn random(rng: &mut Rng) -> Program {
        let mut pick = |n: u64| rng.next() % n;
        let (warps, shared) = (1 + pick(3) as u32, pick(3) > 0);
        let blocks = if shared { 1 } else { 1 + pick(2) as u32 };
        let mut steps = Vec::new();
        let sync = pick(4);
        for _ in 0..3 + pick(6) {
            let bytes = [1, 4, 4, 16][pick(4) as usize];
            let (kind, k, writes) = (pick(6), pick(8) as u32, pick(3) == 0);
            // Whoever takes part: all, a warp, a thread, or random ones.
            let (part, one) = (pick(5), pick(u64::from(warps * 32)) as u32);
            let apart = pick(2) * u64::from(blocks - 1);
            let mut at = Vec::new();
            for thread in 0..blocks * warps * 32 {
                let (block, lane, warp) = (thread / (32 * warps), thread % 32, thread / 32 % warps);
                let takes = match part {
                    0 | 1 => true,
                    2 => warp == one / 32,
                    3 => thread % (32 * warps) == one,
                    _ => pick(4) == 0,
                };
                let n = thread % (32 * warps) + if apart != 0 { block * warps * 32 } else { 0 };
                at.push(if takes { pattern(kind, lane, warp, n, bytes, k) } else { NOWHERE });
            }
            steps.push(Step::Access(bytes, writes, at));
            match (sync, pick(8)) {
                (0, _) | (1, 0..5) => steps.push(Step::Block),
                (1, 5) | (2, 0..5) => steps.push(Step::Warp),
                (1, _) | (2, 5) => steps.push(Step::Some(1 + pick(u64::from(warps)) as u32)),
                (2, _) => steps.push(Step::Block),
                _ => {}
            }
        }
        Program { blocks, warps, shared, steps }
    }

    fn threads(&self) -> usize {
        (self.blocks * self.warps * 32) as usize
    }

    /// Whether two accesses race.
    fn races(&self) -> bool {
        let all = self.threads();
        let block = |t: usize| t / (32 * self.warps as usize);
        let group = |step: &Step, t: usize| match step {
            Step::Block => Some(block(t)),
            Step::Warp => Some(t / 32),
            Step::Some(n) if (t / 32 % self.warps as usize) < *n as usize => Some(block(t)),
            _ => None,
        };
        for (i, step) in self.steps.iter().enumerate() {
            let Step::Access(bytes, writes, at) = step else { continue };
            for thread in (0..all).filter(|&t| at[t] != NOWHERE) {
                let from = at[thread];
                let mut after: Vec<bool> = (0..all).map(|t| t == thread).collect();
                for later in &self.steps[i..] {
                    if let Step::Access(b, w, other) = later {
                        let meets = |t: usize| other[t] != NOWHERE && other[t] < from + bytes && from < other[t] + b;
                        if (*writes || *w) && (0..all).any(|t| !after[t] && meets(t)) {
                            return true;
                        }
                        continue;
                    }
                    let told: Vec<usize> = (0..all).filter(|&t| after[t]).filter_map(|t| group(later, t)).collect();
                    for (t, after) in after.iter_mut().enumerate() {
                        *after |= group(later, t).is_some_and(|g| told.contains(&g));
                    }
                }
            }
        }
        false
    }

    fn text(&self) -> String {
        let mut body = String::from(
            ".reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 %rd<20>; .shared .align 16 .b8 s[8192];
             ld.param.u64 %rd1, [table]; ld.param.u64 %rd2, [memory];
             mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r1;
             mul.wide.u32 %rd3, %r4, 4; add.s64 %rd1, %rd1, %rd3; mov.u32 %r5, s;\n",
        );
        let (space, address) = if self.shared { ("shared", "%r9") } else { ("global", "%rd4") };
        for (i, step) in self.steps.iter().enumerate() {
            body += &match step {
                Step::Access(bytes, writes, _) => {
                    let (kind, value) = match bytes {
                        1 => ("u8", "%r1"),
                        4 => ("u32", "%r1"),
                        _ => ("v4.u32", "{%r20, %r21, %r22, %r23}"),
                    };
                    let access = match (writes, value) {
                        (true, _) => format!("st.{space}.{kind} [{address}], {value};"),
                        (false, "%r1") => format!("ld.{space}.{kind} %r10, [{address}];"),
                        (false, _) => format!("ld.{space}.{kind} {{%r11, %r12, %r13, %r14}}, [{address}];"),
                    };
                    format!(
                        "ld.global.u32 %r8, [%rd1+{}]; setp.ne.u32 %p2, %r8, -1; add.u32 %r9, %r5, %r8;
                         cvt.u64.u32 %rd4, %r8; add.s64 %rd4, %rd2, %rd4;
                         add.u32 %r20, %r1, {i}; mov.u32 %r21, %r20; mov.u32 %r22, %r20; mov.u32 %r23, %r20;
                         @%p2 {access}\n",
                        4 * i * self.threads()
                    )
                }
                Step::Block => "bar.sync 0;\n".to_string(),
                Step::Warp => "bar.warp.sync -1;\n".to_string(),
                Step::Some(n) => {
                    format!("setp.ge.u32 %p3, %r1, {n2}; @%p3 bra SKIP{i}; bar.sync {n}, {n2}; SKIP{i}:\n", n2 = 32 * n)
                }
            };
        }
        module_text(".param .u64 table, .param .u64 memory", &format!("{body} ret;"))
    }

    fn findings(&self, seed: u64) -> Vec<Finding> {
        let rig = Rig::with(MachineConfig { threads: 1, ..MachineConfig::default() }, &self.text());
        let empty = vec![NOWHERE; self.threads()];
        let rows = self.steps.iter().map(|s| if let Step::Access(_, _, at) = s { at } else { &empty });
        let table = rig.upload(&rows.flatten().copied().collect::<Vec<u32>>());
        let memory = rig.upload(&vec![0xa5a5_a5a5u32; REGION as usize / 4]);
        let params: Vec<u8> = [table, memory].iter().flat_map(|p| p.to_le_bytes()).collect();
        let launch = Launch::new([self.blocks, 1, 1], [self.warps * 32, 1, 1]);
        let checks = Checks { races: true, sync: true, seed, ..Checks::default() };
        let i = rig.machine.inspect(&rig.instance, "k", &launch, &params, &checks);
        assert!(i.fault.is_none(), "{}\n{}", i.fault.unwrap(), self.text());
        i.findings
    }
}

#[test]
fn random_programs_race_where_the_oracle_says_so() {
    let mut rng = Rng(0x0bad_cafe);
    let (mut racy, mut clean) = (0, 0);
    for n in 0..600 {
        let program = Program::random(&mut rng);
        let want = program.races();
        *(if want { &mut racy } else { &mut clean }) += 1;
        for seed in [0, 1 + n % 3] {
            let found = program.findings(seed);
            let shown: String = found.iter().map(|f| format!("{f}\n")).collect();
            assert_eq!(!found.is_empty(), want, "program {n}, seed {seed}:\n{shown}{}", program.text());
        }
    }
    assert!(racy > 100 && clean > 100, "{racy} programs race, {clean} do not: this tests too little");
}

/// Every thread reads in groups of 16 bytes 512 bytes apart, `rounds` groups in turn, as a GEMV reads records.
fn groups(rounds: u32, after: &str) -> String {
    module_text(
        ".param .u64 p",
        &format!(
            ".reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 %rd<20>;
             ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r10, %laneid;
             shr.u32 %r3, %r10, 2; shl.b32 %r3, %r3, 9; and.b32 %r4, %r10, 3; mad.lo.u32 %r3, %r4, 4, %r3;
             cvt.u64.u32 %rd2, %r3; add.s64 %rd2, %rd1, %rd2; mov.u32 %r5, 0; mov.u32 %r6, 0;
             LOOP: ld.global.u32 %r7, [%rd2]; add.u32 %r6, %r6, %r7; add.s64 %rd2, %rd2, 16; add.u32 %r5, %r5, 1;
             setp.lt.u32 %p1, %r5, {rounds}; @%p1 bra LOOP;
             {after} ret;"
        ),
    )
}

fn inspect(text: &str, blocks: u32, threads: u32) -> Vec<Finding> {
    let rig = Rig::new(text);
    let memory = rig.upload(&vec![7u32; 4096]);
    let checks = Checks { races: true, sync: true, ..Checks::default() };
    let launch = Launch::new([blocks, 1, 1], [threads, 1, 1]);
    let i = rig.machine.inspect(&rig.instance, "k", &launch, &memory.to_le_bytes(), &checks);
    assert!(i.fault.is_none(), "{}", i.fault.unwrap());
    i.findings
}

#[test]
fn one_late_writer_of_a_byte_meets_the_reader_of_its_group() {
    // Groups begin at multiples of 512; 8 rounds read 128 bytes of each. Byte 2 * 512 + 53 is in round 3, read by lane 4 * 2 + 1.
    let write = |at: u32, who: &str| format!("{who} @%p2 st.global.u8 [%rd1+{at}], %r5;");
    let thread = |n: u32| format!("setp.eq.u32 %p2, %r1, {n};");
    let inside = 2 * 512 + 53;
    // The same warp: only lockstep orders them.
    let found = inspect(&groups(8, &write(inside, &thread(3))), 1, 32);
    assert_eq!((found.len(), found[0].severity), (1, Severity::Warning), "{found:?}");
    assert_eq!((found[0].sites[0].thread, found[0].sites[1].thread), (Some([3, 0, 0]), Some([9, 0, 0])));
    assert!(inspect(&groups(8, &write(inside, &thread(9))), 1, 32).is_empty());
    assert!(inspect(&groups(8, &write(2 * 512 + 128, &thread(3))), 1, 32).is_empty());
    assert!(inspect(&groups(3, &write(inside, &thread(3))), 1, 32).is_empty());
    // Another warp of the block, without a barrier and behind one.
    let found = inspect(&groups(8, &write(inside, &thread(40))), 1, 64);
    assert!(found.iter().any(|f| f.rule.name() == "race::global" && f.severity == Severity::Error), "{found:?}");
    assert!(inspect(&groups(8, &format!("bar.sync 0; {}", write(inside, &thread(40)))), 1, 64).is_empty());
    // Another block, of many that read: the last one writes.
    for warps in [1, 4] {
        let last = "setp.eq.u32 %p2, %r2, 5; setp.eq.and.u32 %p2, %r1, 9, %p2; bar.sync 0;";
        let found = inspect(&groups(8, &write(inside, last)), 6, 32 * warps);
        assert_eq!((found.len(), found[0].rule.name()), (1, "race::global"), "{found:?}");
        assert_eq!(found[0].sites[0].block, Some([5, 0, 0]));
        assert_eq!(found[0].sites[1].thread.map(|t| t[0] % 32), Some(9));
        assert_ne!(found[0].sites[1].block, Some([5, 0, 0]));
        assert!(inspect(&groups(8, &write(2 * 512 + 128, last)), 6, 32 * warps).is_empty());
    }
}

#[test]
fn a_kernel_beside_one_that_reads_groups() {
    let rig = Rig::new(&groups(8, ""));
    let memory = rig.upload(&vec![7u32; 4096]);
    let launch = Launch::new([2, 1, 1], [64, 1, 1]);
    let checks = Checks { races: true, ..Checks::default() };
    let ordering = Ordering { op: 1, name: "stream 1", before: &|_| false, early: None, speaker: None };
    let i = rig.machine.inspect_ordered(&rig.instance, "k", &launch, &memory.to_le_bytes(), &checks, &ordering);
    assert!(i.fault.is_none() && i.findings.is_empty());
    let write = |at: u64, op: u32| {
        rig.machine.memory().touch(
            memory + at,
            1,
            true,
            &Ordering { op, name: "cuMemcpyAsync", before: &|_| false, early: None, speaker: None },
        )
    };
    assert_eq!(write(2 * 512 + 53, 2).len(), 1);
    assert_eq!(write(5 * 512 + 127, 3).len(), 1);
    assert_eq!(write(5 * 512 + 128, 4), []);
    assert_eq!(write(5 * 512 - 1, 5), []);
}

/// A tile staged in shared memory, 16 bytes a thread, swizzled within 128 bytes, and read by every warp, a vector of each row.
/// `between` stands after staging, `after` behind the reads; then it is staged again, `again` times.
fn swizzled(between: &str, after: &str, again: u32) -> String {
    module_text(
        ".param .u64 p",
        &format!(
            ".reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 %rd<20>; .shared .align 16 .b8 s[4096];
             ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mov.u32 %r10, %laneid; mov.u32 %r2, s; mov.u32 %r9, 0;
             bfe.u32 %r3, %r1, 3, 3; xor.b32 %r3, %r3, %r1; shl.b32 %r3, %r3, 4; add.u32 %r3, %r3, %r2;
             mov.u32 %r20, 0;
             LOOP: add.u32 %r21, %r1, %r20; st.shared.v4.u32 [%r3], {{%r21, %r21, %r1, %r20}};
             {between}
             mov.u32 %r11, 0;
             READ: and.b32 %r12, %r10, 7; xor.b32 %r12, %r12, %r11; shl.b32 %r12, %r12, 4;
             shl.b32 %r13, %r10, 7; add.u32 %r12, %r12, %r13; add.u32 %r12, %r12, %r2;
             ld.shared.v4.u32 {{%r14, %r15, %r16, %r17}}, [%r12]; add.u32 %r9, %r9, %r14;
             add.u32 %r11, %r11, 1; setp.lt.u32 %p1, %r11, 8; @%p1 bra READ;
             {after}
             add.u32 %r20, %r20, 1; setp.le.u32 %p1, %r20, {again}; @%p1 bra LOOP;
             mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd1, %rd2; st.global.u32 [%rd2], %r9; ret;"
        ),
    )
}

#[test]
fn a_swizzled_tile_needs_a_barrier_before_and_after_its_reads() {
    let shared = |text: &str| {
        let found = inspect(text, 1, 256);
        let errors = found.iter().filter(|f| f.severity == Severity::Error).count();
        (errors, found.iter().all(|f| f.rule.name() == "race::shared"), found)
    };
    assert!(shared(&swizzled("bar.sync 0;", "bar.sync 0;", 2)).2.is_empty());
    assert!(shared(&swizzled("bar.sync 0;", "", 0)).2.is_empty());
    // Not staged yet, and still read.
    let (errors, only, found) = shared(&swizzled("", "bar.sync 0;", 0));
    assert!(errors > 0 && only, "{found:?}");
    let (errors, only, found) = shared(&swizzled("bar.sync 0;", "", 1));
    assert!(errors > 0 && only, "{found:?}");
    // One barrier is missing: one finding, with both directions.
    let messages: Vec<String> =
        found.iter().flat_map(|f| f.also.iter().map(|a| a.message()).chain([f.message()])).collect();
    assert!(found.len() == 1 && messages.iter().any(|m| m.starts_with("read-write race")), "{found:?}");
    // A barrier of some of the warps does not do.
    let (errors, ..) =
        shared(&swizzled("bar.sync 0;", "setp.ge.u32 %p2, %r1, 224; @%p2 bra ON; bar.sync 1, 224; ON:", 1));
    assert!(errors > 0);
}

#[test]
fn a_byte_of_a_swizzled_vector_is_written_while_eight_warps_read_it() {
    // Thread 77 writes byte 3 of the vector that lane 5 of each warp reads in the round 2: row 5, place 5 ^ 2.
    let at = 128 * 5 + 16 * (5 ^ 2) + 3;
    let write = |at: u32| format!("setp.eq.u32 %p2, %r1, 77; @%p2 st.shared.u8 [%r2+{at}], %r1;");
    let found = inspect(&swizzled("bar.sync 0;", &write(at), 0), 1, 256);
    assert!(!found.is_empty());
    for f in &found {
        assert_eq!(f.rule.name(), "race::shared");
        let threads: Vec<u32> = f.sites.iter().filter_map(|s| s.thread).map(|t| t[0]).collect();
        assert!(threads.contains(&77) && threads.iter().any(|t| t % 32 == 5 && *t != 77), "{f}");
    }
    assert!(inspect(&swizzled("bar.sync 0;", &format!("bar.sync 0; {}", write(at)), 0), 1, 256).is_empty());
}
