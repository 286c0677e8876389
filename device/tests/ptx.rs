//! What the device library becomes in PTX: facts that on a GPU would show only as a hang, a wrong
//! answer or a slow kernel. Instructions are those of the stock generator.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{ARCHS, build, fixture};
use std::collections::BTreeMap;

/// The instructions of an entry, without comments, labels and directives.
fn instructions(sm: u32, entry: &str) -> Vec<&'static str> {
    let ptx = fixture().ptx(sm);
    let from = ptx.find(&format!(".entry {entry}(")).unwrap_or_else(|| panic!("no entry {entry}"));
    let body = &ptx[from..];
    let body = &body[body.find("\n{").unwrap()..body.find("\n}").unwrap()];
    body.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with(['.', '/', '{', '}', '$'])).collect()
}

/// How many instructions of an entry begin with `prefix`, a predicate aside.
fn count(sm: u32, entry: &str, prefix: &str) -> usize {
    instructions(sm, entry).iter().filter(|l| opcode(l).starts_with(prefix)).count()
}

fn opcode(line: &str) -> &str {
    let line = match line.strip_prefix('@') {
        Some(rest) => rest.split_once(char::is_whitespace).map_or("", |(_, l)| l),
        None => line,
    };
    line.trim_start().split(|c: char| c.is_whitespace() || c == ';').next().unwrap_or("")
}

fn expect(entry: &str, counts: &[(&str, usize)]) {
    for sm in ARCHS {
        for &(prefix, n) in counts {
            assert_eq!(count(sm, entry, prefix), n, "{entry}, sm_{sm}: {prefix}");
        }
    }
}

#[test]
fn collectives_are_not_copied_into_divergent_branches() {
    if common::other_generator() {
        return;
    }
    expect("barrier_between_branches", &[("bar", 1)]);
    expect("barrier_in_loop", &[("bar", 1)]);
    expect("shuffle_between_branches", &[("shfl", 1)]);
    expect("reduction_for_one_lane", &[("shfl", 5)]);
    expect("vote_between_branches", &[("vote", 1)]);
    expect("warp_barrier_between_branches", &[("bar.warp.sync", 1)]);
    expect("block_reduction_between_branches", &[("bar", 2), ("shfl", 10)]);
    expect("helpers_between_branches", &[("bar", 2), ("shfl", 10)]);
    expect("counting_barriers", &[("bar", 3)]);
    expect("tile", &[("bar", 2)]);
    expect("grid_rounds", &[("bar", 2), ("atom.acq_rel.gpu.global.add.u32", 1), ("ld.acquire.gpu.global.b32", 1)]);
    for sm in ARCHS {
        assert_eq!(count(sm, "dependent", "griddepcontrol.wait"), usize::from(sm >= 90), "sm_{sm}");
        assert_eq!(count(sm, "dependent", "griddepcontrol.launch_dependents"), usize::from(sm >= 90), "sm_{sm}");
        // What may still be written when the kernel begins must not take the read-only path, nor come before the wait.
        let dependent = instructions(sm, "dependent");
        let at = |prefix: &str| dependent.iter().position(|l| opcode(l).starts_with(prefix));
        assert_eq!((count(sm, "dependent", "ld.global"), count(sm, "dependent", "ld.global.nc")), (2, 1), "sm_{sm}");
        assert!(at("griddepcontrol.wait") < at("ld.global.b32"), "sm_{sm}");
    }
}

