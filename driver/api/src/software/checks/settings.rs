//! What a process wants to be checked for: environment variables, and what they say.

use std::path::PathBuf;

use warpsmith_check::{Checks, Finding, Rule};

/// The checks that `WARPSMITH_CHECK` names, as `all` or a list such as `init,races,sync`; `0` and nothing mean none.
///
/// # Errors
/// The word that is none of them.
pub fn parse_checks(text: &str) -> Result<Checks, String> {
    let mut checks = Checks::default();
    for word in text.split(',').map(str::trim) {
        match word {
            "" | "0" => {}
            "all" | "1" => {
                let Checks { init, races, sync, .. } = Checks::ALL;
                checks = Checks { init, races, sync, ..checks };
            }
            "init" => checks.init = true,
            "races" => checks.races = true,
            "sync" => checks.sync = true,
            other => return Err(format!("`{other}` is no check: expected all, or some of init,races,sync, or 0")),
        }
    }
    Ok(checks)
}

/// Findings that somebody has looked at and accepts: `RULE` or `RULE:KERNEL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allow {
    rule: Rule,
    kernel: Option<String>,
}

impl Allow {
    /// Parses entries that are separated by commas or line ends; `#` starts a comment.
    ///
    /// # Errors
    /// The entry that names no rule.
    pub fn parse(text: &str) -> Result<Vec<Allow>, String> {
        let entries = text.lines().flat_map(|line| line.split('#').next().unwrap_or("").split(','));
        entries.map(str::trim).filter(|e| !e.is_empty()).map(Allow::one).collect()
    }

    fn one(entry: &str) -> Result<Allow, String> {
        for &rule in Rule::ALL {
            match entry.strip_prefix(rule.name()) {
                Some("") => return Ok(Allow { rule, kernel: None }),
                Some(rest) => {
                    if let Some(kernel) = rest.strip_prefix(':').filter(|k| !k.is_empty()) {
                        return Ok(Allow { rule, kernel: Some(kernel.to_owned()) });
                    }
                }
                None => {}
            }
        }
        let rules: Vec<&str> = Rule::ALL.iter().map(|r| r.name()).collect();
        Err(format!("`{entry}` is not RULE or RULE:KERNEL; the rules are {}", rules.join(", ")))
    }

    /// Whether a finding is one of these.
    pub fn covers(&self, finding: &Finding) -> bool {
        self.rule == finding.rule && self.kernel.as_ref().is_none_or(|k| *k == finding.kernel)
    }
}

/// What the environment says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub checks: Checks,
    pub report: Option<PathBuf>,
    pub allow: Vec<Allow>,
    /// Digests of what copies to the host deliver go into the report.
    pub outputs: bool,
    /// Instructions that a block may execute, 0 for no limit.
    pub limit: Option<u64>,
}

impl Settings {
    /// # Errors
    /// The variable and the value that make no sense, in words.
    pub fn read(get: impl Fn(&str) -> Result<Option<String>, String>) -> Result<Settings, String> {
        let mut checks = match get("WARPSMITH_CHECK")? {
            None => Checks::default(),
            Some(text) => parse_checks(&text).map_err(|e| format!("WARPSMITH_CHECK={text}: {e}"))?,
        };
        if let Some(text) = get("WARPSMITH_SEED")? {
            checks.seed =
                text.parse().map_err(|_| format!("WARPSMITH_SEED={text}: expected a number from 0 to {}", u64::MAX))?;
        }
        let switch = |name: &str| match get(name)?.as_deref() {
            None | Some("0") => Ok(false),
            Some("1") => Ok(true),
            Some(text) => Err(format!("{name}={text}: expected 0 or 1")),
        };
        checks.profile = switch("WARPSMITH_PROFILE")?;
        let outputs = switch("WARPSMITH_OUTPUTS")?;
        let allow = match get("WARPSMITH_ALLOW")? {
            None => Vec::new(),
            Some(text) => Allow::parse(&text).map_err(|e| format!("WARPSMITH_ALLOW={text}: {e}"))?,
        };
        let limit = match get("WARPSMITH_INSTRUCTION_LIMIT")? {
            None => None,
            Some(text) => Some(text.parse().map_err(|_| {
                format!("WARPSMITH_INSTRUCTION_LIMIT={text}: expected a number from 0 (no limit) to {}", u64::MAX)
            })?),
        };
        let report = get("WARPSMITH_REPORT")?.map(PathBuf::from);
        Ok(Settings { checks, report, allow, outputs, limit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, String> {
        Settings::read(|name| Ok(pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned())))
    }

    #[test]
    fn nothing_is_checked_by_default() {
        assert_eq!(read(&[]).unwrap().checks, Checks::default());
        assert_eq!(read(&[("WARPSMITH_CHECK", "0")]).unwrap().checks, Checks::default());
    }

    #[test]
    fn lists_seeds_and_files() {
        assert_eq!(read(&[("WARPSMITH_CHECK", "all")]).unwrap().checks, Checks::ALL);
        let s = read(&[
            ("WARPSMITH_CHECK", "races, sync"),
            ("WARPSMITH_SEED", "7"),
            ("WARPSMITH_PROFILE", "1"),
            ("WARPSMITH_REPORT", "r.jsonl"),
        ]);
        let s = s.unwrap();
        assert_eq!(s.checks, Checks { init: false, races: true, sync: true, profile: true, seed: 7 });
        assert_eq!(s.report, Some("r.jsonl".into()));
    }

    #[test]
    fn bad_values_name_variable_and_value() {
        for (name, value) in [
            ("WARPSMITH_CHECK", "everything"),
            ("WARPSMITH_CHECK", "init,race"),
            ("WARPSMITH_SEED", "-1"),
            ("WARPSMITH_PROFILE", "yes"),
            ("WARPSMITH_OUTPUTS", "2"),
            ("WARPSMITH_ALLOW", "races"),
            ("WARPSMITH_INSTRUCTION_LIMIT", "-1"),
            ("WARPSMITH_INSTRUCTION_LIMIT", "many"),
        ] {
            let message = read(&[(name, value)]).unwrap_err();
            assert!(message.starts_with(&format!("{name}={value}: ")), "{message}");
        }
    }

    #[test]
    fn an_allow_list_names_rules_and_kernels() {
        let list = Allow::parse("race::shared:histogram, memory::leak\n# a comment\n").unwrap();
        assert_eq!(list.len(), 2);
        assert_eq!(list[0], Allow { rule: Rule::RaceShared, kernel: Some("histogram".into()) });
        assert_eq!(list[1], Allow { rule: Rule::Leak, kernel: None });
        assert!(Allow::parse("race::shared:").is_err());
    }
}
