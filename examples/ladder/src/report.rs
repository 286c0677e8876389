//! What is printed: a step beside the one before, and the table of all.

use crate::{Counted, Outcome, Step};
use std::fmt::Write as _;

/// Where the table begins and ends in the README.
const BEGIN: &str =
    "<!-- the ladder: written by `cargo run --release -p warpsmith-ladder -- --write examples/README.md` -->\n";
const END: &str = "<!-- end of the ladder -->\n";

fn ratio(a: u64, b: u64) -> Option<f64> {
    (b != 0).then(|| a as f64 / b as f64)
}

/// Figures of a step, each with its name, as text; a figure that the step does not have is `-`.
fn figures(outcome: &Outcome) -> Vec<(&'static str, String)> {
    let Some(c) = &outcome.counted else { return Vec::new() };
    let Counted { launches, lane_instructions, loads, stores, dram, .. } = *c;
    let (elements, floor) = (outcome.elements as u64, outcome.floor as u64);
    let quotient = |q: Option<f64>, digits: usize| q.map_or("-".to_owned(), |q| format!("{q:.digits$}"));
    let count = |n: u64| if n == 0 { "-".to_owned() } else { n.to_string() };
    vec![
        ("launches", launches.to_string()),
        ("lane instructions / element", quotient(ratio(lane_instructions, elements), 2)),
        ("load requests", count(loads.0)),
        ("sectors / load", quotient(ratio(loads.1, loads.0), 2)),
        ("sectors / store", quotient(ratio(stores.1, stores.0), 2)),
        ("bytes / floor, perfect caches", quotient(ratio(dram.0, floor), 2)),
        ("bytes / floor, no caches", quotient(ratio(dram.1, floor), 2)),
        ("shared wavefronts", count(c.shared_wavefronts)),
        ("bank conflicts", count(c.bank_conflicts)),
        ("barrier arrivals", count(c.barriers)),
    ]
}

/// A step's figures, beside those of the step before it if there is one for the same problem. What moved is marked.
pub fn beside(step: &Step, outcome: &Outcome, before: Option<(&Step, &Outcome)>) -> String {
    let mut text = String::new();
    let (rows, cols) = step.shape;
    let _ = writeln!(text, "step {}, {}: {}", step.number, step.kernels, step.idea);
    let _ =
        writeln!(text, "  {}, {rows} x {cols}; largest error {:.3} of what is allowed", step.problem, outcome.error);
    let old = before.map(|(_, o)| figures(o)).unwrap_or_default();
    if let Some((before, _)) = before.filter(|_| !old.is_empty()) {
        let _ = writeln!(
            text,
            "  {:32}{:>12}{:>12}",
            "",
            format!("step {}", before.number),
            format!("step {}", step.number)
        );
    }
    for (i, (name, value)) in figures(outcome).into_iter().enumerate() {
        let _ = match old.get(i) {
            Some((_, was)) => {
                let mark = if *was == value { "" } else { "  *" };
                writeln!(text, "  {name:32}{was:>12}{value:>12}{mark}")
            }
            None => writeln!(text, "  {name:32}{value:>12}"),
        };
    }
    for note in &outcome.notes {
        let _ = writeln!(text, "  {note}");
    }
    text
}

/// The table of all steps in Markdown, and what steps have to say below it.
pub fn table(outcomes: &[(Step, Outcome)]) -> String {
    let mut text = String::new();
    let Some(names) = outcomes.iter().map(|(_, o)| figures(o)).find(|f| !f.is_empty()) else { return text };
    text.push_str("| step | kernel | new idea |");
    names.iter().for_each(|(name, _)| {
        let _ = write!(text, " {name} |");
    });
    let _ = writeln!(text, "\n|---:|---|---|{}", "---:|".repeat(names.len()));
    let mut problem = "";
    for (step, outcome) in outcomes {
        if step.problem != problem {
            problem = step.problem;
            let (rows, cols) = step.shape;
            let shape = if rows == 1 { format!("{cols} elements") } else { format!("{rows} x {cols}") };
            let _ = writeln!(text, "| | | **{problem}**, {shape} |{}", " |".repeat(names.len()));
        }
        let kernels: Vec<String> = step.kernels.split(", ").map(|k| format!("`{k}`")).collect();
        let _ = write!(text, "| {} | {} | {} |", step.number, kernels.join(", "), step.idea);
        figures(outcome).iter().for_each(|(_, value)| {
            let _ = write!(text, " {value} |");
        });
        text.push('\n');
    }
    for (step, outcome) in outcomes.iter().filter(|(_, o)| !o.notes.is_empty()) {
        let _ = writeln!(text, "\nStep {}: {}", step.number, outcome.notes.join(" "));
    }
    text
}

/// The part of a README between the marks; `None` if it has no marks.
pub fn part_of(readme: &str) -> Option<&str> {
    let (_, rest) = readme.split_once(BEGIN)?;
    rest.split_once(END).map(|(part, _)| part)
}

/// The README with another table between the marks; `None` if it has no marks.
pub fn replaced(readme: &str, table: &str) -> Option<String> {
    let (before, rest) = readme.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_goes_between_the_marks() {
        let readme = format!("a\n{BEGIN}old\n{END}b\n");
        assert_eq!(part_of(&readme), Some("old\n"));
        let new = replaced(&readme, "new\n");
        assert_eq!(new.as_deref(), Some(format!("a\n{BEGIN}new\n{END}b\n").as_str()));
        assert_eq!(replaced("a\n", "new\n"), None);
    }
}
