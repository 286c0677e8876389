//! What the benchmarks compare and measure: the crate `warpsmith-bench`.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests are not seen as tests

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gpu_kernels::cases::{Rng, Tensor};
use gpu_kernels::elementwise::ResidualAdd;
use gpu_kernels::format::Format;
use gpu_kernels::gemv::Gemv;
use serde_json::json;
use warpsmith_bench::baseline::{Comparison, compare, read, text};
use warpsmith_bench::report::Spread;
use warpsmith_bench::{Bench, Counts, Group, Harness, Output, Run, Work, Wrong, against, gpu, page};
use warpsmith_device::Launcher;
use warpsmith_host::{KernelImage, Stream};

fn figures(all: &[(&str, u64)]) -> BTreeMap<String, u64> {
    all.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect()
}

/// The driver keeps one list of profiles for the process, so those who count take turns.
static COUNTING: Mutex<()> = Mutex::new(());

/// The software driver, on which everything here runs.
fn software() -> Option<(Bench, MutexGuard<'static, ()>)> {
    let turn = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    let bench = Bench::quiet(warpsmith_host::builtin_image()).unwrap();
    let counts = bench.counts();
    if !counts {
        eprintln!("a GPU: nothing is counted");
    }
    counts.then_some((bench, turn))
}

fn add(bench: &Bench, n: u32) -> Counts {
    let (x, r) = (bench.stream.zeros::<f32>(n as usize).unwrap(), bench.stream.zeros::<f32>(n as usize).unwrap());
    let mut y = bench.stream.zeros::<f32>(n as usize).unwrap();
    Counts::of(&bench.stream, || bench.stream.launch(ResidualAdd { x: &x, residual: &r, y: &mut y, n })).unwrap()
}

#[test]
fn a_launch_counts_the_same_twice_and_what_it_moves() {
    let Some((bench, _turn)) = software() else { return };
    let (first, second) = (add(&bench, 1024), add(&bench, 1024));
    assert_eq!(first, second);
    // Two vectors of 1024 f32 in, one out; no shared memory.
    assert_eq!((first.dram_bytes, first.bank_conflicts, first.launches), (3 * 4096, 0, 1));
    assert_eq!(first.sectors, 3 * 4096 / 32);
    let kernel = first.main_kernel().unwrap();
    assert_eq!((kernel.name.as_str(), kernel.lane_instructions), ("residual_add", first.lane_instructions));
}

#[test]
fn rows_that_were_not_run_are_extended_to_what_a_run_of_them_counts() {
    let Some((bench, _turn)) = software() else { return };
    let of = |rows: usize| {
        let (cols, format, s) = (1024, Format::Q8_0, &bench.stream);
        let records = format.repack(&Tensor::random(&mut Rng(1), format, rows, cols).bytes, rows, cols).unwrap();
        let (weights, x) = (s.upload(&records).unwrap(), s.upload(&vec![1.0f32; cols]).unwrap());
        let mut y = s.zeros::<f32>(rows).unwrap();
        let (rows, cols) = (rows as u32, cols as u32);
        Counts::of(s, || Gemv::new(format, &weights, rows, cols, &x, &mut y).launch(&mut &*s)).unwrap()
    };
    assert_eq!(of(64).extrapolated(&of(128), 5), of(320));
}

/// The way of a GPU, whose figures are not looked at here: graphs between events, variants in turns.
#[test]
fn variants_take_turns_and_each_has_its_samples() {
    let _turn = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    let bench = Bench::quiet(warpsmith_host::builtin_image()).unwrap();
    let s = &bench.stream;
    let turns = Rc::new(RefCell::new(Vec::new()));
    let whole = |name: &'static str| {
        let turns = Rc::clone(&turns);
        Run::whole(
            turns,
            move |turns| {
                turns.borrow_mut().push(name);
                Ok(())
            },
            |_, _| Ok(Vec::new()),
        )
    };
    let samples = gpu::interleaved([whole("a"), sum(s, 2.0).unwrap(), whole("b")].map(|run| (s, run))).unwrap();
    assert!(samples.iter().all(|s| s.len() >= 50 && s.iter().all(|ns| *ns >= 0.0)));
    assert_eq!(turns.borrow()[..4], ["a", "b", "a", "b"]);
}

/// A sum of 64 ones and ones, and what it should give.
fn sum(s: &Stream, want: f64) -> Result<Run, warpsmith_bench::Failed> {
    let buffers = (s.upload(&[1.0f32; 64])?, s.upload(&[1.0f32; 64])?, s.zeros::<f32>(64)?);
    Ok(Run::launches(
        buffers,
        |(x, residual, y), on, _| on.launch(ResidualAdd { x, residual, y, n: 64 }),
        move |(_, _, y), s| Ok(vec![Output::near("y", &s.read(y)?, &[want; 64], |_| 0.0)]),
    ))
}

