//! Tokens to text, one by one.

use super::Tokenizer;

/// Turns tokens into text as they arrive; a character that is spread over several tokens appears when
/// it is complete.
#[derive(Clone, Debug)]
pub struct TextStream<'a> {
    tokenizer: &'a Tokenizer,
    pending: Vec<u8>,
    /// The next token that shows starts the text: the space that encoding put in front of it is taken away.
    strip: bool,
}

impl<'a> TextStream<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer, strip: bool) -> Self {
        TextStream { tokenizer, pending: Vec::new(), strip }
    }

    /// The text that this token completes, possibly none.
    pub fn push(&mut self, id: u32) -> String {
        let mut bytes = self.tokenizer.bytes(id);
        if self.strip && !bytes.is_empty() {
            self.strip = false;
            if bytes[0] == b' ' {
                bytes.remove(0);
            }
        }
        self.pending.append(&mut bytes);
        let mut text = String::new();
        let mut done = 0;
        loop {
            match std::str::from_utf8(&self.pending[done..]) {
                Ok(valid) => {
                    text.push_str(valid);
                    done = self.pending.len();
                    break;
                }
                Err(e) => {
                    let (valid, rest) = self.pending[done..].split_at(e.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    done += valid.len();
                    // No error length: an unfinished character, to be continued by the next token.
                    let Some(bad) = e.error_len() else { break };
                    text.push(char::REPLACEMENT_CHARACTER);
                    done += bad.min(rest.len());
                }
            }
        }
        self.pending.drain(..done);
        text
    }

    /// What is left at the end: an unfinished character shows as U+FFFD.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}
