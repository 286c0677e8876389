//! Loads, stores, state spaces, atomics, and what happens outside of memory.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::double_comparisons,
    clippy::precedence,
    clippy::cast_abs_to_unsigned
)]

mod common;

use common::*;
use warpsmith_simt::{FaultKind, Launch, Machine, MachineConfig};

/// Address of this thread's `bytes`-sized element of parameter `p`, in `%rd9`.
fn at(p: &str, bytes: u32) -> String {
    format!("ld.param.u64 %rd8, [{p}]; mov.u32 %r9, %tid.x; mul.wide.u32 %rd9, %r9, {bytes}; add.s64 %rd9, %rd8, %rd9;")
}

const REGS: &str = ".reg .b16 %h<10>; .reg .b32 %r<30>; .reg .b64 %rd<30>; .reg .pred %p<10>;";

#[test]
fn vectors_and_widths() {
    let text = module_text(
        ".param .u64 i, .param .u64 o",
        &format!(
            "{REGS} {} ld.global.v4.u32 {{%r1,%r2,%r3,%r4}}, [%rd9];
             ld.global.v2.u64 {{%rd1,%rd2}}, [%rd9];
             ld.global.s8 %r5, [%rd9+3]; ld.global.u8 %r6, [%rd9+3]; ld.global.s16 %rd3, [%rd9+2]; ld.global.b32 %rd4, [%rd9+4];
             ld.global.v4.u16 {{%h1,%h2,%h3,%h4}}, [%rd9+8];
             {} st.global.v4.u32 [%rd9], {{%r4,%r3,%r2,%r1}};
             st.global.v2.u64 [%rd9+16], {{%rd2,%rd1}};
             st.global.u32 [%rd9+32], %r5; st.global.b32 [%rd9+36], %r6; st.global.u64 [%rd9+40], %rd3;
             st.global.u64 [%rd9+48], %rd4; st.global.b32 [%rd9+56], %rd1; st.global.v2.u16 [%rd9+60], {{%h4,%h1}};
             ret;",
            at("i", 16),
            at("o", 64)
        ),
    );
    let rig = Rig::new(&text);
    for threads in [64, 23] {
        let mut r = Rng(threads.into());
        let input: Vec<u32> = (0..4 * threads).map(|_| r.next() as u32).collect();
        let (i, o) = (rig.upload(&input), rig.alloc(64 * u64::from(threads)));
        rig.run(1, threads, &[i, o]);
        let out: Vec<u32> = rig.download(o, 16 * threads as usize);
        for t in 0..threads as usize {
            let [a, b, c, d] = input[4 * t..][..4].try_into().unwrap();
            let byte = a >> 24;
            let signed = (a >> 16) as i16 as i64 as u64;
            let want = [
                d,
                c,
                b,
                a,
                c,
                d,
                a,
                b,
                byte as u8 as i8 as i32 as u32,
                byte,
                signed as u32,
                (signed >> 32) as u32,
                b,
                0,
                a,
                d >> 16 | (c & 0xffff) << 16,
            ];
            assert_eq!(out[16 * t..][..16], want, "thread {t} of {threads}");
        }
    }
}

#[test]
fn access_patterns_and_their_counters() {
    let text = module_text(
        ".param .u64 i, .param .u64 o, .param .u64 stride",
        &format!(
            "{REGS} ld.param.u64 %rd1, [i]; ld.param.u64 %rd2, [stride]; mov.u32 %r1, %tid.x; cvt.u64.u32 %rd3, %r1;
             mul.lo.u64 %rd4, %rd3, %rd2; add.s64 %rd4, %rd1, %rd4; ld.global.u32 %r2, [%rd4];
             {} st.global.u32 [%rd9], %r2; ret;",
            at("o", 4)
        ),
    );
    let rig = Rig::new(&text);
    let data: Vec<u32> = (0..8192).collect();
    let (i, o) = (rig.upload(&data), rig.alloc(128));
    // Stride in bytes, sectors of 32 bytes that 32 lanes touch.
    for (stride, sectors) in [(4, 4), (0, 1), (8, 8), (32, 32), (128, 32), (1024, 32)] {
        let c = rig.run(1, 32, &[i, o, stride]);
        let out: Vec<u32> = rig.download(o, 32);
        assert!((0..32).all(|l| u64::from(out[l]) == l as u64 * stride / 4), "{stride}");
        assert_eq!((c.global_load_sectors, c.global_load_bytes), (sectors, 128), "{stride}");
        assert_eq!((c.global_store_sectors, c.global_store_bytes, c.global_requests), (4, 128, 2));
    }
}

