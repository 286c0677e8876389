//! Why something is wrong, and what would make it right.

use crate::defect::{Advice, Defect, Difference, Missing, OutputPast, Race};
use crate::{Finding, Rule};

/// What initialises a value.
const INITIALISE: &str = "initialise the value on every path that leads here";

/// What a result depends on that changes with the schedule; examples follow.
const SCHEDULE: &str = "the result depends on the order of blocks, warps or lanes: a race, or an operation that does not commute, \
                        such as a floating-point atomic addition";

impl Finding {
    /// Why it is wrong and what would make it right. May be empty.
    pub fn help(&self) -> String {
        let fixed = match &self.defect {
            Defect::Race(race) => return race.help(),
            Defect::UndefinedOutput { past, .. } => return past.help(),
            Defect::Overlap { earlier, programmatic: true, .. } => {
                return format!(
                    "`{earlier}` may still run: call `grid::wait_dependencies()` (griddepcontrol.wait) before this access, or \
                     launch without `Geometry::programmatic`"
                );
            }
            Defect::Overlap { operation, earlier, .. } => {
                return format!(
                    "`{earlier}` may still run when `{operation}` begins: use one stream, let the second wait for an event of \
                     the first, or add the edge to the graph"
                );
            }
            Defect::FreedInUse { user, .. } => {
                return format!("nothing orders `{user}` before the free: synchronise, or free in the same stream");
            }
            Defect::Refused { reason, .. } => return reason.clone(),
            Defect::Schedule { difference: Difference::Outputs, .. } => SCHEDULE,
            Defect::Schedule { .. } => return format!("{SCHEDULE} or a place that an atomic counter gives out"),
            Defect::SameAddress { different: true, .. } => {
                "which of the values stays is not defined: let one lane write, or give each lane a place of its own"
            }
            Defect::SameAddress { .. } => "harmless as long as the values are equal; let one lane write",
            Defect::CopyUnderWay { .. } => {
                "the copying thread must commit the group and wait for it (`cp.async.wait_group`), and a barrier must follow for \
                 other threads"
            }
            Defect::BarrierLeftOut { .. } => {
                "a barrier may stand in a branch only if all threads of the block take the same way: move it out of the branch, \
                 or let it count the warps that come (`bar.sync` with a number of threads)"
            }
            Defect::BarrierKinds { .. } => {
                "all warps of one round of a barrier must execute the same kind: reductions do not mix with sync, arrive or each \
                 other"
            }
            Defect::BarrierAgain { .. } => {
                "after bar.arrive a warp must not come to the same barrier again until the others have been there: use two \
                 barriers in turn"
            }
            Defect::MasksDisagree { .. } => {
                "all lanes that a mask names and that have not exited must execute the collective with the same mask: what \
                 happens else is undefined"
            }
            Defect::SplitCollective { .. } => {
                "on a GPU each part runs by itself, and waits for the others or exchanges nothing with them; if the source has \
                 one call, the compiler has copied it into the arms of a branch, because it does not know that it is convergent \
                 (stock rustc and inline assembly: rust#149637)"
            }
            Defect::ShuffleSource { .. } => {
                "the value is undefined: name the lane and let it execute the shuffle, or do not use the result"
            }
            Defect::VariableOverrun { .. } => {
                "variables lie side by side in shared memory, where the hardware checks only the end of all of them"
            }
            Defect::Undefined { .. } => match self.rule {
                Rule::UndefinedBranch => INITIALISE,
                Rule::UndefinedAddress => "initialise what the address is computed from",
                _ => "initialise the operand on every path that leads here",
            },
            Defect::DivisionByZero => "the result is unspecified: test the divisor first",
            &Defect::Stuck { spinning, at_barrier, .. } => stuck(self.rule, spinning, at_barrier),
            Defect::Leak { .. } | Defect::Fault { .. } => "",
        };
        fixed.to_owned()
    }
}

/// What would let threads go on that wait, or spin.
fn stuck(rule: Rule, spinning: bool, at_barrier: bool) -> &'static str {
    match rule {
        Rule::BarrierDivergence => {
            "all threads of the warps that a barrier counts must execute the same barrier, with the same operands"
        }
        Rule::Membermask => {
            "a lane may only execute a collective whose membermask names it, and all lanes must name the same lanes"
        }
        _ if spinning => {
            "a loop that waits needs somebody who ends it: whoever should change what it reads waits for it, has exited, \
             or never gets there"
        }
        _ if at_barrier => {
            "the threads that are missing took another way or have exited: move the barrier out of the branch, or count \
             them out"
        }
        _ => "a collective waits for all lanes that its membermask names and that have not exited",
    }
}

