//! Writing.

use super::frames::{Frames, compress};
use super::lines::{Directives, Places};
use super::{Cubins, Image, Index, MAGIC, PackError, Piece, Place, refuse};
use crate::map_in_threads;
use std::collections::HashMap;

/// The text and the line directives of a group.
#[derive(Default)]
struct Group<'a> {
    /// The first kernel of its module, by which it is put beside others.
    name: &'a str,
    text: String,
    pieces: Vec<Directives<'a>>,
}

/// The text of an architecture, taken apart.
#[derive(Debug)]
pub struct Text {
    /// Architecture: 80 for `sm_80`.
    pub sm: u32,
    /// The text without its line directives.
    pub bare: String,
    /// The line directives that differ.
    pub places: Vec<String>,
    /// Of each line directive the number of lines of `bare` before it, and which of `places` it is.
    pub directives: Vec<(usize, usize)>,
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

/// Packs the texts of a library, by rising architecture, and the machine code that was made of them. `earlier` is the pack of the
/// build before, or anything: with [`Effort::Fast`], frames of it whose content is wanted again are taken over.
///
/// # Errors
///
/// If the compressor fails, a directive is of no place, or the index is larger than the format can say.
pub fn write<'t>(texts: &'t [Text], machine: &[Machine], effort: Effort, earlier: &[u8]) -> Result<Vec<u8>, PackError> {
    let mut groups: Vec<Group<'_>> = vec![Group::default()];
    let mut group_of: HashMap<&[String], usize> = HashMap::new();
    let mut images = Vec::new();
    let mut places = Places::default();
    let mut numbers_of = |text: &'t Text| text.places.iter().map(|place| places.number(place)).collect::<Vec<_>>();
    let numbers: Vec<Vec<usize>> = texts.iter().map(&mut numbers_of).collect();
    for (cut, numbers) in texts.iter().zip(&numbers) {
        let mut pieces = Vec::new();
        for piece in &cut.pieces {
            let module = sole_owner(piece).and_then(|module| cut.modules.get(module));
            let number = module.map_or(0, |kernels| {
                *group_of.entry(kernels).or_insert_with(|| {
                    groups.push(Group { name: kernels.first().map_or("", String::as_str), ..Group::default() });
                    groups.len() - 1
                })
            });
            let Some(group) = groups.get_mut(number) else { continue };
            let text = cut.bare.get(piece.bytes.clone()).unwrap_or_default();
            pieces.push(Place {
                group: number,
                at: group.text.len(),
                bytes: text.len(),
                nth: group.pieces.len(),
                modules: piece.modules.clone(),
            });
            group.text.push_str(text);
            group.pieces.push(cut.directives_of(piece, numbers));
        }
        images.push(Image { sm: cut.sm, modules: cut.modules.clone(), pieces });
    }
    let mut frames = Frames::new(effort, earlier);
    let texts_of_groups: Vec<_> = groups.iter().map(|group| (group.name, group.text.as_str())).collect();
    let places_of_texts = frames.push_texts(&texts_of_groups)?;
    let lines = frames.push_parts(
        map_in_threads(&groups, |group| places.write(&group.pieces)).into_iter().collect::<Result<_, _>>()?,
    )?;
    let call_sites = frames.push_all(&[places.sites.join("\n").as_bytes()])?;
    let mut cubins = Vec::new();
    for Machine { target, sm, cubins: code } in machine {
        let of = texts.iter().find(|text| text.sm == *sm);
        if of.is_none_or(|text| text.modules.len() != code.len()) {
            return Err(refuse(&format!("machine code for {target} does not fit the modules for sm_{sm}")));
        }
        let first = frames.push_all(&code.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
        cubins.push(Cubins { target: target.clone(), sm: *sm, frames: (first..first + code.len()).collect() });
    }
    let index = Index { images, frames: frames.list, texts: places_of_texts, lines, call_sites, cubins };
    file(&index, &frames.data, effort)
}

fn sole_owner(piece: &Piece) -> Option<usize> {
    let modules = piece.modules.as_ref()?;
    modules.first().copied().filter(|_| modules.len() == 1)
}

/// The text of a module, of which these are the pieces of all.
pub fn module_text(text: &str, pieces: &[Piece], module: usize) -> String {
    let of = |piece: &&Piece| piece.modules.as_ref().is_none_or(|modules| modules.contains(&module));
    pieces.iter().filter(of).filter_map(|piece| text.get(piece.bytes.clone())).collect()
}

impl Text {
    /// The text of a module, without line directives.
    pub fn module(&self, module: usize) -> String {
        module_text(&self.bare, &self.pieces, module)
    }

    /// Writes all of it, with its line directives where they belong.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn spell_out(&self, mut out: impl std::io::Write) -> std::io::Result<()> {
        let mut directives = self.directives.iter().peekable();
        for (number, line) in self.bare.split_inclusive('\n').chain(std::iter::once("")).enumerate() {
            while let Some((_, place)) = directives.next_if(|(before, _)| *before <= number) {
                out.write_all(self.places.get(*place).map_or("", String::as_str).as_bytes())?;
                out.write_all(b"\n")?;
            }
            out.write_all(line.as_bytes())?;
        }
        Ok(())
    }

    /// Those that stand in a piece.
    fn directives_of<'a>(&'a self, piece: &Piece, numbers: &'a [usize]) -> Directives<'a> {
        let from = self.directives.partition_point(|(line, _)| *line < piece.lines.start);
        let mut to = self.directives.partition_point(|(line, _)| *line < piece.lines.end);
        if piece.bytes.end == self.bare.len() {
            to = self.directives.len();
        }
        let own = self.directives.get(from..to).unwrap_or_default();
        Directives { own, first_line: piece.lines.start, numbers }
    }
}

pub(super) fn file(index: &Index, data: &[u8], effort: Effort) -> Result<Vec<u8>, PackError> {
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
