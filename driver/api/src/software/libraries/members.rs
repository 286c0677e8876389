//! Object files and libraries, as `nvcc -rdc=true` and `ar` make them: each object of the host has fat binaries in a section.

use std::collections::BTreeSet;

use object::read::archive::ArchiveFile;
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

use crate::codes::{Code, Res};
use crate::software::fatbin::{self, Contents};
use crate::software::report::report;
use crate::software::tables::members::{Member, MemberCode};

/// The sections with fat binaries: of code that has to be linked, and of code that has not.
const SECTIONS: [&str; 2] = ["__nv_relfatbin", ".nv_fatbin"];
const ARCHIVE: &[u8] = b"!<arch>\n";

pub(crate) fn is_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(ARCHIVE)
}

fn damaged(name: &str, error: &dyn std::fmt::Display) -> Code {
    report(format!("{name} is damaged: {error}"));
    Code::INVALID_IMAGE
}

/// What the objects of a library hold for a device.
pub(crate) fn of_archive(name: &str, bytes: &[u8], sm: u32) -> Res<Vec<Member>> {
    let archive = ArchiveFile::parse(bytes).map_err(|e| damaged(name, &e))?;
    let mut found = Vec::new();
    for member in archive.members() {
        let member = member.map_err(|e| damaged(name, &e))?;
        let data = member.data(bytes).map_err(|e| damaged(name, &e))?;
        let name = format!("{name}({})", String::from_utf8_lossy(member.name()));
        found.extend(of_object(&name, data, sm)?);
    }
    Ok(found)
}

/// What an object holds for a device: nothing, if it is one of the host alone.
pub(crate) fn of_object(name: &str, bytes: &[u8], sm: u32) -> Res<Vec<Member>> {
    let file = object::File::parse(bytes).map_err(|e| damaged(name, &e))?;
    let mut found = Vec::new();
    let all = file.sections().filter(|s| s.name().is_ok_and(|name| SECTIONS.contains(&name)));
    for section in all {
        let mut rest = section.data().map_err(|e| damaged(name, &e))?;
        while let Some(container) = fatbin::first(rest)? {
            let name = name.to_owned();
            let code = match fatbin::contents(container, sm)? {
                Contents::Ptx(text) => MemberCode::Ptx(text),
                Contents::Machine(image) => MemberCode::Machine(functions(&name, &image)?),
            };
            found.push(Member { name, code });
            // They are aligned to 8 bytes.
            rest = rest.get(container.len().next_multiple_of(8)..).unwrap_or_default();
        }
    }
    Ok(found)
}

/// The functions of machine code that other code may call.
fn functions(name: &str, image: &[u8]) -> Res<BTreeSet<String>> {
    let file = object::File::parse(image).map_err(|e| damaged(name, &e))?;
    let called = file.symbols().filter(|s| s.is_definition() && s.is_global() && s.kind() == SymbolKind::Text);
    Ok(called.filter_map(|s| s.name().ok().map(str::to_owned)).collect())
}
