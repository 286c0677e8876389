//! Tokens of PTX text. Borrows from the text; allocates nothing.
//!
//! A dot and the word behind it are one token (`.v4`, `.L1::no_allocate`), since modifiers may
//! look like numbers (`.2d`, `.16x64b`). Comments are skipped; [`Lexer::comment_after`] gives the
//! one that follows on the same line, where `.loc` keeps the inline chain.

use super::ast::Pos;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `mov`, `%r1`, `$L__BB0_1`, `_`.
    Ident,
    /// `.word` or `.word::word`; the text has no dot.
    Dot,
    /// An integer literal in any base, with its `U`.
    Int,
    /// A decimal floating-point literal.
    Float,
    /// `0f` and 8 hexadecimal digits.
    HexF32,
    /// `0d` and 16 hexadecimal digits.
    HexF64,
    /// A string; the text has no quotes. PTX strings know no escapes.
    Str,
    /// Any other ASCII character.
    Punct(u8),
    /// The end of the text.
    Eof,
    /// Not a token.
    Bad(Bad),
}

/// Why something is not a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bad {
    Number,
    Character,
    UnterminatedString,
    UnterminatedComment,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub kind: Kind,
    pub text: &'a str,
    pub pos: Pos,
    /// Byte offset in the text, dot or quote included.
    pub start: usize,
    /// Byte offset behind the token.
    pub end: usize,
    /// No token stands before it on its line.
    pub first: bool,
}

#[derive(Clone)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: u32,
    line_start: usize,
    first: bool,
}

const WORD: u8 = 1;
const START: u8 = 2;
const DIGIT: u8 = 4;
const HEX: u8 = 8;
const SPACE: u8 = 16;

/// Character classes.
static CLASS: [u8; 256] = {
    let mut table = [0u8; 256];
    let mut i = 0;
    while i < 256 {
        let c = i as u8;
        if c.is_ascii_alphanumeric() || c == b'_' || c == b'$' {
            table[i] |= WORD;
        }
        if c.is_ascii_alphabetic() || c == b'_' || c == b'$' || c == b'%' {
            table[i] |= START;
        }
        if c.is_ascii_digit() {
            table[i] |= DIGIT;
        }
        if c.is_ascii_hexdigit() {
            table[i] |= HEX;
        }
        if c == b' ' || c == b'\t' || c == b'\r' || c == b'\n' || c == 11 || c == 12 {
            table[i] |= SPACE;
        }
        i += 1;
    }
    table
};

fn is(c: u8, class: u8) -> bool {
    CLASS[c as usize] & class != 0
}

impl<'a> Lexer<'a> {
    pub fn new(text: &'a str) -> Lexer<'a> {
        Lexer { text, at: 0, line: 1, line_start: 0, first: true }
    }

    /// Makes every further token [`Kind::Eof`].
    pub fn stop(&mut self) {
        self.at = self.text.len();
    }

    pub fn text(&self) -> &'a str {
        self.text
    }

    /// The byte at an offset, 0 behind the end.
    pub fn byte(&self, at: usize) -> u8 {
        self.text.as_bytes().get(at).copied().unwrap_or(0)
    }

