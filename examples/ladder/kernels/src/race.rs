//! Step 5 without its barrier.

use warpsmith_device::prelude::*;

#[cfg(target_arch = "nvptx64")]
use crate::sum::butterfly;

/// Step 20, a race: the sum of step 5 as somebody in a hurry writes it.
///
/// The first warp reads the warps' sums without waiting for them. It may go well a thousand times: where warps happen to
/// run one after the other, the sums are there.
#[kernel(block = 256, min_blocks = 4, variant = "step 20")]
pub unsafe fn sum_race(x: In<f32>, y: Out<f32>, n: u32) {
    let warps = shared_array!(SUM_RACE: [f32; 8]);
    let i = thread::global_x();
    let sum = butterfly(if i < n as usize { x.at(i) } else { 0.0 });
    if thread::lane() == 0 {
        warps.set(thread::warp() as usize, sum);
    }
    // `sync::block()` belongs here.
    if thread::warp() == 0 {
        let lane = thread::lane() as usize;
        let sum = butterfly(if lane < 8 { warps.get(lane) } else { 0.0 });
        if lane == 0 {
            y.set(block::idx_x() as usize, sum);
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Contract for SumRace<'_> {
    fn geometry(&self) -> Geometry {
        Geometry::blocks(self.n.div_ceil(256))
    }
    fn check(&self) -> Result<(), ContractError> {
        crate::sum::check(Self::META, self.x, self.y, self.n)?;
        contract::exactly(Self::META, "y", self.y.len(), (self.n.div_ceil(256), "blocks"))
    }
}
