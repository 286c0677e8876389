//! `warpsmith add`: a kernel more in a project, with source, test and benchmark, from the templates of `warpsmith new`.

mod places;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::new::{self, templates};
use super::shown;
use crate::cli::AddArgs;
use crate::failure::{Failure, Kind};
use places::Places;

/// Runs the command.
pub fn run(args: &AddArgs) -> Result<(), Failure> {
    let name = name(&args.kernel)?;
    let places = Places::find(args)?;
    let template = templates::parts(args.template);
    let renamed = |text: &str| renamed(text, template.kernel, name, &places.library, &places.library_package);
    let source = places.source.with_file_name(format!("{name}.rs"));
    let new = [
        (source, renamed(template.code)),
        (places.host.join("tests").join(format!("{name}.rs")), renamed(template.test)),
        (places.host.join("benches").join(format!("{name}.rs")), renamed(template.bench)),
    ];
    let changed = [
        (places.source.clone(), with_module(&read(&places.source)?, name, &places.source)?),
        (places.manifest.clone(), with_bench(&read(&places.manifest)?, name, &places.manifest)?),
    ];
    if let Some((path, _)) = new.iter().find(|(path, _)| path.exists()) {
        return Err(Failure::usage(format!("{} is there already: nothing was written", shown(path))));
    }
    write(&new, &changed)?;
    report(args, name, &new, &changed);
    Ok(())
}

/// A kernel's name is that of a function, of a module and of files.
fn name(name: &str) -> Result<&str, Failure> {
    let refuse = |why: &str| Err(Failure::usage(format!("`{name}` cannot be the name of a kernel: {why}")));
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        return refuse("it has to begin with a letter from a to z");
    }
    if let Some(odd) = name.chars().find(|c| !(c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '_')) {
        return refuse(&format!("it has `{odd}`; letters from a to z, digits and `_` may be in it"));
    }
    if name.contains("__") || name.ends_with('_') {
        return refuse("its words have one `_` between them");
    }
    if new::KEYWORDS.split_whitespace().any(|word| word == name) {
        return refuse("it is a keyword of Rust");
    }
    if ["lib", "main"].contains(&name) {
        return refuse("cargo has a meaning for a file of that name");
    }
    Ok(name)
}

/// `RowScale` of `row_scale`, as `#[kernel]` names its struct.
fn camel(name: &str) -> String {
    let word = |word: &str| {
        let (first, rest) = word.split_at(1);
        first.to_ascii_uppercase() + rest
    };
    name.split('_').filter(|w| !w.is_empty()).map(word).collect()
}

/// A template's text with another kernel's name, in a project whose crate of kernels has this name.
fn renamed(text: &str, from: &str, to: &str, library: &str, package: &str) -> String {
    let (from_type, to_type) = (camel(from), camel(to));
    let (from_shared, to_shared) = (from.to_ascii_uppercase(), to.to_ascii_uppercase());
    let pairs = [
        (format!("kernels::{from}::"), format!("{library}::{to}::")),
        ("include_kernels!(\"kernels\")".to_owned(), format!("include_kernels!(\"{package}\")")),
        (format!("fn {from}("), format!("fn {to}(")),
        (format!("fn {from}_"), format!("fn {to}_")),
        (format!("{{{from_type},"), format!("{{{to_type},")),
        (format!("{from_type} {{"), format!("{to_type} {{")),
        (format!("{from_type}<'_>"), format!("{to_type}<'_>")),
        (format!("\"{from}\""), format!("\"{to}\"")),
        (format!("\"{from}/"), format!("\"{to}/")),
        // Names in shared memory are those of the whole crate.
        (format!("({from_shared}_"), format!("({to_shared}_")),
    ];
    pairs.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|e| Failure::new(Kind::Operation, format!("cannot read {}: {e}", shown(path))))
}

/// The name of the module that a line declares.
fn module(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub ").unwrap_or(line).strip_prefix("mod ")?;
    rest.strip_suffix(';').map(str::trim)
}

/// A crate's root with a module more, where rustfmt would have it.
fn with_module(text: &str, name: &str, path: &Path) -> Result<String, Failure> {
    let mut lines: Vec<&str> = text.lines().collect();
    if lines.iter().any(|l| module(l.trim()) == Some(name)) {
        return Err(Failure::usage(format!("{} has a module `{name}` already: nothing was written", shown(path))));
    }
    let own = format!("pub mod {name};");
    let last = lines.iter().rposition(|l| module(l).is_some());
    let at = match last {
        None => lines.len(),
        Some(last) => {
            let first = lines[..last].iter().rposition(|l| module(l).is_none()).map_or(0, |before| before + 1);
            let later = (first..=last).find(|i| module(lines[*i]).is_some_and(|other| other > name));
            later.unwrap_or(last + 1)
        }
    };
    lines.insert(at, &own);
    Ok(lines.join("\n") + "\n")
}

