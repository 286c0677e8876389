//! The carry flag: `add.cc`, `sub.cc`, `mad.cc` and what reads it, in every mix.
//!
//! The ISA calls what `sub.cc` leaves a borrow, but the hardware has one adder and one flag: ptxas makes `sub.cc a, b` the sum
//! of `a` and `-b` with a carry out, and `subc a, b` that of `a`, `~b` and the carry. nvcc mixes the two kinds of chains in
//! its division of 128 bits, which is right only so.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Rig, Rng, module_text};

/// An instruction of a chain: how it is written for 32 bits, and the sum of three terms that it is, in 64 bits.
struct Link {
    text: &'static str,
    /// The two summands of the low 32 bits, from `a`, `b`, `c`; the third is the flag, or what stands for it.
    terms: fn(u32, u32, u32) -> (u32, u32),
    /// `None`: it reads the flag.
    first: Option<u32>,
}

const fn link(text: &'static str, terms: fn(u32, u32, u32) -> (u32, u32), first: Option<u32>) -> Link {
    Link { text, terms, first }
}

fn low(a: u32, b: u32) -> u32 {
    a.wrapping_mul(b)
}

fn high(a: u32, b: u32) -> u32 {
    ((u64::from(a) * u64::from(b)) >> 32) as u32
}

fn high_signed(a: u32, b: u32) -> u32 {
    ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32
}

const LINKS: &[Link] = &[
    link("add{cc}.u32 {d}, %a, %b", |a, b, _| (a, b), Some(0)),
    link("add{cc}.s32 {d}, %c, %a", |a, _, c| (c, a), Some(0)),
    link("addc{cc}.u32 {d}, %a, %b", |a, b, _| (a, b), None),
    link("addc{cc}.s32 {d}, %b, %c", |_, b, c| (b, c), None),
    link("sub{cc}.u32 {d}, %a, %b", |a, b, _| (a, !b), Some(1)),
    link("sub{cc}.s32 {d}, %c, %b", |_, b, c| (c, !b), Some(1)),
    link("subc{cc}.u32 {d}, %b, %a", |a, b, _| (b, !a), None),
    link("subc{cc}.s32 {d}, %a, %c", |a, _, c| (a, !c), None),
    link("mad.lo{cc}.u32 {d}, %a, %b, %c", |a, b, c| (low(a, b), c), Some(0)),
    link("mad.hi{cc}.u32 {d}, %a, %b, %c", |a, b, c| (high(a, b), c), Some(0)),
    link("mad.hi{cc}.s32 {d}, %a, %b, %c", |a, b, c| (high_signed(a, b), c), Some(0)),
    link("madc.lo{cc}.u32 {d}, %a, %c, %b", |a, b, c| (low(a, c), b), None),
    link("madc.hi{cc}.u32 {d}, %b, %c, %a", |a, b, c| (high(b, c), a), None),
    link("madc.hi{cc}.s32 {d}, %b, %c, %a", |a, b, c| (high_signed(b, c), a), None),
];

fn operands(rng: &mut Rng) -> [u32; 3] {
    [0; 3].map(|_| match rng.next() % 4 {
        0 => [0, 1, u32::MAX, 1 << 31][rng.next() as usize % 4],
        _ => rng.next() as u32,
    })
}