impl OutputPast {
    fn help(&self) -> String {
        let nobody = "no kernel, copy or fill has given these bytes a value";
        match self {
            OutputPast::Unwritten => nobody.to_owned(),
            OutputPast::WrittenElsewhere => format!("{nobody}: the kernel stores to this allocation, but not there"),
            OutputPast::Forgotten => "undefined data has been stored here; where it came from is not kept".to_owned(),
            OutputPast::Follows(rule) => {
                format!("this follows from the {} that was reported for the kernel", rule.name())
            }
            OutputPast::Stored(_) => INITIALISE.to_owned(),
            OutputPast::Copied(_) => {
                "a copy within the device has brought these bytes from where nothing had given them a value".to_owned()
            }
        }
    }
}

impl Race {
    fn help(&self) -> String {
        let mut help = self.missing.help();
        if self.silent {
            help += "; the value written is the one that was there already";
        }
        if let Some(name) = &self.variable {
            help += &format!(
                "; `{name}` is one variable in global memory, which all blocks share (as a Rust `static mut` is): if each block \
                 was to have its own, it must be in shared memory"
            );
        }
        help + match self.advice {
            Advice::None => "",
            Advice::DroppedOrdering => {
                "; LLVM up to 22 drops the ordering of Rust's atomic read-modify-writes on this target (only loads, stores and \
                 compare-exchange keep it): an `AcqRel` swap or fetch_add is relaxed in the PTX, so add a fence \
                 (`fence(Ordering::Acquire)` after it, `fence(Ordering::Release)` before it)"
            }
            Advice::RelaxedOnly => {
                "; relaxed and volatile accesses and atomics order nothing by themselves: release before the flag is written, \
                 acquire after it is read, with fences or .release and .acquire"
            }
        }
    }
}

impl Missing {
    /// The order that is missing, in words.
    fn help(&self) -> String {
        let gone = |exited| if exited { "; that lane has exited, and later barriers do not count it" } else { "" };
        match *self {
            Missing::Coherence => "the read-only cache is not coherent: .nc loads are only for data that no thread of the grid \
                                   writes while it runs; use a plain load"
                .to_owned(),
            Missing::Wait { object: true, .. } => "wait until the phase of the mbarrier that the copy completes at has ended \
                                                   (`mbarrier.try_wait`), or for a barrier behind somebody who has waited"
                .to_owned(),
            Missing::Wait { target: true, .. } => "the copying thread must commit the group and wait for it \
                                                   (`cp.async.bulk.wait_group`), and a barrier must follow for other threads"
                .to_owned(),
            Missing::Wait { .. } => "the copying thread must commit the group and wait until it has read its source \
                                     (`cp.async.bulk.wait_group.read`), and a barrier must follow for other threads"
                .to_owned(),
            Missing::WiderScope { scope, earlier, block } => format!(
                "the scope .{} of {} does not include block {block}: use .gpu",
                scope.name(),
                if earlier { "the earlier access" } else { "this access" }
            ),
            Missing::WiderSynchronisation { release, acquire } => {
                let line = |line: Option<u32>| line.map_or(String::new(), |line| format!(" (PTX line {line})"));
                format!(
                    "the release{} and the acquire{} would order them, but one of the two has block scope (.cta), which does not \
                     include the other block: use .gpu",
                    line(release),
                    line(acquire)
                )
            }
            Missing::WarpBarrier { earlier_lane, lane, lockstep, exited } => {
                let why = match lockstep {
                    true => "only execution in lockstep does, which neither PTX nor CUDA promises since sm_70",
                    false => "they stand in different arms of a branch, which run in any order",
                };
                let gone = gone(exited);
                format!("no bar.warp.sync (__syncwarp) orders lane {earlier_lane} before lane {lane}: {why}{gone}")
            }
            Missing::BlockBarrier { earlier: (earlier_warp, earlier_lane), now: (warp, lane), exited } => format!(
                "no bar.sync, and no release and acquire, orders warp {earlier_warp} lane {earlier_lane} before warp {warp} \
                 lane {lane}{}",
                gone(exited)
            ),
            Missing::Acquire { earlier_block, block } => format!(
                "a relaxed atomic has read what block {earlier_block} released, but does not acquire it for block {block}"
            ),
            Missing::BlockOrder { earlier_block, block } => format!(
                "blocks of a grid run in any order: no release and acquire at gpu scope orders block {earlier_block} before \
                 block {block}"
            ),
        }
    }
}
