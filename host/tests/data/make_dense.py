"""Writes small models of the architectures that add something to Llama's forward pass, and their logits in f64.

Needs numpy and gguf 0.19: python3 make_dense.py. Written after the public descriptions of the models, not after any
loader: Phi-3 (arXiv 2404.14219; one matrix of queries, keys and values, one of gates and ups), longrope (Ding et al., arXiv
2402.13753), Gemma 2 (arXiv 2408.00118; norms on both sides, capped scores and logits, a window in every other layer),
Gemma 3 (arXiv 2503.19786; five layers with a window to one without, another RoPE base in them, norms of heads), and SmolLM3
(no rotation in every fourth layer). Weights of norms are as GGUF files have them: for Gemma one more than in the checkpoint.
"""
import math
import numpy as np
from gguf import GGUFWriter
from make_small import TOKENS, rms, turn

CONTEXT, VOCAB, EPS = 64, 48, 1e-6


class File:
    """A file, and what was written into it."""

    def __init__(self, name, arch, seed, eps="attention.layer_norm_rms_epsilon", **keys):
        self.name, self.tensors = name, {}
        self.rng = np.random.default_rng(seed)
        self.w = GGUFWriter(f"{name}.gguf", arch)
        self.w.add_name(name)
        keys = {"context_length": CONTEXT, eps: EPS} | keys
        for key, value in keys.items():
            if isinstance(value, bool):
                self.w.add_bool(f"{arch}.{key}", value)
            elif isinstance(value, str):
                self.w.add_string(f"{arch}.{key}", value)
            elif isinstance(value, float):
                self.w.add_float32(f"{arch}.{key}", value)
            else:
                self.w.add_uint32(f"{arch}.{key}", value)

    def add(self, name, values):
        values = np.asarray(values, dtype=np.float32)
        self.tensors[name] = values.astype(np.float64)
        self.w.add_tensor(name, values)

    def matrix(self, name, rows, cols, gain=1.0):
        self.add(name + ".weight", gain / math.sqrt(cols) * self.rng.standard_normal((rows, cols)))

    def norm(self, name, n):
        self.add(name + ".weight", 1 + 0.1 * self.rng.standard_normal(n))

    def write(self):
        self.w.write_header_to_file()
        self.w.write_kv_data_to_file()
        self.w.write_tensors_to_file()
        self.w.close()


def logits(name, values):
    values.astype("<f8").tofile(f"{name}.logits.f64")
    print(name, "logits std", values.std())


