//! The tensors of a folder: headers of safetensors files, and the bytes behind them.
//!
//! A file is eight bytes with the length of its header, the header in JSON, and the tensors without gaps. Only headers are kept.

use super::CheckpointError;
use crate::gguf::read_exact_at;
use safetensors::Dtype;
use safetensors::tensor::Metadata;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};

/// The one file of a model that is not split.
const WHOLE: &str = "model.safetensors";
/// What lists the files of a model that is.
const INDEX: &str = "model.safetensors.index.json";
/// Bytes of a header at most, as in the library.
const LARGEST_HEADER: u64 = 100_000_000;
/// Bytes of the length that a file begins with.
const LENGTH: u64 = 8;

struct Shard {
    path: PathBuf,
    file: File,
}

/// Where a tensor is.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub name: String,
    pub dtype: Dtype,
    /// The contiguous axis last.
    pub shape: Vec<usize>,
    shard: usize,
    offset: u64,
    pub bytes: usize,
}

impl Stored {
    /// Rows and columns of a matrix.
    pub fn matrix(&self) -> Result<[usize; 2], CheckpointError> {
        match self.shape[..] {
            [rows, cols] if rows > 0 && cols > 0 => Ok([rows, cols]),
            _ => Err(self.misshapen("two dimensions, neither of them zero")),
        }
    }

    pub fn misshapen(&self, expected: impl Into<String>) -> CheckpointError {
        CheckpointError::Shape { tensor: self.name.clone(), actual: self.shape.clone(), expected: expected.into() }
    }

    pub fn mistyped(&self, supported: &'static str) -> CheckpointError {
        CheckpointError::Dtype { tensor: self.name.clone(), actual: self.dtype.to_string(), supported }
    }

    /// That it has this shape.
    pub fn expect(&self, shape: &[usize], why: &str) -> Result<(), CheckpointError> {
        if self.shape == shape { Ok(()) } else { Err(self.misshapen(format!("{shape:?} ({why})"))) }
    }
}

/// All tensors of a folder, by name.
pub(super) struct Shards {
    shards: Vec<Shard>,
    tensors: BTreeMap<String, Stored>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: HashMap<String, String>,
}

impl Shards {
    /// Reads the headers of a folder's files and checks them against the files and, where they are several, the index.
    pub fn open(folder: &Path) -> Result<Shards, CheckpointError> {
        let mut all = Shards { shards: Vec::new(), tensors: BTreeMap::new() };
        let index = folder.join(INDEX);
        // As transformers do, a whole file goes before an index.
        if folder.join(WHOLE).exists() || !index.exists() {
            all.add(folder.join(WHOLE))?;
            return Ok(all);
        }
        let text = std::fs::read(&index).map_err(CheckpointError::io(&index))?;
        let parsed = serde_json::from_slice::<Index>(&text)
            .map_err(|e| CheckpointError::Json { path: index.clone(), reason: e.to_string() })?;
        // Each file once, with a tensor that is said to be in it.
        let files: BTreeMap<&str, &str> = parsed.weight_map.iter().map(|(t, f)| (f.as_str(), t.as_str())).collect();
        for (name, tensor) in files {
            // A name, not a way out of the folder.
            if Path::new(name).file_name() != Some(name.as_ref()) {
                let reason = format!("`{tensor}` is said to be in `{name}`, which is no name of a file");
                return Err(CheckpointError::Json { path: index, reason });
            }
            let path = folder.join(name);
            if !path.exists() {
                return Err(CheckpointError::MissingShard { path, tensor: tensor.to_owned() });
            }
            all.add(path)?;
        }
        match parsed.weight_map.into_keys().find(|name| !all.tensors.contains_key(name)) {
            Some(tensor) => Err(CheckpointError::MissingTensor { tensor }),
            None => Ok(all),
        }
    }

    fn add(&mut self, path: PathBuf) -> Result<(), CheckpointError> {
        let file = File::open(&path).map_err(CheckpointError::io(&path))?;
        let len = file.metadata().map_err(CheckpointError::io(&path))?.len();
        let (data, header) = header(&file, len).map_err(|e| match e {
            Unread::Io(source) => CheckpointError::Io { path: path.clone(), source },
            Unread::Wrong(reason) => CheckpointError::Header { path: path.clone(), reason },
        })?;
        let shard = self.shards.len();
        for (name, info) in header.tensors() {
            let (start, end) = info.data_offsets;
            let stored = Stored {
                name: name.clone(),
                dtype: info.dtype,
                shape: info.shape.clone(),
                shard,
                offset: data + start as u64,
                bytes: end - start,
            };
            if let Some(first) = self.tensors.insert(name.clone(), stored) {
                let first = self.shards.get(first.shard).map_or_else(PathBuf::new, |s| s.path.clone());
                return Err(CheckpointError::DuplicateTensor { tensor: name, first, second: path });
            }
        }
        self.shards.push(Shard { path, file });
        Ok(())
    }

