//! What the tests of the book need of a page: its listings with the comment above each, its headings, its links.

use std::path::{Path, PathBuf};

/// A fenced block.
pub struct Listing {
    /// The line of its fence, from 1.
    pub line: usize,
    /// The word behind the fence.
    pub language: String,
    /// The comment on the line above, without its marks.
    pub note: Option<String>,
    /// Its lines.
    pub text: Vec<String>,
}

/// A page of Markdown.
#[derive(Default)]
pub struct Page {
    pub listings: Vec<Listing>,
    /// Anchors of its headings, as GitHub and mdBook make them.
    pub anchors: Vec<String>,
    /// Targets of its links, with the line of each.
    pub links: Vec<(usize, String)>,
}

impl Page {
    pub fn parse(text: &str) -> Page {
        let (mut page, mut above) = (Page::default(), "");
        let mut lines = text.lines().enumerate();
        while let Some((i, line)) = lines.next() {
            if let Some(language) = line.strip_prefix("```") {
                let note = above.strip_prefix("<!-- ").and_then(|n| n.strip_suffix(" -->")).map(str::to_owned);
                let text = lines.by_ref().map(|(_, l)| l.to_owned()).take_while(|l| l != "```").collect();
                page.listings.push(Listing { line: i + 1, language: language.to_owned(), note, text });
            } else if let Some(heading) = line.starts_with('#').then(|| line.trim_start_matches('#')) {
                page.heading(heading);
                page.links.extend(links(heading).map(|l| (i + 1, l)));
            } else {
                page.links.extend(links(line).map(|l| (i + 1, l)));
            }
            above = line;
        }
        page
    }

    fn heading(&mut self, heading: &str) {
        let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor: String = kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect();
        let again = |n: usize| if n == 0 { anchor.clone() } else { format!("{anchor}-{n}") };
        let free = (0..).map(again).find(|a| !self.anchors.contains(a));
        self.anchors.extend(free);
    }
}

/// Targets of `[text](target)` outside of code.
fn links(line: &str) -> impl Iterator<Item = String> {
    let prose: String = line.split('`').step_by(2).collect();
    let targets: Vec<String> =
        prose.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(t, _)| t.to_owned()).collect();
    targets.into_iter()
}

/// Whether a line stands for lines that a listing leaves out.
fn leaves_out(line: &str) -> bool {
    matches!(line.trim(), "// …" | "# …" | "…")
}

fn indent(line: &str) -> isize {
    (line.len() - line.trim_start().len()) as isize
}

/// The end of `piece` in `source`, if it stands at `at` and is indented by `shift` more there.
fn ends(piece: &[String], source: &[&str], at: usize, shift: isize) -> Option<usize> {
    let there = source.get(at..at + piece.len())?;
    let same =
        |(p, s): (&String, &&str)| p.trim() == s.trim() && (p.trim().is_empty() || indent(p) + shift == indent(s));
    piece.iter().zip(there).all(same).then_some(at + piece.len())
}

/// Whether a listing is a contiguous part of a source, up to lines that it says it leaves out and to indentation that is
/// shifted as a whole. If not, the first line of the piece that is not found.
pub fn stands_in(listing: &[String], source: &str) -> Result<(), String> {
    let source: Vec<&str> = source.lines().collect();
    let pieces: Vec<&[String]> = listing.split(|l| leaves_out(l)).filter(|p| !p.is_empty()).collect();
    let first = pieces.first().and_then(|p| p.first()).ok_or("it is empty")?;
    let mut missing = first;
    for start in 0..source.len() {
        let shift = indent(source[start]) - indent(first);
        let mut from = start;
        let found = pieces.iter().enumerate().all(|(i, piece)| {
            // The first piece stands right here, the others somewhere behind it.
            let last = if i == 0 { start } else { source.len() };
            match (from..=last).find_map(|at| ends(piece, &source, at, shift)) {
                Some(end) => from = end,
                None if i == 0 => return false,
                None => {
                    missing = &piece[0];
                    return false;
                }
            }
            true
        });
        if found {
            return Ok(());
        }
    }
    Err(format!("the piece that begins with `{}` is not there", missing.trim()))
}

/// The pages whose listings and links are checked: the chapters, and what stands at the doors.
pub fn pages(root: &Path) -> Vec<PathBuf> {
    let docs = std::fs::read_dir(root.join("docs")).into_iter().flatten().flatten().map(|e| e.path());
    let mut pages: Vec<PathBuf> = docs.filter(|p| p.extension().is_some_and(|e| e == "md")).collect();
    pages.extend(["README.md", "examples/README.md", "CONTRIBUTING.md"].map(|p| root.join(p)));
    pages.sort();
    pages
}

/// The command that a listing says it is the output of.
pub fn command(listing: &Listing) -> Option<&str> {
    listing.note.as_ref()?.strip_prefix("output of: ")
}