#[test]
fn memory_accesses_stay_on_their_side_of_a_collective() {
    if common::other_generator() {
        return;
    }
    let order = |entry: &str, wanted: &[&str]| {
        for sm in ARCHS {
            let all = instructions(sm, entry);
            let mut from = 0;
            for w in wanted {
                let at = all[from..].iter().position(|l| opcode(l).starts_with(w));
                from += at
                    .unwrap_or_else(|| panic!("{entry}, sm_{sm}: no {w} after line {from} of\n{}", all.join("\n")))
                    + 1;
            }
        }
    };
    order("barrier_between_branches", &["st.global", "bar", "ld.global", "st.global"]);
    order("warp_barrier_between_branches", &["st.shared", "bar.warp.sync", "ld.shared", "st.global"]);
    order("reduction_for_one_lane", &["shfl", "shfl", "shfl", "shfl", "shfl", "st.global"]);
    order("block_reduction_between_branches", &["bar", "st.shared", "bar", "ld.shared"]);
    order(
        "last_block",
        &["st.relaxed.gpu", "fence.acq_rel.gpu", "atom.acq_rel.gpu", "st.shared", "bar", "ld.shared", "ld.relaxed.gpu"],
    );
}

#[test]
fn memory_is_reached_in_its_state_space_and_in_wide_accesses() {
    if common::other_generator() {
        return;
    }
    expect(
        "wide_global",
        &[("ld.global.nc.v4", 2), ("ld.global.nc.v2", 1), ("ld.global.v4", 1), ("st.global.v4", 2), ("st.global", 3)],
    );
    expect(
        "streamed",
        &[
            ("ld.global.nc.L1::no_allocate.v4.b32", 2),
            ("ld.global.nc.L1::no_allocate.v2.b32", 1),
            ("ld.global.L1::evict_first.v4.b32", 1),
            ("prefetch.global.L2", 1),
        ],
    );
    expect(
        "shared_vectors",
        &[("st.shared.v4.b32", 3), ("ld.shared.v4.b32", 2), ("ld.shared.v2.b32", 2), ("st.shared.v2.b32", 1)],
    );
    expect(
        "hinted",
        &[
            ("ld.global.nc.v4.b32", 1),
            ("ld.global.nc.L1::no_allocate.v4.b32", 1),
            ("ld.global.cg", 2),
            ("ld.global.cs", 2),
            ("ld.global.L1::evict_first.v4.b32", 1),
            ("ld.global.L1::evict_last.b64", 1),
            ("st.global.cg", 3),
            ("st.global.cs", 2),
            ("st.global.wt.v4.b32", 1),
            ("st.global.L1::evict_first.v4.b32", 1),
            ("st.global.L1::evict_last.v4.b32", 1),
            ("prefetch.global.L1", 1),
        ],
    );
    for sm in ARCHS {
        let policies = if sm >= 80 { 2 } else { 0 };
        assert_eq!(count(sm, "hinted", "ld.global.L2::cache_hint"), policies);
        assert_eq!(count(sm, "hinted", "st.global.L2::cache_hint"), policies);
    }
    expect("constants", &[("ld.const.b32", 3), ("ld.const.b64", 3), ("ld.global", 0)]);
    expect("tile", &[("ld.shared", 32), ("st.shared", 2), ("fma.rn.f32", 16), ("ld.global.nc.b32", 2)]);
    expect("shared_widths", &[("ld.shared", 9), ("st.shared", 9)]);
    expect("dynamic_shared", &[("ld.shared", 2), ("st.shared", 2)]);
    for sm in ARCHS {
        let ptx = fixture().ptx(sm);
        let externs: Vec<&str> = ptx.lines().filter(|l| l.contains(".extern .func")).collect();
        let of_driver = |l: &&str| l.contains("vprintf") || l.contains("__assertfail");
        assert!(externs.iter().all(of_driver), "sm_{sm}: the link-time optimisation did not run: {externs:?}");
        // The two functions that print have some.
        assert_eq!(ptx.matches(".local .align").count(), 2, "sm_{sm}: something lives in local memory");
        for line in ptx.lines().map(str::trim) {
            let op = opcode(line);
            for (mnemonic, rest) in [("ld.", op.strip_prefix("ld.")), ("st.", op.strip_prefix("st."))] {
                let space = rest.map(|r| r.split('.').next().unwrap_or(""));
                if let Some(
                    "b8" | "b16" | "b32" | "b64" | "u8" | "u16" | "u32" | "u64" | "f32" | "f64" | "s32" | "v2" | "v4",
                ) = space
                {
                    panic!("sm_{sm}: `{line}` is a generic {mnemonic}");
                }
            }
        }
    }
}

