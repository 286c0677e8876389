//! Virtual registers, numbered in the order in which a function names them.
//!
//! LLVM's numbers follow the order in which it selected instructions, and so they jump; two architectures' texts of a kernel, or two loops
//! unrolled from one, hardly share a line. Numbered as they come, nearly each result is the next number, which takes a third off a
//! [pack](warpsmith_image::pack), and an edit leaves the lines before it as they were. ptxas gives registers numbers of its own.
//!
//! Only names of registers that a function declares by count (`.reg .b32 %r<7>;`) are touched. A function with any other declaration of such
//! a name, in inline assembly, stays as it is.

/// Declarations stand in a function's head by count: `.reg .b32 \t%r<7>;`.
const DECLARATION: &str = ".reg ";
/// Registers of a class that a function may have.
const MOST: usize = 1 << 24;

/// The registers of a class, such as `%rd`.
struct Class<'a> {
    name: &'a str,
    /// By old number; 0: not named yet.
    numbers: Vec<usize>,
    named: usize,
}

/// Numbers the registers of every function anew.
pub(super) fn renumber(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut from, mut at, mut body) = (0, 0, None);
    for line in text.split_inclusive('\n') {
        // The code generators open and close a function, and nothing else, by a brace at the beginning of a line.
        let behind = at + line.len();
        match (line.trim_end(), body) {
            ("{", None) => body = Some(behind),
            ("}", Some(start)) => {
                out.push_str(&text[from..start]);
                match function(&text[start..at]) {
                    Some(renumbered) => out.push_str(&renumbered),
                    None => out.push_str(&text[start..at]),
                }
                (from, body) = (at, None);
            }
            _ => {}
        }
        at = behind;
    }
    out.push_str(&text[from..]);
    out
}

/// `None` if it declares a register otherwise than by count, or names one that it does not declare.
fn function(body: &str) -> Option<String> {
    let mut classes = classes(body)?;
    let mut out = String::with_capacity(body.len());
    // How many there are of a class is known at the end.
    let mut declarations = Vec::new();
    for line in body.split_inclusive('\n') {
        match declared(line) {
            Some((name, _)) => declarations.push((out.len(), name, line)),
            None => rewrite(line, &mut classes, &mut out)?,
        }
    }
    let mut all = String::with_capacity(body.len());
    let mut from = 0;
    for (at, name, line) in declarations {
        all.push_str(&out[from..at]);
        let named = classes.iter().find(|class| class.name == name).map_or(0, |class| class.named);
        let (before, after) = (line.split_once('<')?.0, line.split_once('>')?.1);
        all.push_str(&format!("{before}<{}>{after}", named + 1));
        from = at;
    }
    all.push_str(&out[from..]);
    Some(all)
}

fn rewrite(line: &str, classes: &mut [Class<'_>], out: &mut String) -> Option<()> {
    let mut rest = line;
    while let Some(at) = rest.find('%') {
        let (before, name) = rest.split_at(at);
        let (name, after) = name.split_at(name_of(name));
        out.push_str(before);
        out.push_str(name);
        rest = after;
        let Some(class) = classes.iter_mut().find(|class| class.name == name) else { continue };
        let (number, after) = rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count());
        // Another kind of name that begins so.
        if number.is_empty() || after.starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$')) {
            continue;
        }
        out.push_str(&class.renumbered(number.parse().ok()?)?.to_string());
        rest = after;
    }
    out.push_str(rest);
    Some(())
}

impl Class<'_> {
    fn renumbered(&mut self, number: usize) -> Option<usize> {
        let new = self.numbers.get_mut(number)?;
        if *new == 0 {
            self.named += 1;
            *new = self.named;
        }
        Some(*new)
    }
}

/// Bytes of `%` and the letters behind it.
fn name_of(text: &str) -> usize {
    1 + text.bytes().skip(1).take_while(u8::is_ascii_lowercase).count()
}

/// The class that a line declares, and how many of it.
fn declared(line: &str) -> Option<(&str, usize)> {
    let (kind, registers) = line.trim().strip_prefix(DECLARATION)?.split_once(char::is_whitespace)?;
    let (name, count) = registers.trim_start().split_once('<')?;
    let is_class = kind.starts_with('.') && name.starts_with('%') && name.len() > 1 && name_of(name) == name.len();
    Some((name, count.strip_suffix(">;")?.parse().ok()?)).filter(|_| is_class)
}

