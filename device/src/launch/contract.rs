//! Checks for [`Contract::check`](super::Contract::check), with errors that name kernel, argument,
//! expected and actual.
//!
//! ```
//! # use warpsmith_device::{contract, ContractError, KernelMeta};
//! # fn check(meta: &'static KernelMeta, x_len: usize, rows: u32, cols: u32) -> Result<(), ContractError> {
//! let n = contract::product(meta, "x", &[rows.into(), cols.into()])?;
//! contract::at_least(meta, "x", x_len, (n, "rows * cols"))?;
//! contract::multiple_of(meta, "cols", cols, 4)?;
//! # Ok(())
//! # }
//! ```

use super::KernelMeta;
use crate::DeviceAddress;
use std::fmt;

/// A launch breaks its kernel's contract; nothing was launched.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kernel}: argument `{argument}`: expected {expected}, got {actual}")]
pub struct ContractError {
    /// The kernel's entry name.
    pub kernel: &'static str,
    /// The argument, or the part of the launch, that is wrong.
    pub argument: &'static str,
    /// What the contract asks for, with units.
    pub expected: String,
    /// What was given.
    pub actual: String,
}

/// The text of `Display`: what a `main` that returns the error, or an `unwrap`, prints.
impl fmt::Debug for ContractError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A number with, at choice, the words for where it comes from: `256u32` or `(256u32, "cols")`.
///
/// A negative number becomes `u64::MAX`, which no length reaches and no limit allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    count: u64,
    what: &'static str,
}

impl Extent {
    /// The number.
    pub const fn count(self) -> u64 {
        self.count
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what {
            "" => write!(f, "{}", self.count),
            what => write!(f, "{} ({what})", self.count),
        }
    }
}

macro_rules! extents {
    ($($t:ty),*) => { $(
        impl From<$t> for Extent {
            fn from(n: $t) -> Extent {
                Extent::from((n, ""))
            }
        }
        impl From<($t, &'static str)> for Extent {
            fn from((n, what): ($t, &'static str)) -> Extent {
                Extent { count: u64::try_from(n).unwrap_or(u64::MAX), what }
            }
        }
    )* };
}
extents!(u8, u16, u32, u64, usize, i32, i64);

impl From<(DeviceAddress, &'static str)> for Extent {
    fn from((address, what): (DeviceAddress, &'static str)) -> Extent {
        Extent::from((address.raw(), what))
    }
}

fn elements(n: Extent) -> String {
    let unit = if n.count == 1 { "element" } else { "elements" };
    match n.what {
        "" => format!("{} {unit}", n.count),
        what => format!("{} {unit} ({what})", n.count),
    }
}

/// An error of your own words.
pub fn error(
    meta: &'static KernelMeta,
    argument: &'static str,
    expected: impl fmt::Display,
    actual: impl fmt::Display,
) -> ContractError {
    ContractError { kernel: meta.name, argument, expected: expected.to_string(), actual: actual.to_string() }
}

/// `condition` must hold.
pub fn require(
    meta: &'static KernelMeta,
    condition: bool,
    argument: &'static str,
    expected: impl fmt::Display,
    actual: impl fmt::Display,
) -> Result<(), ContractError> {
    if condition { Ok(()) } else { Err(error(meta, argument, expected, actual)) }
}

/// A buffer of `len` elements must have `n` or more.
pub fn at_least(
    meta: &'static KernelMeta,
    argument: &'static str,
    len: usize,
    n: impl Into<Extent>,
) -> Result<(), ContractError> {
    let n = n.into();
    if len as u64 >= n.count {
        return Ok(());
    }
    Err(error(meta, argument, format!("at least {}", elements(n)), len))
}

/// A buffer of `len` elements must have `n`.
pub fn exactly(
    meta: &'static KernelMeta,
    argument: &'static str,
    len: usize,
    n: impl Into<Extent>,
) -> Result<(), ContractError> {
    let n = n.into();
    if len as u64 == n.count {
        return Ok(());
    }
    Err(error(meta, argument, elements(n), len))
}

/// `value` must be a multiple of `of`. Zero is a multiple of everything; nothing is one of zero.
pub fn multiple_of(
    meta: &'static KernelMeta,
    argument: &'static str,
    value: impl Into<Extent>,
    of: impl Into<Extent>,
) -> Result<(), ContractError> {
    let (value, of) = (value.into(), of.into());
    if of.count != 0 && value.count.is_multiple_of(of.count) {
        return Ok(());
    }
    Err(error(meta, argument, format!("a multiple of {of}"), value))
}

/// `value` must be in `low..=high`.
pub fn within(
    meta: &'static KernelMeta,
    argument: &'static str,
    value: impl Into<Extent>,
    low: impl Into<Extent>,
    high: impl Into<Extent>,
) -> Result<(), ContractError> {
    let (value, low, high) = (value.into(), low.into(), high.into());
    if (low.count..=high.count).contains(&value.count) {
        return Ok(());
    }
    Err(error(meta, argument, format!("{low} to {high}"), value))
}

/// The product of a shape, which must fit an index.
pub fn product(meta: &'static KernelMeta, argument: &'static str, shape: &[u64]) -> Result<u64, ContractError> {
    shape
        .iter()
        .try_fold(1u64, |n, &d| n.checked_mul(d))
        .filter(|&n| n <= i64::MAX as u64)
        .ok_or_else(|| error(meta, argument, "a shape of fewer than 2^63 elements", format!("{shape:?}")))
}
