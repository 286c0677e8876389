//! The keys of an architecture in a file: found by their names, and named in errors.

use super::ModelError;
use crate::gguf::Gguf;

pub(super) struct Keys<'a> {
    pub file: &'a Gguf,
    pub prefix: &'static str,
}

impl Keys<'_> {
    pub fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.prefix)
    }

    pub fn wrong(&self, key: &str, value: impl std::fmt::Display, reason: String) -> ModelError {
        ModelError::Config { key: self.name(key), value: value.to_string(), reason }
    }

    pub fn optional_count(&self, key: &str) -> Result<Option<usize>, ModelError> {
        match self.file.u32(&self.name(key))? {
            // Kernels take shapes as u32 and multiply two of them as u64.
            Some(0) => Err(self.wrong(key, 0, "expected one or more".into())),
            other => Ok(other.map(|n| n as usize)),
        }
    }

    pub fn count_or(&self, key: &str, default: usize) -> Result<usize, ModelError> {
        Ok(self.optional_count(key)?.unwrap_or(default))
    }

    pub fn count(&self, key: &str) -> Result<usize, ModelError> {
        match self.optional_count(key)? {
            Some(n) => Ok(n),
            None => Ok(self.file.require_u32(&self.name(key))? as usize),
        }
    }
}
