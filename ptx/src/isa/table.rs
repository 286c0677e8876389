//! The table: which form needs which PTX ISA version and which architecture.

use crate::ast::Target;

/// A demand that a form of an instruction makes.
pub(super) struct Rule {
    /// Opcodes, separated by `|`.
    pub opcodes: &'static str,
    /// Conditions, all of which must hold, separated by blanks; empty for every form. A condition
    /// is a list of alternatives separated by `|`, the whole negated by a leading `!`: `word` is a
    /// modifier, `word*` a modifier's beginning, `a.b` two modifiers that follow each other, `#3`
    /// the number of operands, `_` that the first operand is `_`.
    pub when: &'static str,
    /// What messages call it.
    pub feature: &'static str,
    /// Least PTX ISA version.
    pub isa: (u32, u32),
    /// Least architecture.
    pub sm: u32,
    /// Architecture-specific features: which targets have it.
    pub only: Option<fn(&Target) -> bool>,
}

const fn rule(opcodes: &'static str, when: &'static str, feature: &'static str, isa: (u32, u32), sm: u32) -> Rule {
    Rule { opcodes, when, feature, isa, sm, only: None }
}

const fn only(
    opcodes: &'static str,
    when: &'static str,
    feature: &'static str,
    isa: (u32, u32),
    targets: fn(&Target) -> bool,
) -> Rule {
    Rule { opcodes, when, feature, isa, sm: 0, only: Some(targets) }
}

// Targets with architecture-specific (`a`) or family-specific (`f`) features.

fn sm_90a(t: &Target) -> bool {
    t.sm == 90 && t.suffix == Some('a')
}

fn specific_from_100(t: &Target) -> bool {
    t.sm >= 100 && t.suffix.is_some()
}

fn specific_from_90(t: &Target) -> bool {
    sm_90a(t) || specific_from_100(t)
}

fn exact_from_100(t: &Target) -> bool {
    t.sm >= 100 && t.suffix == Some('a')
}

fn exact_100(t: &Target) -> bool {
    matches!(t.sm, 100 | 103) && t.suffix == Some('a')
}

fn family_100(t: &Target) -> bool {
    matches!(t.sm, 100 | 103) && t.suffix.is_some()
}

fn family_100_110(t: &Target) -> bool {
    matches!(t.sm, 100 | 101 | 103 | 110) && t.suffix.is_some()
}

fn family_120(t: &Target) -> bool {
    matches!(t.sm, 120 | 121) && t.suffix.is_some()
}

/// Opcodes that need nothing and have no form of their own, separated by `|`.
pub(super) static OTHERS: &[&str] = &[
    "bmsk|szext|fns|ret|exit|trap|brkpt|bra|call|membar|pmevent|lop3|tex|tld4|txq|suld|sust|sured|suq|prefetchu",
    "vadd|vsub|vabsdiff|vmin|vmax|vshl|vshr|vmad|vset|vadd2|vsub2|vavrg2|vabsdiff2|vmin2|vmax2|vset2",
    "vadd4|vsub4|vavrg4|vabsdiff4|vmin4|vmax4|vset4",
];

/// Special registers, without `%` and selector.
pub(super) static SPECIAL: &[(&str, (u32, u32), u32)] = &[
    ("clock_hi", (5, 0), 20),
    ("globaltimer|globaltimer_lo|globaltimer_hi", (3, 1), 30),
    ("dynamic_smem_size|total_smem_size", (4, 1), 20),
    ("aggr_smem_size", (8, 1), 90),
    (
        "clusterid|nclusterid|cluster_ctaid|cluster_nctaid|cluster_ctarank|cluster_nctarank|is_explicit_cluster",
        (7, 8),
        90,
    ),
    ("pm4|pm5|pm6|pm7", (3, 0), 20),
    ("current_graph_exec", (8, 0), 50),
    ("pm0_64|pm1_64|pm2_64|pm3_64|pm4_64|pm5_64|pm6_64|pm7_64", (4, 0), 50),
    (
        "reserved_smem_offset_begin|reserved_smem_offset_end|reserved_smem_offset_cap|reserved_smem_offset_0|reserved_smem_offset_1",
        (7, 6),
        80,
    ),
];