#[test]
fn arithmetic_is_the_instruction_that_it_is_named_after() {
    if common::other_generator() {
        return;
    }
    expect(
        "exact",
        &[
            ("fma.rn.f32", 1),
            ("fma.rn.f64", 1),
            ("sqrt.rn.f32", 1),
            ("max.f32", 1),
            ("min.f32", 1),
            ("cvt.rni.f32", 1),
            ("cvt.rmi.f32", 1),
            ("cvt.rpi.f32", 1),
            ("cvt.rzi.f32", 1),
            ("cvt.rni.s32", 1),
        ],
    );
    // Four turns at a time, and the rest.
    expect("unrolled", &[("fma.rn.f32", 5)]);
    expect("bytes", &[("dp4a.s32.s32", 1), ("dp4a.u32.u32", 1), ("prmt.b32", 1)]);
    for op in
        ["ex2.approx.f32", "lg2.approx.f32", "rsqrt.approx.f32", "rcp.approx.f32", "sqrt.approx.f32", "tanh.approx.f32"]
    {
        assert!(ARCHS.iter().all(|&sm| count(sm, "approximate", op) >= 1), "{op}");
    }
    for sm in ARCHS {
        // Only what has it in its name flushes to zero.
        let named = "ex2.approx.ftz.f32";
        let flushing = fixture().ptx(sm).lines().filter(|l| opcode(l.trim()).contains(".ftz")).count();
        assert_eq!((flushing, count(sm, "approximate", named)), (1, 1), "sm_{sm} flushes to zero");
        let at_least_80 = usize::from(sm >= 80);
        assert_eq!(count(sm, "integer_reductions", "redux.sync"), 5 * at_least_80 + at_least_80, "sm_{sm}");
        assert_eq!(count(sm, "narrow", "cvt.rn.f16x2.f32"), at_least_80);
        assert_eq!(count(sm, "narrow", "cvt.rn.bf16x2.f32"), at_least_80);
        assert!(count(sm, "widen", "cvt.f32.f16") >= 1);
    }
}

#[test]
fn atomics_keep_order_and_scope() {
    if common::other_generator() {
        return;
    }
    expect(
        "global_atomics",
        &[
            ("atom.relaxed.gpu.global.add.u32", 1),
            ("atom.acquire.gpu.global.min.u32", 1),
            ("atom.release.sys.global.max.u32", 1),
            ("atom.acq_rel.gpu.global.and.b32", 1),
            ("fence.sc.gpu", 1),
            ("atom.acq_rel.gpu.global.or.b32", 1),
            ("atom.relaxed.sys.global.xor.b32", 1),
            ("atom.relaxed.gpu.global.add.s32", 1),
            ("atom.relaxed.gpu.global.add.u64", 1),
            ("atom.relaxed.gpu.global.add.f32", 1),
            ("atom.acq_rel.gpu.global.exch.b32", 1),
            ("ld.acquire.gpu.global.b32", 1),
            ("atom.acq_rel.gpu.global.cas.b32", 1),
        ],
    );
    expect(
        "shared_atomics",
        &[
            ("st.relaxed.cta.shared.b32", 1),
            ("atom.relaxed.cta.shared.add.u32", 1),
            ("atom.acq_rel.cta.shared.or.b32", 1),
            ("ld.acquire.cta.shared.b32", 1),
        ],
    );
    for sm in ARCHS {
        let (new, old) = (usize::from(sm >= 90), usize::from(sm < 90));
        let vectors = usize::from(sm >= 100);
        for (prefix, n) in [
            ("atom.relaxed.gpu.global.add.noftz.f16x2", 1),
            ("atom.relaxed.gpu.global.add.noftz.f16", 1 + 1),
            ("atom.relaxed.cta.shared.add.noftz.f16x2", 1),
            ("atom.acq_rel.gpu.global.add.noftz.bf16", 2 * new),
            ("atom.acq_rel.gpu.global.cas.b32", old),
            ("atom.acq_rel.gpu.global.cas.b16", old),
            ("atom.acq_rel.cta.shared.cas.b16", old),
            ("red.relaxed.gpu.global.add.v2.f32", vectors),
            ("red.relaxed.sys.global.add.v4.f32", vectors),
            ("atom.relaxed.gpu.global.add.f32", 2 - 2 * vectors),
            ("atom.relaxed.sys.global.add.f32", 4 - 4 * vectors),
        ] {
            assert_eq!(count(sm, "narrow_atomics", prefix), n, "sm_{sm}: {prefix}");
        }
    }
    expect("fences", &[("fence.acq_rel.cta", 1), ("fence.acq_rel.gpu", 1), ("fence.sc.sys", 1), ("st.global", 4)]);
}

