//! Line directives: LLVM's comments on them hold what PTX has no field for, and little else worth its bytes.

/// Keeps of a verbose text what the machine-readable one lacks: the calls that a place was inlined through, as
/// `.loc 1 31 23 // @[ src/lib.rs:42:21 ]`. The place itself, which the directive gives, and remarks on blocks and loops
/// go; the lines of the text stay where they are.
pub(crate) fn compact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
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
}
