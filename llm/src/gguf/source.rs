//! Where the bytes of a file come from.
//!
//! A file is read, never mapped: another process may change or shorten it at any time, and a `&[u8]` or a `&str` into a mapping
//! would change under its reader, or end in a signal. What is read is a copy, and a file that has become too short is an error.

use super::GgufError;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

/// A tensor that is no bytes of a file: it is made when it is read.
pub(crate) trait MadeTensor: Send + Sync {
    /// Writes its bytes from byte `at` on, as many as `to` has; there are so many.
    fn read(&self, at: usize, to: &mut [u8]) -> Result<(), GgufError>;

    /// Which element of its input each column is multiplied with, where that is another than that of its number: each once.
    fn columns(&self) -> Option<&Arc<[u32]>> {
        None
    }
}

/// Made tensors, and where each begins.
pub(super) type MadeTensors = Vec<(u64, Box<dyn MadeTensor>)>;

/// An open file, or bytes in memory, or tensors that are made.
pub(super) enum Source {
    File {
        file: File,
        len: u64,
        path: PathBuf,
    },
    Memory(Vec<u8>),
    /// By rising begin.
    Made {
        tensors: MadeTensors,
        len: u64,
        path: PathBuf,
    },
}

static NOTHING: Source = Source::Memory(Vec::new());

impl Source {
    /// Bytes, as they were counted when it was opened.
    pub(super) fn len(&self) -> u64 {
        match self {
            Source::File { len, .. } | Source::Made { len, .. } => *len,
            Source::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// The made tensor that has the byte at `offset`, and where that begins.
    fn made(&self, offset: u64) -> Option<&(u64, Box<dyn MadeTensor>)> {
        let Source::Made { tensors, .. } = self else { return None };
        tensors.get(tensors.partition_point(|(begin, _)| *begin <= offset).checked_sub(1)?)
    }

    /// Copies the bytes from `offset` on; `what` names them in the error.
    pub(super) fn read(&self, offset: u64, to: &mut [u8], what: impl Fn() -> String) -> Result<(), GgufError> {
        let gone = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        let read = match self {
            Source::File { file, .. } => read_exact_at(file, offset, to),
            Source::Made { .. } => match self.made(offset) {
                Some((begin, tensor)) => return tensor.read((offset - begin) as usize, to),
                None => Err(gone()),
            },
            Source::Memory(bytes) => {
                let start = usize::try_from(offset).ok();
                let from = start.and_then(|s| bytes.get(s..s.checked_add(to.len())?));
                from.map(|from| to.copy_from_slice(from)).ok_or_else(gone)
            }
        };
        read.map_err(|source| GgufError::Read { what: what(), offset, needed: to.len() as u64, source })
    }
}

/// Copies bytes of a file from `offset` on, as many as `to` has.
#[cfg(unix)]
pub(crate) fn read_exact_at(file: &File, offset: u64, to: &mut [u8]) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, to, offset)
}

/// Copies bytes of a file from `offset` on, as many as `to` has.
#[cfg(windows)]
pub(crate) fn read_exact_at(file: &File, mut offset: u64, mut to: &mut [u8]) -> std::io::Result<()> {
    while !to.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, to, offset)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            n => {
                to = &mut std::mem::take(&mut to)[n..];
                offset += n as u64;
            }
        }
    }
    Ok(())
}

/// The bytes of a tensor, in its type's block layout: in a file, from which they are copied.
///
/// Each copy is what the file holds at that moment. What is copied twice may differ, where another process writes the file
/// meanwhile; nothing that was copied changes.
#[derive(Clone, Copy)]
pub struct TensorData<'a> {
    source: &'a Source,
    name: &'a str,
    offset: u64,
    len: usize,
    scaled: Option<Scaled<'a>>,
}