#[test]
fn shared_memory_and_bank_conflicts() {
    let text = module_text(
        ".param .u64 o, .param .u32 stride",
        &format!(
            ".shared .align 16 .b8 pad[64]; .shared .align 4 .b8 buf[8192]; {REGS}
             ld.param.u32 %r5, [stride]; mov.u32 %r1, %tid.x; mul.lo.u32 %r2, %r1, %r5;
             mov.u32 %r3, buf; add.u32 %r3, %r3, %r2;
             st.shared.u32 [%r3], %r1; st.shared.u32 [pad], %r1; bar.sync 0;
             cvt.u64.u32 %rd5, %r3; cvta.shared.u64 %rd6, %rd5; ld.u32 %r4, [%rd6];
             ld.shared.u32 %r6, [%r3]; add.u32 %r4, %r4, %r6;
             isspacep.shared %p1, %rd6; isspacep.global %p2, %rd6; @%p2 mov.u32 %r4, 0; @!%p1 mov.u32 %r4, 0;
             cvta.to.shared.u64 %rd7, %rd6; ld.shared.u32 %r7, [%rd7]; sub.u32 %r4, %r4, %r7;
             {} st.global.u32 [%rd9], %r4; ret;",
            at("o", 4)
        ),
    );
    let rig = Rig::new(&text);
    let o = rig.alloc(128);
    assert_eq!(rig.instance.module().kernel("k").unwrap().static_shared, 8256);
    // Words 1, 2, 32 and 33 apart: extra passes of one access.
    for (stride, extra) in [(4, 0), (8, 1), (128, 31), (132, 0)] {
        let params: Vec<u8> = o.to_le_bytes().into_iter().chain(u32::to_le_bytes(stride)).collect();
        let c = rig.machine.launch(&rig.instance, "k", &Launch::new([1, 1, 1], [32, 1, 1]), &params).unwrap();
        assert_eq!(rig.download::<u32>(o, 32), (0..32).collect::<Vec<u32>>());
        // One store, one generic load, two loads.
        assert_eq!(c.shared_bank_conflicts, 4 * extra, "stride {stride}");
        assert_eq!((c.shared_load_bytes, c.shared_store_bytes), (3 * 128, 2 * 128));
    }
}

#[test]
fn dynamic_shared_memory() {
    let text = ".version 8.0\n.target sm_90\n.address_size 64
        .shared .align 4 .b8 fixed[20];
        .extern .shared .align 16 .b8 dyn[];
        .visible .entry k(.param .u64 o) {
            .reg .b32 %r<9>; .reg .b64 %rd<9>;
            ld.param.u64 %rd1, [o];
            mov.u32 %r1, dyn; mov.u32 %r2, fixed; mov.u32 %r3, %dynamic_smem_size; mov.u32 %r4, %total_smem_size;
            st.shared.u32 [dyn+252], %r1; ld.shared.u32 %r5, [%r1+252];
            st.global.v4.u32 [%rd1], {%r2, %r3, %r4, %r5};
            st.shared.u32 [fixed+16], %r1;
            ret;
        }";
    let rig = Rig::new(text);
    let o = rig.alloc(16);
    let launch =
        |dynamic, max| Launch { dynamic_shared: dynamic, max_dynamic_shared: max, ..Launch::new([1, 1, 1], [1, 1, 1]) };
    let run = |l: &Launch| rig.machine.launch(&rig.instance, "k", l, &o.to_le_bytes());
    run(&launch(256, 0)).unwrap();
    // The dynamic part starts at the next multiple of 16.
    assert_eq!(rig.download::<u32>(o, 4), [0, 256, 288, 32]);
    let short = run(&launch(255, 0)).unwrap_err();
    assert_eq!(short.kind, FaultKind::OutOfBounds);
    assert!(short.detail().contains("shared"), "{short}");
    assert!(matches!(run(&launch(50 << 10, 0)).unwrap_err().kind, FaultKind::BadLaunch));
    run(&launch(50 << 10, 60 << 10)).unwrap();
    assert!(matches!(run(&launch(240 << 10, 240 << 10)).unwrap_err().kind, FaultKind::BadLaunch));
}