def inverse(n, base, factors=1.0):
    return base ** (-2.0 * np.arange(n // 2) / n) / factors


def rotate(x, frequencies, neox, stretch=1.0):
    """The first 2 * len(frequencies) elements of each head of [position, head, dim]."""
    n = 2 * len(frequencies)
    theta = np.arange(len(x), dtype=np.float64)[:, None] * frequencies
    return np.concatenate([turn(x[..., :n], theta, stretch, neox), x[..., n:]], axis=-1)


def attention(q, k, v, scale, window=0, cap=0.0):
    n, heads, dim = q.shape
    k, v = (np.repeat(a, heads // a.shape[1], axis=1) for a in (k, v))
    scores = np.einsum("ihd,jhd->hij", q, k) * scale
    if cap:
        scores = cap * np.tanh(scores / cap)
    scores = scores + np.triu(np.full((n, n), -np.inf), 1)
    if window:
        scores = scores + np.tril(np.full((n, n), -np.inf), -window)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hij,jhd->ihd", e / e.sum(-1, keepdims=True), v).reshape(n, heads * dim)


def silu(g):
    return g / (1 + np.exp(-g))


def gelu_tanh(g):
    return 0.5 * g * (1 + np.tanh(math.sqrt(2 / math.pi) * (g + 0.044715 * g**3)))


def phi3(name):
    layers, hidden, ffn, heads, kv, dim, rot, original, stretch = 2, 48, 64, 3, 1, 16, 12, 16, 1.1902380714238083
    f = File(name, "phi3", 1, block_count=layers, embedding_length=hidden, feed_forward_length=ffn, **{
        "attention.head_count": heads, "attention.head_count_kv": kv, "attention.key_length": dim,
        "attention.value_length": dim, "rope.dimension_count": rot, "rope.freq_base": 10000.0,
        "rope.scaling.original_context_length": original, "rope.scaling.attn_factor": stretch})
    factors = {"short": 1 + 0.02 * np.arange(rot // 2), "long": 1 + 1.5 * np.arange(rot // 2)}
    for which, values in factors.items():
        f.add(f"rope_factors_{which}.weight", values)
    f.add("token_embd.weight", f.rng.standard_normal((VOCAB, hidden)))
    f.norm("output_norm", hidden)
    f.matrix("output", VOCAB, hidden, 3)
    for p in (f"blk.{l}." for l in range(layers)):
        f.norm(p + "attn_norm", hidden)
        f.matrix(p + "attn_qkv", (heads + 2 * kv) * dim, hidden, 1.5)
        f.matrix(p + "attn_output", hidden, heads * dim)
        f.norm(p + "ffn_norm", hidden)
        f.matrix(p + "ffn_up", 2 * ffn, hidden, 1.5)
        f.matrix(p + "ffn_down", hidden, ffn, 1.5)
    f.write()
    t, eps, stretch = f.tensors, float(np.float32(EPS)), float(np.float32(stretch))
    for which, suffix in (("long", name), ("short", name.replace("small", "short-small"))):
        x = t["token_embd.weight"][TOKENS]
        frequencies = inverse(rot, 10000.0, t[f"rope_factors_{which}.weight"])
        for p in (f"blk.{l}." for l in range(layers)):
            qkv = (rms(x, t[p + "attn_norm.weight"], eps) @ t[p + "attn_qkv.weight"].T).reshape(len(x), -1, dim)
            q, k, v = np.split(qkv, [heads, heads + kv], axis=1)
            q, k = rotate(q, frequencies, True, stretch), rotate(k, frequencies, True, stretch)
            x = x + attention(q, k, v, 1 / math.sqrt(dim)) @ t[p + "attn_output.weight"].T
            gate, up = np.split(rms(x, t[p + "ffn_norm.weight"], eps) @ t[p + "ffn_up.weight"].T, 2, axis=-1)
            x = x + (up * silu(gate)) @ t[p + "ffn_down.weight"].T
        logits(suffix, rms(x, t["output_norm.weight"], eps) @ t["output.weight"].T)


def separate(f, p, hidden, ffn, heads, kv, dim):
    for n, rows in (("attn_q", heads * dim), ("attn_k", kv * dim), ("attn_v", kv * dim)):
        f.matrix(p + n, rows, hidden, 1.5)
    f.matrix(p + "attn_output", hidden, heads * dim)
    f.matrix(p + "ffn_gate", ffn, hidden, 1.5)
    f.matrix(p + "ffn_up", ffn, hidden)
    f.matrix(p + "ffn_down", hidden, ffn, 1.5)


def gemma(name, generation):
    layers, hidden, ffn, heads, kv, dim, window = 8 if generation == 3 else 3, 40, 48, 4, 2, 16, 3
    keys = {"attention.head_count": heads, "attention.head_count_kv": kv, "attention.key_length": dim,
            "attention.value_length": dim, "attention.sliding_window": window}
    if generation == 3:
        keys |= {"rope.freq_base": 1e6, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0}
    else:
        keys |= {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 4.0}
    f = File(name, f"gemma{generation}", 10 + generation, block_count=layers, embedding_length=hidden,
             feed_forward_length=ffn, **keys)
    f.add("token_embd.weight", 0.4 * f.rng.standard_normal((VOCAB, hidden)))
    f.norm("output_norm", hidden)
    for p in (f"blk.{l}." for l in range(layers)):
        for n in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            f.norm(p + n, hidden)
        if generation == 3:
            f.norm(p + "attn_q_norm", dim)
            f.norm(p + "attn_k_norm", dim)
        separate(f, p, hidden, ffn, heads, kv, dim)
    f.write()
    t, eps = f.tensors, float(np.float32(EPS))
    x = t["token_embd.weight"][TOKENS] * math.sqrt(hidden)
    for l in range(layers):
        p = f"blk.{l}."
        # Gemma 2 begins with a layer that has a window, and every other one has; of six layers of Gemma 3 the last has none.
        local = l % 2 == 0 if generation == 2 else l % 6 != 5
        h = rms(x, t[p + "attn_norm.weight"], eps)
        q, k, v = ((h @ t[p + f"attn_{c}.weight"].T).reshape(len(x), -1, dim) for c in "qkv")
        frequencies = inverse(dim, 10000.0)
        if generation == 3:
            q, k = rms(q, t[p + "attn_q_norm.weight"], eps), rms(k, t[p + "attn_k_norm.weight"], eps)
            if not local:
                frequencies = inverse(dim, 1e6) / 8
        q, k = rotate(q, frequencies, True), rotate(k, frequencies, True)
        out = attention(q, k, v, 1 / math.sqrt(dim), window if local else 0, 5.0 if generation == 2 else 0.0)
        x = x + rms(out @ t[p + "attn_output.weight"].T, t[p + "post_attention_norm.weight"], eps)
        h = rms(x, t[p + "ffn_norm.weight"], eps)
        inner = gelu_tanh(h @ t[p + "ffn_gate.weight"].T) * (h @ t[p + "ffn_up.weight"].T)
        x = x + rms(inner @ t[p + "ffn_down.weight"].T, t[p + "post_ffw_norm.weight"], eps)
    out = rms(x, t["output_norm.weight"], eps) @ t["token_embd.weight"].T
    logits(name, 4.0 * np.tanh(out / 4.0) if generation == 2 else out)


def smollm3(name):
    layers, hidden, ffn, heads, kv, dim = 5, 32, 48, 4, 2, 16
    f = File(name, "smollm3", 3, block_count=layers, embedding_length=hidden, feed_forward_length=ffn, **{
        "attention.head_count": heads, "attention.head_count_kv": kv, "attention.key_length": dim,
        "attention.value_length": dim, "rope.dimension_count": dim, "rope.freq_base": 5e4})
    f.add("token_embd.weight", f.rng.standard_normal((VOCAB, hidden)))
    f.norm("output_norm", hidden)
    for p in (f"blk.{l}." for l in range(layers)):
        f.norm(p + "attn_norm", hidden)
        f.norm(p + "ffn_norm", hidden)
        separate(f, p, hidden, ffn, heads, kv, dim)
    f.write()
    t, eps = f.tensors, float(np.float32(EPS))
    x = t["token_embd.weight"][TOKENS]
    for l in range(layers):
        p = f"blk.{l}."
        h = rms(x, t[p + "attn_norm.weight"], eps)
        q, k, v = ((h @ t[p + f"attn_{c}.weight"].T).reshape(len(x), -1, dim) for c in "qkv")
        if (l + 1) % 4:
            q, k = (rotate(a, inverse(dim, 5e4), False) for a in (q, k))
        x = x + attention(q, k, v, 1 / math.sqrt(dim)) @ t[p + "attn_output.weight"].T
        h = rms(x, t[p + "ffn_norm.weight"], eps)
        x = x + (silu(h @ t[p + "ffn_gate.weight"].T) * (h @ t[p + "ffn_up.weight"].T)) @ t[p + "ffn_down.weight"].T
    logits(name, rms(x, t["output_norm.weight"], eps) @ t["token_embd.weight"].T)


if __name__ == "__main__":
    phi3("phi3-small")
    gemma("gemma2-small", 2)
    gemma("gemma3-small", 3)
    smollm3("smollm3-small")
