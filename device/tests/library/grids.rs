//! The barrier of the grid, and launches that follow each other closely.

use super::{
    all_device::collectives::{Dependent, GridRounds},
    common::fixture,
    gpu::{Gpu, noise},
};

#[test]
fn all_blocks_meet_in_every_round() {
    let expected = |blocks: u32, rounds: u32| {
        let mut sums: Vec<u32> = (1..=blocks).collect();
        for _ in 0..rounds {
            let all = sums.iter().fold(0, |a: u32, b| a.wrapping_add(*b));
            sums = (0..blocks).map(|b| all.wrapping_add(b)).collect();
        }
        sums.into_iter().flat_map(|s| [s; 64]).collect::<Vec<u32>>()
    };
    for gpu in Gpu::all() {
        // The word is not reset between launches: of one block, of several, in three dimensions, and an odd number of rounds.
        let mut word = gpu.upload(&[0u32]);
        for (grid, rounds) in [([1, 1, 1], 2), ([5, 1, 1], 3), ([2, 3, 2], 2), ([4, 1, 1], 1)] {
            let blocks: u32 = grid.iter().product();
            let (mut values, mut y) = (gpu.alloc::<u32>(2 * blocks as usize), gpu.alloc::<u32>(64 * blocks as usize));
            gpu.check(GridRounds { word: &mut word, values: &mut values, y: &mut y, rounds, wait: 1 }, grid);
            assert_eq!(y.read(), expected(blocks, rounds), "{grid:?}");
        }
        // Six of them flipped its upper bit.
        assert_eq!(word.read(), [0]);
        let (mut values, mut y) = (gpu.alloc::<u32>(8), gpu.alloc::<u32>(256));
        let launch = GridRounds { word: &mut word, values: &mut values, y: &mut y, rounds: 2, wait: 1 };
        let clean = gpu.inspect(launch, [4, 1, 1], 0);
        assert!(clean.fault.is_none() && clean.findings.is_empty());
        let mut values = gpu.upload(&[0u32; 8]);
        let launch = GridRounds { word: &mut word, values: &mut values, y: &mut y, rounds: 2, wait: 0 };
        let racy = gpu.inspect(launch, [4, 1, 1], 0);
        assert!(
            racy.findings.iter().any(|f| f.to_string().contains("race::global")),
            "without the barrier it is a race"
        );
    }
}

#[test]
fn the_manifest_says_which_kernels_wait_for_their_grid() {
    let waiting: Vec<&str> =
        fixture().manifest.kernels.iter().filter(|k| k.grid_barrier).map(|k| k.name.as_str()).collect();
    assert_eq!(waiting, ["grid_rounds"]);
}

#[test]
fn the_manifest_says_which_kernels_wait_for_the_launches_before() {
    // rust-cuda's generator never has the forms of newer architectures.
    if super::common::other_generator() {
        return;
    }
    let waiting: Vec<&str> = fixture().manifest.kernels.iter().filter(|k| k.waits).map(|k| k.name.as_str()).collect();
    assert_eq!(waiting, ["dependent"]);
}

#[test]
fn dependent_kernels_run_as_ordinary_ones() {
    let x: Vec<u32> = noise(1).take(128).map(|v| v as u32 >> 2).collect();
    let table: Vec<u32> = noise(2).take(128).map(|v| v as u32 >> 2).collect();
    for gpu in Gpu::all() {
        let mut y = gpu.alloc::<u32>(128);
        gpu.check(Dependent { x: &gpu.upload(&x), table: &gpu.upload(&table), y: &mut y }, [2, 1, 1]);
        assert_eq!(y.read(), x.iter().zip(&table).map(|(v, t)| v + t + 1).collect::<Vec<u32>>());
    }
}