/// Numbers that stand behind the blocks of a tensor as it is read, each for so many blocks.
#[derive(Clone, Copy)]
struct Scaled<'a> {
    values: &'a [f32],
    blocks: usize,
    /// Bytes of a block in the file.
    stored: usize,
    /// Where what is read begins, in bytes of the tensor as it is read.
    from: usize,
}

impl<'a> TensorData<'a> {
    pub(super) fn new(source: &'a Source, name: &'a str, offset: u64, len: usize) -> TensorData<'a> {
        TensorData { source, name, offset, len, scaled: None }
    }

    /// Of nothing.
    pub(crate) fn empty() -> TensorData<'static> {
        TensorData { source: &NOTHING, name: "", offset: 0, len: 0, scaled: None }
    }

    /// Those of its bytes from `at` on, as many as `len`; nothing where it has not so many.
    pub(crate) fn part(self, at: usize, len: usize) -> TensorData<'a> {
        match at.checked_add(len) {
            Some(end) if end <= self.len => match self.scaled {
                Some(scaled) => TensorData { len, scaled: Some(Scaled { from: scaled.from + at, ..scaled }), ..self },
                None => TensorData { offset: self.offset + at as u64, len, ..self },
            },
            _ => TensorData { len: 0, ..self },
        }
    }

    /// The tensor with a number behind each of its blocks of `stored` bytes, an equal part of them for each of `values`; nothing where
    /// there are no such parts.
    pub(crate) fn scaled(self, stored: usize, values: &'a [f32]) -> TensorData<'a> {
        let all = self.len / stored.max(1);
        match (all.checked_div(values.len()), all.checked_mul(stored + 4)) {
            (Some(blocks), Some(len)) if blocks > 0 && blocks * values.len() * stored == self.len => {
                TensorData { len, scaled: Some(Scaled { values, blocks, stored, from: 0 }), ..self }
            }
            _ => TensorData { len: 0, ..self },
        }
    }

    /// Which element of its input each column is multiplied with, where that is another than that of its number: each once.
    pub(crate) fn columns(&self) -> Option<&'a Arc<[u32]>> {
        self.source.made(self.offset)?.1.columns()
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies the bytes from byte `at` on, as many as `to` has.
    pub fn read(&self, at: usize, to: &mut [u8]) -> Result<(), GgufError> {
        let what = || format!("tensor `{}`", self.name);
        if at.checked_add(to.len()).is_none_or(|end| end > self.len) {
            let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, format!("it has {} bytes", self.len));
            return Err(GgufError::Read { what: what(), offset: at as u64, needed: to.len() as u64, source });
        }
        let Some(Scaled { values, blocks, stored, from }) = self.scaled else {
            return self.source.read(self.offset + at as u64, to, what);
        };
        let (at, size) = (from + at, stored + 4);
        let (first, end) = (at / size, (at + to.len()).div_ceil(size));
        let mut bytes = vec![0; (end - first) * stored];
        self.source.read(self.offset + (first * stored) as u64, &mut bytes, what)?;
        let mut all = Vec::with_capacity((end - first) * size);
        for (block, bytes) in (first..end).zip(bytes.chunks_exact(stored)) {
            all.extend_from_slice(bytes);
            all.extend_from_slice(&values.get(block / blocks).copied().unwrap_or(f32::NAN).to_le_bytes());
        }
        let skipped = at - first * size;
        to.copy_from_slice(&all[skipped..skipped + to.len()]);
        Ok(())
    }

    /// A copy of all bytes.
    pub fn to_vec(&self) -> Result<Vec<u8>, GgufError> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(self.len).map_err(|_| GgufError::Read {
            what: format!("tensor `{}`", self.name),
            offset: self.offset,
            needed: self.len as u64,
            source: std::io::ErrorKind::OutOfMemory.into(),
        })?;
        bytes.resize(self.len, 0);
        self.read(0, &mut bytes)?;
        Ok(bytes)
    }
}

impl std::fmt::Debug for TensorData<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes of `{}`", self.len, self.name)
    }
}
