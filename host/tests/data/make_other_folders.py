"""Writes small checkpoints of families that store more than names otherwise in the form of Hugging Face's folders, and their logits in f64.

Needs numpy, gguf and safetensors: python3 make_other_folders.py. After what the published modelling code of the families does with the names
of their checkpoints:

- gpt_oss: experts in MXFP4, `[experts, outputs, inputs / 32, 16]` bytes of two floats each, the first lowest, and powers of two less 127; or as
  they are, `[experts, inputs, outputs]`. Gates and ups in turn. YaRN mixes angles between pairs that are no whole numbers.
- qwen3_next: `in_proj_qkvz` has queries, keys, values and gates of a key head together, `in_proj_ba` its betas and decays; the norms multiply
  with 1 + w, but that of delta nets; `A_log` is the logarithm of what decays; a layer of `mtp.` guesses a further token.
- gpt2: matrices `[inputs, outputs]`, without the name of the whole, as OpenAI's; masks are stored.
- gpt_neox: queries, keys and values of a head together.
"""
import math
import numpy as np
import make_gpt_oss
from make_delta import delta_net, gated_attention, mixture as qwen_mixture
from make_dense import attention, gelu_tanh, inverse
from make_folders import E2M1, TOKENS, VOCAB, Folder
from make_layer_norms import gelu_erf, layer_norm
from make_small import rms, turn

EPS = float(np.float32(1e-6))


class Other(Folder):
    def bias(self, name, *shape, std=0.4):
        self.store(name, std * self.rng.standard_normal(shape))

    def finish(self, logits):
        self.write()
        logits.astype("<f8").tofile(f"folders/{self.name}.logits.f64")
        print(self.name, "logits std", logits.std())


def sizes(layers, hidden, ffn, heads, kv, dim, **more):
    return dict(num_hidden_layers=layers, hidden_size=hidden, intermediate_size=ffn, num_attention_heads=heads, num_key_value_heads=kv,
                head_dim=dim, tie_word_embeddings=False) | more


