//! What sm_100 has for bulk operations, `st.bulk` and copies of the bytes of a mask: what they store, what they refuse, and what the
//! checks see of them.
//!
//! Expected behaviour is that of the ISA's text: a multiple of 8 bytes, at most 16 MiB, of shared memory becomes 0; bit i of the mask
//! says whether byte i of each 16 is copied.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::Rig;
use std::sync::Arc;
use warpsmith_check::{CheckedMemory, Checks, Inspect, Inspection, Rule};
use warpsmith_simt::{Fault, FaultKind, Launch, LoadError, LoadOptions, Machine, MachineConfig, Module};

/// A kernel with 1 KiB of shared memory `s` and an output array of 32-bit words; `%r1` is the thread's index.
fn text(body: &str) -> String {
    format!(
        ".version 8.6\n.target sm_100\n.address_size 64\n.visible .entry k(.param .u64 out) {{
         .shared .align 16 .b8 s[1024]; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>;
         ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd3, %rd1, %rd2;
         mov.u32 %r2, s; mad.lo.u32 %r3, %r1, 4, %r2; setp.ne.u32 %p1, %r1, 0;
         {body}
         ret; }}\n"
    )
}

fn load(body: &str) -> Result<Module, LoadError> {
    Module::load(&text(body), &LoadOptions { sm: 100 })
}

fn rig(body: &str) -> Rig {
    let module = load(body).unwrap_or_else(|e| panic!("{e}"));
    let machine = Machine::new(MachineConfig { sm: 100, threads: 1, ..MachineConfig::default() });
    machine.memory().track(true);
    let instance = machine.instantiate(Arc::new(module)).unwrap();
    Rig { machine, instance }
}

fn run(body: &str, threads: u32) -> Vec<u32> {
    let rig = rig(body);
    let out = rig.alloc(4096);
    rig.run(1, threads, &[out]);
    rig.download(out, threads as usize)
}

fn fails(body: &str) -> Box<Fault> {
    let rig = rig(body);
    let out = rig.alloc(4096);
    rig.try_run(1, 32, &[out]).unwrap_err()
}

/// A checked launch of two warps.
fn inspect(body: &str) -> Inspection {
    let rig = rig(body);
    let out = rig.upload(&[0u32; 1024]);
    let launch = Launch::new([1, 1, 1], [64, 1, 1]);
    let checks = Checks { profile: true, ..Checks::ALL };
    let inspection = rig.machine.inspect(&rig.instance, "k", &launch, &out.to_le_bytes(), &checks);
    assert!(inspection.fault.is_none(), "{:?}", inspection.fault);
    inspection
}

/// The rules of its findings.
fn found(body: &str) -> Vec<Rule> {
    inspect(body).findings.iter().map(|f| f.rule).collect()
}

#[test]
fn a_range_becomes_zero_and_its_neighbours_stay() {
    for fill in [
        // The first thread clears words 2 to 5: by a shared address, by a generic one, and by its name.
        "add.u32 %r4, %r2, 8; @!%p1 st.bulk.weak.shared::cta [%r4], %rd4, 0;",
        "cvt.u64.u32 %rd5, %r2; cvta.shared.u64 %rd5, %rd5; @!%p1 st.bulk [%rd5+8], %rd4, 0;",
        "@!%p1 st.bulk.shared::cta [s+8], 16, 0;",
    ] {
        let body = format!(
            "mov.u64 %rd4, 16; add.u32 %r5, %r1, 100; st.shared.u32 [%r3], %r5; bar.sync 0;
             {fill}
             bar.sync 0; ld.shared.u32 %r6, [%r3]; st.global.u32 [%rd3], %r6;"
        );
        let want: Vec<u32> = (0..32).map(|i| if (2..6).contains(&i) { 0 } else { 100 + i }).collect();
        assert_eq!(run(&body, 32), want, "{fill}");
    }
}