#[test]
fn local_memory_is_private_and_addressable() {
    let text = module_text(
        ".param .u64 o",
        &format!(
            ".local .align 16 .b8 depot[64]; .reg .b64 %SP, %SPL; {REGS}
             mov.u64 %SPL, depot; cvta.local.u64 %SP, %SPL;
             mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 7; mul.wide.u32 %rd1, %r2, 8; add.s64 %rd2, %SPL, %rd1; add.s64 %rd3, %SP, %rd1;
             cvt.u64.u32 %rd4, %r1; st.local.u64 [%rd2], %rd4;
             ld.u64 %rd5, [%rd3]; ld.local.u32 %r3, [%rd2]; st.u16 [%rd3+6], 7; ld.local.u8 %r4, [%rd2+6]; ld.local.v2.u32 {{%r5,%r6}}, [%rd2];
             isspacep.local %p1, %rd3; selp.u32 %r7, 1, 0, %p1;
             cvt.u32.u64 %r8, %rd5; {} st.global.v4.u32 [%rd9], {{%r8,%r3,%r4,%r6}}; st.global.u32 [%rd9+16], %r7; ret;",
            at("o", 32)
        ),
    );
    let rig = Rig::new(&text);
    let o = rig.alloc(32 * 70);
    rig.run(1, 70, &[o]);
    let out: Vec<u32> = rig.download(o, 8 * 70);
    for t in 0..70 {
        assert_eq!(out[8 * t..][..5], [t as u32, t as u32, 7, 7 << 16, 1]);
    }
    assert_eq!(rig.instance.module().kernel("k").unwrap().local_bytes, 64);
}

#[test]
fn parameters_by_value_and_by_address() {
    let text = module_text(
        ".param .u64 o, .param .align 4 .b8 s[28], .param .u8 c",
        &format!(
            "{REGS} mov.b64 %rd1, s; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2; ld.param.u32 %r2, [%rd3+4];
             cvta.param.u64 %rd4, %rd1; add.s64 %rd5, %rd4, %rd2; ld.u32 %r3, [%rd5]; ld.param.u8 %r4, [c]; ld.param.s8 %r5, [c];
             {} st.global.v4.u32 [%rd9], {{%r2,%r3,%r4,%r5}}; ret;",
            at("o", 16)
        ),
    );
    let rig = Rig::new(&text);
    let info = rig.instance.module().kernel("k").unwrap();
    let layout: Vec<(u32, u32)> = info.params.iter().map(|p| (p.offset, p.size)).collect();
    assert_eq!((layout, info.param_bytes), (vec![(0, 8), (8, 28), (36, 1)], 37));
    let o = rig.alloc(16 * 6);
    let mut params = o.to_le_bytes().to_vec();
    (100..107u32).for_each(|v| params.extend(v.to_le_bytes()));
    params.push(0x80);
    rig.machine.launch(&rig.instance, "k", &Launch::new([1, 1, 1], [6, 1, 1]), &params).unwrap();
    let out: Vec<u32> = rig.download(o, 24);
    for t in 0..6 {
        assert_eq!(out[4 * t..][..4], [101 + t as u32, 100 + t as u32, 0x80, -128i32 as u32]);
    }
    let short = rig.machine.launch(&rig.instance, "k", &Launch::new([1, 1, 1], [6, 1, 1]), &params[..36]).unwrap_err();
    assert!(matches!(short.kind, FaultKind::BadLaunch));
}

