//! Linking: which definition of a name is kept, by the ISA's linking directives (`.visible`, `.weak`, `.common`, `.extern`, and
//! none), and what calls of functions pass that are declared otherwise than defined, seen in what the joined module computes.

// Tests fail by panicking, helpers included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use warpsmith_check::{Checks, Inspect};
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
    link(&inputs).map(|linked| linked.text)
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

/// A function whose declaration another module's definition need not match, and an entry that passes it 7 and 9, stores what it
/// returns, and branches by it. Parameters are declarations without name.
struct Prototype<'a> {
    returns: Option<&'a str>,
    params: &'a [&'a str],
}

impl Prototype<'_> {
    fn named(ty: &str, name: &str) -> String {
        match ty.split_once('[') {
            Some((ty, length)) => format!(".param {ty} {name}[{length}"),
            None => format!(".param {ty} {name}"),
        }
    }

    fn head(&self, linking: &str) -> String {
        let returns = self.returns.map_or_else(String::new, |ty| format!("({}) ", Self::named(ty, "r")));
        let params: Vec<String> =
            self.params.iter().enumerate().map(|(n, ty)| Self::named(ty, &format!("p{n}"))).collect();
        format!("{linking} .func {returns}f({})", params.join(", "))
    }

    /// Returns 1 if it takes nothing, else one more than its first parameter; branches by its last one, and stores it.
    fn definition(&self, linking: &str) -> String {
        let load = if self.params.is_empty() { "" } else { "ld.param.b32 %r, [p0]; add.u32 %r, %r, 1;" };
        let last = self.params.len().saturating_sub(1);
        let last = if self.params.is_empty() { String::new() } else { format!("ld.param.b32 %s, [p{last}];") };
        let store = if self.returns.is_some() { "st.param.b32 [r], %r;" } else { "" };
        format!(
            ".visible .global .u32 last;\n{} {{ .reg .b32 %r, %s; .reg .pred %p; mov.u32 %r, 1; mov.u32 %s, 2; {load} {last} \
             setp.eq.u32 %p, %s, 77777; @%p trap; st.global.u32 [last], %s; {store} ret; }}\n",
            self.head(linking)
        )
    }

    fn caller(&self) -> String {
        let args: Vec<String> = (0..self.params.len()).map(|n| format!("a{n}")).collect();
        let mut body = String::new();
        for (n, ty) in self.params.iter().enumerate() {
            body.push_str(&format!("{}; st.param.b32 [a{n}], {}; ", Self::named(ty, &args[n]), 7 + 2 * n));
        }
        let (declared, result) = match self.returns {
            Some(ty) => (format!("{}; ", Self::named(ty, "q")), "(q), "),
            None => (String::new(), ""),
        };
        let load = if self.returns.is_some() { "ld.param.b32 %r, [q];" } else { "mov.u32 %r, 3;" };
        format!(
            ".extern .global .u32 last;\n{};\n.visible .entry k(.param .u64 o) {{ .reg .b64 %o; .reg .b32 %r, %s; .reg .pred %p;
             ld.param.u64 %o, [o]; {{ {body} {declared} call.uni {result}f, ({}); {load} }}
             ld.global.u32 %s, [last]; st.global.u32 [%o], %r; st.global.u32 [%o+4], %s;
             setp.eq.u32 %p, %r, 77777; @%p trap; ret; }}\n",
            self.head(".extern"),
            args.join(", ")
        )
    }
}

/// What the entry stores, and the linker's warnings; and what the checks of undefined data say.
fn mixed(parts: &[String]) -> ([u32; 2], Vec<String>, usize) {
    let texts: Vec<String> = parts.iter().map(|p| format!("{HEADER}{p}")).collect();
    let names = ["caller", "callee"];
    let inputs: Vec<Input<'_>> = names.iter().zip(&texts).map(|(name, text)| Input { name, text }).collect();
    let linked = link(&inputs).unwrap();
    let module = Module::load(&linked.text, &LoadOptions { sm: 90 }).unwrap_or_else(|e| panic!("{e}\n{}", linked.text));
    let machine = Machine::new(MachineConfig::default());
    let instance = machine.instantiate(Arc::new(module)).unwrap();
    let p = machine.memory().alloc(8, 256).unwrap();
    let launch = Launch::new([1, 1, 1], [1, 1, 1]);
    machine.launch(&instance, "k", &launch, &p.to_le_bytes()).unwrap();
    let mut out = [0; 8];
    machine.memory().read(p, &mut out).unwrap();
    let inspection = machine.inspect(&instance, "k", &launch, &p.to_le_bytes(), &Checks::ALL);
    assert!(inspection.fault.is_none());
    let word = |at: usize| u32::from_le_bytes([out[at], out[at + 1], out[at + 2], out[at + 3]]);
    ([word(0), word(4)], linked.warnings, inspection.findings.len())
}

