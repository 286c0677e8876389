//! The tables of the crate beside the published ones, which stand here in NVIDIA's order and units.

use warpsmith_arch::{
    Architecture, CONSTANT, DEFAULT_SHARED, Demand, Gpu, MAX_BLOCK, MAX_GRID, MAX_LOCAL, MAX_REGISTERS, MAX_THREADS,
    Occupancy, REGISTERS, Target, WARP,
};

/// CUDA C++ Programming Guide 13, "Technical Specifications per Compute Capability": resident blocks, warps and threads of a
/// multiprocessor, KiB of shared memory of a multiprocessor and of a block. 7.0 and 7.2 by the guide of CUDA 12; 8.8, 10.3 and
/// 12.1, which it has no columns for, by `arch_traits.h` of libcu++ (NVIDIA/cccl).
const SPECIFICATIONS: [(&str, u32, u32, u32, u32, u32); 14] = [
    ("7.0", 32, 64, 2048, 96, 96),
    ("7.2", 32, 64, 2048, 96, 96),
    ("7.5", 16, 32, 1024, 64, 64),
    ("8.0", 32, 64, 2048, 164, 163),
    ("8.6", 16, 48, 1536, 100, 99),
    ("8.7", 16, 48, 1536, 164, 163),
    ("8.8", 16, 48, 1536, 100, 99),
    ("8.9", 24, 48, 1536, 100, 99),
    ("9.0", 32, 64, 2048, 228, 227),
    ("10.0", 32, 64, 2048, 228, 227),
    ("10.3", 32, 64, 2048, 228, 227),
    ("11.0", 24, 48, 1536, 228, 227),
    ("12.0", 24, 48, 1536, 100, 99),
    ("12.1", 24, 48, 1536, 100, 99),
];

/// PTX ISA 9.1, "Release Notes": the version that introduced each target.
const TARGETS: [(&str, (u32, u32)); 20] = [
    ("sm_70", (6, 0)),
    ("sm_72", (6, 1)),
    ("sm_75", (6, 3)),
    ("sm_80", (7, 0)),
    ("sm_86", (7, 1)),
    ("sm_87", (7, 4)),
    ("sm_88", (9, 0)),
    ("sm_89", (7, 8)),
    ("sm_90", (7, 8)),
    ("sm_90a", (8, 0)),
    ("sm_100", (8, 6)),
    ("sm_100a", (8, 6)),
    ("sm_103", (8, 8)),
    ("sm_103a", (8, 8)),
    ("sm_110", (9, 0)),
    ("sm_110a", (9, 0)),
    ("sm_120", (8, 7)),
    ("sm_120a", (8, 7)),
    ("sm_121", (8, 8)),
    ("sm_121a", (8, 8)),
];

#[test]
fn limits_are_those_of_the_programming_guide() {
    let listed = SPECIFICATIONS.map(|(capability, blocks, warps, threads, shared, of_block)| {
        let (major, minor) = capability.split_once('.').unwrap();
        let sm = 10 * major.parse::<u32>().unwrap() + minor.parse::<u32>().unwrap();
        (sm, blocks, warps, threads, shared * 1024, of_block * 1024)
    });
    let own = Architecture::ALL.map(|a| (a.sm, a.blocks, a.warps(), a.threads, a.shared, a.shared_optin));
    assert_eq!(own, listed);
    for a in Architecture::ALL {
        // "1 KB of shared memory per thread block is reserved" from 8.0 on.
        assert_eq!(a.shared - a.shared_optin, a.shared_reserved, "sm_{}", a.sm);
        assert_eq!(a.shared_reserved, if a.sm >= 80 { 1024 } else { 0 }, "sm_{}", a.sm);
    }
    // Rows of the table with one value for all.
    assert_eq!((MAX_GRID, MAX_BLOCK), ([2_147_483_647, 65535, 65535], [1024, 1024, 64]));
    assert_eq!((MAX_THREADS, WARP, REGISTERS, MAX_REGISTERS), (1024, 32, 65536, 255));
    assert_eq!((DEFAULT_SHARED, CONSTANT, MAX_LOCAL), (49152, 65536, 524_288));
}

