//! Reading: texts are unpacked when they are asked for.

use super::lines::Lines;
use super::{Cubins, Image, Index, MAGIC, PackError, Part, Place, numbers};
use ruzstd::decoding::FrameDecoder;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::OnceLock;

/// Bytes before the index.
const HEAD: usize = 20;
/// What one frame may become. A kernel's text has some hundred kilobytes.
const LARGEST: usize = 1 << 30;

/// What is in a pack.
#[derive(Debug)]
pub struct Pack {
    index: Index,
    data: &'static [u8],
    /// The group that all modules have in common, unpacked.
    common: OnceLock<String>,
    /// Where calls stand, a line each.
    call_sites: OnceLock<String>,
}

/// The index of a pack, and what stands behind it.
pub(super) fn unpacked_index(pack: &[u8]) -> Result<(Index, &[u8]), PackError> {
    let word = |at: usize| Some(u32::from_le_bytes(pack.get(at..at + 4)?.try_into().ok()?));
    if pack.get(..8) != Some(&MAGIC) {
        return Err(damaged("it does not begin as one: another version of the builder wrote it, or something else"));
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
    Ok((index, data))
}

impl Pack {
    /// Reads the index.
    ///
    /// # Errors
    ///
    /// If it is no pack, or not as it was written.
    pub fn read(pack: &'static [u8]) -> Result<Pack, PackError> {
        let (index, data) = unpacked_index(pack)?;
        Ok(Pack { index, data, common: OnceLock::new(), call_sites: OnceLock::new() })
    }

    /// By rising architecture.
    pub fn images(&self) -> &[Image] {
        &self.index.images
    }

    /// How many frames it has.
    #[cfg(test)]
    pub(super) fn frames(&self) -> usize {
        self.index.frames.len()
    }

    /// Machine code, in the order in which the build was asked for it.
    pub fn cubins(&self) -> &[Cubins] {
        &self.index.cubins
    }

    /// The cubin of a module.
    ///
    /// # Errors
    ///
    /// If there is none, or its frame is not as it was written.
    pub fn cubin(&self, cubins: &Cubins, module: usize) -> Result<Vec<u8>, PackError> {
        let frame = cubins.frames.get(module);
        self.frame(*frame.ok_or_else(|| damaged(&format!("{} has no module {module}", cubins.target)))?)
    }

    /// The text of a module, or of all of them, with the lines of its source or without.
    ///
    /// # Errors
    ///
    /// If a frame is not as it was written.
    pub fn text(&self, image: &Image, module: Option<usize>, with_lines: bool) -> Result<String, PackError> {
        let belongs = |piece: &&Place| match (&piece.modules, module) {
            (Some(modules), Some(module)) => modules.contains(&module),
            _ => true,
        };
        let mut out = String::new();
        let mut groups: HashMap<usize, String> = HashMap::new();
        let mut lines: HashMap<usize, Lines> = HashMap::new();
        let mut unpacked: HashMap<usize, Vec<u8>> = HashMap::new();
        for piece in image.pieces.iter().filter(belongs) {
            let group = match (piece.group, groups.entry(piece.group)) {
                (0, _) => self.common()?,
                (_, Entry::Occupied(group)) => group.into_mut().as_str(),
                (number, Entry::Vacant(place)) => place.insert(self.group_text(number, &mut unpacked)?).as_str(),
            };
            let text = group.get(piece.at..piece.at.saturating_add(piece.bytes));
            let text = text.ok_or_else(|| damaged("a piece lies beyond its group"))?;
            if !with_lines {
                out.push_str(text);
                continue;
            }
            let lines = match lines.entry(piece.group) {
                Entry::Occupied(lines) => lines.into_mut(),
                Entry::Vacant(place) => place.insert(self.lines(piece.group, &mut unpacked)?),
            };
            let merged = lines.merge(&mut out, text, piece.nth);
            merged.ok_or_else(|| damaged("its lines are not those of its text"))?;
        }
        Ok(out)
    }

    fn common(&self) -> Result<&str, PackError> {
        match self.common.get() {
            Some(text) => Ok(text),
            None => {
                let text = self.group_text(0, &mut HashMap::new())?;
                Ok(self.common.get_or_init(|| text))
            }
        }
    }

    fn frame(&self, number: usize) -> Result<Vec<u8>, PackError> {
        let damaged = |problem: &str| damaged(&format!("its frame {number} {problem}"));
        let frame = self.index.frames.get(number).ok_or_else(|| damaged("is not there"))?;
        let bytes = self.data.get(frame.at..frame.at.saturating_add(frame.bytes));
        unpack(bytes.ok_or_else(|| damaged("lies beyond its end"))?, frame.raw, frame.crc)
            .map_err(|problem| damaged(&problem))
    }

    /// The text of a group; `unpacked` keeps the frames that were unpacked for others.
    fn group_text(&self, number: usize, unpacked: &mut HashMap<usize, Vec<u8>>) -> Result<String, PackError> {
        let no_text = || damaged(&format!("its group {number} is no text"));
        let part = self.index.texts.get(number).ok_or_else(no_text)?;
        let content = self.part(part, unpacked)?.ok_or_else(no_text)?;
        let relative = self.index.frames.get(part.frame).is_some_and(|frame| frame.relative);
        let text = if relative { numbers::absolute(content) } else { Some(content.to_vec()) };
        text.and_then(|text| String::from_utf8(text).ok()).ok_or_else(no_text)
    }

    fn part<'a>(&self, part: &Part, unpacked: &'a mut HashMap<usize, Vec<u8>>) -> Result<Option<&'a [u8]>, PackError> {
        let frame = match unpacked.entry(part.frame) {
            Entry::Occupied(frame) => frame.into_mut(),
            Entry::Vacant(place) => place.insert(self.frame(part.frame)?),
        };
        Ok(frame.get(part.at..part.at.saturating_add(part.bytes)))
    }

    /// Where calls stand that functions were inlined through.
    fn call_sites(&self) -> Result<Vec<&str>, PackError> {
        let sites = match self.call_sites.get() {
            Some(sites) => sites,
            None => {
                let sites = String::from_utf8(self.frame(self.index.call_sites)?);
                let sites = sites.map_err(|_| damaged("its sites of calls are no text"))?;
                self.call_sites.get_or_init(|| sites)
            }
        };
        Ok(sites.split('\n').collect())
    }

    /// The line directives of a group.
    fn lines(&self, of: usize, unpacked: &mut HashMap<usize, Vec<u8>>) -> Result<Lines, PackError> {
        let part = self.index.lines.get(of).ok_or_else(|| damaged("its lines are not there"))?;
        let sites = self.call_sites()?;
        let bytes = self.part(part, unpacked)?;
        bytes.and_then(|bytes| Lines::read(bytes, &sites)).ok_or_else(|| damaged("its lines cannot be read"))
    }
}

fn damaged(problem: &str) -> PackError {
    PackError::Damaged(problem.to_owned())
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
