//! What the checkers report.

use std::fmt;

use warpsmith_simt::Frame;

macro_rules! rules {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// What a finding is about.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Rule {
            $($(#[$doc])* $variant,)*
        }

        impl Rule {
            /// All rules.
            pub const ALL: &'static [Rule] = &[$(Rule::$variant),*];

            /// The name in reports, e.g. `race::shared`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Rule::$variant => $name,)*
                }
            }
        }
    };
}

rules! {
    /// An access outside every allocation, window or parameter block.
    OutOfBounds = "memory::out-of-bounds",
    /// An access to memory that has been freed.
    UseAfterFree = "memory::use-after-free",
    /// An address that is not a multiple of the access's size.
    Misaligned = "memory::misaligned",
    /// An access near address zero.
    NullPointer = "memory::null-pointer",
    /// A `.nc` load of data that the same grid writes.
    StaleRead = "memory::stale-read",
    /// Memory that nobody freed.
    Leak = "memory::leak",
    /// A branch that depends on undefined data.
    UndefinedBranch = "init::branch",
    /// An address that depends on undefined data.
    UndefinedAddress = "init::address",
    /// Undefined data as an operand that decides what a collective, a barrier or an atomic does.
    UndefinedOperand = "init::operand",
    /// Undefined bytes that a copy takes to the host.
    UndefinedOutput = "init::output",
    /// Unordered accesses of shared memory.
    RaceShared = "race::shared",
    /// Unordered accesses of global memory by one grid.
    RaceGlobal = "race::global",
    /// Accesses that would be ordered if a scope were wider.
    RaceScope = "race::scope",
    /// Unordered accesses by operations of different streams or graph branches.
    RaceStream = "race::stream",
    /// Memory that is freed while an unordered operation uses it.
    FreeStream = "race::free",
    /// A global variable that all blocks share where shared memory was probably meant.
    StaticShared = "race::static",
    /// Lanes or warps disagree about a barrier.
    BarrierDivergence = "sync::barrier-divergence",
    /// Threads wait at a barrier that others of the block have left out or exited before.
    BarrierMissing = "sync::barrier-missing",
    /// A collective's membermask names or excludes lanes that it must not.
    Membermask = "sync::membermask",
    /// One collective that lanes execute at several places of the code.
    SplitCollective = "sync::split-collective",
    /// A shuffle reads a lane that takes no part.
    InactiveSource = "sync::inactive-source",
    /// Nothing can ever run again.
    Deadlock = "sync::deadlock",
    /// Data of an asynchronous copy is used before the wait for it.
    MissingWait = "async::missing-wait",
    /// A barrier object is used before it is initialised, or initialised twice.
    BarrierObject = "async::barrier-object",
    /// A call of the driver that is wrong, and was refused.
    ApiMisuse = "api::misuse",
    /// Results depend on the order of blocks, warps or lanes.
    Nondeterminism = "schedule::nondeterminism",
    /// An integer division by zero.
    DivisionByZero = "arithmetic::division-by-zero",
    /// The kernel stopped itself: `trap`, a failed assertion, a panic.
    Stopped = "fault::stopped",
    /// Any other fault.
    Fault = "fault::other",
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// Legal, or harmless on today's hardware; worth knowing.
    Info,
    /// Wrong by the rules, without an effect on this run's results.
    Warning,
    /// Wrong.
    Error,
}

impl Severity {
    /// `error`, `warning` or `info`.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// Of a place and the calls that it was inlined through, the innermost in the crate of the kernel; else the innermost that
/// is not in Rust's own library.
pub fn own_frame(frames: &[Frame]) -> Option<&Frame> {
    own_at(frames).and_then(|at| frames.get(at))
}

/// The position of [`own_frame`].
fn own_at(frames: &[Frame]) -> Option<usize> {
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

/// Writes a place: first the line of the kernel's own crate, then what that was inlined into, then what of other crates lies
/// between it and the instruction.
fn write_place(f: &mut fmt::Formatter<'_>, frames: &[Frame]) -> fmt::Result {
    let Some(own) = own_at(frames).or(frames.len().checked_sub(1)) else { return Ok(()) };
    write!(f, "\n    at {}", frames[own])?;
    frames[own + 1..].iter().try_for_each(|frame| write!(f, "\n    inlined into {frame}"))?;
    let mut inner = frames[..own].iter().rev();
    if let Some(first) = inner.next() {
        write!(f, "\n    in {first}")?;
        inner.try_for_each(|frame| write!(f, ", in {frame}"))?;
    }
    Ok(())
}

/// One side of a finding: who did what, where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// What happened here, e.g. `write of 4 bytes`.
    pub label: String,
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
    /// Source places, innermost first; empty without line information.
    pub source: Vec<Frame>,
    /// The value, or what else is known; may be empty.
    pub note: String,
}

/// Something wrong, or doubtful.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is about.
    pub rule: Rule,
    /// How bad it is.
    pub severity: Severity,
    /// The kernel, or the API function.
    pub kernel: String,
    /// One line: what is wrong.
    pub message: String,
    /// Where, most telling side first.
    pub sites: Vec<Site>,
    /// The memory in question in words: allocation, distance, whether freed. May be empty.
    pub memory: String,
    /// Addresses of global memory that it is about: of the memory in question, and then, of undefined data, where it was
    /// undefined before. May be empty.
    pub addresses: Vec<u64>,
    /// Why that is wrong and what would make it right. May be empty.
    pub help: String,
    /// How often it was seen in the launch; the sites are those of the first time.
    pub count: u64,
    /// What was found beside it and has the same cause.
    pub also: Vec<Also>,
}

