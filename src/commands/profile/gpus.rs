//! Figures of GPUs, for projections: NVIDIA's data sheets (multiprocessors, boost clock, memory bandwidth), and the table
//! "Throughput of Native Arithmetic Instructions" of the CUDA C++ Programming Guide.

/// A GPU on paper.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// As `--gpu` takes it.
    pub name: &'static str,
    /// As its maker calls it.
    pub title: &'static str,
    /// Architecture.
    pub sm: u32,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Boost clock in MHz.
    pub clock_mhz: u32,
    /// Memory bandwidth in GB/s (10^9).
    pub bandwidth: f64,
    /// f32 additions, multiplications or fused multiply-adds a clock and multiprocessor.
    pub fp32: u32,
    /// The same in f64.
    pub fp64: u32,
}

macro_rules! gpu {
    ($name:literal, $title:literal, $sm:literal, $sms:literal, $clock:literal, $bandwidth:literal, $fp32:literal, $fp64:literal) => {
        Figures {
            name: $name,
            title: $title,
            sm: $sm,
            multiprocessors: $sms,
            clock_mhz: $clock,
            bandwidth: $bandwidth,
            fp32: $fp32,
            fp64: $fp64,
        }
    };
}

/// The known ones.
pub static ALL: [Figures; 11] = [
    //    name       title                     sm   SMs  MHz   GB/s    f32  f64
    gpu!("t4", "NVIDIA T4", 75, 40, 1590, 320.0, 64, 2),
    gpu!("a100", "NVIDIA A100 SXM 80 GB", 80, 108, 1410, 2039.0, 64, 32),
    gpu!("a10", "NVIDIA A10", 86, 72, 1695, 600.0, 128, 2),
    gpu!("rtx3090", "GeForce RTX 3090", 86, 82, 1695, 936.0, 128, 2),
    gpu!("l4", "NVIDIA L4", 89, 58, 2040, 300.0, 128, 2),
    gpu!("l40s", "NVIDIA L40S", 89, 142, 2520, 864.0, 128, 2),
    gpu!("rtx4090", "GeForce RTX 4090", 89, 128, 2520, 1008.0, 128, 2),
    gpu!("h100", "NVIDIA H100 SXM", 90, 132, 1980, 3350.0, 128, 64),
    gpu!("h200", "NVIDIA H200 SXM", 90, 132, 1980, 4800.0, 128, 64),
    gpu!("b200", "NVIDIA B200", 100, 148, 1965, 8000.0, 128, 64),
    gpu!("rtx5090", "GeForce RTX 5090", 120, 170, 2407, 1792.0, 128, 2),
];

/// Warps that a multiprocessor issues a clock, one for each of its four schedulers.
pub const ISSUE: f64 = 4.0;
/// Lanes of special functions (`rcp`, `rsqrt`, `ex2`, `lg2`, `sin`, `cos`, …) a clock and multiprocessor.
pub const SPECIAL: f64 = 16.0;

/// The GPU of that name.
pub fn find(name: &str) -> Result<&'static Figures, String> {
    let wanted = name.to_lowercase();
    ALL.iter().find(|g| g.name == wanted).ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|g| g.name).collect();
        format!("no figures of `{name}`: known are {}", names.join(", "))
    })
}
