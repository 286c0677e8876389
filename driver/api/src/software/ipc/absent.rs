//! Where processes cannot share memory as `segment` does.

use std::convert::Infallible;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use warpsmith_simt::Interprocess;

use super::{Handle, Kind, Refusal};
use crate::codes::Code;

/// Storage that processes share: there is none.
pub(crate) struct Segment(Infallible);

/// As in `segment`.
#[allow(dead_code)]
pub(crate) struct Marks {
    pub recorded: AtomicU64,
    pub passed: AtomicU64,
    pub given_up: AtomicU64,
    pub recorder: AtomicU64,
}

impl Segment {
    pub fn new(_: Kind, _: u64) -> Result<Segment, Refusal> {
        Err(Refusal { code: Code::NOT_SUPPORTED, why: "processes share memory on Linux alone".to_owned() })
    }
    pub fn open(_: &Handle) -> Result<Segment, Refusal> {
        Segment::new(Kind::Memory, 0)
    }
    pub fn handle(&self) -> Handle {
        match self.0 {}
    }
    pub fn bytes(&self) -> u64 {
        match self.0 {}
    }
    pub fn marks(&self) -> &Marks {
        match self.0 {}
    }
    pub fn free(&self) {
        match self.0 {}
    }
    pub fn freed(&self) -> bool {
        match self.0 {}
    }
    pub fn others(&self) -> bool {
        match self.0 {}
    }
}

/// As in `segment`.
pub(super) fn me() -> u64 {
    0
}

/// As in `segment`.
pub(super) fn is_alive(_: u64) -> bool {
    true
}

// SAFETY: there is no value.
unsafe impl Interprocess for Segment {
    fn host(&self) -> NonNull<u8> {
        match self.0 {}
    }
    fn is_freed(&self) -> bool {
        match self.0 {}
    }
    fn has_others(&self) -> bool {
        match self.0 {}
    }
}
