//! Matrix instructions.
//!
//! Where elements stand in fragments is written down here from the ISA's text for each shape ("Matrix Fragments for
//! mma.m16n8k…"): `groupID = laneid >> 2`, `threadID_in_group = laneid % 4`. Products of small integers are exact in any order
//! of summation, so plain integer arithmetic gives the expected results; what is cut off is
//! computed by hand from the published model (MMA-Sim, arXiv 2511.10909) in `accumulation_follows_the_architecture`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::precedence)]

#[path = "../common/mod.rs"]
mod common;
mod wmma;

use common::*;
use std::sync::Arc;
use warpsmith_simt::{FaultKind, LoadOptions, Machine, MachineConfig, Module};

/// A kernel around one matrix instruction: each lane loads its registers of A, B and C from the three
/// arrays (register by register, 32 lanes each), and stores D.
fn kernel(version: &str, target: &str, instruction: &str, counts: [usize; 4], wide: bool) -> String {
    let (reg, bytes) = if wide { (".b64", 8) } else { (".b32", 4) };
    let mut body = format!(
        ".reg {reg} %A<17>; .reg {reg} %B<17>; .reg {reg} %C<17>; .reg {reg} %D<17>; .reg .b64 %rd<9>; .reg .b32 %t;
         ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; ld.param.u64 %rd3, [p2]; ld.param.u64 %rd4, [p3];
         mov.u32 %t, %tid.x; mul.wide.u32 %rd5, %t, {bytes};
         add.u64 %rd1, %rd1, %rd5; add.u64 %rd2, %rd2, %rd5; add.u64 %rd3, %rd3, %rd5; add.u64 %rd4, %rd4, %rd5;\n"
    );
    let [a, b, c, d] = counts;
    for (name, base, n) in [("A", 1, a), ("B", 2, b), ("C", 3, c)] {
        for i in 0..n {
            body += &format!("ld.global{reg} %{name}{i}, [%rd{base}+{}];\n", i * 32 * bytes);
        }
    }
    let list = |name: &str, n: usize| {
        let items: Vec<String> = (0..n).map(|i| format!("%{name}{i}")).collect();
        format!("{{{}}}", items.join(","))
    };
    body += &format!("{instruction} {}, {}, {}, {};\n", list("D", d), list("A", a), list("B", b), list("C", c));
    for i in 0..d {
        body += &format!("st.global{reg} [%rd4+{}], %D{i};\n", i * 32 * bytes);
    }
    format!(
        ".version {version}\n.target sm_{target}\n.address_size 64\n\
         .visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3) {{\n{body}ret;\n}}\n"
    )
}

fn rig_of(text: &str, sm: u32) -> Rig {
    let module = Module::load(text, &LoadOptions { sm }).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let machine = Machine::new(MachineConfig { sm, threads: 1, ..MachineConfig::default() });
    let instance = machine.instantiate(Arc::new(module)).unwrap();
    Rig { machine, instance }
}

