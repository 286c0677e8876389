//! Writing GGUF v3 files: for small test models and for tools.

use super::{GgufError, TensorType, ValueType};
use std::path::Path;

/// A metadata value to write.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum OwnedValue {
    U8(u8),
    U16(u16),
    U32(u32),
    U64(u64),
    I32(i32),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    String(String),
    Strings(Vec<String>),
    U32s(Vec<u32>),
    I32s(Vec<i32>),
    F32s(Vec<f32>),
    Bools(Vec<bool>),
}

macro_rules! from {
    ($($t:ty => $variant:ident),*) => {
        $(impl From<$t> for OwnedValue {
            fn from(v: $t) -> Self { OwnedValue::$variant(v) }
        })*
    };
}
from!(u8 => U8, u16 => U16, u32 => U32, u64 => U64, i32 => I32, i64 => I64, f32 => F32, f64 => F64, bool => Bool, String => String,
      Vec<String> => Strings, Vec<u32> => U32s, Vec<i32> => I32s, Vec<f32> => F32s,
      Vec<bool> => Bools);

impl From<&str> for OwnedValue {
    fn from(v: &str) -> Self {
        OwnedValue::String(v.to_owned())
    }
}

/// Collects keys and tensors and writes them as one GGUF v3 file.
///
/// Names and shapes are checked by reading the result back ([`super::Gguf::from_bytes`]); here only the
/// length of a tensor's bytes is. Tensors are packed in the order given, padded to the alignment.
///
/// ```
/// use warpsmith_llm::gguf::{Gguf, GgufWriter, TensorType};
/// let mut w = GgufWriter::new();
/// w.key("general.architecture", "llama");
/// w.tensor("x", &[4], TensorType::F32, vec![0; 16])?;
/// assert_eq!(Gguf::from_bytes(w.to_bytes())?.tensors()[0].cols(), 4);
/// # Ok::<(), warpsmith_llm::gguf::GgufError>(())
/// ```
#[derive(Clone, Debug)]
pub struct GgufWriter {
    version: u32,
    alignment: usize,
    keys: Vec<(String, OwnedValue)>,
    tensors: Vec<(String, Vec<u64>, u32, Vec<u8>)>,
}

impl Default for GgufWriter {
    fn default() -> Self {
        Self::new()
    }
}

impl GgufWriter {
    /// An empty file, version 3, alignment 32.
    pub fn new() -> Self {
        GgufWriter { version: 3, alignment: 32, keys: Vec::new(), tensors: Vec::new() }
    }

    /// Writes another version number; the layout of version 2 is the same.
    pub fn version(&mut self, version: u32) -> &mut Self {
        self.version = version;
        self
    }

    /// Sets the alignment and its key. `alignment` must be a power of two.
    pub fn alignment(&mut self, alignment: u32) -> &mut Self {
        self.alignment = (alignment as usize).max(1);
        self.key("general.alignment", alignment)
    }

    /// Adds a key, or replaces its value.
    pub fn key(&mut self, name: impl Into<String>, value: impl Into<OwnedValue>) -> &mut Self {
        let (name, value) = (name.into(), value.into());
        match self.keys.iter_mut().find(|(n, _)| *n == name) {
            Some((_, old)) => *old = value,
            None => self.keys.push((name, value)),
        }
        self
    }

    /// Removes a key.
    pub fn remove_key(&mut self, name: &str) -> &mut Self {
        self.keys.retain(|(n, _)| n != name);
        self
    }

