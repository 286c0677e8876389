//! Line directives: which lines of the source a text is of, and through which calls these were inlined.
//!
//! A kernel has thousands of places, each in a function that is inlined through up to a dozen calls, of which those before it have most. So
//! calls are a tree, and a place names the innermost: written out, as `.loc 1 31 23 // @[ src/a.rs:7:9 @[ src/lib.rs:42:21 ] ]`, they would be
//! a third of a pack.

use super::{PackError, read_number, refuse, write_number};
use std::collections::HashMap;

/// What an item of a group's part of the lines is.
const PLACE: usize = 0;
const CALL: usize = 1;
/// A directive of another form, as it stands.
const OTHER: usize = 2;

/// The directives of a piece of a text.
pub(super) struct Directives<'a> {
    /// Of each the number of lines of the text before it, and which of the text's places it is.
    pub(super) own: &'a [(usize, usize)],
    /// The line of the text that the piece begins with.
    pub(super) first_line: usize,
    /// What the places of the text are among those of all texts.
    pub(super) numbers: &'a [usize],
}

/// The places of all texts, each once.
#[derive(Default)]
pub(super) struct Places<'a> {
    known: HashMap<&'a str, usize>,
    all: Vec<SourcePlace<'a>>,
    tree: HashMap<Call, usize>,
    calls: Vec<Call>,
    site_numbers: HashMap<&'a str, usize>,
    /// Where calls stand, by number.
    pub(super) sites: Vec<&'a str>,
}

/// A call of the tree, by numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Call {
    /// The call that inlined the function that it stands in.
    caller: Option<usize>,
    site: usize,
}

enum SourcePlace<'a> {
    Of { at: [usize; 3], call: Option<usize> },
    Other(&'a str),
}

impl<'a> Places<'a> {
    /// The number of a directive.
    pub(super) fn number(&mut self, directive: &'a str) -> usize {
        if let Some(number) = self.known.get(directive) {
            return *number;
        }
        let place = match taken_apart(directive) {
            Some((at, sites)) => {
                // The outermost comes last.
                let call = sites.into_iter().rev().fold(None, |caller, site| Some(self.call(caller, site)));
                SourcePlace::Of { at, call }
            }
            None => SourcePlace::Other(directive),
        };
        let number = self.all.len();
        self.known.insert(directive, number);
        self.all.push(place);
        number
    }

    fn call(&mut self, caller: Option<usize>, site: &'a str) -> usize {
        let sites = &mut self.sites;
        let site = *self.site_numbers.entry(site).or_insert_with(|| {
            sites.push(site);
            sites.len() - 1
        });
        let (call, calls) = (Call { caller, site }, &mut self.calls);
        *self.tree.entry(call).or_insert_with(|| {
            calls.push(call);
            calls.len() - 1
        })
    }

    /// The part of a group.
    pub(super) fn write(&self, pieces: &[Directives<'_>]) -> Result<Vec<u8>, PackError> {
        let mut items = Items { all: self, out: Vec::new(), count: 0, calls: HashMap::new(), places: HashMap::new() };
        let mut records = Vec::new();
        for Directives { own, first_line, numbers } in pieces {
            write_number(&mut records, own.len());
            let mut last = *first_line;
            for (line, _) in *own {
                write_number(&mut records, line - last);
                last = *line;
            }
            let mut before = 0;
            for (_, place) in *own {
                let place = numbers.get(*place).and_then(|number| items.place(*number));
                let place = place.ok_or_else(|| refuse(&"a directive is of no place"))?;
                write_number(&mut records, folded(before, place));
                before = place;
            }
        }
        let mut out = Vec::new();
        write_number(&mut out, items.count);
        out.extend(items.out);
        out.extend(records);
        Ok(out)
    }
}

/// What a group's places are, as they come.
struct Items<'p, 'a> {
    all: &'p Places<'a>,
    out: Vec<u8>,
    count: usize,
    /// For numbers among all those in the group.
    calls: HashMap<usize, usize>,
    places: HashMap<usize, usize>,
}

impl Items<'_, '_> {
    fn item(&mut self, words: &[usize]) {
        words.iter().for_each(|word| write_number(&mut self.out, *word));
        self.count += 1;
    }

    fn place(&mut self, number: usize) -> Option<usize> {
        if let Some(place) = self.places.get(&number) {
            return Some(*place);
        }
        match self.all.all.get(number)? {
            SourcePlace::Of { at: [file, line, column], call } => {
                let back = self.back(*call)?;
                self.item(&[PLACE, *file, *line, *column, back]);
            }
            SourcePlace::Other(text) => {
                self.item(&[OTHER, text.len()]);
                self.out.extend_from_slice(text.as_bytes());
            }
        }
        let place = self.places.len();
        self.places.insert(number, place);
        Some(place)
    }

