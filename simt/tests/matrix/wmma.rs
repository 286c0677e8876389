//! Warp-level matrices: `wmma.load`, `wmma.mma` and `wmma.store`.

use super::common::*;
use super::{Ty, rig_of};

/// A product through `wmma`: D = A·B + C, with an operation on every element of A and B in between.
struct Wmma {
    mnk: [usize; 3],
    a: Ty,
    c: Ty,
    /// Of A, of B, and of C and D.
    layouts: [&'static str; 3],
    /// A is loaded from shared memory.
    shared: bool,
}

/// A matrix as it lies in memory, of elements that may be smaller than a byte.
fn stored(ty: Ty, rows: usize, cols: usize, layout: &str, x: &[i64]) -> Vec<u8> {
    let mut out = vec![0u8; rows * cols * ty.bits() / 8];
    for row in 0..rows {
        for col in 0..cols {
            let at = if layout == "row" { row * cols + col } else { col * rows + row };
            let bit = at * ty.bits();
            let value = ty.encode(x[row * cols + col]);
            (0..ty.bits()).for_each(|b| out[(bit + b) / 8] |= ((value >> b & 1) as u8) << ((bit + b) % 8));
        }
    }
    out
}

impl Wmma {
    fn shape(&self) -> String {
        let [m, n, k] = self.mnk;
        format!("m{m}n{n}k{k}")
    }

    fn types(&self) -> String {
        let (a, c) = (self.a.name(), self.c.name());
        if self.a == Ty::F16 { format!("{c}.{c}") } else { format!("{c}.{a}.{a}.{c}") }
    }

