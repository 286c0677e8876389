//! What is told of a launch that failed.

use super::machine::Machine;
use crate::exec::RawFault;
use crate::fault::{Fault, FaultKind};
use crate::module::Module;
use crate::program::Grid;

/// Block, warp, and what stopped it.
pub(super) type Failure = (u64, u32, Box<RawFault>);

impl Machine {
    /// A raw fault with the names of its places.
    pub(super) fn report(&self, module: &Module, kernel: &str, grid: &Grid<'_>, (block, warp, raw): Failure) -> Fault {
        let RawFault { kind, lane, pc, address, access, reason, mut waiters } = *raw;
        for w in &mut waiters {
            let (line, location) = module.place(w.pc);
            (w.ptx_line, w.source) = (line, location.map(|l| module.source(l)));
        }
        let (ptx_line, location) = module.place(pc);
        let memory_fault = matches!(kind, FaultKind::OutOfBounds | FaultKind::Misaligned);
        let nearest = address.filter(|&a| memory_fault && a >= 1 << 32).map(|a| self.memory.nearest(a));
        Fault {
            block: grid.coordinates(block),
            linear_block: block,
            thread: grid.thread(warp, lane),
            warp,
            lane,
            pc,
            ptx_line,
            ptx_text: module.line(ptx_line).to_string(),
            source: location.map(|l| module.source(l)),
            frames: location.map(|l| module.frames(l)).unwrap_or_default(),
            address,
            access,
            reason,
            waiters,
            nearest,
            ..Fault::new(kind, kernel)
        }
    }
}
