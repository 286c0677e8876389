"""Writes a small model with gated delta nets, and its logits in f64.

Needs numpy and gguf 0.19: python3 make_delta.py. Written after the public descriptions, not after any loader: gated delta nets
(Yang, Kautz and Hatamizadeh, arXiv 2412.06464, in its recurrent form, token by token), gates of attention's results (Qiu et al., arXiv
2505.06708), and the model card of Qwen3.5. The heads of values are in the order of GGUF files, in which head h has key head
h mod key heads; weights of norms are as GGUF files have them.
"""
import math
import numpy as np
from make_dense import EPS, VOCAB, File, attention, inverse, logits, rotate, silu
from make_small import TOKENS, rms


def delta_net(h, t, p, key_heads, value_heads, dim, eps):
    sigmoid = lambda x: 1 / (1 + np.exp(-x))
    mixed, z = h @ t[p + "attn_qkv.weight"].T, h @ t[p + "attn_gate.weight"].T
    beta = sigmoid(h @ t[p + "ssm_beta.weight"].T)
    decay = np.exp(t[p + "ssm_a"] * np.log1p(np.exp(h @ t[p + "ssm_alpha.weight"].T + t[p + "ssm_dt.bias"])))
    # Each channel sees its last four inputs; before the first token there are zeros.
    padded = np.concatenate([np.zeros((3, mixed.shape[1])), mixed])
    mixed = silu(sum(padded[j:j + len(mixed)] * t[p + "ssm_conv1d.weight"][:, j] for j in range(4)))
    q, k, v = np.split(mixed.reshape(len(h), -1, dim), [key_heads, 2 * key_heads], axis=1)
    unit = lambda x: x / np.maximum(np.sqrt((x * x).sum(-1, keepdims=True)), eps)
    repeated = lambda x: np.tile(x, (1, value_heads // key_heads, 1))
    q, k = repeated(unit(q)) / math.sqrt(dim), repeated(unit(k))
    state, out = np.zeros((value_heads, dim, dim)), []
    for i in range(len(h)):
        state = state * decay[i][:, None, None]
        missing = (v[i] - np.einsum("hkv,hk->hv", state, k[i])) * beta[i][:, None]
        state = state + np.einsum("hk,hv->hkv", k[i], missing)
        out.append(np.einsum("hkv,hk->hv", state, q[i]))
    out = rms(np.stack(out), t[p + "ssm_norm.weight"], eps) * silu(z.reshape(len(h), -1, dim))
    return out.reshape(len(h), -1) @ t[p + "ssm_out.weight"].T


def gated_attention(h, t, p, heads, dim, rot, eps):
    q, gate = np.split((h @ t[p + "attn_q.weight"].T).reshape(len(h), heads, 2 * dim), 2, axis=-1)
    k, v = ((h @ t[p + f"attn_{c}.weight"].T).reshape(len(h), -1, dim) for c in "kv")
    q, k = rms(q, t[p + "attn_q_norm.weight"], eps), rms(k, t[p + "attn_k_norm.weight"], eps)
    q, k = rotate(q, inverse(rot, 10000.0), True), rotate(k, inverse(rot, 10000.0), True)
    out = attention(q, k, v, 1 / math.sqrt(dim)) / (1 + np.exp(-gate.reshape(len(h), -1)))
    return out @ t[p + "attn_output.weight"].T


def qwen35(name):
    layers, hidden, ffn, heads, kv, dim, rot = 3, 32, 48, 4, 2, 32, 16
    key_heads, value_heads, state = 2, 4, 32
    f = File(name, "qwen35", 35, block_count=layers, embedding_length=hidden, feed_forward_length=ffn, **{
        "attention.head_count": heads, "attention.head_count_kv": kv, "attention.key_length": dim,
        "attention.value_length": dim, "rope.dimension_count": rot, "rope.freq_base": 10000.0,
        "ssm.conv_kernel": 4, "ssm.state_size": state, "ssm.group_count": key_heads, "ssm.time_step_rank": value_heads,
        "ssm.inner_size": value_heads * state, "full_attention_interval": 2})
    f.w.add_array("qwen35.rope.dimension_sections", [3, 3, 2, 0])
    f.add("token_embd.weight", f.rng.standard_normal((VOCAB, hidden)))
    f.norm("output_norm", hidden)
    f.matrix("output", VOCAB, hidden, 3)
    for l in range(layers):
        p = f"blk.{l}."
        f.norm(p + "attn_norm", hidden)
        if l % 2:
            for n, rows in (("attn_q", 2 * heads * dim), ("attn_k", kv * dim), ("attn_v", kv * dim)):
                f.matrix(p + n, rows, hidden, 1.5)
            f.norm(p + "attn_q_norm", dim)
            f.norm(p + "attn_k_norm", dim)
            f.matrix(p + "attn_output", hidden, heads * dim)
        else:
            channels = (2 * key_heads + value_heads) * state
            f.matrix(p + "attn_qkv", channels, hidden, 1.5)
            f.matrix(p + "attn_gate", value_heads * state, hidden, 1.5)
            f.matrix(p + "ssm_beta", value_heads, hidden, 1.5)
            f.matrix(p + "ssm_alpha", value_heads, hidden, 1.5)
            f.add(p + "ssm_conv1d.weight", 0.6 * f.rng.standard_normal((channels, 4)))
            f.add(p + "ssm_dt.bias", f.rng.standard_normal(value_heads) - 1)
            f.add(p + "ssm_a", -np.exp(0.5 * f.rng.standard_normal(value_heads)))
            f.norm(p + "ssm_norm", state)
            f.matrix(p + "ssm_out", hidden, value_heads * state)
        f.norm(p + "post_attention_norm", hidden)
        f.matrix(p + "ffn_gate", ffn, hidden, 1.5)
        f.matrix(p + "ffn_up", ffn, hidden)
        f.matrix(p + "ffn_down", hidden, ffn, 1.5)
    f.write()
    t, eps = f.tensors, float(np.float32(EPS))
    x = t["token_embd.weight"][TOKENS]
    for l in range(layers):
        p = f"blk.{l}."
        h = rms(x, t[p + "attn_norm.weight"], eps)
        x = x + (gated_attention(h, t, p, heads, dim, rot, eps) if l % 2
                 else delta_net(h, t, p, key_heads, value_heads, state, eps))
        h = rms(x, t[p + "post_attention_norm.weight"], eps)
        x = x + (silu(h @ t[p + "ffn_gate.weight"].T) * (h @ t[p + "ffn_up.weight"].T)) @ t[p + "ffn_down.weight"].T
    logits(name, rms(x, t["output_norm.weight"], eps) @ t["output.weight"].T)


if __name__ == "__main__":
    qwen35("qwen35-small")
