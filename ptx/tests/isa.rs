//! The ISA table against the verdicts of `ptxas`, as `ptx/isa.tsv` records them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use warpsmith_ptx::{self as ptx, Diagnostic};

/// A module around one instruction, which stands on line 10.
fn module(instruction: &str, version: &str, target: &str) -> String {
    let wide = if instruction.contains("%q") { ".reg .b128 %q<5>;" } else { "" };
    let table = if instruction.contains("BT") { "BT: .branchtargets LL,LM;" } else { "" };
    format!(
        ".version {version}\n.target sm_{target}\n.address_size 64\n.func DF(){{ret;}}\n\
         .entry k(.param .u64 p0){{\n\
         .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .pred %p<5>; .reg .b16 %h<9>; .reg .f32 %f<9>; .reg .f64 %d<9>;\n\
         {wide}\nLL: bra LM; LM:\n{table}\n{instruction};\nret;\n}}"
    )
}

/// What is wrong with the instruction itself.
fn verdict(instruction: &str, version: &str, target: &str) -> Vec<Diagnostic> {
    let text = module(instruction, version, target);
    let module = ptx::parse(&text).unwrap_or_else(|e| panic!("{instruction}: {}", e[0]));
    ptx::isa::check(&module).into_iter().filter(|d| d.pos.line == 10).collect()
}

struct Row<'a> {
    instruction: &'a str,
    version: &'a str,
    least: &'a str,
    accepted: Vec<&'a str>,
    grid: &'a str,
}

struct Table {
    targets: Vec<&'static str>,
    /// Version and target.
    points: Vec<(&'static str, &'static str)>,
    rows: Vec<Row<'static>>,
}

fn table() -> Table {
    let mut lines = include_str!("ptx/isa.tsv").lines().filter(|l| !l.starts_with('#'));
    let mut list = |name: &str| -> Vec<&'static str> {
        lines.next().and_then(|l| l.strip_prefix(name)).unwrap().trim().split(' ').collect()
    };
    let targets = list("targets");
    let points = list("points").into_iter().map(|point| point.split_once('/').unwrap()).collect();
    let rows = lines
        .map(|line| {
            let [instruction, version, least, accepted, grid] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{line}");
            };
            let accepted = match accepted.strip_suffix('+') {
                Some(first) => targets.iter().skip_while(|t| **t != first).copied().collect(),
                None => accepted.split(' ').filter(|t| *t != "-").collect(),
            };
            Row { instruction, version, least, accepted, grid }
        })
        .collect();
    Table { targets, points, rows }
}

#[test]
fn points_agree() {
    let table = table();
    let mut wrong = Vec::new();
    for row in &table.rows {
        assert_eq!(row.grid.len(), table.points.len());
        for (&(version, target), verdict_of_ptxas) in table.points.iter().zip(row.grid.chars()) {
            let found = verdict(row.instruction, version, target);
            if found.is_empty() != (verdict_of_ptxas == '+') {
                wrong.push(format!(
                    "{} at {version} on sm_{target}: {verdict_of_ptxas}, found {found:?}",
                    row.instruction
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn targets_agree() {
    let Table { targets: all, rows, .. } = table();
    assert!(rows.len() > 500);
    let mut wrong = Vec::new();
    for row in &rows {
        for target in &all {
            let found = verdict(row.instruction, "9.5", target);
            if row.accepted.contains(target) != found.is_empty() {
                wrong.push(format!(
                    "{} on sm_{target}: accepted by {:?}, found {found:?}",
                    row.instruction, row.accepted
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn versions_agree() {
    const VERSIONS: &[&str] = &[
        "2.3", "3.0", "3.1", "3.2", "4.0", "4.1", "4.2", "4.3", "5.0", "6.0", "6.1", "6.2", "6.3", "6.4", "6.5", "7.0",
        "7.1", "7.2", "7.3", "7.4", "7.5", "7.6", "7.7", "7.8", "8.0", "8.1", "8.2", "8.3", "8.4", "8.5", "8.6", "8.7",
        "8.8", "9.0", "9.1", "9.2", "9.3", "9.4", "9.5",
    ];
    let mut wrong = Vec::new();
    for row in table().rows {
        // Of old targets only those that the instruction does not outlive.
        let Some(target) = row.accepted.last() else { continue };
        for (index, version) in VERSIONS.iter().enumerate() {
            let needed = VERSIONS.iter().position(|v| *v == row.version).unwrap_or(0);
            let found = verdict(row.instruction, version, target);
            let named = found.iter().any(|d| d.message.contains(&format!(".version {} or later", row.version)));
            if (index >= needed) != found.is_empty() || (index < needed && !named) {
                wrong.push(format!("{} at {version}: needs {}, found {found:?}", row.instruction, row.version));
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn messages_name_the_architecture() {
    const OLDER: &[&str] = &["20", "30", "50", "52", "53", "60", "61", "70", "72", "75", "80", "86", "89", "90"];
    let mut wrong = Vec::new();
    for row in table().rows.iter().filter(|row| row.least != "-") {
        let wanted = format!("requires .target sm_{} or higher", row.least);
        let least: u32 = row.least.parse().unwrap();
        for target in OLDER.iter().filter(|t| t.parse::<u32>().unwrap() < least) {
            let found = verdict(row.instruction, "9.5", target);
            let named = found.iter().any(|d| d.message.contains(&wanted));
            if !named {
                wrong.push(format!("{} on sm_{target}: wanted {wanted}, found {found:?}", row.instruction));
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