#[test]
fn targets_are_those_of_the_ptx_release_notes() {
    for (target, isa) in TARGETS {
        assert_eq!(Target::named(target).map(|target| target.isa), Some(isa), "{target}");
    }
    // What has limits has a target of its own.
    for architecture in Architecture::ALL {
        assert!(TARGETS.iter().any(|(name, _)| *name == format!("sm_{}", architecture.sm)), "sm_{}", architecture.sm);
    }
    let specific = Target::all().filter(|target| target.suffix == Some('a') && Architecture::find(target.sm).is_some());
    assert_eq!(specific.count(), 6);
    for absent in ["sm_80a", "sm_99", "90", "sm_", "sm_90b", "sm_90aa", ""] {
        assert_eq!(Target::named(absent), None, "{absent}");
    }
}

#[test]
fn an_architecture_that_is_not_listed_is_served_by_the_one_before_it() {
    let served = |sm| Architecture::up_to(sm).map(|a| a.sm);
    assert_eq!([60, 70, 79, 90, 101, 130].map(served), [None, Some(70), Some(75), Some(90), Some(100), Some(121)]);
}

/// Blocks as the spreadsheet "CUDA Occupancy Calculator" and `cuda_occupancy.h` (CUDA 11.1 to 13) give them: sm, registers,
/// threads, bytes of shared memory, blocks by registers, by shared memory, and in all.
const OCCUPANCIES: [(u32, u32, u32, u32, u32, u32, u32); 19] = [
    // Registers: 256 to a warp, a quarter of the warps in each part.
    (80, 32, 256, 0, 8, 164, 8),
    (80, 64, 256, 0, 4, 164, 4),
    (80, 255, 256, 0, 1, 164, 1),
    (80, 255, 1024, 0, 0, 164, 0),
    (86, 32, 256, 0, 8, 100, 6),
    (86, 32, 64, 0, 32, 100, 16),
    (87, 32, 64, 0, 32, 164, 16),
    (89, 32, 64, 0, 32, 100, 24),
    (90, 32, 32, 0, 64, 228, 32),
    (90, 40, 1024, 0, 1, 228, 1),
    // 96 registers leave room for 5.33 warps in a part, so for 20 in all and not for 21.
    (90, 96, 96, 0, 6, 228, 6),
    (90, 96, 672, 0, 0, 228, 0),
    (75, 32, 256, 0, 8, u32::MAX, 4),
    // Shared memory: units of 128 bytes and a KiB for the driver, before 8.0 units of 256 and none.
    (80, 32, 256, 49152, 8, 3, 3),
    (80, 32, 128, 19_968, 16, 8, 8),
    (80, 32, 128, 19_969, 16, 7, 7),
    (75, 32, 32, 8192, 64, 8, 8),
    (75, 32, 32, 3073, 64, 19, 16),
    (90, 32, 128, 232_449, 16, 0, 0),
];

#[test]
fn occupancy_is_that_of_the_calculator() {
    for (sm, registers, threads, shared, by_registers, by_shared, blocks) in OCCUPANCIES {
        let o = Occupancy::on(Architecture::find(sm).unwrap(), Demand { registers, threads, shared });
        let what = format!("sm_{sm}, {registers} registers, {threads} threads, {shared} bytes");
        assert_eq!((o.by_registers, o.by_shared, o.blocks()), (by_registers, by_shared, blocks), "{what}");
    }
}

/// `cudaOccMaxBlocksPerSMRegsLimit` in its own words: the check of the launch, then parts times warps of a part.
#[test]
fn registers_pass_the_hardwares_check_wherever_blocks_are_resident() {
    for registers in 1..=255u32 {
        for threads in 1..=1024u32 {
            let o = Occupancy::on(&Architecture::ALL[0], Demand { registers, threads, shared: 0 });
            let (warps, warp) = (threads.div_ceil(32), (registers * 32).div_ceil(256) * 256);
            let assumed = warp * (warps.div_ceil(4) * 4);
            let expected = if assumed > 65536 { 0 } else { 65536 / 4 / warp * 4 / warps };
            assert_eq!(o.by_registers, expected, "{registers} registers, {threads} threads");
        }
    }
}

#[test]
fn blocks_are_resident_where_there_is_work_and_room() {
    let o = Occupancy::on(Architecture::find(90).unwrap(), Demand { registers: 64, threads: 256, shared: 0 });
    assert_eq!([1, 132, 133, 512, 10_000].map(|grid| o.resident(grid, 132)), [1, 1, 2, 4, 4]);
    assert_eq!(o.limiter(), "registers");
}

