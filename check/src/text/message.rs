//! What is wrong, in a line.

use warpsmith_simt::{BadAccess, FaultKind, Place, Reason};

use crate::defect::{AllocationKind, Decides, Defect, Difference, LeftBy, Missing, Race, Variable, Verb};
use crate::{Also, Finding};

use super::memory::address;

impl Finding {
    /// What is wrong, in a line.
    pub fn message(&self) -> String {
        self.defect.message()
    }
}

impl Also {
    /// What is wrong, in a line.
    pub fn message(&self) -> String {
        self.defect.message()
    }
}

impl Verb {
    /// As reports name it.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Read => "read",
            Verb::Write => "write",
            Verb::Atomic => "atomic",
            Verb::Copy => "copy",
        }
    }

    /// As instructions are named.
    pub(super) fn instruction(self) -> &'static str {
        match self {
            Verb::Read => "load",
            Verb::Write => "store",
            Verb::Atomic => "atomic",
            Verb::Copy => "copy",
        }
    }

    /// Of an access that may write.
    fn of(writes: bool) -> &'static str {
        if writes { Verb::Write.name() } else { Verb::Read.name() }
    }
}

/// A number of things.
pub(super) fn plural(n: u64, one: &str, more: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {more}") }
}

impl Defect {
    fn message(&self) -> String {
        match self {
            Defect::Race(race) => race.message(),
            &Defect::SameAddress { lanes, different, space, at, .. } => {
                let same = if different { "different values" } else { "the same value" };
                format!("{lanes} lanes of a warp write {same} to {} in one instruction", address(space, at))
            }
            &Defect::CopyUnderWay { writes, .. } => under_way(Place::Shared, writes, true),
            &Defect::BarrierLeftOut { threads } => {
                let (who, have) =
                    if threads == 1 { ("thread".to_owned(), "has") } else { (format!("{threads} threads"), "have") };
                format!("a barrier opens only because the {who} that went around it {have} exited")
            }
            Defect::BarrierKinds { barrier, first, now } => {
                format!("{first} and {now} on barrier {barrier} at the same time")
            }
            Defect::BarrierAgain { barrier } => {
                format!("a warp arrives at barrier {barrier} again before it has opened")
            }
            Defect::MasksDisagree { collective, lanes, others } => format!(
                "masks of {collective} disagree: lanes {lanes:#010x} wait for lanes {others:#010x}, which do not wait for them"
            ),
            Defect::SplitCollective { collective, lanes, places } => {
                format!(
                    "the lanes {lanes:#010x} of one collective ({collective}) arrive from {places} places of the code"
                )
            }
            &Defect::ShuffleSource { lane, mask } => match mask {
                Some(mask) => format!("a shuffle reads lane {lane}, which the membermask {mask:#010x} does not name"),
                None => format!("a shuffle reads lane {lane}, which has exited"),
            },
            Defect::VariableOverrun { access, bytes, of, hit, .. } => overrun(*access, *bytes, of, hit.as_ref()),
            Defect::Undefined { decides, .. } => format!("{} depends on undefined data", decides.name()),
            Defect::UndefinedOutput { bytes, undefined, nearest, .. } => format!(
                "a copy of {bytes} bytes to the host contains {undefined} undefined ones, the first at {:#x}",
                nearest.address
            ),
            Defect::DivisionByZero => "integer division by zero".to_owned(),
            Defect::Overlap { writes, earlier_writes, nearest, programmatic, .. } => format!(
                "{}-{} race on global memory at {:#x}{}",
                Verb::of(*earlier_writes),
                Verb::of(*writes),
                nearest.address,
                match programmatic {
                    true => ": a programmatic launch does not wait for the one before it",
                    false => " between operations that nothing orders",
                }
            ),
            Defect::FreedInUse { operation, nearest, .. } => {
                format!("{operation} frees memory at {:#x} that an operation may still use", nearest.address)
            }
            &Defect::Leak { memory, bytes, left_by, .. } => {
                let verb = if bytes == 1 { "was" } else { "were" };
                let size = plural(bytes, "byte", "bytes");
                format!("{size} of {memory} {verb} not freed before {}", left_by.name())
            }
            Defect::Refused { function, code, name, meaning, .. } => {
                format!("{function} is refused: {name} ({code}), {meaning}")
            }
            Defect::Schedule { seeds, difference } => difference.message(*seeds),
            Defect::Stuck { reason, .. } => said(None, reason.as_ref()),
            Defect::Fault { fault, address, access, reason, .. } => {
                let said = said(access.as_ref(), reason.as_ref());
                stopped(fault, *address, said.lines().next().unwrap_or_default())
            }
        }
    }
}

