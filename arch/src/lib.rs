//! Facts about NVIDIA GPUs, each in one place: the limits of every architecture ([`Architecture`]), which PTX knows which target
//! ([`Target`]), how many blocks of a launch are resident ([`Occupancy`]), and the rates of data sheets ([`Gpu`]).
//!
//! Sources: the CUDA Programming Guide ("Technical Specifications per Compute Capability"), `cuda_occupancy.h` of the CUDA
//! toolkit and `arch_traits.h` of libcu++ for limits; the table "Throughput of Native Arithmetic Instructions" for rates of an
//! architecture; data sheets for those of a GPU. The tests of this crate hold the tables to the published ones.
//!
//! ```
//! use warpsmith_arch::{Architecture, Demand, Occupancy};
//! let hopper = Architecture::find(90).unwrap();
//! let demand = Demand { registers: 64, threads: 256, shared: 0 };
//! let occupancy = Occupancy::on(hopper, demand);
//! assert_eq!((occupancy.blocks(), occupancy.percent()), (4, 50.0));
//! ```

#![no_std]

mod architecture;
mod gpu;
mod occupancy;
mod target;

pub use architecture::Architecture;
pub use gpu::{Gpu, Rates};
pub use occupancy::{Demand, Occupancy};
pub use target::Target;

/// Threads of a warp.
pub const WARP: u32 = 32;
/// Threads of a block, on every architecture.
pub const MAX_THREADS: u32 = 1024;
/// Threads of a block in x, y and z, on every architecture; [`MAX_THREADS`] in all.
pub const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
/// Blocks of a grid in x, y and z, on every architecture.
pub const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];
/// 32-bit registers of a multiprocessor, and the most of a block, on every architecture from sm_70 on but none before.
pub const REGISTERS: u32 = 65536;
/// 32-bit registers of a thread at most.
pub const MAX_REGISTERS: u32 = 255;
/// Registers are allocated to a warp in units of so many.
pub const REGISTER_UNIT: u32 = 256;
/// Parts of a multiprocessor, each with a scheduler that issues an instruction of a warp a clock, and a share of the registers.
pub const PARTITIONS: u32 = 4;
/// Bytes of shared memory that a block may have without opting in to more, and the most that a kernel may declare.
pub const DEFAULT_SHARED: u32 = 48 * 1024;
/// Bytes of constant memory.
pub const CONSTANT: u32 = 64 * 1024;
/// Bytes of local memory of a thread at most.
pub const MAX_LOCAL: u32 = 512 * 1024;
/// Bytes of a sector, the unit in which caches and memory are read.
pub const SECTOR: u32 = 32;