fn run(text: &str, sm: u32, a: &[u64], b: &[u64], c: &[u64], d: usize, wide: bool) -> Vec<u64> {
    let rig = rig_of(text, sm);
    let narrow = |x: &[u64]| x.iter().map(|&v| v as u32).collect::<Vec<u32>>();
    let up = |x: &[u64]| if wide { rig.upload(x) } else { rig.upload(&narrow(x)) };
    let out = rig.alloc(8 * 32 * 16);
    rig.run(1, 32, &[up(a), up(b), up(c), out]);
    if wide {
        rig.download::<u64>(out, 32 * d)
    } else {
        rig.download::<u32>(out, 32 * d).into_iter().map(u64::from).collect()
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Ty {
    F16,
    BF16,
    TF32,
    F32,
    F64,
    S8,
    U8,
    S4,
    U4,
    B1,
    S32,
    E4M3,
    E5M2,
}

impl Ty {
    fn name(self) -> &'static str {
        match self {
            Ty::F16 => "f16",
            Ty::BF16 => "bf16",
            Ty::TF32 => "tf32",
            Ty::F32 => "f32",
            Ty::F64 => "f64",
            Ty::S8 => "s8",
            Ty::U8 => "u8",
            Ty::S4 => "s4",
            Ty::U4 => "u4",
            Ty::B1 => "b1",
            Ty::S32 => "s32",
            Ty::E4M3 => "e4m3",
            Ty::E5M2 => "e5m2",
        }
    }

    fn bits(self) -> usize {
        match self {
            Ty::F16 | Ty::BF16 => 16,
            Ty::TF32 | Ty::F32 | Ty::S32 => 32,
            Ty::F64 => 64,
            Ty::S8 | Ty::U8 | Ty::E4M3 | Ty::E5M2 => 8,
            Ty::S4 | Ty::U4 => 4,
            Ty::B1 => 1,
        }
    }

    /// Elements in a register.
    fn per(self) -> usize {
        (32 / self.bits()).max(1)
    }

    /// A small integer that the type holds.
    fn sample(self, r: &mut Rng) -> i64 {
        let x = r.next();
        match self {
            Ty::U8 => (x % 256) as i64,
            Ty::S8 => (x % 256) as i64 - 128,
            Ty::U4 => (x % 16) as i64,
            Ty::S4 => (x % 16) as i64 - 8,
            Ty::B1 => (x % 2) as i64,
            Ty::S32 => (x % 100_000) as i64 - 50_000,
            // fp8 has 3 or 4 bits of significand.
            Ty::E4M3 | Ty::E5M2 => [-4, -3, -2, -1, 0, 1, 2, 3, 4][x as usize % 9],
            _ => (x % 15) as i64 - 7,
        }
    }

    fn encode(self, x: i64) -> u64 {
        match self {
            Ty::F16 => half::f16::from_f64(x as f64).to_bits().into(),
            Ty::BF16 => half::bf16::from_f64(x as f64).to_bits().into(),
            Ty::TF32 | Ty::F32 => (x as f32).to_bits().into(),
            Ty::F64 => (x as f64).to_bits(),
            // Both small formats are the upper bits of an f16 or like it: by their definition, for 0 to 4.
            Ty::E5M2 => (half::f16::from_f64(x as f64).to_bits() >> 8).into(),
            Ty::E4M3 => {
                let magnitude = [0x00, 0x38, 0x40, 0x44, 0x48][x.unsigned_abs() as usize];
                magnitude | if x < 0 { 0x80 } else { 0 }
            }
            _ => x as u64 & (u64::MAX >> (64 - self.bits())),
        }
    }

    fn decode(self, bits: u64) -> f64 {
        match self {
            Ty::F16 => half::f16::from_bits(bits as u16).to_f64(),
            Ty::F64 => f64::from_bits(bits),
            Ty::S32 => f64::from(bits as u32 as i32),
            _ => f64::from(f32::from_bits(bits as u32)),
        }
    }
}

/// Row and column of element `i` of a lane: of A, of B (k, n), of C and D, as the ISA's text gives them.
fn place_a(m: usize, ty: Ty, lane: usize, i: usize) -> (usize, usize) {
    let (group, thread) = (lane >> 2, lane % 4);
    let per = ty.per();
    // Registers take turns between rows groupID and groupID + 8, then go on along k.
    let register = i / per;
    let (row, block) = if m == 16 { (group + 8 * (register % 2), register / 2) } else { (group, register) };
    (row, thread * per + i % per + 4 * per * block)
}

fn place_b(ty: Ty, lane: usize, i: usize) -> (usize, usize) {
    let per = ty.per();
    ((lane % 4) * per + i % per + 4 * per * (i / per), lane >> 2)
}

fn place_c(lane: usize, i: usize) -> (usize, usize) {
    ((lane >> 2) + 8 * (i / 2), (lane % 4) * 2 + i % 2)
}

/// Packs elements into registers: register by register, 32 lanes each.
fn packed(ty: Ty, elements: usize, at: impl Fn(usize, usize) -> i64) -> Vec<u64> {
    let per = ty.per();
    let mut out = vec![0u64; elements / per * 32];
    for lane in 0..32 {
        for i in 0..elements {
            out[i / per * 32 + lane] |= ty.encode(at(lane, i)) << (ty.bits() * (i % per));
        }
    }
    out
}

struct Case {
    version: &'static str,
    target: &'static str,
    mnk: [usize; 3],
    a: Ty,
    b: Ty,
    c: Ty,
    extra: &'static str,
}

fn check(case: &Case) {
    let Case { mnk: [m, n, k], a, b, c, .. } = *case;
    let mut r = Rng((m * 1000 + k) as u64 + a.bits() as u64);
    let fill = |ty: Ty, count: usize, r: &mut Rng| (0..count).map(|_| ty.sample(r)).collect::<Vec<i64>>();
    let (ma, mb, mc) = (fill(a, m * k, &mut r), fill(b, k * n, &mut r), fill(c, m * n, &mut r));
    let fa = packed(a, m * k / 32, |lane, i| {
        let (row, col) = place_a(m, a, lane, i);
        ma[row * k + col]
    });
    let fb = packed(b, k * n / 32, |lane, i| {
        let (row, col) = place_b(b, lane, i);
        mb[row * n + col]
    });
    let fc = packed(c, m * n / 32, |lane, i| {
        let (row, col) = place_c(lane, i);
        mc[row * n + col]
    });
    let counts = [fa.len() / 32, fb.len() / 32, fc.len() / 32, fc.len() / 32];
    let (pre, types) = (case.extra, format!("{}.{}.{}.{}", c.name(), a.name(), b.name(), c.name()));
    let instruction = format!("mma.sync.aligned.m{m}n{n}k{k}.row.col.{types}{pre}");
    let sm = case.target.trim_end_matches(['a', 'f']).parse().unwrap();
    let text = kernel(case.version, case.target, &instruction, counts, a == Ty::F64);
    let got = run(&text, sm, &fa, &fb, &fc, counts[3], a == Ty::F64);
    for lane in 0..32 {
        for i in 0..m * n / 32 {
            let (row, col) = place_c(lane, i);
            let product = |x: i64, y: i64| match pre {
                ".xor.popc" => x ^ y,
                _ => x * y,
            };
            let want = (0..k).fold(mc[row * n + col], |s, l| s + product(ma[row * k + l], mb[l * n + col]));
            let per = c.per();
            let bits = got[i / per * 32 + lane] >> (c.bits() * (i % per));
            let bits = if c.bits() == 64 { bits } else { bits & ((1 << c.bits()) - 1) };
            assert_eq!(c.decode(bits), want as f64, "{instruction}: lane {lane}, element {i}");
        }
    }
}

#[test]
fn products_of_all_shapes_and_types() {
    use Ty::{B1, BF16, E4M3, E5M2, F16, F32, F64, S4, S8, S32, TF32, U4, U8};
    let mut cases = Vec::new();
    let mut add = |version, target, mnk, a, b, c, extra| cases.push(Case { version, target, mnk, a, b, c, extra });
    for k in [8, 16] {
        let (version, target) = if k == 8 { ("6.5", "75") } else { ("7.0", "80") };
        add(version, target, [16, 8, k], F16, F16, F32, "");
        add(version, target, [16, 8, k], F16, F16, F16, "");
        add("7.0", "80", [16, 8, k], BF16, BF16, F32, "");
        add("7.0", "80", [16, 8, k / 2], TF32, TF32, F32, "");
    }
    for (a, b) in [(S8, S8), (U8, U8), (S8, U8), (U8, S8)] {
        add("6.5", "75", [8, 8, 16], a, b, S32, "");
        add("7.0", "80", [16, 8, 16], a, b, S32, "");
        add("7.0", "80", [16, 8, 32], a, b, S32, "");
    }
    for (a, b) in [(S4, S4), (U4, U4), (S4, U4), (U4, S4)] {
        add("6.5", "75", [8, 8, 32], a, b, S32, "");
        add("7.0", "80", [16, 8, 32], a, b, S32, ".satfinite");
        add("7.0", "80", [16, 8, 64], a, b, S32, "");
    }
    for extra in [".xor.popc", ".and.popc"] {
        add("7.1", "80", [8, 8, 128], B1, B1, S32, extra);
        add("7.1", "80", [16, 8, 128], B1, B1, S32, extra);
        add("7.1", "80", [16, 8, 256], B1, B1, S32, extra);
    }
    add("7.0", "80", [8, 8, 4], F64, F64, F64, "");
    for k in [4, 8, 16] {
        add("7.8", "90", [16, 8, k], F64, F64, F64, "");
    }
    for (a, b) in [(E4M3, E4M3), (E4M3, E5M2), (E5M2, E5M2)] {
        add("8.7", "89", [16, 8, 16], a, b, F32, "");
        add("8.4", "89", [16, 8, 32], a, b, F32, "");
        add("8.7", "90", [16, 8, 32], a, b, F16, "");
    }
    assert!(cases.len() >= 40);
    cases.iter().for_each(check);
}

#[test]
fn four_products_of_quad_pairs() {
    // "Matrix Fragments for mma.m8n8k4 with .f16": lanes 0-3 and 16-19 compute the first of four products, and so on.
    for (la, lb) in [("row", "col"), ("col", "row"), ("row", "row"), ("col", "col")] {
        for (c32, d32) in [(false, false), (true, true), (false, true)] {
            let mut r = Rng(9);
            let mut matrix = |n: usize| (0..n).map(|_| (r.next() % 15) as i64 - 7).collect::<Vec<i64>>();
            let (ma, mb, mc): (Vec<_>, Vec<_>, Vec<_>) = (
                (0..4).map(|_| matrix(32)).collect(),
                (0..4).map(|_| matrix(32)).collect(),
                (0..4).map(|_| matrix(64)).collect(),
            );
            let pair = |lane: usize| lane % 16 / 4;
            let high = |lane: usize| if lane < 16 { 0 } else { 4 };
            let fa = packed(Ty::F16, 4, |lane, i| {
                let (row, col) = if la == "row" { (lane % 4 + high(lane), i) } else { (i % 4 + high(lane), lane % 4) };
                ma[pair(lane)][row * 4 + col]
            });
            let fb = packed(Ty::F16, 4, |lane, i| {
                let (row, col) = if lb == "row" { (lane % 4, i + high(lane)) } else { (i, lane % 4 + high(lane)) };
                mb[pair(lane)][row * 8 + col]
            });
            let place = |f32: bool, lane: usize, i: usize| match f32 {
                false => (lane % 4 + high(lane), i),
                true => ((lane & 1) + (i & 2) + high(lane), (i & 4) + (lane & 2) + (i & 1)),
            };
            let ty = |f32: bool| if f32 { Ty::F32 } else { Ty::F16 };
            let fc = packed(ty(c32), 8, |lane, i| {
                let (row, col) = place(c32, lane, i);
                mc[pair(lane)][row * 8 + col]
            });
            let counts = [2, 2, if c32 { 8 } else { 4 }, if d32 { 8 } else { 4 }];
            let (c, d) = (ty(c32), ty(d32));
            let instruction = format!("mma.sync.aligned.m8n8k4.{la}.{lb}.{}.f16.f16.{}", d.name(), c.name());
            let got = run(&kernel("6.4", "70", &instruction, counts, false), 70, &fa, &fb, &fc, counts[3], false);
            for lane in 0..32 {
                for i in 0..8 {
                    let (row, col) = place(d32, lane, i);
                    let p = pair(lane);
                    let want = (0..4).fold(mc[p][row * 8 + col], |s, k| s + ma[p][row * 4 + k] * mb[p][k * 8 + col]);
                    let bits =
                        got[i / d.per() * 32 + lane] >> (d.bits() * (i % d.per())) & (u64::MAX >> (64 - d.bits()));
                    assert_eq!(d.decode(bits), want as f64, "{instruction}: lane {lane}, element {i}");
                }
            }
        }
    }
}

/// Element (0, 0) of an f16 product whose first row of A and first column of B are given.
fn corner(shape: &str, types: &str, target: &str, a: &[f64], b: &[f64], c: f32) -> f32 {
    let k = a.len();
    let ty = Ty::F16;
    let mut fa = vec![0u64; k / 4 * 32];
    let mut fb = vec![0u64; k / 8 * 32];
    for lane in 0..4 {
        for i in 0..k / 2 {
            let (row, col) = place_a(16, ty, lane, i);
            if row == 0 {
                fa[i / 2 * 32 + lane] |= u64::from(half::f16::from_f64(a[col]).to_bits()) << (16 * (i % 2));
            }
        }
        for i in 0..k / 4 {
            let (row, col) = place_b(ty, lane, i);
            if col == 0 {
                fb[i / 2 * 32 + lane] |= u64::from(half::f16::from_f64(b[row]).to_bits()) << (16 * (i % 2));
            }
        }
    }
    let f32s = types.starts_with("f32");
    let n = if f32s { 4 } else { 2 };
    let mut fc = vec![0u64; n * 32];
    fc[0] = if f32s { c.to_bits().into() } else { half::f16::from_f32(c).to_bits().into() };
    let instruction = format!("mma.sync.aligned.{shape}.row.col.{types}");
    let sm = target.parse().unwrap();
    let got = run(&kernel("8.0", target, &instruction, [k / 4, k / 8, n, n], false), sm, &fa, &fb, &fc, n, false)[0];
    if f32s { f32::from_bits(got as u32) } else { half::f16::from_bits(got as u16).to_f32() }
}

#[test]
fn accumulation_follows_the_architecture() {
    // 1 + eight products of 2^-25, all in the first eight elements of k.
    let tiny = |n: usize, k: usize| -> (Vec<f64>, Vec<f64>) {
        let a = (0..k).map(|i| if i < n { 2f64.powi(-12) } else { 0.0 }).collect();
        (a, vec![2f64.powi(-13); k])
    };
    let f32s = "f32.f16.f16.f32";
    let (a, b) = tiny(8, 8);
    // Turing, Ampere: 24 fraction bits cut 2^-25 off, each of them. Hopper keeps 25: 8·2^-25 = 2^-22.
    assert_eq!(corner("m16n8k8", f32s, "75", &a, &b, 1.0), 1.0);
    assert_eq!(corner("m16n8k8", f32s, "80", &a, &b, 1.0), 1.0);
    assert_eq!(corner("m16n8k8", f32s, "90", &a, &b, 1.0), 1.0 + 2f32.powi(-22));
    // Without an addend the products align to themselves.
    assert_eq!(corner("m16n8k8", f32s, "80", &a, &b, 0.0), 2f32.powi(-22));
    // 16 elements: Ampere sums the first eight (1 + 8·2^-24 exactly), rounds to f32, then the next; Hopper all at once.
    // Products: 2^-24 (nine of them, the ninth alone in the second half): 1 + 8·2^-24 = 1 + 2^-21, + 2^-24 is cut to f32.
    let a: Vec<f64> = (0..16).map(|i| if i < 9 { 2f64.powi(-12) } else { 0.0 }).collect();
    let b = vec![2f64.powi(-12); 16];
    assert_eq!(corner("m16n8k16", f32s, "80", &a, &b, 1.0), 1.0 + 2f32.powi(-21));
    assert_eq!(corner("m16n8k16", f32s, "90", &a, &b, 1.0), 1.0 + 2f32.powi(-21));
    // One half cancels the other: what Ampere lost in the first half is lost; Hopper sums before it cuts to f32.
    // First half: 1 + 2^-24 -> 1 (f32, cut off). Second half: + 2^-24 -> 1. At once: 1 + 2·2^-24 = 1 + 2^-23.
    let a: Vec<f64> = (0..16).map(|i| if i == 0 || i == 8 { 2f64.powi(-12) } else { 0.0 }).collect();
    assert_eq!(corner("m16n8k16", f32s, "80", &a, &b, 1.0), 1.0);
    assert_eq!(corner("m16n8k16", f32s, "86", &a, &b, 1.0), 1.0);
    assert_eq!(corner("m16n8k16", f32s, "90", &a, &b, 1.0), 1.0 + 2f32.powi(-23));
    // f16 results are rounded to nearest even: 1 + 2^-11 is a tie; 1 + 3·2^-11 is one, too.
    let one = |x: f64| -> Vec<f64> { (0..8).map(|i| if i == 0 { x } else { 0.0 }).collect() };
    let unit = vec![1.0; 8];
    assert_eq!(corner("m16n8k8", "f16.f16.f16.f16", "90", &one(2f64.powi(-11)), &unit, 1.0), 1.0);
    assert_eq!(corner("m16n8k8", "f16.f16.f16.f16", "90", &one(3.0 * 2f64.powi(-11)), &unit, 1.0), 1.0 + 2f32.powi(-9));
    // f32 results are cut off towards zero, negative ones as well.
    assert_eq!(corner("m16n8k8", f32s, "90", &one(-(2f64.powi(-24))), &unit, -1.0), -1.0);
    // Overflow is infinite; infinity times zero is the canonical NaN.
    assert_eq!(corner("m16n8k8", "f16.f16.f16.f16", "90", &one(65504.0), &unit, 65504.0), f32::INFINITY);
    let nan = corner("m16n8k8", f32s, "90", &one(f64::INFINITY), &[0.0; 8], 1.0);
    assert_eq!(nan.to_bits(), 0x7fff_ffff);
}

/// A NaN or an infinity is of its row or its column, and others have the bits that they have without it.
#[test]
fn what_is_not_finite_stays_in_its_row_and_column() {
    let ty = Ty::F16;
    let number = |x: f64| u64::from(half::f16::from_f64(x).to_bits());
    let a = |row: usize, col: usize| ((7 * row + 5 * col) % 23) as f64 / 8.0 - 1.0;
    let b = |row: usize, col: usize| ((3 * row + 11 * col) % 19) as f64 / 16.0 - 0.5;
    // Of A, of B, and of C: row, column, and what stands there.
    let odd_a = [(3, 5, f64::NAN), (9, 2, f64::INFINITY)];
    let odd_b = [(7, 2, f64::NAN), (1, 6, f64::NEG_INFINITY)];
    let odd_c = [(0, 0, f64::NAN), (1, 1, f64::INFINITY)];
    let at = |odd: &[(usize, usize, f64)], place: (usize, usize), value: f64, dirty: bool| {
        let found = odd.iter().find(|o| (o.0, o.1) == place).map(|o| if dirty { o.2 } else { 0.0 });
        found.unwrap_or(value)
    };
    let product = |dirty: bool| {
        let (mut fa, mut fb, mut fc) = ([0u64; 4 * 32], [0u64; 2 * 32], [0u64; 4 * 32]);
        for lane in 0..32 {
            for i in 0..8 {
                let place = place_a(16, ty, lane, i);
                fa[i / 2 * 32 + lane] |= number(at(&odd_a, place, a(place.0, place.1), dirty)) << (16 * (i % 2));
            }
            for i in 0..4 {
                let place = place_b(ty, lane, i);
                fb[i / 2 * 32 + lane] |= number(at(&odd_b, place, b(place.0, place.1), dirty)) << (16 * (i % 2));
                let place = place_c(lane, i);
                fc[i * 32 + lane] = u64::from((at(&odd_c, place, 0.25, dirty) as f32).to_bits());
            }
        }
        let instruction = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32";
        run(&kernel("8.0", "90", instruction, [4, 2, 4, 4], false), 90, &fa, &fb, &fc, 4, false)
    };
    let (clean, dirty) = (product(false), product(true));
    for lane in 0..32 {
        for i in 0..4 {
            let (row, col) = place_c(lane, i);
            let (without, got) = (clean[i * 32 + lane] as u32, dirty[i * 32 + lane] as u32);
            let infinite = |x: f64| if x > 0.0 { f32::INFINITY } else { f32::NEG_INFINITY }.to_bits();
            let want = match (row, col) {
                (3, _) | (_, 2) | (0, 0) => 0x7fff_ffff,
                // Infinity of both signs, or times what may be of either.
                (9, 6) => {
                    let signs = [b(2, 6), -a(9, 1)].map(|x| x > 0.0);
                    if signs[0] == signs[1] { infinite(b(2, 6)) } else { 0x7fff_ffff }
                }
                (1, 1) => f32::INFINITY.to_bits(),
                (9, _) => infinite(b(2, col)),
                (_, 6) => infinite(-a(row, 1)),
                _ => without,
            };
            // Zero times infinity is none of either.
            let zero = row == 9 && b(2, col) == 0.0 || col == 6 && a(row, 1) == 0.0;
            assert_eq!(got, if zero { 0x7fff_ffff } else { want }, "row {row}, column {col}");
        }
    }
}

#[test]
fn integers_saturate_or_wrap() {
    // Row 0 of A and column 0 of B are 127 · 127 in all 32 elements: 516128 is added to 2^31 - 1.
    let a = vec![0x7f7f_7f7fu64; 4 * 32];
    let b = vec![0x7f7f_7f7fu64; 2 * 32];
    let c = vec![0x7fff_ffffu64; 4 * 32];
    let form = "mma.sync.aligned.m16n8k32.row.col";
    let wrapped =
        run(&kernel("7.0", "80", &format!("{form}.s32.s8.s8.s32"), [4, 2, 4, 4], false), 80, &a, &b, &c, 4, false);
    assert!(wrapped.iter().all(|&v| v as u32 == 0x7fff_ffffu32.wrapping_add(32 * 127 * 127)));
    let text = kernel("7.0", "80", &format!("{form}.satfinite.s32.s8.s8.s32"), [4, 2, 4, 4], false);
    assert!(run(&text, 80, &a, &b, &c, 4, false).iter().all(|&v| v == 0x7fff_ffff));
}

#[test]
fn matrices_move_between_memory_and_registers() {
    // stmatrix.x4 of what ldmatrix.x4.trans loaded transposes four 8×8 matrices; movmatrix transposes one more time.
    let text = ".version 7.8\n.target sm_90\n.address_size 64\n
        .visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2) {
        .shared .align 16 .b8 s[1024];
        .reg .b32 %r<20>; .reg .b64 %rd<9>;
        ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; ld.param.u64 %rd5, [p2];
        mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 16; add.u64 %rd1, %rd1, %rd3; add.u64 %rd2, %rd2, %rd3;
        ld.global.v4.b32 {%r2,%r3,%r4,%r5}, [%rd1];
        mov.u32 %r6, s; shl.b32 %r7, %r1, 4; add.u32 %r6, %r6, %r7;
        st.shared.v4.b32 [%r6], {%r2,%r3,%r4,%r5};
        bar.warp.sync -1;
        ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r8,%r9,%r10,%r11}, [%r6+512];
        ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r12,%r13,%r14,%r15}, [%r6];
        movmatrix.sync.aligned.m8n8.trans.b16 %r16, %r12;
        mul.wide.u32 %rd6, %r1, 8; add.u64 %rd5, %rd5, %rd6;
        st.global.v2.b32 [%rd5], {%r12, %r16};
        bar.warp.sync -1;
        stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r6], {%r8,%r9,%r10,%r11};
        bar.warp.sync -1;
        ld.shared.v4.b32 {%r2,%r3,%r4,%r5}, [%r6];
        st.global.v4.b32 [%rd2], {%r2,%r3,%r4,%r5};
        ret; }";
    // The second half of the addresses would lie outside: load from the start instead.
    let text = text.replace("[%r6+512]", "[%r6]").replace("s[1024]", "s[512]");
    let rig = rig_of(&text, 90);
    let data: Vec<u16> = (0..256).collect();
    let (p, out, frag) = (rig.upload(&data), rig.alloc(512), rig.alloc(256));
    rig.run(1, 32, &[p, out, frag]);
    let got: Vec<u16> = rig.download(out, 256);
    for m in 0..4 {
        for row in 0..8 {
            for col in 0..8 {
                assert_eq!(got[m * 64 + row * 8 + col], data[m * 64 + col * 8 + row]);
            }
        }
    }
    // The ISA's fragment: lane l holds row l / 4, elements 2 (l % 4) and the next.
    let fragments: Vec<u16> = rig.download(frag, 128);
    for lane in 0..32 {
        let (row, col) = (lane / 4, lane % 4 * 2);
        let want = [row * 8 + col, row * 8 + col + 1, col * 8 + row, (col + 1) * 8 + row].map(|i| data[i]);
        assert_eq!(fragments[lane * 4..][..4], want);
    }
}

