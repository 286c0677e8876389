//! Shuffled schedules: results of race-free kernels stay, results of others show the dependence, and a seed replays.

// Tests fail by panicking, helpers included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::sync::Arc;

use warpsmith_check::{Checks, Inspect};
use warpsmith_simt::{FaultKind, Launch, LoadOptions, Machine, MachineConfig, Module};

/// `entry(out)`: thread 0 of each block takes a ticket; `out[block]` is the ticket, `out[64]` the counter, which
/// starts at 0.
const TICKETS: &str = r#"
.version 7.0
.target sm_80
.address_size 64
.visible .entry tickets(.param .u64 p) {
    .reg .pred %p<2>; .reg .b32 %r<6>; .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %tid.x;
    setp.ne.u32 %p1, %r2, 0;
    @%p1 bra DONE;
    atom.global.add.u32 %r3, [%rd1+256], 1;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r3;
DONE:
    ret;
}
.visible .entry sum(.param .u64 p) {
    .reg .b32 %r<6>; .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %ctaid.x;
    atom.global.add.u32 %r3, [%rd1+256], %r1;
    ret;
}
.visible .entry stuck(.param .u64 p) {
    .reg .pred %p<2>; .reg .b32 %r<6>; .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [p];
AGAIN:
    ld.volatile.global.u32 %r1, [%rd1];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra AGAIN;
    ret;
}
.visible .entry busy(.param .u64 p) {
    .reg .pred %p<2>; .reg .b32 %r<6>; .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, 0;
    mov.u32 %r2, 1;
AGAIN:
    mad.lo.u32 %r2, %r2, 5, 1;
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p1, %r1, 40000;
    @%p1 bra AGAIN;
    st.global.u32 [%rd1], %r2;
    ret;
}"#;

fn run(kernel: &str, blocks: u32, seed: u64) -> (Vec<u32>, Option<FaultKind>) {
    let module = Arc::new(Module::load(TICKETS, &LoadOptions { sm: 80 }).unwrap());
    let machine = Machine::new(MachineConfig { sm: 80, spin_limit: 1 << 14, ..MachineConfig::default() });
    let instance = machine.instantiate(module).unwrap();
    let p = machine.memory().alloc(4 * 65, 256).unwrap();
    machine.memory().fill(p, &[0], 4 * 65).unwrap();
    let checks = Checks { seed, ..Checks::default() };
    let launch = Launch::new([blocks, 1, 1], [64, 1, 1]);
    let inspection = machine.inspect(&instance, kernel, &launch, &p.to_le_bytes(), &checks);
    let mut out = vec![0; 4 * 65];
    machine.memory().read(p, &mut out).unwrap();
    let words = out.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect();
    (words, inspection.fault.map(|f| f.kind))
}

#[test]
fn order_of_blocks_follows_the_seed() {
    let (reference, fault) = run("tickets", 64, 0);
    assert_eq!(fault, None);
    assert_eq!(reference[..64], (0..64).collect::<Vec<u32>>()[..], "the reference order is that of the indices");
    let mut seen = BTreeSet::from([reference]);
    for seed in 1..5 {
        let (one, again) = (run("tickets", 64, seed), run("tickets", 64, seed));
        assert_eq!(one, again, "seed {seed} replays");
        assert_eq!(one.0[..64].iter().collect::<BTreeSet<_>>().len(), 64, "every block has a ticket of its own");
        seen.insert(one.0);
    }
    assert!(seen.len() > 3, "{} different orders", seen.len());
}

#[test]
fn commutative_results_do_not_depend_on_it() {
    for seed in 0..4 {
        // 64 threads of each block add its index: 64 * (0 + ... + 63).
        assert_eq!(run("sum", 64, seed).0[64], 64 * 63 * 64 / 2, "seed {seed}");
    }
}

#[test]
fn deadlocks_are_proved_and_busy_loops_are_not_deadlocks() {
    // x' = 5 x + 1, 40 000 times, from 1: computed here with wrapping arithmetic.
    let expected = (0..40_000).fold(1u32, |x, _| x.wrapping_mul(5).wrapping_add(1));
    for seed in 0..3 {
        assert_eq!(run("stuck", 2, seed).1, Some(FaultKind::Deadlock), "seed {seed}");
        let (out, fault) = run("busy", 2, seed);
        assert_eq!((out[0], fault), (expected, None), "seed {seed}");
    }
}
