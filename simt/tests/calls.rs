//! Calls of lanes that diverge: functions of different frames, recursion, virtual functions, function pointers.
//!
//! `calls/generate.py` makes random programs, of which g++ gives the expected results and nvcc the PTX.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{Rig, load};
use warpsmith_check::{Checks, Inspect};
use warpsmith_simt::{Launch, LoadOptions, Machine, MachineConfig, Module};

/// Shuffled schedules that each program runs under, besides the reference.
const SCHEDULES: u64 = 6;

/// What a program of the folder gives under a schedule; 0 is the reference.
fn results(text: &str, seed: u64) -> Result<Vec<u64>, String> {
    let machine = Machine::new(MachineConfig::default());
    let module = Module::load(text, &LoadOptions { sm: 90 }).map_err(|e| e.to_string())?;
    let instance = machine.instantiate(Arc::new(module)).unwrap();
    let out = machine.memory().alloc(64 * 8, 256).unwrap();
    let launch = Launch::new([1, 1, 1], [64, 1, 1]);
    let params = out.to_le_bytes();
    if seed == 0 {
        machine.launch(&instance, "k", &launch, &params).map_err(|f| f.to_string())?;
    } else {
        let checks = Checks { seed, ..Checks::ALL };
        let inspection = machine.inspect(&instance, "k", &launch, &params, &checks);
        if let Some(fault) = inspection.fault {
            return Err(fault.to_string());
        }
        if let Some(finding) = inspection.findings.first() {
            return Err(finding.to_string());
        }
    }
    let mut bytes = [0; 64 * 8];
    machine.memory().read(out, &mut bytes).unwrap();
    Ok(bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap())).collect())
}

#[test]
fn random_programs_give_what_gcc_computes_under_every_schedule() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/calls");
    let (mut programs, mut wrong) = (0, Vec::new());
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "ptx") {
            continue;
        }
        programs += 1;
        let text = std::fs::read_to_string(&path).unwrap();
        let wanted = text.lines().nth(1).unwrap().trim_start_matches("// ");
        let wanted: Vec<u64> = wanted.split(' ').map(|v| u64::from_str_radix(v, 16).unwrap()).collect();
        assert_eq!(wanted.len(), 64);
        for seed in 0..=SCHEDULES {
            let name = path.file_name().unwrap().display();
            match results(&text, seed) {
                Ok(found) if found == wanted => {}
                Ok(found) => {
                    let lanes = found.iter().zip(&wanted).filter(|(a, b)| a != b).count();
                    wrong.push(format!("{name}, schedule {seed}: {lanes} of 64 wrong"));
                }
                Err(e) => wrong.push(format!("{name}, schedule {seed}: {e}")),
            }
        }
    }
    assert!(programs >= 8, "{programs} programs");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Lanes whose bit 0 is set wait in `wide`, which has registers of 64 bits, while the others run `narrow`, which has many of
