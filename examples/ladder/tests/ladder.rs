//! Every step is right, also where shapes are awkward and under all checks; it counts what its idea promises; and the table
//! in examples/README.md is what the ladder counts today.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests are not seen as tests

use std::path::Path;
use warpsmith_host::driver::software::{self, Checks};
use warpsmith_host::driver::{Choice, select};
use warpsmith_host::{Device, Error};
use warpsmith_ladder::{Bench, Counted, Outcome, STEPS, Shape, Step, problems, report};

fn bench() -> Bench {
    // What is counted is the software driver's; on a GPU the steps are run by `warpsmith-ladder` itself.
    select(Choice::Software).unwrap();
    Bench::open().unwrap()
}

fn run(bench: &Bench, step: &Step, shape: Shape) -> Outcome {
    (step.run)(bench, step.number, shape).unwrap_or_else(|e| panic!("step {} at {shape:?}: {e}", step.number))
}

fn counted(bench: &Bench, number: usize) -> Counted {
    let step = STEPS[number - 1];
    run(bench, &step, step.shape).counted.unwrap()
}

#[test]
fn the_table_in_the_readme_is_what_is_counted() {
    let bench = bench();
    let outcomes: Vec<_> = STEPS.iter().map(|s| (*s, run(&bench, s, s.shape))).collect();
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let readme = readme.as_str();
    let (stands, counted) = (report::part_of(readme).unwrap(), report::table(&outcomes));
    assert!(
        stands == counted,
        "the table in examples/README.md is stale; \
         `cargo run --release -p warpsmith-ladder -- --write examples/README.md` mends it. Counted:\n{counted}"
    );
    // And so is the example above it, of step 8.
    let sample = report::beside(&outcomes[7].0, &outcomes[7].1, Some((&outcomes[6].0, &outcomes[6].1)));
    assert!(readme.contains(&sample), "the example in examples/README.md is stale. Now:\n{sample}");
}

/// Figures worked out by hand from the shapes and from the rules of coalescing and banks (CUDA C++ Programming Guide,
/// device memory accesses, shared memory).
#[test]
fn each_idea_moves_its_counter() {
    let bench = bench();
    let of = |number| counted(&bench, number);

    // 65,536 additions, 2 loads and 1 store each: a sector a lane; then 4 a request; then 16 in a quarter of the requests.
    let requests = 65_536 / 32;
    assert_eq!((of(1).loads, of(1).stores), ((2 * requests, 64 * requests), (requests, 32 * requests)));
    assert_eq!((of(2).loads, of(2).stores), ((2 * requests, 8 * requests), (requests, 4 * requests)));
    assert_eq!((of(3).loads, of(3).stores), ((requests / 2, 8 * requests), (requests / 4, 4 * requests)));
    assert_eq!(of(2).dram, (12 * 65_536, 12 * 65_536));
    assert_eq!(of(1).dram, (12 * 65_536, 8 * 12 * 65_536));

    // 17 blocks of 8 warps: eight levels of a tree with a barrier each; one barrier in all.
    assert_eq!((of(4).barriers, of(5).barriers), (17 * 8 * 8, 17 * 8));
    // A store a warp, and the first warp's load.
    assert_eq!((of(5).shared_wavefronts, of(5).bank_conflicts), (17 * 9, 0));

    // 256 x 256: columns of 32 sectors; then 4 sectors, but 32 passes a load of the tile; then one.
    let requests = 65_536 / 32;
    assert_eq!((of(6).loads, of(6).stores), ((requests, 4 * requests), (requests, 32 * requests)));
    assert_eq!((of(7).loads, of(7).stores), ((requests, 4 * requests), (requests, 4 * requests)));
    assert_eq!((of(7).shared_wavefronts, of(7).bank_conflicts), (33 * requests, 31 * requests));
    assert_eq!((of(8).shared_wavefronts, of(8).bank_conflicts), (2 * requests, 0));

    // 64 rows of 1024: fused, x and w are loaded once in 16-byte requests of 16 sectors, and y is stored.
    assert_eq!((of(9).launches, of(10).launches), (2, 1));
    assert_eq!(of(10).loads, (2 * 64 * 8, 2 * 64 * 8 * 16));
    assert_eq!(of(9).loads.1 - of(10).loads.1, 64 * 1024 * 4 / 32 + 64 * 8);

    // 256 rows of 1024: weights of 32 rows at a time, and one element of x for all of them; then neighbours.
    assert_eq!(of(11).loads, (2 * 8 * 1024, 33 * 8 * 1024));
    assert_eq!(of(12).loads, (2 * 256 * 32, 2 * 256 * 32 * 4));
    assert_eq!(of(13).loads, (2 * 256 * 8, 2 * 256 * 8 * 16));
    // x once a block of eight rows instead of once a row.
    assert_eq!(of(14).loads, (256 * 8 + 32 * 8, (256 * 8 + 32 * 8) * 16));

    // Q8_0: 8 bytes of x for each of 16 codes; four quads of x for a vector of codes, at 16 passes, then at 4; then for
    // two rows. A quad takes 4 passes to store.
    let (vectors, staged) = (256 * 1024 / 16 / 32, 32 * 8);
    assert_eq!(of(16).shared_wavefronts, vectors * 4 * 16 + staged * 4);
    assert_eq!(of(16).bank_conflicts, vectors * 4 * 12);
    assert_eq!((of(17).shared_wavefronts, of(17).bank_conflicts), (vectors * 4 * 4 + staged * 4, 0));
    assert_eq!((of(18).shared_wavefronts, of(18).bank_conflicts), (vectors / 2 * 4 * 4 + staged / 2 * 4, 0));
    assert_eq!(of(16).loads.0, vectors * 2 + staged);

    // And in the end fewer instructions for a weight than f32 weights took, at a quarter of the bytes.
    assert!(of(18).lane_instructions < of(12).lane_instructions);
    assert!(of(18).dram.1 * 3 < of(14).dram.1);
    assert!((11..=14).chain(15..=18).all(|n| n == 11 || n == 15 || of(n).dram.1 <= of(n - 1).dram.1));
}

