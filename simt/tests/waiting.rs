//! Launches that wait for what others do, and launches that take too long.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{load, module_text};
use warpsmith_check::{Checks, Inspect, Progress, Start};
use warpsmith_simt::{FaultKind, Instance, Launch, Machine, MachineConfig};

fn machine(config: MachineConfig, text: &str) -> (Machine, Arc<Instance>) {
    let machine = Machine::new(config);
    let instance = Arc::new(machine.instantiate(Arc::new(load(text))).unwrap());
    (machine, instance)
}

/// Waits for a flag, then copies it.
const WAIT: &str = ".reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .pred %p<2>;
    ld.param.u64 %rd1, [flag]; ld.param.u64 %rd2, [out];
    AGAIN: ld.volatile.global.u32 %r1, [%rd1]; setp.eq.s32 %p1, %r1, 0; @%p1 bra AGAIN;
    st.global.u32 [%rd2], %r1; ret;";

fn wait_text() -> String {
    module_text(".param .u64 flag, .param .u64 out", WAIT)
}

fn params(flag: u64, out: u64) -> Vec<u8> {
    [flag, out].iter().flat_map(|p| p.to_le_bytes()).collect()
}

fn read(machine: &Machine, at: u64) -> u32 {
    let mut out = [0; 4];
    machine.memory().read(at, &mut out).unwrap();
    u32::from_le_bytes(out)
}

#[test]
fn a_launch_that_waits_for_the_host_goes_on_when_the_host_has_written() {
    for checks in [Checks::default(), Checks::ALL] {
        let (machine, instance) = machine(MachineConfig::default(), &wait_text());
        let mut word = Box::new(0u32);
        let place = NonNull::from(word.as_mut()).cast::<u8>();
        // SAFETY: the word lives until the end of the test, and is written through this pointer alone.
        unsafe { machine.memory().map_host(place, 4) }.unwrap();
        let out = machine.memory().alloc(4, 256).unwrap();
        let (launch, params) = (Launch::new([1, 1, 1], [64, 1, 1]), params(place.as_ptr() as u64, out));
        let start = Start { checks, ..Start::new("k", &launch, &params) };
        let Progress::Waiting(waiting) = machine.begin(&instance, start) else { panic!("it does not wait") };
        let Progress::Waiting(waiting) = waiting.resume(&machine, None) else { panic!("it goes on") };
        assert!(waiting.sees_host() && !waiting.is_changing() && !waiting.is_stale(&machine));
        assert!(waiting.describe(&machine).contains("warp 1, lanes 0xffffffff, PTX line 7: spin"));
        // SAFETY: as above.
        unsafe { place.cast::<u32>().write_volatile(7) };
        let Progress::Ended(inspection) = waiting.resume(&machine, None) else { panic!("it still waits") };
        assert!(inspection.fault.is_none(), "{:?}", inspection.fault);
        assert_eq!((read(&machine, out), inspection.counters.blocks), (7, 1));
    }
}

#[test]
fn a_launch_that_waits_for_device_memory_sees_another_launch_and_is_a_deadlock_without_one() {
    let set = ".visible .entry set(.param .u64 flag) { .reg .b32 %r<2>; .reg .b64 %rd<2>;
        ld.param.u64 %rd1, [flag]; mov.u32 %r1, 9; st.volatile.global.u32 [%rd1], %r1; ret; }";
    let config = MachineConfig { spin_limit: 1 << 14, ..MachineConfig::default() };
    for ends in [true, false] {
        let (machine, instance) = machine(config, &format!("{}{set}", wait_text()));
        let flag = machine.memory().alloc(4, 256).unwrap();
        let out = machine.memory().alloc(4, 256).unwrap();
        machine.memory().fill(flag, &[0], 4).unwrap();
        let (launch, params) = (Launch::new([1, 1, 1], [32, 1, 1]), params(flag, out));
        let Progress::Waiting(mut waiting) = machine.begin(&instance, Start::new("k", &launch, &params)) else {
            panic!("it does not wait")
        };
        if ends {
            machine.launch(&instance, "set", &launch, &flag.to_le_bytes()).unwrap();
            let Progress::Ended(_) = waiting.resume(&machine, None) else { panic!("it still waits") };
            assert_eq!(read(&machine, out), 9);
            continue;
        }
        while !waiting.is_stale(&machine) {
            let Progress::Waiting(still) = waiting.resume(&machine, None) else { panic!("it goes on") };
            waiting = still;
        }
        assert!(!waiting.sees_host());
        let fault = waiting.deadlock(&machine, None).fault.unwrap();
        assert_eq!(fault.kind, FaultKind::Deadlock);
        assert!(fault.to_string().contains("PTX line 7: spin"), "{fault}");
        // The call that runs to the end finds the same.
        let fault = machine.launch(&instance, "k", &launch, &params).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Deadlock);
    }
}

