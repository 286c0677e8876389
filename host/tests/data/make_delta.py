"""Writes small models with gated delta nets, without and with experts, and their logits in f64.

Needs numpy and gguf 0.19: python3 make_delta.py; with "greedy" llama-cpp-python 0.3.36 as well, and prints what llama.cpp continues the
first three tokens with, and how far its logits are from these: tests/delta_experts.rs has the tokens. Written after the public descriptions, not after any loader: gated delta nets
(Yang, Kautz and Hatamizadeh, arXiv 2412.06464, in its recurrent form, token by token), gates of attention's results (Qiu et al., arXiv
2505.06708), and the model cards of Qwen3.5 and Qwen3-Next. The heads of values are in the order of GGUF files, in which head h has key head
h mod key heads, or of Qwen3-Next's h divided by the heads of values that share one; weights of norms are as GGUF files have them.
"""
import math
import sys
import numpy as np
from make_dense import EPS, VOCAB, File, attention, inverse, logits, rotate, silu
from make_experts import greedy
from make_small import TOKENS, rms


def inputs(h, t, p, key_heads, value_heads, dim):
    """Queries, keys and values; gates; what betas and decays are made of. In files of Qwen3-Next all of a key head lie side by side."""
    of = lambda n: h @ t[p + n + ".weight"].T
    by_head = lambda a: a.reshape(len(h), key_heads, -1)
    flat = lambda a: a.reshape(len(h), -1)
    group = value_heads // key_heads
    if p + "ssm_ba.weight" in t:
        b, alpha = (flat(a) for a in np.split(by_head(of("ssm_ba")), [group], axis=-1))
    else:
        b, alpha = of("ssm_beta"), of("ssm_alpha")
    if p + "ssm_in.weight" in t:
        cuts = np.cumsum([dim, dim, group * dim])
        q, k, v, z = (flat(a) for a in np.split(by_head(of("ssm_in")), cuts, axis=-1))
        return np.concatenate([q, k, v], axis=-1), z, b, alpha
    return of("attn_qkv"), of("attn_gate"), b, alpha


def delta_net(h, t, p, key_heads, value_heads, dim, eps, side_by_side=False):
    sigmoid = lambda x: 1 / (1 + np.exp(-x))
    mixed, z, b, alpha = inputs(h, t, p, key_heads, value_heads, dim)
    beta = sigmoid(b)
    decay = np.exp(t[p + "ssm_a"] * np.log1p(np.exp(alpha + t[p + "ssm_dt.bias"])))
    # Each channel sees its last four inputs; before the first token there are zeros.
    padded = np.concatenate([np.zeros((3, mixed.shape[1])), mixed])
    mixed = silu(sum(padded[j:j + len(mixed)] * t[p + "ssm_conv1d.weight"][:, j] for j in range(4)))
    q, k, v = np.split(mixed.reshape(len(h), -1, dim), [key_heads, 2 * key_heads], axis=1)
    unit = lambda x: x / np.maximum(np.sqrt((x * x).sum(-1, keepdims=True)), eps)
    times = value_heads // key_heads
    repeated = lambda x: np.repeat(x, times, axis=1) if side_by_side else np.tile(x, (1, times, 1))
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


EXPERTS, USED, INNER, SHARED = 6, 2, 16, 24


def mixture_tensors(f, p, hidden):
    f.matrix(p + "ffn_gate_inp", EXPERTS, hidden, 2)
    for n, rows, cols, gain in (("gate", INNER, hidden, 1.5), ("up", INNER, hidden, 1), ("down", hidden, INNER, 1.5)):
        f.add(p + f"ffn_{n}_exps.weight", gain / math.sqrt(cols) * f.rng.standard_normal((EXPERTS, rows, cols)))
    f.add(p + "ffn_gate_inp_shexp.weight", 2 / math.sqrt(hidden) * f.rng.standard_normal(hidden))
    f.matrix(p + "ffn_gate_shexp", SHARED, hidden, 1.5)
    f.matrix(p + "ffn_up_shexp", SHARED, hidden)
    f.matrix(p + "ffn_down_shexp", hidden, SHARED, 1.5)


