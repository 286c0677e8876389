//! Line directives: LLVM's comments on them hold what PTX has no field for, and little else worth its bytes.
//!
//! Inside a build, a text has each chain of inlined calls once: as a line `// @7 [ src/lib.rs:42:21 ]` of the table at its end,
//! which directives refer to as `.loc 1 31 23 // @7`. Spelled out they would be four fifths of all bytes.

use super::registers::renumber;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// How the code generator names the ends of ranges in debug sections.
const TEMPORARY: &str = "$L__tmp";

/// What stands before the number of a chain, in the table and in directives.
const CHAIN: &str = "// @";

/// Keeps of a verbose text what the machine-readable one lacks: the calls that a place was inlined through. The place itself, which
/// the directive gives, and remarks on blocks and loops go, and so do labels that the compiler sets for debug sections which this
/// text has not. Registers get [the numbers](super::registers) that they keep.
pub(crate) fn compact(text: &str) -> String {
    let is_temporary = |line: &str| line.starts_with(TEMPORARY);
    let names = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '$');
    let referred: BTreeSet<&str> = text
        .lines()
        .filter(|line| !is_temporary(line) && line.contains(TEMPORARY))
        .flat_map(|line| line.split(names).filter(|word| word.starts_with(TEMPORARY)))
        .collect();
    let mut out = String::with_capacity(text.len() / 3);
    let mut chains = Numbered::default();
    for line in text.split_inclusive('\n') {
        if is_temporary(line) && line.trim_end().strip_suffix(':').is_some_and(|label| !referred.contains(label)) {
            continue;
        }
        let (body, end) = line.strip_suffix('\n').map_or((line, ""), |body| (body, "\n"));
        match body.split_once("//") {
            Some((directive, comment)) if directive.trim_start().starts_with(".loc") => {
                out.push_str(directive.trim_end());
                if let Some(at) = comment.find("@[") {
                    push_reference(&mut out, chains.of(comment[at + 1..].trim_end()));
                }
            }
            // `$L__BB0_2:            // in Loop: …`, but no comment of a line of its own: metadata is in those.
            Some((label, _)) if label.starts_with("$L__") => out.push_str(label.trim_end()),
            _ => out.push_str(body),
        }
        out.push_str(end);
    }
    let mut out = renumber(&out);
    push_table(&mut out, &chains.in_order);
    out
}

/// What is the same has one number, in the order in which it came.
pub(super) struct Numbered<T> {
    numbers: HashMap<T, usize>,
    pub(super) in_order: Vec<T>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Numbered { numbers: HashMap::new(), in_order: Vec::new() }
    }
}

impl<T: Copy + Eq + Hash> Numbered<T> {
    pub(super) fn of(&mut self, value: T) -> usize {
        *self.numbers.entry(value).or_insert_with(|| {
            self.in_order.push(value);
            self.in_order.len() - 1
        })
    }
}

/// Refers to a chain behind a directive.
pub(super) fn push_reference(out: &mut String, chain: usize) {
    out.push(' ');
    out.push_str(CHAIN);
    out.push_str(&chain.to_string());
}

/// A directive, and which chain it refers to.
pub(super) fn reference(line: &str) -> (&str, Option<usize>) {
    match line.rsplit_once(CHAIN).map(|(directive, chain)| (directive, chain.trim_end().parse())) {
        Some((directive, Ok(chain))) => (directive.trim_end(), Some(chain)),
        _ => (line, None),
    }
}

/// Writes the table, the end of a text.
pub(super) fn push_table(out: &mut String, chains: &[&str]) {
    if !chains.is_empty() && !out.is_empty() && !out.ends_with('\n') {
        out.push('\n');
    }
    for (number, chain) in chains.iter().enumerate() {
        out.push_str(CHAIN);
        out.push_str(&number.to_string());
        out.push(' ');
        out.push_str(chain);
        out.push('\n');
    }
}

/// A text without its table, and the table.
pub(super) fn chains(text: &str) -> (&str, Vec<&str>) {
    let (mut end, mut table) = (text.len(), Vec::new());
    for line in text.split_inclusive('\n').rev() {
        let Some(chain) = row(line) else { break };
        table.push(chain);
        end -= line.len();
    }
    table.reverse();
    (text.get(..end).unwrap_or(text), table)
}

/// A line of the table.
fn row(line: &str) -> Option<&str> {
    let (number, chain) = line.strip_prefix(CHAIN)?.split_once(' ')?;
    number.parse::<usize>().ok().map(|_| chain.trim_end())
}

fn is_directive(line: &str) -> bool {
    line.trim_start().strip_prefix(".loc").is_some_and(|rest| rest.starts_with([' ', '\t']))
}

