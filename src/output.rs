//! The one writer of standard output, and of messages.
//!
//! `println!`, `print!`, `eprintln!` and `eprint!` of this program are those of this file: where the standard ones panic, as on a
//! full disk, these remember the first error, print nothing more, and [`check`] tells it, so that the program ends with a
//! message and exit code 1. Whatever a command prints, in whatever file, goes through here.

use std::fmt::Arguments;
use std::io::Write;
use std::sync::OnceLock;

use crate::failure::{Failure, Kind};

/// Why standard output cannot be written to any more.
static FAILED: OnceLock<String> = OnceLock::new();

/// Writes to standard output, or remembers why not.
pub fn write(text: Arguments<'_>) {
    if FAILED.get().is_none() {
        note(std::io::stdout().lock().write_fmt(text));
    }
}

/// Shows what was written without a line break.
pub fn flush() {
    if FAILED.get().is_none() {
        note(std::io::stdout().lock().flush());
    }
}

/// Prints a report as one JSON object.
pub fn json(report: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(report).map_err(|e| Failure::new(Kind::Operation, e.to_string()))?;
    write(format_args!("{text}\n"));
    Ok(())
}

/// Remembers an error of somebody else's writing to standard output.
pub fn note(result: std::io::Result<()>) {
    if let Err(error) = result {
        // A second error says less than the first.
        let _ = FAILED.set(error.to_string());
    }
}

/// Whether all that was printed was written.
pub fn check() -> Result<(), Failure> {
    flush();
    match FAILED.get() {
        None => Ok(()),
        Some(error) => Err(Failure::new(Kind::Operation, format!("cannot write to standard output: {error}"))),
    }
}

/// Writes to standard error. Where that fails there is nobody to tell.
pub fn message(text: Arguments<'_>) {
    let _ = std::io::stderr().lock().write_fmt(text);
}

macro_rules! print {
    ($($text:tt)*) => { $crate::output::write(format_args!($($text)*)) };
}

macro_rules! println {
    () => { $crate::output::write(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::write(format_args!("{}\n", format_args!($($text)*))) };
}

macro_rules! eprintln {
    () => { $crate::output::message(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::message(format_args!("{}\n", format_args!($($text)*))) };
}
