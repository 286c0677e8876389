//! Folders of Hugging Face as models: `config.json`, `tokenizer.json` and safetensors files.
//!
//! [`open`] gives what [`Gguf::open`] would give of the file that such a folder is converted to: its keys, and tensors that are made
//! of the checkpoint when they are read. So everything that is checked, said and done of a GGUF file is of a folder too.
//!
//! | file | |
//! |---|---|
//! | `config.json` | the model's numbers, and how its weights are quantised |
//! | `model.safetensors`, or `model.safetensors.index.json` and what it names | weights |
//! | `quantize_config.json` | how older checkpoints of GPTQ are quantised |
//! | `tokenizer.json` | vocabulary, merges, special tokens; what stands before and behind a text |
//! | `tokenizer_config.json`, `generation_config.json` | which tokens begin and end a text, and the end of what is generated |
//! | `chat_template.jinja`, `chat_template.json`, or in `tokenizer_config.json` | the chat template |
//!
//! Only the first two must be there. A tokenizer that is not implemented costs text alone: the model
//! runs on token ids, and [`Tokenizer::from_gguf`](crate::tokenizer::Tokenizer::from_gguf) says what is missing.
//!
//! # Weights
//!
//! Nothing is quantised anew, and nothing of the checkpoint is kept in memory but headers: rows are read, brought into the blocks of a format and
//! handed on; of integers, which some checkpoints store by columns, whole matrices are in memory, up to 64 MiB or one.
//!
//! | stored as | made into | |
//! |---|---|---|
//! | F32, F16, BF16 | the same | the same bits |
//! | GPTQ of 4 bits, AWQ, compressed-tensors' integers of 4 bits | Q4_0 where every zero is 8, else Q5_0 | exact but for scales that are no f16, which are rounded to one |
//! | GPTQ and compressed-tensors of 8 bits around 128, signed bytes | Q8_0 | the same |
//! | GPTQ of 8 bits around other zeros; groups or rows of no multiple of 32 columns; with act-order, whose groups are no runs of columns, matrices of experts but downs | F16 | rounded to f16: 2^-11 of a weight, or 2^-25 |
//! | GPTQ of 2 and of 3 bits | Q4_0 | the same |
//! | MXFP4 of gpt-oss | MXFP4 | exact |
//! | FP8, E4M3 and E5M2, with scales of blocks, rows or the whole matrix | F16 | the same |
//!
//! Other matrices with act-order are what they are without it, with their columns in an order in which groups are runs.
//!
//! Files are read and never mapped, for the reason that [`gguf`](crate::gguf) gives.

mod act_order;
mod config;
mod delta;
mod error;
mod experts;
mod floats;
mod json;
mod keys;
mod names;
mod order;
mod quant;
mod rope;
mod rows;
mod shards;
mod tensors;
mod text;
mod views;
mod vocabulary;

pub use error::CheckpointError;

use crate::gguf::{Gguf, GgufWriter};
use std::path::Path;
use std::sync::Arc;

/// Opens a folder as the GGUF file that it stands for. Headers are read and checked; weights are when they are asked for.
pub fn open(folder: impl AsRef<Path>) -> Result<Gguf, CheckpointError> {
    let folder = folder.as_ref();
    let Some(json) = json::read(folder, keys::FILE)? else {
        let path = folder.join(keys::FILE);
        return Err(CheckpointError::Io { path, source: std::io::ErrorKind::NotFound.into() });
    };
    let config = json::Object::of_file(keys::FILE, &json)?;
    let shards = Arc::new(shards::Shards::open(folder)?);
    let mut keys = GgufWriter::new();
    let numbers = config::keys(config, &mut keys)?;
    // A folder of the current directory has its name only there.
    let whole = folder.canonicalize().map_err(CheckpointError::io(folder))?;
    if let Some(name) = whole.file_name().and_then(|name| name.to_str()) {
        keys.key("general.name", name);
    }
    text::keys(folder, config, &mut keys)?;
    let tensors = tensors::made(folder, config, &numbers, &shards)?;
    Gguf::made(folder, &keys, tensors)
        .map_err(|e| CheckpointError::Json { path: folder.join(keys::FILE), reason: e.to_string() })
}