#[test]
fn module_variables() {
    let text = ".version 8.0\n.target sm_90\n.address_size 64
        .visible .global .align 4 .u32 counter = 5;
        .global .align 4 .u32 zeroed[4];
        .const .align 8 .b8 table[8] = {1, 2, 3, 4};
        .global .align 8 .u64 pointer = zeroed+4;
        .visible .entry k(.param .u64 o) {
            .reg .b32 %r<9>; .reg .b64 %rd<9>;
            ld.param.u64 %rd1, [o];
            ld.global.u32 %r1, [counter]; add.u32 %r2, %r1, 1; st.global.u32 [counter], %r2;
            ld.const.u32 %r3, [table]; ld.const.u32 %r4, [table+4];
            ld.global.u64 %rd2, [pointer]; st.global.u32 [%rd2], %r1; ld.global.u32 %r5, [zeroed+4]; ld.global.u32 %r6, [zeroed];
            mov.u64 %rd3, table; ld.const.u8 %r7, [%rd3+2];
            st.global.v4.u32 [%rd1], {%r1,%r3,%r4,%r5}; st.global.v2.u32 [%rd1+16], {%r6,%r7};
            ret;
        }";
    let rig = Rig::new(text);
    let o = rig.alloc(24);
    rig.run(1, 1, &[o]);
    assert_eq!(rig.download::<u32>(o, 6), [5, 0x0403_0201, 0, 5, 0, 3]);
    let (counter, size) = rig.instance.global("counter").unwrap();
    assert_eq!((rig.download::<u32>(counter, 1)[0], size), (6, 4));
    assert_eq!(rig.instance.global("nothing"), None);
    let live = rig.machine.memory().live_allocations();
    let Rig { machine, instance } = rig;
    drop(instance);
    assert_eq!(machine.memory().live_allocations(), live - 4);
}

#[test]
fn atomics_in_global_and_shared_memory() {
    let text = module_text(
        ".param .u64 g, .param .u64 o",
        &format!(
            ".shared .align 8 .b8 s[16]; {REGS} .reg .f32 %f<5>; ld.param.u64 %rd1, [g]; mov.u32 %r1, %tid.x; cvt.u64.u32 %rd2, %r1;
             setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.v2.u32 [s], {{0, 0}}; bar.sync 0;
             atom.global.add.u32 %r2, [%rd1], 1;
             atom.global.max.s32 %r3, [%rd1+4], %r1;
             red.global.add.u64 [%rd1+8], %rd2;
             mov.f32 %f1, 0f3F000000; atom.global.add.f32 %f2, [%rd1+16], %f1;
             atom.inc.u32 %r4, [%rd1+20], 9;
             atom.acq_rel.sys.global.exch.b32 %r5, [%rd1+24], %r1;
             atom.global.cas.b32 %r6, [%rd1+28], 0, 77;
             atom.shared.add.u32 %r7, [s], 2; red.relaxed.cta.shared.or.b32 [s+4], %r1;
             atom.global.dec.u32 %r10, [%rd1+32], 20; atom.global.and.b32 %r11, [%rd1+36], %r1; mov.b32 %r29, 0x3C003C00; atom.global.add.noftz.f16x2 %r12, [%rd1+40], %r29;
             bar.sync 0; ld.shared.u32 %r8, [s]; ld.shared.u32 %r13, [s+4];
             {} st.global.v4.u32 [%rd9], {{%r2,%r8,%r6,%r13}}; ret;",
            at("o", 16)
        ),
    );
    let rig = Rig::new(&text);
    let g = rig.upload(&[0u32, -5i32 as u32, 0, 0, 0, 0, 9, 0, 3, 0xff, 0]);
    let o = rig.alloc(16 * 100);
    let c = rig.run(1, 100, &[g, o]);
    let mem: Vec<u32> = rig.download(g, 11);
    // Halves counted up by ones, rounded to f16 at every step, which is exact here.
    assert_eq!(mem[..8], [100, 99, (0..100).sum(), 0, 50f32.to_bits(), 0, 99, 77]);
    let mut dec = 3u32;
    (0..100).for_each(|_| dec = if dec == 0 || dec > 20 { 20 } else { dec - 1 });
    assert_eq!(mem[8..], [dec, 0, 0x5640_5640]);
    let out: Vec<u32> = rig.download(o, 400);
    let mut seen: Vec<u32> = (0..100).map(|t| out[4 * t]).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..100).collect::<Vec<u32>>());
    assert_eq!((0..100).filter(|t| out[4 * t + 2] == 0).count(), 1);
    assert!((0..100).all(|t| out[4 * t + 1] == 200 && out[4 * t + 3] == 127));
    assert_eq!(c.atomics, 1200);
}