/// 32 bits and lets them go. Both functions are called at the same depth.
#[test]
fn functions_of_different_widths_do_not_share_lanes() {
    let narrow = (0..24).map(|i| format!("mad.lo.u32 %r{}, %r{}, 5, %r0;\n", i + 2, i + 1)).collect::<String>();
    let sum = (2..26).map(|i| format!("xor.b32 %r1, %r1, %r{i};\n")).collect::<String>();
    let functions = format!(
        ".func (.param .b64 o) wide (.param .b64 f, .param .b32 x) {{
           .reg .b64 %rd<6>; .reg .b32 %t, %v; .reg .pred %p;
           ld.param.u64 %rd0, [f]; ld.param.u32 %t, [x];
           mul.wide.u32 %rd1, %t, 0x9E3779B9; add.u64 %rd2, %rd1, 0x1234567890; mul.lo.u64 %rd3, %rd2, 3;
           WAIT: ld.volatile.global.u32 %v, [%rd0]; setp.ne.u32 %p, %v, 16; @%p bra WAIT;
           add.u64 %rd4, %rd1, %rd2; xor.b64 %rd4, %rd4, %rd3; st.param.b64 [o], %rd4; ret; }}
         .func (.param .b64 o) narrow (.param .b64 f, .param .b32 x) {{
           .reg .b64 %rd<3>; .reg .b32 %r<26>;
           ld.param.u64 %rd0, [f]; ld.param.u32 %r0, [x]; mov.u32 %r1, %r0;
           {narrow}{sum}
           red.global.add.u32 [%rd0], 1; cvt.u64.u32 %rd1, %r1; st.param.b64 [o], %rd1; ret; }}"
    );
    let kernel = ".visible .entry k(.param .u64 po, .param .u64 pf) {
           .reg .b64 %rd<6>; .reg .b32 %r<3>; .reg .pred %p; .param .b64 a, b; .param .b32 c;
           ld.param.u64 %rd1, [po]; ld.param.u64 %rd2, [pf]; mov.u32 %r1, %tid.x;
           st.param.b64 [a], %rd2; st.param.b32 [c], %r1;
           and.b32 %r2, %r1, 1; setp.eq.u32 %p, %r2, 0; @%p bra OTHER;
           call (b), wide, (a, c); bra BOTH;
           OTHER: call (b), narrow, (a, c);
           BOTH: ld.param.b64 %rd3, [b]; mul.wide.u32 %rd4, %r1, 8; add.u64 %rd1, %rd1, %rd4;
           st.global.u64 [%rd1], %rd3; ret; }";
    let rig = Rig::new(&format!(".version 8.2\n.target sm_90\n.address_size 64\n{functions}\n{kernel}\n"));
    let (out, flag) = (rig.alloc(256), rig.upload(&[0u32]));
    rig.run(1, 32, &[out, flag]);
    let wanted: Vec<u64> = (0..32u32)
        .map(|t| {
            if t & 1 != 0 {
                let a = u64::from(t) * 0x9E37_79B9;
                let b = a + 0x12_3456_7890;
                return (a + b) ^ (3 * b);
            }
            let (mut v, mut sum) = (t, t);
            for _ in 0..24 {
                v = v.wrapping_mul(5).wrapping_add(t);
                sum ^= v;
            }
            sum.into()
        })
        .collect();
    assert_eq!(rig.download::<u64>(out, 32), wanted);
}

/// A register of 64 bits that may be read before it is written is set to zero on entry, for the lanes that enter only: the
/// lower lanes are in the function already, by the same call, and wait there.
#[test]
fn lanes_that_enter_later_leave_the_others_registers_alone() {
    let text = ".version 8.2\n.target sm_90\n.address_size 64
         .func (.param .b64 o) f (.param .b64 p, .param .b32 x) {
           .reg .b64 %rd<4>; .reg .b32 %t<3>; .reg .pred %p, %q;
           ld.param.u64 %rd0, [p]; ld.param.u32 %t0, [x];
           setp.lt.u32 %p, %t0, 16; @%p mul.wide.u32 %rd1, %t0, 0x10000001;
           @%p red.global.add.u32 [%rd0], 1; @!%p red.global.add.u32 [%rd0+4], 1;
           WAIT: ld.volatile.global.u32 %t1, [%rd0+4]; setp.ne.u32 %q, %t1, 16; @%q bra WAIT;
           st.param.b64 [o], %rd1; ret; }
         .visible .entry k(.param .u64 po, .param .u64 pf) {
           .reg .b64 %rd<6>; .reg .b32 %r<3>; .reg .pred %p; .param .b64 a, b; .param .b32 c;
           ld.param.u64 %rd1, [po]; ld.param.u64 %rd2, [pf]; mov.u32 %r1, %tid.x;
           st.param.b64 [a], %rd2; st.param.b32 [c], %r1;
           setp.lt.u32 %p, %r1, 16; @%p bra GO;
           WAIT: ld.volatile.global.u32 %r2, [%rd2]; setp.ne.u32 %p, %r2, 16; @%p bra WAIT;
           GO: call (b), f, (a, c);
           ld.param.b64 %rd3, [b]; mul.wide.u32 %rd4, %r1, 8; add.u64 %rd1, %rd1, %rd4;
           st.global.u64 [%rd1], %rd3; ret; }";
    let rig = Rig::new(text);
    let (out, flags) = (rig.alloc(256), rig.upload(&[0u32; 2]));
    rig.run(1, 32, &[out, flags]);
    let wanted: Vec<u64> = (0..32u64).map(|t| if t < 16 { t * 0x1000_0001 } else { 0 }).collect();
    assert_eq!(rig.download::<u64>(out, 32), wanted);
}

