//! What options of a compiler say of every entry, as the directives that say it of one.

use std::ops::Range;

use super::lexer::{Kind, Lexer};

/// Limits for the entries of a module. An entry that has directives of its own keeps them, as the driver's documentation says
/// of its options, unless these [override](Tuning::overrides) them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// `.maxnreg`, for entries without any directive on their launch.
    pub max_registers: Option<u32>,
    /// `.maxntid`, for entries that say nothing of their block.
    pub max_threads: Option<u32>,
    /// `.minnctapersm`, for entries that do not have it; means nothing beside a number of registers.
    pub min_blocks: Option<u32>,
    /// Whether these take the place of directives in the text.
    pub overrides: bool,
}

/// The launch directives of one entry: which, and where.
type EntryDirectives = Vec<(&'static str, Range<usize>)>;

const BLOCK: [&str; 2] = ["maxntid", "reqntid"];
const DIRECTIVES: [&str; 4] = ["maxnreg", "maxntid", "reqntid", "minnctapersm"];

impl Tuning {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.max_registers.is_none() && self.max_threads.is_none() && self.min_blocks.is_none()
    }

    /// The text with the directives that these limits stand for, on the lines on which everything was.
    pub fn apply(&self, text: &str) -> String {
        let mut tuned = String::with_capacity(text.len());
        let mut from = 0;
        for (found, body) in entries(text) {
            let (added, replaced) = self.directives(&found);
            for range in replaced {
                tuned.push_str(text.get(from..range.start).unwrap_or_default());
                from = range.end;
            }
            tuned.push_str(text.get(from..body).unwrap_or_default());
            tuned.push_str(&added);
            from = body;
        }
        tuned.push_str(text.get(from..).unwrap_or_default());
        tuned
    }

    /// What an entry gets, and which of its own directives that replaces.
    fn directives(&self, found: &EntryDirectives) -> (String, Vec<Range<usize>>) {
        let (mut added, mut replaced) = (String::new(), Vec::new());
        let min_blocks = self.min_blocks.filter(|_| self.max_registers.is_none());
        let limits: [(&str, Option<u32>, &[&str]); 3] = [
            ("maxnreg", self.max_registers, if self.overrides { &["maxnreg"] } else { &DIRECTIVES }),
            ("maxntid", self.max_threads, &BLOCK),
            ("minnctapersm", min_blocks, &["minnctapersm"]),
        ];
        for (directive, value, rivals) in limits {
            let Some(value) = value else { continue };
            let stands: Vec<_> = found.iter().filter(|(d, _)| rivals.contains(d)).map(|(_, r)| r.clone()).collect();
            if stands.is_empty() || self.overrides {
                added.push_str(&format!(" .{directive} {value} "));
                replaced.extend(stands);
            }
        }
        replaced.sort_by_key(|r| r.start);
        (added, replaced)
    }
}

/// The entries with a body: their launch directives, and where the body starts.
fn entries(text: &str) -> Vec<(EntryDirectives, usize)> {
    let mut lexer = Lexer::new(text);
    let (mut all, mut depth) = (Vec::new(), 0usize);
    // The directives of the entry whose head this is.
    let mut head: Option<EntryDirectives> = None;
    let mut open = false;
    loop {
        let token = lexer.next();
        let number = token.kind == Kind::Int || token.kind == Kind::Punct(b',');
        match token.kind {
            Kind::Eof => return all,
            Kind::Dot if depth == 0 && token.text == "entry" => head = Some(Vec::new()),
            Kind::Punct(b'{') if depth == 0 => {
                all.extend(head.take().map(|found| (found, token.start)));
                depth = 1;
            }
            Kind::Punct(b'{' | b'(' | b'[') => depth += 1,
            Kind::Punct(b'}' | b')' | b']') => depth = depth.saturating_sub(1),
            Kind::Punct(b';') if depth == 0 => head = None,
            _ => {}
        }
        let Some(found) = head.as_mut().filter(|_| depth == 0) else { continue };
        match DIRECTIVES.iter().find(|d| token.kind == Kind::Dot && **d == token.text) {
            Some(directive) => found.push((*directive, token.start..token.end)),
            None if open && number => {
                if let Some((_, range)) = found.last_mut() {
                    range.end = token.end;
                }
            }
            None => {}
        }
        open = number && open || token.kind == Kind::Dot && DIRECTIVES.contains(&token.text);
    }
}