    /// How far behind the last call of the group this one is; for none, all of them.
    fn back(&mut self, call: Option<usize>) -> Option<usize> {
        let mut missing = Vec::new();
        let mut next = call;
        while let Some(call) = next.filter(|call| !self.calls.contains_key(call)) {
            missing.push(call);
            next = self.all.calls.get(call)?.caller;
        }
        for call in missing.into_iter().rev() {
            let Call { caller, site } = *self.all.calls.get(call)?;
            let back = self.calls.len() - self.number(caller);
            self.item(&[CALL, back, site]);
            let number = self.calls.len() + 1;
            self.calls.insert(call, number);
        }
        Some(self.calls.len() - self.number(call))
    }

    /// From 1 on; 0: none.
    fn number(&self, call: Option<usize>) -> usize {
        call.and_then(|call| self.calls.get(&call)).copied().unwrap_or(0)
    }
}

/// A directive's file, line and column, and the calls that it was inlined through, from the innermost on; `None`: it is of another form, so that
/// it would not be [spelled out](spelled_out) as it stands.
fn taken_apart(directive: &str) -> Option<([usize; 3], Vec<&str>)> {
    let rest = directive.strip_prefix("\t.loc\t")?;
    let (place, chain) = rest.split_once(" // @").map_or((rest, None), |(place, chain)| (place, Some(chain)));
    let mut numbers = place.split(' ').map(|word| {
        let number: usize = word.parse().ok()?;
        (number.to_string() == word).then_some(number)
    });
    let at = [numbers.next()??, numbers.next()??, numbers.next()??];
    if numbers.next().is_some() {
        return None;
    }
    let Some(chain) = chain else { return Some((at, Vec::new())) };
    let mut sites: Vec<&str> = chain.strip_prefix("[ ")?.split(" @[ ").collect();
    for _ in 0..sites.len() {
        let last = sites.last_mut()?;
        *last = last.strip_suffix(" ]")?;
    }
    (!directive.contains('\n')).then_some((at, sites))
}

fn spelled_out([file, line, column]: [usize; 3], chain: Option<&str>) -> String {
    match chain {
        Some(chain) => format!("\t.loc\t{file} {line} {column} // @{chain}"),
        None => format!("\t.loc\t{file} {line} {column}"),
    }
}

/// The difference from one number to the next, of which small ones are small numbers on both sides of 0.
fn folded(from: usize, to: usize) -> usize {
    if to >= from { 2 * (to - from) } else { 2 * (from - to) - 1 }
}

fn unfolded(from: usize, folded: usize) -> Option<usize> {
    if folded.is_multiple_of(2) { from.checked_add(folded / 2) } else { from.checked_sub(folded / 2 + 1) }
}

/// Line directives of a group.
pub(super) struct Lines {
    places: Vec<String>,
    /// By piece: how many of its lines stand before each, and which place it is.
    pieces: Vec<Vec<(usize, usize)>>,
}

impl Lines {
    /// `sites`: where calls stand, by number.
    pub(super) fn read(bytes: &[u8], sites: &[&str]) -> Option<Lines> {
        let mut rest = bytes;
        let mut chains: Vec<String> = Vec::new();
        let mut places = Vec::new();
        for _ in 0..read_number(&mut rest)? {
            match read_number(&mut rest)? {
                PLACE => {
                    let mut number = || read_number(&mut rest);
                    let (at, back) = ([number()?, number()?, number()?], number()?);
                    places.push(spelled_out(at, chain(&chains, back)?));
                }
                CALL => {
                    let back = read_number(&mut rest)?;
                    let site = sites.get(read_number(&mut rest)?)?;
                    chains.push(match chain(&chains, back)? {
                        Some(of_caller) => format!("[ {site} @{of_caller} ]"),
                        None => format!("[ {site} ]"),
                    });
                }
                OTHER => {
                    let bytes = read_number(&mut rest)?;
                    let (place, behind) = rest.split_at_checked(bytes)?;
                    places.push(std::str::from_utf8(place).ok()?.to_owned());
                    rest = behind;
                }
                _ => return None,
            }
        }
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            let count = read_number(&mut rest)?;
            // Each takes two bytes at least.
            if count > rest.len() {
                return None;
            }
            let mut line = 0usize;
            let mut directives = Vec::with_capacity(count);
            for _ in 0..count {
                line = line.checked_add(read_number(&mut rest)?)?;
                directives.push((line, 0));
            }
            let mut before = 0;
            for (_, place) in &mut directives {
                before = unfolded(before, read_number(&mut rest)?)?;
                *place = before;
            }
            pieces.push(directives);
        }
        Some(Lines { places, pieces })
    }

