//! Keys of a GGUF file as those who read `config.json` write them.

use crate::gguf::{GgufWriter, OwnedValue};
use crate::model::Architecture;

/// Where they are read.
pub(super) const FILE: &str = "config.json";

/// Keys as they are written: behind the architecture's name and a point.
pub(super) struct KeyWriter<'a> {
    pub architecture: Architecture,
    pub writer: &'a mut GgufWriter,
}

impl KeyWriter<'_> {
    pub fn set(&mut self, key: &str, value: impl Into<OwnedValue>) {
        self.writer.key(format!("{}.{key}", self.architecture.name()), value);
    }
}
