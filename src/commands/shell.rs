//! `warpsmith completions` and `warpsmith man`: the command line described to shells and to `man`.

use std::path::PathBuf;

use clap::CommandFactory;
use clap_complete::Shell;
use serde_json::json;

use crate::cli::{Cli, CompletionsArgs, ManArgs};
use crate::failure::Failure;

/// Prints the completions of a shell.
pub fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let shell = args.shell.or_else(Shell::from_env).ok_or_else(|| {
        Failure::usage("SHELL names no shell that is known: say bash, elvish, fish, powershell or zsh")
    })?;
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "warpsmith", &mut script);
    let script = String::from_utf8_lossy(&script);
    if args.json {
        println!("{:#}", json!({ "shell": shell.to_string(), "script": script }));
    } else {
        print!("{script}");
    }
    Ok(())
}

/// Writes `warpsmith.1` and a page for each command.
pub fn man(args: &ManArgs) -> Result<(), Failure> {
    std::fs::create_dir_all(&args.dir).map_err(|e| Failure::write(&args.dir, &e))?;
    clap_mangen::generate_to(Cli::command(), &args.dir).map_err(|e| Failure::write(&args.dir, &e))?;
    let entries = std::fs::read_dir(&args.dir).map_err(|e| Failure::write(&args.dir, &e))?;
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        name.starts_with("warpsmith") && name.ends_with(".1")
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(is_ours).collect();
    files.sort();
    if args.json {
        println!("{:#}", json!({ "files": files }));
    } else {
        println!(
            "{} pages in {}; try `man -l {}`",
            files.len(),
            args.dir.display(),
            args.dir.join("warpsmith.1").display()
        );
    }
    Ok(())
}
