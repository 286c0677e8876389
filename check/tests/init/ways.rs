//! The ways that undefined data takes: memory, calls, lanes, arithmetic, matrices.

use warpsmith_check::Rule;

use crate::frame::*;

#[test]
fn through_shared_memory() {
    let body = |write: &str| {
        format!(
            ".shared .align 4 .b8 s[128]; mov.u32 %r4, s; shl.b32 %r5, %r1, 2; add.u32 %r6, %r4, %r5;
             {write} bar.sync 0;
             ld.shared.u32 %r2, [%r6]; //?
             setp.eq.u32 %p1, %r2, 3;
             @%p1 bra DONE; //!
             mov.u32 %r2, 7; DONE: mov.u32 %r2, 1; {STORE}"
        )
    };
    defect(&body(""), 0, Rule::UndefinedBranch, 0);
    defect(&body("setp.ne.u32 %p2, %r1, 9; @%p2 st.shared.u32 [%r6], %r1;"), 0, Rule::UndefinedBranch, 9);
    defect(&body("ld.global.u32 %r7, [%rd4]; st.shared.u32 [%r6], %r7;"), 100, Rule::UndefinedBranch, 25);
    clean(&body("st.shared.u32 [%r6], %r1;"), 0);
}

#[test]
fn generic_addresses_of_shared_and_local_memory() {
    let body = |write: &str| {
        format!(
            ".shared .align 8 .b8 s[256]; .local .align 8 .b8 l[8]; mov.u64 %rd6, s; cvta.shared.u64 %rd6, %rd6; add.s64 %rd6, %rd6, %rd3;
             mov.u64 %rd7, l; cvta.local.u64 %rd7, %rd7; {write}
             ld.u32 %r2, [%rd6]; ld.u32 %r3, [%rd7+4];
             add.u32 %r2, %r2, %r3; setp.eq.u32 %p1, %r2, 3;
             @%p1 bra DONE; //!
             mov.u32 %r2, 7; DONE: mov.u32 %r2, 1; {STORE}"
        )
    };
    let mark = |b: String, load: &str| b.replace(load, &format!("{load} //?\n"));
    let both = "st.u32 [%rd6], %r1; st.u32 [%rd7+4], %r1;";
    clean(&body(both), 0);
    defect(
        &mark(body("st.u32 [%rd6], %r1; st.u32 [%rd7], %r1;"), "ld.u32 %r3, [%rd7+4];"),
        0,
        Rule::UndefinedBranch,
        0,
    );
    defect(&mark(body("st.u32 [%rd7+4], %r1;"), "ld.u32 %r2, [%rd6];"), 0, Rule::UndefinedBranch, 0);
}

#[test]
fn through_local_memory() {
    let body = |write: &str| {
        format!(
            ".local .align 8 .b8 l[16];
             {write}
             ld.local.u32 %r2, [l+8]; //?
             setp.eq.u32 %p1, %r2, 0;
             @%p1 bra DONE; //!
             mov.u32 %r2, 7; DONE: mov.u32 %r2, 1; {STORE}"
        )
    };
    defect(&body("st.local.u32 [l+4], %r1;"), 0, Rule::UndefinedBranch, 0);
    defect(&body("mov.u32 %r9, 0; st.local.u8 [l+8], %r9; st.local.u16 [l+10], %r9;"), 0, Rule::UndefinedBranch, 0);
    clean(&body("st.local.v2.u32 [l+8], {%r1, %r1};"), 0);
    clean(&body("st.local.u64 [l+8], %rd1;"), 0);
}

const SQUARE: &str = ".func (.param .b32 out) square(.param .b32 in) { .reg .b32 %x<3>; ld.param.b32 %x1, [in]; mul.lo.s32 %x2, %x1, %x1; st.param.b32 [out], %x2; ret; }
.func (.reg .b32 %out) twice(.reg .b32 %in) { add.u32 %out, %in, %in; ret; }";

