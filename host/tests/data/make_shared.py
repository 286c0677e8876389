"""Writes the small qwen2moe of tests/reference.rs, and its logits in f64.

Needs numpy and gguf 0.19: python3 make_shared.py. Written after Qwen2's technical report (arXiv 2407.10671, section 2.2.2) and what its
modelling code makes of it: shares of a softmax over all experts, as they are, and beside the chosen an expert of all tokens, times a
sigmoid of a product of its own.

python3 make_shared.py greedy also needs llama-cpp-python 0.3.36, and prints what llama.cpp continues the first three tokens with, and how
far its logits are from these: tests/shared_experts.rs has the tokens.
"""
import math
import sys
import numpy as np
from make_dense import VOCAB, File, attention, inverse, logits, rotate, silu
from make_experts import greedy
from make_small import TOKENS, rms

LAYERS, HIDDEN, INNER, SHARED, EXPERTS, USED, HEADS, KV, DIM, EPS = 2, 64, 16, 40, 6, 2, 2, 1, 32, 1e-6


def write(name, seed):
    f = File(name, "qwen2moe", seed, block_count=LAYERS, embedding_length=HIDDEN, feed_forward_length=7 * INNER, **{
        "attention.head_count": HEADS, "attention.head_count_kv": KV, "expert_count": EXPERTS,
        "expert_used_count": USED, "expert_feed_forward_length": INNER, "expert_shared_feed_forward_length": SHARED,
        "rope.freq_base": 10000.0, "vocab_size": VOCAB})
    # llama.cpp asks for it.
    f.w.add_tokenizer_model("none")
    f.add("token_embd.weight", f.rng.standard_normal((VOCAB, HIDDEN)))
    f.norm("output_norm", HIDDEN)
    f.matrix("output", VOCAB, HIDDEN, 3)
    for p in (f"blk.{l}." for l in range(LAYERS)):
        f.norm(p + "attn_norm", HIDDEN)
        f.norm(p + "ffn_norm", HIDDEN)
        for n, rows in (("attn_q", HEADS * DIM), ("attn_k", KV * DIM), ("attn_v", KV * DIM)):
            f.matrix(p + n, rows, HIDDEN, 1.5)
            f.add(p + n + ".bias", 0.4 * f.rng.standard_normal(rows))
        f.matrix(p + "attn_output", HIDDEN, HEADS * DIM)
        f.matrix(p + "ffn_gate_inp", EXPERTS, HIDDEN, 2)
        for n, rows, cols, gain in (("gate", INNER, HIDDEN, 1.5), ("up", INNER, HIDDEN, 1), ("down", HIDDEN, INNER, 1.5)):
            values = f.rng.standard_normal((EXPERTS, rows, cols))
            f.add(p + f"ffn_{n}_exps.weight", gain / math.sqrt(cols) * values)
        f.add(p + "ffn_gate_inp_shexp.weight", 2 / math.sqrt(HIDDEN) * f.rng.standard_normal(HIDDEN))
        f.matrix(p + "ffn_gate_shexp", SHARED, HIDDEN, 1.5)
        f.matrix(p + "ffn_up_shexp", SHARED, HIDDEN)
        f.matrix(p + "ffn_down_shexp", HIDDEN, SHARED, 1.5)
    f.write()
    return f.tensors


def mixture(h, t, p):
    of = lambda n: t[p + f"ffn_{n}.weight"]
    out = np.zeros_like(h)
    for position, x in enumerate(h):
        scores = of("gate_inp") @ x
        shares = np.exp(scores - scores.max())
        shares /= shares.sum()
        for e in np.argsort(-scores, kind="stable")[:USED]:
            inner = silu(of("gate_exps")[e] @ x) * (of("up_exps")[e] @ x)
            out[position] += shares[e] * (of("down_exps")[e] @ inner)
        inner = silu(of("gate_shexp") @ x) * (of("up_shexp") @ x)
        out[position] += (of("down_shexp") @ inner) / (1 + np.exp(-(of("gate_inp_shexp") @ x)))
    return out


def make(name, seed):
    t, eps = write(name, seed), float(np.float32(EPS))
    x = t["token_embd.weight"][TOKENS]
    for p in (f"blk.{l}." for l in range(LAYERS)):
        h = rms(x, t[p + "attn_norm.weight"], eps)
        q, k, v = (
            (h @ t[p + f"attn_{c}.weight"].T + t[p + f"attn_{c}.bias"]).reshape(len(x), -1, DIM) for c in "qkv")
        q, k = (rotate(a, inverse(DIM, 10000.0), True) for a in (q, k))
        x = x + attention(q, k, v, 1 / math.sqrt(DIM)) @ t[p + "attn_output.weight"].T
        x = x + mixture(rms(x, t[p + "ffn_norm.weight"], eps), t, p)
    logits(name, rms(x, t["output_norm.weight"], eps) @ t["output.weight"].T)


if __name__ == "__main__":
    make("qwen2moe-small", 46)
    if "greedy" in sys.argv:
        greedy("qwen2moe-small")
