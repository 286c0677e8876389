//! A lint for rust-cuda's code generator, on rustc's MIR, as `--emit=mir -Zmir-include-spans=on` writes it.
//!
//! `count_ones`, `leading_zeros` and `trailing_zeros` give a `u32`, whatever is counted. rust-cuda keeps the width of what is
//! counted (`rustc_codegen_nvvm/src/intrinsic.rs`), so anything but 32 bits is wrong there: of 64 bits and more the result is
//! undefined and what depends on it vanishes, so that nothing is left to see in the PTX; of 8 and 16 bits sums wrap. MIR shows
//! each count with its type and with its place, also where a function of `core` makes it.

use std::collections::BTreeSet;

/// What is asked for in MIR: the intrinsics, and functions of `core` that make them and may be called instead of inlined.
const INTRINSICS: [&str; 5] = ["ctpop", "ctlz", "ctlz_nonzero", "cttz", "cttz_nonzero"];
const METHODS: [&str; 16] = [
    "count_ones",
    "count_zeros",
    "leading_zeros",
    "leading_ones",
    "trailing_zeros",
    "trailing_ones",
    "is_power_of_two",
    "next_power_of_two",
    "checked_next_power_of_two",
    "one_less_than_next_power_of_two",
    "ilog",
    "checked_ilog",
    "ilog2",
    "checked_ilog2",
    "isqrt",
    "checked_isqrt",
];
/// Types of another width than 32 bits.
const TYPES: [&str; 10] = ["u8", "i8", "u16", "i16", "u64", "i64", "usize", "isize", "u128", "i128"];

/// A count of bits that rust-cuda miscompiles.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Count {
    /// File and line, as rustc prints them: `src/lib.rs:9`.
    pub(crate) place: String,
    /// The function that is called there.
    pub(crate) function: String,
    /// The type whose bits are counted.
    pub(crate) ty: String,
}

impl std::fmt::Display for Count {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Count { place, function, ty } = self;
        write!(
            f,
            "{place}: `{function}` of `{ty}` counts bits, which rust-cuda miscompiles in integers of other than 32 bits: \
             the result is undefined. Count in `u32`"
        )
    }
}

/// A scope of a function: what was inlined, and where.
struct SourceScope<'a> {
    depth: usize,
    number: &'a str,
    function: &'a str,
    place: &'a str,
}

/// The counts in functions of a crate, by place. Constants are evaluated by rustc itself and may count as they like.
pub(crate) fn counts(text: &str) -> BTreeSet<Count> {
    let mut found = BTreeSet::new();
    let mut scopes: Vec<SourceScope<'_>> = Vec::new();
    let (mut in_function, mut at_compile_time) = (false, false);
    for line in text.lines() {
        if !line.starts_with([' ', '}']) && !line.is_empty() {
            // The beginning of an item, or a remark on it.
            in_function = line.starts_with("fn ") && !at_compile_time;
            at_compile_time = line.starts_with("// MIR FOR CTFE");
            scopes.clear();
        } else if in_function {
            if let Some(scope) = scope(line) {
                scopes.push(scope);
            } else if let Some((call, ty)) = counted(line) {
                found.extend(place(line, &scopes).map(|(place, function)| Count {
                    place,
                    function: function.unwrap_or(call).to_owned(),
                    ty: ty.to_owned(),
                }));
            }
        }
    }
    found
}

/// `    scope 4 (inlined core::num::<impl u64>::trailing_zeros) { // at src/lib.rs:5:38: 5:54`
fn scope(line: &str) -> Option<SourceScope<'_>> {
    let body = line.trim_start();
    let (number, rest) = body.strip_prefix("scope ")?.split_once(' ')?;
    let (head, comment) = rest.split_once('{').unwrap_or((rest, ""));
    let function = head.trim().strip_prefix("(inlined ").and_then(|f| f.strip_suffix(')')).unwrap_or_default();
    let place = comment.trim().strip_prefix("// at ").unwrap_or_default();
    Some(SourceScope { depth: line.len() - body.len(), number, function, place })
}

