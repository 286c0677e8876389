//! GPU architectures: which exist, the lowest PTX ISA version of each, and their limits.
//!
//! The ISA version decides which drivers can load the text, so it is the lowest that both LLVM and
//! `ptxas` accept, with a floor of 7.4: cache hints on loads (`.L1::no_allocate`) need that.

use std::fmt;
use std::str::FromStr;

use crate::BuildError;

/// A virtual architecture, such as `sm_80`.
///
/// PTX for one architecture runs on every later one. Targets with a suffix (`sm_90a`) run on
/// exactly one GPU generation; the image table has no place for that, so they are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arch {
    sm: u32,
}

/// Number, lowest ISA version, resident threads per multiprocessor.
const KNOWN: &[(u32, (u32, u32), u32)] = &[
    (70, (7, 4), 2048),
    (72, (7, 4), 2048),
    (75, (7, 4), 1024),
    (80, (7, 4), 2048),
    (86, (7, 4), 1536),
    (87, (7, 4), 1536),
    (89, (7, 8), 1536),
    (90, (7, 8), 2048),
    (100, (8, 6), 2048),
    (103, (8, 8), 2048),
    (120, (8, 7), 1536),
    (121, (8, 8), 1536),
];

impl Arch {
    /// The number of the architecture: 80 for `sm_80`.
    pub fn sm(self) -> u32 {
        self.sm
    }

    /// The lowest PTX ISA version that this architecture is compiled for.
    pub fn lowest_isa(self) -> (u32, u32) {
        self.row().1
    }

    /// Threads that one multiprocessor can hold.
    pub fn threads_per_multiprocessor(self) -> u32 {
        self.row().2
    }

    fn row(self) -> (u32, (u32, u32), u32) {
        KNOWN.iter().copied().find(|row| row.0 == self.sm).unwrap_or((self.sm, (8, 8), 2048))
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}", self.sm)
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
        if sm < 70 {
            return Err(refuse(
                "GPUs before sm_70 lack independent thread scheduling, on which warp collectives rely; use sm_70 or a \
                 later one"
                    .to_owned(),
            ));
        }
        if !KNOWN.iter().any(|row| row.0 == sm) {
            let known: Vec<String> = KNOWN.iter().map(|row| format!("sm_{}", row.0)).collect();
            return Err(refuse(format!("known are {}", known.join(", "))));
        }
        Ok(Arch { sm })
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
