//! What a launch asks for, by its counters on the software driver and, if ptxas and nvdisasm are there, the machine code that its
//! PTX becomes.

use warpsmith_arch::Occupancy;
use warpsmith_check::{Class, LineProfile, Metrics};
use warpsmith_driver_api::software::LaunchProfile;

use super::Demand;
use super::figures::Figures;
use crate::commands::budget::pipes::Pipe;
use crate::commands::budget::{Assembled, slots};

/// A line of `device::grid`, where barriers of the grid wait.
fn of_grid(line: &LineProfile) -> bool {
    line.source.iter().any(|frame| frame.file.ends_with("device/src/grid.rs"))
}

/// Barriers of the grid that a block of a cooperative launch of so many blocks has passed.
fn barriers(lines: &[LineProfile], blocks: f64) -> f64 {
    let arrivals = lines.iter().filter(|l| of_grid(l) && l.class == Class::Atomic);
    arrivals.map(|l| l.metrics.warp_instructions as f64).sum::<f64>() / blocks.max(1.0)
}

/// Of a launch that has touched so many bytes of memory, and so many that L2 has. How long blocks wait for one another at barriers of the grid depends on the
/// order in which they run, so the instructions of barriers are not counted.
pub fn demand(
    figures: &Figures,
    launch: &LaunchProfile,
    code: Option<&Assembled>,
    (dram, cached): (f64, f64),
) -> Result<Demand, String> {
    let sm = launch.sm;
    let blocks = launch.launch.grid.iter().map(|n| f64::from(*n)).product();
    let threads = launch.launch.block.iter().product();
    let registers = code.map_or(launch.registers, |c| c.resources.registers);
    let occupancy = Occupancy::of(sm, registers, launch.static_shared, launch.launch.dynamic_shared, threads);
    let occupancy = occupancy.ok_or_else(|| format!("no limits of sm_{sm} are known"))?;
    let all = &launch.profile.lines;
    let cooperative = launch.launch.cooperative;
    let lines: Vec<LineProfile> = all.iter().filter(|l| !cooperative || !of_grid(l)).cloned().collect();
    let counted: Metrics = lines.iter().fold(Metrics::default(), |mut sum, l| {
        sum += l.metrics;
        sum
    });
    let mut demand = Demand {
        blocks,
        resident: f64::from(occupancy.blocks()),
        dram,
        cached,
        in_flight: 0.0,
        issue: counted.warp_instructions as f64,
        pipe: 0.0,
        // Who counts what others have written, and then reads it.
        trips: if counted.global_atom_requests > 0 { 2.0 } else { 0.0 },
        barriers: if cooperative { barriers(all, blocks) } else { 0.0 },
        timeline: None,
    };
    if let Some(code) = code {
        let slots = slots::weigh(&code.code, &lines, 0);
        let loops = slots.loops.as_ref();
        let has = |stem: &str| code.code.instructions.iter().any(|i| i.stem() == stem);
        let time = |(pipe, slots): (&Pipe, &f64)| slots * figures.by_pipe(*pipe, has);
        let busiest = loops.map_or(0.0, |l| l.pressure.iter().map(time).fold(0.0, f64::max));
        demand.issue = slots.kernel;
        // What is not in a loop issues before or after it.
        demand.pipe = busiest + slots.kernel - loops.map_or(0.0, |l| l.slots);
        demand.in_flight = slots.block_in_flight(threads);
    }
    Ok(demand)
}

/// What a launch of `blocks` blocks counts, by its first `few` and its first `2 few` of them: every block more counts the same.
pub fn extended(first: &LaunchProfile, twice: &LaunchProfile, few: u64, blocks: u64) -> LaunchProfile {
    let more = (blocks as f64 - 2.0 * few as f64) / few as f64;
    let grown = |a: u64, b: u64| b + (b.saturating_sub(a) as f64 * more).round() as u64;
    let metrics = |a: &Metrics, b: &Metrics| {
        let (a, b): (Vec<_>, Vec<_>) = (a.iter().collect(), b.iter().collect());
        let of = |name: &str, all: &[(&str, u64)]| all.iter().find(|(n, _)| *n == name).map_or(0, |(_, v)| *v);
        Metrics::named(|name| grown(of(name, &a), of(name, &b)))
    };
    let mut all = twice.clone();
    for line in &mut all.profile.lines {
        let before = first.profile.lines.iter().find(|l| l.ptx_line == line.ptx_line);
        line.metrics = metrics(&before.map_or_else(Metrics::default, |l| l.metrics), &line.metrics);
    }
    all.profile.total = metrics(&first.profile.total, &twice.profile.total);
    all.profile.sectors_loaded_once = grown(first.profile.sectors_loaded_once, twice.profile.sectors_loaded_once);
    all.profile.sectors_stored_once = grown(first.profile.sectors_stored_once, twice.profile.sectors_stored_once);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpsmith_arch::Gpu;
    use warpsmith_check::{Frame, Profile};
    use warpsmith_simt::Launch;

    fn line(ptx_line: u32, file: &str, class: Class, warps: u64) -> LineProfile {
        let source = vec![Frame { file: file.to_owned(), line: 1, column: 0 }];
        let mut metrics = Metrics::default();
        metrics.warp_instructions = warps;
        LineProfile { ptx_line, ptx_text: String::new(), source, class, metrics }
    }

    fn launch(grid: u32, cooperative: bool, lines: Vec<LineProfile>) -> LaunchProfile {
        let mut profile = Profile::default();
        lines.iter().for_each(|l| profile.total += l.metrics);
        profile.lines = lines;
        LaunchProfile {
            kernel: "k".into(),
            sm: 90,
            launch: Launch { cooperative, ..Launch::new([grid, 1, 1], [256, 1, 1]) },
            launches: 1,
            registers: 64,
            registers_from: "estimate",
            static_shared: 0,
            approximate: Vec::new(),
            profile,
        }
    }

    #[test]
    fn barriers_are_counted_by_their_arrivals_and_their_waiting_is_not_work() {
        let gpu = Figures::from(Gpu::find("h200").unwrap());
        // 10 blocks that pass four barriers each, and wait 1000 times.
        let lines = || {
            vec![
                line(1, "gpu-kernels/src/k.rs", Class::Fp32, 500),
                line(2, "/x/device/src/grid.rs", Class::Atomic, 40),
                line(3, "/x/device/src/grid.rs", Class::Global, 1000),
            ]
        };
        let of = |cooperative| demand(&gpu, &launch(10, cooperative, lines()), None, (5.0, 0.0)).unwrap();
        assert_eq!((of(true).barriers, of(true).issue, of(true).dram), (4.0, 500.0, 5.0));
        // No other launch waits there.
        assert_eq!((of(false).barriers, of(false).issue), (0.0, 1540.0));
        // 64 registers of 256 threads: four blocks a multiprocessor.
        assert_eq!((of(false).blocks, of(false).resident), (10.0, 4.0));
    }

    #[test]
    fn blocks_beyond_those_that_ran_count_what_these_did() {
        // 8 a block and 100 once, of 32 and 64 blocks: 1000 blocks take 8100.
        let of = |blocks: u64| launch(1000, false, vec![line(1, "k", Class::Fp32, 100 + 8 * blocks)]);
        let all = extended(&of(32), &of(64), 32, 1000);
        assert_eq!((all.profile.total.warp_instructions, all.profile.lines[0].metrics.warp_instructions), (8100, 8100));
    }
}