#[test]
fn each_lane_has_a_range_of_its_own_and_none_is_allowed() {
    // Lane i clears 8 bytes if it is even, and none if it is odd; from 16 i on.
    let got = run(
        "mad.lo.u32 %r4, %r1, 16, %r2; mov.u32 %r5, 7; st.shared.v4.u32 [%r4], {%r5, %r5, %r5, %r5};
         and.b32 %r6, %r1, 1; xor.b32 %r6, %r6, 1; shl.b32 %r6, %r6, 3; cvt.u64.u32 %rd4, %r6;
         st.bulk.shared::cta [%r4], %rd4, 0;
         ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r4];
         shl.b32 %r6, %r6, 4; shl.b32 %r7, %r7, 8; shl.b32 %r8, %r8, 12;
         or.b32 %r5, %r5, %r6; or.b32 %r5, %r5, %r7; or.b32 %r5, %r5, %r8; st.global.u32 [%rd3], %r5;",
        32,
    );
    assert_eq!(got, (0..32).map(|i| if i % 2 == 0 { 0x7700 } else { 0x7777 }).collect::<Vec<u32>>());
}

#[test]
fn what_cannot_be_filled_is_a_fault() {
    let at = |address: &str, bytes: u64| fails(&format!("st.bulk.shared::cta [{address}], {bytes}, 0;"));
    assert_eq!(at("s+4", 8).kind, FaultKind::Misaligned);
    assert_eq!(at("s+1016", 16).kind, FaultKind::OutOfBounds);
    assert_eq!(at("s", 12).kind, FaultKind::IllegalInstruction);
    let f = at("s", (16 << 20) + 8);
    assert!(f.kind == FaultKind::IllegalInstruction && f.to_string().contains("16777216"), "{f}");
    // Global memory is none of its business.
    assert_eq!(fails("st.bulk [%rd1], 8, 0;").kind, FaultKind::OutOfBounds);
}

#[test]
fn only_zero_can_be_stored_and_only_from_sm_100_on() {
    let Err(e) = load("st.bulk.shared::cta [s], 8, 1;") else { panic!("loads") };
    assert!(e.to_string().contains("nothing but 0"), "{e}");
    let old = text("st.bulk.shared::cta [s], 8, 0;").replace("sm_100", "sm_90");
    assert!(Module::load(&old, &LoadOptions { sm: 90 }).is_err());
}

#[test]
fn the_checks_see_who_writes_and_what_is_defined() {
    let clear = "@!%p1 st.bulk.shared::cta [s], 256, 0;";
    let read = "ld.shared.u32 %r4, [%r3]; setp.eq.u32 %p2, %r4, 0; @%p2 st.global.u32 [%rd3], %r4;";
    assert_eq!(found(&format!("{clear} bar.sync 0; {read}")), []);
    // The second warp does not wait for the first.
    let races = found(&format!("{clear} {read}"));
    assert!(races.iter().any(|r| r.name().starts_with("race::")), "{races:?}");
    // What lies behind the range is not defined by it.
    let short = clear.replace("256", "128");
    let undefined = found(&format!("{short} bar.sync 0; {read}"));
    assert!(undefined.iter().any(|r| r.name().starts_with("init::")), "{undefined:?}");
    // Nobody knows how many bytes.
    let unknown =
        found("@!%p1 ld.shared.u64 %rd4, [s+512]; and.b64 %rd4, %rd4, 0x78; @!%p1 st.bulk.shared::cta [s], %rd4, 0;");
    assert!(unknown.iter().any(|r| r.name().starts_with("init::")), "{unknown:?}");
}

#[test]
fn it_may_not_meet_a_copy_that_is_under_way() {
    let copy = "@!%p1 cp.async.ca.shared.global [s], [%rd1], 16; @!%p1 st.bulk.shared::cta [s], 64, 0;";
    assert!(found(copy).contains(&Rule::MissingWait), "{:?}", found(copy));
    assert_eq!(found(&copy.replace("16;", "16; cp.async.wait_all;")), []);
    assert_eq!(found(&copy.replace("[s], 64", "[s+16], 64")), []);
}

#[test]
fn a_profile_counts_a_wavefront_for_128_bytes() {
    let profile = inspect("@!%p1 st.bulk.shared::cta [s], 520, 0;").profile.unwrap();
    let total = profile.total;
    assert_eq!((total.shared_store_requests, total.shared_store_wavefronts, total.shared_store_conflicts), (1, 5, 0));
}

