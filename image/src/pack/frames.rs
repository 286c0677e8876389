//! Writing frames: what an earlier pack has of the same content is taken over while someone iterates.

use super::read::unpacked_index;
use super::{Effort, Frame, PackError, Part, numbers};
use crate::map_in_threads;
use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::Hasher;

use serde::{Deserialize, Serialize};

/// By what a later build knows a frame again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Memo {
    /// Of what the frame was made from.
    source: u64,
    /// CRC-32 of the frame itself.
    crc: u32,
}

#[cfg(test)]
impl Memo {
    /// For other bytes.
    pub(super) fn of(self, bytes: &[u8]) -> Memo {
        Memo { crc: crc32fast::hash(bytes), ..self }
    }
}

/// The frames so far, one behind the other.
pub(super) struct Frames<'a> {
    pub(super) list: Vec<Frame>,
    pub(super) data: Vec<u8>,
    effort: Effort,
    /// Those of an earlier pack, by their sources.
    earlier: HashMap<u64, (Frame, &'a [u8])>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Form {
    AsIs,
    /// Registers and labels counted, where the text allows it.
    Relative,
}

/// A frame, which is not placed yet, and its bytes.
type Made<'a> = (Frame, Cow<'a, [u8]>);

impl<'a> Frames<'a> {
    /// Frames of `earlier`, if that is a pack, need not be made again.
    pub(super) fn new(effort: Effort, earlier: &'a [u8]) -> Frames<'a> {
        let mut known = HashMap::new();
        if let (Effort::Fast, Ok((index, data))) = (effort, unpacked_index(earlier)) {
            for frame in index.frames {
                let bytes = data.get(frame.at..frame.at.saturating_add(frame.bytes));
                if let (Some(memo), Some(bytes)) = (frame.memo, bytes) {
                    known.insert(memo.source, (frame, bytes));
                }
            }
        }
        Frames { list: Vec::new(), data: Vec::new(), effort, earlier: known }
    }

    /// Bytes of a frame of several parts, about: larger ones are smaller in all, and made again more often.
    fn together(&self) -> usize {
        match self.effort {
            Effort::Fast => 1 << 20,
            Effort::Small => 8 << 20,
        }
    }

    /// Adds frames of several parts each; where the parts are.
    pub(super) fn push_parts(&mut self, parts: Vec<Vec<u8>>) -> Result<Vec<Part>, PackError> {
        let (mut places, mut all) = (Vec::new(), vec![Vec::new()]);
        for part in parts {
            if all.last().is_some_and(|last| !last.is_empty() && last.len() + part.len() > self.together()) {
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

    /// Bytes of a frame of several texts, which is unpacked for each of them.
    fn texts_together(&self) -> usize {
        match self.effort {
            Effort::Fast => 0,
            Effort::Small => 4 << 20,
        }
    }

    /// Adds texts, of which the first is that of all modules, and the others have names; where they are.
    pub(super) fn push_texts(&mut self, texts: &[(&str, &str)]) -> Result<Vec<Part>, PackError> {
        let mut by_name: Vec<usize> = (1..texts.len()).collect();
        by_name.sort_by_key(|&i| texts.get(i).map(|(name, _)| *name));
        let bytes = |i: usize| texts.get(i).map_or(0, |(_, text)| text.len());
        let mut together = vec![vec![0]];
        let mut room = 0;
        for i in by_name {
            match together.last_mut() {
                Some(last) if bytes(i) <= room => last.push(i),
                _ => {
                    together.push(vec![i]);
                    room = self.texts_together().max(bytes(i));
                }
            }
            room -= bytes(i);
        }
        let sources: Vec<Vec<&[u8]>> = together
            .iter()
            .map(|own| own.iter().filter_map(|&i| texts.get(i)).map(|(_, text)| text.as_bytes()).collect())
            .collect();
        let mut places = vec![Part { frame: 0, at: 0, bytes: 0 }; texts.len()];
        let first = self.list.len();
        for (frame, (own, lengths)) in together.iter().zip(self.push(&sources, Form::Relative)?).enumerate() {
            let mut at = 0;
            for (&i, bytes) in own.iter().zip(lengths) {
                if let Some(place) = places.get_mut(i) {
                    *place = Part { frame: first + frame, at, bytes };
                }
                at += bytes;
            }
        }
        Ok(places)
    }

    /// Adds a frame for each of these contents; the number of the first.
    pub(super) fn push_all(&mut self, contents: &[&[u8]]) -> Result<usize, PackError> {
        let first = self.list.len();
        self.push(&contents.iter().map(|&content| vec![content]).collect::<Vec<_>>(), Form::AsIs)?;
        Ok(first)
    }

    /// Adds a frame for each of these lists of contents; how long those in it are.
    fn push(&mut self, sources: &[Vec<&[u8]>], form: Form) -> Result<Vec<Vec<usize>>, PackError> {
        let made: Vec<_> = map_in_threads(sources, |sources| self.frame(sources, form));
        let mut all = Vec::new();
        for made in made {
            let ((frame, bytes), lengths) = made?;
            self.list.push(Frame { at: self.data.len(), ..frame });
            self.data.extend_from_slice(&bytes);
            all.push(lengths);
        }
        Ok(all)
    }

    fn frame(&self, sources: &[&[u8]], form: Form) -> Result<(Made<'a>, Vec<usize>), PackError> {
        // One that is taken over has one source.
        let sum = match (self.effort, sources) {
            (Effort::Fast, [source]) => Some(sum(source, form)),
            _ => None,
        };
        if let Some((frame, bytes)) = sum.and_then(|sum| self.earlier.get(&sum))
            && frame.memo.is_some_and(|memo| memo.crc == crc32fast::hash(bytes))
        {
            return Ok(((frame.clone(), Cow::Borrowed(bytes)), vec![frame.raw]));
        }
        let relative = |source: &&[u8]| std::str::from_utf8(source).ok().and_then(numbers::relative);
        let counted: Option<Vec<Vec<u8>>> = match form {
            Form::Relative => sources.iter().map(relative).collect(),
            Form::AsIs => None,
        };
        let (content, lengths): (Cow<'_, [u8]>, Vec<usize>) = match (&counted, sources) {
            (Some(counted), _) => (counted.concat().into(), counted.iter().map(Vec::len).collect()),
            (None, [source]) => ((*source).into(), vec![source.len()]),
            (None, _) => (sources.concat().into(), sources.iter().map(|source| source.len()).collect()),
        };
        let bytes = compress(&content, self.effort)?;
        let frame = Frame {
            at: 0,
            bytes: bytes.len(),
            raw: content.len(),
            crc: crc32fast::hash(&content),
            relative: counted.is_some(),
            memo: sum.map(|source| Memo { source, crc: crc32fast::hash(&bytes) }),
        };
        Ok(((frame, Cow::Owned(bytes)), lengths))
    }
}

/// The same for the same source and form, by one release of the standard library; another makes all frames anew.
fn sum(source: &[u8], form: Form) -> u64 {
    let mut hasher = std::collections::hash_map::DefaultHasher::new();
    hasher.write_u8(form as u8);
    hasher.write(source);
    hasher.finish()
}

#[cfg(feature = "zstd")]
pub(super) fn compress(content: &[u8], effort: Effort) -> Result<Vec<u8>, PackError> {
    // Those between take longer than the first for a hundredth of the size.
    let level = match effort {
        Effort::Fast => 9,
        Effort::Small => 17,
    };
    zstd::bulk::compress(content, level).map_err(|error| super::refuse(&error))
}

#[cfg(not(feature = "zstd"))]
pub(super) fn compress(content: &[u8], _: Effort) -> Result<Vec<u8>, PackError> {
    Ok(ruzstd::encoding::compress_to_vec(content, ruzstd::encoding::CompressionLevel::Fastest))
}