#[test]
fn through_calls() {
    let body = "ld.global.u32 %r2, [%rd4];
         { .param .b32 i; .param .b32 o; st.param.b32 [i], %r2; call (o), square, (i);
         ld.param.b32 %r3, [o]; //?
         }
         setp.gt.u32 %p1, %r3, 5;
         @%p1 bra DONE; //!
         mov.u32 %r3, 7; DONE: mov.u32 %r2, 1; st.global.u32 [%rd5], %r2; ret;";
    defect_with(SQUARE, body, 64, 32, Rule::UndefinedBranch, 16);
    clean_with(SQUARE, body, 128, 32);
    let body = "ld.global.u32 %r2, [%rd4];
         call (%r3), twice, (%r2); //?
         setp.gt.u32 %p1, %r3, 5;
         @%p1 bra DONE; //!
         mov.u32 %r3, 7; DONE: mov.u32 %r2, 1; st.global.u32 [%rd5], %r2; ret;";
    defect_with(SQUARE, body, 64, 32, Rule::UndefinedBranch, 16);
    clean_with(SQUARE, body, 128, 32);
}

#[test]
fn shuffles_take_the_source_lanes_word() {
    let body = |from: u32| {
        format!(
            "ld.global.u32 %r2, [%rd4]; //?
             shfl.sync.idx.b32 %r3, %r2, {from}, 31, -1;
             setp.gt.u32 %p1, %r3, 5;
             @%p1 bra DONE; //!
             mov.u32 %r3, 7; DONE: mov.u32 %r2, 1; {STORE}"
        )
    };
    // Only lanes 0 to 15 are defined: reading lane 15 is fine for all, reading lane 16 for none.
    clean(&body(15), 64);
    defect(&body(16), 64, Rule::UndefinedBranch, 0);
    let down = "ld.global.u32 %r2, [%rd4]; //?
         shfl.sync.down.b32 %r3|%p2, %r2, 1, 31, -1; setp.gt.u32 %p1, %r3, 5;
         @%p1 bra DONE; //!
         mov.u32 %r3, 7; DONE: mov.u32 %r2, 1; st.global.u32 [%rd5], %r2; ret;";
    defect(down, 64, Rule::UndefinedBranch, 15);
}

#[test]
fn a_shuffle_from_two_places_of_the_code() {
    let body = |sel: &str| {
        format!(
            "ld.global.u32 %r2, [%rd4]; //?
             setp.lt.u32 %p3, %r1, 8; mov.u32 %r4, {sel};
             @%p3 bra LOW;
             shfl.sync.idx.b32 %r3, %r2, %r4, 31, -1; bra.uni JOIN;
             LOW: shfl.sync.idx.b32 %r3, %r2, %r4, 31, -1;
             JOIN: setp.gt.u32 %p1, %r3, 5;
             @%p1 bra DONE; //!
             mov.u32 %r3, 7; DONE: mov.u32 %r2, 1; {STORE}"
        )
    };
    clean(&body("3"), 64);
    defect(&body("20"), 64, Rule::UndefinedBranch, 0);
}

#[test]
fn bits_of_bytes_that_are_defined() {
    // Of each word, only byte 1 is defined: what compilers do to take it out leaves no undefined bit.
    let before = "mov.u16 %h1, 5; st.global.u8 [%rd4+1], %h1; ld.global.u32 %r2, [%rd4];";
    let ways = [
        "shr.u32 %r3, %r2, 8; and.b32 %r3, %r3, 255;",
        "bfe.u32 %r3, %r2, 8, 8;",
        "prmt.b32 %r3, %r2, 0, 0x7771;",
        "and.b32 %r3, %r2, 0xff00;",
        "or.b32 %r3, %r2, 0xffff00ff; xor.b32 %r3, %r3, 0xffff00ff;",
        "lop3.b32 %r3, %r2, 0xff00, 0, 0xc0;",
        "shl.b32 %r3, %r2, 16; shr.s32 %r3, %r3, 24;",
        "mov.b32 {%h2, %h3}, %r2; shr.u16 %h2, %h2, 8; cvt.u32.u16 %r3, %h2;",
        "bfi.b32 %r3, 0, %r2, 16, 16; bfi.b32 %r3, 0, %r3, 0, 8;",
        "shf.r.wrap.b32 %r3, %r2, %r2, 8; cvt.u32.u8 %r3, %r3;",
        "cvt.u64.u32 %rd9, %r2; shr.u64 %rd9, %rd9, 8; cvt.u8.u64 %r3, %rd9;",
        "brev.b32 %r3, %r2; shr.u32 %r3, %r3, 16; and.b32 %r3, %r3, 255;",
        "shr.u32 %r4, %r2, 8; cvt.rn.f32.u8 %f1, %r4; mov.b32 %r3, %f1;",
    ];
    let after = |mask: &str| {
        format!("{mask} setp.gt.u32 %p1, %r3, 5;\n@%p1 bra DONE; //!\nmov.u32 %r3, 7; DONE: mov.u32 %r2, 1; {STORE}")
    };
    for way in ways {
        clean(&format!("{before} {way} {}", after("")), 0);
        // The same of byte 2 is undefined.
        let other = format!("{} //?\n {way} {}", before.replace("%rd4+1", "%rd4+2"), after(""));
        defect(&other, 0, Rule::UndefinedBranch, 0);
    }
}