fn classes(body: &str) -> Option<Vec<Class<'_>>> {
    let mut classes: Vec<Class<'_>> = Vec::new();
    for line in body.lines().filter(|line| line.contains(DECLARATION)) {
        match declared(line) {
            // No function has so many.
            Some((name, count)) if count <= MOST && classes.iter().all(|class| class.name != name) => {
                classes.push(Class { name, numbers: vec![0; count], named: 0 });
            }
            Some(_) => return None,
            // `%SP` and what has no `%` is none of these.
            None => {
                let declarations = line.split(DECLARATION).skip(1).filter_map(|rest| rest.split(';').next());
                let mut names = declarations.flat_map(|names| names.match_indices('%').map(|(at, _)| &names[at..]));
                if names.any(|name| name_of(name) > 1) {
                    return None;
                }
            }
        }
    }
    Some(classes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn becomes(from: &str, to: &str) {
        let of = |body: &str| format!(".visible .entry k(\n)\n{{\n{body}}}\n");
        assert_eq!(renumber(&of(from)), of(to));
        assert_eq!(renumber(&of(to)), of(to), "it is a fixed point");
    }

    const HEAD: &str = "\t.reg .pred \t%p<9>;\n\t.reg .b32 \t%r<70>;\n\t.reg .b64 \t%rd<8>;\n\n";

    #[test]
    fn registers_are_counted_by_class_as_they_come() {
        becomes(
            &(HEAD.to_owned()
                + "\tld.param.b64 \t%rd7, [k_param_0];\n\tmov.u32 \t%r69, %tid.x;\n\tld.global.v2.b32 \t{%r3, %r4}, [%rd7+8];\n\
                   $L__BB0_1:\n\tadd.s32 \t%r4, %r69, %r3;\n\tsetp.eq.s32 \t%p8, %r4, 0;\n\t@!%p8 bra \t$L__BB0_1;\n"),
            "\t.reg .pred \t%p<2>;\n\t.reg .b32 \t%r<4>;\n\t.reg .b64 \t%rd<2>;\n\n\
             \tld.param.b64 \t%rd1, [k_param_0];\n\tmov.u32 \t%r1, %tid.x;\n\tld.global.v2.b32 \t{%r2, %r3}, [%rd1+8];\n\
             $L__BB0_1:\n\tadd.s32 \t%r3, %r1, %r2;\n\tsetp.eq.s32 \t%p1, %r3, 0;\n\t@!%p1 bra \t$L__BB0_1;\n",
        );
    }

    #[test]
    fn what_is_no_register_of_a_class_stays() {
        let head = "\t.reg .b64 \t%SP;\n\t.reg .b64 \t%SPL;\n\t.reg .b32 \t%r<3>;\n";
        let body = "\tmov.u64 \t%rd4, %clock64;\n\tmov.b32 \t%r1, %envreg3; // 100%\n\tmov.u64 \t%rd1, %SP;\n\t{ .reg .pred p; mov.b32 %r2, %r1; }\n\
                    \tcall %r1_not, %r;\n";
        let whole = format!("{head}{body}");
        becomes(&whole, &whole);
    }

    #[test]
    fn a_function_that_declares_otherwise_stays() {
        for body in [
            // A register of an inner block hides the outer one.
            HEAD.to_owned() + "\tmov.b32 %r5, 1;\n\t{ .reg .b32 %r5; mov.b32 %r5, 2; }\n",
            HEAD.to_owned() + "\t{\n\t.reg .b32 %r<4>;\n\tmov.b32 %r3, 2;\n\t}\n",
            "\t.reg .b32 %r5, %r7;\n\tmov.b32 %r7, 1;\n".to_owned(),
            // More than is declared.
            "\t.reg .b32 \t%r<3>;\n\tmov.b32 \t%r3, 1;\n".to_owned(),
            "\t.reg .b32 \t%r<99999999999>;\n\tmov.b32 \t%r3, 1;\n".to_owned(),
        ] {
            becomes(&body, &body);
        }
    }

    #[test]
    fn functions_count_for_themselves_and_the_rest_stays() {
        let one = "{\n\t.reg .b32 \t%r<9>;\n\tmov.b32 \t%r8, 1;\n}\n";
        let want = "{\n\t.reg .b32 \t%r<2>;\n\tmov.b32 \t%r1, 1;\n}\n";
        let text = |body: &str| format!(".version 7.8\n.func a\n{body}// %r8\n.func b\n{body}{{\n%r8");
        assert_eq!(renumber(&text(one)), text(want));
        for text in ["", "{", "}", "{\n}", "}\n{\n"] {
            assert_eq!(renumber(text), text);
        }
    }
}
