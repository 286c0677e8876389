//! `cust` 0.3.2. The package that is published is made of its source, without its build script; see the README.

pub use cust::*;