/// One variant: a sum of 64 elements.
fn group(want: f64) -> Group<'static> {
    Group {
        id: "test/add".to_owned(),
        key: "test/add".to_owned(),
        variants: vec![("one".to_owned(), Work { elements: 64, floor_bytes: 768 })],
        rows: None,
        setup: Box::new(move |bench: &Bench, _, _| Ok(vec![sum(&bench.stream, want)?])),
    }
}

#[test]
fn what_is_wrong_is_not_counted() {
    let Some((bench, _turn)) = software() else { return };
    let refused = bench.count(&group(3.0), 0).unwrap_err();
    assert!(refused.is::<Wrong>(), "{refused}");
    assert!(refused.to_string().starts_with("y: element 0 is 2e0 where the reference gives 3e0"), "{refused}");
    // Nothing to look at is no reason to trust a kernel either.
    let blind = Group {
        setup: Box::new(|bench: &Bench, _, _| {
            let (x, y) = (bench.stream.zeros::<f32>(64)?, bench.stream.zeros::<f32>(64)?);
            let launch = |(x, y): &mut (_, _), on: &mut warpsmith_bench::On<'_, '_>, _| {
                let x: &warpsmith_host::Buffer<f32> = x;
                let y: &mut warpsmith_host::Buffer<f32> = y;
                on.launch(ResidualAdd { x, residual: x, y, n: 64 })
            };
            Ok(vec![Run::launches((x, y), launch, |_, _| Ok(Vec::new()))])
        }),
        ..group(2.0)
    };
    assert!(bench.count(&blind, 0).unwrap_err().to_string().contains("nothing was compared"));
}

/// The kernels that ship, with another text of `residual_add`.
fn another_build(folder: &Path, edit: impl Fn(&str) -> String) -> KernelImage {
    let image = warpsmith_host::builtin_image();
    std::fs::write(folder.join("manifest.json"), image.manifest_text()).unwrap();
    for (sm, ptx) in image.code().unwrap() {
        let start = ptx.find(".entry residual_add(").unwrap();
        let end = start + ptx[start..].find("\n}").unwrap();
        let edited = edit(&ptx[start..end]);
        assert_ne!(edited, ptx[start..end]);
        std::fs::write(folder.join(format!("sm_{sm}.ptx")), [&ptx[..start], &edited, &ptx[end..]].concat()).unwrap();
    }
    against::read(folder).unwrap()
}

/// Names a defect for the process that [`benchmarked`] starts.
const PLANTED: &str = "WARPSMITH_TEST_PLANTED";

/// Differences where there should be sums.
fn wrong_values(kernel: &str) -> String {
    kernel.replace("add.rn.f32", "sub.rn.f32")
}

/// The last element is not written.
fn no_tail(kernel: &str) -> String {
    let compare = kernel.find("setp.ge.u64").unwrap();
    let line = &kernel[compare..][..kernel[compare..].find(';').unwrap()];
    let length = line.rsplit(' ').next().unwrap();
    format!("{}sub.s64 {length}, {length}, 1;\n\t{}", &kernel[..compare], &kernel[compare..])
}

/// What `cargo bench` runs, with a defect in the kernel.
#[test]
fn benchmark_of_a_planted_kernel() {
    let Some(defect) = std::env::var_os(PLANTED) else { return };
    let (dir, reports) = (tempfile::tempdir().unwrap(), std::env::var("WARPSMITH_BENCH_DIR").unwrap());
    let image = match defect.to_str() {
        Some("wrong values") => another_build(dir.path(), wrong_values),
        Some("no tail") => another_build(dir.path(), no_tail),
        _ => *warpsmith_host::builtin_image(),
    };
    let harness = Harness::new("planted", &image).baseline(Path::new(&reports).join("baseline.json"));
    let code = harness.arguments(["--bench"]).run(|bench| {
        bench.measure(&group(2.0));
        Ok(())
    });
    assert_eq!(code, ExitCode::SUCCESS);
}

/// What that prints, and whether it ends well.
fn benchmarked(defect: &str) -> (String, bool) {
    let reports = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "benchmark_of_a_planted_kernel", "--nocapture"]).env(PLANTED, defect);
    let output =
        command.env("WARPSMITH_BENCH_DIR", reports.path()).env("WARPSMITH_DRIVER", "software").output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), output.status.success())
}