fn fault(body: &str, threads: u32, params: &[u64]) -> Box<warpsmith_simt::Fault> {
    let rig = Rig::new(&module_text(".param .u64 p, .param .u64 q", &format!("{REGS} {body} ret;")));
    let mut all = vec![rig.alloc(100)];
    all.extend(params);
    all.resize(2, 0);
    rig.try_run(1, threads, &all).unwrap_err()
}

#[test]
fn accesses_outside_are_faults_that_say_where() {
    let body = "\nld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, 4; add.s64 %rd1, %rd1, %rd2;\nst.global.u32 [%rd1], %r1;\n";
    let f = fault(body, 32, &[]);
    assert_eq!((f.kind.clone(), f.thread, f.block), (FaultKind::OutOfBounds, [25, 0, 0], [0, 0, 0]));
    assert!(f.to_string().contains("0 bytes past the end of the nearest allocation, 100 bytes"), "{f}");
    assert!(f.ptx_text.contains("st.global.u32 [%rd1], %r1"), "{f}");
    assert_eq!(f.ptx_line, 8);
    let f = fault("ld.param.u64 %rd1, [p]; ld.global.v4.u32 {%r1,%r2,%r3,%r4}, [%rd1+-16];", 1, &[]);
    assert!(f.detail().contains("16 bytes before the nearest allocation"), "{f}");
    let f = fault("ld.param.u64 %rd1, [p]; ld.global.u32 %r1, [%rd1+96]; ld.global.u64 %rd2, [%rd1+96];", 1, &[]);
    assert!(f.detail().contains("byte 96 of the allocation of 100 bytes"), "{f}");
}

#[test]
fn null_and_misaligned_addresses() {
    let f = fault("mov.u64 %rd1, 0; ld.global.u32 %r1, [%rd1+8];", 3, &[]);
    assert_eq!(f.kind, FaultKind::NullPointer);
    let f = fault("ld.param.u64 %rd1, [p]; ld.global.u32 %r1, [%rd1+2];", 3, &[]);
    assert_eq!((f.kind.clone(), f.address.unwrap() % 4), (FaultKind::Misaligned, 2));
    let f = fault("ld.param.u64 %rd1, [p]; ld.global.v2.u32 {%r1, %r2}, [%rd1+4];", 3, &[]);
    assert_eq!(f.kind, FaultKind::Misaligned);
    assert!(f.detail().contains("multiple of 8"), "{f}");
    let f = fault("mov.u32 %r1, 0; ld.shared.u32 %r2, [%r1];", 3, &[]);
    assert!(f.detail().contains("shared offset 0; the block has 0 bytes"), "{f}");
    let f = fault(".local .b8 l[8]; mov.u64 %rd1, l; st.local.u32 [%rd1+8], 1;", 3, &[]);
    assert!(f.detail().contains("local offset 8; the thread has 8 bytes"), "{f}");
    let f = fault("ld.param.u64 %rd1, [p]; atom.global.add.u32 %r1, [%rd1+100], 1;", 3, &[]);
    assert_eq!(f.kind, FaultKind::OutOfBounds);
}

#[test]
fn freed_memory_and_neighbours_are_out_of_bounds() {
    let rig = Rig::new(&module_text(
        ".param .u64 p",
        &format!("{REGS} ld.param.u64 %rd1, [p]; ld.global.u32 %r1, [%rd1]; ret;"),
    ));
    let (a, b) = (rig.alloc(64), rig.alloc(64));
    rig.run(1, 1, &[a]);
    rig.machine.memory().free(a).unwrap();
    let f = rig.try_run(1, 1, &[a]).unwrap_err();
    assert!(f.detail().contains("has been freed"), "{f}");
    // Everything between two allocations belongs to neither.
    let c = rig.alloc(64);
    for p in (b + 64..c).step_by(4096) {
        assert_eq!(rig.try_run(1, 1, &[p]).unwrap_err().kind, FaultKind::OutOfBounds);
    }
}

