//! SentencePiece's BPE: characters are joined to the neighbours with which they make the token of highest score.

use super::TokenizerError;
use super::kind::Kind;
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};

/// Stands for a space in the vocabulary.
pub(super) const SPACE: char = '\u{2581}';

/// What `tokenizer.ggml.model = llama` adds to the vocabulary.
#[derive(Debug)]
pub(super) struct Spm {
    scores: Vec<f32>,
    /// Tokens for the bytes of characters that are no tokens.
    byte_ids: [Option<u32>; 256],
    /// Whether a space is put in front of a text, and of what follows a special token.
    pub(super) space_prefix: bool,
}

/// Two neighbours that can be joined. Ordered by score, the leftmost first among equals.
#[derive(PartialEq)]
struct Candidate {
    score: f32,
    left: usize,
    right: usize,
    /// Length of both in bytes when they were compared: symbols only grow, so any other length means stale.
    length: usize,
}

impl Eq for Candidate {}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |c: &Candidate| (Reverse(c.left), Reverse(c.right), c.length);
        self.score.total_cmp(&other.score).then_with(|| key(self).cmp(&key(other)))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A piece of the text: where it starts and how long it is, 0 once it belongs to its left neighbour.
struct Symbol {
    start: usize,
    length: usize,
    previous: Option<usize>,
    next: Option<usize>,
}

/// Whether text may become this token by itself: control tokens are only ever asked for.
fn from_text(kind: Kind) -> bool {
    matches!(kind, Kind::Normal | Kind::UserDefined | Kind::Unused)
}

impl Spm {
    pub(super) fn new(
        scores: Vec<f32>,
        ids: &HashMap<String, u32>,
        kinds: &[Kind],
        space_prefix: bool,
    ) -> Result<Self, TokenizerError> {
        if scores.len() != kinds.len() {
            let (expected, actual) = (kinds.len(), scores.len());
            return Err(TokenizerError::Length { key: "tokenizer.ggml.scores", expected, actual });
        }
        if let Some(index) = scores.iter().position(|s| s.is_nan()) {
            return Err(TokenizerError::Score { index });
        }
        let byte_ids = byte_ids(ids);
        // Zero has two signs, which are one score.
        let scores = scores.into_iter().map(|s| s + 0.0).collect();
        Ok(Spm { scores, byte_ids, space_prefix })
    }

    /// The tokens of a text without special tokens.
    pub(super) fn encode(
        &self,
        text: &str,
        prefix: bool,
        ids: &HashMap<String, u32>,
        kinds: &[Kind],
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let mut escaped = String::with_capacity(text.len() + SPACE.len_utf8());
        if prefix {
            escaped.push(SPACE);
        }
        escaped.extend(text.chars().map(|c| if c == ' ' { SPACE } else { c }));
        let text = escaped.as_str();
        let token = |start: usize, length: usize| {
            let id = *ids.get(text.get(start..start + length)?)?;
            from_text(kinds[id as usize]).then_some(id)
        };

        let mut symbols: Vec<Symbol> = text
            .char_indices()
            .enumerate()
            .map(|(i, (start, c))| Symbol {
                start,
                length: c.len_utf8(),
                previous: i.checked_sub(1),
                next: (start + c.len_utf8() < text.len()).then_some(i + 1),
            })
            .collect();
        let candidate = |symbols: &[Symbol], left: Option<usize>, right: Option<usize>| {
            let (left, right) = (left?, right?);
            let length = symbols[left].length + symbols[right].length;
            let score = self.scores[token(symbols[left].start, length)? as usize];
            Some(Candidate { score, left, right, length })
        };
        let mut queue: BinaryHeap<Candidate> =
            (1..symbols.len()).filter_map(|i| candidate(&symbols, Some(i - 1), Some(i))).collect();
        while let Some(Candidate { left, right, length, .. }) = queue.pop() {
            let (a, b) = (symbols[left].length, symbols[right].length);
            if a == 0 || b == 0 || a + b != length {
                continue;
            }
            let next = symbols[right].next;
            symbols[right].length = 0;
            symbols[left].length = length;
            symbols[left].next = next;
            if let Some(next) = next {
                symbols[next].previous = Some(left);
            }
            queue.extend(candidate(&symbols, symbols[left].previous, Some(left)));
            queue.extend(candidate(&symbols, Some(left), next));
        }
        for symbol in symbols.iter().filter(|s| s.length > 0) {
            if let Some(id) = token(symbol.start, symbol.length) {
                out.push(id);
                continue;
            }
            for &byte in &text.as_bytes()[symbol.start..symbol.start + symbol.length] {
                out.push(self.byte_ids[usize::from(byte)].ok_or(TokenizerError::Byte { byte })?);
            }
        }
        Ok(())
    }
}

/// The tokens for bytes.
pub(super) fn byte_ids(ids: &HashMap<String, u32>) -> [Option<u32>; 256] {
    std::array::from_fn(|b| ids.get(&format!("<0x{b:02X}>")).copied())
}

/// The tokens of the characters of a text, or of the bytes of those that are none.
pub(super) fn characters(
    text: &str,
    prefix: bool,
    ids: &HashMap<String, u32>,
    byte_ids: &[Option<u32>; 256],
) -> Result<Vec<u32>, TokenizerError> {
    let mut out = Vec::with_capacity(text.len() + 1);
    let spaced = text.chars().map(|c| if c == ' ' { SPACE } else { c });
    for c in prefix.then_some(SPACE).into_iter().chain(spaced) {
        let mut buffer = [0; 4];
        let c: &str = c.encode_utf8(&mut buffer);
        match ids.get(c) {
            Some(&id) => out.push(id),
            None => {
                for byte in c.bytes() {
                    out.push(byte_ids[usize::from(byte)].ok_or(TokenizerError::Byte { byte })?);
                }
            }
        }
    }
    Ok(out)
}

/// The byte that a token such as `<0x0A>` stands for.
pub(super) fn byte(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_hexdigit()))
        .then(|| u8::from_str_radix(digits, 16).ok())
        .flatten()
}