/// A finding that follows from another, or from what that follows from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Also {
    /// What it is about.
    pub rule: Rule,
    /// How bad it would be alone.
    pub severity: Severity,
    /// One line: what is wrong.
    pub message: String,
    /// Where.
    pub sites: Vec<Site>,
    /// How often it was seen.
    pub count: u64,
}

impl Also {
    /// The lines of its first two sides: those of the kernel's own crate, else of the PTX.
    fn lines(&self) -> Vec<String> {
        let line = |s: &Site| match own_frame(&s.source) {
            Some(frame) => frame.to_string(),
            None => format!("PTX line {}", s.ptx_line),
        };
        self.sites.iter().take(2).filter(|s| s.ptx_line != 0).map(line).collect()
    }
}

/// What follows from a finding, of which a report shows so many lines.
const SHOWN: usize = 4;

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]: {}", self.severity.name(), self.rule.name(), self.message)?;
        if self.count > 1 {
            let unit = if self.rule == Rule::Leak { "allocations" } else { "times" };
            write!(f, " ({} {unit})", self.count)?;
        }
        if !self.kernel.is_empty() {
            write!(f, "\n  in kernel `{}`", self.kernel)?;
        }
        for site in &self.sites {
            write!(f, "\n  {}", site.label)?;
            if let (Some([bx, by, bz]), Some([tx, ty, tz])) = (site.block, site.thread) {
                write!(f, " by block ({bx},{by},{bz}), thread ({tx},{ty},{tz}), lane {}", site.lane)?;
            }
            if !site.note.is_empty() {
                write!(f, ": {}", site.note)?;
            }
            write_place(f, &site.source)?;
            if site.ptx_line != 0 {
                write!(f, "\n    PTX line {}: {}", site.ptx_line, site.ptx_text.trim())?;
            }
        }
        for also in self.also.iter().take(SHOWN) {
            write!(f, "\n  also {}: {}", also.rule.name(), also.message)?;
            if also.count > 1 {
                write!(f, " ({} times)", also.count)?;
            }
            let lines = also.lines();
            if !lines.is_empty() {
                write!(f, ", {}", lines.join(" and "))?;
            }
        }
        if self.also.len() > SHOWN {
            write!(f, "\n  and {} more places with the same cause", self.also.len() - SHOWN)?;
        }
        for (word, text) in [("memory", &self.memory), ("help", &self.help)] {
            for (i, line) in text.lines().enumerate() {
                if i == 0 {
                    write!(f, "\n  {word}: {line}")?;
                } else {
                    write!(f, "\n    {line}")?;
                }
            }
        }
        Ok(())
    }
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

    #[test]
    fn the_users_line_stands_before_the_librarys() {
        let frame = |file: &str, line| Frame { file: file.into(), line, column: 0 };
        struct Shown(Vec<Frame>);
        impl fmt::Display for Shown {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_place(f, &self.0)
            }
        }
        let chain = [
            frame("core/src/ptr.rs", 9),
            frame("/d/src/args.rs", 67),
            frame("/k/src/a.rs", 5),
            frame("/k/src/lib.rs", 1),
        ];
        let text = Shown(chain.to_vec()).to_string();
        assert_eq!(
            text,
            "\n    at /k/src/a.rs:5\n    inlined into /k/src/lib.rs:1\n    in /d/src/args.rs:67, in core/src/ptr.rs:9"
        );
        assert_eq!(Shown(Vec::new()).to_string(), "");
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = Rule::ALL.iter().map(|r| r.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Rule::ALL.len());
    }
}