#[test]
fn fe_22_a_kernel_that_is_wrong_gets_no_figure() {
    let figures = |said: &str| said.contains("lane instructions") || said.contains("inst/elem");
    let (right, passed) = benchmarked("none");
    assert!(passed && figures(&right), "{right}");
    for (defect, element) in [("wrong values", "element 0 is 0e0"), ("no tail", "element 63 is 0e0")] {
        let (wrong, passed) = benchmarked(defect);
        let refused = format!("test/add/one: wrong, and not measured: y: {element} where the reference gives 2e0");
        assert!(!passed && wrong.contains(&refused), "{defect}: {wrong}");
        assert!(!figures(&wrong), "{defect}: {wrong}");
    }
}

#[test]
fn another_build_of_the_kernels_is_measured_beside_this_one() {
    let Some((bench, _turn)) = software() else { return };
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    assert!(against::read(folder).unwrap_err().contains("manifest.json"));
    std::fs::write(folder.join("manifest.json"), warpsmith_host::builtin_image().manifest_text()).unwrap();
    assert!(against::read(folder).unwrap_err().contains("no sm_*.ptx"));
    // One instruction more at the end of the kernel.
    let slower = another_build(folder, |kernel| kernel.replacen("ret;", "membar.gl;\n\tret;", 1));
    let bench = bench.against(&slower).unwrap();
    let counts: Vec<u64> = bench.builds().map(|b| b.count(&group(2.0), 0).unwrap().0.lane_instructions).collect();
    // A block of 256 threads, of which each ends once.
    assert_eq!(counts.len(), 2);
    assert!(counts[1] > counts[0] && counts[1] <= counts[0] + 256, "{counts:?}");
}

#[test]
fn the_launch_that_is_compared_is_the_one_that_is_counted() {
    let Some((bench, _turn)) = software() else { return };
    let counted = bench.count(&group(2.0), 0).unwrap();
    assert_eq!((counted.1, counted.0.lane_instructions), (None, add(&bench, 64).lane_instructions));
}

#[test]
fn three_percent_more_is_worse_and_one_is_not() {
    let baseline = figures(&[("a x", 1000), ("b x", 1000), ("c x", 1000), ("conflicts", 0), ("gone", 7)]);
    let run = figures(&[("a x", 1030), ("b x", 1010), ("c x", 900), ("conflicts", 1), ("new", 9)]);
    let found = compare(&baseline, &run);
    let worse: Vec<String> = found.worse.iter().map(ToString::to_string).collect();
    assert_eq!(worse, ["a x: 1000 -> 1030 (+3.0 %)", "conflicts: 0 -> 1"]);
    assert_eq!(found.better.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["c x"]);
    assert_eq!((found.new, found.gone), (vec!["new".to_owned()], vec!["gone".to_owned()]));
    // The limit itself fails.
    assert_eq!(compare(&figures(&[("a", 100)]), &figures(&[("a", 102)])).worse.len(), 1);
    assert_eq!(compare(&baseline, &baseline), Comparison::default());
}

#[test]
fn a_baseline_is_a_sorted_file_of_a_figure_a_line() {
    let all = figures(&[("b/2 lane", 2), ("a/\"1\"", 1)]);
    let written = text(&all);
    assert_eq!(written, "{\n  \"a/\\\"1\\\"\": 1,\n  \"b/2 lane\": 2\n}\n");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("baseline.json");
    std::fs::write(&path, written).unwrap();
    assert_eq!(read(&path).unwrap(), all);
    std::fs::write(&path, "[1]").unwrap();
    assert!(read(&path).unwrap_err().contains("no baseline"));
    assert!(read(&dir.path().join("absent")).unwrap_err().contains("absent"));
}

#[test]
fn the_baseline_of_the_repository_is_as_it_is_written() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/baseline.json");
    let all = read(&path).unwrap();
    assert!(all.keys().any(|k| k.starts_with("gemv/q1_0/4096/")), "{} figures", all.len());
    assert_eq!(std::fs::read_to_string(path).unwrap(), text(&all));
}

#[test]
fn percentiles_are_by_nearest_rank() {
    let samples: Vec<f64> = (1..=60).rev().map(f64::from).collect();
    assert_eq!(Spread::of(&samples), Spread { p10: 6.0, median: 30.0, p90: 54.0, samples: 60 });
}

#[test]
fn the_page_needs_no_network_and_escapes_names() {
    let rows = [json!({ "id": "gemv/q4_0/<8b>/v2", "group": "gemv/q4_0/<8b>", "issue_slots_per_element": 5.5 })];
    let html = page(&rows, "kernels", "a & b");
    assert!(
        html.contains("<svg") && html.contains("5.50") && html.contains("&lt;8b&gt;") && html.contains("a &amp; b")
    );
    for outside in ["http", "<script", "<link", "src=", "@import", "<8b>"] {
        assert!(!html.contains(outside), "{outside}");
    }
}
