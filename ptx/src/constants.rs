//! Arguments of an entry that are known, in the place of its parameters.

use std::collections::HashMap;
use std::ops::Range;

use super::approximate;
use super::lexer::{Kind, Lexer, Token};

/// Bytes of an argument that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownBytes<'a> {
    /// The number of its parameter.
    pub argument: usize,
    /// Bytes of the argument before these.
    pub offset: usize,
    /// The bytes, as they lie in memory.
    pub bytes: &'a [u8],
}

/// The text in which an entry loads constants where it loads what is known of its parameters: a compiler then leaves out what they decide
/// against.
///
/// The entry has its parameters as before, of which those that are known have to be given these values. Loads that are no plain number of up
/// to 64 bits, and addresses of parameters, stay as they are. A text without such an entry, and one that is not PTX, stays as it is.
///
/// Results stay the same: PTX says how an instruction rounds, and one that approximates, such as `rsqrt.approx`, gets no operand that a
/// compiler knows, which would compute it more exactly than a processor does. Where that cannot be prevented, as in a function that the entry
/// calls, the text stays as it is.
///
/// ```
/// use warpsmith_ptx::{KnownBytes, with_constants};
/// let head = ".version 8.0\n.target sm_90\n.address_size 64\n";
/// let text = format!("{head}.entry k(.param .u32 n) {{ .reg .b32 %r<2>; ld.param.u32 %r1, [n]; ret; }}");
/// let known = with_constants(&text, "k", &[KnownBytes { argument: 0, offset: 0, bytes: &7u32.to_le_bytes() }]);
/// assert_eq!(known, text.replace("ld.param.u32 %r1, [n]", "mov.b32 %r1, 0x7"));
/// ```
#[must_use]
pub fn with_constants(text: &str, entry: &str, constants: &[KnownBytes<'_>]) -> String {
    let mut known = String::with_capacity(text.len());
    let mut from = 0;
    for (range, instruction) in replaced(text, entry, constants) {
        known.push_str(text.get(from..range.start).unwrap_or_default());
        known.push_str(&instruction);
        from = range.end;
    }
    known.push_str(text.get(from..).unwrap_or_default());
    if from == 0 {
        return known;
    }
    approximate::kept(&known, entry, constants).unwrap_or_else(|| text.to_owned())
}

/// The instructions that load constants, in their order, and what takes their place.
fn replaced(text: &str, entry: &str, constants: &[KnownBytes<'_>]) -> Vec<(Range<usize>, String)> {
    let mut lexer = Lexer::new(text);
    let Some(names) = parameters(&mut lexer, entry) else { return Vec::new() };
    let mut values: HashMap<&str, Vec<KnownBytes<'_>>> = HashMap::new();
    for constant in constants {
        if let Some(name) = names.get(constant.argument) {
            values.entry(name).or_default().push(*constant);
        }
    }
    let (mut all, mut registers, mut depth) = (Vec::new(), Registers::default(), 0usize);
    let mut begins = true;
    loop {
        let token = lexer.next();
        let is_first = std::mem::replace(&mut begins, matches!(token.kind, Kind::Punct(b'{' | b'}' | b';' | b':')));
        match token.kind {
            Kind::Eof => return all,
            Kind::Punct(b'{') => depth += 1,
            Kind::Punct(b'}') if depth <= 1 => return all,
            Kind::Punct(b'}') => depth -= 1,
            Kind::Dot if token.text == "reg" => registers.declare(&mut lexer),
            // The arguments of a call, which may be called like a parameter from here on.
            Kind::Dot if token.text == "param" && is_first => loop {
                let token = lexer.next();
                match token.kind {
                    Kind::Ident => drop(values.remove(token.text)),
                    Kind::Punct(b';') | Kind::Eof => break,
                    _ => {}
                }
            },
            Kind::Ident if token.text == "ld" => {
                if let Some(load) = Load::after(&mut lexer.clone())
                    && let Some(known) = values.get(load.parameter)
                    && let Some(instruction) = known.iter().find_map(|constant| load.of(constant, &registers))
                {
                    all.push((token.start..load.end, instruction));
                }
            }
            _ => {}
        }
    }
}

/// The names of the parameters of an entry with a body; the lexer is then before it.
fn parameters<'a>(lexer: &mut Lexer<'a>, entry: &str) -> Option<Vec<&'a str>> {
    loop {
        let token = lexer.next();
        if token.kind == Kind::Eof {
            return None;
        }
        if token.kind != Kind::Dot || token.text != "entry" || lexer.next().text != entry {
            continue;
        }
        let (mut names, mut last, mut open) = (Vec::new(), None, false);
        loop {
            let mut ahead = lexer.clone();
            let token = ahead.next();
            match token.kind {
                Kind::Punct(b'{') => return Some(names),
                // A declaration; its body may follow.
                Kind::Punct(b';') => break,
                Kind::Eof => return None,
                Kind::Punct(b'(') => open = true,
                Kind::Punct(b',' | b')') if open => {
                    names.extend(last.take());
                    open = token.kind == Kind::Punct(b',');
                }
                Kind::Ident => last = Some(token.text),
                _ => {}
            }
            *lexer = ahead;
        }
    }
}

