//! What does not load, and how it says so; what loads without harm.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::double_comparisons,
    clippy::precedence,
    clippy::cast_abs_to_unsigned
)]

mod common;

use std::sync::Arc;

use common::*;
use warpsmith_simt::{Launch, LoadOptions, Machine, MachineConfig, Module};

#[test]
fn all_unsupported_instructions_are_named_with_their_lines() {
    let log = load_error(&module_text(
        "",
        ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>;
         add.u32 %r1, %r2, %r3;
         tex.2d.v4.f32.s32 {%r1,%r2,%r3,%r4}, [%rd1, {%r5, %r6}];
         sust.b.1d.b32.trap [%rd1, {%r1}], %r2;
         add.u32.frob %r1, %r2, %r3;
         add.u32 %rd1, %r2, %r3;
         ret;",
    ));
    for what in ["tex", "sust", "frob", "Arguments mismatch for instruction 'add'"] {
        assert!(log.contains(what), "{what} in:\n{log}");
    }
    assert!(log.contains("line 8;") && log.contains("line 9;"), "{log}");
}

#[test]
fn targets_newer_than_the_device_are_refused() {
    let text = ".version 8.0\n.target sm_90\n.address_size 64\n.entry k() { ret; }";
    let error = Module::load(text, &LoadOptions { sm: 80 }).err().unwrap().to_string();
    assert!(error.contains("sm_90, newer than the device (sm_80)"), "{error}");
    let arch = text.replace("sm_90", "sm_90a");
    assert!(Module::load(&arch, &LoadOptions { sm: 100 }).is_err());
    let module = Module::load(&arch, &LoadOptions { sm: 90 }).unwrap();
    assert_eq!((module.target_sm(), module.isa_version()), (90, (8, 0)));
}

#[test]
fn unresolved_functions_and_too_much_shared_memory() {
    let log = load_error(
        ".version 8.0\n.target sm_90\n.address_size 64\n.extern .func sinf;\n.entry k() { call.uni sinf; ret; }",
    );
    assert!(log.contains("Unresolved extern function 'sinf'"), "{log}");
    let log = load_error(&module_text("", ".shared .b8 s[50000]; .reg .b32 %r<2>; ld.shared.u8 %r1, [s]; ret;"));
    assert!(log.contains("too much shared data"), "{log}");
}

#[test]
fn unused_shared_variables_are_not_charged() {
    let module = load(
        ".version 8.0\n.target sm_90\n.address_size 64\n.shared .b8 a[1000]; .shared .align 8 .b8 b[24];
         .func f() { .reg .b32 %r<2>; ld.shared.u32 %r1, [b]; ret; }
         .entry one() { call.uni f; ret; }
         .entry two() { .reg .b32 %r<2>; mov.u32 %r1, a; ret; }
         .entry none() { ret; }",
    );
    let shared: Vec<u32> = module.kernels().map(|k| k.static_shared).collect();
    assert_eq!(shared, [24, 1000, 0]);
}

#[test]
fn damaged_text_never_panics() {
    let text = module_text(
        ".param .u64 p, .param .u32 n",
        ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>; .reg .f32 %f<4>; .shared .b8 s[64]; .local .b8 l[16];
         ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x;
         L: setp.lt.u32 %p1|%p2, %r2, %r1; @%p1 bra L; mad.lo.s32 %r3, %r1, %r2, 5;
         shfl.sync.bfly.b32 %r4|%p2, %r3, 1, 31, -1; atom.global.add.u32 %r5, [%rd1+4], %r4; bar.sync 0;
         st.shared.v2.u32 [s+8], {%r1, %r2}; ld.local.u64 %rd2, [l]; cvt.rn.f32.s32 %f1, %r1; fma.rn.f32 %f2, %f1, 0f3F800000, %f1;
         T: .branchtargets L, D; brx.idx %r1, T; D: ret;",
    );
    load(&text);
    let mut r = Rng(77);
    let mut ran = 0;
    let config = MachineConfig { threads: 1, instruction_limit: 20_000, spin_limit: 50, ..MachineConfig::default() };
    for _ in 0..6000 {
        let mut bytes = text.clone().into_bytes();
        for _ in 0..1 + r.next() % 3 {
            let at = r.next() as usize % bytes.len();
            match r.next() % 4 {
                0 => bytes[at] = b" %,;.[]{}()0123456789abcdlrstx+-@!|<>"[r.next() as usize % 37],
                1 => drop(bytes.remove(at)),
                2 => {
                    let from = r.next() as usize % bytes.len();
                    let piece: Vec<u8> = bytes[from..].iter().take(12).copied().collect();
                    bytes.splice(at..at, piece);
                }
                _ => {
                    let other = r.next() as usize % bytes.len();
                    bytes.swap(at, other);
                }
            }
        }
        let damaged = String::from_utf8_lossy(&bytes).into_owned();
        let Ok(module) = Module::load(&damaged, &LoadOptions { sm: 90 }) else { continue };
        // What loads may fail, but only with a fault.
        let machine = Machine::new(config);
        let p = machine.memory().alloc(64, 256).unwrap();
        let instance = machine.instantiate(Arc::new(module)).unwrap();
        let mut params = p.to_le_bytes().to_vec();
        params.extend([9; 64]);
        let kernels: Vec<String> = instance.module().kernels().map(|k| k.name.clone()).collect();
        for kernel in kernels {
            let _ = machine.launch(&instance, &kernel, &Launch::new([2, 1, 1], [40, 1, 1]), &params);
            ran += 1;
        }
    }
    assert!(ran > 100, "{ran}");
}

#[test]
fn big_functions_load_in_time() {
    let body: String =
        (0..60_000).map(|i| format!("add.u32 %r{}, %r{}, {i};\n", i % 50 + 1, (i * 7) % 50 + 1)).collect();
    let labels: String = (0..20_000)
        .map(|i| format!("L{i}: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, {i}; @%p1 bra L{};\n", i / 2))
        .collect();
    let module = load(&module_text("", &format!(".reg .b32 %r<60>; .reg .pred %p<2>;\n{body}{labels}ret;")));
    assert!(module.kernel("k").unwrap().registers > 50);
}

#[test]
fn register_pressure_is_estimated() {
    let module = load(&module_text(
        "",
        ".reg .b32 %r<9>; .reg .b64 %rd<9>; mov.u32 %r1, 1; mov.u32 %r2, 2; mov.u64 %rd1, 3; add.u32 %r3, %r1, %r2;
         cvt.u64.u32 %rd2, %r3; add.u64 %rd3, %rd1, %rd2; ret;",
    ));
    // At most four words are live: %r1, %r2 and the pair of %rd1; the rest is what an assembler adds.
    let registers = module.kernel("k").unwrap().registers;
    assert!((4..=16).contains(&registers), "{registers}");
}