#[test]
fn fresh_memory_is_poison() {
    let rig = Rig::new(&module_text(
        ".param .u64 p, .param .u64 o",
        &format!(
            ".shared .align 4 .b8 s[4]; {REGS} ld.param.u64 %rd1, [p]; ld.global.u32 %r1, [%rd1]; ld.shared.u32 %r2, [s]; {} st.global.v2.u32 [%rd9], {{%r1,%r2}}; ret;",
            at("o", 8)
        ),
    ));
    let (p, o) = (rig.alloc(4), rig.alloc(8));
    rig.run(1, 1, &[p, o]);
    assert_eq!(rig.download::<u32>(o, 2), [0xa5a5_a5a5; 2]);
}

#[test]
fn asynchronous_copies() {
    let text = module_text(
        ".param .u64 i, .param .u64 o",
        &format!(
            ".shared .align 16 .b8 s[512]; {REGS} {} mov.u32 %r1, s; shl.b32 %r2, %r9, 4; add.u32 %r1, %r1, %r2;
             cp.async.cg.shared.global.L2::128B [%r1], [%rd9], 16; cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;
             ld.shared.v4.u32 {{%r3,%r4,%r5,%r6}}, [%r1];
             cp.async.ca.shared.global [%r1], [%rd9+4], 8, 4; cp.async.wait_all; ld.shared.v2.u32 {{%r7,%r8}}, [%r1];
             add.u32 %r3, %r3, %r7; add.u32 %r4, %r4, %r8;
             {} st.global.v4.u32 [%rd9], {{%r3,%r4,%r5,%r6}}; ret;",
            at("i", 16),
            at("o", 16)
        ),
    );
    let rig = Rig::new(&text.replace("[%rd9+4], 8, 4", "[%rd9+8], 8, 4"));
    let data: Vec<u32> = (0..128).map(|i| i * 3).collect();
    let (i, o) = (rig.upload(&data), rig.alloc(512));
    rig.run(1, 32, &[i, o]);
    let out: Vec<u32> = rig.download(o, 128);
    // Of the second copy only 4 bytes are read, the rest is zero.
    for t in 0..32 {
        let d = &data[4 * t..];
        assert_eq!(out[4 * t..][..4], [d[0] + d[2], d[1], d[2], d[3]]);
    }
}

#[test]
fn parallel_runs_equal_serial_ones() {
    let text = module_text(
        ".param .u64 i, .param .u64 o",
        "
        .shared .align 4 .b8 s[1024];
        .reg .b32 %r<20>; .reg .b64 %rd<9>; .reg .f32 %f<9>; .reg .pred %p<4>;
        ld.param.u64 %rd1, [i]; ld.param.u64 %rd2, [o];
        mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, 256, %r1; mul.wide.u32 %rd3, %r3, 4;
        add.s64 %rd1, %rd1, %rd3; add.s64 %rd2, %rd2, %rd3;
        ld.global.f32 %f1, [%rd1]; mov.u32 %r4, s; shl.b32 %r5, %r1, 2; add.u32 %r6, %r4, %r5;
        st.shared.f32 [%r6], %f1; mov.u32 %r7, 128;
        L: bar.sync 0; setp.ge.u32 %p1, %r1, %r7; @%p1 bra S;
        shl.b32 %r8, %r7, 2; add.u32 %r9, %r6, %r8; ld.shared.f32 %f2, [%r6]; ld.shared.f32 %f3, [%r9]; add.f32 %f2, %f2, %f3; st.shared.f32 [%r6], %f2;
        S: shr.u32 %r7, %r7, 1; setp.ne.u32 %p2, %r7, 0; @%p2 bra L;
        bar.sync 0; ld.shared.f32 %f4, [%r4]; sin.approx.f32 %f5, %f1; fma.rn.f32 %f6, %f4, %f5, %f1; st.global.f32 [%rd2], %f6; ret;",
    );
    let run = |threads| {
        let rig = Rig::with(MachineConfig { threads, ..MachineConfig::default() }, &text);
        let data: Vec<f32> = (0..256 * 200).map(|i| ((i * 7919) % 1000) as f32 / 37.0).collect();
        let (i, o) = (rig.upload(&data), rig.alloc(4 * data.len() as u64));
        let c = rig.run(200, 256, &[i, o]);
        (rig.download::<u32>(o, data.len()), c)
    };
    let serial = run(1);
    for threads in [2, 3, 8] {
        assert!(run(threads) == serial, "{threads} threads");
    }
    // The fault of the lowest block is the one reported.
    let bad = module_text(
        ".param .u64 o",
        ".reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .pred %p<2>; ld.param.u64 %rd1, [o]; mov.u32 %r1, %ctaid.x; setp.gt.u32 %p1, %r1, 700;
         @%p1 trap; ret;",
    );
    for threads in [1, 4] {
        let rig = Rig::with(MachineConfig { threads, ..MachineConfig::default() }, &bad);
        let f = rig.try_run(1000, 64, &[0]).unwrap_err();
        assert_eq!((f.kind, f.block), (FaultKind::Trap, [701, 0, 0]));
    }
}

