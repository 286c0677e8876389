//! `warpsmith new`: a project with one kernel and all that belongs to it.

mod source;
pub mod templates;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::cli::{Generator, NewArgs};
use crate::failure::{Failure, Kind};
use source::Source;

/// Words that cargo or rustc refuse as the name of a package, and `kernels`, which is the other package of the project.
const TAKEN: [&str; 8] = ["kernels", "test", "core", "std", "alloc", "proc_macro", "deps", "build"];

/// Rust's keywords, of all editions.
pub const KEYWORDS: &str = "abstract as async await become box break const continue crate do dyn else enum extern false final \
    fn for gen if impl in let loop macro match mod move mut override priv pub ref return self static struct super trait \
    true try type typeof unsafe unsized use virtual where while yield";

/// Runs the command.
pub fn run(args: &NewArgs) -> Result<(), Failure> {
    let dir = std::path::absolute(&args.dir).map_err(|e| Failure::usage(format!("{}: {e}", args.dir.display())))?;
    let name = name(args, &dir)?;
    let source = Source::choose(args)?;
    if args.backend == Generator::CudaBuilder && matches!(source, Source::Registry(_)) {
        return Err(Failure::usage(
            "--backend cuda_builder: the package that drives rust-cuda is not on crates.io; give a checkout with --path",
        ));
    }
    let config = source.config()?;
    refuse_occupied(&dir)?;

    let (kernel, files) = templates::files(args.template);
    let mut written = Vec::new();
    for (path, text) in files {
        let mut text = text.replace("@NAME@", &name).replace("@KERNEL@", kernel);
        if path == "build.rs" && args.backend == Generator::CudaBuilder {
            text = by_rust_cuda(&text);
        }
        for (mark, folder) in source::CRATES {
            text = text.replace(mark, &source.dependency(folder));
        }
        write(&dir.join(&path), &text)?;
        written.push(path);
    }
    if let Some(config) = config {
        write(&dir.join(".cargo/config.toml"), &config)?;
        written.push(".cargo/config.toml".to_owned());
    }
    if let Some(lock) = source.lock() {
        write(&dir.join("Cargo.lock"), &lock)?;
        written.push("Cargo.lock".to_owned());
    }
    report(args, &dir, &name, kernel, &source, &written);
    Ok(())
}

/// The build script with the other code generator.
fn by_rust_cuda(text: &str) -> String {
    let backend = "\n        // rust-cuda's: `warpsmith doctor` says whether its toolchain is found, and what makes it.\n        \
                   .backend(warpsmith_builder::Backend::CudaBuilder);\n";
    text.replacen("(\"kernels\").archs", "(\"kernels\")\n        .archs", 1).replacen(";\n", backend, 1)
}

/// The package's name, which cargo has to accept.
fn name(args: &NewArgs, dir: &Path) -> Result<String, Failure> {
    let folder = || dir.file_name().map(|n| n.to_string_lossy().into_owned());
    let name = args.name.clone().or_else(folder).unwrap_or_default();
    let refuse = |why: &str| {
        let hint = if args.name.is_some() { "" } else { "; --name gives another" };
        Err(Failure::usage(format!("`{name}` cannot be the name of a package: {why}{hint}")))
    };
    let first = name.chars().next();
    if !first.is_some_and(|c| c.is_ascii_alphabetic()) {
        return refuse("it has to begin with a letter from a to z");
    }
    if let Some(odd) = name.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))) {
        return refuse(&format!("it has `{odd}`; letters from a to z, digits, `-` and `_` may be in it"));
    }
    if TAKEN.contains(&name.as_str()) {
        return refuse("that name is taken, by cargo, by Rust or by the crate of kernels in the project");
    }
    if KEYWORDS.split_whitespace().any(|word| word == name) {
        return refuse("it is a keyword of Rust");
    }
    Ok(name)
}

/// Only a folder that is not there, or that has nothing in it.
fn refuse_occupied(dir: &Path) -> Result<(), Failure> {
    match fs::read_dir(dir) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(Failure::usage(format!(
                "{} is not empty: a project is made in a folder that does not exist yet, or is empty",
                dir.display()
            ))),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::NotADirectory => {
            Err(Failure::usage(format!("{} is a file: give a folder", dir.display())))
        }
        Err(e) => Err(Failure::new(Kind::Operation, format!("cannot read {}: {e}", dir.display()))),
    }
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::write(path, text)).map_err(|e| Failure::write(path, &e))
}

/// How this program is called: by name if that finds it.
pub fn program() -> String {
    let Ok(own) = std::env::current_exe() else { return "warpsmith".to_owned() };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let same = |dir: PathBuf| dir.join("warpsmith").canonicalize().is_ok_and(|p| Some(p) == own.canonicalize().ok());
    if std::env::split_paths(&path).any(same) { "warpsmith".to_owned() } else { own.display().to_string() }
}

fn report(args: &NewArgs, dir: &Path, name: &str, kernel: &str, source: &Source, written: &[String]) {
    let quote = |text: &str| warpsmith_driver_api::software::quote(text);
    let own = quote(&program());
    let steps = [
        (format!("cd {}", quote(&args.dir.to_string_lossy())), ""),
        ("cargo run".to_owned(), "launch it, on a GPU or on the software driver"),
        ("cargo test".to_owned(), "compare it with its f64 reference, under all checks"),
        ("cargo bench".to_owned(), "count or time it, and compare with the run before"),
        (format!("{own} watch {kernel}"), "the verdict after every save"),
        (format!("{own} inspect {kernel}"), "its code beside the Rust, with counters, after a round of watch"),
        (format!("{own} profile {kernel}"), "what its launches count, and what that means on a GPU"),
        (format!("{own} add another"), "a second kernel, with test and bench"),
    ];
    if args.json {
        let next: Vec<&str> = steps.iter().map(|(command, _)| command.as_str()).collect();
        println!(
            "{:#}",
            json!({
                "folder": dir,
                "name": name,
                "kernel": kernel,
                "dependencies": source.to_json(),
                "files": written,
                "next": next,
            })
        );
        return;
    }
    println!("{name}: the kernel `{kernel}`, in {}", dir.display());
    println!("{source}");
    println!();
    for file in written.iter().filter(|f| f.ends_with(".rs")) {
        println!("  {file}");
    }
    println!();
    println!("Next (the first build takes a few minutes):");
    let width = steps.iter().map(|(command, _)| command.chars().count()).max().unwrap_or(0);
    for (command, what) in &steps {
        if what.is_empty() {
            println!("  {command}");
        } else {
            println!("  {command:width$}  # {what}");
        }
    }
}
