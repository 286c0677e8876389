//! The command line of warpsmith.

mod cli;
mod commands;
mod failure;
mod table;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command, RunArgs};

/// `warpsmith … | head` ends when nobody reads any more, as other tools do: Rust ignores the signal, and printing would panic.
fn end_with_the_reader() {
    #[cfg(unix)]
    // SAFETY: no other thread is there yet, and the default action is no handler of ours.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

fn main() -> ExitCode {
    end_with_the_reader();
    let result = match Cli::parse().command {
        None => commands::run::run(&cli::defaults::<RunArgs>()),
        Some(Command::New(args)) => commands::new::run(&args),
        Some(Command::Watch(args)) => commands::watch::run(&args),
        Some(Command::Run(args)) => commands::run::run(&args),
        Some(Command::Doctor(args)) => commands::doctor::run(&args),
        Some(Command::Kernels(args)) => commands::kernels::run(&args),
        Some(Command::Check(args)) => commands::check::run(&args),
        Some(Command::Compare(args)) => commands::compare::run(&args),
        Some(Command::Profile(args)) => commands::profile::run(&args),
        Some(Command::Inspect(args)) => commands::inspect::run(&args),
        Some(Command::Budget(args)) => commands::budget::run(&args),
        Some(Command::Tune(args)) => commands::tune::run(&args),
        Some(Command::Completions(args)) => commands::shell::completions(&args),
        Some(Command::Man(args)) => commands::shell::man(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.exit_code()
        }
    }
}