    /// All names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    pub fn get(&self, name: &str) -> Option<&Stored> {
        self.tensors.get(name)
    }

    pub fn require(&self, name: &str) -> Result<&Stored, CheckpointError> {
        self.get(name).ok_or_else(|| CheckpointError::MissingTensor { tensor: name.to_owned() })
    }

    /// Copies the bytes of a tensor from `at` on; as many as `to` has.
    pub fn read(&self, t: &Stored, at: usize, to: &mut [u8]) -> Result<(), CheckpointError> {
        let path = || self.shards.get(t.shard).map_or_else(PathBuf::new, |s| s.path.clone());
        let inside = at.checked_add(to.len()).is_some_and(|end| end <= t.bytes);
        let read = match self.shards.get(t.shard) {
            Some(shard) if inside => read_exact_at(&shard.file, t.offset + at as u64, to),
            _ => Err(std::io::ErrorKind::InvalidInput.into()),
        };
        read.map_err(|source| CheckpointError::Io { path: path(), source })
    }

    /// A copy of all bytes of a tensor.
    pub fn bytes(&self, t: &Stored) -> Result<Vec<u8>, CheckpointError> {
        // Its size was checked against that of the file.
        let mut bytes = vec![0; t.bytes];
        self.read(t, 0, &mut bytes)?;
        Ok(bytes)
    }

    /// The numbers of a tensor of floats.
    pub fn floats(&self, t: &Stored) -> Result<Vec<f32>, CheckpointError> {
        floats(t, &self.bytes(t)?)
    }

    /// The numbers of a tensor of 32-bit integers.
    pub fn integers(&self, t: &Stored) -> Result<Vec<u32>, CheckpointError> {
        if !matches!(t.dtype, Dtype::I32 | Dtype::U32) {
            return Err(t.mistyped("I32"));
        }
        Ok(self.bytes(t)?.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect())
    }

    /// The numbers of a tensor of integers of 32 bits or 64.
    pub fn whole_numbers(&self, t: &Stored) -> Result<Vec<u64>, CheckpointError> {
        match t.dtype {
            Dtype::I64 | Dtype::U64 => {
                Ok(self.bytes(t)?.as_chunks::<8>().0.iter().map(|b| u64::from_le_bytes(*b)).collect())
            }
            _ => Ok(self.integers(t)?.into_iter().map(u64::from).collect()),
        }
    }
}

/// Elements of a tensor of floats of any width as f32, exactly.
pub(super) fn floats(t: &Stored, bytes: &[u8]) -> Result<Vec<f32>, CheckpointError> {
    let halves = || bytes.as_chunks::<2>().0.iter();
    match t.dtype {
        Dtype::F32 => Ok(bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()),
        Dtype::F16 => Ok(halves().map(|b| half::f16::from_le_bytes(*b).to_f32()).collect()),
        Dtype::BF16 => Ok(halves().map(|b| half::bf16::from_le_bytes(*b).to_f32()).collect()),
        _ => Err(t.mistyped("F32, F16, BF16")),
    }
}

enum Unread {
    Io(std::io::Error),
    Wrong(String),
}

/// The header of a file of that length, and where its tensors begin.
fn header(file: &File, len: u64) -> Result<(u64, Metadata), Unread> {
    let wrong = |reason: String| Err(Unread::Wrong(reason));
    if len < LENGTH {
        return wrong(format!("it has {len} bytes, which is no safetensors file"));
    }
    let mut length = [0; LENGTH as usize];
    read_exact_at(file, 0, &mut length).map_err(Unread::Io)?;
    let length = u64::from_le_bytes(length);
    if length > LARGEST_HEADER.min(len - LENGTH) {
        return wrong(format!("its header would have {length} bytes, in a file of {len}: it is truncated or corrupt"));
    }
    let mut text = vec![0; length as usize];
    read_exact_at(file, LENGTH, &mut text).map_err(Unread::Io)?;
    // Checks that tensors lie one behind the other and are as long as their types and shapes say.
    let header: Metadata = match serde_json::from_slice(&text) {
        Ok(header) => header,
        Err(e) => return wrong(format!("its header is damaged: {e}")),
    };
    let data = LENGTH + length;
    if data.checked_add(header.data_len() as u64) != Some(len) {
        let (needed, there) = (header.data_len(), len - data);
        return wrong(format!("its tensors take {needed} bytes, and it has {there}: it is truncated or corrupt"));
    }
    Ok((data, header))
}