/// TFLOP/s or TOPS of dense matrices on the data sheets, by GPU: f16 and 8-bit integers.
const PEAKS: [(&str, f64, f64); 7] = [
    ("t4", 65.0, 130.0),
    ("a100", 312.0, 624.0),
    ("a10", 125.0, 250.0),
    ("l40s", 362.0, 733.0),
    ("l4", 121.0, 242.5),
    ("b200", 2250.0, 4500.0),
    ("rtx5090", 419.0, 838.0),
];

#[test]
fn rates_are_those_of_the_data_sheets() {
    for gpu in &Gpu::ALL {
        assert!(gpu.architecture().is_some(), "{}", gpu.name);
        let by_clock = f64::from(gpu.memory_khz) * 1e3 * 2.0 * f64::from(gpu.bus_bits) / 8.0 / 1e9;
        assert!((by_clock / gpu.bandwidth - 1.0).abs() < 0.03, "{}: {by_clock} of {} GB/s", gpu.name, gpu.bandwidth);
    }
    for (name, f16, int8) in PEAKS {
        let gpu = Gpu::find(name).unwrap();
        let peak = |rate: u32| 2.0 * f64::from(rate * gpu.multiprocessors) * f64::from(gpu.clock_mhz) / 1e6;
        for (rate, sheet) in [(gpu.rates.tensor_f16, f16), (gpu.rates.tensor_int8, int8)] {
            assert!((peak(rate) / sheet - 1.0).abs() < 0.07, "{name}: {} TOPS, {sheet} on paper", peak(rate));
        }
    }
    // The H100's and H200's clock with tensor cores at work is 1830 MHz: 989 TFLOP/s.
    let h200 = Gpu::find("h200").unwrap();
    assert!((2.0 * f64::from(h200.rates.tensor_f16 * h200.multiprocessors) * 1830.0 / 1e6 - 989.4).abs() < 1.0);
}

#[test]
fn one_gpu_stands_for_an_architecture() {
    let standing: Vec<u32> = Gpu::standing().map(|g| g.sm).collect();
    assert_eq!(standing, [75, 80, 86, 89, 90, 100, 120]);
    assert!(standing.iter().all(|sm| Gpu::of(*sm).is_some_and(|g| g.sm == *sm)));
    assert_eq!((Gpu::of(87), Gpu::of(90).map(|g| g.name)), (None, Some("h200")));
}

/// CUDA Programming Guide, "Binary Compatibility": devices of the same major number and the same or a later minor one, which
/// leaves out Jetson; "Architecture-Specific Features" and "Family-Specific Features": one device, devices of a family.
#[test]
fn machine_code_runs_where_the_guide_says() {
    let devices = [70, 72, 75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121];
    for (name, runs) in [
        ("sm_70", &[70, 75][..]),
        ("sm_72", &[72]),
        ("sm_75", &[75]),
        ("sm_80", &[80, 86, 89]),
        ("sm_86", &[86, 89]),
        ("sm_87", &[87]),
        ("sm_89", &[89]),
        ("sm_90", &[90]),
        ("sm_90a", &[90]),
        ("sm_100", &[100, 103]),
        ("sm_100a", &[100]),
        ("sm_100f", &[100, 103]),
        ("sm_103", &[103]),
        ("sm_120", &[120, 121]),
        ("sm_120a", &[120]),
        ("sm_120f", &[120, 121]),
        ("sm_121a", &[121]),
    ] {
        let target = Target::named(name).unwrap();
        let found: Vec<u32> = devices.into_iter().filter(|sm| target.runs_on(*sm)).collect();
        assert_eq!(found, runs, "{name}");
        assert_eq!(target.to_string(), name);
    }
}

#[test]
fn a_device_gets_the_newest_machine_code_and_of_it_that_which_is_for_the_fewest() {
    let all = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_90a", "sm_100f", "sm_100", "sm_100a"].map(Target::named);
    for (sm, best) in [
        (70, None),
        (75, Some("sm_75")),
        (80, Some("sm_80")),
        (86, Some("sm_86")),
        (87, None),
        (89, Some("sm_86")),
        (90, Some("sm_90a")),
        (100, Some("sm_100a")),
        (103, Some("sm_100f")),
        (120, None),
    ] {
        let of = |targets: &mut dyn Iterator<Item = Target>| Target::best_for(sm, targets).map(|t| t.to_string());
        assert_eq!(of(&mut all.into_iter().flatten()).as_deref(), best, "{sm}");
        assert_eq!(of(&mut all.into_iter().flatten().rev()).as_deref(), best, "{sm}, in another order");
    }
}