#[test]
fn the_manifest_says_what_the_source_says() {
    let m = &fixture().manifest;
    assert_eq!(m.library, "all-device");
    let kernel = m.kernel("values").unwrap();
    assert_eq!((kernel.family.as_str(), kernel.block, kernel.min_blocks), ("memory", [32, 1, 1], 1));
    assert_eq!(kernel.summary, "y = scale · x + shift, for every kind of value argument.");
    let args: Vec<_> = kernel
        .args
        .iter()
        .map(|a| (a.name.as_str(), a.ty.as_str(), a.kind.as_str(), a.element.as_str(), a.size, a.align, a.offset))
        .collect();
    assert_eq!(
        args,
        [
            ("x", "In<[f32; 2]>", "in", "[f32; 2]", 8, 8, 0),
            ("y", "InOut<f32>", "inout", "f32", 8, 8, 8),
            ("p", "Affine", "struct", "Affine", 24, 8, 16),
            ("a", "u8", "scalar", "u8", 1, 1, 40),
            ("b", "i16", "scalar", "i16", 2, 2, 42),
            ("c", "u32", "scalar", "u32", 4, 4, 44),
            ("d", "i64", "scalar", "i64", 8, 8, 48),
            ("e", "f64", "scalar", "f64", 8, 8, 56),
            ("f", "f16", "scalar", "f16", 2, 2, 64),
            ("g", "bf16", "scalar", "bf16", 2, 2, 66),
        ]
    );
    let shared: BTreeMap<_, _> =
        m.kernels.iter().map(|k| (k.name.as_str(), (k.static_shared, k.dynamic_shared_used))).collect();
    assert_eq!((shared["tile"], shared["dynamic_shared"], shared["values"]), ((2048, false), (0, true), (0, false)));
    assert!(m.kernels.iter().all(|k| k.local_bytes == 0));
}

#[test]
fn tiles_stay_in_registers_and_take_the_collectives_that_the_documentation_counts() {
    if common::other_generator() {
        return;
    }
    // A ballot, `any`, `all` and the vote of `match_all`; a match; a barrier.
    for (entry, sums, reductions) in [("tiles_1", 0, 0), ("tiles_4", 2, 2), ("tiles_16", 4, 4), ("tiles_32", 5, 5)] {
        for sm in ARCHS {
            // Four shuffles, that of `match_all`, the reduction by closure, two scans and one more.
            let integers = if sm >= 80 { 0 } else { 6 * reductions };
            let shuffles = 4 + 1 + sums + 2 * sums + 1 + integers;
            assert_eq!(count(sm, entry, "shfl.sync"), shuffles, "{entry}, sm_{sm}");
            assert_eq!(count(sm, entry, "redux.sync"), if sm >= 80 { 6 } else { 0 }, "{entry}, sm_{sm}");
        }
        expect(entry, &[("vote.sync", 4), ("match.any.sync", 1), ("bar.warp.sync", 1)]);
    }
    // Two scans, a reduction and a scan of four words; each has two barriers, as `broadcast` has, and votes have one.
    expect("block_tiles", &[("bar", 2 * 5 + 3 + 1), ("shfl", 11 + 12 + 10 + 4 * 11)]);
}

