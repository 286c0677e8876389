//! The rules that cut a text into words before BPE, by the names in `tokenizer.ggml.pre`.

use super::TokenizerError;
use fancy_regex::Regex;

/// How the tokenizers that a name stands for cut text, and what else they have in common.
#[derive(Debug)]
pub(super) struct Rule {
    /// The names in files.
    names: &'static [&'static str],
    /// Applied one after the other to what the one before left over as pieces.
    expressions: &'static [&'static str],
    /// Words that are tokens are taken whole, before merges are tried.
    pub whole_words: bool,
    /// The start token stands in front if the file does not say otherwise.
    pub starts_text: bool,
}

/// What is in most rules, so that they differ where they differ.
macro_rules! contraction {
    () => {
        "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
    };
}
macro_rules! gpt2 {
    () => {
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    };
}
/// Words of letters, numbers of `$digits`.
macro_rules! words {
    ($digits:literal) => {
        concat!(
            contraction!(),
            r"|[^\r\n\p{L}\p{N}]?\p{L}+|",
            $digits,
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
    };
}
/// Words that begin anew at a capital, with `$end` at their end; numbers of `$digits`.
macro_rules! cased {
    ($end:expr, $digits:literal) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
            $end,
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
            $end,
            "|",
            $digits,
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
    };
}

const PLAIN: Rule = Rule { names: &[], expressions: &[], whole_words: false, starts_text: false };

/// Every rule that is known. Sources: the `pre_tokenizer` of the models' tokenizer.json, by the names that llama.cpp's
/// converter gives them.
static RULES: &[Rule] = &[
    Rule {
        names: &[
            "qwen2",
            "qwen2.5",
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
            "stablelm2",
            "hunyuan",
            "megrez",
            "solar-open",
            "grok-2",
        ],
        expressions: &[words!(r"\p{N}")],
        ..PLAIN
    },
    // Marks belong to words.
    Rule {
        names: &["qwen35"],
        expressions: &[concat!(
            contraction!(),
            r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )],
        ..PLAIN
    },
    Rule {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        expressions: &[words!(r"\p{N}{1,3}")],
        whole_words: true,
        starts_text: true,
    },
    // Llama 3's expression without the rest of its rule.
    Rule { names: &["dbrx", "smaug-bpe", "chatglm-bpe"], expressions: &[words!(r"\p{N}{1,3}")], ..PLAIN },
    Rule {
        names: &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"],
        expressions: &[cased!(concat!(contraction!(), "?"), r"\p{N}{1,3}")],
        ..PLAIN
    },
    Rule { names: &["tekken"], expressions: &[cased!("", r"\p{N}")], whole_words: true, starts_text: true },
    Rule {
        names: &[
            "gpt-2",
            "gpt2",
            "phi-2",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
        ],
        expressions: &[gpt2!()],
        ..PLAIN
    },
    // Digits stand alone.
    Rule {
        names: &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"],
        expressions: &[r"\p{N}", gpt2!()],
        ..PLAIN
    },
    Rule {
        names: &[DEFAULT],
        expressions: &[r"[\p{P}\$\+<=>\^~\|]+", gpt2!(), r"\p{N}+", r"[0-9][0-9][0-9]"],
        ..PLAIN
    },
];

/// ggml's rule for files that name none.
const DEFAULT: &str = "default";

#[derive(Debug)]
pub(super) struct Splitter {
    /// Of errors.
    name: String,
    /// As [`Rule::whole_words`].
    pub whole_words: bool,
    /// As [`Rule::starts_text`].
    pub starts_text: bool,
    expressions: Vec<Regex>,
}

impl Splitter {
    /// Files without the key, which are old ones, take ggml's default rule, with a warning.
    pub(super) fn new(name: Option<&str>) -> Result<Self, TokenizerError> {
        if name.is_none() {
            tracing::warn!(
                "the file has no tokenizer.ggml.pre: text is split by the default rule and may become other tokens \
                 than in training"
            );
        }
        let name = name.unwrap_or(DEFAULT);
        let Some(rule) = RULES.iter().find(|r| r.names.contains(&name)) else {
            return Err(TokenizerError::Rule { name: name.to_owned() });
        };
        let expressions = compiled(name, rule.expressions.iter().copied())?;
        let Rule { whole_words, starts_text, .. } = *rule;
        Ok(Splitter { name: name.to_owned(), whole_words, starts_text, expressions })
    }

    /// That of a file that has expressions itself.
    pub(super) fn of(expressions: &[String], whole_words: bool) -> Result<Self, TokenizerError> {
        let name = "tokenizer.json".to_owned();
        let expressions = compiled(&name, expressions.iter().map(String::as_str))?;
        Ok(Splitter { name, whole_words, starts_text: false, expressions })
    }

    /// The words, which together are the text.
    pub(super) fn split<'t>(&self, text: &'t str) -> Result<Vec<&'t str>, TokenizerError> {
        let failed = |e: fancy_regex::Error| TokenizerError::Split { rule: self.name.clone(), reason: e.to_string() };
        let mut pieces = if text.is_empty() { Vec::new() } else { vec![text] };
        for expression in &self.expressions {
            let mut finer = Vec::with_capacity(pieces.len());
            for piece in pieces {
                let mut done = 0;
                for found in expression.find_iter(piece) {
                    let found = found.map_err(failed)?;
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

fn compiled<'a>(name: &str, sources: impl Iterator<Item = &'a str>) -> Result<Vec<Regex>, TokenizerError> {
    let failed = |e: fancy_regex::Error| TokenizerError::Split { rule: name.to_owned(), reason: e.to_string() };
    sources.map(|source| Regex::new(source).map_err(failed)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_stands_once_and_every_expression_compiles() {
        let names: Vec<&str> = RULES.iter().flat_map(|r| r.names).copied().collect();
        let mut once = names.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), names.len());
        for name in names {
            Splitter::new(Some(name)).unwrap();
        }
    }
}