/// A manifest with a benchmark more, behind those that it has.
fn with_bench(text: &str, name: &str, path: &Path) -> Result<String, Failure> {
    let parse = |text: &str| {
        let broken = |e| Failure::usage(format!("{}: {e}", shown(path)));
        text.parse::<toml::Table>().map_err(broken)
    };
    let has = |manifest: &toml::Table| {
        let benches = manifest.get("bench").and_then(toml::Value::as_array).into_iter().flatten();
        benches.filter_map(|b| b.get("name")?.as_str()).any(|other| other == name)
    };
    if has(&parse(text)?) {
        return Err(Failure::usage(format!("{} has a benchmark `{name}` already: nothing was written", shown(path))));
    }
    let mut lines: Vec<&str> = text.trim_end().lines().collect();
    let last = lines.iter().rposition(|l| l.trim() == "[[bench]]");
    let ends = |l: &&str| l.trim().is_empty() || l.starts_with('[') || l.starts_with('#');
    let at = last.map_or(lines.len(), |last| {
        lines[last + 1..].iter().position(ends).map_or(lines.len(), |more| last + 1 + more)
    });
    let own = format!("name = \"{name}\"");
    lines.splice(at..at, ["", "[[bench]]", &own, "harness = false"]);
    let text = lines.join("\n") + "\n";
    if has(&parse(&text)?) {
        return Ok(text);
    }
    Err(Failure::usage(format!(
        "{}: a benchmark cannot be added here: write [[bench]], name = \"{name}\" and harness = false into it by hand",
        shown(path)
    )))
}

/// Writes all files, or leaves things as they were.
fn write(new: &[(PathBuf, String)], changed: &[(PathBuf, String)]) -> Result<(), Failure> {
    let before = changed.iter().map(|(path, _)| read(path).map(|text| (path, text))).collect::<Result<Vec<_>, _>>()?;
    let mut made = Vec::new();
    let mut all = || -> Result<(), (PathBuf, std::io::Error)> {
        for (path, text) in new {
            let failed = |e| (path.clone(), e);
            path.parent().map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
            let mut file = fs::File::create_new(path).map_err(failed)?;
            made.push(path);
            std::io::Write::write_all(&mut file, text.as_bytes()).map_err(failed)?;
        }
        changed.iter().try_for_each(|(path, text)| fs::write(path, text).map_err(|e| (path.clone(), e)))
    };
    all().map_err(|(path, error)| {
        // What cannot be put back is what could not be written either.
        made.iter().for_each(|path| drop(fs::remove_file(path)));
        before.iter().for_each(|(path, text)| drop(fs::write(path, text)));
        Failure::write(&path, &error)
    })
}

fn report(args: &AddArgs, name: &str, new: &[(PathBuf, String)], changed: &[(PathBuf, String)]) {
    let paths = |all: &[(PathBuf, String)]| all.iter().map(|(path, _)| shown(path)).collect::<Vec<_>>();
    let (new, changed) = (paths(new), paths(changed));
    let next = [
        format!("cargo test {name}"),
        format!("cargo bench --bench {name}"),
        format!("{} watch {name}", warpsmith_driver_api::software::quote(&new::program())),
    ];
    if args.json {
        let value = json!({ "kernel": name, "files": new, "changed": changed, "next": next });
        println!("{value:#}");
        return;
    }
    println!("the kernel `{name}`:");
    new.iter().for_each(|path| println!("  {path}"));
    println!("and its lines in {}.", changed.join(" and "));
    println!("\nNext:");
    next.iter().for_each(|command| println!("  {command}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> &'static Path {
        Path::new("file")
    }

    #[test]
    fn a_module_stands_where_rustfmt_wants_it() {
        let text = "//! Kernels.\n#![no_std]\n\npub mod b;\npub mod d;\n";
        assert_eq!(with_module(text, "c", file()).unwrap(), text.replace("pub mod d;", "pub mod c;\npub mod d;"));
        assert_eq!(with_module(text, "a", file()).unwrap(), text.replace("pub mod b;", "pub mod a;\npub mod b;"));
        assert_eq!(with_module(text, "e", file()).unwrap(), text.to_owned() + "pub mod e;\n");
        assert_eq!(with_module("//! No.\n", "e", file()).unwrap(), "//! No.\npub mod e;\n");
        assert!(with_module(text, "d", file()).unwrap_err().to_string().contains("already"));
    }

    #[test]
    fn a_benchmark_stands_behind_the_others() {
        let text = "[package]\nname = \"p\"\n\n[[bench]]\nname = \"a\"\nharness = false\n\n# Fast.\n[profile.dev]\ndebug = 1\n";
        let more = with_bench(text, "b", file()).unwrap();
        let wanted = "harness = false\n\n[[bench]]\nname = \"b\"\nharness = false\n\n# Fast.";
        assert!(more.contains(wanted), "{more}");
        assert!(with_bench(text, "a", file()).unwrap_err().to_string().contains("already"));
        let first = with_bench("[package]\nname = \"p\"\n", "b", file()).unwrap();
        assert_eq!(first, "[package]\nname = \"p\"\n\n[[bench]]\nname = \"b\"\nharness = false\n");
        assert!(with_bench("bench = 1\n[", "b", file()).is_err());
        assert!(with_bench("bench = []\n", "b", file()).unwrap_err().to_string().contains("file"));
    }

    #[test]
    fn no_trace_of_the_template_s_name_is_left() {
        use crate::cli::Template;
        for template in [Template::Elementwise, Template::Reduction, Template::Gemv, Template::Matmul] {
            let parts = templates::parts(template);
            for text in [parts.code, parts.test, parts.bench] {
                let text = renamed(text, parts.kernel, "row_scale", "my_kernels", "my_kernels");
                let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
                let (upper, camel) = (parts.kernel.to_ascii_uppercase() + "_", camel(parts.kernel));
                for word in words {
                    let left = word == camel || word.starts_with(&upper) || word == "kernels";
                    assert!(!left, "{template:?}: {word} in {text}");
                }
                for left in ["fn ", "mod ", "Harness::new(\"", "::"] {
                    let left = format!("{left}{}", parts.kernel);
                    assert!(!text.contains(&format!("{left}(")) && !text.contains(&format!("{left}_is")), "{text}");
                }
            }
        }
        assert_eq!(camel("gemv_q4_0"), "GemvQ40");
    }
}
