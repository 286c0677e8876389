//! The linker: PTX in, plain or in what compilers put it into, joined PTX out, which is what modules and libraries of the
//! software driver are loaded from.

use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::time::Instant;

use warpsmith_simt::ptx::{self, Input};

use crate::arg::{In, Out};
use crate::codes::{Code, Res};
use crate::software::functions::module;
use crate::software::image;
use crate::software::jit::Options;
use crate::software::libraries;
use crate::software::report::report;
use crate::software::tables::members::{Member, MemberCode};
use crate::software::tables::{
    objects::Link,
    software::{engine, with, with_context},
};
use crate::types::*;

/// `CUjitInputType`: what the linker made before, PTX, fat binaries, objects and libraries of the host. The bytes themselves say
/// which they are.
const READABLE: std::ops::RangeInclusive<i32> = 0..=4;

/// NVVM's intermediate code.
const NVVM: i32 = 5;

pub(crate) fn create(count: u32, options: Out<i32>, values: Out<*mut c_void>, out: Out<CUlinkState>) -> Res {
    out.check()?;
    let options = Options::read(count, options, values)?;
    with_context(|state, _, _| {
        let id = state.fresh();
        state.links.insert(id, Link { inputs: Vec::new(), members: Vec::new(), image: None, options });
        out.set(CUlinkState::from_id(id))
    })
}

/// Adds bytes of any kind, which options of their own may say something of.
fn add(link: CUlinkState, name: Option<String>, bytes: &[u8], options: &Options) -> Res {
    let name = name.filter(|n| !n.is_empty());
    let called = name.as_deref().map_or("the library", |path| path.rsplit('/').next().unwrap_or(path));
    let (mut texts, mut members) = (Vec::new(), Vec::new());
    if libraries::is_archive(bytes) {
        members = libraries::of_archive(called, bytes, engine()?.sm())?;
    } else if image::is_object(bytes) {
        for Member { name, code } in libraries::of_object(called, bytes, engine()?.sm())? {
            match code {
                MemberCode::Ptx(text) => texts.push(text),
                MemberCode::Machine(_) => return Err(image::machine_code(&format!("{name}, which has no PTX"))),
            }
        }
    } else {
        texts.push(image::of_bytes(bytes)?);
    }
    with_context(|state, _, _| {
        let link = state.links.get_mut(&link.id()).ok_or(Code::INVALID_HANDLE)?;
        let name = name.map_or_else(String::new, |n| format!(" ({n})"));
        for text in texts {
            let text = if options.tuning.is_empty() { text } else { options.tuning.apply(&text) };
            link.inputs.push((format!("input {}{name}", link.inputs.len() + 1), text));
        }
        link.members.append(&mut members);
        Ok(())
    })
}

fn check_kind(kind: i32) -> Res {
    if kind == NVVM {
        report(
            "the software driver links PTX, plain, in a fat binary, an object or a library, and no NVVM IR".to_owned(),
        );
        return Err(Code::NO_BINARY_FOR_GPU);
    }
    if READABLE.contains(&kind) { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

#[allow(clippy::too_many_arguments)]
pub(crate) fn add_data(
    link: CUlinkState,
    kind: i32,
    data: Out<c_void>,
    size: usize,
    name: In<c_char>,
    count: u32,
    options: Out<i32>,
    values: Out<*mut c_void>,
) -> Res {
    check_kind(kind)?;
    let name = if name.is_null() { None } else { Some(name.text()?) };
    let bytes = data.cast::<u8>().input().list(size)?;
    add(link, name, &bytes, &Options::read(count, options, values)?)
}

pub(crate) fn add_file(
    link: CUlinkState,
    kind: i32,
    path: In<c_char>,
    count: u32,
    options: Out<i32>,
    values: Out<*mut c_void>,
) -> Res {
    check_kind(kind)?;
    let path = path.text()?;
    let bytes = image::read(&path)?;
    add(link, Some(path), &bytes, &Options::read(count, options, values)?)
}

pub(crate) fn complete(link: CUlinkState, image: Out<*mut c_void>, size: Out<usize>) -> Res {
    image.check()?;
    let start = Instant::now();
    let sm = engine()?.sm();
    with_context(|state, _, _| {
        let link = state.links.get_mut(&link.id()).ok_or(Code::INVALID_HANDLE)?;
        let needed = libraries::needed(&link.inputs, &link.members);
        let all = link.inputs.iter().chain(&needed);
        let inputs: Vec<Input<'_>> = all.map(|(name, text)| Input { name, text }).collect();
        let joined = ptx::link(&inputs).map_err(|log| {
            link.options.error(&log);
            report(log);
            Code::INVALID_PTX
        })?;
        let text = link.options.tuning.apply(&joined.text);
        module::parse(&text, sm, &link.options, &joined.warnings)?;
        // The NUL counts: callers copy as much as they are told, and load the copy.
        let bytes: Arc<[u8]> = text.into_bytes().into_iter().chain([0]).collect();
        image.set(bytes.as_ptr().cast_mut().cast())?;
        size.set_if_asked(bytes.len());
        link.image = Some(bytes);
        link.options.took(start);
        Ok(())
    })
}

pub(crate) fn destroy(link: CUlinkState) -> Res {
    with(|state, _| {
        let gone = state.links.remove(&link.id()).ok_or(Code::INVALID_HANDLE)?;
        drop(gone.image);
        Ok(())
    })
}
