//! PTX from nvcc and Triton: what loads, what is refused, and what the kernels compute.
//!
//! `corpus/verdicts.tsv` and `corpus/broken.tsv` hold what ptxas says; `corpus/README.md` tells how they were made.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use warpsmith_simt::{LoadError, LoadOptions, Module};

/// Words by which a load error names what is not supported on purpose.
const DOCUMENTED: &[&str] = &["wgmma", "setmaxnreg", "mapa", "cluster", "tensor", "tex", "sust"];

/// Files that ptxas accepts and this crate refuses, each for a documented reason.
const REFUSED: &[&str] = &[
    "corpus/ptx/cuda_hopper_clusters_sm90.ptx",
    "corpus/ptx/cuda_hopper_tensormap_sm90.ptx",
    "corpus/ptx/cuda_hopper_wgmma_sm90a.ptx",
    "corpus/ptx/cuda_textures_sm80.ptx",
    "ptx/forms.ptx",
    "ptx/nvcc_sm90.ptx",
];

/// A file or folder of the corpus. What lies below `ptx` is the parser's.
fn path(name: &str) -> PathBuf {
    let tests = if name.starts_with("ptx") { "../ptx/tests" } else { "tests" };
    Path::new(env!("CARGO_MANIFEST_DIR")).join(tests).join(name)
}

fn read(file: &str) -> String {
    let path = path(file);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Rows of a table, split at tabs.
fn rows(file: &str) -> Vec<Vec<String>> {
    let text = read(file);
    let lines = text.lines().filter(|l| !l.starts_with("# "));
    lines.map(|l| l.split('\t').map(str::to_string).collect()).collect()
}

fn load(text: &str, sm: &str) -> Result<Module, LoadError> {
    let sm = sm.trim_end_matches(['a', 'f']).parse().unwrap();
    Module::load(text, &LoadOptions { sm })
}

fn target(text: &str) -> String {
    let line = text.lines().find_map(|l| l.strip_prefix(".target sm_")).unwrap();
    line.split(',').next().unwrap().trim().to_string()
}

fn unquote(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.push(match chars.next().unwrap() {
                't' => '\t',
                'n' => '\n',
                other => other,
            }),
            other => out.push(other),
        }
    }
    out
}

/// The base file with the row's damage.
fn damaged(row: &[String], bases: &mut BTreeMap<String, String>) -> String {
    let [_, file, line, old, new, ..] = row else { panic!("{row:?}") };
    let base = bases.entry(file.clone()).or_insert_with(|| read(file));
    let line: usize = line.parse().unwrap();
    let mut lines: Vec<&str> = base.split('\n').collect();
    assert_eq!(lines[line - 1], unquote(old), "{file}:{line} has changed: run verdicts.py again");
    if new == "<cut>" {
        lines.truncate(line - 1);
        return lines.join("\n");
    }
    let new = unquote(new);
    lines[line - 1] = &new;
    lines.join("\n")
}

#[test]
fn loads_what_ptxas_accepts() {
    let rows = rows("corpus/verdicts.tsv");
    let listed: BTreeSet<String> = rows.iter().map(|r| r[0].clone()).collect();
    for place in ["corpus/ptx", "ptx"] {
        for entry in std::fs::read_dir(path(place)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let known = !name.ends_with(".ptx") || listed.contains(&format!("{place}/{name}"));
            assert!(known, "{place}/{name} has no verdict: run verdicts.py");
        }
    }
    let (mut kernels, mut wrong) = (0, Vec::new());
    for row in &rows {
        let (file, accepted) = (&row[0], row[2] == "accepted");
        let text = read(file);
        assert_eq!(target(&text), row[1], "{file}");
        kernels += text.lines().filter(|l| l.starts_with(".visible .entry")).count();
        match load(&text, &row[1]) {
            Ok(_) if accepted && !REFUSED.contains(&file.as_str()) => {}
            Err(_) if !accepted => {}
            Err(e) if REFUSED.contains(&file.as_str()) => {
                for d in &e.diagnostics {
                    let named = DOCUMENTED.iter().any(|w| d.message.contains(w) || d.line_text.contains(w));
                    if d.pos.line == 0 || !named {
                        wrong.push(format!("{file}: {d}"));
                    }
                }
            }
            Ok(_) => wrong.push(format!("{file} loads; ptxas: {}", row[2])),
            Err(e) => wrong.push(format!("{file} is refused, ptxas accepts it:\n{e}")),
        }
    }
    assert!(kernels >= 40, "{kernels} kernels");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn agrees_with_ptxas_on_damaged_files() {
    let rows = rows("corpus/broken.tsv");
    let mut bases = BTreeMap::new();
    let (mut wrong, mut refused, mut placed, mut near) = (Vec::new(), 0, 0, 0);
    let mut kinds = BTreeSet::new();
    for row in &rows {
        let text = damaged(row, &mut bases);
        let sm = target(&bases[&row[1]]);
        let accepted = row[5] == "accepted";
        kinds.insert(row[0].as_str());
        let place = || format!("{} ({}:{}): {} => {}", row[0], row[1], row[2], row[3], row[4]);
        match load(&text, &sm) {
            Ok(_) if accepted => {}
            Ok(_) => wrong.push(format!("{}\n    loads; ptxas: {}", place(), row[6])),
            Err(e) if accepted => wrong.push(format!("{}\n    ptxas accepts it; {e}", place())),
            Err(e) => {
                refused += 1;
                let line = row[6].strip_prefix("line ").and_then(|m| m.split(';').next());
                if let Some(line) = line.and_then(|l| l.parse::<u32>().ok()) {
                    placed += 1;
                    near += u32::from(e.diagnostics[0].pos.line.abs_diff(line) <= 1);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
    assert!(refused >= 100 && kinds.len() >= 30, "{refused} refused variants, {} kinds", kinds.len());
    // Errors are found where ptxas finds them, but for declarations, which it judges at their end.
    assert!(near * 100 >= placed * 90, "the first error is on ptxas' line for {near} of {placed}");
}

/// With `WARPSMITH_PTXAS` set, the tables are what that ptxas says.
#[test]
fn tables_are_what_ptxas_says() {
    let Some(ptxas) = std::env::var_os("WARPSMITH_PTXAS") else { return };
    let verdict = |text: &str, sm: &str| {
        let path = std::env::temp_dir().join(format!("warpsmith-corpus-{}.ptx", std::process::id()));
        std::fs::write(&path, text).unwrap();
        let mut command = std::process::Command::new(&ptxas);
        let output = command.arg(format!("-arch=sm_{sm}")).arg(&path).args(["-o", "/dev/null"]).output().unwrap();
        std::fs::remove_file(&path).unwrap();
        if output.status.success() { "accepted" } else { "refused" }
    };
    for row in rows("corpus/verdicts.tsv") {
        assert_eq!(verdict(&read(&row[0]), &row[1]), row[2], "{}", row[0]);
    }
    let mut bases = BTreeMap::new();
    for row in rows("corpus/broken.tsv") {
        let text = damaged(&row, &mut bases);
        assert_eq!(verdict(&text, &target(&bases[&row[1]])), row[5], "{row:?}");
    }
}