#[test]
fn misplaced_matrices_are_faults() {
    let body = |access: &str| {
        format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p0) {{
             .reg .b32 %r<9>; .reg .b64 %rd<3>; .shared .align 16 .b8 s[64];
             ld.param.u64 %rd1, [p0]; mov.u32 %r8, s; {access} ret; }}"
        )
    };
    let fault = |access: &str, threads: u32| {
        let rig = rig_of(&body(access), 90);
        let p = rig.alloc(512);
        rig.try_run(1, threads, &[p]).unwrap_err()
    };
    let load = |address: &str, stride: u32| {
        format!(
            "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {{%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7}}, [{address}], {stride};"
        )
    };
    // The ISA: the matrix starts at a multiple of the fragment's size, 32 bytes here; rows at multiples of 16 at least.
    assert_eq!(fault(&load("%rd1+16", 16), 32).kind, FaultKind::Misaligned);
    assert_eq!(fault(&load("%rd1", 20), 32).kind, FaultKind::Misaligned);
    let f = fault(&load("%rd1", 32), 32);
    assert!(f.kind == FaultKind::OutOfBounds && f.address.is_some(), "{f}");
    // 16-byte rows, 8 of them.
    let f = fault("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%r8+8];", 32);
    assert_eq!(f.kind, FaultKind::Misaligned);
    let f = fault("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%r8+64];", 32);
    assert_eq!(f.kind, FaultKind::OutOfBounds);
    let f = fault("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r8+64], {%r0};", 32);
    assert_eq!(f.kind, FaultKind::OutOfBounds);
    let f = fault("movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r1;", 16);
    assert!(f.kind == FaultKind::MaskMisuse && f.ptx_line == 6, "{f}");
}
