//! Writing.

use super::{Cubins, Frame, Image, Index, MAGIC, PackError, Part, Piece, Place, numbers, write_number};
use crate::map_in_threads;
use std::collections::HashMap;

/// What goes into a frame of text and the one behind it.
#[derive(Default)]
struct Group<'a> {
    text: String,
    pieces: Vec<Vec<(usize, &'a str)>>,
}

/// The text of an architecture, taken apart.
pub struct Text<'a> {
    /// Architecture: 80 for `sm_80`.
    pub sm: u32,
    /// The text without its line directives.
    pub bare: String,
    /// The line directives, each with the number of lines of `bare` before it.
    pub directives: Vec<(usize, &'a str)>,
    /// The kernels of each module.
    pub modules: Vec<Vec<String>>,
    /// All of `bare`, in its order.
    pub pieces: Vec<Piece>,
}

/// Machine code that was made of the modules of a text.
pub struct Machine {
    /// What it is for, such as `sm_90a`.
    pub target: String,
    /// The architecture of the text.
    pub sm: u32,
    /// The cubin of each module, in the order of [`Text::modules`].
    pub cubins: Vec<Vec<u8>>,
}

/// How long packing may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// A second for ten megabytes of text, or less: someone waits for an edit.
    Fast,
    /// Five times as long for a tenth less, where the compressor has such levels: what is shipped.
    Small,
}

/// Packs the texts of a library, by rising architecture, and the machine code that was made of them.
///
/// # Errors
///
/// If the compressor fails, or the index is larger than the format can say.
pub fn write(texts: &[Text<'_>], machine: &[Machine], effort: Effort) -> Result<Vec<u8>, PackError> {
    let mut groups: Vec<Group<'_>> = vec![Group::default()];
    let mut group_of: HashMap<&[String], usize> = HashMap::new();
    let mut images = Vec::new();
    for cut in texts {
        let mut pieces = Vec::new();
        for piece in &cut.pieces {
            let module = sole_owner(piece).and_then(|module| cut.modules.get(module));
            let number = module.map_or(0, |kernels| {
                *group_of.entry(kernels).or_insert_with(|| {
                    groups.push(Group::default());
                    groups.len() - 1
                })
            });
            let Some(group) = groups.get_mut(number) else { continue };
            let text = cut.bare.get(piece.bytes.clone()).unwrap_or_default();
            pieces.push(Place {
                frame: number,
                at: group.text.len(),
                bytes: text.len(),
                nth: group.pieces.len(),
                modules: piece.modules.clone(),
            });
            group.text.push_str(text);
            group.pieces.push(cut.directives_of(piece));
        }
        images.push(Image { sm: cut.sm, modules: cut.modules.clone(), pieces });
    }
    let mut frames = Frames { list: Vec::new(), data: Vec::new(), effort };
    frames.push_texts(&groups.iter().map(|group| group.text.as_str()).collect::<Vec<_>>())?;
    let lines = frames.push_parts(map_in_threads(&groups, Group::lines))?;
    let mut cubins = Vec::new();
    for Machine { target, sm, cubins: code } in machine {
        let of = texts.iter().find(|text| text.sm == *sm);
        if of.is_none_or(|text| text.modules.len() != code.len()) {
            return Err(refuse(&format!("machine code for {target} does not fit the modules for sm_{sm}")));
        }
        let first = frames.push_all(&code.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
        cubins.push(Cubins { target: target.clone(), sm: *sm, frames: (first..first + code.len()).collect() });
    }
    file(&Index { images, frames: frames.list, lines, cubins }, &frames.data, effort)
}

/// The frames so far, one behind the other.
struct Frames {
    list: Vec<Frame>,
    data: Vec<u8>,
    effort: Effort,
}

/// Bytes of a frame of several parts, about.
const TOGETHER: usize = 8 << 20;

impl Frames {
    /// Adds frames of several parts each; where the parts are.
    fn push_parts(&mut self, parts: Vec<Vec<u8>>) -> Result<Vec<Part>, PackError> {
        let (mut places, mut all) = (Vec::new(), vec![Vec::new()]);
        for part in parts {
            if all.last().is_some_and(|last| !last.is_empty() && last.len() + part.len() > TOGETHER) {
                all.push(Vec::new());
            }
            let frame = self.list.len() + all.len() - 1;
            let Some(last) = all.last_mut() else { continue };
            places.push(Part { frame, at: last.len(), bytes: part.len() });
            last.extend(part);
        }
        self.push_all(&all.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
        Ok(places)
    }

    /// Adds a frame for each of these texts.
    fn push_texts(&mut self, texts: &[&str]) -> Result<(), PackError> {
        let relative = map_in_threads(texts, |text| numbers::relative(text));
        let contents: Vec<&[u8]> =
            texts.iter().zip(&relative).map(|(text, form)| form.as_deref().unwrap_or(text.as_bytes())).collect();
        let first = self.push_all(&contents)?;
        for (frame, form) in self.list.iter_mut().skip(first).zip(&relative) {
            frame.relative = form.is_some();
        }
        Ok(())
    }

    /// Adds a frame for each of these contents; the number of the first.
    fn push_all(&mut self, contents: &[&[u8]]) -> Result<usize, PackError> {
        let first = self.list.len();
        let effort = self.effort;
        for (content, compressed) in contents.iter().zip(map_in_threads(contents, |content| compress(content, effort)))
        {
            let compressed = compressed?;
            let crc = crc32fast::hash(content);
            let (at, bytes, raw) = (self.data.len(), compressed.len(), content.len());
            self.list.push(Frame { at, bytes, raw, crc, relative: false });
            self.data.extend(compressed);
        }
        Ok(first)
    }
}

fn sole_owner(piece: &Piece) -> Option<usize> {
    let modules = piece.modules.as_ref()?;
    modules.first().copied().filter(|_| modules.len() == 1)
}

impl<'a> Text<'a> {
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
            write_number(&mut records, directives.len());
            let mut last = 0;
            for (line, _) in directives {
                write_number(&mut records, line - last);
                last = *line;
            }
            for (_, directive) in directives {
                let place = *numbers.entry(directive).or_insert_with(|| {
                    places.push(*directive);
                    places.len() - 1
                });
                write_number(&mut records, place);
            }
        }
        let mut out = Vec::new();
        write_number(&mut out, places.len());
        for place in places {
            write_number(&mut out, place.len());
            out.extend_from_slice(place.as_bytes());
        }
        out.extend(records);
        out
    }
}

#[cfg(feature = "zstd")]
fn compress(content: &[u8], effort: Effort) -> Result<Vec<u8>, PackError> {
    // Those between take longer than the first for a hundredth of the size.
    let level = match effort {
        Effort::Fast => 9,
        Effort::Small => 17,
    };
    zstd::bulk::compress(content, level).map_err(|error| refuse(&error))
}

#[cfg(not(feature = "zstd"))]
fn compress(content: &[u8], _: Effort) -> Result<Vec<u8>, PackError> {
    Ok(ruzstd::encoding::compress_to_vec(content, ruzstd::encoding::CompressionLevel::Fastest))
}

fn refuse(error: &dyn std::fmt::Display) -> PackError {
    PackError::Write(error.to_string())
}

fn file(index: &Index, data: &[u8], effort: Effort) -> Result<Vec<u8>, PackError> {
    let json = serde_json::to_vec(index).map_err(|error| refuse(&error))?;
    let compressed = compress(&json, effort)?;
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
