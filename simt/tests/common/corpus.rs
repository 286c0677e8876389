//! Runs kernels of `tests/corpus`.
#![allow(dead_code)]

use super::{Rig, Rng};
use warpsmith_check::{Checks, Inspect, Severity};
use warpsmith_simt::{Launch, MachineConfig};

/// An argument.
pub enum Arg {
    Pointer(u64),
    Int(i32),
    Float(f32),
    Double(f64),
    Bytes(Vec<u8>),
}

use Arg::{Bytes, Double, Float, Int, Pointer};

pub fn rig(file: &str) -> Rig {
    let path = format!("{}/tests/corpus/ptx/{file}.ptx", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    Rig::with(MachineConfig { threads: 1, ..MachineConfig::default() }, &text)
}

/// Kernels whose sources race, and the rule: `globals` reads a counter in all lanes that thread 0 then sets; `grid_sync` resets
/// with a plain store what others have counted up; warps of Triton's `histogram` store one value to one place.
const RACY: [(&str, &str); 3] =
    [("globals", "race::global"), ("grid_sync", "race::static"), ("histogram", "race::shared")];

/// Launches with arguments at the places that the kernel's parameters have; parameters without one are 0.
pub fn launch(rig: &Rig, kernel: &str, grid: u32, block: u32, dynamic: u32, args: &[Arg]) {
    launch2(rig, kernel, [grid, 1, 1], [block, 1, 1], dynamic, args);
}

pub fn launch2(rig: &Rig, kernel: &str, grid: [u32; 3], block: [u32; 3], dynamic: u32, args: &[Arg]) {
    let info = rig.instance.module().kernel(kernel).unwrap_or_else(|| panic!("no kernel {kernel}")).clone();
    let mut bytes = vec![0; info.param_bytes as usize];
    for (param, arg) in info.params.iter().zip(args) {
        let value = match arg {
            Pointer(p) => p.to_le_bytes().to_vec(),
            Int(v) => v.to_le_bytes().to_vec(),
            Float(v) => v.to_le_bytes().to_vec(),
            Double(v) => v.to_le_bytes().to_vec(),
            Bytes(v) => v.clone(),
        };
        assert_eq!(value.len(), param.size as usize, "{kernel}: {}", param.name);
        bytes[param.offset as usize..][..value.len()].copy_from_slice(&value);
    }
    let shape = Launch { dynamic_shared: dynamic, ..Launch::new(grid, block) };
    let run = rig.machine.inspect(&rig.instance, kernel, &shape, &bytes, &Checks::ALL);
    if let Some(fault) = run.fault {
        panic!("{fault}");
    }
    // What compilers make of correct programs has nothing worse than a note.
    let known = |rule: &str| RACY.iter().any(|k| (k.0, k.1) == (kernel, rule));
    let blamed = run.findings.iter().filter(|f| f.severity > Severity::Info && !known(f.rule.name()));
    let blamed: Vec<String> = blamed.map(|f| f.to_string()).collect();
    assert!(blamed.is_empty(), "{kernel}: {}", blamed.join("\n"));
}

pub fn ints(seed: u64, n: usize, below: u64) -> Vec<i32> {
    let mut rng = Rng(seed);
    (0..n).map(|_| (rng.next() % below) as i32).collect()
}

/// Small whole numbers, negative ones too.
pub fn whole(seed: u64, n: usize) -> Vec<f32> {
    ints(seed, n, 17).into_iter().map(|v| (v - 8) as f32).collect()
}

/// The bits of a small whole number as a half: exact.
pub fn half(v: f32) -> u16 {
    half::f16::from_f32(v).to_bits()
}
