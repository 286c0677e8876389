"""Writes the small mixtures of experts of tests/reference.rs, and their logits in f64.

Needs numpy and gguf 0.19: python3 make_experts.py. What layers have beside experts is that of make_small.py. The experts follow Jiang et
al., arXiv 2401.04088, section 2.1 (a softmax over the chosen), and Qwen3's modelling code (a softmax over all, whose chosen shares are
divided by their sum), which is the same; the last model weighs by sigmoids, as DeepSeek-AI, arXiv 2412.19437, section 2.1.2.

python3 make_experts.py greedy also needs llama-cpp-python 0.3.36, and prints what llama.cpp continues the first three tokens with, and how
far its logits are from these: tests/experts.rs has the tokens.
"""
import math
import sys
import numpy as np
from gguf import GGUFWriter
from make_small import TOKENS, angles, rms, turn

rng = np.random.default_rng(20261125)


def silu(x):
    return x / (1 + np.exp(-x))


def mixture(h, router, gate, up, down, used, function, scale):
    """h: [position, hidden]; gate and up: [expert, inner, hidden]; down: [expert, hidden, inner]."""
    out = np.zeros_like(h)
    for position, x in enumerate(h):
        logits = router @ x
        chosen = sorted(range(len(logits)), key=lambda e: -logits[e])[:used]
        if function == "softmax":
            weights = np.exp(logits[chosen] - logits[chosen].max())
            weights /= weights.sum()
        else:
            weights = 1 / (1 + np.exp(-logits[chosen]))
        for expert, weight in zip(chosen, weights):
            inner = silu(gate[expert] @ x) * (up[expert] @ x)
            out[position] += scale * weight * (down[expert] @ inner)
    return out


def make(name, arch, neox, norms, layers, hidden, inner, experts, used, heads, kv, dim, vocab, function="softmax", scale=1.0):
    base, eps = 10000.0, 1e-6
    w = GGUFWriter(f"{name}.gguf", arch)
    w.add_name(name)
    w.add_block_count(layers)
    w.add_embedding_length(hidden)
    w.add_feed_forward_length(inner if arch == "llama" else 7 * inner)
    w.add_context_length(64)
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    w.add_key_length(dim)
    w.add_value_length(dim)
    w.add_layer_norm_rms_eps(eps)
    w.add_rope_freq_base(base)
    # llama.cpp asks for these.
    w.add_tokenizer_model("none")
    w.add_vocab_size(vocab)
    w.add_expert_count(experts)
    w.add_expert_used_count(used)
    if arch != "llama":
        w.add_expert_feed_forward_length(inner)
    if function != "softmax":
        w.add_uint32(f"{arch}.expert_gating_func", 2)
        w.add_bool(f"{arch}.expert_weights_norm", False)
        w.add_float32(f"{arch}.expert_weights_scale", scale)
    t = {}

    def tensor(n, *shape, std=1.0, mean=0.0):
        t[n] = (mean + std * rng.standard_normal(shape)).astype(np.float32)
        w.add_tensor(n, t[n])

    tensor("token_embd.weight", vocab, hidden)
    tensor("output_norm.weight", hidden, std=0.1, mean=1)
    tensor("output.weight", vocab, hidden, std=3 / math.sqrt(hidden))
    for l in range(layers):
        p = f"blk.{l}."
        for n in ("attn_norm", "ffn_norm"):
            tensor(p + n + ".weight", hidden, std=0.1, mean=1)
        for n, rows in (("attn_q", heads * dim), ("attn_k", kv * dim), ("attn_v", kv * dim)):
            tensor(p + n + ".weight", rows, hidden, std=1.5 / math.sqrt(hidden))
        if norms:
            for n in ("attn_q_norm", "attn_k_norm"):
                tensor(p + n + ".weight", dim, std=0.1, mean=1)
        tensor(p + "attn_output.weight", hidden, heads * dim, std=1 / math.sqrt(heads * dim))
        tensor(p + "ffn_gate_inp.weight", experts, hidden, std=2 / math.sqrt(hidden))
        tensor(p + "ffn_gate_exps.weight", experts, inner, hidden, std=1.5 / math.sqrt(hidden))
        tensor(p + "ffn_up_exps.weight", experts, inner, hidden, std=1 / math.sqrt(hidden))
        tensor(p + "ffn_down_exps.weight", experts, hidden, inner, std=1.5 / math.sqrt(inner))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()

    t = {k: v.astype(np.float64) for k, v in t.items()}
    n = len(TOKENS)
    theta, stretch = angles(dim, np.arange(n, dtype=np.float64), base, None)
    eps = float(np.float32(eps))
    x = t["token_embd.weight"][TOKENS]
    mask = np.triu(np.full((n, n), -np.inf), 1)
    for l in range(layers):
        p = f"blk.{l}."
        h = rms(x, t[p + "attn_norm.weight"], eps)
        q, k, v = (h @ t[p + f"attn_{c}.weight"].T for c in "qkv")
        q, k, v = q.reshape(n, heads, dim), k.reshape(n, kv, dim), v.reshape(n, kv, dim)
        if norms:
            q, k = rms(q, t[p + "attn_q_norm.weight"], eps), rms(k, t[p + "attn_k_norm.weight"], eps)
        q, k = turn(q, theta, stretch, neox), turn(k, theta, stretch, neox)
        k, v = (np.repeat(a, heads // kv, axis=1) for a in (k, v))
        scores = np.einsum("ihd,jhd->hij", q, k) / math.sqrt(dim) + mask
        e = np.exp(scores - scores.max(-1, keepdims=True))
        out = np.einsum("hij,jhd->ihd", e / e.sum(-1, keepdims=True), v).reshape(n, heads * dim)
        x = x + out @ t[p + "attn_output.weight"].T
        h = rms(x, t[p + "ffn_norm.weight"], eps)
        of = [t[p + f"ffn_{c}.weight"] for c in ("gate_inp", "gate_exps", "up_exps", "down_exps")]
        x = x + mixture(h, *of, used, function, float(np.float32(scale)))
    logits = rms(x, t["output_norm.weight"], eps) @ t["output.weight"].T
    logits.astype("<f8").tofile(f"{name}.logits.f64")
    print(name, "logits std", logits.std())


def greedy(name):
    from llama_cpp import Llama

    model = Llama(model_path=f"{name}.gguf", n_ctx=256, logits_all=True, verbose=False)
    model.eval(TOKENS)
    got, want = np.array(model.scores[: len(TOKENS)]), np.fromfile(f"{name}.logits.f64").reshape(len(TOKENS), -1)
    print(name, "largest difference", abs(got - want).max())
    model.reset()
    model.eval(TOKENS[:3])
    text = []
    for _ in range(24):
        text.append(int(np.argmax(model.scores[model.n_tokens - 1])))
        model.eval(text[-1:])
    print(name, "greedy", text)


if __name__ == "__main__":
    make("qwen3moe-small", "qwen3moe", True, True, 2, 32, 16, 6, 2, 4, 2, 32, 48)
    make("llama-experts-small", "llama", False, False, 2, 32, 24, 4, 2, 4, 2, 32, 48)
    make("qwen3moe-sigmoid-small", "qwen3moe", True, True, 1, 32, 16, 5, 3, 4, 2, 32, 48, "sigmoid", 1.5)
    if "greedy" in sys.argv:
        # llama.cpp reads no other function of these architectures.
        greedy("qwen3moe-small")
        greedy("llama-experts-small")