/// Each row of the table in `math` has functions and costs, and functions and costs of fast forms: the instructions of one call.
#[test]
fn functions_cost_what_the_documentation_counts() {
    if common::other_generator() {
        return;
    }
    let cost = |name: &str| {
        let calls = |sm| instructions(sm, &format!("cost_{name}")).len();
        ARCHS.map(|sm| calls(sm) - instructions(sm, "cost_nothing").len()).into_iter().max().unwrap()
    };
    let (mut counted, mut wrong) = (0, Vec::new());
    for row in include_str!("../src/math.rs").lines().filter(|l| l.starts_with("//! | [`")) {
        let cells: Vec<&str> = row.split('|').skip(1).collect();
        for pair in cells.chunks_exact(2) {
            let names = pair[0].split(['[', ']']).skip(1).step_by(2).map(|n| n.trim_matches('`'));
            for (name, says) in names.zip(pair[1].split(',')) {
                let says: usize = says.trim().parse().unwrap_or_else(|_| panic!("{row}"));
                if cost(name) != says {
                    wrong.push(format!("{name}: {} instructions, {says} in the documentation", cost(name)));
                }
                counted += 1;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(counted >= 20, "{counted}");
}

#[test]
fn copies_barriers_and_products_are_the_instructions_of_their_architecture() {
    if common::other_generator() {
        return;
    }
    for sm in ARCHS {
        let counts = |entry: &str, wanted: &[(&str, usize)]| {
            for &(prefix, n) in wanted {
                assert_eq!(count(sm, entry, prefix), n, "{entry}, sm_{sm}: {prefix}");
            }
        };
        let new = usize::from(sm >= 80);
        counts("own_copies", &[("cp.async.ca", 2 * new), ("cp.async.commit", 2 * new), ("cp.async.wait", 2 * new)]);
        counts("own_copies", &[("st.shared", 2 - 2 * new), ("ld.shared", 2)]);
        counts("ring", &[("st.shared.v4", 4 - 4 * new), ("bar", 3)]);
        counts("split_barriers", &[("mbarrier.init", 2 * new), ("cp.async.mbarrier.arrive", new)]);
        counts("product_f16", &[("mma.sync", 2 - new), ("shfl", 0)]);
        counts("product_i8", &[("mma.sync", 4 - 3 * new), ("shfl", 0)]);
        counts("product_bf16", &[("mma.sync", new), ("shfl", 32 - 32 * new)]);
        let native = usize::from(sm >= 100);
        for entry in ["product_e4m3", "product_e5m2"] {
            counts(entry, &[("mma.sync", if sm >= 80 { 2 - native } else { 4 }), ("shfl", 0)]);
            counts(entry, &[("cvt.rn.f16x2.e", if sm >= 90 { 12 - 12 * native } else { 0 })]);
        }
        counts("rows_product", &[("ldmatrix.sync.aligned.m8n8.x4", 1), ("ldmatrix.sync.aligned.m8n8.x2.trans", 1)]);
    }
}

#[test]
fn ptxas_assembles_every_architecture_where_it_is_found() {
    if common::other_generator() {
        return;
    }
    let Some(ptxas) = warpsmith_builder::ptxas::find() else {
        println!("ptxas was not found; nothing assembled");
        return;
    };
    let newer = build(&[86, 87, 89, 100, 103, 121], &[]);
    for (sm, ptx) in newer.images.iter().chain(&fixture().images) {
        let resources =
            ptxas.assemble_text(ptx, sm.to_string().parse().unwrap()).unwrap_or_else(|e| panic!("sm_{sm}: {e}"));
        assert_eq!(resources.len(), newer.manifest.kernels.len(), "sm_{sm}");
        for r in &resources {
            assert_eq!((r.spill_stores, r.spill_loads), (0, 0), "sm_{sm}: {} spills", r.kernel);
        }
    }
}
