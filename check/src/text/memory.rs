//! The memory in question, in words.

use warpsmith_simt::Place;

use crate::Finding;
use crate::defect::{Defect, OutputPast, Past, Undefined, Variable, Within};

use super::message::said;

impl Finding {
    /// The memory in question, in words: allocation, distance, whether it is freed. Who waits, for what stopped a launch. May be
    /// empty.
    pub fn memory(&self) -> String {
        match &self.defect {
            Defect::Race(race) => race.within.describe(race.at),
            Defect::SameAddress { space: Place::Global, at, within, .. } => within.describe(*at),
            Defect::CopyUnderWay { at, .. } => format!("offset {at} of shared memory"),
            Defect::VariableOverrun { at, of, .. } => overrun(*at, of),
            Defect::Undefined { data, .. } => data.describe(),
            Defect::UndefinedOutput { nearest, past, .. } => match past {
                OutputPast::Stored(Some(data)) => format!("{nearest}\nundefined before that: {}", data.describe()),
                OutputPast::Copied(from) => format!("{nearest}\nundefined before that: {from}"),
                _ => nearest.to_string(),
            },
            Defect::Overlap { nearest, .. } | Defect::FreedInUse { nearest, .. } => nearest.to_string(),
            Defect::Leak { first: (address, bytes), .. } => match self.count {
                1 => format!("at {address:#x}"),
                _ => format!("the first is {bytes} bytes at {address:#x}"),
            },
            Defect::Fault { access, reason, waiters, nearest, .. } => {
                let said = said(access.as_ref(), reason.as_ref());
                let more = said.lines().skip(1).map(str::to_owned);
                let waiting = waiters.iter().map(ToString::to_string);
                let lines: Vec<String> = more.chain(waiting).chain(nearest.iter().map(ToString::to_string)).collect();
                lines.join("\n")
            }
            _ => String::new(),
        }
    }
}

/// An address as reports name it.
pub(super) fn address(space: Place, at: u64) -> String {
    match space {
        Place::Shared => format!("smem+{at:#x}"),
        _ => format!("global memory at {at:#x}"),
    }
}

impl Within {
    /// What `at` lies in.
    fn describe(&self, at: u64) -> String {
        match self {
            Within::Shared { bytes } => format!("{bytes} bytes of shared memory of the block"),
            Within::Allocation { base, bytes } => {
                format!("byte {} of the allocation of {bytes} bytes at {base:#x}", at.wrapping_sub(*base))
            }
            Within::Variable { name, base, bytes } => {
                format!("byte {} of the variable `{name}` ({bytes} bytes)", at.wrapping_sub(*base))
            }
            Within::Unknown => String::new(),
        }
    }
}

fn overrun(at: u64, of: &[Variable]) -> String {
    let last = of.iter().min_by_key(|v| at.abs_diff(v.offset).min(at.abs_diff(v.end())));
    let distance = match last {
        Some(v) if at < v.offset => format!("{} bytes before `{}`", v.offset - at, v.name),
        Some(v) if at >= v.end() => format!("{} bytes past the end of `{}`", at - v.end(), v.name),
        Some(v) => format!("across the end of `{}`", v.name),
        None => String::new(),
    };
    let sizes: Vec<String> = of.iter().map(|v| format!("{} bytes at offset {}", v.bytes, v.offset)).collect();
    format!("offset {at} of shared memory, {distance}; the address was made from {}", sizes.join(" or "))
}

impl Undefined {
    /// Which bytes are undefined, and why.
    fn describe(&self) -> String {
        let (space, at, which, within, past) = match self {
            Undefined::Register => return "a register that nothing has written before it is read".to_owned(),
            Undefined::Copied(nearest) => return nearest.to_string(),
            Undefined::Loaded { space, at, bytes, undefined, within, past } => {
                (*space, *at, format!("{undefined} of {bytes} bytes"), within, past)
            }
        };
        let why = |nobody: &str| match past {
            Past::Unwritten => nobody.to_owned(),
            Past::Stored { kernel: Some(kernel) } => format!("last written with undefined data, by `{kernel}`"),
            Past::Stored { kernel: None } => "last written with undefined data".to_owned(),
        };
        match (space, within) {
            (Place::Shared, _) => {
                format!("{which}, from offset {at} of shared memory: {}", why("never written in this block"))
            }
            (Place::Local, _) => {
                format!("{which}, from offset {at} of local memory: {}", why("never written by this thread"))
            }
            (Place::Global, Within::Allocation { .. }) => {
                format!("{which}, from {}: {}", within.describe(at), why("never written"))
            }
            _ => format!("{which} at {at:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rule, Severity};
    use warpsmith_simt::{AllocationInfo, FaultKind, Nearest, Reason, Waiter, Waits};

    #[test]
    fn what_stopped_a_launch_names_who_waits_and_the_nearest_allocation() {
        let does = Waits::ForLanes { lanes: 8 };
        let allocation = Some(AllocationInfo { base: 0x1000, size: 64 });
        let defect = Defect::Fault {
            fault: FaultKind::OutOfBounds,
            address: Some(0xFF0),
            access: None,
            reason: Some(Reason::Printf { address: 0xFF0 }),
            waiters: vec![Waiter { warp: 1, lanes: 2, pc: 3, does, ptx_line: 4, source: Some("k.rs:5".into()) }],
            nearest: Some(Nearest { address: 0xFF0, allocation, freed: false }),
        };
        let finding = Finding::new(Rule::OutOfBounds, Severity::Error, defect);
        assert_eq!(
            finding.memory(),
            "warp 1, lanes 0x00000002, PTX line 4: wait for lanes 0x00000008 of the warp (k.rs:5)\n\
             16 bytes before the nearest allocation, 64 bytes at 0x1000"
        );
        let message = finding.message();
        assert!(message.contains("vprintf reads a string or its arguments at 0xff0, where nothing is"), "{message}");
    }
}
