//! The modifiers of an instruction, ticked off one by one: what nobody understood is an error.

use std::cell::Cell;

use crate::exec::soft::Round;
use crate::ptx::ast::{Instruction, Type};

/// The words behind an opcode.
pub(super) struct Mods<'a> {
    words: &'a [String],
    used: Cell<u64>,
}

impl<'a> Mods<'a> {
    pub(super) fn new(instruction: &'a Instruction) -> Mods<'a> {
        Mods { words: &instruction.modifiers, used: Cell::new(0) }
    }

    fn tick(&self, i: usize) {
        self.used.set(self.used.get() | 1 << (i & 63));
    }

    fn open(&self) -> impl Iterator<Item = (usize, &'a str)> + '_ {
        let words = self.words;
        words.iter().enumerate().filter(|(i, _)| self.used.get() >> (i & 63) & 1 == 0).map(|(i, w)| (i, w.as_str()))
    }

    /// Whether the word is there.
    pub(super) fn take(&self, word: &str) -> bool {
        let at = self.open().find(|(_, w)| *w == word).map(|(i, _)| i);
        at.inspect(|&i| self.tick(i)).is_some()
    }

    /// The first of the words that is there, without ticking it off.
    pub(super) fn peek(&self, words: &[&'static str]) -> Option<&'static str> {
        words.iter().copied().find(|w| self.open().any(|(_, o)| o == *w))
    }

    /// The first of the words that is there.
    pub(super) fn any(&self, words: &[&'static str]) -> Option<&'static str> {
        words.iter().copied().find(|w| self.take(w))
    }

    /// The first word that nobody has taken.
    pub(super) fn first(&self) -> Option<&'a str> {
        let (i, word) = self.open().next()?;
        self.tick(i);
        Some(word)
    }

    /// Takes all words for which the predicate holds; whether there were any.
    pub(super) fn skip(&self, f: impl Fn(&str) -> bool) -> bool {
        let found: Vec<usize> = self.open().filter(|(_, w)| f(w)).map(|(i, _)| i).collect();
        found.iter().for_each(|&i| self.tick(i));
        !found.is_empty()
    }

    /// The first word that names a type.
    pub(super) fn ty(&self) -> Result<Type, String> {
        let found = self.open().find_map(|(i, w)| Type::named(w).map(|t| (i, t)));
        match found {
            Some((i, ty)) => {
                self.tick(i);
                Ok(ty)
            }
            None => Err("a type is missing, or is not supported".to_string()),
        }
    }

    /// A rounding modifier `.rn .rz .rm .rp`.
    pub(super) fn round(&self) -> Option<Round> {
        Some(match self.any(&["rn", "rz", "rm", "rp"])? {
            "rn" => Round::Nearest,
            "rz" => Round::Zero,
            "rm" => Round::Down,
            _ => Round::Up,
        })
    }

    /// An error if a word is left.
    pub(super) fn finish(&self) -> Result<(), String> {
        match self.open().next() {
            None if self.words.len() <= 64 => Ok(()),
            None => Err("too many modifiers".to_string()),
            Some((_, word)) => Err(format!("modifier `.{word}` is not supported")),
        }
    }
}

/// Whether registers of the type have 64 bits.
pub(super) fn wide(ty: Type) -> bool {
    ty.bits() == 64
}