/// Words of shared memory from the threads, of which the first copies 64 bytes by a mask.
fn masked(mask: &str) -> String {
    format!(
        "mad.lo.u32 %r4, %r1, 0x01010101, 0x80808080; st.shared.u32 [%r3], %r4; bar.sync 0;
         @%p1 bra DONE; .reg .b16 %h1; mov.u16 %h1, {mask};
         cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd1], [%r2], 64, %h1;
         cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; DONE: bar.sync 0;"
    )
}

#[test]
fn a_copy_writes_the_bytes_of_its_mask_alone() {
    for mask in [0x0000u16, 0x0001, 0x8000, 0x0ff0, 0xf00f, 0xa5c3, 0xfffe, 0xffff] {
        let rig = rig(&masked(&format!("{mask:#x}")));
        let out = rig.upload(&[0x11u8; 256]);
        let counters = rig.run(1, 32, &[out]);
        let got: Vec<u8> = rig.download(out, 256);
        let want = |i: usize| if i < 64 && mask >> (i % 16) & 1 == 1 { 0x80 + i as u8 / 4 } else { 0x11 };
        assert_eq!(got, (0..256).map(want).collect::<Vec<_>>(), "{mask:#x}");
        assert_eq!(counters.global_store_bytes, 4 * u64::from(mask.count_ones()), "{mask:#x}");
    }
    // With a policy before the mask.
    let hinted = masked("0xff00").replace("cp_mask", "L2::cache_hint.cp_mask").replace("64, %h1", "64, %rd4, %h1");
    let rig = rig(&format!("mov.u64 %rd4, 0; {hinted}"));
    let out = rig.upload(&[0u8; 64]);
    rig.run(1, 32, &[out]);
    assert_eq!(rig.download::<u32>(out, 4), [0, 0, 0x8282_8282, 0x8383_8383]);
}

#[test]
fn a_mask_is_for_copies_to_global_memory_from_sm_100_on() {
    let copy = masked("1");
    assert!(Module::load(&text(&copy).replace("sm_100", "sm_90"), &LoadOptions { sm: 90 }).is_err());
    let reduction =
        copy.replace("cp.async.bulk.global", "cp.reduce.async.bulk.global").replace(".cp_mask", ".add.u32.cp_mask");
    let to_shared =
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.cp_mask [%r2], [%rd1], 16, [%r2], %h1;";
    for wrong in [reduction, format!(".reg .b16 %h1; {to_shared}"), copy.replace(", %h1;", ";")] {
        assert!(load(&wrong).is_err(), "{wrong}");
    }
}

#[test]
fn the_checks_see_the_bytes_of_the_mask_alone() {
    // Another thread writes what the copy leaves out, and what it does not.
    let store = "setp.ne.u32 %p2, %r1, 40; @!%p2 st.global.u8 [%rd1+17], %r1;";
    let beside = |mask: &str| found(&masked(mask).replace("@%p1 bra DONE;", &format!("{store} @%p1 bra DONE;")));
    assert_eq!(beside("0xfffd"), []);
    assert_eq!(beside("0x0002"), [Rule::MissingWait]);
    // Bytes that nobody has written arrive where the mask has them, and an undefined mask is an error of its own.
    let undefined = |mask: &str| {
        let body = masked(mask).replace("st.shared.u32 [%r3], %r4;", "st.shared.u16 [%r3], %r4;");
        let read = "ld.global.u32 %r4, [%rd3]; setp.gt.u32 %p2, %r4, 0x500000; @%p2 st.global.u32 [%rd3], %r1;";
        let found = found(&format!("{body} setp.gt.u32 %p2, %r1, 15; @%p2 bra END; {read} END: bar.sync 0;"));
        found.iter().any(|r| r.name().starts_with("init::"))
    };
    assert!(!undefined("0x3333") && undefined("0x3337"));
    let unknown = masked("0").replace("mov.u16 %h1, 0;", "ld.shared.u16 %h1, [s+512];");
    assert!(found(&unknown).iter().any(|r| r.name().starts_with("init::")));
}
