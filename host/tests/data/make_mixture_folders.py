"""Writes small checkpoints of mixtures with shared experts in the form of Hugging Face's folders, and their logits in f64.

Needs numpy and safetensors: python3 make_mixture_folders.py. After what the published modelling code of the families does with the names of
their checkpoints: qwen2_moe (a softmax over all experts; a shared one times a sigmoid), glm4_moe and dots1 (sigmoids, a correction that chooses and does
not count, weights divided by their sum and scaled, the first layers without experts, a layer behind the last that guesses a further token).
"""
import math
import numpy as np
from make_folders import TOKENS, VOCAB, Folder, frequencies, rotate, shape, softmax


def silu(g):
    return g / (1 + np.exp(-g))


def gated(f, p, names, rows, hidden):
    gate, up, down = names
    f.linear(p + gate, rows, hidden, 1.5)
    f.linear(p + up, rows, hidden, 1.0)
    f.linear(p + down, hidden, rows, 1.5)


MLP = ("gate_proj", "up_proj", "down_proj")


def fill(f):
    c, qwen = f.config, f.config["model_type"] == "qwen2_moe"
    hidden, heads, kv, dim = (c[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"))
    count = c["num_experts"] if qwen else c["n_routed_experts"]
    f.store("model.embed_tokens.weight", f.rng.standard_normal((VOCAB, hidden)))
    f.norm("model.norm", hidden)
    f.linear("lm_head", VOCAB, hidden, 3)
    for l in range(c["num_hidden_layers"]):
        p = f"model.layers.{l}."
        f.norm(p + "input_layernorm", hidden)
        f.norm(p + "post_attention_layernorm", hidden)
        for m, n in (("q", heads), ("k", kv), ("v", kv)):
            f.linear(p + f"self_attn.{m}_proj", n * dim, hidden, 1.5)
            if qwen or c.get("attention_bias"):
                f.store(p + f"self_attn.{m}_proj.bias", 0.4 * f.rng.standard_normal(n * dim))
        if not qwen:
            f.norm(p + "self_attn.q_norm", dim)
            f.norm(p + "self_attn.k_norm", dim)
        f.linear(p + "self_attn.o_proj", hidden, heads * dim)
        if l < c.get("first_k_dense_replace", 0):
            gated(f, p + "mlp.", MLP, c["intermediate_size"], hidden)
            continue
        f.linear(p + "mlp.gate", count, hidden, 2)
        for e in range(count):
            gated(f, f"{p}mlp.experts.{e}.", MLP, c["moe_intermediate_size"], hidden)
        if qwen:
            f.linear(p + "mlp.shared_expert_gate", 1, hidden, 2)
            gated(f, p + "mlp.shared_expert.", MLP, c["shared_expert_intermediate_size"], hidden)
        else:
            f.store(p + "mlp.gate.e_score_correction_bias", 0.3 * f.rng.standard_normal(count), "F32")
            gated(f, p + "mlp.shared_experts.", MLP, c["n_shared_experts"] * c["moe_intermediate_size"], hidden)
    if c["model_type"] == "glm4_moe":
        # Of a layer that nobody needs.
        f.norm(f"model.layers.{c['num_hidden_layers']}.enorm", hidden)


def mixture(f, h, p, linear):
    c, w = f.config, f.w
    mlp = lambda x, q: linear(silu(linear(x, q + "gate_proj")) * linear(x, q + "up_proj"), q + "down_proj")
    products, out = linear(h, p + "mlp.gate"), np.zeros_like(h)
    qwen = c["model_type"] == "qwen2_moe"
    weights = softmax(products) if qwen else 1 / (1 + np.exp(-products))
    scores = weights if qwen else weights + w[p + "mlp.gate.e_score_correction_bias"]
    groups, each = c.get("n_group", 1), scores.shape[1] // c.get("n_group", 1)
    for t in range(len(h)):
        # Of the groups whose two largest have the largest sums.
        sums = np.sort(scores[t].reshape(groups, each), axis=-1)[:, -2:].sum(-1)
        taken = np.argsort(-sums, kind="stable")[:c.get("topk_group", 1)]
        order = np.argsort(-scores[t], kind="stable")
        best = order[np.isin(order // each, taken)][:c["num_experts_per_tok"]]
        total = weights[t][best].sum() if c["norm_topk_prob"] else 1.0
        for e in best:
            out[t] += weights[t][e] / total * c.get("routed_scaling_factor", 1.0) * mlp(h[t], f"{p}mlp.experts.{e}.")
    if qwen:
        return out + mlp(h, p + "mlp.shared_expert.") / (1 + np.exp(-linear(h, p + "mlp.shared_expert_gate")))
    return out + mlp(h, p + "mlp.shared_experts.")


def forward(f):
    c, w = f.config, f.w
    eps, heads, kv, dim = float(np.float32(c["rms_norm_eps"])), c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    rms = lambda x, name: x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w[name + ".weight"]
    linear = lambda x, name: x @ w[name + ".weight"].T + w.get(name + ".bias", 0.0)
    whole = frequencies(c, int(dim * c.get("partial_rotary_factor", 1.0)), c["rope_theta"], 64)
    x = w["model.embed_tokens.weight"][TOKENS]
    n = len(x)
    for l in range(c["num_hidden_layers"]):
        p = f"model.layers.{l}."
        h = rms(x, p + "input_layernorm")
        q, k, v = (linear(h, p + f"self_attn.{m}_proj").reshape(n, -1, dim) for m in "qkv")
        if p + "self_attn.q_norm.weight" in w:
            q, k = rms(q, p + "self_attn.q_norm"), rms(k, p + "self_attn.k_norm")
        q, k = rotate(q, *whole), rotate(k, *whole)
        k, v = np.repeat(k, heads // kv, 1), np.repeat(v, heads // kv, 1)
        scores = np.einsum("ihd,jhd->hij", q, k) / math.sqrt(dim) + np.triu(np.full((n, n), -np.inf), 1)
        x = x + linear(np.einsum("hij,jhd->ihd", softmax(scores), v).reshape(n, heads * dim), p + "self_attn.o_proj")
        h = rms(x, p + "post_attention_layernorm")
        if p + "mlp.gate.weight" in w:
            x = x + mixture(f, h, p, linear)
        else:
            x = x + linear(silu(linear(h, p + "mlp.gate_proj")) * linear(h, p + "mlp.up_proj"), p + "mlp.down_proj")
    return linear(rms(x, "model.norm"), "lm_head")


def make(name, seed, dtype, **config):
    f = Folder(name, seed, dtype, model_type=name, rope_theta=10000.0, hidden_act="silu", **shape(layers=2), **config)
    fill(f)
    f.write()
    logits = forward(f)
    logits.astype("<f8").tofile(f"folders/{name}.logits.f64")
    print(name, "logits std", logits.std())


if __name__ == "__main__":
    make("qwen2_moe", 21, "BF16", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=24,
         norm_topk_prob=False, decoder_sparse_step=1, mlp_only_layers=[], use_sliding_window=False, sliding_window=4, max_window_layers=2)
    make("glm4_moe", 22, "BF16", n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, n_shared_experts=1,
         norm_topk_prob=True, routed_scaling_factor=1.5, n_group=1, topk_group=1, first_k_dense_replace=1,
         partial_rotary_factor=0.5, attention_bias=True, use_qk_norm=True, num_nextn_predict_layers=1)
    make("dots1", 23, "F16", n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=16, n_shared_experts=2,
         norm_topk_prob=True, routed_scaling_factor=2.5, n_group=4, topk_group=2, first_k_dense_replace=1, attention_bias=False,
         scoring_func="sigmoid", sliding_window=4, max_window_layers=2)