def joined(f, name, count, rows, cols, gain, mxfp4):
    """Matrices [experts, rows, cols], by either way of storing them."""
    if not mxfp4:
        f.store(name, gain / math.sqrt(cols) * f.rng.standard_normal((count, cols, rows)))
        return f.w[name].transpose(0, 2, 1)
    codes = f.rng.integers(0, 16, (count, rows, cols // 32, 32))
    scales = 127 + round(math.log2(gain / math.sqrt(cols) / 3)) + f.rng.integers(-1, 2, (count, rows, cols // 32))
    f.bits8(name + "_blocks", "U8", codes[..., ::2] | codes[..., 1::2] << 4)
    f.bits8(name + "_scales", "U8", scales)
    values = np.where(codes >> 3, -1, 1) * E2M1[codes & 7] * 2.0 ** (scales[..., None] - 127)
    return values.reshape(count, rows, cols)


def between_pairs(dim, base, s):
    """YaRN (arXiv 2309.00071, section 3.2) between any pairs; angles are divided by numbers of f32."""
    pair = lambda turns: dim * math.log(s["original_max_position_embeddings"] / (turns * 2 * math.pi)) / (2 * math.log(base))
    low, high = max(pair(s["beta_fast"]), 0), min(pair(s["beta_slow"]), dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)
    divisors = (1 / (ramp / s["factor"] + 1 - ramp)).astype(np.float32)
    return inverse(dim, base) / divisors, float(np.float32(0.1 * math.log(s["factor"]) + 1))


def gpt_oss(name, seed, mxfp4):
    m = make_gpt_oss
    m.HEADS, m.KV, m.DIM, m.USED, count, hidden, ffn, window = 4, 2, 32, 3, 6, 64, 32, 4
    yarn = dict(rope_type="yarn", factor=8.0, beta_fast=32.0, beta_slow=1.0, original_max_position_embeddings=16, truncate=False)
    quantization = dict(quantization_config=dict(quant_method="mxfp4", modules_to_not_convert=["lm_head"])) if mxfp4 else {}
    f = Other(name, seed, "BF16", model_type="gpt_oss", rope_theta=150000.0, rope_scaling=yarn, hidden_act="silu", swiglu_limit=7.0,
              attention_bias=True, sliding_window=window, layer_types=["sliding_attention", "full_attention"] * 2, num_local_experts=count,
              num_experts_per_tok=m.USED, **sizes(4, hidden, ffn, m.HEADS, m.KV, m.DIM), **quantization)
    f.store("model.embed_tokens.weight", f.rng.standard_normal((VOCAB, hidden)))
    f.norm("model.norm", hidden)
    f.linear("lm_head", VOCAB, hidden, 3)
    t = []
    for p in (f"model.layers.{l}." for l in range(4)):
        f.norm(p + "input_layernorm", hidden)
        f.norm(p + "post_attention_layernorm", hidden)
        for n, rows in (("q", m.HEADS * m.DIM), ("k", m.KV * m.DIM), ("v", m.KV * m.DIM)):
            f.linear(p + f"self_attn.{n}_proj", rows, hidden, 1.5)
            f.bias(p + f"self_attn.{n}_proj.bias", rows)
        f.linear(p + "self_attn.o_proj", hidden, m.HEADS * m.DIM)
        f.bias(p + "self_attn.o_proj.bias", hidden)
        f.bias(p + "self_attn.sinks", m.HEADS, std=1.5)
        f.linear(p + "mlp.router", count, hidden, 2)
        f.bias(p + "mlp.router.bias", count)
        both = joined(f, p + "mlp.experts.gate_up_proj", count, 2 * ffn, hidden, 4, mxfp4)
        down = joined(f, p + "mlp.experts.down_proj", count, hidden, ffn, 0.3, mxfp4)
        f.bias(p + "mlp.experts.gate_up_proj_bias", count, 2 * ffn)
        f.bias(p + "mlp.experts.down_proj_bias", count, hidden)
        biases = f.w[p + "mlp.experts.gate_up_proj_bias"]
        of = dict(gate_inp=(f.w[p + "mlp.router.weight"], f.w[p + "mlp.router.bias"]), gate_exps=(both[:, ::2], biases[:, ::2]),
                  up_exps=(both[:, 1::2], biases[:, 1::2]), down_exps=(down, f.w[p + "mlp.experts.down_proj_bias"]))
        t.append({f"ffn_{n}.{k}": v for n, pair in of.items() for k, v in zip(("weight", "bias"), pair)})
    frequencies, stretch = between_pairs(m.DIM, 150000.0, yarn)
    x = f.w["model.embed_tokens.weight"][TOKENS]
    n = len(x)
    theta = np.arange(n)[:, None] * frequencies
    for l in range(4):
        p = f"model.layers.{l}."
        times = lambda h, name: h @ f.w[p + name + ".weight"].T + f.w[p + name + ".bias"]
        h = rms(x, f.w[p + "input_layernorm.weight"], EPS)
        q, k, v = (times(h, f"self_attn.{c}_proj").reshape(n, -1, m.DIM) for c in "qkv")
        out = m.attend(turn(q, theta, stretch, True), turn(k, theta, stretch, True), v, f.w[p + "self_attn.sinks"], 0 if l % 2 else window)
        x = x + times(out, "self_attn.o_proj")
        x = x + m.mixture(rms(x, f.w[p + "post_attention_layernorm.weight"], EPS), t[l], "")[0]
    f.finish(rms(x, f.w["model.norm.weight"], EPS) @ f.w["lm_head.weight"].T)


def qwen3_next(name, seed):
    layers, hidden, heads, kv, dim, rot, key_heads, value_heads, state, count, inner, shared = 4, 32, 4, 2, 32, 8, 2, 4, 32, 6, 16, 24
    kinds = ["linear_attention", "full_attention", "linear_attention", "linear_attention"]
    f = Other(name, seed, "BF16", model_type="qwen3_next", rope_theta=10000.0, partial_rotary_factor=0.25, hidden_act="silu", layer_types=kinds,
              linear_conv_kernel_dim=4, linear_key_head_dim=state, linear_value_head_dim=state, linear_num_key_heads=key_heads,
              linear_num_value_heads=value_heads, num_experts=count, num_experts_per_tok=2, moe_intermediate_size=inner, norm_topk_prob=True,
              shared_expert_intermediate_size=shared, decoder_sparse_step=1, mlp_only_layers=[], **sizes(layers, hidden, 48, heads, kv, dim))
    norm = lambda name, n, one=0: f.store(name + ".weight", one + 0.1 * f.rng.standard_normal(n))
    f.store("model.embed_tokens.weight", f.rng.standard_normal((VOCAB, hidden)))
    norm("model.norm", hidden)
    f.linear("lm_head", VOCAB, hidden, 3)
    f.store("mtp.norm.weight", np.zeros(hidden))
    values = value_heads * state
    for l, kind in enumerate(kinds):
        p = f"model.layers.{l}."
        norm(p + "input_layernorm", hidden)
        norm(p + "post_attention_layernorm", hidden)
        if kind == "full_attention":
            for n, rows in (("q", 2 * heads * dim), ("k", kv * dim), ("v", kv * dim)):
                f.linear(p + f"self_attn.{n}_proj", rows, hidden, 1.5)
            f.linear(p + "self_attn.o_proj", hidden, heads * dim)
            norm(p + "self_attn.q_norm", dim)
            norm(p + "self_attn.k_norm", dim)
        else:
            p += "linear_attn."
            channels = 2 * key_heads * state + values
            f.linear(p + "in_proj_qkvz", channels + values, hidden, 1.5)
            f.linear(p + "in_proj_ba", 2 * value_heads, hidden, 1.5)
            f.store(p + "conv1d.weight", 0.6 * f.rng.standard_normal((channels, 1, 4)))
            f.store(p + "A_log", 0.5 * f.rng.standard_normal(value_heads))
            f.store(p + "dt_bias", f.rng.standard_normal(value_heads) - 1)
            norm(p + "norm", state, 1)
            f.linear(p + "out_proj", hidden, values)
            p = f"model.layers.{l}."
        f.linear(p + "mlp.gate", count, hidden, 2)
        f.linear(p + "mlp.shared_expert_gate", 1, hidden, 2)
        for q, rows in [(f"mlp.experts.{e}.", inner) for e in range(count)] + [("mlp.shared_expert.", shared)]:
            f.linear(p + q + "gate_proj", rows, hidden, 1.5)
            f.linear(p + q + "up_proj", rows, hidden)
            f.linear(p + q + "down_proj", hidden, rows, 1.5)
    x = f.w["model.embed_tokens.weight"][TOKENS]
    normed = lambda x, name: rms(x, 1 + f.w[name + ".weight"], EPS)
    for l, kind in enumerate(kinds):
        p = f"model.layers.{l}."
        of = lambda name: f.w[p + name]
        h = normed(x, p + "input_layernorm")
        if kind == "full_attention":
            t = {f"attn_{n}.weight": of(f"self_attn.{n}_proj.weight") for n in "qkv"} | {"attn_output.weight": of("self_attn.o_proj.weight")}
            t |= {f"attn_{n}_norm.weight": 1 + of(f"self_attn.{n}_norm.weight") for n in "qk"}
            x = x + gated_attention(h, t, "", heads, dim, rot, EPS)
        else:
            of = lambda name: f.w[p + "linear_attn." + name]
            t = {"ssm_in.weight": of("in_proj_qkvz.weight"), "ssm_ba.weight": of("in_proj_ba.weight"), "ssm_conv1d.weight": of("conv1d.weight")[:, 0],
                 "ssm_a": (-np.exp(of("A_log"))).astype(np.float32).astype(np.float64), "ssm_dt.bias": of("dt_bias"),
                 "ssm_norm.weight": of("norm.weight"), "ssm_out.weight": of("out_proj.weight")}
            x = x + delta_net(h, t, "", key_heads, value_heads, state, EPS, True)
        of = lambda name: f.w[p + "mlp." + name + ".weight"]
        t = {f"ffn_{n}_exps.weight": np.stack([of(f"experts.{e}.{n}_proj") for e in range(count)]) for n in ("gate", "up", "down")}
        t |= {f"ffn_{n}_shexp.weight": of(f"shared_expert.{n}_proj") for n in ("gate", "up", "down")}
        t |= {"ffn_gate_inp.weight": of("gate"), "ffn_gate_inp_shexp.weight": of("shared_expert_gate")[0]}
        x = x + qwen_mixture(normed(x, p + "post_attention_layernorm"), t, "")
    f.finish(normed(x, "model.norm") @ f.w["lm_head.weight"].T)


def gpt(name, seed, neox, **config):
    """Both families: layer norms, biases everywhere, no gates."""
    layers, hidden, heads, dim, ffn, eps = 2, 64, 2, 32, 128 if neox else 256, float(np.float32(1e-5))
    f = Other(name, seed, "F16", **config)
    del f.config["rms_norm_eps"]
    if not neox:
        del f.config["max_position_embeddings"]
    norm, final, qkv, output, second, up, down = (
        ("input_layernorm", "gpt_neox.final_layer_norm", "attention.query_key_value", "attention.dense", "post_attention_layernorm",
         "mlp.dense_h_to_4h", "mlp.dense_4h_to_h") if neox else
        ("ln_1", "ln_f", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"))

    def linear(name, rows, cols, gain=1.0):
        values = gain / math.sqrt(cols) * f.rng.standard_normal((rows, cols))
        f.store(name + ".weight", values if neox else values.T)
        f.bias(name + ".bias", rows)

    def normed(name):
        f.norm(name, hidden)
        f.bias(name + ".bias", hidden)

    table = "gpt_neox.embed_in.weight" if neox else "wte.weight"
    f.store(table, (1 if neox else 0.3) * f.rng.standard_normal((VOCAB, hidden)))
    if neox:
        f.linear("embed_out", VOCAB, hidden, 3)
    else:
        f.store("wpe.weight", 0.7 * f.rng.standard_normal((64, hidden)))
    normed(final)
    for p in ((f"gpt_neox.layers.{l}." if neox else f"h.{l}.") for l in range(layers)):
        normed(p + norm)
        normed(p + second)
        linear(p + qkv, 3 * hidden, hidden, 1.5)
        linear(p + output, hidden, hidden)
        linear(p + up, ffn, hidden, 1.5)
        linear(p + down, hidden, ffn, 1.5)
        if neox:
            f.store(p + "attention.rotary_emb.inv_freq", inverse(8, 10000.0), "F32")
            f.store(p + "attention.masked_bias", -1e4, "F16")
        else:
            f.bits8(p + "attn.bias", "U8", np.tril(np.ones((1, 1, 64, 64))))
    x = f.w[table][TOKENS]
    n, w = len(x), f.w
    times = lambda h, name: h @ (w[name + ".weight"].T if neox else w[name + ".weight"]) + w[name + ".bias"]
    ln = lambda x, name: layer_norm(x, w[name + ".weight"], w[name + ".bias"])
    if not neox:
        x = x + w["wpe.weight"][:n]
    for p in ((f"gpt_neox.layers.{l}." if neox else f"h.{l}.") for l in range(layers)):
        mixed = times(ln(x, p + norm), p + qkv)
        if neox:
            q, k, v = np.split(mixed.reshape(n, heads, 3 * dim), 3, axis=-1)
            theta = np.arange(n)[:, None] * inverse(8, 10000.0)
            q, k = (np.concatenate([turn(a[..., :8], theta, 1.0, True), a[..., 8:]], -1) for a in (q, k))
        else:
            q, k, v = (a.reshape(n, heads, dim) for a in np.split(mixed, 3, axis=-1))
        after = x + times(attention(q, k, v, 1 / math.sqrt(dim)), p + output)
        act = gelu_erf if neox else gelu_tanh
        x = after + times(act(times(ln(x if config.get("use_parallel_residual") else after, p + second), p + up)), p + down)
    f.finish(ln(x, final) @ w["embed_out.weight" if neox else table].T)


if __name__ == "__main__":
    gpt_oss("gpt_oss", 51, True)
    gpt_oss("gpt_oss-bf16", 52, False)
    qwen3_next("qwen3_next", 53)
    gpt("gpt2", 54, False, model_type="gpt2", n_layer=2, n_embd=64, n_head=2, n_positions=64, n_ctx=64, n_inner=None, layer_norm_epsilon=1e-5,
        activation_function="gelu_new")
    neox = sizes(2, 64, 128, 2, 2, 32) | dict(model_type="gpt_neox", rotary_pct=0.25, rotary_emb_base=10000, hidden_act="gelu", layer_norm_eps=1e-5)
    del neox["num_key_value_heads"], neox["head_dim"]
    gpt("gpt_neox", 55, True, use_parallel_residual=True, **neox)
    gpt("gpt_neox-sequential", 56, True, use_parallel_residual=False, **neox)