#[test]
fn parts_of_vectors() {
    // The compiler loads four floats; one lane of them was never written and is not used.
    let body = |used: &str| {
        format!(
            "mul.wide.u32 %rd6, %r1, 16; add.s64 %rd6, %rd1, %rd6; mov.f32 %f9, 0f3F800000;
             st.global.v2.f32 [%rd6], {{%f9, %f9}}; st.global.f32 [%rd6+8], %f9;
             ld.global.v4.f32 {{%f1, %f2, %f3, %f4}}, [%rd6]; //?
             add.f32 %f5, %f1, %f2; add.f32 %f5, %f5, {used}; setp.gt.f32 %p1, %f5, 0f40000000;
             @%p1 bra DONE; //!
             mov.f32 %f5, %f9; DONE: mov.u32 %r2, 1; {STORE}"
        )
    };
    clean(&body("%f3"), 0);
    defect(&body("%f4"), 0, Rule::UndefinedBranch, 0);
}

#[test]
fn padding_of_structs() {
    // struct { u8 a; /* 3 bytes of padding */ u32 b; }: copied as one word of 64 bits, then used by fields.
    let body =
        "mul.wide.u32 %rd6, %r1, 8; add.s64 %rd6, %rd1, %rd6; mul.wide.u32 %rd7, %r1, 8; add.s64 %rd7, %rd2, %rd7;
         mov.u16 %h1, 3; st.global.u8 [%rd6], %h1; st.global.u32 [%rd6+4], %r1;
         ld.global.u64 %rd8, [%rd6]; st.global.u64 [%rd7], %rd8;
         ld.global.u8 %h2, [%rd7]; ld.global.u32 %r3, [%rd7+4]; setp.eq.u16 %p1, %h2, 3;
         @%p1 bra DONE;
         st.global.u32 [%rd7+4], %r1; DONE: ret;";
    let case = clean(body, 0);
    // A copy of the whole to the host takes the padding along; a copy of the fields does not.
    assert_eq!(case.undefined(256), Some((1, 96)));
    assert_eq!(case.rig.machine.memory().undefined(case.b + 4, 4), None);
}

#[test]
fn overwritten_before_use() {
    clean(
        &format!(
            "ld.global.u32 %r2, [%rd4]; add.u32 %r2, %r2, 1; mov.u32 %r2, 4; setp.eq.u32 %p1, %r2, 4;\n@%p1 bra DONE;\nmov.u32 %r2, 2; DONE: {STORE}"
        ),
        0,
    );
    // In memory as well.
    clean(
        "st.global.u32 [%rd4], %r1; ld.global.u32 %r2, [%rd4]; setp.eq.u32 %p1, %r2, 4;\n@%p1 bra DONE;\nmov.u32 %r2, 2; DONE: ret;",
        0,
    );
}

