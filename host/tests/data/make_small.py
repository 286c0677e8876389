"""Writes the small models of tests/reference.rs that need another implementation's word, and their logits in f64.

Needs numpy and gguf 0.19: python3 make_small.py. Forward pass over all positions at once, with a causal mask; weights
are the float32 values in the file. RoPE with YaRN follows Peng et al., arXiv 2309.00071, section 3.2 and 3.4, with the
parameters that GGUF files carry.
"""
import math
import numpy as np
from gguf import GGUFWriter

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 47, 0]
rng = np.random.default_rng(20261121)


def rms(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def angles(n, positions, base, scaling):
    """[position, n/2] angles and the factor of cosines and sines."""
    i = np.arange(n // 2)
    inverse = base ** (-2.0 * i / n)
    if scaling is None:
        return positions[:, None] * inverse, 1.0
    s, original, fast, slow = scaling["factor"], scaling["original"], scaling["fast"], scaling["slow"]
    pair = lambda turns: n * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))
    low, high = max(math.floor(pair(fast)), 0), min(math.ceil(pair(slow)), n - 1)
    extrapolated = 1 - np.clip((i - low) / max(high - low, 1e-3), 0, 1)
    mixed = inverse / s * (1 - extrapolated) + inverse * extrapolated
    return positions[:, None] * mixed, 1 + 0.1 * math.log(s)


def turn(x, theta, stretch, neox):
    """x: [position, head, n]"""
    c, s = np.cos(theta)[:, None] * stretch, np.sin(theta)[:, None] * stretch
    out = np.empty_like(x)
    half = x.shape[-1] // 2
    a, b = (x[..., :half], x[..., half:]) if neox else (x[..., 0::2], x[..., 1::2])
    u, v = a * c - b * s, b * c + a * s
    if neox:
        out[..., :half], out[..., half:] = u, v
    else:
        out[..., 0::2], out[..., 1::2] = u, v
    return out


def make(name, arch, neox, layers, hidden, ffn, heads, kv, dim, vocab, context, biases, tied, scaling, window=0):
    base, eps = 10000.0, 1e-6
    w = GGUFWriter(f"{name}.gguf", arch)
    w.add_name(name)
    w.add_block_count(layers)
    w.add_embedding_length(hidden)
    w.add_feed_forward_length(ffn)
    w.add_context_length(context)
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    w.add_key_length(dim)
    w.add_value_length(dim)
    w.add_layer_norm_rms_eps(eps)
    w.add_rope_freq_base(base)
    if window:
        w.add_uint32(f"{arch}.attention.sliding_window", window)
    if scaling:
        w.add_string(f"{arch}.rope.scaling.type", "yarn")
        w.add_float32(f"{arch}.rope.scaling.factor", scaling["factor"])
        w.add_uint32(f"{arch}.rope.scaling.original_context_length", scaling["original"])
    t = {}

    def tensor(n, *shape, std=1.0, mean=0.0):
        t[n] = (mean + std * rng.standard_normal(shape)).astype(np.float32)
        w.add_tensor(n, t[n])

    tensor("token_embd.weight", vocab, hidden)
    tensor("output_norm.weight", hidden, std=0.1, mean=1)
    if not tied:
        tensor("output.weight", vocab, hidden, std=3 / math.sqrt(hidden))
    for l in range(layers):
        p = f"blk.{l}."
        for n in ("attn_norm", "ffn_norm"):
            tensor(p + n + ".weight", hidden, std=0.1, mean=1)
        for n, rows in (("attn_q", heads * dim), ("attn_k", kv * dim), ("attn_v", kv * dim)):
            tensor(p + n + ".weight", rows, hidden, std=1.5 / math.sqrt(hidden))
            if biases:
                tensor(p + n + ".bias", rows, std=0.7)
        tensor(p + "attn_output.weight", hidden, heads * dim, std=1 / math.sqrt(heads * dim))
        tensor(p + "ffn_gate.weight", ffn, hidden, std=1.5 / math.sqrt(hidden))
        tensor(p + "ffn_up.weight", ffn, hidden, std=1 / math.sqrt(hidden))
        tensor(p + "ffn_down.weight", hidden, ffn, std=1.5 / math.sqrt(ffn))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()

    t = {k: v.astype(np.float64) for k, v in t.items()}
    n = len(TOKENS)
    theta, stretch = angles(dim, np.arange(n, dtype=np.float64), base, scaling)
    eps = float(np.float32(eps))
    x = t["token_embd.weight"][TOKENS]
    mask = np.triu(np.full((n, n), -np.inf), 1)
    if window:  # a token and the window - 1 before it (Jiang et al., arXiv 2310.06825, section 2)
        mask += np.tril(np.full((n, n), -np.inf), -window)
    for l in range(layers):
        p = f"blk.{l}."
        h = rms(x, t[p + "attn_norm.weight"], eps)
        q, k, v = (h @ t[p + f"attn_{c}.weight"].T + t.get(p + f"attn_{c}.bias", 0) for c in "qkv")
        q = turn(q.reshape(n, heads, dim), theta, stretch, neox)
        k = turn(k.reshape(n, kv, dim), theta, stretch, neox)
        k, v = (np.repeat(a.reshape(n, kv, dim), heads // kv, axis=1) for a in (k, v))
        scores = np.einsum("ihd,jhd->hij", q, k) / math.sqrt(dim) + mask
        e = np.exp(scores - scores.max(-1, keepdims=True))
        out = np.einsum("hij,jhd->ihd", e / e.sum(-1, keepdims=True), v).reshape(n, heads * dim)
        x = x + out @ t[p + "attn_output.weight"].T
        h = rms(x, t[p + "ffn_norm.weight"], eps)
        g, u = h @ t[p + "ffn_gate.weight"].T, h @ t[p + "ffn_up.weight"].T
        x = x + (g / (1 + np.exp(-g)) * u) @ t[p + "ffn_down.weight"].T
    head = t["token_embd.weight"] if tied else t["output.weight"]
    logits = rms(x, t["output_norm.weight"], eps) @ head.T
    logits.astype("<f8").tofile(f"{name}.logits.f64")
    print(name, "logits std", logits.std())


if __name__ == "__main__":
    make("qwen2-small", "qwen2", True, 2, 48, 64, 6, 2, 16, 48, 64, True, True, None)
    make("llama-yarn-small", "llama", False, 2, 32, 48, 4, 2, 16, 48, 64, False, False,
         dict(factor=4.0, original=16, fast=32.0, slow=1.0))
    make("llama-window-small", "llama", False, 2, 32, 48, 4, 2, 16, 48, 64, False, False, None, 3)