#[test]
fn a_launch_that_waits_and_writes_is_no_deadlock() {
    let body = ".reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .pred %p<2>;
        ld.param.u64 %rd1, [flag]; ld.param.u64 %rd2, [out];
        AGAIN: atom.global.add.u32 %r2, [%rd2], 1; ld.volatile.global.u32 %r1, [%rd1]; setp.eq.s32 %p1, %r1, 0;
        @%p1 bra AGAIN; ret;";
    let (machine, instance) =
        machine(MachineConfig::default(), &module_text(".param .u64 flag, .param .u64 out", body));
    let flag = machine.memory().alloc(4, 256).unwrap();
    let out = machine.memory().alloc(4, 256).unwrap();
    for at in [flag, out] {
        machine.memory().fill(at, &[0], 4).unwrap();
    }
    let (launch, params) = (Launch::new([1, 1, 1], [1, 1, 1]), params(flag, out));
    let Progress::Waiting(waiting) = machine.begin(&instance, Start::new("k", &launch, &params)) else {
        panic!("it does not wait")
    };
    assert!(waiting.is_changing());
    machine.memory().fill(flag, &[1], 4).unwrap();
    let Progress::Ended(inspection) = waiting.resume(&machine, None) else { panic!("it still waits") };
    assert!(inspection.fault.is_none() && read(&machine, out) > 1000);
}

/// Two loops, the inner one finite; lines 5 to 9 of the text.
const NESTED: &str = ".reg .b32 %r<4>; .reg .pred %p<2>;
    mov.u32 %r1, 0;
    OUTER:
    add.u32 %r1, %r1, 1; mov.u32 %r2, 0;
    INNER:
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, 100;
    @%p1 bra INNER;
    bra OUTER;";

#[test]
fn the_instruction_limit_names_the_outer_loop_and_the_thread() {
    for checks in [Checks::default(), Checks::ALL] {
        let (machine, instance) = machine(MachineConfig::default(), &module_text("", NESTED));
        let launch = Launch::new([3, 1, 1], [32, 1, 1]);
        let start = Start { checks, instruction_limit: Some(100_000), ..Start::new("k", &launch, &[]) };
        let Progress::Ended(inspection) = machine.begin(&instance, start) else { panic!("it waits") };
        let fault = inspection.fault.unwrap();
        assert_eq!((&fault.kind, fault.ptx_line), (&FaultKind::InstructionLimit, 13), "{fault}");
        let text = fault.to_string();
        assert!(text.contains("the limit is 100000"), "{text}");
        assert!(text.contains("kernel `k`, block (0,0,0), thread (0,0,0)"), "{text}");
        assert!(text.contains("PTX line 8: the loop begins here"), "{text}");
        assert!(text.contains("PTX line 13: and goes back from here"), "{text}");
    }
}

#[test]
fn a_long_launch_says_where_it_is() {
    let body = NESTED.replace("bra OUTER;", "setp.lt.u32 %p1, %r1, 50000; @%p1 bra OUTER; ret;");
    let config = MachineConfig { progress_after: Duration::ZERO, ..MachineConfig::default() };
    let (machine, instance) = machine(config, &module_text("", &body));
    let said = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&said);
    machine.on_progress(move |p| keep.lock().unwrap().push(p.clone()));
    machine.launch(&instance, "k", &Launch::new([1, 1, 1], [32, 1, 1]), &[]).unwrap();
    let said = said.lock().unwrap();
    let first = said.first().expect("nothing was said");
    assert_eq!((first.kernel.as_str(), first.block), ("k", [0, 0, 0]));
    assert!((8..=13).contains(&first.ptx_line), "{first}");
    assert!(first.instructions > 1 << 20 && first.to_string().starts_with("still in kernel `k` (PTX line "), "{first}");
    // Each time only after twice as long.
    assert!(said.windows(2).all(|w| w[1].time >= 2 * w[0].time), "{said:?}");
}
