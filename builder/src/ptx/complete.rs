//! One reading of a text, from which it is checked, completed and cut into modules.

use super::check::{Checked, Insert, check};
use super::lines::{Stripped, strip};
use super::split::{Split, split};
use super::{Rules, outline};
use warpsmith_image::KernelEntry;
use warpsmith_image::pack::Text;

/// A text that satisfies the rules.
#[derive(Debug)]
pub(crate) struct Complete {
    /// With launch bounds, and cut into modules.
    pub(crate) text: Text,
    pub(crate) isa: (u32, u32),
    /// By name.
    pub(crate) kernels: Vec<KernelEntry>,
    pub(crate) warnings: Vec<String>,
}

/// Completes a [compact](super::compact) text, or answers everything that is wrong with it.
pub(crate) fn complete(text: &str, rules: &Rules<'_>) -> Result<Complete, Vec<String>> {
    let mut text = strip(text);
    let scan = outline(&text.bare);
    let Checked { inserts, isa, kernels, warnings } = check(&text.bare, &scan, rules)?;
    let mut split = split(&text.bare, &scan)?;
    insert(&mut text, &mut split, inserts);
    let Stripped { bare, places, directives } = text;
    let Split { modules, pieces } = split;
    let text = Text { sm: rules.arch.sm(), bare, places, directives, modules, pieces };
    Ok(Complete { text, isa, kernels, warnings })
}

/// Inserts each text at its offset. None is where a piece ends, since each belongs to a declaration.
fn insert(text: &mut Stripped, split: &mut Split, mut inserts: Vec<Insert>) {
    inserts.sort_by_key(|insert| insert.at);
    let bare = &text.bare;
    let mut out = String::with_capacity(bare.len() + inserts.len() * 48);
    // Of each: what follows it is so many lines and bytes farther on.
    let mut moved = Vec::with_capacity(inserts.len());
    let (mut from, mut line, mut lines, mut bytes) = (0, 0, 0, 0);
    for Insert { at, text } in inserts {
        let before = bare.get(from..at).unwrap_or_default();
        out.push_str(before);
        out.push_str(&text);
        line += count(before);
        lines += count(&text);
        bytes += text.len();
        moved.push((at, line, lines, bytes));
        from = at;
    }
    out.push_str(bare.get(from..).unwrap_or_default());
    for piece in &mut split.pieces {
        for end in [&mut piece.bytes.start, &mut piece.bytes.end] {
            *end += last(&moved, |(at, ..)| at < end).map_or(0, |(.., bytes)| *bytes);
        }
        for end in [&mut piece.lines.start, &mut piece.lines.end] {
            *end += last(&moved, |(_, line, ..)| line < end).map_or(0, |(_, _, lines, _)| *lines);
        }
    }
    for (before, _) in &mut text.directives {
        *before += last(&moved, |(_, line, ..)| line < before).map_or(0, |(_, _, lines, _)| *lines);
    }
    text.bare = out;
}

type Moved = (usize, usize, usize, usize);

/// The last of those for which something holds, which come first.
fn last(moved: &[Moved], holds: impl Fn(&Moved) -> bool) -> Option<&Moved> {
    moved.partition_point(holds).checked_sub(1).and_then(|nth| moved.get(nth))
}

fn count(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // helpers of tests are not seen as tests

    use super::*;

    /// Cut before it is completed or after, a text is cut the same.
    #[test]
    fn pieces_and_directives_move_with_their_lines() {
        let entry = |name: &str, nth: u32| {
            format!(
                "// @kernel {{\"name\":\"{name}\"}}\n.visible .entry {name}(\n\t.param .b64 {name}_param_0\n\
                 \t.loc\t1 {nth} 0\n)\n{{\n\t.loc\t1 {nth} 1\n\tret;\n\t.loc\t1 {nth} 2 // @0\n}}\n"
            )
        };
        let head = ".version 7.4\n.target sm_80\n.address_size 64\n";
        let before = format!("{head}{}\t.loc\t1 9 9\n{}// @0 [ x ]\n", entry("a", 1), entry("b", 2));
        let bounds = |text: &str| {
            let behind = |name: &str| text.find(&format!("{name}_param_0\n)")).unwrap() + name.len() + 10;
            let [a, b] = ["a", "b"].map(|name| Insert { at: behind(name), text: format!("\n.bounds\n.of {name}") });
            vec![b, a]
        };
        let mut text = strip(&before);
        let mut got = split(&text.bare, &outline(&text.bare)).unwrap();
        let inserts = bounds(&text.bare);
        insert(&mut text, &mut got, inserts);
        let after = [("a", 1), ("b", 2)].into_iter().fold(before, |text, (name, nth)| {
            let end = format!("\t.loc\t1 {nth} 0\n)");
            text.replace(&end, &format!("{end}\n.bounds\n.of {name}"))
        });
        let want = strip(&after);
        assert_eq!(text, want);
        assert_eq!(got, split(&want.bare, &outline(&want.bare)).unwrap());
        assert_eq!(got.pieces.len(), 3);
    }
}
