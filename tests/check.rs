//! `warpsmith check` and `warpsmith profile` as a user meets them.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests are not seen as tests

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn warpsmith(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_warpsmith")).args(args).current_dir(ROOT).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The output of a call that must end with this code.
#[track_caller]
fn ends(args: &[&str], code: i32) -> (String, String) {
    let output = warpsmith(args);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{args:?}\n{out}\n{err}");
    assert!(!err.contains("panicked"), "{err}");
    (out, err)
}

#[track_caller]
fn json(args: &[&str], code: i32) -> Value {
    serde_json::from_str(&ends(args, code).0).unwrap()
}

/// The program with the planted defect; it has the driver linked in, as programs of this workspace do.
fn program() -> String {
    example("04_checked")
}

fn example(name: &str) -> String {
    let bin = Path::new(env!("CARGO_BIN_EXE_warpsmith"));
    let path = bin.with_file_name("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    assert!(path.exists(), "{}: `cargo build --examples` makes it", path.display());
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_clean_kernel_passes_with_a_summary() {
    let (out, _) = ends(&["check", "residual_add", "swiglu"], 0);
    for part in ["residual_add", "swiglu", "pass", "0 errors, 0 warnings"] {
        assert!(out.contains(part), "{part:?} is missing:\n{out}");
    }
    let found = json(&["check", "residual_add", "--shape", "n=257", "--sm", "sm_80", "--seeds", "3", "--json"], 0);
    assert_eq!(found["sm"], 80);
    assert_eq!((&found["kernels"][0]["cases"], &found["kernels"][0]["runs"]), (&1.into(), &3.into()));
    assert_eq!(found["findings"].as_array().unwrap().len(), 0);
    // 257 lanes of work in 2 blocks of 256 threads.
    assert!(found["kernels"][0]["lane_instructions"].as_u64().unwrap() > 257);
}

#[test]
fn a_clean_program_passes() {
    let (out, _) = ends(&["check", "--", &program()], 0);
    assert!(out.starts_with("engine: ") && out.contains("PASS\n") && out.contains("0 errors, 0 warnings"), "{out}");
}

/// By hand: 2 blocks of 64 threads over 100 floats: thread 36 of block 1 is the first to leave the 400 bytes.
#[test]
fn a_defect_is_found_on_its_line() {
    let program = program();
    // The program itself fails: its next call of the driver answers 700.
    let (out, err) = ends(&["check", "--", &program, "defect"], 1);
    for part in [
        "error[memory::out-of-bounds]",
        "in kernel `double`",
        "block (1,0,0), thread (36,0,0), lane 4",
        "at src/double.rs:9:13",
        "launched as grid (2,1,1) of blocks (64,1,1)",
        "launched by cuLaunchKernel",
        "memory allocated by cuMemAlloc",
        "replay: WARPSMITH_CHECK=all WARPSMITH_SM=90 WARPSMITH_SEED=0",
        "04_checked defect",
    ] {
        assert!(err.contains(part), "{part:?} is missing:\n{err}");
    }
    assert!(out.contains("src/double.rs:9") && out.contains("1 error"), "{out}");
    assert!(err.contains("ended with exit code 1"), "{err}");
}

/// The program ends well; what it copied at last nobody had written.
#[test]
fn errors_have_an_exit_code_of_their_own() {
    let (out, err) = ends(&["check", "--", &program(), "undefined"], 7);
    assert!(out.contains("PASS\n") && out.contains("1 error"), "{out}");
    for part in ["error[init::output]", "516 bytes", "4 undefined", "called by cuMemcpyDtoH", "replay: "] {
        assert!(err.contains(part), "{part:?} is missing:\n{err}");
    }
    ends(&["check", "--checks", "races,sync", "--", &program(), "undefined"], 0);
}

#[test]
fn findings_are_json_and_annotations() {
    let program = program();
    // The program's own output comes first.
    let (out, _) = ends(&["check", "--json", "--", &program, "defect"], 1);
    let found: Value = serde_json::from_str(&out[out.find('{').unwrap()..]).unwrap();
    assert_eq!(found["exit_code"], 1);
    let finding = &found["findings"][0];
    assert_eq!(finding["rule"], "memory::out-of-bounds");
    assert_eq!((&finding["severity"], &finding["count"]), (&"error".into(), &1.into()));
    assert_eq!(finding["place"], serde_json::json!({ "file": "src/double.rs", "line": 9, "column": 13 }));
    assert_eq!(finding["sites"][0]["thread"], serde_json::json!([36, 0, 0]));
    assert_eq!(finding["sites"][0]["ptx"]["text"], "ld.global.f32 %f1, [%rd3];");
    assert_eq!(finding["launch"]["grid"], serde_json::json!([2, 1, 1]));
    assert_eq!(finding["call"]["api"], "cuLaunchKernel");

    let (out, _) = ends(&["check", "--github", "--", &program, "defect"], 1);
    let line = out.lines().find(|l| l.starts_with("::error ")).unwrap();
    assert!(line.starts_with("::error file=src/double.rs,line=9,col=13,title=memory%3A%3Aout-of-bounds::"), "{line}");
    assert!(line.contains("%0A"), "one line: {line}");
}

/// 128 floats. A leak is a warning: the exit code is the program's.
#[test]
fn leaks_are_findings_in_every_form() {
    let program = program();
    let message = "512 bytes of device memory were not freed before the process ended";
    let (out, err) = ends(&["check", "--github", "--", &program, "leak"], 0);
    assert_eq!(err.matches(&format!("warning[memory::leak]: {message}\n")).count(), 1, "{err}");
    assert!(err.contains("memory allocated by cuMemAlloc_v2") && !err.contains("error["), "{err}");
    let annotation = out.lines().find(|l| l.starts_with("::warning ")).unwrap();
    assert!(annotation.contains("title=memory%3A%3Aleak::warning[memory::leak]: 512 bytes"), "{annotation}");
    assert!(out.contains("1 x warning[memory::leak]") && out.contains("0 errors, 1 warning"), "{out}");
    let (out, _) = ends(&["check", "--json", "--", &program, "leak"], 0);
    let found: Value = serde_json::from_str(&out[out.find('{').unwrap()..]).unwrap();
    let finding = &found["findings"][0];
    assert_eq!((&finding["rule"], &finding["message"]), (&"memory::leak".into(), &message.into()));
    assert_eq!((&finding["count"], &finding["allocated"]["api"]), (&1.into(), &"cuMemAlloc_v2".into()));
    let (out, err) = ends(&["check", "--allow", "memory::leak", "--", &program, "leak"], 0);
    assert!(!err.contains("memory::leak") && out.contains("0 warnings"), "{out}\n{err}");
}

#[test]
fn accepted_findings_are_silent() {
    let program = program();
    let (out, err) = ends(&["check", "--allow", "memory::out-of-bounds:double", "--", &program, "defect"], 1);
    assert!(!err.contains("error[memory") && out.contains("0 errors"), "{out}\n{err}");
    let (_, err) = ends(&["check", "--allow", "memory::out-of-bounds:other", "--", &program, "defect"], 1);
    assert!(err.contains("error[memory"), "{err}");
}

/// The bound is that of section 9.7.3.21 of PTX ISA 9.1. `residual_add` only adds.
#[test]
fn approximate_instructions_are_stated_once_a_kernel() {
    let (out, _) = ends(&["check", "swiglu", "residual_add", "--seeds", "2"], 0);
    let stated: Vec<&str> = out.lines().filter(|l| l.contains("ex2.approx")).collect();
    let approximate = "rcp.approx.f32 (1 ulp; correctly rounded), ex2.approx.f32 (2 ulp; computed in f64 and rounded once to nearest)";
    assert_eq!(stated, [format!("  swiglu: {approximate}")], "{out}");
    assert!(out.contains("within the bounds of PTX ISA 9.1"), "{out}");
    let found = json(&["check", "swiglu", "residual_add", "--json"], 0);
    let list = found["approximate"].as_array().unwrap();
    assert_eq!((list.len(), &list[0]["kernel"]), (1, &"swiglu".into()));
    let bounds = [0, 1].map(|i| &list[0]["instructions"][i]["bound"]);
    assert_eq!(bounds, ["1 ulp", "2 ulp"]);
    let found = json(&["profile", "swiglu", "--json"], 0);
    assert_eq!(found["launches"][0]["approximate"][1]["instruction"], "ex2.approx.f32");
    let (out, _) = ends(&["profile", "swiglu"], 0);
    assert!(out.contains("ex2.approx.f32 (2 ulp"), "{out}");
}

/// 257 words each, copied by two threads of the host. No access races; the sum of integers is the same in any order.
#[test]
fn results_that_depend_on_the_schedule_are_found() {
    let program = example("05_schedule");
    let (out, _) = ends(&["check", "--seeds", "4", "--", &program], 0);
    assert!(out.contains("exit code and 2 copies to the host (2056 bytes) of 4 runs: the same"), "{out}");
    for mode in ["tickets", "floats"] {
        let (out, err) = ends(&["check", "--seeds", "4", "--", &program, mode], 7);
        for part in [
            "error[schedule::nondeterminism]: copy 1 to the host, of 1028 bytes, delivers other bytes under seed",
            "called by cuMemcpyDtoH_v2",
            "replay: warpsmith check --sm 90 --seed 0 --seeds",
        ] {
            assert!(err.contains(part), "{mode}: {part:?} is missing:\n{err}");
        }
        assert!(out.contains("of 4 runs: dependent on the schedule") && out.contains("1 error, 0 warnings"), "{out}");
        assert!(!err.contains("[race::"), "{err}");
    }
    let (out, _) = ends(&["check", "--seeds", "4", "--json", "--", &program, "tickets"], 7);
    // Every run prints for itself first.
    let found: Value = serde_json::from_str(&out[out.find('{').unwrap()..]).unwrap();
    assert_eq!(found["outputs"]["verdict"], "dependent on the schedule");
    let finding = &found["findings"][0];
    assert_eq!((&finding["rule"], &finding["seeds"][0]), (&"schedule::nondeterminism".into(), &0.into()));
    let seed = finding["seeds"][1].as_u64().unwrap();
    let replay = format!("warpsmith check --sm 90 --seed 0 --seeds {} -- {program} tickets", seed + 1);
    assert_eq!(finding["replay"], replay);
    assert_eq!(found["approximate"].as_array().unwrap().len(), 0);
}

/// What differs from run to run under one seed is no doing of the schedule.
#[test]
fn programs_that_differ_by_themselves_are_told_apart() {
    let program = example("05_schedule");
    let (out, err) = ends(&["check", "--seeds", "3", "--", &program, "clock"], 0);
    assert!(out.contains("different from run to run under one seed") && out.contains("0 errors"), "{out}\n{err}");
    let allowed = ["check", "--seeds", "3", "--allow", "schedule::nondeterminism", "--", &program, "tickets"];
    let (out, err) = ends(&allowed, 0);
    assert!(!err.contains("nondeterminism") && out.contains("0 errors"), "{out}\n{err}");
}

/// ptxas' count where it is found, which is at most what the kernel's bounds leave; an estimate that says so where not.
#[test]
fn registers_are_those_of_ptxas_where_it_is_found() {
    let run = |ptxas: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpsmith"));
        command.args(["profile", "residual_add", "--shape", "n=256", "--gpu", "a100"]).current_dir(ROOT);
        let output = command.env("WARPSMITH_PTXAS", ptxas).output().unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, _, err) = run("/no/such/ptxas");
    assert!(code == Some(2) && err.contains("WARPSMITH_PTXAS=/no/such/ptxas is no ptxas"), "{code:?} {err}");
    let Some(ptxas) = warpsmith_builder::ptxas::find() else {
        println!(
            "SKIPPED: ptxas was not found (WARPSMITH_PTXAS); its output is parsed in warpsmith-builder's unit tests"
        );
        return;
    };
    let (code, out, err) = run(ptxas.path().to_str().unwrap());
    assert_eq!(code, Some(0), "{err}");
    let occupancy = out.lines().find(|l| l.trim_start().starts_with("occupancy")).unwrap();
    let registers = occupancy.split("; ").find_map(|p| p.split_once(" registers by ptxas")).unwrap().0;
    // A thread of sm_80 has at most 255, and needs a few for two addresses and an index.
    assert!((4..=255).contains(&registers.trim().parse::<u32>().unwrap()), "{occupancy}");
    let (_, ptx) = warpsmith::builtin_image().code_for(80).unwrap();
    let arch = "sm_80".parse().unwrap();
    let found = ptxas.assemble_entry(&ptx, "residual_add", arch).unwrap().unwrap();
    assert_eq!(found.registers.to_string(), registers.trim());
    assert!(ptxas.assemble_entry(&ptx, "no_such_kernel", arch).map_or(true, |found| found.is_none()));
}

/// The program's kernels as well; the bound is that of section 9.7.3.21 of PTX ISA 9.1.
#[test]
fn a_programs_approximate_instructions_are_stated() {
    let (out, _) = ends(&["check", "--", &example("05_schedule"), "floats"], 0);
    let line = "  floats: ex2.approx.ftz.f32 (2 ulp; computed in f64 and rounded once to nearest)";
    assert_eq!(out.lines().filter(|l| *l == line).count(), 1, "{out}");
    let (out, _) = ends(&["profile", "--", &example("05_schedule"), "floats"], 0);
    assert_eq!(out.lines().filter(|l| *l == line).count(), 1, "{out}");
}

#[test]
fn bad_usage_is_refused_by_name() {
    for (args, parts) in [
        (&["check", "rms_nrom"][..], &["rms_nrom"][..]),
        (&["check", "gemv_q4"], &["gemv_q4_0", "gemv_q4_k"]),
        (&["check", "rms_norm", "--checks", "rases"], &["rases", "init,races,sync"]),
        (&["check", "rms_norm", "--shape", "rows=x"], &["rows=x"]),
        (&["check", "rms_norm", "--sm", "61"], &["61"]),
        (&["check", "--allow", "race", "rms_norm"], &["--allow race", "race::shared"]),
        (&["check", "rms_norm", "--", "ls"], &["not both"]),
        (&["profile"], &["name a kernel"]),
        (&["profile", "rms_norm", "--gpu", "voodoo2"], &["voodoo2", "h200"]),
    ] {
        let (_, err) = ends(args, 2);
        parts.iter().for_each(|part| assert!(err.contains(part), "{args:?}: {part:?} is missing:\n{err}"));
    }
}

#[test]
fn a_program_that_starts_no_driver_was_not_checked() {
    let output = warpsmith(&["check", "--", "true"]);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
}

/// By hand: 4096 elements in 16 blocks of 256 threads are 128 warps. Each loads 128 consecutive bytes of x and of the
/// residual and stores as many: 4 sectors a request, and every sector is touched once.
#[test]
fn a_profile_has_nsights_names_and_the_right_numbers() {
    let found = json(&["profile", "residual_add", "--shape", "n=4096", "--gpu", "h100", "--json"], 0);
    let launch = &found["launches"][0];
    assert_eq!(
        (&launch["kernel"], &launch["sm"], &launch["launches"]),
        (&"residual_add".into(), &90.into(), &1.into())
    );
    assert_eq!((&launch["grid"], &launch["block"]), (&serde_json::json!([16, 1, 1]), &serde_json::json!([256, 1, 1])));
    for (name, value) in [
        ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", 256.0),
        ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", 1024.0),
        ("l1tex__t_requests_pipe_lsu_mem_global_op_st.sum", 128.0),
        ("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum", 512.0),
        ("l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio", 4.0),
        ("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio", 32.0),
        ("smsp__thread_inst_executed_per_inst_executed.ratio", 32.0),
        ("smsp__sass_average_branch_targets_threads_uniform.pct", 100.0),
        ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum", 0.0),
        ("smsp__sass_thread_inst_executed_op_fadd_pred_on.sum", 4096.0),
        ("launch__grid_size", 16.0),
        ("launch__block_size", 256.0),
    ] {
        assert_eq!(launch["metrics"][name].as_f64(), Some(value), "{name}");
    }
    assert_eq!(launch["flop"], 4096);
    assert_eq!(launch["dram_bytes"], serde_json::json!({ "at_least": 49152, "at_most": 49152 }));
    assert!(launch["registers_from"] == "ptxas" || launch["registers_from"] == "estimate");
    // The lines of the kernel's own file add up to all of the work.
    let lines = launch["source"].as_array().unwrap();
    assert!(lines.iter().any(|l| l["file"].as_str().unwrap().ends_with("gpu-kernels/src/elementwise.rs")), "{lines:?}");
    let sum: u64 = lines.iter().filter_map(|l| l["metrics"]["smsp__inst_executed.sum"].as_u64()).sum();
    assert_eq!(Some(sum), launch["metrics"]["smsp__inst_executed.sum"].as_u64());
    // 48 KiB at 3350 GB/s.
    let projection = &launch["projection"];
    assert_eq!(projection["projection"], true);
    let dram = projection["dram_us"]["at_least"].as_f64().unwrap();
    assert!((dram - 49152.0 / 3350e3).abs() < 1e-9, "{dram}");
}

#[test]
fn a_program_is_profiled_too() {
    let (out, _) = ends(&["profile", "--json", "--", &program()], 0);
    let found: Value = serde_json::from_str(&out[out.find('{').unwrap()..]).unwrap();
    let launch = &found["launches"][0];
    assert_eq!((&launch["kernel"], &launch["launches"]), (&"double".into(), &1.into()));
    // 4 warps, one addition a thread.
    assert_eq!(launch["metrics"]["smsp__sass_thread_inst_executed_op_fadd_pred_on.sum"], 128);
    assert_eq!(launch["metrics"]["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"], 4);
}