#[test]
fn arithmetic_spreads() {
    let body = |how: &str| {
        format!(
            "ld.global.u32 %r2, [%rd4]; //?
             {how} setp.eq.u32 %p1, %r3, 5;
             @%p1 bra DONE; //!
             mov.u32 %r3, 7; DONE: mov.u32 %r2, 1; {STORE}"
        )
    };
    for how in [
        "mul.lo.u32 %r3, %r2, 0;",
        "mad.lo.u32 %r3, %r2, 3, %r1;",
        "cvt.rn.f32.u32 %f1, %r2; fma.rn.f32 %f1, %f1, %f1, %f1; mov.b32 %r3, %f1;",
        "add.cc.u32 %r4, %r2, 1; addc.u32 %r3, %r1, 0;",
        "popc.b32 %r3, %r2;",
        "mul.wide.u32 %rd9, %r2, %r1; cvt.u32.u64 %r3, %rd9;",
        "min.s32 %r3, %r2, %r1;",
        "redux.sync.add.u32 %r3, %r2, -1;",
        "match.any.sync.b32 %r3, %r2, -1;",
    ] {
        defect(&body(how), 0, Rule::UndefinedBranch, 0);
        clean(&body(how), 128);
    }
    clean(&body("xor.b32 %r3, %r2, %r2;"), 0);
    clean(&body("sub.s32 %r3, %r2, %r2;"), 0);
}

/// The high half of a product has the high bits of its factors in its low bits, with a carry as without.
#[test]
fn high_halves_of_products_mix_all_bits() {
    let body = |how: &str| {
        format!(
            "ld.global.u32 %r2, [%rd4]; //?
             {how} and.b32 %r3, %r3, 1; setp.eq.u32 %p1, %r3, 1;
             @%p1 bra DONE; //!
             mov.u32 %r3, 7; DONE: mov.u32 %r2, 1; {STORE}"
        )
    };
    for how in [
        "mul.hi.u32 %r3, %r2, 7;",
        "mad.hi.u32 %r3, %r2, 7, 0;",
        "mad.lo.cc.u32 %r4, %r1, 3, 0; madc.hi.u32 %r3, %r2, 7, 0;",
    ] {
        // Two bytes of the first word have a value.
        defect(&body(how), 2, Rule::UndefinedBranch, 0);
        clean(&body(how), 128);
    }
}

#[test]
fn atomics_add_to_what_memory_holds() {
    let body = "atom.global.add.u32 %r2, [%rd5], 1; //?
         setp.eq.u32 %p1, %r2, 0;
         @%p1 bra DONE; //!
         mov.u32 %r2, 1; DONE: ret;";
    let case = defect(body, 0, Rule::UndefinedBranch, 0);
    assert_eq!(case.undefined(128), Some((0, 128)), "a sum with something undefined is undefined");
    clean(&format!("mov.u32 %r9, 0; st.global.u32 [%rd5], %r9;\n{body}"), 0);
    let case = clean("atom.global.exch.b32 %r2, [%rd5], 1; ret;", 0);
    assert_eq!(case.undefined(128), None);
}

#[test]
fn module_variables_and_parameters_are_defined() {
    clean_with(
        ".global .u32 g[32];",
        "mov.u64 %rd6, g; add.s64 %rd6, %rd6, %rd3; ld.global.u32 %r2, [%rd6]; setp.eq.u32 %p1, %r2, 5;\n@%p1 bra DONE;\nmov.u32 %r2, 1; DONE: st.global.u32 [%rd5], %r2; ret;",
        0,
        32,
    );
}

#[test]
fn matrices_mix_rows_and_columns() {
    // Row `g` of D depends on row `g` of A, column `n` on column `n` of B: lanes 4g to 4g+3 hold row g of A and column g of B.
    let body = |undefined: &str, lane: u32| {
        format!(
            "mov.u32 %r10, 0; mov.u32 %r11, 0; mov.u32 %r12, 0; ld.global.u32 %r2, [%rd4]; //?
             {undefined}
             mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;
             mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {{%f1,%f2,%f3,%f4}}, {{%r10,%r11}}, {{%r12}}, {{%f1,%f2,%f3,%f4}};
             setp.ne.u32 %p2, %r1, {lane}; @%p2 bra DONE; setp.gt.f32 %p1, %f1, 0f3F800000;
             @%p1 bra DONE; //!
             mov.u32 %r2, 3; DONE: mov.u32 %r2, 1; {STORE}"
        )
    };
    // Words 0 to 30 are defined: only lane 31 brings something undefined, row 7 of A, or column 7 of B.
    let a = "mov.u32 %r10, %r2;";
    let b = "mov.u32 %r12, %r2;";
    defect(&body(a, 28), 124, Rule::UndefinedBranch, 28);
    clean(&body(a, 27), 124);
    clean(&body(b, 28), 124);
    // Lane 3 holds columns 6 and 7 of row 0; `%f1` is column 6.
    clean(&body(b, 3), 124);
    defect(&body(b, 3).replace("setp.gt.f32 %p1, %f1", "setp.gt.f32 %p1, %f2"), 124, Rule::UndefinedBranch, 3);
}

