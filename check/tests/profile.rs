//! Profiles of small kernels, against numbers worked out by hand from the rules in `check::metrics`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../simt/tests/common/mod.rs"]
mod common;

use common::{Rig, module_text};
use warpsmith_check::{BlockByWarp, ByWarp, Checks};
use warpsmith_check::{Class, Inspect, LineProfile, Metrics, Profile, Start};
use warpsmith_simt::Launch;

const PROFILE: Checks = Checks { init: false, races: false, sync: false, profile: true, seed: 0 };

fn profile(text: &str, grid: u32, block: u32, params: &[u64]) -> Profile {
    let rig = Rig::new(text);
    profile_on(&rig, grid, block, params)
}

fn profile_on(rig: &Rig, grid: u32, block: u32, params: &[u64]) -> Profile {
    let params: Vec<u8> = params.iter().flat_map(|p| p.to_le_bytes()).collect();
    let launch = Launch::new([grid, 1, 1], [block, 1, 1]);
    let inspection = rig.machine.inspect(&rig.instance, "k", &launch, &params, &PROFILE);
    assert!(inspection.fault.is_none(), "{}", inspection.fault.unwrap());
    let (counters, profile) = (inspection.counters, inspection.profile.unwrap());
    // The two ways of counting agree where they count the same.
    let total = profile.total;
    assert_eq!(total.warp_instructions, counters.warp_instructions);
    assert_eq!(total.lane_instructions, counters.lane_instructions);
    assert_eq!(total.global_load_sectors + total.global_copy_sectors, counters.global_load_sectors);
    assert_eq!(total.global_store_sectors, counters.global_store_sectors);
    assert_eq!(total.branches, counters.branches);
    assert_eq!(total.atomic_lanes, counters.atomics);
    profile
}

fn line<'a>(profile: &'a Profile, text: &str) -> &'a LineProfile {
    profile.lines.iter().find(|l| l.ptx_text.contains(text)).unwrap_or_else(|| panic!("no line with {text}"))
}

/// 256 threads: y[i] = a x[i] + y[i].
#[test]
fn a_vector_update() {
    let text = module_text(
        ".param .u64 x, .param .u64 y",
        "  .reg .b32 %r<4>; .reg .b64 %rd<6>; .reg .f32 %f<4>;
  ld.param.b64 %rd1, [x];
  ld.param.b64 %rd2, [y];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
  ld.global.f32 %f1, [%rd4];
  ld.global.f32 %f2, [%rd5];
  fma.rn.f32 %f3, %f1, 0f40000000, %f2;
  st.global.f32 [%rd5], %f3;
  ret;",
    );
    let rig = Rig::new(&text);
    let (x, y) = (rig.upload(&[1.0f32; 256]), rig.upload(&[2.0f32; 256]));
    let p = profile_on(&rig, 1, 256, &[x, y]);
    let t = p.total;
    // 8 warps, 11 instructions each.
    assert_eq!((t.warp_instructions, t.thread_instructions, t.lane_instructions), (88, 2816, 2816));
    // 16 requests of 128 consecutive bytes: 4 sectors each, all 32 bytes of each used.
    assert_eq!((t.global_load_requests, t.global_load_sectors, t.global_load_bytes), (16, 64, 2048));
    assert_eq!((t.global_store_requests, t.global_store_sectors, t.global_store_bytes), (8, 32, 1024));
    assert_eq!((t.ffma, t.fadd, t.flop()), (256, 0, 512));
    // x and y are loaded once, y is stored once; no sector is requested twice.
    assert_eq!(p.dram_bytes(), (3072, 3072));
    let load = line(&p, "ld.global.f32 %f1").metrics;
    assert_eq!((load.warp_instructions, load.lane_instructions, load.global_load_sectors), (8, 256, 32));
    assert_eq!(line(&p, "fma.rn").class, Class::Fp32);
    let class = |c: Class| p.classes().into_iter().find(|x| x.0 == c).map_or((0, 0), |x| (x.1, x.2));
    assert_eq!((class(Class::Global), class(Class::Fp32), class(Class::Local)), ((24, 768), (8, 256), (16, 512)));
}

