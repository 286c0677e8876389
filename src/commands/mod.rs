//! One module a command.

pub mod add;
pub mod approximate;
pub mod bench_model;
pub mod budget;
pub mod chat;
pub mod check;
pub mod compare;
pub mod doctor;
mod estimate;
pub mod inspect;
pub mod kernels;
mod named;
pub mod new;
mod processes;
pub mod profile;
pub mod project;
pub mod projection;
pub mod run;
mod session;
pub mod shell;
pub mod tune;
pub mod watch;

/// A path as a user in the current folder writes it.
fn shown(path: &std::path::Path) -> String {
    let current = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(&current).unwrap_or(path).display().to_string()
}
