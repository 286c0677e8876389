//! What a link needs beside the texts that it was given: members of libraries, and functions that the driver itself has.
//!
//! A member is taken if it defines what is declared and not defined so far. Of a member that is machine code no PTX can be
//! made; the few functions that compilers take from NVIDIA's device library for cooperative launches, the driver has itself, and
//! for any other the joined text says where it is, so that kernels which reach it are refused with its name.

mod members;

use std::collections::{BTreeMap, BTreeSet};

use warpsmith_simt::ptx;

use crate::software::tables::members::{Member, MemberCode};

pub(crate) use members::{is_archive, of_archive, of_object};

/// What a GPU's driver has too, for whoever calls it.
const GRID_BARRIER: &str = include_str!("grid_barrier.ptx");
/// What stands for machine code of libcudadevrt.
const COOPERATIVE: &str = include_str!("cooperative.ptx");
/// The least that a module may be for.
const HEADER: &str = ".version 6.0\n.target sm_70\n.address_size 64\n";

/// Names of the texts so far.
#[derive(Default)]
struct Names {
    declared: BTreeSet<String>,
    defined: BTreeSet<String>,
}

impl Names {
    fn read(&mut self, text: &str) {
        let outline = ptx::outline(text);
        for f in &outline.functions {
            let known = if f.body.is_some() || f.is_entry { &mut self.defined } else { &mut self.declared };
            known.insert(f.name.to_owned());
        }
        for v in &outline.variables {
            let known = if v.is_extern { &mut self.declared } else { &mut self.defined };
            known.insert(v.name.to_owned());
        }
    }
}

/// The texts that have to be joined with those that were given: names and texts.
pub(crate) fn needed(inputs: &[(String, String)], members: &[Member]) -> Vec<(String, String)> {
    let mut names = Names::default();
    inputs.iter().for_each(|(_, text)| names.read(text));
    let defined: Vec<BTreeSet<String>> = members.iter().map(Member::defines).collect();
    let own = |text: &str, name: &str| ptx::outline(text).functions.iter().any(|f| f.name == name && f.body.is_some());
    let (mut added, mut settled, mut elsewhere) = (Vec::new(), BTreeSet::new(), BTreeMap::new());
    loop {
        let missing = |name: &&String| !names.defined.contains(*name) && !settled.contains(*name);
        let Some(name) = names.declared.iter().find(missing).cloned() else { break };
        settled.insert(name.clone());
        let by = members.iter().zip(&defined).find(|(_, defined)| defined.contains(&name)).map(|(member, _)| member);
        let (from, text) = match by.map(|member| (&member.name, &member.code)) {
            Some((from, MemberCode::Ptx(text))) => (from.as_str(), text.as_str()),
            Some((_, MemberCode::Machine(_))) if own(COOPERATIVE, &name) => ("cooperative launches", COOPERATIVE),
            Some((from, MemberCode::Machine(_))) => {
                elsewhere.insert(name, from.clone());
                continue;
            }
            None if own(GRID_BARRIER, &name) => ("the driver", GRID_BARRIER),
            None => continue,
        };
        names.read(text);
        added.push((from.to_owned(), text.to_owned()));
    }
    if !elsewhere.is_empty() {
        let pragmas = elsewhere.iter().map(|(name, file)| ptx::pragma::machine_code(name, file));
        added.push(("libraries".to_owned(), pragmas.fold(HEADER.to_owned(), |text, pragma| text + &pragma)));
    }
    added
}
