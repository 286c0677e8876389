//! Entries of one module by themselves: what cannot run refuses its own entry alone. And what the driver gives to kernels:
//! the workspace of cooperative launches, reserved shared memory, constant memory.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::Arc;

use common::corpus::Arg::Pointer;
use common::{Rng, bytes_of, corpus};
use warpsmith_check::{Checks, Inspect};
use warpsmith_simt::{FaultKind, Launch, LoadOptions, Machine, MachineConfig, Module};

const HEAD: &str = ".version 8.2\n.target sm_90\n.address_size 64\n";

fn entries(text: &str) -> Module {
    Module::load_entries(text, &LoadOptions { sm: 90 }).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn what_is_not_supported_costs_the_entries_that_reach_it() {
    let text = format!(
        "{HEAD}.func far () {{ .reg .b64 %d; multimem.red.relaxed.gpu.global.add.u32 [%d], 1; ret; }}
         .func near () {{ call far, (); ret; }}
         .visible .entry good(.param .u64 p) {{ .reg .b64 %d; ld.param.u64 %d, [p]; st.global.u32 [%d], 5; ret; }}
         .visible .entry direct() {{ .reg .b64 %d; multimem.red.relaxed.gpu.global.add.u32 [%d], 1; ret; }}
         .visible .entry behind() {{ call near, (); ret; }}"
    );
    let module = entries(&text);
    assert_eq!(module.kernels().map(|k| k.name.as_str()).collect::<Vec<_>>(), ["good"]);
    let refused = module.refused();
    assert_eq!(refused.keys().collect::<Vec<_>>(), ["behind", "direct"]);
    assert!(
        refused["direct"].to_string().contains("line 7") && refused["direct"].to_string().contains("not supported")
    );
    assert!(refused["behind"].to_string().contains("line 4"), "{}", refused["behind"]);
    // All of it is an error for who wants all of it, each place once.
    let error = Module::load(&text, &LoadOptions { sm: 90 }).err().unwrap();
    assert_eq!(error.diagnostics.iter().map(|d| d.pos.line).collect::<Vec<_>>(), [4, 7]);

    // What is good runs, plain and watched.
    let machine = Machine::new(MachineConfig::default());
    let instance = machine.instantiate(Arc::new(module)).unwrap();
    let out = machine.memory().alloc(4, 256).unwrap();
    let launch = Launch::new([1, 1, 1], [1, 1, 1]);
    machine.launch(&instance, "good", &launch, &out.to_le_bytes()).unwrap();
    let inspection = machine.inspect(&instance, "good", &launch, &out.to_le_bytes(), &Checks::ALL);
    assert!(inspection.fault.is_none() && inspection.findings.is_empty());
    let mut word = [0; 4];
    machine.memory().read(out, &mut word).unwrap();
    assert_eq!(word, [5, 0, 0, 0]);
    assert!(machine.launch(&instance, "direct", &launch, &[]).is_err());
}

/// One instruction of each part of the ISA that the machine does not have; ptxas 13.5.37 assembles each for the target.
#[test]
fn parts_of_the_isa_that_are_not_there_are_named() {
    let parts = [
        ("sm_90a", "tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r], 2;", "(tensor maps)"),
        ("sm_90a", "tensormap.replace.tile.global_address.global.b1024.b64 [%d], %d;", "(tensor maps)"),
        ("sm_90a", "tensormap.replace.tile.box_dim.b1024.b32 [%d], 1, %r;", "(tensor maps)"),
        (
            "sm_90",
            "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%d], [%r], 128;",
            "(tensor maps)",
        ),
        ("sm_90", "prefetch.tensormap [%d];", "(tensor maps)"),
        ("sm_90a", "wgmma.fence.sync.aligned;", "(products of warp groups)"),
        ("sm_90", "multimem.red.relaxed.gpu.global.add.u32 [%d], 1;", "(memory of several devices)"),
    ];
    for (target, instruction, part) in parts {
        let text = format!(
            ".version 8.7\n.target {target}\n.address_size 64\n
             .visible .entry good(.param .u64 p) {{ .reg .b64 %d; ld.param.u64 %d, [p]; st.global.u32 [%d], 5; ret; }}
             .visible .entry odd() {{ .reg .b64 %d; .reg .b32 %r; {instruction} ret; }}"
        );
        let module = entries(&text);
        assert_eq!(module.kernels().map(|k| k.name.as_str()).collect::<Vec<_>>(), ["good"], "{instruction}");
        let why = module.refused()["odd"].to_string();
        assert!(why.contains("not supported") && why.contains(part), "{instruction}: {why}");
    }
}

/// Functions that the linker found as machine code alone cost the entries that call them, or take their address.
#[test]
fn functions_that_are_machine_code_are_refused_by_name() {
    let text = |pragma: &str| {
        format!(
            "{HEAD}{pragma}.extern .func far(.param .b32 x);
             .visible .entry good() {{ ret; }}
             .visible .entry calls() {{ .param .b32 x; call far, (x); ret; }}
             .visible .entry asks() {{ .reg .b64 %d; mov.u64 %d, far; ret; }}"
        )
    };
    let module = entries(&text(&warpsmith_simt::ptx::pragma::machine_code("far", "lib\"x\".a(far.o)")));
    assert_eq!(module.kernels().map(|k| k.name.as_str()).collect::<Vec<_>>(), ["good"]);
    for entry in ["calls", "asks"] {
        let why = module.refused()[entry].to_string();
        assert!(
            why.contains("`far`, which libx.a(far.o) has as machine code and not as PTX, is not supported"),
            "{why}"
        );
    }
    // Of another function, and of none.
    for pragma in [warpsmith_simt::ptx::pragma::machine_code("farther", "lib.a"), String::new()] {
        let error = Module::load_entries(&text(&pragma), &LoadOptions { sm: 90 }).err().unwrap();
        assert_eq!(error.to_string().matches("Unresolved extern function 'far'").count(), 2, "{error}");
    }
}

#[test]
fn what_ptxas_refuses_costs_the_module() {
    let text = format!(
        "{HEAD}.visible .entry good() {{ ret; }}\n.visible .entry bad() {{ .reg .b32 %r; add.u33 %r, %r, %r; ret; }}"
    );
    assert!(Module::load_entries(&text, &LoadOptions { sm: 90 }).is_err());
}

#[test]
fn cooperative_launches_have_a_barrier_of_the_grid() {
    let rig = corpus::rig("cuda_cooperative_sm80");
    let (blocks, threads, rounds) = (6u32, 96u32, 5);
    let n = (blocks * threads) as usize;
    let start: Vec<u32> = (0..n as u32).map(|i| i * 7 + 1).collect();
    let (x, y) = (rig.upload(&start), rig.alloc(4 * n as u64));
    let params: Vec<u8> = [x, y].iter().flat_map(|p| p.to_le_bytes()).chain(i32::to_le_bytes(rounds)).collect();
    let launch = Launch { cooperative: true, ..Launch::new([blocks, 1, 1], [threads, 1, 1]) };
    let mut wanted = start.clone();
    for r in 0..rounds as u32 {
        let y: Vec<u32> = (0..n).map(|i| wanted[(i + 1) % n].wrapping_mul(3).wrapping_add(r)).collect();
        wanted = (0..n).map(|i| y[(i + 7) % n] ^ i as u32).collect();
    }
    let before = rig.machine.memory().live_allocations();
    rig.machine.launch(&rig.instance, "phases", &launch, &params).unwrap_or_else(|f| panic!("{f}"));
    assert_eq!(rig.download::<u32>(x, n), wanted);
    // Under every check, in several orders: the barrier orders what is on its two sides.
    for seed in 0..4 {
        rig.machine.memory().write(x, bytes_of(&start)).unwrap();
        let checks = Checks { seed, ..Checks::ALL };
        let inspection = rig.machine.inspect(&rig.instance, "phases", &launch, &params, &checks);
        assert!(inspection.fault.is_none(), "{}", inspection.fault.unwrap());
        assert!(inspection.findings.is_empty(), "{}", inspection.findings[0]);
        assert_eq!(rig.download::<u32>(x, n), wanted);
    }
    assert_eq!(rig.machine.memory().live_allocations(), before, "the workspace is given back");
    // Cooperative groups know an ordinary launch by the missing workspace, and stop at a barrier.
    let ordinary = Launch { cooperative: false, ..launch };
    let out = rig.alloc(4);
    for (launch, valid) in [(&launch, 1), (&ordinary, 0)] {
        rig.machine.launch(&rig.instance, "is_valid", launch, &out.to_le_bytes()).unwrap();
        assert_eq!(rig.download::<i32>(out, 1), [valid]);
    }
    let fault = rig.machine.launch(&rig.instance, "phases", &ordinary, &params).err().unwrap();
    assert_eq!(fault.kind, FaultKind::Trap);
}

#[test]
fn tiles_of_several_warps_use_reserved_shared_memory() {
    let rig = corpus::rig("cuda_cooperative_sm80");
    let mut rng = Rng(7);
    let x: Vec<u32> = (0..512).map(|_| rng.next() as u32 % 100_000).collect();
    let (px, sums, largest, any) = (rig.upload(&x), rig.alloc(2048), rig.alloc(2048), rig.alloc(2048));
    let args = || [Pointer(px), Pointer(sums), Pointer(largest), Pointer(any)];
    corpus::launch(&rig, "wide_tiles", 2, 256, 0, &args());
    let tile = |i: usize, size: usize| &x[i / size * size..][..size];
    let each = |f: &dyn Fn(usize) -> u32| (0..512).map(f).collect::<Vec<u32>>();
    assert_eq!(rig.download::<u32>(sums, 512), each(&|i| tile(i, 64).iter().sum()));
    assert_eq!(rig.download::<u32>(largest, 512), each(&|i| *tile(i, 128).iter().max().unwrap()));
    let bits = |i: usize| {
        let some = tile(i, 128).iter().any(|v| v % 100 == 7);
        u32::from(some) | u32::from(tile(i, 64).iter().all(|v| v % 2 == 0)) << 1
    };
    assert_eq!(rig.download::<u32>(any, 512), each(&bits));
    // The reserved memory begins as zeros and is the system's: no check takes it for the kernel's own.
    let params: Vec<u8> = [px, sums, largest, any].iter().flat_map(|p| p.to_le_bytes()).collect();
    for seed in 0..3 {
        let checks = Checks { seed, ..Checks::ALL };
        let launch = Launch::new([2, 1, 1], [256, 1, 1]);
        let inspection = rig.machine.inspect(&rig.instance, "wide_tiles", &launch, &params, &checks);
        assert!(inspection.fault.is_none(), "{}", inspection.fault.unwrap());
        let errors: Vec<String> =
            inspection.findings.iter().filter(|f| f.rule.name().starts_with("init")).map(ToString::to_string).collect();
        assert!(errors.is_empty(), "{}", errors[0]);
    }
}

#[test]
fn kernels_only_read_constant_memory() {
    let kernel = |name: &str, body: &str| {
        format!(
            ".visible .entry {name}(.param .u64 p) {{ .reg .b64 %d<4>; .reg .b32 %r<9>; ld.param.u64 %d0, [p];
             mov.u64 %d1, numbers; cvta.const.u64 %d2, %d1; {body} ret; }}\n"
        )
    };
    let stores = [
        ("generic", "st.u32 [%d2+4], 9;"),
        ("global", "st.global.u32 [%d2+8], 9;"),
        ("vector", "mov.v4.u32 {%r1, %r2, %r3, %r4}, 3; st.v4.u32 [%d2], {%r1, %r2, %r3, %r4};"),
        ("warp", "mov.u32 %r1, %tid.x; mul.wide.u32 %d3, %r1, 4; add.u64 %d3, %d3, %d2; st.u32 [%d3], %r1;"),
        (
            "scattered",
            "mov.u32 %r1, %tid.x; xor.b32 %r1, %r1, 5; mul.wide.u32 %d3, %r1, 4; add.u64 %d3, %d3, %d2; st.u32 [%d3], %r1;",
        ),
        ("atomic", "atom.add.u32 %r1, [%d2], 1;"),
        ("reduction", "red.add.u32 [%d2], 1;"),
    ];
    let mut text = format!("{HEAD}.const .align 16 .u32 numbers[32] = {{1, 2, 3, 4}};\n");
    stores.iter().for_each(|(name, body)| text += &kernel(name, body));
    text += &kernel(
        "reads",
        "ld.u32 %r1, [%d2+4]; ld.const.u32 %r2, [numbers+8]; add.u32 %r1, %r1, %r2; st.global.u32 [%d0], %r1;",
    );
    let machine = Machine::new(MachineConfig::default());
    let instance = machine.instantiate(Arc::new(entries(&text))).unwrap();
    let out = machine.memory().alloc(4, 256).unwrap();
    let warp = Launch::new([1, 1, 1], [32, 1, 1]);
    let (at, _) = instance.global("numbers").unwrap();
    let kept = || {
        let mut bytes = [0; 128];
        machine.memory().read(at, &mut bytes).unwrap();
        bytes
    };
    let before = kept();
    for (name, _) in stores {
        let fault =
            machine.launch(&instance, name, &warp, &out.to_le_bytes()).err().unwrap_or_else(|| panic!("{name}"));
        assert_eq!(fault.kind, FaultKind::OutOfBounds, "{name}");
        assert!(fault.detail().contains("constant memory, which kernels may only read"), "{fault}");
        let fault = machine.inspect(&instance, name, &warp, &out.to_le_bytes(), &Checks::ALL).fault;
        assert!(fault.is_some_and(|f| f.kind == FaultKind::OutOfBounds), "{name}, watched");
        assert_eq!(kept(), before, "{name}");
    }
    let mut word = [0; 4];
    machine.launch(&instance, "reads", &warp, &out.to_le_bytes()).unwrap();
    machine.memory().read(out, &mut word).unwrap();
    assert_eq!(u32::from_le_bytes(word), 5);
    // The host writes it, as `cuMemcpyHtoD` to a symbol does.
    machine.memory().write(at + 4, &40u32.to_le_bytes()).unwrap();
    machine.launch(&instance, "reads", &warp, &out.to_le_bytes()).unwrap();
    machine.memory().read(out, &mut word).unwrap();
    assert_eq!(u32::from_le_bytes(word), 43);
}

/// Outside of the crate: the tests within would be all of the machine, optimised once more.
#[test]
fn kernels_reach_their_own_operations_and_those_that_they_call() {
    let text = format!(
        "{HEAD}.func f () {{ membar.gl; ret; }}
         .visible .entry a () {{ .reg .b32 %r<3>; mov.u32 %r1, %tid.x; call f, (); ret; }}
         .visible .entry b () {{ .reg .b32 %r<3>; mov.u32 %r1, %tid.x; add.u32 %r2, %r1, 1; ret; }}"
    );
    let module = Module::load(&text, &LoadOptions { sm: 90 }).unwrap();
    let program = &module.program;
    let [a, b] = [0, 1].map(|i| program.reached(program.entries[i].function));
    assert_eq!((a.len(), b.len()), (2, 1));
    let mut all: Vec<_> = a.into_iter().chain(b).collect();
    all.sort_unstable_by_key(|r| r.start);
    assert_eq!((all[0].start, all[2].end), (0, program.ops.len()));
    assert!(all.windows(2).all(|w| w[0].end == w[1].start) && all.iter().all(|r| !r.is_empty()));
}
