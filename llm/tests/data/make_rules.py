"""Writes rules.json: vocabularies, merges and encodings by Hugging Face's tokenizers for the splitting rules of `tokenizer.ggml.pre`
that bpe.json does not have.

Needs tokenizers and tiktoken: python3 make_rules.py. The expressions are those of the tokenizer.json of the models that gave the
rules their names (Mistral Nemo, GPT-4o, Llama 4, SmolLM, Qwen 3.5); that of GPT-4o is taken from tiktoken's source.
"""
import inspect
import json
import re
import tiktoken_ext.openai_public as openai
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers, trainers

LETTERS = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
CAPITALS = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = "|".join([LETTERS + ENDING, CAPITALS + ENDING, r"\p{N}{1,3}", TAIL])


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


RULES = {
    "tekken": (split("|".join([LETTERS, CAPITALS, r"\p{N}", TAIL])), True),
    "gpt-4o": (split(O200K), False),
    "llama4": (split(O200K), False),
    "smollm": (pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]), False),
    "qwen35": (split(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), False),
}
CORPUS = ["The quick brown fox doesn't jump over the lazy dog. It's 2026, isn't it? He'll say: WeAreHere, I'm at home!",
          "let mut x = vec![1, 22, 333, 4444]; // path/to/file\n\tif x.len() > 3 { return HttpRequest::new(); }\r\n\r\n",
          "Größe und Übermut, naïve café; Ελληνικά, Русский текст, 日本語のテキスト, 한국어, العربية, हिन्दी में नमस्ते, ไทยนี้",
          "HTTPServer JSONParser iPhone eBay McDonald's DON'T WE'VE they're 1,234,567.89 3.14159 ½ ² ٣٤"] * 4
CASES = ["", "a", "Hello, world!", "HELLO World's BiggestThing", "DON'T don't Don'T we'Ve IT'S", "iPhone McDonald's HTTPServer XMLHttpRequest2",
         "1 12 123 1234 12345678 1,234.5", "x1y22z333", "²³ ½ ٣٤٥ 一二三", "  leading and   inner    spaces  ", "tabs\t\tand\n\nnew\r\nlines \n  end \n",
         "path/to/file // comment\n/* x */\n", "naïve café Größe ΑΒΓ αβγ ПриветМир", "हिन्दी में नमस्ते ไทยนี้ e\u0301te\u0301 n\u0303", "日本語のテキスト、한국어! العربية؟",
         "🙂🙃 👩‍👩‍👧 ©®™ €5 #1", "snake_case CamelCase kebab-case SCREAMING_CASE", "a'b 'c' ''s 's't", "\u00a0nbsp\u2003em\u3000wide", "ǅungla ʰa ªº Ⅷ ⅷ",
         "<|start|>user\nHi<|end|>", "end.)]}\n\n\nnext", "x" * 40 + "Y" * 40 + " 7" * 20]


def main():
    source = inspect.getsource(openai.o200k_base)
    pattern = "|".join(eval(line.strip().rstrip(",")) for line in source.splitlines() if line.strip().startswith('r"'))
    assert pattern == O200K, (pattern, O200K)
    rules = []
    for name, (pre, whole_words) in RULES.items():
        t = Tokenizer(models.BPE(ignore_merges=whole_words))
        t.pre_tokenizer = pre
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=560, initial_alphabet=sorted(alphabet), show_progress=False))
        t.add_special_tokens(["<|start|>", "<|end|>"])
        model = json.loads(t.to_str())["model"]
        vocab = t.get_vocab(with_added_tokens=True)
        tokens = [k for k, _ in sorted(vocab.items(), key=lambda kv: kv[1])]
        merges = [" ".join(m) if isinstance(m, list) else m for m in model["merges"]]
        rules.append(dict(pre=name, tokens=tokens, merges=merges, cases=[dict(text=c, ids=t.encode(c).ids) for c in CASES]))
    with open("rules.json", "w") as f:
        json.dump(dict(made_by=f"tokenizers {tokenizers.__version__} (Hugging Face), trained on a small text; special tokens parsed", rules=rules), f)
    print({r["pre"]: sum(len(c["ids"]) for c in r["cases"]) for r in rules})


if __name__ == "__main__":
    main()