#[test]
fn what_caches_have_is_loaded_but_not_for_the_first_time() {
    let text = module_text(
        ".param .u64 x",
        "  .reg .b32 %r<4>; .reg .b64 %rd<4>;
  ld.param.b64 %rd1, [x];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r2, [%rd3];
  st.global.u32 [%rd3], %r2;
  ret;",
    );
    let rig = Rig::new(&text);
    // 4096 bytes are 128 sectors, and begin anywhere among the 64 of a word.
    let x = rig.upload(&[1u32; 1024]);
    let (launch, params) = (Launch::new([1, 1, 1], [1024, 1, 1]), x.to_le_bytes());
    let first = |cached: &[std::ops::Range<u64>]| {
        let start = Start { checks: PROFILE, cached, ..Start::new("k", &launch, &params) };
        let profile = rig.machine.inspect_start(&rig.instance, start).profile.unwrap();
        assert_eq!((profile.sectors_loaded_once, profile.sectors_stored_once), (128, 128));
        profile.total.global_first_sectors
    };
    let all = x..x + 4096;
    assert_eq!((first(&[]), first(std::slice::from_ref(&all))), (128, 0));
    assert_eq!(first(&[0..x, x + 4096..u64::MAX]), 128);
    // Sectors of which any byte is there, also over several words.
    assert_eq!(first(&[x + 31..x + 33, x + 64..x + 3200]), 128 - 2 - 98);
}

/// One warp loads with a stride, in 32, 64 and 128 bits.
#[test]
fn sectors_per_request() {
    // (type, bytes of a lane, stride, sectors, bytes used)
    for (ty, stride, sectors, used) in [
        ("u32", 4, 4, 128),
        ("u32", 8, 8, 128),
        ("u32", 128, 32, 128),
        ("u32", 0, 1, 4),
        ("u64", 8, 8, 256),
        ("v2.u64", 16, 16, 512),
        ("u8", 1, 1, 32),
    ] {
        let register = if ty == "v2.u64" {
            "{%rd4, %rd5}"
        } else if ty == "u64" {
            "%rd4"
        } else {
            "%r2"
        };
        let text = module_text(
            ".param .u64 x",
            &format!(
                "  .reg .b32 %r<4>; .reg .b64 %rd<6>;
  ld.param.b64 %rd1, [x];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, {stride};
  add.s64 %rd3, %rd1, %rd2;
  ld.global.{ty} {register}, [%rd3];
  ret;"
            ),
        );
        let rig = Rig::new(&text);
        let x = rig.upload(&[0u8; 8192]);
        let p = profile_on(&rig, 1, 32, &[x]);
        let m = line(&p, "ld.global").metrics;
        let got = (m.global_load_requests, m.global_load_sectors, m.global_load_bytes);
        assert_eq!(got, (1, sectors, used), "{ty} every {stride}");
        // Two blocks of the same loads: twice the requests, the same memory.
        let p = profile_on(&rig, 2, 32, &[x]);
        assert_eq!(p.dram_bytes(), (32 * sectors, 64 * sectors));
    }
}

/// One warp stores to shared memory with a stride.
#[test]
fn shared_wavefronts_and_conflicts() {
    for (ty, stride, wavefronts, conflicts) in [
        ("u32", 4, 1, 0),
        ("u32", 8, 2, 1),
        ("u32", 128, 32, 31),
        ("u32", 0, 1, 0),
        ("u64", 8, 2, 0),
        ("u64", 16, 4, 2),
    ] {
        let register = if ty == "u64" { "%rd1" } else { "%r3" };
        let text = module_text(
            "",
            &format!(
                "  .reg .b32 %r<4>; .reg .b64 %rd<2>; .shared .align 16 .b8 s[8192];
  mov.u32 %r1, %tid.x;
  mul.lo.u32 %r2, %r1, {stride};
  mov.u32 %r3, s;
  add.u32 %r2, %r2, %r3;
  mov.b64 %rd1, 0;
  st.shared.{ty} [%r2], {register};
  bar.sync 0;
  ld.shared.{ty} {register}, [%r2];
  ret;"
            ),
        );
        let t = profile(&text, 1, 32, &[]).total;
        let want = (1, wavefronts, conflicts);
        assert_eq!(
            (t.shared_store_requests, t.shared_store_wavefronts, t.shared_store_conflicts),
            want,
            "{ty} {stride}"
        );
        assert_eq!((t.shared_load_requests, t.shared_load_wavefronts, t.shared_load_conflicts), want, "{ty} {stride}");
        assert_eq!(t.barriers, 1);
    }
}

