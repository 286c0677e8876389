//! Linking: which definition of a name is kept, by the ISA's linking directives (`.visible`, `.weak`, `.common`, `.extern`, and
//! none), seen in what the joined module computes.

// Tests fail by panicking, helpers included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use warpsmith_simt::ptx::{Input, link};
use warpsmith_simt::{Launch, LoadOptions, Machine, MachineConfig, Module};

const HEADER: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

/// A function that adds a constant to its argument.
fn adds(linking: &str, name: &str, n: u32) -> String {
    format!(
        "{linking} .func (.param .b32 r) {name} (.param .b32 x)\n{{ .reg .b32 %r; ld.param.b32 %r, [x]; \
         add.s32 %r, %r, {n}; st.param.b32 [r], %r; ret; }}\n"
    )
}

fn declares(linking: &str, name: &str) -> String {
    format!("{linking} .func (.param .b32 r) {name} (.param .b32 x);\n")
}

/// An entry that stores what the functions make of 0, one applied to the other's result.
fn entry(name: &str, calls: &[&str]) -> String {
    let mut text = format!(
        ".visible .entry {name}(.param .u64 o)\n{{ .reg .b64 %o; .reg .b32 %r; ld.param.u64 %o, [o]; mov.u32 %r, 0;\n"
    );
    for call in calls {
        text.push_str(&format!(
            "{{ .param .b32 p; .param .b32 q; st.param.b32 [p], %r; call.uni (q), {call}, (p); ld.param.b32 %r, [q]; }}\n"
        ));
    }
    text.push_str("st.global.u32 [%o], %r; ret; }\n");
    text
}

/// An entry that stores a variable's value.
fn reads(name: &str, variable: &str) -> String {
    format!(
        ".visible .entry {name}(.param .u64 o)\n{{ .reg .b64 %o; .reg .b32 %r; ld.param.u64 %o, [o]; \
         ld.global.u32 %r, [{variable}]; st.global.u32 [%o], %r; ret; }}\n"
    )
}

fn joined(parts: &[String]) -> Result<String, String> {
    let texts: Vec<String> = parts.iter().map(|p| format!("{HEADER}{p}")).collect();
    let names: Vec<String> = (0..parts.len()).map(|n| format!("module {n}")).collect();
    let inputs: Vec<Input<'_>> = names.iter().zip(&texts).map(|(name, text)| Input { name, text }).collect();
    link(&inputs)
}

fn run(parts: &[String], entry: &str) -> u32 {
    let text = joined(parts).unwrap();
    let module = Module::load(&text, &LoadOptions { sm: 90 }).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let machine = Machine::new(MachineConfig::default());
    let instance = machine.instantiate(Arc::new(module)).unwrap();
    let p = machine.memory().alloc(4, 256).unwrap();
    machine.launch(&instance, entry, &Launch::new([1, 1, 1], [1, 1, 1]), &p.to_le_bytes()).unwrap();
    let mut out = [0; 4];
    machine.memory().read(p, &mut out).unwrap();
    u32::from_le_bytes(out)
}

#[test]
fn of_weak_functions_the_first_is_kept() {
    let a = adds(".weak", "f", 1) + &adds(".visible", "g", 10);
    let b = adds(".weak", "f", 2) + &declares(".extern", "g") + &entry("k", &["f", "g"]);
    assert_eq!(run(&[a, b], "k"), 11);
}

#[test]
fn a_weak_function_gives_way_wherever_the_other_stands() {
    let weak = adds(".weak", "f", 1) + &entry("k", &["f"]);
    let strong = adds(".visible", "f", 2) + &entry("l", &["f"]);
    for parts in [[weak.clone(), strong.clone()], [strong, weak]] {
        assert_eq!((run(&parts, "k"), run(&parts, "l")), (2, 2));
    }
}

#[test]
fn names_without_a_directive_are_each_modules_own() {
    let module = |n: u32, k: &str| {
        adds("", "f", n)
            + &format!(".global .align 4 .u32 v = {n};\n")
            + &entry(k, &["f"])
            + &reads(&format!("{k}v"), "v")
    };
    let parts = [module(1, "a"), module(2, "b"), module(3, "c")];
    let all: Vec<u32> = ["a", "b", "c", "av", "bv", "cv"].into_iter().map(|k| run(&parts, k)).collect();
    assert_eq!(all, [1, 2, 3, 1, 2, 3]);
    // One that another module makes visible is another's, too.
    let parts = [adds("", "f", 1) + &entry("a", &["f"]), adds(".visible", "f", 2) + &entry("b", &["f"])];
    assert_eq!((run(&parts, "a"), run(&parts, "b")), (1, 2));
}

