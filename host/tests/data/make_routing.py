"""Writes the small models of tests/routing.rs, and their logits in f64: mixtures whose routers choose otherwise than by their products alone.

Needs numpy and gguf 0.19: python3 make_routing.py. Written after the public descriptions: DeepSeekMoE (Dai et al., arXiv 2401.06066; shared
experts, first layers without experts), DeepSeek-V3 (arXiv 2412.19437, section 2.1.2: sigmoids, biases that choose and do not count, groups,
of which each counts for its two best experts), GLM-4.5 (arXiv 2508.06471), dots.llm1 (arXiv 2506.05767), ERNIE 4.5's technical report, and the
model cards of Ling lite and Ling 2.

python3 make_routing.py greedy also needs llama-cpp-python 0.3.36, and prints what llama.cpp continues the first three tokens with, and how
far its logits are from these: tests/routing.rs has the tokens.
"""
import math
import sys
import numpy as np
from make_dense import EPS, VOCAB, File, attention, inverse, logits, rotate, silu
from make_experts import greedy
from make_small import TOKENS, rms


def choose(scores, used, groups, taken):
    """The experts of the largest scores, of the groups whose two largest have the largest sums."""
    each = len(scores) // groups
    sums = [np.sort(scores[g * each:(g + 1) * each])[-2:].sum() for g in range(groups)]
    allowed = set(np.argsort(-np.array(sums), kind="stable")[:taken]) if groups > 1 else {0}
    return [e for e in np.argsort(-scores, kind="stable") if e // each in allowed][:used]


def mixture(h, t, p, c):
    of = lambda n: t[p + f"ffn_{n}.weight"]
    out = np.zeros_like(h)
    for position, x in enumerate(h):
        products = of("gate_inp") @ x
        if c["sigmoid"]:
            weights = 1 / (1 + np.exp(-products))
        else:
            weights = np.exp(products - products.max())
            weights /= weights.sum()
        scores = weights + t.get(p + "exp_probs_b.bias", 0)
        chosen = choose(scores, c["used"], *c["groups"])
        divisor = max(weights[chosen].sum(), 2.0**-14) if c["normalise"] else 1
        for e in chosen:
            inner = silu(of("gate_exps")[e] @ x) * (of("up_exps")[e] @ x)
            out[position] += float(np.float32(c["scale"])) * weights[e] / divisor * (of("down_exps")[e] @ inner)
        if c["shared"]:
            out[position] += of("down_shexp") @ (silu(of("gate_shexp") @ x) * (of("up_shexp") @ x))
    return out


def make(name, arch, seed, layers, hidden, heads, kv, dim, experts, used, inner, dense=0, has_experts=lambda l: True, shared=0,
         sigmoid=False, normalise=False, scale=1.0, bias=False, groups=(1, 1), neox=True, rot=None, norms=False, qkv_bias=False,
         fused=False, norm_name="ffn_norm", **keys):
    rot = rot or dim
    c = {"used": used, "sigmoid": sigmoid, "normalise": normalise, "scale": scale, "groups": groups, "shared": shared}
    f = File(name, arch, seed, block_count=layers, embedding_length=hidden, feed_forward_length=dense or 7 * inner, **{
        "attention.head_count": heads, "attention.head_count_kv": kv, "attention.key_length": dim,
        "attention.value_length": dim, "rope.dimension_count": rot, "rope.freq_base": 10000.0, "vocab_size": VOCAB,
        "expert_count": experts, "expert_used_count": used, "expert_feed_forward_length": inner} | keys)
    # llama.cpp asks for it.
    f.w.add_tokenizer_model("none")
    f.add("token_embd.weight", f.rng.standard_normal((VOCAB, hidden)))
    f.norm("output_norm", hidden)
    f.matrix("output", VOCAB, hidden, 3)
    parts = (("attn_qkv", (heads + 2 * kv) * dim),) if fused else (
        ("attn_q", heads * dim), ("attn_k", kv * dim), ("attn_v", kv * dim))
    for l in range(layers):
        p = f"blk.{l}."
        f.norm(p + "attn_norm", hidden)
        for n, rows in parts:
            f.matrix(p + n, rows, hidden, 1.5)
            if qkv_bias:
                f.add(p + n + ".bias", 0.4 * f.rng.standard_normal(rows))
        if norms:
            f.norm(p + "attn_q_norm", dim)
            f.norm(p + "attn_k_norm", dim)
        f.matrix(p + "attn_output", hidden, heads * dim)
        f.norm(p + norm_name, hidden)
        if not has_experts(l):
            f.matrix(p + "ffn_gate", dense, hidden, 1.5)
            f.matrix(p + "ffn_up", dense, hidden)
            f.matrix(p + "ffn_down", hidden, dense, 1.5)
            continue
        f.matrix(p + "ffn_gate_inp", experts, hidden, 2)
        if bias:
            f.add(p + "exp_probs_b.bias", (0.3 if sigmoid else 0.15) * f.rng.standard_normal(experts))
        for n, rows, cols, gain in (("gate", inner, hidden, 1.5), ("up", inner, hidden, 1), ("down", hidden, inner, 1.5)):
            f.add(p + f"ffn_{n}_exps.weight", gain / math.sqrt(cols) * f.rng.standard_normal((experts, rows, cols)))
        if shared:
            f.matrix(p + "ffn_gate_shexp", shared, hidden, 1.5)
            f.matrix(p + "ffn_up_shexp", shared, hidden)
            f.matrix(p + "ffn_down_shexp", hidden, shared, 1.5)
    f.write()

    t, eps = f.tensors, float(np.float32(EPS))
    x = t["token_embd.weight"][TOKENS]
    for l in range(layers):
        p = f"blk.{l}."
        h = rms(x, t[p + "attn_norm.weight"], eps)
        qkv = np.concatenate([h @ t[p + n + ".weight"].T + t.get(p + n + ".bias", 0) for n, _ in parts], axis=-1)
        q, k, v = np.split(qkv.reshape(len(x), -1, dim), [heads, heads + kv], axis=1)
        if norms:
            q, k = rms(q, t[p + "attn_q_norm.weight"], eps), rms(k, t[p + "attn_k_norm.weight"], eps)
        q, k = (rotate(a, inverse(rot, 10000.0), neox) for a in (q, k))
        x = x + attention(q, k, v, 1 / math.sqrt(dim)) @ t[p + "attn_output.weight"].T
        h = rms(x, t[p + norm_name + ".weight"], eps)
        if has_experts(l):
            x = x + mixture(h, t, p, c)
        else:
            of = lambda n: t[p + f"ffn_{n}.weight"].T
            x = x + (silu(h @ of("gate")) * (h @ of("up"))) @ of("down")
    logits(name, rms(x, t["output_norm.weight"], eps) @ t["output.weight"].T)


MODELS = {
    "deepseek-small": dict(
        arch="deepseek", seed=51, layers=2, hidden=64, heads=2, kv=1, dim=32, experts=6, used=2, inner=16, dense=40,
        has_experts=lambda l: l >= 1, shared=32, neox=False, leading_dense_block_count=1, expert_shared_count=2),
    "glm4moe-small": dict(
        arch="glm4moe", seed=62, layers=2, hidden=48, heads=2, kv=1, dim=32, rot=16, experts=8, used=3, inner=16, dense=40,
        has_experts=lambda l: l >= 1, shared=16, sigmoid=True, normalise=True, scale=1.5, bias=True, norms=True,
        qkv_bias=True, norm_name="post_attention_norm", leading_dense_block_count=1, expert_shared_count=1,
        expert_gating_func=2, expert_weights_norm=True, expert_weights_scale=1.5),
    "dots1-small": dict(
        arch="dots1", seed=53, layers=2, hidden=48, heads=2, kv=2, dim=32, experts=8, used=3, inner=16, dense=24,
        has_experts=lambda l: l >= 1, shared=32, sigmoid=True, normalise=True, scale=2.5, bias=True, norms=True,
        leading_dense_block_count=1, expert_shared_count=2, expert_gating_func=2, expert_weights_norm=True,
        expert_weights_scale=2.5),
    "ernie4_5-moe-small": dict(
        arch="ernie4_5-moe", seed=54, layers=2, hidden=48, heads=2, kv=1, dim=32, experts=6, used=2, inner=16, dense=40,
        has_experts=lambda l: l >= 1, shared=24, normalise=True, bias=True, neox=False,
        leading_dense_block_count=1, interleave_moe_layer_step=1, expert_shared_count=2,
        expert_shared_feed_forward_length=24),
    "ernie4_5-moe-interleaved-small": dict(
        arch="ernie4_5-moe", seed=57, layers=4, hidden=48, heads=2, kv=1, dim=32, experts=6, used=2, inner=16, dense=40,
        has_experts=lambda l: l >= 1 and l % 2 == 1, normalise=True, bias=True, neox=False,
        leading_dense_block_count=1, interleave_moe_layer_step=2),
    "bailingmoe-small": dict(
        arch="bailingmoe", seed=55, layers=2, hidden=64, heads=2, kv=1, dim=32, experts=6, used=2, inner=16, shared=32,
        normalise=True, neox=False, expert_shared_count=2, expert_weights_norm=True),
    "bailingmoe2-small": dict(
        arch="bailingmoe2", seed=66, layers=2, hidden=64, heads=2, kv=1, dim=32, rot=16, experts=12, used=3, inner=16, dense=40,
        has_experts=lambda l: l >= 1, shared=16, sigmoid=True, normalise=True, scale=2.5, bias=True, groups=(4, 2),
        norms=True, fused=True, leading_dense_block_count=1, expert_shared_count=1, expert_gating_func=2,
        expert_weights_norm=True, expert_weights_scale=2.5, expert_group_count=4, expert_group_used_count=2),
}

if __name__ == "__main__":
    for name, of in MODELS.items():
        make(name, **of)
        # llama.cpp looks for experts in every layer behind the first ones.
        if "greedy" in sys.argv and "interleaved" not in name:
            greedy(name)
