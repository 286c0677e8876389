//! Values of JSON files, with errors that name the file and the key.

use super::CheckpointError;
use serde_json::{Map, Value};
use std::path::Path;

/// An object of a JSON file.
#[derive(Clone, Copy)]
pub(super) struct Object<'a> {
    pub file: &'static str,
    /// The keys that it is in, each with a point behind it.
    within: &'a str,
    map: &'a Map<String, Value>,
}

/// A file of a folder; `None` where it is not there.
pub(super) fn read(folder: &Path, name: &str) -> Result<Option<Value>, CheckpointError> {
    let path = folder.join(name);
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(CheckpointError::io(&path)(e)),
    };
    serde_json::from_slice(&text).map(Some).map_err(|e| CheckpointError::Json { path, reason: e.to_string() })
}

impl<'a> Object<'a> {
    /// What a file holds.
    pub fn of_file(file: &'static str, value: &'a Value) -> Result<Object<'a>, CheckpointError> {
        Self::within(file, "", value)
    }

    pub fn within(file: &'static str, within: &'a str, value: &'a Value) -> Result<Object<'a>, CheckpointError> {
        let Value::Object(map) = value else {
            let key = within.trim_end_matches('.').to_owned();
            return Err(CheckpointError::Key { file, key, reason: format!("is {}, expected an object", kind(value)) });
        };
        Ok(Object { file, within, map })
    }

    pub fn wrong(&self, key: &str, reason: impl Into<String>) -> CheckpointError {
        CheckpointError::Key { file: self.file, key: format!("{}{key}", self.within), reason: reason.into() }
    }

    /// A value that is there and not null.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|v| !v.is_null())
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, CheckpointError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match read(value) {
            Some(v) => Ok(Some(v)),
            None => Err(self.wrong(key, format!("is {}, expected {expected}", kind(value)))),
        }
    }

    pub fn count(&self, key: &str) -> Result<Option<u32>, CheckpointError> {
        self.typed(key, "a whole number below 2^32", |v| v.as_u64()?.try_into().ok())
    }

    pub fn require_count(&self, key: &str) -> Result<u32, CheckpointError> {
        self.count(key)?.ok_or_else(|| self.wrong(key, "is missing"))
    }

    pub fn number(&self, key: &str) -> Result<Option<f64>, CheckpointError> {
        self.typed(key, "a number", Value::as_f64)
    }

    pub fn flag(&self, key: &str) -> Result<Option<bool>, CheckpointError> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub fn text(&self, key: &str) -> Result<Option<&'a str>, CheckpointError> {
        self.typed(key, "a string", Value::as_str)
    }

    pub fn list(&self, key: &str) -> Result<Option<&'a [Value]>, CheckpointError> {
        self.typed(key, "a list", |v| v.as_array().map(Vec::as_slice))
    }

    pub fn map(&self, key: &str) -> Result<Option<&'a Map<String, Value>>, CheckpointError> {
        self.typed(key, "an object", Value::as_object)
    }

    /// Numbers of a list.
    pub fn numbers(&self, key: &str) -> Result<Option<Vec<f32>>, CheckpointError> {
        self.typed(key, "a list of numbers", |v| v.as_array()?.iter().map(|n| n.as_f64().map(|n| n as f32)).collect())
    }
}

fn kind(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
        Value::String(text) => format!("{:?}", text.chars().take(60).collect::<String>()),
        other => other.to_string(),
    }
}
