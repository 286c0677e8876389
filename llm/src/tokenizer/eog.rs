//! Which tokens end what a model generates: EOG, end of generation.
//!
//! Files name one end of text, and often a token for the end of a turn or of a message; what a model was trained to end with may
//! be yet another. So, as in llama.cpp (`special_eog_ids` of llama-vocab.cpp), tokens with known names count as well.

use super::kind::Kind;
use std::collections::{BTreeSet, HashMap};

/// Keys that name such tokens, beside that of the end of text: the ends of a turn and of a message, and the three that
/// separate files where a model fills in what is missing.
pub(super) const KEYS: [&str; 5] = [
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",
    "tokenizer.ggml.fim_pad_token_id",
    "tokenizer.ggml.fim_rep_token_id",
    "tokenizer.ggml.fim_sep_token_id",
];

/// Names that are nothing else in any vocabulary.
const NAMES: [&str; 20] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];

/// Names that are text, too (`</s>` is HTML): they count where the file says that they are control tokens.
const IF_CONTROL: [&str; 2] = ["</s>", "<eos>"];

/// Names of the last three of [`KEYS`], for files without those keys.
const FILES: [&[&str]; 3] = [
    &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"],
    &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"],
    &["<|file_sep|>"],
];

/// The tokens, by rising id. Those that the file has as ordinary ones become control tokens. `stated` is what the file says of
/// [`KEYS`].
pub(super) fn find(
    ids: &HashMap<String, u32>,
    kinds: &mut [Kind],
    eos: Option<u32>,
    stated: &[Option<u32>],
) -> Vec<u32> {
    let mut ends: BTreeSet<u32> = eos.into_iter().chain(stated.iter().copied().flatten()).collect();
    let control = |kinds: &[Kind], id: u32| kinds.get(id as usize) == Some(&Kind::Control);
    for name in NAMES {
        if let Some(&id) = ids.get(name) {
            ends.insert(id);
            if let Some(kind) = kinds.get_mut(id as usize) {
                *kind = Kind::Control;
            }
        }
    }
    ends.extend(IF_CONTROL.iter().filter_map(|name| ids.get(*name)).filter(|id| control(kinds, **id)));
    for (names, stated) in FILES.iter().zip(stated.iter().skip(KEYS.len() - FILES.len())) {
        if stated.is_none() {
            ends.extend(names.iter().filter_map(|name| ids.get(*name)).find(|id| control(kinds, **id)));
        }
    }
    let is = |ends: &BTreeSet<u32>, name: &str| ids.get(name).is_some_and(|id| ends.contains(id));
    let calls = is(&ends, "<|call|>") || is(&ends, "<|calls|>");
    // In these two families (harmony, solar) `<|end|>` ends a part of a reply, after which the model goes on.
    if calls && (is(&ends, "<|return|>") || is(&ends, "<|flush|>")) {
        ends.retain(|id| ids.get("<|end|>") != Some(id) || eos == Some(*id));
    }
    if is(&ends, "<|tool_response>") {
        ends.retain(|id| ids.get("</s>") != Some(id) || eos == Some(*id));
    }
    ends.into_iter().collect()
}