/// What a fault says of itself.
pub(super) fn said(access: Option<&BadAccess>, reason: Option<&Reason>) -> String {
    access.map(ToString::to_string).or_else(|| reason.map(ToString::to_string)).unwrap_or_default()
}

fn stopped(kind: &FaultKind, address: Option<u64>, first: &str) -> String {
    match (kind, address) {
        (FaultKind::BadLaunch, _) => first.to_owned(),
        (kind, None) if first.is_empty() => kind.name().to_owned(),
        (kind, None) => format!("{}: {first}", kind.name()),
        (kind, Some(address)) if first.is_empty() => format!("{} at {address:#x}", kind.name()),
        (kind, Some(address)) => format!("{} at {address:#x}: {first}", kind.name()),
    }
}

/// Memory is used that an asynchronous copy uses.
fn under_way(space: Place, writes: bool, target: bool) -> String {
    format!(
        "{} is {} while an asynchronous copy {} it is under way",
        if space == Place::Shared { "shared memory" } else { "global memory" },
        if writes { "written" } else { "read" },
        if target { "to" } else { "from" },
    )
}

impl Race {
    fn message(&self) -> String {
        let (mine, other) = (self.access.name(), self.earlier.name());
        let name = address(self.space, self.at);
        // The earlier one first, unless both are the same.
        let kind = format!("{other}-{mine}");
        match self.missing {
            Missing::Coherence if self.access == Verb::Read => {
                format!("non-coherent load (.nc) of {name}, which this grid has written")
            }
            Missing::Coherence => format!("{mine} of {name}, which this grid reads with non-coherent loads (.nc)"),
            Missing::WiderScope { .. } => format!("{kind} race on {name}: a scope is too narrow"),
            Missing::Wait { target, .. } => under_way(self.space, self.writes, target),
            _ => format!("{kind} race on {name} ({} bytes)", self.bytes),
        }
    }
}

fn overrun(access: Verb, bytes: u64, of: &[Variable], hit: Option<&Variable>) -> String {
    let verb = access.instruction();
    let names: Vec<String> = of.iter().map(|v| format!("`{}`", v.name)).collect();
    let into = match hit {
        Some(v) => format!("in `{}` ({} bytes at offset {})", v.name, v.bytes, v.offset),
        None => "between two variables".to_owned(),
    };
    format!("{verb} of {bytes} bytes runs out of the shared variable {}: {into}", names.join(" or "))
}

impl Decides {
    fn name(self) -> &'static str {
        match self {
            Decides::ControlFlow => "where control goes",
            Decides::Guard => "whether control goes here",
            Decides::Execution => "whether this is executed",
            Decides::Address => "the address of a memory access",
            Decides::Operand => "what the instruction does",
            Decides::Comparison => "which way a compare-and-swap goes",
        }
    }
}

impl std::fmt::Display for AllocationKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            AllocationKind::Device => "device memory",
            AllocationKind::Pool => "pool memory",
            AllocationKind::Managed => "managed memory",
            AllocationKind::Pinned => "pinned memory",
            AllocationKind::Registered => "registered memory",
            AllocationKind::Variable => "a variable",
            AllocationKind::Interprocess => "memory of another process",
        })
    }
}

impl LeftBy {
    fn name(self) -> &'static str {
        match self {
            LeftBy::Context => "its context was destroyed",
            LeftBy::Process => "the process ended",
        }
    }
}

impl Difference {
    fn message(&self, (a, b): (u64, u64)) -> String {
        let size = |bytes: u64| plural(bytes, "byte", "bytes");
        let copy = |side: Option<u64>| side.map_or("missing".to_owned(), |bytes| format!("of {}", size(bytes)));
        match *self {
            Difference::Outputs => {
                format!("the outputs under seed {b} differ in their bits from those under seed {a}")
            }
            Difference::ExitCode { before, after } => {
                format!("the program ends with code {before} under seed {a} and {after} under seed {b}")
            }
            Difference::Bytes { number, bytes } => format!(
                "copy {number} to the host, of {}, delivers other bytes under seed {b} than under seed {a}",
                size(bytes)
            ),
            Difference::Path { number, before, after } => format!(
                "copy {number} to the host is {} under seed {a} and {} under seed {b}",
                copy(before),
                copy(after)
            ),
            Difference::Later { number } => {
                format!("copies to the host from number {number} on are not the same under seeds {a} and {b}")
            }
        }
    }
}
