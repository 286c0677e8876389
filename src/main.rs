//! The command line of warpsmith.

// First: its macros hold in all that follows.
#[macro_use]
mod output;

mod child;
mod cli;
mod commands;
mod failure;
mod table;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command, RunArgs};
use failure::Failure;

/// `warpsmith … | head` ends when nobody reads any more, as other tools do: Rust ignores the signal, and printing would panic.
fn end_with_the_reader() {
    #[cfg(unix)]
    // SAFETY: no other thread is there yet, and the default action is no handler of ours.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

/// The command line, or the answer to a question for help.
fn parse() -> Result<Cli, ExitCode> {
    match Cli::try_parse() {
        Ok(cli) => Ok(cli),
        Err(error) if error.use_stderr() => error.exit(),
        Err(help) => {
            output::note(help.print());
            Err(end(Ok(())))
        }
    }
}

/// Says what went wrong, if anything did: in the command, or where its output went.
fn end(result: Result<(), Failure>) -> ExitCode {
    match result.and_then(|()| output::check()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.exit_code()
        }
    }
}

fn main() -> ExitCode {
    end_with_the_reader();
    let cli = match parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    end(match cli.command {
        None => commands::run::run(&cli::defaults::<RunArgs>()),
        Some(Command::New(args)) => commands::new::run(&args),
        Some(Command::Add(args)) => commands::add::run(&args),
        Some(Command::Watch(args)) => commands::watch::run(&args),
        Some(Command::Run(args)) => commands::run::run(&args),
        Some(Command::Chat(args)) => commands::chat::run(&args),
        Some(Command::BenchModel(args)) => commands::bench_model::run(&args),
        Some(Command::Doctor(args)) => commands::doctor::run(&args),
        Some(Command::Kernels(args)) => commands::kernels::run(&args),
        Some(Command::Check(args)) => commands::check::run(&args),
        Some(Command::Compare(args)) => commands::compare::run(&args),
        Some(Command::Profile(args)) => commands::profile::run(&args),
        Some(Command::Inspect(args)) => commands::inspect::run(&args),
        Some(Command::Budget(args)) => commands::budget::run(&args),
        Some(Command::Tune(args)) => commands::tune::run(&args),
        Some(Command::Project(args)) => commands::projection::run(&args),
        Some(Command::Completions(args)) => commands::shell::completions(&args),
        Some(Command::Man(args)) => commands::shell::man(&args),
    })
}