def mixture(h, t, p):
    """Those of the largest products, by a softmax over these; and one of all tokens, by a sigmoid of its own product."""
    of = lambda n: t[p + f"ffn_{n}.weight"]
    out = np.zeros_like(h)
    for position, x in enumerate(h):
        scores = of("gate_inp") @ x
        chosen = np.argsort(-scores, kind="stable")[:USED]
        shares = np.exp(scores[chosen] - scores[chosen].max())
        for e, share in zip(chosen, shares / shares.sum()):
            out[position] += share * (of("down_exps")[e] @ (silu(of("gate_exps")[e] @ x) * (of("up_exps")[e] @ x)))
        inner = silu(of("gate_shexp") @ x) * (of("up_shexp") @ x)
        out[position] += (of("down_shexp") @ inner) / (1 + np.exp(-(of("gate_inp_shexp") @ x)))
    return out


def hybrid(name, arch, seed):
    layers, hidden, ffn, heads, kv, dim, rot = 3, 32, 48, 4, 2, 32, 16
    key_heads, value_heads, state, experts, by_head = 2, 4, 32, arch != "qwen35", arch == "qwen3next"
    keys = {} if not experts else {"expert_count": EXPERTS, "expert_used_count": USED, "expert_feed_forward_length": INNER,
                                   "expert_shared_feed_forward_length": SHARED, "vocab_size": VOCAB}
    f = File(name, arch, seed, block_count=layers, embedding_length=hidden, feed_forward_length=ffn, **{
        "attention.head_count": heads, "attention.head_count_kv": kv, "attention.key_length": dim,
        "attention.value_length": dim, "rope.dimension_count": rot, "rope.freq_base": 10000.0,
        "ssm.conv_kernel": 4, "ssm.state_size": state, "ssm.group_count": key_heads, "ssm.time_step_rank": value_heads,
        "ssm.inner_size": value_heads * state, "full_attention_interval": 2} | keys)
    if experts:
        # llama.cpp asks for it.
        f.w.add_tokenizer_model("none")
    if not by_head:
        f.w.add_array(arch + ".rope.dimension_sections", [3, 3, 2, 0])
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
            values = value_heads * state
            channels = 2 * key_heads * state + values
            if by_head and l == 2:
                # As files of 2025 have them.
                f.matrix(p + "ssm_in", channels + values, hidden, 1.5)
            else:
                f.matrix(p + "attn_qkv", channels, hidden, 1.5)
                f.matrix(p + "attn_gate", values, hidden, 1.5)
            for n in ["ssm_ba"] if by_head else ["ssm_beta", "ssm_alpha"]:
                f.matrix(p + n, (2 if by_head else 1) * value_heads, hidden, 1.5)
            f.add(p + "ssm_conv1d.weight", 0.6 * f.rng.standard_normal((channels, 4)))
            f.add(p + "ssm_dt.bias", f.rng.standard_normal(value_heads) - 1)
            f.add(p + "ssm_a", -np.exp(0.5 * f.rng.standard_normal(value_heads)))
            f.norm(p + "ssm_norm", state)
            f.matrix(p + "ssm_out", hidden, values)
        f.norm(p + "post_attention_norm", hidden)
        if experts:
            mixture_tensors(f, p, hidden)
            continue
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
                 else delta_net(h, t, p, key_heads, value_heads, state, eps, by_head))
        h = rms(x, t[p + "post_attention_norm.weight"], eps)
        if experts:
            x = x + mixture(h, t, p)
        else:
            x = x + (silu(h @ t[p + "ffn_gate.weight"].T) * (h @ t[p + "ffn_up.weight"].T)) @ t[p + "ffn_down.weight"].T
    logits(name, rms(x, t["output_norm.weight"], eps) @ t["output.weight"].T)


if __name__ == "__main__":
    hybrid("qwen35-small", "qwen35", 35)
    hybrid("qwen35moe-small", "qwen35moe", 36)
    hybrid("qwen3next-small", "qwen3next", 37)
    if "greedy" in sys.argv:
        greedy("qwen35moe-small")
        greedy("qwen3next-small")