/// Lanes 0 to 7 go one way, then the guard of an add holds for half of the lanes, then for none.
#[test]
fn divergence_and_predication() {
    let text = module_text(
        "",
        "  .reg .b32 %r<4>; .reg .pred %p<4>;
  mov.u32 %r1, %tid.x;
  setp.lt.u32 %p1, %r1, 8;
  @%p1 bra A;
  add.u32 %r2, %r1, 1;
A:
  setp.lt.u32 %p2, %r1, 16;
  @%p2 add.u32 %r2, %r1, 2;
  setp.gt.u32 %p3, %r1, 99;
  @%p3 add.u32 %r2, %r1, 3;
  @%p3 bra B;
  add.u32 %r2, %r1, 4;
B:
  ret;",
    );
    let p = profile(&text, 1, 32, &[]);
    let m = |text: &str| -> Metrics { line(&p, text).metrics };
    assert_eq!((m("bra A").branches, m("bra A").divergent_branches), (1, 1));
    assert_eq!((m("bra B").branches, m("bra B").divergent_branches), (1, 0));
    assert_eq!((m("%r1, 1;").warp_instructions, m("%r1, 1;").lane_instructions), (1, 24));
    let half = m("%r1, 2;");
    assert_eq!((half.warp_instructions, half.thread_instructions, half.lane_instructions), (1, 32, 16));
    let none = m("%r1, 3;");
    assert_eq!((none.warp_instructions, none.thread_instructions, none.lane_instructions), (1, 32, 0));
    let ratios = p.total.ratios();
    let uniform = ratios.iter().find(|r| r.0.contains("uniform")).unwrap().1;
    assert_eq!(uniform, 50.0);
}

/// 32 lanes add to one word: one sector there and back; packed halves count twice.
#[test]
fn atomics_and_halves() {
    let text = module_text(
        ".param .u64 x",
        "  .reg .b32 %r<4>; .reg .b64 %rd<2>;
  ld.param.b64 %rd1, [x];
  red.global.add.u32 [%rd1], 1;
  atom.global.exch.b32 %r1, [%rd1], 1;
  mov.b32 %r2, 0;
  fma.rn.f16x2 %r3, %r2, %r2, %r2;
  ret;",
    );
    let rig = Rig::new(&text);
    let x = rig.upload(&[0u32]);
    let p = profile_on(&rig, 1, 32, &[x]);
    let t = p.total;
    assert_eq!((t.global_red_requests, t.global_red_sectors, t.global_atom_requests, t.atomic_lanes), (1, 1, 1, 64));
    assert_eq!((t.hfma, t.flop()), (64, 128));
    assert_eq!(p.dram_bytes(), (64, 128));
}

/// Eight rows of 16 bytes are one pass if they lie in different banks. Rows 16 bytes apart fill the 32 banks once; 80 bytes
/// apart, they start at the words 0, 20, 40, 60, 80, 100, 120, 140, whose banks are 0, 20, 8, 28, 16, 4, 24, 12; 64 bytes apart at banks
/// 0 and 16 in turn, four rows each; 128 bytes apart all at bank 0.
#[test]
fn matrices_in_shared_memory() {
    let text = module_text(
        "",
        "  .shared .align 16 .b8 m[4096]; .reg .b32 %r<9>;
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, m;
  mad.lo.u32 %r3, %r1, 16, %r2;
  mad.lo.u32 %r4, %r1, 80, %r2;
  mad.lo.u32 %r5, %r1, 64, %r2;
  and.b32 %r6, %r1, 15;
  mad.lo.u32 %r6, %r6, 128, %r2;
  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r7, %r8}, [%r3];
  ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r1, %r2, %r7, %r8}, [%r4];
  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r7, %r8}, [%r5];
  stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r6], {%r1, %r2};
  ret;",
    );
    let p = profile(&text, 1, 32, &[]);
    let loads = |text: &str| {
        let m = line(&p, text).metrics;
        (m.shared_load_requests, m.shared_load_wavefronts, m.shared_load_conflicts)
    };
    assert_eq!(loads("[%r3]"), (1, 4, 0));
    assert_eq!(loads("[%r4]"), (1, 4, 0));
    assert_eq!(loads("[%r5]"), (1, 16, 12));
    let t = p.total;
    assert_eq!((t.shared_store_requests, t.shared_store_wavefronts, t.shared_store_conflicts), (1, 16, 14));
}

