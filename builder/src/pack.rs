//! The pack: a library's texts for all architectures in one file that a program embeds.
//!
//! ```text
//! "WSPACK\0\x01"                       magic and version
//! u32 bytes, u32 raw bytes, u32 crc   of the index, little-endian
//! index                               JSON, in a zstd frame
//! frames                              zstd, one behind the other
//! ```
//!
//! The text of an architecture is its pieces in their order, and a module's those that belong to it. Pieces of one module
//! for all architectures are in one frame, since they hardly differ; what several modules have in common is in another.
//! Behind each frame of text is one with the line directives that were taken out of it:
//!
//! ```text
//! places, then of each its bytes and the directive
//! for each piece: directives, of each the lines since the one before, then of each its place
//! ```
//!
//! Numbers are LEB128. The CRC-32 of a frame is that of its content.

use std::collections::HashMap;

use serde::Serialize;

use crate::BuildError;
use crate::ptx::{self, Piece, Split};

const MAGIC: [u8; 8] = *b"WSPACK\0\x01";

#[derive(Serialize)]
struct Index<'a> {
    images: Vec<Image<'a>>,
    frames: Vec<Frame>,
}

#[derive(Serialize)]
struct Image<'a> {
    sm: u32,
    /// The kernels of each module.
    modules: &'a [Vec<String>],
    pieces: Vec<Place<'a>>,
}

/// Where a piece is.
#[derive(Serialize)]
struct Place<'a> {
    /// The frame of its text; that of its lines is the next.
    frame: usize,
    /// Its bytes among the text.
    at: usize,
    bytes: usize,
    /// Which one of the pieces of the frame it is.
    nth: usize,
    /// The modules that it belongs to, if not to all.
    #[serde(skip_serializing_if = "Option::is_none")]
    modules: Option<Vec<&'a usize>>,
}

#[derive(Serialize)]
struct Frame {
    /// Behind the index.
    at: usize,
    bytes: usize,
    raw: usize,
    crc: u32,
}

/// What goes into a frame of text and the one behind it.
#[derive(Default)]
struct Group<'a> {
    text: String,
    pieces: Vec<Vec<(usize, &'a str)>>,
}

/// A text, taken apart.
struct Cut<'a> {
    sm: u32,
    bare: String,
    directives: Vec<(usize, &'a str)>,
    split: Split,
}

/// Packs the texts of a library, given by architecture.
pub(crate) fn pack<'a>(library: &str, texts: impl Iterator<Item = (u32, &'a str)>) -> Result<Vec<u8>, BuildError> {
    let mut cuts = Vec::new();
    for (sm, text) in texts {
        let (bare, directives) = ptx::strip(text);
        let split = ptx::split(&bare).map_err(|problems| BuildError::Ptx {
            library: library.to_owned(),
            arch: format!("sm_{sm}"),
            problems,
        })?;
        cuts.push(Cut { sm, bare, directives, split });
    }
    let mut groups: Vec<Group<'a>> = vec![Group::default()];
    let mut group_of: HashMap<&[String], usize> = HashMap::new();
    let mut images = Vec::new();
    for cut in &cuts {
        let mut pieces = Vec::new();
        for piece in &cut.split.pieces {
            let module = sole_owner(piece).and_then(|module| cut.split.modules.get(module));
            let number = module.map_or(0, |kernels| {
                *group_of.entry(kernels).or_insert_with(|| {
                    groups.push(Group::default());
                    groups.len() - 1
                })
            });
            let Some(group) = groups.get_mut(number) else { continue };
            let text = cut.bare.get(piece.bytes.clone()).unwrap_or_default();
            pieces.push(Place {
                frame: 2 * number,
                at: group.text.len(),
                bytes: text.len(),
                nth: group.pieces.len(),
                modules: piece.modules.as_ref().map(|modules| modules.iter().collect()),
            });
            group.text.push_str(text);
            group.pieces.push(cut.directives_of(piece));
        }
        images.push(Image { sm: cut.sm, modules: &cut.split.modules, pieces });
    }
    let mut frames = Vec::new();
    let mut data = Vec::new();
    for group in &groups {
        for content in [group.text.as_bytes(), &group.lines()] {
            let compressed = compress(content)?;
            let crc = crc32fast::hash(content);
            frames.push(Frame { at: data.len(), bytes: compressed.len(), raw: content.len(), crc });
            data.extend(compressed);
        }
    }
    file(&Index { images, frames }, &data)
}

fn sole_owner(piece: &Piece) -> Option<usize> {
    let modules = piece.modules.as_ref()?;
    modules.first().copied().filter(|_| modules.len() == 1)
}

impl<'a> Cut<'a> {
    /// Those that stand in a piece, with the number of its lines before each.
    fn directives_of(&self, piece: &Piece) -> Vec<(usize, &'a str)> {
        let from = self.directives.partition_point(|(line, _)| *line < piece.lines.start);
        let mut to = self.directives.partition_point(|(line, _)| *line < piece.lines.end);
        if piece.bytes.end == self.bare.len() {
            to = self.directives.len();
        }
        let own = self.directives.get(from..to).unwrap_or_default();
        own.iter().map(|(line, directive)| (line - piece.lines.start, *directive)).collect()
    }
}