/// The demands on instructions.
#[rustfmt::skip]
pub(super) static RULES: &[Rule] = &[
    // Integers and bits.
    rule("add|sub|mad|madc", "cc b64|u64|s64", ".cc with 64bit type", (4, 3), 0),
    rule("mad", "cc", "mad.cc", (3, 0), 0),
    rule("madc", "", "madc", (3, 0), 0),
    rule("add|min|max", "u16x2|s16x2", "integer arithmetic on .u16x2 and .s16x2", (8, 0), 90),
    rule("min|max", "relu s32|s16x2", ".relu on integers", (8, 0), 90),
    rule("bmsk", "", "bmsk", (7, 6), 70),
    rule("szext", "", "szext", (7, 6), 70),
    rule("fns", "", "fns", (6, 0), 30),
    rule("lop3", "", "lop3", (4, 3), 50),
    rule("lop3", "and|or|xor", "lop3.<BoolOp>", (8, 2), 70),
    rule("shf", "", "shf", (3, 1), 32),
    rule("dp4a", "", "dp4a", (5, 0), 61),
    rule("dp2a", "", "dp2a", (5, 0), 61),
    rule("vadd2|vsub2|vavrg2|vabsdiff2|vmin2|vmax2|vset2", "", "SIMD video instructions", (3, 0), 30),
    rule("vadd4|vsub4|vavrg4|vabsdiff4|vmin4|vmax4|vset4", "", "SIMD video instructions", (3, 0), 30),

    // Floating point.
    rule("add|sub|mul|fma|setp|set", "f16|f16x2", "f16 arithmetic and compare instructions", (4, 2), 53),
    rule("add|sub|mul|setp|set", "bf16|bf16x2", "bf16 arithmetic and compare instructions", (7, 8), 90),
    rule("set", "u16.f16|u32.f16|s16.f16|s32.f16|u16.f16x2|u32.f16x2|s16.f16x2|s32.f16x2", "set.{u,s}{16,32}.f16", (6, 5), 53),
    rule("add|sub|mul|fma", "f32x2", ".f32x2", (8, 6), 100),
    rule("add|sub|fma", "f32.f16|f32.bf16", "mixed precision arithmetic", (8, 6), 100),
    rule("fma", "bf16|bf16x2", "fma with .bf16 or .bf16x2", (7, 0), 80),
    rule("fma", "relu", ".relu", (7, 0), 80),
    rule("fma", "oob", ".oob", (8, 1), 90),
    rule("neg", "f16|f16x2", "neg.f16 or neg.f16x2", (6, 0), 53),
    rule("abs", "f16|f16x2", "abs.f16 or abs.f16x2", (6, 5), 53),
    rule("neg|abs", "bf16|bf16x2", ".bf16", (7, 0), 80),
    rule("min|max", "f16|f16x2|bf16|bf16x2", "min and max with .f16 or .bf16", (7, 0), 80),
    rule("min|max", "NaN", ".NaN", (7, 0), 80),
    rule("min|max", "xorsign", ".xorsign", (7, 2), 86),
    rule("min|max", "f32 #4", "min and max with three inputs", (8, 8), 100),
    rule("rsqrt", "approx ftz f64", "rsqrt.approx.ftz.f64", (4, 0), 0),
    rule("ex2", "f16|f16x2", "ex2.f16/f16x2", (7, 0), 75),
    rule("ex2", "bf16|bf16x2", "ex2.bf16/bf16x2", (7, 8), 90),
    rule("tanh", "", "tanh", (7, 0), 75),
    rule("tanh", "bf16|bf16x2", "tanh.bf16/bf16x2", (7, 8), 90),

    // Conversions.
    rule("cvt", "pack", "cvt.pack", (6, 5), 72),
    rule("cvt", "pack s4|u4|s2|u2", "cvt.pack with sub-byte types", (6, 5), 75),
    rule("cvt", "f16x2.f32", "cvt.f16x2.f32", (7, 0), 80),
    rule("cvt", "bf16x2.f32", "cvt.bf16x2.f32", (7, 0), 80),
    rule("cvt", "bf16.f32", "cvt.bf16.f32", (7, 0), 80),
    rule("cvt", "f32.bf16", "cvt.f32.bf16", (7, 1), 80),
    rule("cvt", "bf16 !bf16.f32 !f32.bf16", "cvt with .bf16", (7, 8), 90),
    rule("cvt", "relu", ".relu", (7, 0), 80),
    rule("cvt", "satfinite f16.f32", ".satfinite on cvt.f16.f32", (8, 1), 70),
    rule("cvt", "satfinite bf16.f32|f16x2.f32|bf16x2.f32|tf32.f32", ".satfinite", (8, 1), 80),
    rule("cvt", "tf32", "cvt.tf32.f32", (7, 0), 80),
    rule("cvt", "tf32 rn|rz", "cvt with .tf32.f32.rn", (7, 8), 90),
    rule("cvt", "tf32 rn|rz satfinite", ".satfinite on cvt.tf32.f32.rn", (8, 6), 100),
    rule("cvt", "e4m3x2|e5m2x2", "cvt with FP8 types", (7, 8), 89),
    only("cvt", "e2m3x2|e3m2x2|e2m1x2", "cvt with FP6/FP4 types", (8, 6), specific_from_100),
    only("cvt", "ue8m0x2", "cvt with .ue8m0x2", (8, 6), specific_from_100),
    only("cvt", "s2f6x2", "cvt with .s2f6x2", (9, 1), exact_from_100),
    only("cvt", "rs", ".rs", (8, 7), exact_100),

    // Memory.
    rule("mov|ld|ldu|st", "b128", "Type .b128", (8, 3), 70),
    rule("atom", "b128", "atom with .b128", (8, 3), 90),
    rule("ld|st", "weak", ".weak", (6, 0), 70),
    rule("ld|st|atom|red", "relaxed|acquire|release|acq_rel", "memory ordering", (6, 0), 70),
    rule("ld|st", "mmio", ".mmio", (8, 2), 70),
    rule("ld|st|atom|red", "cluster", ".cluster scope", (7, 8), 90),
    rule("ld|st|atom|red|cvta|isspacep", "shared::cta", "::cta", (7, 8), 0),
    rule("ld|st|atom|red|cvta|isspacep", "shared::cluster", "::cluster", (7, 8), 90),
    rule("ld|st|cvta|isspacep", "param::entry|param::func", ".param sub-qualifiers", (8, 3), 0),
    rule("ld", "nc", "ld.nc", (3, 1), 32),
    rule("ld|st", "L1::*", "cache eviction priority", (7, 4), 70),
    rule("ld", "L2::64B|L2::128B", "cache prefetching", (7, 4), 75),
    rule("ld", "L2::256B", "cache prefetching", (7, 4), 80),
    rule("ld|st|atom|red", "L2::cache_hint", ".L2::cache_hint", (7, 4), 80),
    rule("ld|st", "L2::evict_*", "level two cache eviction priority", (8, 8), 100),
    rule("ld|st", "v8", "256 bit wide load/store", (8, 8), 100),
    rule("ld|st", "v4 b64|u64|s64|f64", "256 bit wide load/store", (8, 8), 100),
    rule("st", "async", "st.async", (8, 1), 90),
    rule("st|red", "async mmio", "st.async/red.async with .mmio modifier", (8, 7), 100),
    rule("st", "bulk", "st.bulk", (8, 6), 100),
    rule("prefetch", "L2::*", "cache eviction priority on prefetch", (7, 4), 80),
    rule("prefetch", "tensormap", "prefetch.tensormap", (8, 0), 90),
    rule("applypriority|discard|createpolicy", "", "cache control", (7, 4), 80),
    rule("isspacep|cvta", "const", "cvta/isspacep with .const state space", (3, 1), 0),
    rule("isspacep|cvta", "param|param::entry", "cvta/isspacep with .param state space", (7, 7), 70),
    rule("mapa", "", "mapa", (7, 8), 90),
    rule("getctarank", "", "getctarank", (7, 8), 90),
    rule("istypep", "", "istypep", (4, 0), 30),
    rule("stacksave|stackrestore|alloca", "", "alloca", (7, 3), 52),
    only("tensormap", "replace", "tensormap.replace", (8, 3), specific_from_90),
    rule("tensormap", "cp_fenceproxy", "tensormap.cp_fenceproxy", (8, 3), 90),

    // Atomics and fences.
    rule("atom|red", "add f64", "double precision atomic add", (5, 0), 60),
    rule("atom|red", "add f16", "atom.add.f16", (6, 3), 70),
    rule("atom|red", "add f16x2", "atom.add.f16x2", (6, 2), 60),
    rule("atom|red", "bf16|bf16x2", "atom with .bf16 or .bf16x2", (7, 8), 90),
    rule("atom|red", "min|max|and|or|xor b64|u64|s64", "64 bit atomic min, max, and, or, xor", (3, 1), 32),
    rule("atom", "cas|exch b16", "16 bit atom.cas and atom.exch", (6, 3), 70),
    rule("atom|red", "cta|gpu|sys", "scopes on atomic operations", (5, 0), 60),
    rule("atom|red", "v2|v4|v8", "atomics with vector types", (8, 1), 90),
    rule("red", "async", "red.async", (8, 1), 90),
    rule("multimem", "", "multimem", (8, 1), 90),
    rule("multimem", "acc::*", "multimem with .acc", (8, 2), 90),
    rule("fence", "!proxy", "fence instruction", (6, 0), 70),
    rule("fence", "cluster", ".cluster scope", (7, 8), 90),
    rule("fence", "acquire|release !proxy|mbarrier_init", "fence.acquire and fence.release", (8, 6), 90),
    rule("fence", "mbarrier_init", ".mbarrier_init", (8, 0), 90),
    rule("fence", "proxy", "fence.proxy", (7, 5), 70),
    rule("fence", "proxy async|async::*|async.*", "fence.proxy.async", (8, 0), 90),
    rule("fence", "sync_restrict*", ".sync_restrict", (8, 6), 90),
    rule("fence", "proxy tensormap::generic|async::generic", "fence.proxy with unidirectional proxy fence", (8, 3), 90),
    rule("membar", "proxy", "membar.proxy", (7, 5), 60),

    // Barriers and warps.
    rule("bar|barrier", "cta", "barrier.cta", (7, 8), 0),
    rule("bar", "warp", "bar.warp.sync", (6, 0), 30),
    rule("barrier", "!cluster", "barrier", (6, 0), 30),
    rule("barrier", "cluster", "barrier.cluster", (7, 8), 90),
    rule("barrier", "cluster acquire|release|relaxed", "memory ordering on barrier.cluster", (8, 0), 90),
    rule("shfl", "", "shfl", (3, 0), 30),
    rule("shfl", "sync", "shfl.sync", (6, 0), 30),
    rule("vote", "sync", "vote.sync", (6, 0), 30),
    rule("match", "", "match.sync", (6, 0), 70),
    rule("activemask", "", "activemask", (6, 2), 30),
    rule("redux", "", "redux.sync", (7, 0), 80),
    only("redux", "f32", "redux.f32", (8, 6), family_100),
    rule("elect", "", "elect.sync", (8, 0), 90),
    rule("griddepcontrol", "", "griddepcontrol", (7, 8), 90),
    rule("nanosleep", "", "nanosleep", (6, 2), 70),
    only("setmaxnreg", "", "setmaxnreg", (8, 0), specific_from_90),
    rule("pmevent", "mask", "pmevent.mask", (3, 0), 0),
    rule("brx", "idx", "brx.idx", (6, 0), 30),
    rule("clusterlaunchcontrol", "", "clusterlaunchcontrol", (8, 6), 100),

    // Asynchronous copies.
    rule("cp", "async !bulk !mbarrier", "cp.async", (7, 0), 80),
    rule("cp", "async !bulk L2::*", "cp.async with cache operators", (7, 4), 80),
    rule("cp", "async mbarrier", "cp.async.mbarrier.arrive", (7, 0), 80),
    rule("cp", "async mbarrier shared::cta", "::cta", (7, 8), 80),
    rule("cp", "bulk", "cp.async.bulk", (8, 0), 90),
    rule("cp", "bulk shared::cta.global", "cp.async.bulk to .shared::cta", (8, 6), 90),
    rule("cp", "bulk cp_mask", ".cp_mask", (8, 6), 100),
    only("cp", "bulk tile::gather4 shared::cluster", "tile::gather4 to .shared::cluster", (8, 6), family_100_110),
    only("cp", "bulk cta_group::*", ".cta_group", (8, 6), family_100_110),
    rule("mbarrier", "", "mbarrier", (7, 0), 80),
    rule("mbarrier", "shared::cta", "::cta", (7, 8), 80),
    rule("mbarrier", "shared::cluster", "mbarrier on .shared::cluster", (8, 0), 90),
    rule("mbarrier", "arrive|arrive_drop !noComplete !expect_tx #3", "mbarrier.arrive with count argument", (7, 8), 90),
    rule("mbarrier", "test_wait parity", "mbarrier.test_wait.parity", (7, 1), 80),
    rule("mbarrier", "try_wait", "mbarrier.try_wait", (7, 8), 90),
    rule("mbarrier", "acquire|release|relaxed", "scopes on mbarrier operations", (8, 0), 80),
    rule("mbarrier", "cluster", ".cluster scope", (8, 0), 90),
    rule("mbarrier", "expect_tx|complete_tx", "mbarrier transaction counts", (8, 0), 90),
    rule("mbarrier", "arrive _", "mbarrier.arrive without result", (7, 1), 80),
    rule("mbarrier", "relaxed arrive|arrive_drop|test_wait|try_wait", ".relaxed on mbarrier", (8, 6), 90),

    // Matrices.
    rule("ldmatrix", "", "ldmatrix", (6, 5), 75),
    rule("ldmatrix|stmatrix", "shared::cta", "::cta", (7, 8), 75),
    only("ldmatrix", "m16n16|m8n16", "ldmatrix with .m16n16 or .m8n16", (8, 6), specific_from_100),
    rule("stmatrix", "", "stmatrix", (7, 8), 90),
    only("stmatrix", "m16n8", "stmatrix with .m16n8", (8, 6), specific_from_100),
    rule("movmatrix", "", "movmatrix", (7, 8), 75),
    rule("mma", "", "mma", (6, 4), 70),
    rule("mma", "m8n8k4 f64", "mma with .f64", (7, 0), 80),
    rule("mma", "m16n8k8", ".m16n8k8", (6, 5), 75),
    rule("mma", "bf16|tf32", "mma with .bf16 or .tf32", (7, 0), 80),
    rule("mma", "m16n8k16|m16n8k4|m16n8k32|m16n8k64|m16n8k128|m16n8k256", "mma shape", (7, 0), 80),
    rule("mma", "f64 m16n8k4|m16n8k8|m16n8k16", "mma with .f64 and shape .m16n8k*", (7, 8), 90),
    rule("mma", "m8n8k16|m8n8k32", "mma with integer types", (6, 5), 75),
    rule("mma", "m8n8k128", "mma with .b1", (7, 0), 75),
    rule("mma", "and", ".and on mma", (7, 1), 80),
    rule("mma", "e4m3|e5m2", "mma with FP8 floating point type", (8, 4), 89),
    rule("mma", "e4m3|e5m2 m16n8k16", "mma with FP8 floating point type and .m16n8k16", (8, 7), 89),
    rule("mma", "f16.e4m3|f16.e5m2", "mma with FP8 floating point type and .f16 accumulator", (8, 7), 89),
    only("mma", "kind::*", "mma with .kind", (8, 7), family_120),
    rule("mma", "sp", "Sparse MMA", (7, 1), 80),
    rule("mma", "sp::ordered_metadata", "mma.sp::ordered_metadata", (8, 5), 80),
    rule("wmma", "aligned", ".aligned modifier for wmma", (6, 3), 70),
    rule("wmma", "", "wmma", (6, 0), 70),
    rule("wmma", "shared::cta", "::cta", (7, 8), 70),
    rule("wmma", "s8|u8|s32", "wmma with integer types", (6, 3), 72),
    rule("wmma", "s4|u4|b1|m8n8k32|m8n8k128", "wmma with sub-byte types", (6, 3), 75),
    rule("wmma", "and", ".and on wmma", (7, 1), 80),
    rule("wmma", "bf16|tf32|f64", "wmma with .bf16, .tf32 or .f64", (7, 0), 80),
    only("wgmma", "", "wgmma", (8, 0), sm_90a),
    only("tcgen05", "", "tcgen05", (8, 6), family_100_110),
];
