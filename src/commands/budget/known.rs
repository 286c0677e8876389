//! Budgets that are known to be missed: each with the figure of the day it was recorded. A figure that becomes worse by more than
//! [`SLACK`] fails, and so does one that is met and still listed, so that the list says what is so.

use std::collections::BTreeMap;
use std::path::Path;

use crate::failure::{Failure, Kind};

/// Where the list is in a checkout.
pub const PATH: &str = "src/commands/budget/known.json";
/// By how much a figure may become worse.
const SLACK: f64 = 0.02;

/// Which figures are worse than others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worse {
    Larger,
    Smaller,
}

/// A part of a budget that is missed.
#[derive(Clone, Debug, PartialEq)]
pub struct Miss {
    /// What is measured, as the list has it.
    pub measure: &'static str,
    pub figure: f64,
    pub worse: Worse,
    /// In words, with the budget.
    pub text: String,
}

impl Miss {
    pub fn larger(measure: &'static str, figure: f64, text: String) -> Miss {
        Miss { measure, figure, worse: Worse::Larger, text }
    }

    pub fn smaller(measure: &'static str, figure: f64, text: String) -> Miss {
        Miss { measure, figure, worse: Worse::Smaller, text }
    }
}

/// A budget that was looked at.
#[derive(Clone, Debug)]
pub struct Held {
    /// As the list has it, such as `Q1_0 int8, 1024 columns`.
    pub budget: String,
    /// The kernel that comes closest.
    pub kernel: String,
    pub misses: Vec<Miss>,
}

/// Figures of missed budgets, by `budget: measure`.
pub type Known = BTreeMap<String, f64>;

/// What became of the budgets.
#[derive(Debug, Default, PartialEq)]
pub struct BudgetVerdict {
    /// What ends the command with an error.
    pub failures: Vec<String>,
    /// What is missed as it is listed.
    pub known: Vec<String>,
}

/// The list that is built in.
pub fn built_in() -> Result<Known, Failure> {
    serde_json::from_str(include_str!("known.json"))
        .map_err(|e| Failure::new(Kind::Operation, format!("{PATH} is no list of figures: {e}")))
}

fn key(held: &Held, measure: &str) -> String {
    format!("{}: {measure}", held.budget)
}

/// Compares budgets with the list, which is at `place`. If `whole`, all budgets were looked at, and the list has no others.
pub fn judge(all: &[Held], (known, place): (&Known, &str), whole: bool) -> BudgetVerdict {
    let mut verdict = BudgetVerdict::default();
    for held in all {
        for miss in &held.misses {
            let text = format!("{} ({}): {}", held.budget, held.kernel, miss.text);
            let Some(listed) = known.get(&key(held, miss.measure)) else {
                verdict.failures.push(text);
                continue;
            };
            let worse = match miss.worse {
                Worse::Larger => miss.figure > listed * (1.0 + SLACK),
                Worse::Smaller => miss.figure < listed * (1.0 - SLACK),
            };
            match worse {
                true => verdict.failures.push(format!("{text}; worse than the {listed} that is listed")),
                false => verdict.known.push(text),
            }
        }
        let prefix = format!("{}: ", held.budget);
        for listed in known.keys().filter_map(|k| k.strip_prefix(prefix.as_str())) {
            if !held.misses.iter().any(|m| m.measure == listed) {
                verdict.failures.push(format!("{prefix}{listed} is met, and listed as missed in {place}"));
            }
        }
    }
    if whole {
        let stale = known.keys().filter(|k| !all.iter().any(|h| k.starts_with(&format!("{}: ", h.budget))));
        verdict.failures.extend(stale.map(|k| format!("`{k}` in {place} is of no budget")));
    }
    verdict
}

/// The list with what was measured: budgets that were not looked at stay as they are, unless all were.
pub fn renewed(all: &[Held], known: &Known, whole: bool) -> Known {
    let seen = |k: &String| all.iter().any(|h| k.starts_with(&format!("{}: ", h.budget)));
    let mut new: Known = known.iter().filter(|(k, _)| !whole && !seen(k)).map(|(k, v)| (k.clone(), *v)).collect();
    for held in all {
        let digits = |x: f64| (x * 1000.0).round() / 1000.0;
        new.extend(held.misses.iter().map(|m| (key(held, m.measure), digits(m.figure))));
    }
    new
}

/// Writes the list into the source.
pub fn write(known: &Known) -> Result<(), Failure> {
    let path = Path::new(PATH);
    if !path.is_file() {
        return Err(Failure::usage(format!(
            "--write: {PATH} is not here; run it at the root of a checkout of warpsmith"
        )));
    }
    let failed = |e: &dyn std::fmt::Display| Failure::new(Kind::Operation, format!("{PATH}: {e}"));
    let text = serde_json::to_string_pretty(known).map_err(|e| failed(&e))?;
    std::fs::write(path, text + "\n").map_err(|e| failed(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(figure: f64) -> Vec<Held> {
        let miss = Miss::larger("loop", figure, format!("{figure} slots"));
        vec![Held { budget: "Q1_0 int8, 1024 columns".into(), kernel: "k".into(), misses: vec![miss] }]
    }

    fn list(figure: f64) -> Known {
        [("Q1_0 int8, 1024 columns: loop".to_owned(), figure)].into()
    }

    #[test]
    fn a_miss_is_known_until_it_is_two_percent_worse() {
        let of = |figure, listed| judge(&held(figure), (&list(listed), PATH), true);
        let known = of(1.02, 1.0);
        assert_eq!(
            (known.failures.len(), known.known.as_slice()),
            (0, &["Q1_0 int8, 1024 columns (k): 1.02 slots".to_owned()][..])
        );
        assert_eq!(of(0.9, 1.0).failures, [""; 0]);
        assert!(of(1.03, 1.0).failures[0].contains("worse than the 1 that is listed"));
        let mut less = held(21.0);
        less[0].misses[0].worse = Worse::Smaller;
        assert_eq!(judge(&less, (&list(21.4), PATH), true).failures, [""; 0]);
        assert_eq!(judge(&less, (&list(21.5), PATH), true).failures.len(), 1);
    }

    #[test]
    fn what_is_met_may_not_be_listed_and_what_is_missed_has_to_be() {
        assert_eq!(judge(&held(1.0), (&Known::new(), PATH), true).failures, ["Q1_0 int8, 1024 columns (k): 1 slots"]);
        let mut met = held(1.0);
        met[0].misses.clear();
        assert!(judge(&met, (&list(1.0), PATH), false).failures[0].contains("loop is met"));
        // A budget that does not exist, but only if all were looked at.
        assert_eq!(judge(&[], (&list(1.0), PATH), false).failures, [""; 0]);
        assert!(judge(&[], (&list(1.0), PATH), true).failures[0].contains("of no budget"));
    }

    #[test]
    fn a_renewed_list_has_what_was_measured_and_keeps_the_rest() {
        let more: Known = [("Q8_0, 1024 columns: loop".to_owned(), 4.0)].into_iter().chain(list(2.0)).collect();
        let some = renewed(&held(1.23456), &more, false);
        assert_eq!(some.values().copied().collect::<Vec<_>>(), [1.235, 4.0]);
        assert_eq!(renewed(&held(1.23456), &more, true), list(1.235));
    }
}