    fn text(&self) -> String {
        let Wmma { mnk: [m, n, k], a, c, layouts: [la, lb, lc], shared } = *self;
        let (na, nb) = match a {
            Ty::F16 => (8, 8),
            _ => (m * k / 32 / a.per(), k * n / 32 / a.per()),
        };
        let nc = m * n / 32 / if c == Ty::F16 { 2 } else { 1 };
        let reg = |ty: Ty| if ty == Ty::F64 { ".b64" } else { ".b32" };
        let list = |name: &str, n: usize| (0..n).map(|i| format!("%{name}{i}")).collect::<Vec<_>>().join(",");
        let lead = |layout: &str, rows: usize, cols: usize| if layout == "row" { cols } else { rows };
        let space = if shared { ".shared" } else { ".global" };
        let op = if a == Ty::B1 { ".xor.popc" } else { "" };
        // Elements of f16 fragments are negated one by one, in A and in B: the product stays what it was.
        let negate = |name: &str, n: usize| -> String {
            match a {
                Ty::F16 => (0..n).map(|i| format!("neg.f16x2 %{name}{i}, %{name}{i};\n")).collect(),
                _ => String::new(),
            }
        };
        let copy = if shared {
            "mov.u32 %r1, %tid.x; mov.u32 %r2, s;
             L: setp.ge.u32 %p, %r1, 512; @%p bra E;
             mul.wide.u32 %rd8, %r1, 4; add.u64 %rd9, %rd1, %rd8; ld.global.b32 %r3, [%rd9];
             shl.b32 %r4, %r1, 2; add.u32 %r4, %r4, %r2; st.shared.b32 [%r4], %r3; add.u32 %r1, %r1, 32; bra L; E:
             bar.warp.sync -1;"
        } else {
            ""
        };
        format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n
            .visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3) {{
            .shared .align 32 .b8 s[2048];
            .reg {ra} %A<9>; .reg {ra} %B<9>; .reg {rc} %C<9>; .reg {rc} %D<9>; .reg .b64 %rd<10>; .reg .b32 %r<9>; .reg .pred %p;
            ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; ld.param.u64 %rd3, [p2]; ld.param.u64 %rd4, [p3];
            {copy}
            wmma.load.a.sync.aligned.{la}.{shape}{space}.{a} {{{rega}}}, [{from_a}], {sa};
            wmma.load.b.sync.aligned.{lb}.{shape}.{a} {{{regb}}}, [%rd2], {sb};
            wmma.load.c.sync.aligned.{lc}.{shape}.global.{c} {{{regc}}}, [%rd3], {sc};
            {neg_a}{neg_b}
            wmma.mma{op}.sync.aligned.{la}.{lb}.{shape}.{types} {{{regd}}}, {{{rega}}}, {{{regb}}}, {{{regc}}};
            wmma.store.d.sync.aligned.{lc}.{shape}.global.{c} [%rd4], {{{regd}}};
            ret; }}",
            shape = self.shape(),
            types = self.types(),
            ra = reg(a),
            rc = reg(c),
            a = a.name(),
            c = c.name(),
            rega = list("A", na),
            regb = list("B", nb),
            regc = list("C", nc),
            regd = list("D", nc),
            from_a = if shared { "s" } else { "%rd1" },
            sa = lead(la, m, k),
            sb = lead(lb, k, n),
            sc = lead(lc, m, n),
            neg_a = negate("A", na),
            neg_b = negate("B", nb),
        )
    }

    /// Runs it, and compares with sums in integers.
    fn check(&self) {
        let Wmma { mnk: [m, n, k], a, c, layouts, .. } = *self;
        let [la, lb, lc] = layouts;
        let mut r = Rng((m + k) as u64);
        let mut fill = |ty: Ty, count: usize| (0..count).map(|_| ty.sample(&mut r)).collect::<Vec<i64>>();
        let (ma, mb, mc) = (fill(a, m * k), fill(a, k * n), fill(c, m * n));
        let rig = rig_of(&self.text(), 90);
        let mut image = stored(a, m, k, la, &ma);
        image.resize(2048, 0);
        let (pa, pb) = (rig.upload(&image), rig.upload(&stored(a, k, n, lb, &mb)));
        let (pc, pd) = (rig.upload(&stored(c, m, n, lc, &mc)), rig.alloc(8 * (m * n) as u64));
        rig.run(1, 32, &[pa, pb, pc, pd]);
        let got: Vec<u8> = rig.download(pd, m * n * c.bits() / 8);
        let (shape, types) = (self.shape(), self.types());
        for row in 0..m {
            for col in 0..n {
                let at = if lc == "row" { row * n + col } else { col * m + row };
                let size = c.bits() / 8;
                let bits = got[at * size..][..size].iter().rev().fold(0u64, |w, &b| w << 8 | u64::from(b));
                let product = |x: i64, y: i64| if a == Ty::B1 { x ^ y } else { x * y };
                let want = (0..k).fold(mc[row * n + col], |s, l| s + product(ma[row * k + l], mb[l * n + col]));
                assert_eq!(c.decode(bits), want as f64, "{shape} {types} {layouts:?}: {row}, {col}");
            }
        }
    }
}

fn wmma(mnk: [usize; 3], a: Ty, c: Ty, layouts: [&'static str; 3], shared: bool) {
    Wmma { mnk, a, c, layouts, shared }.check();
}

#[test]
fn warp_level_matrices() {
    use Ty::{B1, BF16, F16, F32, F64, S4, S8, S32, TF32, U4, U8};
    let big = [[16, 16, 16], [32, 8, 16], [8, 32, 16]];
    for (i, layouts) in
        [["row", "col", "row"], ["col", "row", "col"], ["row", "row", "row"], ["col", "col", "col"]].iter().enumerate()
    {
        for mnk in big {
            wmma(mnk, F16, F32, *layouts, i == 0);
            wmma(mnk, F16, F16, *layouts, i == 1);
            wmma(mnk, BF16, F32, *layouts, false);
            wmma(mnk, S8, S32, *layouts, false);
            wmma(mnk, U8, S32, *layouts, false);
        }
        wmma([16, 16, 8], TF32, F32, *layouts, false);
        wmma([8, 8, 4], F64, F64, *layouts, false);
    }
    for layout in ["row", "col"] {
        wmma([8, 8, 32], S4, S32, ["row", "col", layout], false);
        wmma([8, 8, 32], U4, S32, ["row", "col", layout], false);
        wmma([8, 8, 128], B1, S32, ["row", "col", layout], false);
    }
}