#[test]
fn steps_are_right_and_clean_at_awkward_shapes() {
    let bench = bench();
    let _checked = software::check(Checks::ALL);
    for step in &STEPS {
        let shapes: &[Shape] = match step.number {
            // Not a multiple of a vector, a warp, a block, a run; one element; more than a grid.
            1..=3 => &[(1, 1), (1, 3), (1, 31), (1, 1003), (1, 16_386)],
            4 | 5 | 20 => &[(1, 1), (1, 257), (1, 5001)],
            6..=8 => &[(1, 1), (1, 33), (33, 1), (70, 45)],
            9 | 10 => &[(1, 4), (3, 132), (2, 4096)],
            11 | 12 => &[(1, 1), (9, 33), (257, 40)],
            13 | 14 => &[(1, 4), (9, 132), (17, 2052)],
            15..=18 => &[(1, 32), (9, 96), (17, 2080)],
            _ => &[(96, 96)],
        };
        for shape in shapes {
            run(&bench, step, *shape);
        }
    }
}

#[test]
fn the_race_is_found_at_its_line() {
    let bench = bench();
    let source = include_str!("../kernels/src/race.rs");
    let line = source.lines().position(|l| l.contains("warps.get(lane)")).unwrap() + 1;
    let x = bench.stream.upload(&[1.0f32; 512]).unwrap();
    let mut y = bench.stream.zeros::<f32>(2).unwrap();
    let race = ladder_kernels::race::SumRace { x: &x, y: &mut y, n: 512 };
    let text = problems::race::findings(&bench, || bench.stream.launch(race)).unwrap().unwrap();
    assert!(text.starts_with("error[race::shared]"), "{text}");
    assert!(text.contains("in kernel `sum_race`") && text.contains(&format!("race.rs:{line}")), "{text}");
}

#[test]
fn contracts_name_what_they_refuse() {
    let bench = bench();
    let (stream, upload) = (&bench.stream, |n: usize| bench.stream.upload(&vec![1.0f32; n]).unwrap());
    let (x, w, mut y) = (upload(64), upload(4096), upload(64));
    let argument = |refused: Result<(), Error>| match refused {
        Err(Error::Contract(error)) => error.argument,
        other => panic!("{other:?}"),
    };
    use ladder_kernels::{add, gemv, q8_0, rms_norm, transpose};
    assert_eq!(argument(stream.launch(add::Add { x: &x, y: &w, z: &mut y, n: 65 })), "x");
    assert_eq!(argument(stream.launch(add::Add { x: &x, y: &w, z: &mut y, n: 0 })), "n");
    assert_eq!(argument(stream.launch(add::AddVectors { x: &x[1..], y: &w, z: &mut y, n: 60 })), "x");
    assert_eq!(argument(stream.launch(transpose::Transpose { x: &x, y: &mut y, rows: 9, cols: 7 })), "x");
    let norm = rms_norm::RmsNorm { x: &w, w: &x, y: &mut y, cols: 4100, eps: 0.0 };
    assert_eq!(argument(stream.launch(norm)), "cols");
    let odd = gemv::GemvVectors { w: &w[..62 * 64], x: &x[..62], y: &mut y, rows: 64, cols: 62 };
    assert_eq!(argument(stream.launch(odd)), "cols");
    let blocks = stream.upload(&[0u16; 17 * 3]).unwrap();
    let short = q8_0::Q80Blocks { blocks: &blocks, x: &x, y: &mut y[..2], rows: 2, cols: 64 };
    assert_eq!(argument(stream.launch(short)), "blocks");
}

#[test]
fn kernels_that_are_not_loaded_are_named() {
    select(Choice::Software).unwrap();
    let stream = Device::open(0).unwrap().stream().unwrap();
    let (x, mut y) = (stream.upload(&[1.0f32; 8]).unwrap(), stream.zeros::<f32>(1).unwrap());
    let refused = stream.launch(ladder_kernels::sum::SumTree { x: &x, y: &mut y, n: 8 });
    assert!(matches!(refused, Err(Error::KernelNotLoaded { library: "ladder-kernels", .. })), "{refused:?}");
}

#[test]
fn the_program_shows_a_step_beside_the_one_before() {
    let ladder = |word: &str| {
        let bin = env!("CARGO_BIN_EXE_warpsmith-ladder");
        std::process::Command::new(bin).arg(word).env("WARPSMITH_DRIVER", "software").output().unwrap()
    };
    let output = ladder("8");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.starts_with("engine: software") && text.ends_with("PASS\n"), "{text}");
    let conflicts = text.lines().find(|l| l.contains("bank conflicts")).unwrap();
    assert_eq!(conflicts.split_whitespace().collect::<Vec<_>>(), ["bank", "conflicts", "63488", "-", "*"]);
    for word in ["0", "21", "eight"] {
        let output = ladder(word);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).starts_with(&format!("error: no step {word}")));
    }
}
