//! GPU architectures as a build names them.
//!
//! The ISA version decides which drivers can load the text, so it is the lowest that both LLVM and
//! `ptxas` accept, with a floor of 7.4: cache hints on loads (`.L1::no_allocate`) need that.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use warpsmith_arch::{Architecture, Target};

use crate::BuildError;

/// A virtual architecture, such as `sm_80`.
///
/// PTX for one architecture runs on every later one. Targets with a suffix (`sm_90a`) run on
/// exactly one GPU generation, so PTX is not compiled for them; [machine code](crate::KernelCrate::cubins) may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arch {
    limits: &'static Architecture,
}

/// Cache hints on loads (`.L1::no_allocate`) need this version.
const FLOOR: (u32, u32) = (7, 4);

impl Arch {
    /// The first with independent thread scheduling.
    pub(crate) const OLDEST: u32 = Architecture::ALL[0].sm;

    /// The number of the architecture: 80 for `sm_80`.
    pub fn sm(self) -> u32 {
        self.limits.sm
    }

    /// The lowest PTX ISA version that this architecture is compiled for.
    pub fn lowest_isa(self) -> (u32, u32) {
        Target::find(self.sm(), None).map_or(FLOOR, |target| target.isa.max(FLOOR))
    }

    /// Its limits.
    pub fn limits(self) -> &'static Architecture {
        self.limits
    }

    /// Threads that one multiprocessor can hold.
    pub fn threads_per_multiprocessor(self) -> u32 {
        self.limits.threads
    }
}

impl PartialOrd for Arch {
    fn partial_cmp(&self, other: &Arch) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Arch {
    fn cmp(&self, other: &Arch) -> Ordering {
        self.sm().cmp(&other.sm())
    }
}

impl Hash for Arch {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.sm().hash(state);
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}", self.sm())
    }
}

impl FromStr for Arch {
    type Err = BuildError;

    /// Reads `sm_80` or `80`.
    fn from_str(text: &str) -> Result<Arch, BuildError> {
        let refuse = |reason: String| BuildError::Arch { text: text.to_owned(), reason };
        let digits = text.trim();
        let digits = digits.strip_prefix("sm_").unwrap_or(digits);
        if let Some(base) = digits.strip_suffix(['a', 'f'])
            && base.parse::<u32>().is_ok()
        {
            return Err(refuse(format!(
                "targets with a suffix run on one GPU generation only and cannot be chosen at load time; use sm_{base}"
            )));
        }
        let sm = digits.parse::<u32>().map_err(|_| refuse("it is not of the form sm_80".to_owned()))?;
        if sm < Arch::OLDEST {
            return Err(refuse(format!(
                "GPUs before sm_{0} lack independent thread scheduling, on which warp collectives rely; use sm_{0} or a later one",
                Arch::OLDEST
            )));
        }
        let limits = Architecture::find(sm).ok_or_else(|| {
            let known: Vec<String> = Architecture::ALL.iter().map(|a| format!("sm_{}", a.sm)).collect();
            refuse(format!("known are {}", known.join(", ")))
        })?;
        Ok(Arch { limits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_spellings() {
        assert_eq!("sm_80".parse::<Arch>().unwrap().sm(), 80);
        assert_eq!(" 90 ".parse::<Arch>().unwrap().to_string(), "sm_90");
    }

    #[test]
    fn refuses_what_has_no_place() {
        for (text, part) in [
            ("sm_90a", "use sm_90"),
            ("sm_120f", "use sm_120"),
            ("sm_61", "independent thread scheduling"),
            ("sm_99", "known are sm_70"),
            ("compute", "form sm_80"),
            ("", "form sm_80"),
        ] {
            let error = text.parse::<Arch>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        for (text, message) in [
            ("sm_61", include_str!("../tests/messages/old_architecture.txt")),
            ("sm_90a", include_str!("../tests/messages/suffixed_architecture.txt")),
        ] {
            assert_eq!(text.parse::<Arch>().unwrap_err().to_string(), message.trim_end());
        }
    }
}