#[test]
fn reductions_run_on_all_cores() {
    // A histogram of 64 bins, once with `red`, once with `atom` whose result nobody reads (guarded, as compilers write it).
    for atomic in ["red.global.add.u32 [%rd4], 1;", "@%p1 atom.relaxed.gpu.global.add.u32 %r9, [%rd4], 1;"] {
        let body = format!(
            ".reg .b32 %r<10>; .reg .b64 %rd<9>; .reg .pred %p<2>; ld.param.u64 %rd1, [i]; ld.param.u64 %rd2, [o];
             mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, 256, %r1; mul.wide.u32 %rd3, %r3, 4;
             add.s64 %rd1, %rd1, %rd3; ld.global.u32 %r4, [%rd1]; setp.lt.u32 %p1, %r4, 64; and.b32 %r4, %r4, 63;
             mul.wide.u32 %rd3, %r4, 4; add.s64 %rd4, %rd2, %rd3; {atomic} ret;"
        );
        let text = module_text(".param .u64 i, .param .u64 o", &body);
        let data: Vec<u32> = (0..256 * 300).map(|i: u32| i.wrapping_mul(2_654_435_761) >> 26).collect();
        let mut expected = [0u32; 64];
        data.iter().for_each(|&d| expected[d as usize] += 1);
        for threads in [1, 2, 5] {
            let rig = Rig::with(MachineConfig { threads, ..MachineConfig::default() }, &text);
            let (i, o) = (rig.upload(&data), rig.upload(&[0u32; 64]));
            let c = rig.run(300, 256, &[i, o]);
            assert_eq!(rig.download::<u32>(o, 64), expected, "{threads} threads, {atomic}");
            assert_eq!(c.atomics, 256 * 300);
        }
    }
}

#[test]
fn wrong_launches_are_refused() {
    let text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() .maxntid 128 { ret; }\n.entry r() .reqntid 8, 4 { ret; }";
    let machine = Machine::new(MachineConfig::default());
    let instance = machine.instantiate(std::sync::Arc::new(load(text))).unwrap();
    let run = |k: &str, grid, block| machine.launch(&instance, k, &Launch::new(grid, block), &[]);
    let why = |r: Result<_, Box<warpsmith_simt::Fault>>| {
        let fault = r.unwrap_err();
        assert_eq!(fault.kind, FaultKind::BadLaunch);
        fault.message()
    };
    run("k", [1, 1, 1], [128, 1, 1]).unwrap();
    run("r", [2, 2, 2], [8, 4, 1]).unwrap();
    assert!(why(run("k", [1, 1, 1], [129, 1, 1])).contains(".maxntid"));
    assert!(why(run("r", [1, 1, 1], [4, 8, 1])).contains(".reqntid"));
    assert!(why(run("k", [0, 1, 1], [1, 1, 1])).contains("may be 0"));
    assert!(why(run("k", [1, 1, 1], [0, 1, 1])).contains("may be 0"));
    assert!(why(run("k", [1, 70000, 1], [1, 1, 1])).contains("65535"));
    assert!(why(run("k", [1, 1, 1], [u32::MAX, u32::MAX, u32::MAX])).contains("1024"));
    assert!(why(run("none", [1, 1, 1], [1, 1, 1])).contains("no such kernel"));
}
