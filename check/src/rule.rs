//! What findings are about, and how bad they are.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Rule, D::Error> {
        let name = String::deserialize(deserializer)?;
        let known = Rule::ALL.iter().copied().find(|rule| rule.name() == name);
        known.ok_or_else(|| serde::de::Error::custom(format!("no rule is called `{name}`")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = Rule::ALL.iter().map(|r| r.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Rule::ALL.len());
    }
}
