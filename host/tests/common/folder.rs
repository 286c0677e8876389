//! Copies of the small folders, to change them.

use serde_json::Value;
use std::path::{Path, PathBuf};

pub fn folders() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/folders")
}

/// A copy of the folder of a small model.
pub fn copy(name: &str) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(folders().join(name)).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.path().join(file.file_name())).unwrap();
    }
    to
}

/// Changes a JSON file.
pub fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut json: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    change(&mut json);
    std::fs::write(path, serde_json::to_vec(&json).unwrap()).unwrap();
}

/// A safetensors file: its header and the tensors' bytes.
pub fn parts(path: &Path) -> (Value, Vec<u8>) {
    let bytes = std::fs::read(path).unwrap();
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    (serde_json::from_slice(&bytes[8..header]).unwrap(), bytes[header..].to_vec())
}

pub fn join(path: &Path, header: &Value, data: &[u8]) {
    let header = serde_json::to_vec(header).unwrap();
    let bytes = [&(header.len() as u64).to_le_bytes()[..], &header, data].concat();
    std::fs::write(path, bytes).unwrap();
}

/// Changes the header of a safetensors file and the bytes behind it.
pub fn rewrite(path: &Path, change: impl FnOnce(&mut Value, &mut Vec<u8>)) {
    let (mut header, mut data) = parts(path);
    change(&mut header, &mut data);
    join(path, &header, &data);
}

/// Sets the bytes of a tensor, or some of them.
pub fn poke(path: &Path, tensor: &str, at: usize, bytes: &[u8]) {
    rewrite(path, |header, data| {
        let start = header[tensor]["data_offsets"][0].as_u64().unwrap() as usize + at;
        data[start..start + bytes.len()].copy_from_slice(bytes);
    });
}
