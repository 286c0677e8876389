//! Findings name the memory that they are about by address, for whoever knows who allocated it.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../simt/tests/common/mod.rs"]
mod common;

use common::{Rig, module_text};
use warpsmith_check::{CheckedMemory, Checks, Inspect, Rule};
use warpsmith_simt::Launch;

#[test]
fn a_race_names_the_address() {
    let body = ".reg .b64 %rd<2>; .reg .b32 %r<2>; ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x;
                st.global.u32 [%rd1+8], %r1; ret;";
    let rig = Rig::new(&module_text(".param .u64 p", body));
    let p = rig.alloc(64);
    let launch = Launch::new([1, 1, 1], [64, 1, 1]);
    let found = rig.machine.inspect(&rig.instance, "k", &launch, &p.to_le_bytes(), &Checks::ALL).findings;
    assert!(!found.is_empty());
    for finding in found {
        assert_eq!((finding.rule, finding.addresses), (Rule::RaceGlobal, vec![p + 8]));
    }
}

#[test]
fn undefined_output_names_where_it_was_undefined_before() {
    let rig = Rig::new(&module_text("", "ret;"));
    let memory = rig.machine.memory();
    memory.track(true);
    let (from, to) = (rig.alloc(64), rig.alloc(64));
    memory.write(from, &[0; 16]).unwrap();
    memory.copy(to, from, 64).unwrap();
    let finding = memory.undefined_output(to, 64).unwrap();
    assert_eq!((finding.rule, finding.addresses), (Rule::UndefinedOutput, vec![to + 16, from + 16]));
}