impl Group<'_> {
    /// The frame of the lines.
    fn lines(&self) -> Vec<u8> {
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let mut places = Vec::new();
        let mut records = Vec::new();
        for directives in &self.pieces {
            number(&mut records, directives.len());
            let mut last = 0;
            for (line, _) in directives {
                number(&mut records, line - last);
                last = *line;
            }
            for (_, directive) in directives {
                let place = *numbers.entry(directive).or_insert_with(|| {
                    places.push(*directive);
                    places.len() - 1
                });
                number(&mut records, place);
            }
        }
        let mut out = Vec::new();
        number(&mut out, places.len());
        for place in places {
            number(&mut out, place.len());
            out.extend_from_slice(place.as_bytes());
        }
        out.extend(records);
        out
    }
}

fn number(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push((value & 0x7F) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(feature = "zstd")]
fn compress(content: &[u8]) -> Result<Vec<u8>, BuildError> {
    /// Beyond it the compressor takes six times as long for a hundredth of the size.
    const LEVEL: i32 = 9;
    zstd::bulk::compress(content, LEVEL).map_err(|error| refuse(&error))
}

#[cfg(not(feature = "zstd"))]
fn compress(content: &[u8]) -> Result<Vec<u8>, BuildError> {
    Ok(ruzstd::encoding::compress_to_vec(content, ruzstd::encoding::CompressionLevel::Fastest))
}

fn refuse(error: &dyn std::fmt::Display) -> BuildError {
    BuildError::Answer { what: "packing the kernels".to_owned(), reason: error.to_string() }
}

fn file(index: &Index<'_>, data: &[u8]) -> Result<Vec<u8>, BuildError> {
    let json = serde_json::to_vec(index).map_err(|error| refuse(&error))?;
    let compressed = compress(&json)?;
    let mut out = MAGIC.to_vec();
    for value in [compressed.len(), json.len()] {
        let value = u32::try_from(value).map_err(|_| refuse(&"its index is longer than 4 GiB"))?;
        out.extend(value.to_le_bytes());
    }
    out.extend(crc32fast::hash(&json).to_le_bytes());
    out.extend(compressed);
    out.extend_from_slice(data);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_holds_what_its_index_says() {
        let body = |n: u32| format!(".visible .entry k{n}(\n)\n{{\n\t.loc\t1 {n} 1\n\tret;\n\t.loc\t1 {n} 2\n}}\n");
        let text = |sm: u32| format!(".version 7.4\n.target sm_{sm}\n{}{}", body(1), body(2));
        let texts = [(75, text(75)), (80, text(80))];
        let pack = pack("l", texts.iter().map(|(sm, text)| (*sm, text.as_str()))).unwrap();
        assert_eq!(pack[..8], MAGIC);
        let word = |at: usize| u32::from_le_bytes(pack[at..at + 4].try_into().unwrap()) as usize;
        let unpacked = |frame: &[u8], raw: usize| {
            let mut content = Vec::with_capacity(raw);
            ruzstd::decoding::FrameDecoder::new().decode_all_to_vec(frame, &mut content).unwrap();
            content
        };
        let json = unpacked(&pack[20..20 + word(8)], word(12));
        assert_eq!(crc32fast::hash(&json) as usize, word(16));
        let index: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(index["images"][1]["modules"], serde_json::json!([["k1"], ["k2"]]));
        // What is common, and each of two kernels; text and lines.
        assert_eq!(index["frames"].as_array().unwrap().len(), 6);
        let frame = |nth: usize| {
            let number = |key: &str| index["frames"][nth][key].as_u64().unwrap() as usize;
            let at = 20 + word(8) + number("at");
            let content = unpacked(&pack[at..at + number("bytes")], number("raw"));
            assert_eq!(crc32fast::hash(&content) as usize, number("crc"));
            content
        };
        assert_eq!(String::from_utf8(frame(0)).unwrap(), ".version 7.4\n.target sm_75\n.version 7.4\n.target sm_80\n");
        let bare = body(2).replace("\t.loc\t1 2 1\n", "").replace("\t.loc\t1 2 2\n", "");
        assert_eq!(String::from_utf8(frame(4)).unwrap(), bare.repeat(2));
        // Two places, and in each of the two pieces two directives, behind three lines and one more.
        let records = [2, 3, 1, 0, 1].repeat(2);
        assert_eq!(frame(5), [&[2, 11][..], b"\t.loc\t1 2 1", &[11], b"\t.loc\t1 2 2", &records].concat());
    }

    #[test]
    fn numbers_have_as_many_bytes_as_they_need() {
        let of = |value| {
            let mut out = Vec::new();
            number(&mut out, value);
            out
        };
        assert_eq!((of(0), of(127), of(128), of(300)), (vec![0], vec![127], vec![128, 1], vec![172, 2]));
    }
}