    /// Appends the text of a piece with its directives between its lines.
    pub(super) fn merge(&self, out: &mut String, text: &str, nth: usize) -> Option<()> {
        let mut directives = self.pieces.get(nth)?.iter().peekable();
        let mut before = |number: usize, out: &mut String| -> Option<()> {
            while let Some((_, place)) = directives.next_if(|(line, _)| *line <= number) {
                out.push_str(self.places.get(*place)?);
                out.push('\n');
            }
            Some(())
        };
        for (number, line) in text.split_inclusive('\n').enumerate() {
            before(number, out)?;
            out.push_str(line);
        }
        before(usize::MAX, out)
    }
}

/// The chain of the call that is so far behind the last; of what is behind the first there is none.
fn chain(chains: &[String], back: usize) -> Option<Option<&str>> {
    let number = chains.len().checked_sub(back)?;
    Some(number.checked_sub(1).and_then(|at| chains.get(at)).map(String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEEP: &str = "\t.loc\t3 9 1 // @[ src/a.rs:7:9 @[ src/lib.rs:42:21 ] ]";

    /// A piece of a text of `places`, which has each of `order` behind another line.
    fn written(places: &[&str], order: &[usize]) -> (Vec<u8>, String) {
        let mut all = Places::default();
        let numbers: Vec<usize> = places.iter().map(|place| all.number(place)).collect();
        let own: Vec<(usize, usize)> = order.iter().enumerate().map(|(line, place)| (line + 5, *place)).collect();
        let pieces = [Directives { own: &own, first_line: 5, numbers: &numbers }];
        (all.write(&pieces).unwrap(), all.sites.join("\n"))
    }

    fn read(bytes: &[u8], sites: &str, lines: usize) -> Option<String> {
        let mut out = String::new();
        let sites: Vec<&str> = sites.split('\n').collect();
        Lines::read(bytes, &sites)?.merge(&mut out, &"x\n".repeat(lines), 0)?;
        Some(out)
    }

    #[test]
    fn directives_of_any_form_come_back_as_they_were() {
        let places = [
            DEEP,
            "\t.loc\t3 9 1",
            "\t.loc\t3 9 2 // @[ src/lib.rs:42:21 ]",
            "\t.loc\t3 10 1 // @[ src/b.rs:1:1 @[ src/a.rs:7:9 @[ src/lib.rs:42:21 ] ] ]",
            // Not as the builder writes them.
            "\t.loc 1 2 3",
            "\t.loc\t01 2 3",
            "\t.loc\t1 2 3 4",
            "\t.loc\t1 2 -3",
            "\t.loc\t1 2",
            "\t.loc\t1 2 3 // @[ a @[ b ]",
            "\t.loc\t1 2 3 // @[ a ] ]",
            "\t.loc\t1 2 3 // @ [ a ]",
            "\t.loc\t1 2 3 // @[  ]",
            "\t.loc\t1 2 3 // remark",
            "\t.loc\t1 2 99999999999999999999999",
            "",
        ];
        let order = [3, 0, 15, 1, 2, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0, 3];
        let (bytes, sites) = written(&places, &order);
        let want: String = order.iter().map(|place| format!("{}\nx\n", places[*place])).collect();
        assert_eq!(read(&bytes, &sites, order.len()).unwrap(), want);
    }

    #[test]
    fn calls_are_in_it_once() {
        let (bytes, sites) =
            written(&[DEEP, "\t.loc\t3 9 2 // @[ src/a.rs:7:9 @[ src/lib.rs:42:21 ] ]", "\t.loc\t1 1 1"], &[0, 1, 2]);
        assert_eq!(sites, "src/lib.rs:42:21\nsrc/a.rs:7:9");
        // The outer call of none, the inner one of that, three places, of which the last has none; and three records.
        let items = [[1, 0, 0].as_slice(), &[1, 0, 1], &[0, 3, 9, 1, 0], &[0, 3, 9, 2, 0], &[0, 1, 1, 1, 2]].concat();
        assert_eq!(bytes, [&[5], items.as_slice(), &[3, 0, 1, 1, 0, 2, 2]].concat());
    }

    #[test]
    fn what_was_cut_is_refused_and_no_change_a_panic() {
        let (bytes, sites) = written(&[DEEP, "\t.loc\t1 2 3", "other"], &[0, 1, 0, 2]);
        for at in 0..bytes.len() {
            assert!(read(&bytes[..at], &sites, 4).is_none(), "{at}");
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                // No panic, whatever comes of it.
                let _ = read(&changed, &sites, 4);
            }
        }
        assert!(read(&bytes, "one", 4).is_none());
    }

    #[test]
    fn differences_fold_both_ways() {
        for (from, to) in [(0, 0), (0, 9), (9, 0), (4, 5), (5, 4)] {
            assert_eq!(unfolded(from, folded(from, to)), Some(to));
        }
        assert_eq!((folded(4, 5), folded(5, 4)), (2, 1));
        assert_eq!((unfolded(0, 1), unfolded(3, 7)), (None, None));
    }
}
