"""Writes the small gpt-oss of tests/reference.rs, with experts of F32 and of MXFP4, and its logits in f64.

Needs numpy and gguf 0.19: python3 make_gpt_oss.py. Written after the model card of gpt-oss (arXiv 2508.10925, section 2.2) and what its
reference implementation makes of it: a sink is one score more in the softmax of each head, and gives no value; windows in every other
layer, of which the first has one; YaRN (Peng et al., arXiv 2309.00071); biases of all products; a softmax over the chosen experts' logits;
gates at most 7, ups within -7 and 7, and (up + 1) * gate / (1 + e^-(1.702 gate)).

python3 make_gpt_oss.py greedy also needs llama-cpp-python 0.3.36, and prints what llama.cpp continues the first three tokens with, and how
far its logits are from these: tests/gpt_oss.rs has the tokens.
"""
import math
import sys
import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from make_dense import VOCAB, File, logits
from make_experts import greedy
from make_small import TOKENS, angles, rms, turn

LAYERS, HIDDEN, INNER, EXPERTS, USED, HEADS, KV, DIM, WINDOW = 3, 32, 32, 6, 3, 4, 2, 32, 4
BASE, EPS = 150000.0, 1e-5
YARN = {"factor": 8.0, "original": 16, "fast": 32.0, "slow": 1.0}


def experts(f, name, rows, cols, gain, mxfp4):
    values = (gain / math.sqrt(cols) * f.rng.standard_normal((EXPERTS, rows, cols))).astype(np.float32)
    if not mxfp4:
        return f.add(name, values)
    kind = GGMLQuantizationType.MXFP4
    blocks = quantize(values, kind)
    f.w.add_tensor(name, blocks, raw_dtype=kind)
    f.tensors[name] = dequantize(blocks, kind).astype(np.float64)


def write(name, seed, mxfp4):
    f = File(name, "gpt-oss", seed, block_count=LAYERS, embedding_length=HIDDEN, feed_forward_length=INNER, **{
        "attention.layer_norm_rms_epsilon": EPS, "attention.head_count": HEADS, "attention.head_count_kv": KV,
        "attention.key_length": DIM, "attention.value_length": DIM, "attention.sliding_window": WINDOW,
        "expert_count": EXPERTS, "expert_used_count": USED, "expert_feed_forward_length": INNER,
        "rope.freq_base": BASE, "rope.scaling.type": "yarn", "rope.scaling.factor": YARN["factor"],
        "rope.scaling.original_context_length": YARN["original"], "vocab_size": VOCAB})
    # llama.cpp asks for it.
    f.w.add_tokenizer_model("none")

    def bias(n, *shape, std=0.4):
        f.add(n + ".bias", std * f.rng.standard_normal(shape))

    f.add("token_embd.weight", f.rng.standard_normal((VOCAB, HIDDEN)))
    f.norm("output_norm", HIDDEN)
    f.matrix("output", VOCAB, HIDDEN, 3)
    for p in (f"blk.{l}." for l in range(LAYERS)):
        f.norm(p + "attn_norm", HIDDEN)
        f.norm(p + "post_attention_norm", HIDDEN)
        for n, rows in (("attn_q", HEADS * DIM), ("attn_k", KV * DIM), ("attn_v", KV * DIM)):
            f.matrix(p + n, rows, HIDDEN, 1.5)
            bias(p + n, rows)
        f.matrix(p + "attn_output", HIDDEN, HEADS * DIM)
        bias(p + "attn_output", HIDDEN)
        f.add(p + "attn_sinks.weight", 1.5 * f.rng.standard_normal(HEADS))
        f.matrix(p + "ffn_gate_inp", EXPERTS, HIDDEN, 2)
        bias(p + "ffn_gate_inp", EXPERTS)
        # So large that some gates and ups are clamped.
        for n, rows, cols, gain in (("gate", INNER, HIDDEN, 4), ("up", INNER, HIDDEN, 4), ("down", HIDDEN, INNER, 0.3)):
            experts(f, p + f"ffn_{n}_exps.weight", rows, cols, gain, mxfp4)
            bias(p + f"ffn_{n}_exps", EXPERTS, rows)
    f.write()
    return f.tensors


def attend(q, k, v, sinks, window):
    n = len(q)
    k, v = (np.repeat(a, HEADS // KV, axis=1) for a in (k, v))
    scores = np.einsum("ihd,jhd->hij", q, k) / math.sqrt(DIM) + np.triu(np.full((n, n), -np.inf), 1)
    if window:
        scores = scores + np.tril(np.full((n, n), -np.inf), -window)
    scores = np.concatenate([scores, np.broadcast_to(sinks[:, None, None], (HEADS, n, 1))], axis=-1)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    weights = (e / e.sum(-1, keepdims=True))[..., :-1]
    return np.einsum("hij,jhd->ihd", weights, v).reshape(n, HEADS * DIM)


def mixture(h, t, p):
    of = lambda n: (t[p + f"ffn_{n}.weight"], t[p + f"ffn_{n}.bias"])
    (router, router_bias), (gate, gate_bias), (up, up_bias), (down, down_bias) = (
        of(n) for n in ("gate_inp", "gate_exps", "up_exps", "down_exps"))
    out, clamped = np.zeros_like(h), 0
    for position, x in enumerate(h):
        scores = router @ x + router_bias
        chosen = np.argsort(-scores, kind="stable")[:USED]
        weights = np.exp(scores[chosen] - scores[chosen].max())
        for e, weight in zip(chosen, weights / weights.sum()):
            g, u = gate[e] @ x + gate_bias[e], up[e] @ x + up_bias[e]
            clamped += (g > 7).sum() + (abs(u) > 7).sum()
            g, u = np.minimum(g, 7), np.clip(u, -7, 7)
            out[position] += weight * (down[e] @ (g / (1 + np.exp(-1.702 * g)) * (u + 1)) + down_bias[e])
    return out, clamped


def make(name, seed, mxfp4):
    t = write(name, seed, mxfp4)
    n, eps = len(TOKENS), float(np.float32(EPS))
    theta, stretch = angles(DIM, np.arange(n, dtype=np.float64), BASE, YARN)
    x, clamped = t["token_embd.weight"][TOKENS], 0
    for l in range(LAYERS):
        p = f"blk.{l}."
        h = rms(x, t[p + "attn_norm.weight"], eps)
        q, k, v = ((h @ t[p + f"attn_{c}.weight"].T + t[p + f"attn_{c}.bias"]).reshape(n, -1, DIM) for c in "qkv")
        q, k = turn(q, theta, stretch, True), turn(k, theta, stretch, True)
        out = attend(q, k, v, t[p + "attn_sinks.weight"], WINDOW if l % 2 == 0 else 0)
        x = x + out @ t[p + "attn_output.weight"].T + t[p + "attn_output.bias"]
        out, of_layer = mixture(rms(x, t[p + "post_attention_norm.weight"], eps), t, p)
        x, clamped = x + out, clamped + of_layer
    print(name, "clamped", clamped, "of", 2 * LAYERS * USED * INNER * n)
    logits(name, rms(x, t["output_norm.weight"], eps) @ t["output.weight"].T)


if __name__ == "__main__":
    make("gpt-oss-small", 34, False)
    make("gpt-oss-mxfp4-small", 34, True)
    if "greedy" in sys.argv:
        greedy("gpt-oss-small")
        greedy("gpt-oss-mxfp4-small")
