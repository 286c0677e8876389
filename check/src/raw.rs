//! Findings and their sides as the checkers see them, by positions in the code; and the launch, which names those places.

use std::sync::Arc;

use warpsmith_simt::machine::LANES;
use warpsmith_simt::{Frame, Module};

use super::defect::Defect;
use super::key::{Key, SIDES, Spot};
use super::{Detail, Rule, Severity, Site, SiteKind};

/// The launch that findings are about: what names their places.
pub(crate) struct Scene {
    pub module: Arc<Module>,
    pub kernel: String,
    pub grid: [u32; 3],
    pub block: [u32; 3],
}

impl Scene {
    /// The PTX line of a position, 0 if it has none, which of the line's statements it is, and its places in the source.
    fn named(&self, pc: u32) -> (u32, u32, Vec<Frame>) {
        let program = &self.module.program;
        let at = program.ops.get(pc as usize).map(|op| op.debug as usize);
        let Some((at, debug)) = at.and_then(|at| Some((at, program.debug.get(at)?))) else { return (0, 0, Vec::new()) };
        let before = program.debug[..at].iter().rev().take_while(|d| d.line == debug.line).count();
        let location = program.locations.get(debug.location as usize);
        (debug.line, before as u32, location.map(|l| self.module.frames(l)).unwrap_or_default())
    }

    fn coordinates(&self, index: u64) -> [u32; 3] {
        let [x, y, _] = self.grid.map(u64::from);
        [(index % x) as u32, (index / x % y) as u32, (index / x / y) as u32]
    }

    fn thread(&self, warp: u32, lane: u32) -> [u32; 3] {
        let linear = warp * LANES as u32 + lane;
        let [x, y, _] = self.block;
        [linear % x, linear / x % y, linear / x / y]
    }
}

/// One side of a finding as the checkers see it.
#[derive(Clone, Debug)]
pub(crate) struct RawSite {
    pub kind: SiteKind,
    /// Linear block index, warp and lane; `None` for what no thread of this launch did.
    pub thread: Option<(u64, u32, u32)>,
    /// Position in the code; `u32::MAX` if none.
    pub pc: u32,
    pub detail: Detail,
}

impl RawSite {
    /// The site with its place named.
    pub(crate) fn finish(self, scene: &Scene) -> Site {
        let (line, ptx_statement, source) = scene.named(self.pc);
        Site {
            kind: self.kind,
            block: self.thread.map(|(block, _, _)| scene.coordinates(block)),
            thread: self.thread.map(|(_, warp, lane)| scene.thread(warp, lane)),
            lane: self.thread.map_or(0, |t| t.2),
            ptx_line: line,
            ptx_text: scene.module.line(line).to_string(),
            ptx_statement,
            source,
            detail: self.detail,
        }
    }
}

/// A finding before its places have names.
#[derive(Clone, Debug)]
pub(crate) struct RawFinding {
    pub rule: Rule,
    pub severity: Severity,
    pub defect: Defect,
    pub sites: Vec<RawSite>,
    pub addresses: Vec<u64>,
    /// For accesses of one block that its barriers could have ordered: how many had opened when they clashed.
    pub interval: Option<u32>,
}

impl RawFinding {
    /// What it shares with others that are the same.
    pub(crate) fn key(&self, scene: &Scene) -> Key {
        let spot = |site: &RawSite| -> Spot {
            let (line, statement, source) = scene.named(site.pc);
            (line, statement, source.into_iter().next())
        };
        Key::new(self.rule, &scene.kernel, self.sites.iter().take(SIDES).map(spot))
    }
}