/// A tile of 16x16 halves in rows of 32 bytes: 512 bytes, 16 sectors, four passes over 128 bytes of banks. With 64 elements a row
/// its rows are 128 bytes apart: 16 sectors still, and in shared memory all in the banks 0 to 7, 16 words each.
#[test]
fn tiles_in_memory() {
    let text = module_text(
        ".param .u64 x",
        "  .shared .align 32 .b8 m[2048]; .reg .b32 %r<9>; .reg .b64 %rd<2>; .reg .f32 %f<9>;
  ld.param.b64 %rd1, [x];
  wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%rd1], 16;
  wmma.load.b.sync.aligned.col.m16n16k16.global.f16 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%rd1], 64;
  wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [m], 16;
  wmma.load.b.sync.aligned.row.m16n16k16.shared.f16 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [m], 64;
  wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd1], {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}, 16;
  ret;",
    );
    let rig = Rig::new(&text);
    let x = rig.upload(&[0u32; 512]);
    let p = profile_on(&rig, 1, 32, &[x]);
    for text in ["load.a.sync.aligned.row.m16n16k16.global", "load.b.sync.aligned.col"] {
        let m = line(&p, text).metrics;
        assert_eq!((m.global_load_requests, m.global_load_sectors, m.global_load_bytes), (1, 16, 512), "{text}");
    }
    for (text, passes, conflicts) in
        [("load.a.sync.aligned.row.m16n16k16.shared", 4, 0), ("load.b.sync.aligned.row", 16, 12)]
    {
        let m = line(&p, text).metrics;
        let got = (m.shared_load_requests, m.shared_load_wavefronts, m.shared_load_conflicts);
        assert_eq!(got, (1, passes, conflicts), "{text}");
    }
    let t = p.total;
    assert_eq!((t.global_store_requests, t.global_store_sectors, t.global_store_bytes), (1, 32, 1024));
    // Both tiles of 16 sectors begin at the first; of the second, every fourth sector is one of the first 16. The store adds nothing
    // to what was loaded.
    assert_eq!((p.sectors_loaded_once, p.sectors_stored_once), (16 + 12, 32));
    let first = |text: &str| line(&p, text).metrics.global_first_sectors;
    let loads = ["load.a.sync.aligned.row.m16n16k16.global", "load.b.sync.aligned.col", "store.d"];
    assert_eq!((loads.map(first), t.global_first_sectors), ([16, 12, 0], 28));
}

/// 1024 bytes in, 512 of them out again: 32 and 16 sectors.
#[test]
fn bulk_copies() {
    let text = module_text(
        ".param .u64 x, .param .u64 y",
        "  .shared .align 16 .b8 m[1024]; .shared .align 8 .b64 ready; .reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .pred %p1;
  ld.param.b64 %rd1, [x];
  ld.param.b64 %rd2, [y];
  mov.u32 %r1, m;
  mov.u32 %r2, ready;
  mbarrier.init.shared.b64 [ready], 1;
  mbarrier.arrive.expect_tx.shared.b64 _, [ready], 1024;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 1024, [%r2];
WAIT:
  mbarrier.try_wait.parity.shared.b64 %p1, [ready], 0;
  @!%p1 bra WAIT;
  cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r1], 512;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
  ret;",
    );
    let rig = Rig::new(&text);
    let (x, y) = (rig.upload(&[1u32; 256]), rig.upload(&[0u32; 256]));
    let p = profile_on(&rig, 1, 1, &[x, y]);
    let t = p.total;
    assert_eq!((t.global_copy_requests, t.global_copy_sectors, t.global_copy_bytes), (1, 32, 1024));
    assert_eq!((t.global_store_requests, t.global_store_sectors, t.global_store_bytes), (1, 16, 512));
    assert_eq!(p.dram_bytes(), (1024 + 512, 1024 + 512));
}

