//! Machine code of many kernels as text.
//!
//! nvdisasm takes a third of a second to begin, whatever it is given, and ptxas reads what the kernels of a library share with each of
//! them. So texts are joined, assembled as one, and what is printed is taken apart again: a kernel has the lines of its own text.
//! Lines of the source are left out of it, which are most of a text and change no code.

use std::collections::HashSet;

use crate::BuildError;
use crate::arch::Arch;
use crate::nvdisasm::Nvdisasm;
use crate::ptxas::{Ptxas, Resources};

/// A kernel to be assembled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source<'a> {
    /// Name of the entry.
    pub kernel: &'a str,
    /// A PTX text that has it, and perhaps more.
    pub text: &'a str,
}

/// What became of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// What the assembler says of it.
    pub resources: Resources,
    /// Its machine code, each instruction after a comment with its line of the kernel's text.
    pub text: String,
}

/// Assembles kernels for an architecture, and disassembles them. Those whose texts do not go together are assembled alone.
pub fn listings(
    (ptxas, nvdisasm): (&Ptxas, &Nvdisasm),
    sources: &[Source<'_>],
    arch: Arch,
) -> Result<Vec<Listing>, BuildError> {
    match joined(ptxas, nvdisasm, sources, arch) {
        Err(_) if sources.len() > 1 => sources.iter().map(|one| alone(ptxas, nvdisasm, one, arch)).collect(),
        result => result,
    }
}

fn alone(ptxas: &Ptxas, nvdisasm: &Nvdisasm, source: &Source<'_>, arch: Arch) -> Result<Listing, BuildError> {
    let mut all = joined(ptxas, nvdisasm, std::slice::from_ref(source), arch)?;
    all.pop().ok_or_else(|| missing(source.kernel, arch))
}

fn joined(ptxas: &Ptxas, nvdisasm: &Nvdisasm, sources: &[Source<'_>], arch: Arch) -> Result<Vec<Listing>, BuildError> {
    let Joined { text, before } = join(sources);
    let names: Vec<&str> = sources.iter().map(|s| s.kernel).collect();
    let (resources, cubin) = ptxas.compile_entries(&text, &names, arch)?;
    let printed = nvdisasm.disassemble(&cubin)?;
    let listing = |(source, before): (&Source<'_>, u32)| {
        let resources = resources.iter().find(|r| r.kernel == source.kernel).cloned();
        let text = section(&printed, source.kernel, before);
        let both = resources.zip(text).ok_or_else(|| missing(source.kernel, arch))?;
        Ok(Listing { resources: both.0, text: both.1 })
    };
    sources.iter().zip(before).map(listing).collect()
}

fn missing(kernel: &str, arch: Arch) -> BuildError {
    BuildError::Command {
        what: format!("assembling `{kernel}` for {arch}"),
        status: "no machine code".to_owned(),
        stderr: "the text has no such entry".to_owned(),
    }
}

/// A text without lines of the source: what ptxas is given to read where nobody asks for them.
pub fn without_source(text: &str) -> String {
    join(&[Source { kernel: "", text }]).text
}

/// Several texts as one.
struct Joined {
    text: String,
    /// Lines that come before each.
    before: Vec<u32>,
}

/// Line after line, those that are left out as empty ones: of the header, which the first text has, of what an earlier text declares by
/// the same words, and of the source.
fn join(sources: &[Source<'_>]) -> Joined {
    let (mut text, mut before, mut lines) = (String::new(), Vec::new(), 0);
    let mut declared: HashSet<&str> = HashSet::new();
    for (number, source) in sources.iter().enumerate() {
        before.push(lines);
        for line in source.text.lines() {
            let trimmed = line.trim_start();
            let starts = |words: &[&str]| words.iter().any(|word| trimmed.starts_with(word));
            let left_out = starts(&[".loc\t", ".loc ", ".file\t", ".file "])
                || number > 0 && starts(&[".version", ".target", ".address_size"])
                || line.starts_with('.') && line.ends_with(';') && !declared.insert(line);
            if !left_out {
                text.push_str(line);
            }
            text.push('\n');
            lines += 1;
        }
    }
    Joined { text, before }
}

/// What is printed of a kernel, with lines of its own text; `None` if nothing is.
fn section(printed: &str, kernel: &str, before: u32) -> Option<String> {
    const LINE: &str = "//## File \".nv_debug_ptx_txt\", line ";
    let label = format!(".text.{kernel}:");
    let mut text = String::new();
    let after = printed.lines().skip_while(|line| line.trim() != label);
    for line in after.take_while(|line| !line.trim_start().starts_with(".section")) {
        let told = line.split_once(LINE).and_then(|(indent, rest)| {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let own = rest[..digits].parse::<u32>().ok()?.checked_sub(before)?;
            Some(format!("{indent}{LINE}{own}{}", &rest[digits..]))
        });
        text.push_str(told.as_deref().unwrap_or(line));
        text.push('\n');
    }
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str =
        ".version 7.8\n.target sm_90\n.extern .shared .b8 s[];\n.visible .entry a()\n{\n\t.loc\t1 2 3\n\tret;\n}\n";
    const B: &str =
        ".version 7.8\n.target sm_90\n.extern .shared .b8 s[];\n.shared .b8 t[4];\n.visible .entry b()\n{\n\tret;\n}\n";

    fn sources() -> [Source<'static>; 2] {
        [Source { kernel: "a", text: A }, Source { kernel: "b", text: B }]
    }

    #[test]
    fn texts_are_joined_line_by_line() {
        let Joined { text, before } = join(&sources());
        assert_eq!(before, [0, 8]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..8],
            [
                ".version 7.8",
                ".target sm_90",
                ".extern .shared .b8 s[];",
                ".visible .entry a()",
                "{",
                "",
                "\tret;",
                "}"
            ]
        );
        assert_eq!(lines[8..], ["", "", "", ".shared .b8 t[4];", ".visible .entry b()", "{", "\tret;", "}"]);
    }

    #[test]
    fn the_source_is_left_out() {
        assert_eq!(without_source(A), A.replace("\t.loc\t1 2 3", ""));
        assert_eq!(without_source(B), B);
    }

    #[test]
    fn sections_have_the_lines_of_their_own_text() {
        let printed = "\t.section\t.text.a,\"ax\"\n.text.a:\n\t//## File \".nv_debug_ptx_txt\", line 7\n        /*0000*/ EXIT ;\n\
                       \t.section\t.text.b,\"ax\"\n.text.b:\n\t//## File \".nv_debug_ptx_txt\", line 15 inlined at \"x\", line 3\n        /*0000*/ EXIT ;\n";
        let b = section(printed, "b", 8).unwrap();
        assert_eq!(
            b,
            ".text.b:\n\t//## File \".nv_debug_ptx_txt\", line 7 inlined at \"x\", line 3\n        /*0000*/ EXIT ;\n"
        );
        assert!(section(printed, "a", 0).unwrap().ends_with("line 7\n        /*0000*/ EXIT ;\n"));
        assert_eq!(section(printed, "c", 0), None);
    }
}
