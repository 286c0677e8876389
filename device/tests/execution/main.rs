//! Every function of the device library, run on the SIMT machine from the PTX of each architecture
//! and compared with what the CPU computes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::undocumented_unsafe_blocks)]

#[path = "../fixtures/all-device/src/lib.rs"]
mod all_device;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/gpu.rs"]
mod gpu;

mod arithmetic;
mod collectives;
mod memory;

use all_device::{
    arithmetic::*, atomics::*, collectives::*, generic::*, matrices::*, memory::*, narrow::*, pipelines::*,
    printing::*, shapes::*, tiles::*,
};
use common::fixture;
use gpu::noise;
use warpsmith_device::{Kernel, KernelMeta};

fn same(ours: &[f32], expected: &[f32], what: &str) {
    assert_eq!(ours.len(), expected.len(), "{what}");
    for (i, (a, b)) in ours.iter().zip(expected).enumerate() {
        assert!(a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()), "{what}[{i}]: {a:e} for {b:e}");
    }
}

fn integers(seed: u64, n: usize, below: u64) -> Vec<u32> {
    noise(seed).take(n).map(|v| (v % below) as u32).collect()
}

fn floats(seed: u64, n: usize, scale: f32) -> Vec<f32> {
    noise(seed).take(n).map(|v| ((v >> 40) as f32 / (1 << 23) as f32 - 1.0) * scale).collect()
}

/// The kernels of the fixture.
const KERNELS: &[&KernelMeta] = &[
    BarrierBetweenBranches::META,
    BarrierInLoop::META,
    ShuffleBetweenBranches::META,
    ReductionForOneLane::META,
    VoteBetweenBranches::META,
    BlockReductionBetweenBranches::META,
    WarpBarrierBetweenBranches::META,
    HelpersBetweenBranches::META,
    Indices::META,
    GridStride::META,
    Shuffles::META,
    Votes::META,
    FloatReductions::META,
    IntegerReductions::META,
    BlockReductions::META,
    BlockOf32::META,
    BlockOf64::META,
    BlockOf512::META,
    BlockOf1024::META,
    CountingBarriers::META,
    WideGlobal::META,
    Streamed::META,
    SharedWidths::META,
    SharedVectors::META,
    DynamicShared::META,
    Tile::META,
    Values::META,
    Asserts::META,
    Clocks::META,
    Exact::META,
    Approximate::META,
    Bytes::META,
    Widen::META,
    Narrow::META,
    GlobalAtomics::META,
    LastBlock::META,
    SharedAtomics::META,
    Fences::META,
    NarrowAtomics::META,
    GridRounds::META,
    Dependent::META,
    Ring::META,
    OwnCopies::META,
    SplitBarriers::META,
    UnwaitedCopy::META,
    ProductF16::META,
    ProductBf16::META,
    ProductI8::META,
    ProductU8::META,
    ProductE4m3::META,
    ProductE5m2::META,
    StagedProducts::META,
    RowsProduct::META,
    Turns::META,
    SlowTurn::META,
    Pairs::META,
    BytesOfFloats::META,
    Random::META,
    Scalars::META,
    Hinted::META,
    Constants::META,
    ScaleF32::META,
    ScaleU32::META,
    ScalePairs::META,
    Closures::META,
    Unrolled::META,
    Elementary::META,
    Powers::META,
    Angles::META,
    Doubles::META,
    CostNothing::META,
    CostFma::META,
    CostSqrt::META,
    CostSqrtApprox::META,
    CostDivApprox::META,
    CostMax::META,
    CostFloor::META,
    CostExp::META,
    CostExpApprox::META,
    CostExp2Approx::META,
    CostLn::META,
    CostLnApprox::META,
    CostLog2::META,
    CostLog2Approx::META,
    CostPow::META,
    CostPowApprox::META,
    CostRsqrt::META,
    CostRsqrtApprox::META,
    CostTanh::META,
    CostTanhApprox::META,
    CostSigmoid::META,
    CostErf::META,
    CostCbrt::META,
    CostHypot::META,
    CostSinCos::META,
    CostTan::META,
    CostAtan::META,
    CostAtan2::META,
    CostAsin::META,
    CostAcos::META,
    CostDivFromOneToTwo::META,
    Bounds::META,
    Printing::META,
    GpuAsserts::META,
    Tiles1::META,
    Tiles4::META,
    Tiles16::META,
    Tiles32::META,
    TileTypes::META,
    BlockTiles::META,
];

#[test]
fn every_kernel_of_the_fixture_has_a_launch_struct() {
    let manifest = &fixture().manifest;
    assert_eq!(manifest.kernels.len(), KERNELS.len());
    for meta in KERNELS {
        let theirs = manifest.kernel(meta.name).unwrap_or_else(|| panic!("{}", meta.name));
        assert_eq!((theirs.block, theirs.min_blocks, theirs.line), (meta.block, meta.min_blocks, meta.line));
        assert_eq!((theirs.summary.as_str(), theirs.family.as_str()), (meta.summary, meta.family));
        assert_eq!(theirs.args.len(), meta.args.len());
        for (t, m) in theirs.args.iter().zip(meta.args) {
            assert_eq!(
                (t.name.as_str(), t.ty.as_str(), t.kind.as_str(), t.element.as_str()),
                (m.name, m.ty, m.kind.name(), m.element)
            );
            assert_eq!((t.size, t.align), (m.size, m.align), "{} {}", meta.name, m.name);
        }
    }
}
