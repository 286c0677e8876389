//! One module a command.

pub mod doctor;
pub mod kernels;
pub mod run;