    /// Adds a tensor: dimensions with the contiguous axis first, bytes in the type's block layout.
    pub fn tensor(
        &mut self,
        name: impl Into<String>,
        dims: &[u64],
        kind: TensorType,
        data: Vec<u8>,
    ) -> Result<&mut Self, GgufError> {
        let name = name.into();
        let expected =
            dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d)).and_then(|n| kind.bytes_for(n)).unwrap_or(u64::MAX);
        if expected != data.len() as u64 {
            return Err(GgufError::WriteLength { tensor: name, expected, actual: data.len() as u64 });
        }
        self.tensors.push((name, dims.to_vec(), kind.id(), data));
        Ok(self)
    }

    /// Adds a 1-D or 2-D tensor of f32 values.
    pub fn tensor_f32(&mut self, name: impl Into<String>, dims: &[u64], data: &[f32]) -> Result<&mut Self, GgufError> {
        self.tensor(name, dims, TensorType::F32, data.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// Removes a tensor.
    pub fn remove_tensor(&mut self, name: &str) -> &mut Self {
        self.tensors.retain(|t| t.0 != name);
        self
    }

    /// The bytes of a tensor that was added, to change them.
    pub fn tensor_data_mut(&mut self, name: &str) -> Option<&mut [u8]> {
        self.tensors.iter_mut().find(|t| t.0 == name).map(|t| t.3.as_mut_slice())
    }

    /// The whole file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(b"GGUF");
        put32(&mut out, self.version);
        put64(&mut out, self.tensors.len() as u64);
        put64(&mut out, self.keys.len() as u64);
        for (name, value) in &self.keys {
            put_text(&mut out, name);
            put_value(&mut out, value);
        }
        let mut offset = 0usize;
        for (name, dims, id, data) in &self.tensors {
            put_text(&mut out, name);
            put32(&mut out, dims.len() as u32);
            dims.iter().for_each(|&d| put64(&mut out, d));
            put32(&mut out, *id);
            put64(&mut out, offset as u64);
            offset = (offset + data.len()).next_multiple_of(self.alignment);
        }
        for (_, _, _, data) in &self.tensors {
            out.resize(out.len().next_multiple_of(self.alignment), 0);
            out.extend_from_slice(data);
        }
        out
    }

    /// Writes the file.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), GgufError> {
        let path = path.as_ref();
        std::fs::write(path, self.to_bytes()).map_err(|source| GgufError::Io { path: path.to_owned(), source })
    }
}

fn put32(out: &mut Vec<u8>, v: u32) {
    out.extend_from_slice(&v.to_le_bytes());
}

fn put64(out: &mut Vec<u8>, v: u64) {
    out.extend_from_slice(&v.to_le_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put64(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn put_array(out: &mut Vec<u8>, element: ValueType, count: usize) {
    put32(out, ValueType::Array.id());
    put32(out, element.id());
    put64(out, count as u64);
}

fn put_value(out: &mut Vec<u8>, value: &OwnedValue) {
    macro_rules! plain {
        ($v:expr, $t:ident) => {{
            put32(out, ValueType::$t.id());
            out.extend_from_slice(&$v.to_le_bytes());
        }};
    }
    match value {
        OwnedValue::U8(v) => plain!(v, U8),
        OwnedValue::U16(v) => plain!(v, U16),
        OwnedValue::U32(v) => plain!(v, U32),
        OwnedValue::U64(v) => plain!(v, U64),
        OwnedValue::I32(v) => plain!(v, I32),
        OwnedValue::I64(v) => plain!(v, I64),
        OwnedValue::F32(v) => plain!(v, F32),
        OwnedValue::F64(v) => plain!(v, F64),
        OwnedValue::Bool(v) => {
            put32(out, ValueType::Bool.id());
            out.push(u8::from(*v));
        }
        OwnedValue::String(v) => {
            put32(out, ValueType::String.id());
            put_text(out, v);
        }
        OwnedValue::Strings(v) => {
            put_array(out, ValueType::String, v.len());
            v.iter().for_each(|s| put_text(out, s));
        }
        OwnedValue::U32s(v) => {
            put_array(out, ValueType::U32, v.len());
            v.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes()));
        }
        OwnedValue::I32s(v) => {
            put_array(out, ValueType::I32, v.len());
            v.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes()));
        }
        OwnedValue::F32s(v) => {
            put_array(out, ValueType::F32, v.len());
            v.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes()));
        }
        OwnedValue::Bools(v) => {
            put_array(out, ValueType::Bool, v.len());
            out.extend(v.iter().map(|x| u8::from(*x)));
        }
    }
}