    /// The `//` comment that stands behind offset `at` on the same line, without its slashes.
    pub fn comment_after(&self, at: usize) -> &'a str {
        let rest = self.text.get(at..).unwrap_or_default();
        // The comment's end bounds the search, so that a long text is not scanned twice.
        let rest = rest.trim_start_matches([' ', '\t']);
        match rest.strip_prefix("//") {
            Some(comment) => comment.split('\n').next().unwrap_or_default().trim(),
            None => "",
        }
    }

    fn run(&self, mut at: usize, class: u8) -> usize {
        let bytes = self.text.as_bytes();
        while at < bytes.len() && is(bytes[at], class) {
            at += 1;
        }
        at
    }

    fn newline(&mut self) {
        self.line = self.line.saturating_add(1);
        self.line_start = self.at;
        self.first = true;
    }

    /// Skips blanks and comments. `Err` with the start of a comment that has no end.
    fn skip_blanks(&mut self) -> Result<(), (usize, Pos)> {
        let bytes = self.text.as_bytes();
        while self.at < bytes.len() {
            let c = bytes[self.at];
            if c == b'\n' {
                self.at += 1;
                self.newline();
            } else if is(c, SPACE) {
                self.at += 1;
            } else if c == b'/' && self.byte(self.at + 1) == b'/' {
                self.skip_line();
            } else if c == b'/' && self.byte(self.at + 1) == b'*' {
                let (start, pos) = (self.at, self.pos(self.at));
                let first = self.first;
                self.at += 2;
                loop {
                    match bytes.get(self.at) {
                        None => return Err((start, pos)),
                        Some(b'*') if self.byte(self.at + 1) == b'/' => break,
                        Some(b'\n') => {
                            self.at += 1;
                            self.newline();
                        }
                        Some(_) => self.at += 1,
                    }
                }
                self.at += 2;
                self.first |= first;
            } else if c == b'#' && self.at == self.line_start {
                // A line marker of a preprocessor.
                self.skip_line();
            } else {
                break;
            }
        }
        Ok(())
    }

    /// Moves to the end of the line.
    pub fn skip_line(&mut self) {
        let rest = self.text.get(self.at..).unwrap_or_default();
        self.at += rest.find('\n').unwrap_or(rest.len());
    }

    fn pos(&self, at: usize) -> Pos {
        let col = u32::try_from(at - self.line_start).unwrap_or(u32::MAX);
        Pos { line: self.line, col: col.saturating_add(1) }
    }

    /// The next token. After the end it is [`Kind::Eof`] for ever.
    pub fn next(&mut self) -> Token<'a> {
        if let Err((start, pos)) = self.skip_blanks() {
            let kind = Kind::Bad(Bad::UnterminatedComment);
            return Token { kind, text: "/*", pos, start, end: self.at, first: false };
        }
        let start = self.at;
        let pos = self.pos(start);
        let first = std::mem::replace(&mut self.first, false);
        let c = self.byte(start);
        let (kind, from, to, end);
        if is(c, START) {
            end = self.run(start + 1, WORD);
            (from, to) = (start, end);
            // A lone `%` is the remainder operator, a lone `$` nothing; a lone `_` is the sink.
            kind = if end == start + 1 && (c == b'%' || c == b'$') { Kind::Punct(c) } else { Kind::Ident };
        } else if c == b'.' && self.is_modifier(start) {
            end = self.dot_word(start + 1);
            (kind, from, to) = (Kind::Dot, start + 1, end);
        } else if is(c, DIGIT) || (c == b'.' && is(self.byte(start + 1), DIGIT)) {
            (kind, end) = self.number(start);
            (from, to) = (start, end);
        } else if c == b'"' {
            let bytes = self.text.as_bytes();
            let mut at = start + 1;
            while at < bytes.len() && bytes[at] != b'"' && bytes[at] != b'\n' {
                at += 1;
            }
            let closed = self.byte(at) == b'"';
            kind = if closed { Kind::Str } else { Kind::Bad(Bad::UnterminatedString) };
            (from, to, end) = (start + 1, at, if closed { at + 1 } else { at });
        } else if start >= self.text.len() {
            (kind, from, to, end) = (Kind::Eof, start, start, start);
        } else if c.is_ascii_graphic() {
            (kind, from, to, end) = (Kind::Punct(c), start, start + 1, start + 1);
        } else {
            // One whole character, so that `at` stays on a boundary.
            let len = self.text.get(start..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8);
            (kind, from, to, end) = (Kind::Bad(Bad::Character), start, start + len, start + len);
        }
        self.at = end;
        Token { kind, text: self.text.get(from..to).unwrap_or_default(), pos, start, end, first }
    }

    /// A dot starts a modifier if a word follows, unless it is a number without an integer part.
    fn is_modifier(&self, dot: usize) -> bool {
        let next = self.byte(dot + 1);
        let attached = dot > 0 && is(self.byte(dot - 1), WORD);
        is(next, WORD) && (!is(next, DIGIT) || attached)
    }

    fn dot_word(&self, at: usize) -> usize {
        let mut end = self.run(at, WORD);
        while self.byte(end) == b':' && self.byte(end + 1) == b':' && is(self.byte(end + 2), WORD) {
            end = self.run(end + 2, WORD);
        }
        end
    }

    fn number(&self, start: usize) -> (Kind, usize) {
        let prefix = if self.byte(start) == b'0' { self.byte(start + 1).to_ascii_lowercase() } else { 0 };
        let (kind, end) = match prefix {
            b'x' => (Kind::Int, self.run(start + 2, HEX)),
            b'b' => {
                let mut end = start + 2;
                while matches!(self.byte(end), b'0' | b'1') {
                    end += 1;
                }
                (Kind::Int, end)
            }
            b'f' => (Kind::HexF32, self.run(start + 2, HEX)),
            b'd' => (Kind::HexF64, self.run(start + 2, HEX)),
            _ => self.decimal(start),
        };
        let digits = end - start;
        let complete = match (kind, prefix) {
            (Kind::HexF32, _) => digits == 10,
            (Kind::HexF64, _) => digits == 18,
            (Kind::Int, b'x' | b'b') => digits > 2,
            (Kind::Int, _) => self.byte(start) != b'0' || !self.text.as_bytes()[start..end].iter().any(|&d| d > b'7'),
            _ => true,
        };
        let end = if kind == Kind::Int && self.byte(end) == b'U' { end + 1 } else { end };
        let tail = self.run(end, WORD);
        if complete && tail == end { (kind, end) } else { (Kind::Bad(Bad::Number), tail) }
    }

    fn decimal(&self, start: usize) -> (Kind, usize) {
        let mut end = self.run(start, DIGIT);
        let mut kind = Kind::Int;
        if self.byte(end) == b'.' {
            kind = Kind::Float;
            end = self.run(end + 1, DIGIT);
        }
        if matches!(self.byte(end), b'e' | b'E') {
            let sign = usize::from(matches!(self.byte(end + 1), b'+' | b'-'));
            let exponent = end + 1 + sign;
            if is(self.byte(exponent), DIGIT) {
                kind = Kind::Float;
                end = self.run(exponent, DIGIT);
            }
        }
        (kind, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lex(text: &str) -> Vec<(Kind, &str)> {
        let mut lexer = Lexer::new(text);
        std::iter::from_fn(|| Some(lexer.next()))
            .take_while(|t| t.kind != Kind::Eof)
            .map(|t| (t.kind, t.text))
            .collect()
    }

    #[test]
    fn words_and_modifiers() {
        assert_eq!(
            lex("ld.global.L1::no_allocate.v4 %r1,tex.2d"),
            [
                (Kind::Ident, "ld"),
                (Kind::Dot, "global"),
                (Kind::Dot, "L1::no_allocate"),
                (Kind::Dot, "v4"),
                (Kind::Ident, "%r1"),
                (Kind::Punct(b','), ","),
                (Kind::Ident, "tex"),
                (Kind::Dot, "2d"),
            ]
        );
    }

    #[test]
    fn numbers() {
        for (text, kind) in [
            ("0", Kind::Int),
            ("017", Kind::Int),
            ("0x1fU", Kind::Int),
            ("0b101", Kind::Int),
            ("5U", Kind::Int),
            ("1.5", Kind::Float),
            ("1.", Kind::Float),
            (".5", Kind::Float),
            ("08.5", Kind::Float),
            ("1e5", Kind::Float),
            ("1.5E-3", Kind::Float),
            ("0f3F800000", Kind::HexF32),
            ("0F3F800000", Kind::HexF32),
            ("0D3ff0000000000000", Kind::HexF64),
        ] {
            assert_eq!(lex(text), [(kind, text)]);
        }
        for text in ["089", "0x", "0xg", "12ab", "0b2", "5u", "5UL", "0f3f80000", "0f3f8000000", "1e", "1.5U"] {
            assert_eq!(lex(text), [(Kind::Bad(Bad::Number), text)], "{text}");
        }
    }

    #[test]
    fn comments_strings_and_markers() {
        assert_eq!(lex("a // b\n/* c\n* / */d"), [(Kind::Ident, "a"), (Kind::Ident, "d")]);
        assert_eq!(lex("# 5 \"a.c\"\nx"), [(Kind::Ident, "x")]);
        assert_eq!(lex("\"a b\" \"c"), [(Kind::Str, "a b"), (Kind::Bad(Bad::UnterminatedString), "c")]);
        assert_eq!(lex("a /* b"), [(Kind::Ident, "a"), (Kind::Bad(Bad::UnterminatedComment), "/*")]);
        assert_eq!(lex("é"), [(Kind::Bad(Bad::Character), "é")]);
        assert_eq!(
            lex("% $ _ %%"),
            [
                (Kind::Punct(b'%'), "%"),
                (Kind::Punct(b'$'), "$"),
                (Kind::Ident, "_"),
                (Kind::Punct(b'%'), "%"),
                (Kind::Punct(b'%'), "%"),
            ]
        );
    }

    #[test]
    fn positions_and_line_starts() {
        let mut lexer = Lexer::new("a\n  b c // note \nd");
        let tokens: Vec<_> = (0..4).map(|_| lexer.next()).collect();
        let at = |i: usize| (tokens[i].pos.line, tokens[i].pos.col, tokens[i].first);
        assert_eq!([at(0), at(1), at(2), at(3)], [(1, 1, true), (2, 3, true), (2, 5, false), (3, 1, true)]);
        assert_eq!(lexer.comment_after(tokens[2].end), "note");
        assert_eq!(lexer.comment_after(tokens[0].end), "");
    }
}
