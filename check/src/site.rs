//! The sides of a finding: who did what, and where.

use serde::{Deserialize, Serialize};
use warpsmith_simt::machine::note::{Order, Scope};
use warpsmith_simt::{Frame, Waits};

use crate::defect::Verb;

/// One side of a finding: who did what, where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// What happened here. [`label`](Site::label) has it in words.
    pub kind: SiteKind,
    /// Block, if it is a thread's doing.
    pub block: Option<[u32; 3]>,
    /// Thread in the block, and its lane.
    pub thread: Option<[u32; 3]>,
    /// Lane in its warp.
    pub lane: u32,
    /// Line in the PTX text, 0 if none, and that line.
    pub ptx_line: u32,
    /// The text of that line.
    pub ptx_text: String,
    /// Which of the line's statements it is, from 0: compilers write one a line.
    pub ptx_statement: u32,
    /// Source places, innermost first; empty without line information.
    pub source: Vec<Frame>,
    /// The value, or what else is known. [`note`](Site::note) has it in words.
    pub detail: Detail,
}

impl Site {
    /// A place outside kernels.
    pub(crate) fn nowhere(kind: SiteKind) -> Site {
        let (block, thread, lane, ptx_line, ptx_text, ptx_statement, source) = Default::default();
        Site { kind, block, thread, lane, ptx_line, ptx_text, ptx_statement, source, detail: Detail::None }
    }
}

/// What happened at a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum SiteKind {
    /// An access, or the earlier of two.
    Access {
        /// What it does.
        verb: Verb,
        /// Its bytes, where that is known.
        bytes: Option<u64>,
        /// It is the earlier one.
        earlier: bool,
    },
    /// An instruction that loads, stores or does both.
    Instruction(Verb),
    /// An asynchronous copy that is under way.
    AsyncCopy,
    /// A barrier that somebody waits for.
    Barrier,
    /// Where those passed that went around a barrier.
    LeftOut,
    /// An instruction by its name: a collective, a barrier.
    Named(String),
    /// A shuffle.
    Shuffle,
    /// Where some lanes execute a collective that others execute elsewhere.
    Part,
    /// An integer division.
    Division,
    /// What undefined data decides: where control goes.
    Decision,
    /// What undefined data decides: where an access goes.
    Addressed,
    /// What undefined data decides: what an operation does.
    Operation,
    /// A load of undefined bytes.
    UndefinedLoad {
        /// The kernel, if it is another one.
        kernel: Option<String>,
    },
    /// A store of undefined data.
    UndefinedStore {
        /// The kernel, if it is another one.
        kernel: Option<String>,
    },
    /// An earlier store of it, between two loads.
    StoredBefore {
        /// The kernel, if it is another one.
        kernel: Option<String>,
    },
    /// A store to an allocation.
    Store,
    /// A use of memory by an operation of the host program.
    Use {
        /// Whether it writes.
        writes: bool,
        /// The kernel, if it is a launch.
        kernel: Option<String>,
        /// The operation.
        operation: String,
        /// It is the earlier one.
        earlier: bool,
    },
    /// The operation of the host program that frees memory.
    Free {
        /// The operation.
        operation: String,
    },
    /// The instruction that stopped the launch.
    Executed,
    /// Where the thread at fault stands.
    Here,
    /// Lanes that wait, spin or have exited.
    Waits {
        /// Their warp.
        warp: u32,
        /// The lanes.
        lanes: u32,
        /// What they do.
        waits: Waits,
        /// How many more groups of lanes do the same there.
        more: usize,
    },
}

impl SiteKind {
    /// The same, of a kernel that is not the finding's, unless it is another one's already.
    pub(crate) fn by(mut self, name: &str) -> SiteKind {
        if let SiteKind::UndefinedLoad { kernel }
        | SiteKind::UndefinedStore { kernel }
        | SiteKind::StoredBefore { kernel } = &mut self
        {
            kernel.get_or_insert_with(|| name.to_owned());
        }
        self
    }
}

/// What else is known of a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Detail {
    /// Nothing.
    None,
    /// So many other lanes of the warp do the same.
    OtherLanes(u32),
    /// So many other threads of the block do the same.
    OtherThreads(u32),
    /// The elements that are read.
    Reads(Vec<u64>),
    /// The elements that are written, and what was there before, if that is known.
    Writes {
        /// New elements.
        new: Vec<u64>,
        /// Old elements.
        over: Option<Vec<u64>>,
    },
    /// An atomic: the elements that it finds, its order and its scope.
    Finds {
        /// The elements.
        old: Vec<u64>,
        /// The order.
        order: Order,
        /// The scope.
        scope: Scope,
    },
    /// It wrote what is read now.
    WroteThis,
    /// A strong access: its order and its scope.
    Strong {
        /// The order.
        order: Order,
        /// The scope.
        scope: Scope,
    },
    /// An access of shared memory.
    Shared {
        /// Its bytes.
        bytes: u64,
        /// Its offset.
        at: u64,
        /// It is the target of a copy.
        target: bool,
    },
    /// The lanes that are here.
    Lanes(u32),
    /// The lanes that are here, and those that their mask names.
    Masked {
        /// The lanes.
        lanes: u32,
        /// The mask.
        mask: u32,
    },
    /// It is the first to arrive.
    FirstToArrive,
}

/// Of a place and the calls that it was inlined through, the innermost in the crate of the kernel; else the innermost that
/// is not in Rust's own library.
pub fn own_frame(frames: &[Frame]) -> Option<&Frame> {
    own_at(frames).and_then(|at| frames.get(at))
}

/// The position of [`own_frame`].
pub(crate) fn own_at(frames: &[Frame]) -> Option<usize> {
    let crate_of = |f: &Frame| f.file.rfind("src/").map(|at| f.file[..at].to_owned());
    let home = frames.last().and_then(crate_of);
    let first = |wanted: &dyn Fn(&Frame) -> bool| frames.iter().position(|f| f.line != 0 && wanted(f));
    first(&|f| home.is_some() && crate_of(f) == home && !in_core(&f.file))
        .or_else(|| first(&|f| !in_core(&f.file)))
        .or_else(|| first(&|_| true))
}

/// Whether a file is one of Rust's own library.
fn in_core(file: &str) -> bool {
    file.starts_with("/rustc/") || file.contains("/library/core/") || file.contains("/library/alloc/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_frame_is_the_innermost_line_of_the_kernels_crate() {
        let frame = |file: &str, line| Frame { file: file.into(), line, column: 0 };
        let chain = [
            frame("/r/lib/rustlib/src/rust/library/core/src/ptr/mod.rs", 9),
            frame("/w/device/src/args.rs", 67),
            frame("/w/app/kernels/src/a.rs", 0),
            frame("/w/app/kernels/src/a.rs", 5),
            frame("/w/app/kernels/src/lib.rs", 1),
        ];
        assert_eq!(own_frame(&chain), Some(&chain[3]));
        assert_eq!(own_frame(&chain[..2]), Some(&chain[1]));
        assert_eq!(own_frame(&chain[..1]), Some(&chain[0]));
        assert_eq!(own_frame(&[]), None);
    }
}