/// All chains of three: one that begins, one in the middle that may read and writes the flag, and one that reads it.
#[test]
fn every_mix_of_three_is_one_adder_with_one_flag() {
    let mut rng = Rng(1);
    let mut chains = 0;
    for begin in LINKS.iter().filter(|l| l.first.is_some()) {
        for middle in LINKS {
            let ends: Vec<&Link> = LINKS.iter().filter(|l| l.first.is_none()).collect();
            let mut body = String::from(
                ".reg .b64 %rd<4>; .reg .b32 %a, %b, %c, %d<3>, %t; ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
                 mov.u32 %t, %tid.x; mad.wide.u32 %rd1, %t, 12, %rd1;
                 ld.global.u32 %a, [%rd1]; ld.global.u32 %b, [%rd1+4]; ld.global.u32 %c, [%rd1+8];\n",
            );
            body +=
                &format!("mul.lo.u32 %t, %t, {}; cvt.u64.u32 %rd3, %t; add.u64 %rd2, %rd2, %rd3;\n", 12 * ends.len());
            for (n, end) in ends.iter().enumerate() {
                for (k, link) in [begin, middle, end].into_iter().enumerate() {
                    let cc = if k < 2 { ".cc" } else { "" };
                    body += &link.text.replace("{cc}", cc).replace("{d}", &format!("%d{k}"));
                    body += ";\n";
                }
                for k in 0..3 {
                    body += &format!("st.global.u32 [%rd2+{}], %d{k};\n", 12 * n + 4 * k);
                }
            }
            body += "ret;";
            let rig = Rig::new(&module_text(".param .u64 in, .param .u64 out", &body));
            let inputs: Vec<[u32; 3]> = (0..64).map(|_| operands(&mut rng)).collect();
            let (a, b) = (rig.upload(&inputs), rig.alloc(64 * 12 * ends.len() as u64));
            rig.run(1, 64, &[a, b]);
            let found = rig.download::<u32>(b, 64 * 3 * ends.len());
            let mut wanted = Vec::new();
            for &[a, b, c] in &inputs {
                for end in &ends {
                    let mut flag = 0;
                    for link in [begin, middle, end] {
                        let (x, y) = (link.terms)(a, b, c);
                        let sum = u64::from(x) + u64::from(y) + u64::from(link.first.unwrap_or(flag));
                        wanted.push(sum as u32);
                        flag = (sum >> 32) as u32;
                    }
                }
            }
            assert_eq!(found, wanted, "{} then {}", begin.text, middle.text);
            chains += ends.len();
        }
    }
    assert_eq!(chains, 7 * 14 * 7);
}

/// Instructions without `.cc` leave the flag alone, also those between that are no part of the chain.
#[test]
fn the_flag_stays_until_it_is_written() {
    let body = ".reg .b64 %rd; .reg .b32 %t<6>; ld.param.u64 %rd, [out];
        mov.u32 %t0, %tid.x; add.cc.u32 %t1, %t0, -1; add.u32 %t2, %t0, %t0; subc.u32 %t3, %t2, 5; mad.lo.u32 %t4, %t3, 3, %t2;
        addc.u32 %t5, %t4, 0; mad.wide.u32 %rd, %t0, 4, %rd; st.global.u32 [%rd], %t5; ret;";
    let rig = Rig::new(&module_text(".param .u64 out", body));
    let out = rig.alloc(128);
    rig.run(1, 32, &[out]);
    let wanted = |t: u32| {
        let carry = u32::from(t > 0);
        let difference = (2 * t).wrapping_sub(5).wrapping_sub(1 - carry);
        difference.wrapping_mul(3).wrapping_add(2 * t).wrapping_add(carry)
    };
    assert_eq!(rig.download::<u32>(out, 32), (0..32).map(wanted).collect::<Vec<u32>>());
}

/// Values that ZLUDA's suite expects of the same instructions, found on GPUs.
#[test]
fn values_that_others_have_seen() {
    let run = |body: &str, n: usize| {
        let text = format!(".reg .b64 %rd; .reg .b32 %t<9>; ld.param.u64 %rd, [out]; {body} ret;");
        let rig = Rig::new(&module_text(".param .u64 out", &text));
        let out = rig.alloc(32);
        rig.run(1, 1, &[out]);
        rig.download::<u32>(out, n)
    };
    // The flag after a subtraction, as an addition reads it, and after an addition, as a subtraction does.
    let seen = run(
        "sub.cc.u32 %t1, 1, 2; addc.u32 %t2, 0, 0; sub.cc.u32 %t1, 2, 1; addc.u32 %t3, 0, 0;
         add.cc.u32 %t1, -1, 1; subc.u32 %t4, 10, 3; add.cc.u32 %t1, 1, 2; subc.u32 %t5, 10, 3;
         st.global.v4.u32 [%rd], {%t2, %t3, %t4, %t5};",
        4,
    );
    assert_eq!(seen, [0, 1, 7, 6]);
    // 2^96 - 1 in four words, less 1 at once, and the same chain the other way.
    let seen = run(
        "sub.cc.u32 %t1, 0, 1; subc.cc.u32 %t2, 0, 0; subc.cc.u32 %t3, 0, 0; subc.u32 %t4, 1, 0;
         st.global.v4.u32 [%rd], {%t1, %t2, %t3, %t4};",
        4,
    );
    assert_eq!(seen, [u32::MAX, u32::MAX, u32::MAX, 0]);
}