/// Frames of one depth may begin at different predicates: what stands for "always" in one is a predicate of another.
#[test]
fn predicates_of_other_functions_stay_as_they_are() {
    // `deep` is entered above a frame with many predicates, by odd lanes, while even lanes hold predicates there.
    let set = (0..12).map(|i| format!("setp.gt.u32 %p{i}, %t, {};\n", 100 + i)).collect::<String>();
    let any = (0..12).map(|i| format!("@%p{i} add.u32 %t, %t, 1000;\n")).collect::<String>();
    let text = format!(
        ".version 8.2\n.target sm_90\n.address_size 64
         .func (.param .b32 o) deep (.param .b64 f, .param .b32 x) {{
           .reg .b64 %rd; .reg .b32 %t;
           ld.param.u64 %rd, [f]; ld.param.u32 %t, [x]; red.global.add.u32 [%rd], 1; st.param.b32 [o], %t; ret; }}
         .func (.param .b32 o) outer (.param .b64 f, .param .b32 x) {{
           .reg .b64 %rd; .reg .b32 %t; .reg .pred %p<4>; .param .b64 a; .param .b32 b, c;
           ld.param.u64 %rd, [f]; ld.param.u32 %t, [x]; st.param.b64 [a], %rd; st.param.b32 [b], %t;
           call (c), deep, (a, b); ld.param.b32 %t, [c]; st.param.b32 [o], %t; ret; }}
         .func (.param .b32 o) holds (.param .b64 f, .param .b32 x) {{
           .reg .b64 %rd; .reg .b32 %t, %v; .reg .pred %p<12>, %q;
           ld.param.u64 %rd, [f]; ld.param.u32 %t, [x]; {set}
           WAIT: ld.volatile.global.u32 %v, [%rd]; setp.ne.u32 %q, %v, 16; @%q bra WAIT;
           {any} st.param.b32 [o], %t; ret; }}
         .visible .entry k(.param .u64 po, .param .u64 pf) {{
           .reg .b64 %rd<6>; .reg .b32 %r<4>; .reg .pred %p; .param .b64 a; .param .b32 b, c;
           ld.param.u64 %rd1, [po]; ld.param.u64 %rd2, [pf]; mov.u32 %r1, %tid.x;
           st.param.b64 [a], %rd2; st.param.b32 [c], %r1;
           and.b32 %r2, %r1, 1; setp.eq.u32 %p, %r2, 0; @%p bra EVEN;
           call (b), outer, (a, c); bra BOTH;
           EVEN: call (b), holds, (a, c);
           BOTH: ld.param.b32 %r3, [b]; mul.wide.u32 %rd4, %r1, 4; add.u64 %rd1, %rd1, %rd4;
           st.global.u32 [%rd1], %r3; ret; }}"
    );
    // Whether the even lanes come first is for the schedule: one of the seeds lets them.
    for seed in 0..16 {
        let machine = Machine::new(MachineConfig::default());
        let instance = machine.instantiate(Arc::new(load(&text))).unwrap();
        let (out, flag) = (machine.memory().alloc(128, 256).unwrap(), machine.memory().alloc(4, 256).unwrap());
        machine.memory().write(flag, &[0; 4]).unwrap();
        let params: Vec<u8> = [out, flag].iter().flat_map(|p| p.to_le_bytes()).collect();
        let checks = Checks { seed, ..Checks::default() };
        let inspection = machine.inspect(&instance, "k", &Launch::new([1, 1, 1], [32, 1, 1]), &params, &checks);
        assert!(inspection.fault.is_none(), "{}", inspection.fault.unwrap());
        let mut bytes = [0; 128];
        machine.memory().read(out, &mut bytes).unwrap();
        let found: Vec<u32> = bytes.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect();
        assert_eq!(found, (0..32).collect::<Vec<u32>>(), "schedule {seed}");
    }
}