#[test]
fn of_common_variables_the_initialised_one_is_kept_or_the_largest() {
    let small = ".common .global .align 4 .u32 v;\n".to_owned() + &reads("a", "v");
    let large = ".common .global .align 4 .u32 v[4];\n".to_owned() + &reads("b", "v");
    let set = ".common .global .align 4 .u32 v[4] = {7, 8, 9, 10};\n".to_owned() + &reads("c", "v");
    assert_eq!(run(&[small.clone(), small.replace("entry a", "entry x")], "a"), 0);
    let parts = [small.clone(), set.clone(), large.clone()];
    assert_eq!((run(&parts, "a"), run(&parts, "b"), run(&parts, "c")), (7, 7, 7));
    let text = joined(&[small.clone(), large.clone()]).unwrap();
    assert!(text.contains(".common .global .align 4 .u32 v[4]") && text.contains(".extern .global .align 4 .u32 v;"));
    let strong = ".visible .global .align 4 .u32 v[4] = {5, 0, 0, 0};\n".to_owned();
    assert_eq!(run(&[small.clone(), strong], "a"), 5);
    // What is kept has to be the largest.
    let short = ".common .global .align 4 .u32 v = 1;\n".to_owned();
    assert!(joined(&[large.clone(), short]).unwrap_err().contains("smaller than the .common one of module 0"));
    assert!(joined(&[set.clone(), set.replace("entry c", "entry d")]).unwrap_err().contains("has a value in"));
}

#[test]
fn two_definitions_are_an_error_that_names_both() {
    let e = joined(&[adds(".visible", "f", 1), adds(".visible", "f", 2)]).unwrap_err();
    assert_eq!(e, "'f' is defined in module 0 and in module 1");
    let e = joined(&[entry("k", &[]), entry("k", &[])]).unwrap_err();
    assert!(e.starts_with("'k' is defined"), "{e}");
    let e = joined(&[adds(".visible", "f", 1), "add.s32 nothing;".to_owned()]).unwrap_err();
    assert!(e.starts_with("module 1: line 4"), "{e}");
}

#[test]
fn the_header_is_the_newest_and_lines_keep_their_files() {
    let text = |version: &str, target: &str, file: &str, k: &str| {
        format!(
            ".version {version}\n.target {target}\n.address_size 64\n.visible .entry {k}() {{\n.loc 1 7 3\nret;\n}}\n\
             .file 1 \"{file}\"\n.section .debug_str\n{{\n$L__info_string0:\n.b8 97\n}}\n"
        )
    };
    let (a, b) = (text("7.0", "sm_75, debug", "a.cu", "a"), text("8.4", "sm_80", "b.cu", "b"));
    let joined = link(&[Input { name: "a", text: &a }, Input { name: "b", text: &b }]).unwrap();
    let module = Module::load(&joined, &LoadOptions { sm: 90 }).unwrap_or_else(|e| panic!("{e}\n{joined}"));
    assert_eq!((module.isa_version(), module.target_sm()), ((8, 4), 80));
    let mut files: Vec<String> = module.places().into_values().flatten().map(|f| f.file).collect();
    files.sort();
    assert_eq!(files, ["a.cu", "b.cu"]);
    assert_eq!(joined.matches("$L__info_string0:").count(), 1, "labels of sections stay apart: {joined}");
}

/// No text makes the linker panic, and what it joins loads.
#[test]
fn what_is_cut_is_an_error() {
    let a = adds(".weak", "f", 1) + ".common .global .u32 v;\n" + &entry("k", &["f"]);
    let b = adds(".weak", "f", 2) + ".global .u32 own;\n" + &entry("l", &["f"]);
    for cut in 0..b.len() {
        if let Ok(text) = joined(&[a.clone(), b[..cut].to_owned()]) {
            Module::load(&text, &LoadOptions { sm: 90 }).unwrap_or_else(|e| panic!("cut at {cut}: {e}\n{text}"));
        }
    }
}
