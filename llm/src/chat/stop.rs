//! Texts that end a reply.

use super::ChatError;

/// Looks for stop texts in text that comes in pieces: what may be the beginning of one is held back until it is not.
#[derive(Clone, Debug, Default)]
pub struct Stops {
    texts: Vec<String>,
    held: String,
    found: bool,
}

impl Stops {
    /// Ends a text before the first of these. None: never.
    pub fn new(texts: impl IntoIterator<Item = String>) -> Result<Stops, ChatError> {
        let texts: Vec<String> = texts.into_iter().collect();
        if texts.iter().any(String::is_empty) {
            return Err(ChatError::EmptyStop);
        }
        Ok(Stops { texts, ..Stops::default() })
    }

    /// Takes the next piece and gives what can be shown now. After a stop text was found, nothing.
    pub fn push(&mut self, piece: &str) -> String {
        if self.found {
            return String::new();
        }
        self.held.push_str(piece);
        let first = self.texts.iter().filter_map(|t| self.held.find(t.as_str())).min();
        if let Some(at) = first {
            self.found = true;
            self.held.truncate(at);
            return std::mem::take(&mut self.held);
        }
        let begun = |t: &String| {
            let longest = t.len().min(self.held.len() + 1);
            (1..longest).rev().find(|&n| t.is_char_boundary(n) && self.held.ends_with(&t[..n])).unwrap_or(0)
        };
        let keep = self.texts.iter().map(begun).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - keep);
        std::mem::replace(&mut self.held, rest)
    }

    /// The text up to the first stop text.
    pub fn cut<'t>(&self, text: &'t str) -> &'t str {
        let first = self.texts.iter().filter_map(|t| text.find(t.as_str())).min();
        &text[..first.unwrap_or(text.len())]
    }

    /// Whether a stop text was found.
    pub fn found(&self) -> bool {
        self.found
    }

    /// What was held back, when no more pieces come.
    pub fn finish(self) -> String {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(texts: &[&str], pieces: &[&str]) -> (Vec<String>, bool) {
        let mut stops = Stops::new(texts.iter().map(|t| (*t).to_owned())).unwrap();
        let mut out: Vec<String> = pieces.iter().map(|p| stops.push(p)).collect();
        let found = stops.found();
        out.push(stops.finish());
        (out, found)
    }

    #[test]
    fn text_ends_before_the_first_stop_however_it_is_cut() {
        let text = "one\n\ntwo END three\n";
        for at in (0..text.len()).filter(|&n| text.is_char_boundary(n)) {
            for end in (at..text.len()).filter(|&n| text.is_char_boundary(n)) {
                let (out, found) = cut(&["END", "three"], &[&text[..at], &text[at..end], &text[end..]]);
                assert_eq!((out.concat().as_str(), found), ("one\n\ntwo ", true), "{at} {end}");
            }
        }
        let (out, found) = cut(&["END"], &["EN", "ENE", "N", "d EN"]);
        assert_eq!((out.join("|").as_str(), found), ("|ENEN||ENd |EN", false));
    }

    #[test]
    fn what_cannot_be_a_stop_is_shown_at_once() {
        assert_eq!(cut(&[], &["a", "b"]), (vec!["a".into(), "b".into(), String::new()], false));
        assert_eq!(cut(&["é!"], &["é", "?"]).0, ["", "é?", ""]);
        assert!(Stops::new([String::new()]).is_err());
    }
}