/// A directive with its chain, as `.loc 1 31 23 // @[ src/lib.rs:42:21 ]`.
fn push_spelled_out(out: &mut String, line: &str, chains: &[&str]) {
    let (directive, chain) = reference(line);
    out.push_str(directive);
    if let Some(chain) = chain.and_then(|chain| chains.get(chain)) {
        out.push_str(" // @");
        out.push_str(chain);
    }
}

/// A text without its line directives.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stripped {
    pub(super) bare: String,
    /// The directives that differ, with their chains.
    pub(super) places: Vec<String>,
    /// Of each directive the number of lines of `bare` before it, and which place it is.
    pub(super) directives: Vec<(usize, usize)>,
}

pub(super) fn strip(text: &str) -> Stripped {
    let (text, chains) = chains(text);
    let mut bare = String::with_capacity(text.len());
    let (mut places, mut directives) = (Numbered::default(), Vec::new());
    let mut number = 0;
    for line in text.lines() {
        if is_directive(line) {
            directives.push((number, places.of(line)));
            continue;
        }
        bare.push_str(line);
        bare.push('\n');
        number += 1;
    }
    let spelled_out = |line: &&str| {
        let mut out = String::new();
        push_spelled_out(&mut out, line, &chains);
        out
    };
    Stripped { bare, places: places.in_order.iter().map(spelled_out).collect(), directives }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERBOSE: &str = "// @kernel {\"name\": \"a\"}\n\
        $L__BB0_2:                              // =>This Inner Loop Header: Depth=1\n\
        \t.loc\t4 67 18                         // device/src/args.rs:67:18 @[ src/a.rs:42:43 @[ src/b.rs:1:2 ] ]\n\
        \t.loc\t1 35 0                          // src/a.rs:35:0\n\
        \t.loc\t4 68 18                         // device/src/args.rs:68:18 @[ src/a.rs:42:43 @[ src/b.rs:1:2 ] ]\n\
        \t.loc\t4 67 18                         // device/src/args.rs:67:18 @[ src/c.rs:7:7 ]\n\
        \tret;                                  // end\n";

    #[test]
    fn a_chain_stands_once_and_the_rest_goes() {
        let want = "// @kernel {\"name\": \"a\"}\n\
                    $L__BB0_2:\n\
                    \t.loc\t4 67 18 // @0\n\
                    \t.loc\t1 35 0\n\
                    \t.loc\t4 68 18 // @0\n\
                    \t.loc\t4 67 18 // @1\n\
                    \tret;                                  // end\n\
                    // @0 [ src/a.rs:42:43 @[ src/b.rs:1:2 ] ]\n\
                    // @1 [ src/c.rs:7:7 ]\n";
        assert_eq!(compact(VERBOSE), want);
        assert_eq!(compact("no end of line"), "no end of line");
        let cut = compact(VERBOSE.trim_end());
        assert!(cut.contains("// end\n// @0 ["), "{cut}");
    }

    #[test]
    fn chains_are_spelled_out_where_they_belong() {
        let places = strip(&compact(VERBOSE)).places;
        let want = [
            "4 67 18 // @[ src/a.rs:42:43 @[ src/b.rs:1:2 ] ]",
            "1 35 0",
            "4 68 18 // @[ src/a.rs:42:43 @[ src/b.rs:1:2 ] ]",
            "4 67 18 // @[ src/c.rs:7:7 ]",
        ];
        assert_eq!(places, want.map(|place| format!("\t.loc\t{place}")));
        // What no compiler wrote.
        assert_eq!(
            strip("\t.loc 1 2 3 // @9\n\t.loc 1 2 3 // @[ x ]\n").places,
            ["\t.loc 1 2 3", "\t.loc 1 2 3 // @[ x ]"]
        );
    }

    #[test]
    fn labels_that_nothing_refers_to_go() {
        let text = "$L__tmp1:\n\tret;\n$L__tmp12:\n$L__BB0_1:\n\t.b64 $L__tmp12-$L__BB0_1;\n";
        assert_eq!(compact(text), "\tret;\n$L__tmp12:\n$L__BB0_1:\n\t.b64 $L__tmp12-$L__BB0_1;\n");
    }

    #[test]
    fn directives_are_taken_out_and_told_where_they_were() {
        let text =
            "a\n\t.loc\t1 2 3 // @0\n\t.loc 1 2 4\nb\n.local .b8 c;\n\t.loc\t1 2 3 // @0\n\t.loc\t1 9 9\n// @0 [ x ]\n";
        let stripped = strip(text);
        assert_eq!(stripped.bare, "a\nb\n.local .b8 c;\n");
        assert_eq!(stripped.places, ["\t.loc\t1 2 3 // @[ x ]", "\t.loc 1 2 4", "\t.loc\t1 9 9"]);
        assert_eq!(stripped.directives, [(1, 0), (1, 1), (3, 0), (3, 2)]);
    }
}
