//! Packs of kernels as the builder writes them (`pack.rs` there has the layout): which kernel is in which module, and
//! texts, unpacked when they are asked for.

use crate::Error;
use ruzstd::decoding::FrameDecoder;
use serde::Deserialize;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::OnceLock;

const MAGIC: [u8; 8] = *b"WSPACK\0\x01";
/// Bytes before the index.
const HEAD: usize = 20;
/// What one frame may become. A kernel's text has some hundred kilobytes.
const LARGEST: usize = 1 << 30;

/// What is in a pack.
#[derive(Debug)]
pub struct Pack {
    library: &'static str,
    index: Index,
    data: &'static [u8],
    /// The frame that several modules have in common, unpacked.
    common: OnceLock<String>,
}

#[derive(Debug, Deserialize)]
struct Index {
    images: Vec<Image>,
    frames: Vec<Frame>,
}

/// The code for an architecture.
#[derive(Debug, Deserialize)]
pub struct Image {
    pub sm: u32,
    /// The kernels of each module.
    pub modules: Vec<Vec<String>>,
    pieces: Vec<Piece>,
}

#[derive(Debug, Deserialize)]
struct Piece {
    frame: usize,
    at: usize,
    bytes: usize,
    nth: usize,
    modules: Option<Vec<usize>>,
}

#[derive(Debug, Deserialize)]
struct Frame {
    at: usize,
    bytes: usize,
    raw: usize,
    crc: u32,
}

/// Line directives of a frame.
struct Lines {
    places: Vec<String>,
    /// By piece: how many of its lines stand before each, and which place it is.
    pieces: Vec<Vec<(usize, usize)>>,
}

impl Pack {
    /// Reads the index.
    pub fn read(library: &'static str, pack: &'static [u8]) -> Result<Pack, Error> {
        let damaged = |problem: &str| refuse(library, problem);
        let word = |at: usize| Some(u32::from_le_bytes(pack.get(at..at + 4)?.try_into().ok()?));
        if pack.get(..8) != Some(&MAGIC) {
            return Err(damaged(
                "it does not begin as one: another version of the builder wrote it, or something else",
            ));
        }
        let (Some(bytes), Some(raw), Some(crc)) = (word(8), word(12), word(16)) else {
            return Err(damaged("it ends within its head"));
        };
        let (bytes, raw) = (bytes as usize, raw as usize);
        let end = HEAD.saturating_add(bytes);
        let (Some(index), Some(data)) = (pack.get(HEAD..end), pack.get(end..)) else {
            return Err(damaged("it ends within its index"));
        };
        let json = unpack(index, raw, crc).map_err(|problem| damaged(&format!("its index {problem}")))?;
        let index = serde_json::from_slice(&json).map_err(|e| damaged(&format!("its index does not parse: {e}")))?;
        Ok(Pack { library, index, data, common: OnceLock::new() })
    }

    /// By rising architecture.
    pub fn images(&self) -> &[Image] {
        &self.index.images
    }

    /// The text of a module, or of all of them, with the lines of its source or without.
    pub fn text(&self, image: &Image, module: Option<usize>, with_lines: bool) -> Result<String, Error> {
        let belongs = |piece: &&Piece| match (&piece.modules, module) {
            (Some(modules), Some(module)) => modules.contains(&module),
            _ => true,
        };
        let mut out = String::new();
        let mut frames: HashMap<usize, String> = HashMap::new();
        let mut lines: HashMap<usize, Lines> = HashMap::new();
        for piece in image.pieces.iter().filter(belongs) {
            let frame = match (piece.frame, frames.entry(piece.frame)) {
                (0, _) => self.common()?,
                (_, Entry::Occupied(frame)) => frame.into_mut().as_str(),
                (number, Entry::Vacant(place)) => place.insert(self.frame_text(number)?).as_str(),
            };
            let text = frame.get(piece.at..piece.at.saturating_add(piece.bytes));
            let text = text.ok_or_else(|| refuse(self.library, "a piece lies beyond its frame"))?;
            if !with_lines {
                out.push_str(text);
                continue;
            }
            let lines = match lines.entry(piece.frame) {
                Entry::Occupied(lines) => lines.into_mut(),
                Entry::Vacant(place) => place.insert(self.lines(piece.frame)?),
            };
            let merged = lines.merge(&mut out, text, piece.nth);
            merged.ok_or_else(|| refuse(self.library, "its lines are not those of its text"))?;
        }
        Ok(out)
    }

    fn common(&self) -> Result<&str, Error> {
        match self.common.get() {
            Some(text) => Ok(text),
            None => {
                let text = self.frame_text(0)?;
                Ok(self.common.get_or_init(|| text))
            }
        }
    }

    fn frame(&self, number: usize) -> Result<Vec<u8>, Error> {
        let damaged = |problem: &str| refuse(self.library, &format!("its frame {number} {problem}"));
        let frame = self.index.frames.get(number).ok_or_else(|| damaged("is not there"))?;
        let bytes = self.data.get(frame.at..frame.at.saturating_add(frame.bytes));
        unpack(bytes.ok_or_else(|| damaged("lies beyond its end"))?, frame.raw, frame.crc)
            .map_err(|problem| damaged(&problem))
    }

    fn frame_text(&self, number: usize) -> Result<String, Error> {
        let text = String::from_utf8(self.frame(number)?);
        text.map_err(|_| refuse(self.library, &format!("its frame {number} is no text")))
    }

    fn lines(&self, frame: usize) -> Result<Lines, Error> {
        let bytes = self.frame(frame.saturating_add(1))?;
        Lines::read(&bytes).ok_or_else(|| refuse(self.library, "its lines cannot be read"))
    }
}

fn refuse(library: &str, problem: &str) -> Error {
    let problem = format!("its pack is damaged: {problem}. Build the crate that embeds it again");
    Error::Image { library: library.into(), problem }
}

fn unpack(frame: &[u8], raw: usize, crc: u32) -> Result<Vec<u8>, String> {
    if raw > LARGEST {
        return Err(format!("claims {raw} bytes"));
    }
    let mut content = Vec::with_capacity(raw);
    FrameDecoder::new()
        .decode_all_to_vec(frame, &mut content)
        .map_err(|error| format!("cannot be decompressed: {error}"))?;
    if content.len() != raw || crc32fast::hash(&content) != crc {
        return Err("does not have the content that was written".to_owned());
    }
    Ok(content)
}

impl Lines {
    fn read(bytes: &[u8]) -> Option<Lines> {
        let mut rest = bytes;
        let mut places = Vec::new();
        for _ in 0..number(&mut rest)? {
            let bytes = number(&mut rest)?;
            let (place, behind) = rest.split_at_checked(bytes)?;
            places.push(std::str::from_utf8(place).ok()?.to_owned());
            rest = behind;
        }
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            let count = number(&mut rest)?;
            // Each takes two bytes at least.
            if count > rest.len() {
                return None;
            }
            let mut line = 0usize;
            let mut directives = Vec::with_capacity(count);
            for _ in 0..count {
                line = line.checked_add(number(&mut rest)?)?;
                directives.push((line, 0));
            }
            for (_, place) in &mut directives {
                *place = number(&mut rest)?;
            }
            pieces.push(directives);
        }
        Some(Lines { places, pieces })
    }

    /// Appends the text of a piece with its directives between its lines.
    fn merge(&self, out: &mut String, text: &str, nth: usize) -> Option<()> {
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

/// LEB128.
fn number(bytes: &mut &[u8]) -> Option<usize> {
    let mut value = 0usize;
    for shift in (0..usize::BITS).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= usize::from(byte & 0x7F).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests;
