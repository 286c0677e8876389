"""Writes small vocabularies as tokenizer.json, and what the `tokenizers` library makes of some texts.

Needs tokenizers: python3 make_tokenizers.py. The steps are those of published models' files: byte-level BPE as of Qwen, Llama 3, SmolLM2
and Phi-4, and BPE of characters with tokens for bytes as of Llama 2, its newer conversions, Gemma and Phi-3.
"""
import json
import os
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
TEXTS = ["The woman said to him, “What is this?” He said to them: I'm a man, we'll see; it's 12345 o'clock.", "fn main() { let x = 42; }\n\n    return 007\r\n",
         "naïve café — über Straße, été; ελληνικά и русский", "日本語のテキスト 中文字 한국어 🙂🙃 👩‍👩‍👧", "  two  spaces   three\t\ttabs\n \n", "the the the there then them"]
ASKED = TEXTS + ["", " ", "a", " a", "Hello, world!", "I'LL BE'S DON'T", "cafe\u0301 (two code points) and caf\u00e9", "<s>Hi</s> there", "x<|im_start|>user\nHi<|im_end|>\n  y",
                 "<think> so </think>", "▁already", "a▁▁b", "tab\there\x00\x7f", "1234567 3.14 ½ ²", "<|user|>\n\nHi <|end|>\n<|assistant|>", "\u017fs 'ſ", "\u00a0nbsp\u2003em", "ﬁ ligature Å\u212b"]


def save(name, tokenizer):
    os.makedirs(f"tokenizers/{name}", exist_ok=True)
    tokenizer.save(f"tokenizers/{name}/tokenizer.json", pretty=False)
    every = [[text, tokenizer.encode(text).ids] for text in ASKED]
    expected = [[text, ids, tokenizer.decode(ids, skip_special_tokens=True)] for text, ids in every]
    with open(f"tokenizers/{name}/expected.json", "w") as f:
        json.dump(expected, f)
    print(name, tokenizer.get_vocab_size(), sum(len(ids) for _, ids, _ in expected))


def bytes_(name, steps, normalizer=None, special=(), plain=(), template=None, whole=(), **model):
    t = Tokenizer(models.BPE(**model))
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.Sequence(steps)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(TEXTS * 3, trainers.BpeTrainer(vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    if whole:  # Words that no merges lead to.
        learnt = json.loads(t.to_str())
        learnt["model"]["vocab"] |= {word: t.get_vocab_size() + i for i, word in enumerate(whole)}
        t = Tokenizer.from_str(json.dumps(learnt))
    t.add_special_tokens(list(special))
    t.add_tokens(list(plain))
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    if template:
        single = processors.TemplateProcessing(single=template, special_tokens=[(s, t.token_to_id(s)) for s in special if s in template])
        t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), single])
    save(name, t)


def characters(name, normalizer, pre, template="<s> $A", special=("<unk>", "<s>", "</s>"), added=(), plain=(), strip=True):
    seed = Tokenizer(models.BPE())
    seed.normalizer = normalizers.Replace(" ", "▁")
    # Words as SentencePiece has them: none spans another's begin.
    seed.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    seed.train_from_iterator(TEXTS[:3] * 3, trainers.BpeTrainer(vocab_size=200, show_progress=False))
    learnt = json.loads(seed.to_str())["model"]
    tokens = list(special) + [f"<0x{b:02X}>" for b in range(256)] + sorted(learnt["vocab"], key=learnt["vocab"].get)
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in learnt["merges"]]
    t = Tokenizer(models.BPE(vocab={x: i for i, x in enumerate(tokens)}, merges=merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    if normalizer:
        t.normalizer = normalizer
    if pre:
        t.pre_tokenizer = pre
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    t.decoder = decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strip else []))
    t.add_special_tokens([AddedToken(s, normalized=False, special=True) for s in special] + list(added))
    t.add_tokens([AddedToken(s, normalized=False) for s in plain])
    if template:
        t.post_processor = processors.TemplateProcessing(single=template, special_tokens=[("<s>", t.token_to_id("<s>"))])
    save(name, t)


if __name__ == "__main__":
    split = lambda regex, **how: pre_tokenizers.Split(Regex(regex), how.get("behavior", "isolated"), how.get("invert", False))
    level = lambda regex: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex)
    bytes_("qwen", [split(QWEN), level(False)], normalizers.NFC(), ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], ["<think>", "</think>"])
    bytes_("llama3", [split(LLAMA3), level(False)], None, ["<s>", "</s>"], template="<s> $A", whole=["Hello", "Ġworld"], ignore_merges=True)
    bytes_("smollm", [pre_tokenizers.Digits(individual_digits=True), level(True)], None, ["<|im_start|>", "<|im_end|>"])
    bytes_("phi4", [split(LLAMA3, behavior="removed", invert=True), level(False)], None, ["<|im_start|>"])
    old = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    characters("llama2", old, None)
    characters("metaspace-first", None, pre_tokenizers.Metaspace("▁", "first", False))
    characters("metaspace-always", None, pre_tokenizers.Metaspace("▁", "always", False))
    characters("gemma", normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous"), "<s> $A", plain=["▁▁", "\n\n"], strip=False)
    ends = [AddedToken(s, rstrip=True, normalized=False, special=True) for s in ("<|user|>", "<|end|>", "<|assistant|>")]
    characters("phi3", old, None, None, added=ends)
