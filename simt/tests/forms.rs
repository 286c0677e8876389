//! Which forms of instructions load, against the verdicts of `ptxas`, as `ptx/accepted.tsv` records them.

#![allow(clippy::unwrap_used, clippy::panic)]

use warpsmith_simt::{LoadOptions, Module};

/// A module around a statement, which stands on line 7.
fn module(target: &str, version: &str, body: &str) -> String {
    format!(
        ".version {version}\n.target sm_{target}\n.address_size 64\n.shared .align 16 .b8 sm[4096];\n\
         .visible .entry k(.param .u64 p0) {{\n.reg .b32 %r<64>; .reg .b64 %rd<64>; .reg .pred %p<9>; .reg .b16 %h<20>; \
         .reg .f32 %f<64>; .reg .f64 %d<64>; .reg .b128 %q<9>; ld.param.u64 %rd1, [p0];\n{body}\nret;\n}}\n"
    )
}

#[test]
fn what_ptxas_accepts_loads_and_what_it_refuses_does_not() {
    let mut wrong = Vec::new();
    let mut rows = 0;
    for line in include_str!("ptx/accepted.tsv").lines().filter(|l| !l.starts_with('#')) {
        let [ptxas, ours, target, version, body] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        rows += 1;
        let sm = target.trim_end_matches(['a', 'f']).parse().unwrap();
        let loaded = Module::load(&module(target, version, body), &LoadOptions { sm });
        let log = loaded.as_ref().err().map(ToString::to_string).unwrap_or_default();
        let fits = match (ptxas, ours) {
            ("+", "=") => loaded.is_ok(),
            ("-", "=") => loaded.is_err(),
            // What is not supported says so, by name and line.
            ("+", ">") => log.contains("not supported") && log.contains("line 7"),
            _ => panic!("{line}"),
        };
        if !fits {
            wrong.push(format!(
                "{ptxas}{ours} sm_{target} {version} {body}\n    {}",
                log.lines().next().unwrap_or("loads")
            ));
        }
    }
    assert!(rows > 450);
    assert!(wrong.is_empty(), "{} of {rows} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
