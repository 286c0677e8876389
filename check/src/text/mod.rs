//! The sentences of findings, made from their fields when somebody reads them.

mod finding;
mod help;
mod memory;
mod message;
mod site;
