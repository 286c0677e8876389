//! Targets of PTX and of machine code: which PTX knows which, and what machine code runs on.

use core::fmt;

/// What a PTX text may be written for: an architecture, or what only one or one family of them has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Number of the architecture: 90 for `sm_90a`.
    pub sm: u32,
    /// `a` for what no other architecture has, `f` for what its family has.
    pub suffix: Option<char>,
    /// The version of the PTX ISA that introduced it.
    pub isa: (u32, u32),
}

/// "PTX ISA: Release Notes" and the table of `.target`; `ptxas` 13.5 agrees on each.
static TARGETS: &[(u32, Option<char>, (u32, u32))] = &[
    (10, None, (1, 0)),
    (11, None, (1, 0)),
    (12, None, (1, 2)),
    (13, None, (1, 2)),
    (20, None, (2, 0)),
    (21, None, (2, 0)),
    (30, None, (3, 0)),
    (32, None, (4, 0)),
    (35, None, (3, 1)),
    (37, None, (4, 1)),
    (50, None, (4, 0)),
    (52, None, (4, 1)),
    (53, None, (4, 2)),
    (60, None, (5, 0)),
    (61, None, (5, 0)),
    (62, None, (5, 0)),
    (70, None, (6, 0)),
    (72, None, (6, 1)),
    (75, None, (6, 3)),
    (80, None, (7, 0)),
    (86, None, (7, 1)),
    (87, None, (7, 4)),
    (88, None, (9, 0)),
    (89, None, (7, 8)),
    (90, None, (7, 8)),
    (90, Some('a'), (8, 0)),
    (100, None, (8, 6)),
    (100, Some('a'), (8, 6)),
    (100, Some('f'), (8, 8)),
    (101, None, (8, 6)),
    (101, Some('a'), (8, 6)),
    (101, Some('f'), (8, 8)),
    (103, None, (8, 8)),
    (103, Some('a'), (8, 8)),
    (103, Some('f'), (8, 8)),
    (110, None, (9, 0)),
    (110, Some('a'), (9, 0)),
    (110, Some('f'), (9, 0)),
    (120, None, (8, 7)),
    (120, Some('a'), (8, 7)),
    (120, Some('f'), (8, 8)),
    (121, None, (8, 8)),
    (121, Some('a'), (8, 8)),
    (121, Some('f'), (8, 8)),
];

/// Devices on one chip with a CPU, which share machine code with no other architecture. Source: CUDA Programming Guide, "Binary
/// Compatibility", and the table of compute capabilities.
const JETSON: [u32; 6] = [53, 62, 72, 87, 101, 110];

impl Target {
    /// Every target, by number.
    pub fn all() -> impl Iterator<Item = Target> {
        TARGETS.iter().map(|(sm, suffix, isa)| Target { sm: *sm, suffix: *suffix, isa: *isa })
    }

    /// The target of a number and a suffix; `None`: there is none.
    pub fn find(sm: u32, suffix: Option<char>) -> Option<Target> {
        Target::all().find(|target| (target.sm, target.suffix) == (sm, suffix))
    }

    /// The target of a name.
    ///
    /// ```
    /// use warpsmith_arch::Target;
    /// let isa = |name| Target::named(name).map(|target| target.isa);
    /// assert_eq!((isa("sm_90"), isa("sm_90a"), isa("sm_100f")), (Some((7, 8)), Some((8, 0)), Some((8, 8))));
    /// assert_eq!((isa("sm_80a"), isa("sm_"), isa("90")), (None, None, None));
    /// ```
    pub fn named(name: &str) -> Option<Target> {
        let digits = name.strip_prefix("sm_")?;
        let number = digits.trim_end_matches(|c: char| c.is_ascii_lowercase());
        let mut suffix = digits.get(number.len()..)?.chars();
        let first = suffix.next();
        if suffix.next().is_some() {
            return None;
        }
        Target::find(number.parse().ok()?, first)
    }

    /// Whether machine code for this target (a cubin) runs on a device of compute capability `sm`: on devices of the same major
    /// number whose minor is not lower, and with the suffix `a`, or where either is of a Jetson, on this one alone. Source: CUDA
    /// Programming Guide, "Binary Compatibility" and "Architecture-Specific Features".
    ///
    /// ```
    /// use warpsmith_arch::Target;
    /// let runs = |name, sm| Target::named(name).is_some_and(|target| target.runs_on(sm));
    /// assert!(runs("sm_80", 86) && !runs("sm_86", 80) && !runs("sm_80", 90));
    /// assert!(runs("sm_100a", 100) && !runs("sm_100a", 103) && runs("sm_100f", 103));
    /// assert!(runs("sm_87", 87) && !runs("sm_86", 87));
    /// ```
    pub fn runs_on(self, sm: u32) -> bool {
        let alone = self.suffix == Some('a') || JETSON.contains(&self.sm) || JETSON.contains(&sm);
        self.sm == sm || (!alone && self.sm / 10 == sm / 10 && self.sm < sm)
    }

    /// The one whose machine code a device of compute capability `sm` is best given: the newest that runs on it, and of one number
    /// the one that is for the fewest devices. `None`: none runs.
    pub fn best_for(sm: u32, among: impl IntoIterator<Item = Target>) -> Option<Target> {
        let narrow = |target: &Target| target.suffix.map_or(0, |suffix| if suffix == 'a' { 2 } else { 1 });
        among.into_iter().filter(|target| target.runs_on(sm)).max_by_key(|target| (target.sm, narrow(target)))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}", self.sm)?;
        self.suffix.map_or(Ok(()), |suffix| write!(f, "{suffix}"))
    }
}