/// Each pair was given to nvJitLink 13.5.37 as PTX for sm_90: it links all of them, and prints "Prototype doesn't match for 'f' in
/// …" where this says so. (nvlink prints the same and refuses them.) What is in the same place of both prototypes, with one size,
/// is passed; what is not is undefined, and found where it is used.
#[test]
fn functions_declared_otherwise_are_linked_as_nvjitlink_does() {
    let none: &[&str] = &[];
    let (one, word) = (&[".b32"][..], Some(".b32"));
    // Returns and parameters as declared; as defined; whether the linker says that they differ; what is stored, where it is
    // defined; whether undefined data is used.
    #[rustfmt::skip]
    let cases = [
        (word, one, word, one, false, (Some(8), Some(7)), false),
        // As numba declares functions that return nothing; but here the result is used.
        (Some(".b64"), one, None, one, true, (None, Some(7)), true),
        (None, one, word, one, true, (Some(3), Some(7)), false),
        (word, one, Some(".b64"), one, true, (None, Some(7)), true),
        (word, one, word, &[".b32", ".b32"], true, (Some(8), None), true),
        (word, &[".b32", ".b32"], word, one, true, (Some(8), Some(7)), false),
        (word, &[".b32", ".b32"], word, none, true, (Some(1), Some(2)), false),
        (word, one, word, &[".b64"], true, (None, None), true),
        (word, &[".f32"], Some(".f32"), one, true, (Some(8), Some(7)), false),
        (word, &[".align 4 .b8[4]"], word, one, true, (Some(8), Some(7)), false),
        (word, &[".align 4 .b8[8]"], word, &[".align 4 .b8[12]"], true, (None, None), true),
        // What linkers take for the same.
        (word, &[".s32"], Some(".u32"), one, false, (Some(8), Some(7)), false),
        (word, &[".align 8 .b8[8]"], word, &[".align 4 .b8[8]"], false, (Some(8), Some(7)), false),
    ];
    for (returns, params, defined_returns, defined_params, differ, wanted, undefined) in cases {
        let declared = Prototype { returns, params };
        let defined = Prototype { returns: defined_returns, params: defined_params };
        let what = format!("{} as {}", declared.head(""), defined.head(""));
        let ([result, last], warnings, findings) = mixed(&[declared.caller(), defined.definition(".visible")]);
        assert!(wanted.0.is_none_or(|v| v == result) && wanted.1.is_none_or(|v| v == last), "{what}: {result} {last}");
        let told = "Prototype doesn't match for 'f' in 'caller', first defined in 'callee'";
        assert_eq!(warnings, if differ { vec![told] } else { vec![] }, "{what}");
        assert_eq!(findings > 0, undefined, "{what}");
        // In the other order, and where a weak definition of the caller's own gives way.
        let texts = [defined.definition(".visible"), declared.caller()];
        assert_eq!(mixed(&texts).1.len(), usize::from(differ), "{what}");
        let own = declared.definition(".weak").replace(".visible .global", ".extern .global");
        let weak = own
            + &declared
                .caller()
                .replace(".extern .global .u32 last;", "")
                .replace(&declared.head(".extern"), &declared.head(".weak"));
        for texts in [[weak.clone(), defined.definition(".visible")], [defined.definition(".visible"), weak]] {
            let ([result, last], warnings, _) = mixed(&texts);
            assert!(
                wanted.0.is_none_or(|v| v == result) && wanted.1.is_none_or(|v| v == last),
                "{what}: {result} {last}"
            );
            assert_eq!(warnings.len(), usize::from(differ), "{what}");
        }
    }
}

/// For nvJitLink a parameter in a register is the same as one that is not. No linker knows what a predicate would be passed as.
#[test]
fn parameters_in_registers_are_passed_as_others_are() {
    let entry = |result: &str| {
        format!(
            ".visible .entry k(.param .u64 o) {{ .reg .b64 %o; .reg .b32 %r; .reg .pred %p; ld.param.u64 %o, [o];
             mov.u32 %r, 7; {result} st.global.u32 [%o], %r; st.global.u32 [%o+4], %r; ret; }}\n"
        )
    };
    let (registers, memory) = ("(.reg .b32 r) f(.reg .b32 x)", "(.param .b32 r) f(.param .b32 x)");
    let body = "{ .reg .b32 %v; mov.u32 %v, x; add.u32 r, %v, 1; ret; }\n";
    let in_memory = "{ .reg .b32 %v; ld.param.b32 %v, [x]; add.u32 %v, %v, 1; st.param.b32 [r], %v; ret; }\n";
    let call = "call (%r), f, (%r);";
    let through = "{ .param .b32 a, b; st.param.b32 [a], %r; call (b), f, (a); ld.param.b32 %r, [b]; }";
    for (declared, call, defined) in [
        (registers, call, format!(".visible .func {memory} {in_memory}")),
        (memory, through, format!(".visible .func {registers} {body}")),
        (registers, call, format!(".visible .func {} {body}", registers.replace(".b32 x", ".u32 x"))),
    ] {
        let caller = format!(".extern .func {declared};\n{}", entry(call));
        assert_eq!(mixed(&[caller, defined]), ([8, 8], vec![], 0), "{declared}");
    }
    let caller = format!(".extern .func f(.reg .pred x);\n{}", entry("call f, (%p);"));
    let error = joined(&[caller, ".visible .func f(.param .b32 x) { ret; }\n".to_owned()]).unwrap_err();
    assert_eq!(error, "Prototype doesn't match for 'f' in 'module 0', first defined in 'module 1'");
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
    let joined = link(&[Input { name: "a", text: &a }, Input { name: "b", text: &b }]).unwrap().text;
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
