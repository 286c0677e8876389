//! The rules that cut a text into words before BPE, by the names in `tokenizer.ggml.pre`.

use super::TokenizerError;
use fancy_regex::Regex;

const CONTRACTIONS_ANY_CASE: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])";
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

#[derive(Debug)]
pub(super) struct Splitter {
    rule: &'static str,
    /// Applied one after the other to what the one before left over as pieces.
    expressions: Vec<Regex>,
}

impl Splitter {
    /// Files without the key, which are old ones, take ggml's default rule, with a warning.
    pub(super) fn new(name: Option<&str>) -> Result<Self, TokenizerError> {
        let (rule, sources): (&'static str, Vec<String>) = match name {
            Some(
                "qwen2" | "qwen2.5" | "deepseek-r1-qwen" | "kormo" | "f2llmv2" | "stablelm2" | "hunyuan" | "megrez"
                | "solar-open" | "grok-2",
            ) => ("qwen2", vec![words(r"\p{N}")]),
            Some(
                "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "falcon-h1" | "pixtral" | "midm-2.0" | "lfm2"
                | "jina-v5-nano",
            ) => ("llama-bpe", vec![words(r"\p{N}{1,3}")]),
            // Llama 3's expression without the rest of its rule.
            Some("dbrx" | "smaug-bpe" | "chatglm-bpe") => ("dbrx", vec![words(r"\p{N}{1,3}")]),
            Some(
                "gpt-2" | "gpt2" | "phi-2" | "jina-es" | "jina-de" | "jina-v2-es" | "jina-v2-de" | "gigachat"
                | "a.x-4.0" | "mellum" | "modern-bert" | "mpt" | "olmo" | "jais" | "trillion" | "granite-docling"
                | "exaone4",
            ) => ("gpt-2", vec![GPT2.to_owned()]),
            Some(
                "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" | "exaone" | "minerva-7b" | "mellum2",
            ) => ("smollm", vec![r"\p{N}".to_owned(), GPT2.to_owned()]),
            None | Some("default") => {
                if name.is_none() {
                    tracing::warn!(
                        "the file has no tokenizer.ggml.pre: text is split by the default rule and may become other \
                         tokens than in training"
                    );
                }
                let classes = [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"];
                ("default", classes.map(str::to_owned).to_vec())
            }
            Some(other) => return Err(TokenizerError::Rule { name: other.to_owned() }),
        };
        let expressions = sources
            .iter()
            .map(|s| Regex::new(s).map_err(|e| TokenizerError::Split { rule: rule.to_owned(), reason: e.to_string() }))
            .collect::<Result<_, _>>()?;
        Ok(Splitter { rule, expressions })
    }

    /// Whether this is Llama 3's rule, whose tokenizer takes whole words from the vocabulary before it
    /// tries merges, and puts the start token in front if the file does not say otherwise.
    pub(super) fn llama3(&self) -> bool {
        self.rule == "llama-bpe"
    }

    /// The words, which together are the text.
    pub(super) fn split<'t>(&self, text: &'t str) -> Result<Vec<&'t str>, TokenizerError> {
        let mut pieces = if text.is_empty() { Vec::new() } else { vec![text] };
        for expression in &self.expressions {
            let mut finer = Vec::with_capacity(pieces.len());
            for piece in pieces {
                let mut done = 0;
                for found in expression.find_iter(piece) {
                    let found = found
                        .map_err(|e| TokenizerError::Split { rule: self.rule.to_owned(), reason: e.to_string() })?;
                    finer.extend([&piece[done..found.start()], found.as_str()].into_iter().filter(|s| !s.is_empty()));
                    done = found.end();
                }
                if done < piece.len() {
                    finer.push(&piece[done..]);
                }
            }
            pieces = finer;
        }
        Ok(pieces)
    }
}

/// The common shape of Qwen's and Llama 3's rule; they differ in how many digits make a word.
fn words(digits: &str) -> String {
    format!(
        r"{CONTRACTIONS_ANY_CASE}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
}