/// 32 threads a block: y[i] = x[i], of which three of eight blocks run.
#[test]
fn the_first_blocks_of_a_launch_count_for_themselves() {
    let text = module_text(
        ".param .u64 x, .param .u64 y",
        "  .reg .b32 %r<5>; .reg .b64 %rd<6>;
  ld.param.b64 %rd1, [x];
  ld.param.b64 %rd2, [y];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  mad.lo.u32 %r3, %r2, 32, %r1;
  mul.wide.u32 %rd3, %r3, 4;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
  ld.global.u32 %r4, [%rd4];
  st.global.u32 [%rd5], %r4;
  ret;",
    );
    let rig = Rig::new(&text);
    let (x, y) = (rig.upload(&[7u32; 256]), rig.upload(&[0u32; 256]));
    let params: Vec<u8> = [x, y].iter().flat_map(|p: &u64| p.to_le_bytes()).collect();
    let launch = Launch::new([8, 1, 1], [32, 1, 1]);
    let start = Start { checks: PROFILE, first_blocks: Some(3), ..Start::new("k", &launch, &params) };
    let ran = rig.machine.inspect_start(&rig.instance, start);
    assert!(ran.fault.is_none());
    let written = rig.download::<u32>(y, 256);
    assert_eq!((&written[..96], &written[96..]), (&[7; 96][..], &[0; 160][..]));
    let p = ran.profile.unwrap();
    assert_eq!((ran.counters.blocks, p.total.warp_instructions), (3, 3 * 11));
    // 384 bytes of each, of which the second half of y does not count.
    let (all, of_x) = p.touched(std::slice::from_ref(&(x..x + 1024)));
    assert_eq!((all, of_x, p.touched(&[y..y + 192, x..x + 32]).1), (768, 384, 224));
}

/// Only warp 1 of a block stores, and the last of three blocks to get there counts down from 4 in warp 0.
#[test]
fn warps_of_the_first_block_and_of_the_longest_are_counted_apart() {
    let text = module_text(
        ".param .u64 counter",
        "  .reg .b32 %r<6>; .reg .b64 %rd<2>; .reg .pred %p<4>;
  ld.param.b64 %rd1, [counter];
  mov.u32 %r1, %tid.x;
  setp.eq.u32 %p1, %r1, 32;
  @%p1 st.global.u32 [%rd1+4], %r1;
  setp.ne.u32 %p2, %r1, 0;
  @%p2 bra END;
  atom.global.add.u32 %r2, [%rd1], 1;
  setp.ne.u32 %p3, %r2, 2;
  @%p3 bra END;
  mov.u32 %r3, 4;
AGAIN:
  sub.u32 %r3, %r3, 1;
  setp.ne.u32 %p3, %r3, 0;
  @%p3 bra AGAIN;
END:
  ret;",
    );
    let rig = Rig::new(&text);
    let counter = rig.upload(&[0u32; 2]);
    let launch = Launch::new([3, 1, 1], [64, 1, 1]);
    let of = |first_blocks| {
        let params = counter.to_le_bytes();
        let start = Start { first_blocks, ..Start::new("k", &launch, &params) };
        ByWarp::of(&rig.machine, &rig.instance, &start).unwrap()
    };
    let number = |text: &str| rig.instance.module().text().lines().position(|l| l.contains(text)).unwrap() as u32 + 1;
    let executed = |block: &BlockByWarp, text: &str| -> Vec<u64> {
        block.warps.iter().map(|w| w.get(&number(text)).copied().unwrap_or_default()).collect()
    };
    let all = of(None);
    assert_eq!((all.first.block, all.longest.block), (0, 2));
    // The guard of a store that no lane executes is looked at by the warp all the same.
    assert_eq!(executed(&all.first, "st.global"), [1, 1]);
    assert_eq!(executed(&all.first, "atom.global"), [1, 0]);
    assert_eq!((executed(&all.first, "sub.u32"), executed(&all.longest, "sub.u32")), (vec![0, 0], vec![4, 0]));
    // The counter is at 3 already: no block is the last one, and the first is as long as the others.
    let again = of(Some(2));
    assert_eq!((&again.longest, again.first.block), (&again.first, 0));
    // A launch that is stopped has no counts.
    let params = u64::MAX.to_le_bytes();
    assert!(ByWarp::of(&rig.machine, &rig.instance, &Start::new("k", &launch, &params)).is_err());
}