/// The function and the type of a call that counts bits of another width than 32.
fn counted(line: &str) -> Option<(&str, &str)> {
    let (call, _) = line.split_once(" = ")?.1.split_once('(')?;
    let is = |ty: &&str| TYPES.contains(ty);
    if let Some((name, ty)) = call.strip_suffix('>').and_then(|c| c.split_once("::<")) {
        let name = name.rsplit("::").next().unwrap_or(name);
        return Some((name, ty)).filter(|(name, ty)| INTRINSICS.contains(name) && is(ty));
    }
    // `core::num::<impl usize>::next_power_of_two`; `NonZero::<u64>::ilog2`; `core::num::imp::int_sqrt::u64`.
    let (of, name) = call.rsplit_once("::")?;
    if of.ends_with("::int_sqrt") {
        return Some(("isqrt", name)).filter(|(_, ty)| is(ty));
    }
    let ty = of.strip_suffix('>')?.rsplit(['<', ' ']).next()?;
    let ty = ty.strip_suffix("Inner").unwrap_or(ty);
    Some((name, ty)).filter(|(name, ty)| METHODS.contains(name) && is(ty))
}

/// The place of a statement in the crate's own text: where the function of `core` that it is in was called, with its name.
fn place<'a>(line: &str, scopes: &[SourceScope<'a>]) -> Option<(String, Option<&'a str>)> {
    let (number, own) = line.rsplit_once("// scope ")?.1.split_once(" at ")?;
    let (mut place, mut function) = (own, None);
    let mut at = scopes.iter().rposition(|scope| scope.number == number);
    while is_of_core(place) {
        let scope = &scopes[at?];
        if !scope.place.is_empty() {
            place = scope.place;
            function = scope.function.rsplit("::").next();
        }
        at = scopes[..at?].iter().rposition(|outer| outer.depth < scope.depth);
    }
    // `src/lib.rs:9:14: 9:23`. A call and the function that was inlined in its place begin at different columns.
    let line = place.rsplitn(4, ':').last().unwrap_or(place);
    Some((line.to_owned(), function))
}

fn is_of_core(place: &str) -> bool {
    place.contains("/rustlib/src/rust/library/") || place.starts_with("/rustc/")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// What nightly-2026-04-02 wrote of `tests/mir/counts.rs`.
    const MIR: &str = include_str!("../tests/mir/counts.mir");
    const SOURCE: &str = include_str!("../tests/mir/counts.rs");

    #[test]
    fn each_count_is_named_with_its_line_and_no_other() {
        // The source says behind each line what is wrong with it.
        let expected: Vec<(usize, &str)> = SOURCE
            .lines()
            .enumerate()
            .filter_map(|(i, line)| Some((i + 1, line.split_once("//~ ")?.1)))
            .flat_map(|(line, all)| all.split(", ").map(move |one| (line, one)))
            .collect();
        let found = counts(MIR);
        let mut got: Vec<(usize, String)> = found
            .iter()
            .map(|c| (c.place.split(':').nth(1).unwrap().parse().unwrap(), format!("{} of {}", c.function, c.ty)))
            .collect();
        got.sort();
        let mut expected: Vec<_> = expected.into_iter().map(|(line, text)| (line, text.to_owned())).collect();
        expected.sort();
        assert_eq!(got, expected);
        assert_eq!(expected.len(), 10);
    }

    #[test]
    fn no_text_is_too_odd() {
        for end in (0..MIR.len()).step_by(7).filter(|i| MIR.is_char_boundary(*i)) {
            counts(&MIR[..end]);
        }
        counts("fn f()\n  _1 = ctpop::<u64>(x); // scope 7 at /rustc/x.rs:1:2: 3:4\n");
        counts("fn f()\n    scope\n scope 1\n _1 = (\n _2 = ::<>(\n = x::<impl u64>::isqrt(\n");
    }
}