/// The bits of registers, by their names, or by the beginnings of those of several.
#[derive(Default)]
struct Registers<'a> {
    bits: HashMap<&'a str, u32>,
}

impl<'a> Registers<'a> {
    /// What stands behind `.reg`.
    fn declare(&mut self, lexer: &mut Lexer<'a>) {
        let bits = number_of_type(lexer.next().text).map_or(0, |number| number.bits);
        loop {
            let token = lexer.next();
            match token.kind {
                Kind::Ident => drop(self.bits.insert(token.text, bits)),
                Kind::Punct(b';') | Kind::Eof => return,
                _ => {}
            }
        }
    }

    fn bits(&self, name: &str) -> Option<u32> {
        let several = || self.bits.get(name.trim_end_matches(|c: char| c.is_ascii_digit()));
        self.bits.get(name).or_else(several).copied()
    }
}

/// A type of numbers.
struct Number {
    bits: u32,
    signed: bool,
}

fn number_of_type(name: &str) -> Option<Number> {
    let (kind, bits) = name.split_at_checked(1)?;
    let bits = bits.parse().ok().filter(|bits| [8, 16, 32, 64].contains(bits))?;
    ["b", "u", "s", "f"].contains(&kind).then_some(Number { bits, signed: kind == "s" })
}

/// A load of a number from a parameter.
struct Load<'a> {
    number: Number,
    register: &'a str,
    parameter: &'a str,
    /// Bytes of the parameter before it.
    offset: usize,
    /// Where its text ends.
    end: usize,
}

impl<'a> Load<'a> {
    /// What stands behind `ld`.
    fn after(lexer: &mut Lexer<'a>) -> Option<Load<'a>> {
        let space = lexer.next();
        if space.kind != Kind::Dot || !["param", "param::entry"].contains(&space.text) {
            return None;
        }
        let number = number_of_type(lexer.next().text)?;
        let ident = |token: Token<'a>| (token.kind == Kind::Ident).then_some(token.text);
        let expect = |c: u8, lexer: &mut Lexer<'a>| (lexer.next().kind == Kind::Punct(c)).then_some(());
        let register = ident(lexer.next())?;
        expect(b',', lexer)?;
        expect(b'[', lexer)?;
        let parameter = ident(lexer.next())?;
        let (mut token, mut offset) = (lexer.next(), 0);
        if token.kind == Kind::Punct(b'+') {
            offset = lexer.next().text.parse().ok()?;
            token = lexer.next();
        }
        let closed = token.kind == Kind::Punct(b']');
        closed.then_some(Load { number, register, parameter, offset, end: token.end })
    }

    /// The instruction that has its result, if this is all that it loads.
    fn of(&self, constant: &KnownBytes<'_>, registers: &Registers<'_>) -> Option<String> {
        let Number { bits, signed } = self.number;
        let width = registers.bits(self.register).filter(|width| [16, 32, 64].contains(width) && *width >= bits)?;
        let from = self.offset.checked_sub(constant.offset)?;
        let loaded = constant.bytes.get(from..)?.get(..bits as usize / 8)?;
        let negative = signed && loaded.last().is_some_and(|byte| byte >> 7 == 1);
        let mut bytes = if negative { [0xff; 8] } else { [0; 8] };
        bytes.get_mut(..loaded.len())?.copy_from_slice(loaded);
        let number = u64::from_le_bytes(bytes) & (u64::MAX >> (64 - width));
        Some(format!("mov.b{width} {}, {number:#x}", self.register))
    }
}