#[test]
fn matrices_from_shared_memory() {
    let body = |count: u32| {
        format!(
            ".shared .align 16 .b8 s[128]; mov.u32 %r4, s; shl.b32 %r5, %r1, 2; add.u32 %r6, %r4, %r5;
             setp.lt.u32 %p2, %r1, {count}; @%p2 st.shared.u32 [%r6], %r1; bar.sync 0;
             and.b32 %r7, %r1, 7; shl.b32 %r7, %r7, 4; add.u32 %r7, %r7, %r4;
             ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r2}}, [%r7]; //?
             setp.eq.u32 %p1, %r2, 3;
             @%p1 bra DONE; //!
             mov.u32 %r2, 7; DONE: mov.u32 %r2, 1; {STORE}"
        )
    };
    clean(&body(32), 0);
    defect(&body(30), 0, Rule::UndefinedBranch, 30);
}

#[test]
fn stores_of_tiles_and_bulk_copies_define_memory() {
    let tile = "mov.f32 %f1, 0f3F800000; wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd2], {%f1,%f1,%f1,%f1,%f1,%f1,%f1,%f1}, 16; ret;";
    assert_eq!(clean(tile, 0).undefined(1024), None);
    let load = "wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {%f1,%f2,%f3,%f4,%f5,%f6,%f7,%f8}, [%rd1], 16; //?
        add.f32 %f9, %f1, %f2; setp.gt.f32 %p1, %f9, 0f40000000;
        @%p1 bra DONE; //!
        mov.u32 %r2, 3; DONE: mov.u32 %r2, 1; st.global.u32 [%rd5], %r2; ret;";
    // Row 7 ends at byte 512; lane 28 holds the first elements of rows 7 and 15, `%f1` and `%f2` those of row 7.
    clean(load, 512);
    defect(load, 448, Rule::UndefinedBranch, 28);
    let bulk = ".shared .align 16 .b8 s[128]; .shared .align 8 .b64 m; mov.u32 %r4, s; mov.u32 %r8, m;
        setp.eq.u32 %p2, %r1, 0; @%p2 mbarrier.init.shared.b64 [%r8], 1; bar.sync 0; @!%p2 bra WAIT;
        mbarrier.arrive.expect_tx.shared.b64 %rd9, [%r8], 128;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%rd1], 128, [%r8];
        WAIT: mbarrier.test_wait.parity.shared.b64 %p3, [%r8], 0; @!%p3 bra WAIT;
        shl.b32 %r5, %r1, 2; add.u32 %r6, %r4, %r5;
        ld.shared.u32 %r2, [%r6]; //?
        setp.eq.u32 %p1, %r2, 3;
        @%p1 bra DONE; //!
        mov.u32 %r2, 7; DONE: mov.u32 %r2, 1; st.global.u32 [%rd5], %r2; ret;";
    clean(bulk, 128);
    defect(bulk, 124, Rule::UndefinedBranch, 31);
}

#[test]
fn halves_of_packed_floats() {
    let body = |half: &str| {
        format!(
            "mov.u16 %h1, 0x3c00; st.global.u16 [%rd4], %h1;
             ld.global.u32 %r2, [%rd4]; //?
             add.rn.f16x2 %r3, %r2, %r2; mov.b32 {{%h2, %h3}}, %r3; setp.eq.u16 %p1, {half}, 0x4000;
             @%p1 bra DONE; //!
             mov.u32 %r2, 7; DONE: mov.u32 %r2, 1; {STORE}"
        )
    };
    clean(&body("%h2"), 0);
    defect(&body("%h3"), 0, Rule::UndefinedBranch, 0);
}
