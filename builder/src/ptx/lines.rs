//! Line directives: LLVM's comments on them hold what PTX has no field for, and little else worth its bytes.

use std::collections::BTreeSet;

/// How the code generator names the ends of ranges in debug sections.
const TEMPORARY: &str = "$L__tmp";

/// Keeps of a verbose text what the machine-readable one lacks: the calls that a place was inlined through, as
/// `.loc 1 31 23 // @[ src/lib.rs:42:21 ]`. The place itself, which the directive gives, and remarks on blocks and loops
/// go, and so do labels that the compiler sets for debug sections which this text has not.
pub(crate) fn compact(text: &str) -> String {
    let is_temporary = |line: &str| line.starts_with(TEMPORARY);
    let names = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '$');
    let referred: BTreeSet<&str> = text
        .lines()
        .filter(|line| !is_temporary(line) && line.contains(TEMPORARY))
        .flat_map(|line| line.split(names).filter(|word| word.starts_with(TEMPORARY)))
        .collect();
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        if is_temporary(line) && line.trim_end().strip_suffix(':').is_some_and(|label| !referred.contains(label)) {
            continue;
        }
        let (body, end) = line.strip_suffix('\n').map_or((line, ""), |body| (body, "\n"));
        match body.split_once("//") {
            Some((directive, comment)) if directive.trim_start().starts_with(".loc") => {
                out.push_str(directive.trim_end());
                if let Some(at) = comment.find("@[") {
                    out.push_str(" // ");
                    out.push_str(comment[at..].trim_end());
                }
            }
            // `$L__BB0_2:            // in Loop: …`, but no comment of a line of its own: metadata is in those.
            Some((label, _)) if label.starts_with("$L__") => out.push_str(label.trim_end()),
            _ => out.push_str(body),
        }
        out.push_str(end);
    }
    out
}

/// The text without its line directives, and each of them with the number of lines that are left before it.
pub(crate) fn strip(text: &str) -> (String, Vec<(usize, &str)>) {
    let mut bare = String::with_capacity(text.len() / 2);
    let mut directives = Vec::new();
    let mut number = 0;
    for line in text.lines() {
        let directive = line.trim_start().strip_prefix(".loc");
        if directive.is_some_and(|rest| rest.starts_with([' ', '\t'])) {
            directives.push((number, line));
            continue;
        }
        bare.push_str(line);
        bare.push('\n');
        number += 1;
    }
    (bare, directives)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_stay_and_the_rest_goes() {
        let text = "// @kernel {\"name\": \"a\"}\n\
                    $L__BB0_2:                              // =>This Inner Loop Header: Depth=1\n\
                    \t.loc\t4 67 18                         // device/src/args.rs:67:18 @[ src/a.rs:42:43 @[ src/b.rs:1:2 ] ]\n\
                    \t.loc\t1 35 0                          // src/a.rs:35:0\n\
                    \tret;                                  // end\n";
        let want = "// @kernel {\"name\": \"a\"}\n\
                    $L__BB0_2:\n\
                    \t.loc\t4 67 18 // @[ src/a.rs:42:43 @[ src/b.rs:1:2 ] ]\n\
                    \t.loc\t1 35 0\n\
                    \tret;                                  // end\n";
        assert_eq!(compact(text), want);
        assert_eq!(compact("no end of line"), "no end of line");
    }

    #[test]
    fn labels_that_nothing_refers_to_go() {
        let text = "$L__tmp1:\n\tret;\n$L__tmp12:\n$L__BB0_1:\n\t.b64 $L__tmp12-$L__BB0_1;\n";
        assert_eq!(compact(text), "\tret;\n$L__tmp12:\n$L__BB0_1:\n\t.b64 $L__tmp12-$L__BB0_1;\n");
    }

    #[test]
    fn directives_are_taken_out_and_told_where_they_were() {
        let text = "a\n\t.loc\t1 2 3 // @[ x ]\n\t.loc 1 2 4\nb\n.local .b8 c;\n\t.loc\t1 9 9\n";
        let (bare, lines) = strip(text);
        assert_eq!(bare, "a\nb\n.local .b8 c;\n");
        assert_eq!(lines, [(1, "\t.loc\t1 2 3 // @[ x ]"), (1, "\t.loc 1 2 4"), (3, "\t.loc\t1 9 9")]);
    }
}
