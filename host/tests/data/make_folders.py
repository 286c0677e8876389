"""Writes small checkpoints in the form of Hugging Face's folders, and their logits in f64.

Needs numpy and safetensors: python3 make_folders.py. The forward pass follows the published descriptions of the models with the
names and conventions of `transformers` (halves of heads are rotated together, Gemma's norms multiply with 1 + w); weights are those
in the files, taken apart after the descriptions of the formats:

- GPTQ as AutoGPTQ and GPTQModel pack it: `qweight[k / 8, n]` holds eight inputs of an output, the lowest four bits first,
  `qzeros[g, n / 8]` the zeros less one (version 2: the zeros), `g_idx[k]` the group of an input. Of three bits, 32 inputs are in three words:
  ten, two bits of the next and its third, ten, one bit of the next and its other two, ten.
- AWQ as AutoAWQ's GEMM packs it: `qweight[k, n / 8]` holds eight outputs in the order 0 2 4 6 1 3 5 7.
- FP8 with `weight_scale_inv` for blocks, or `weight_scale` for rows or the whole matrix.
- NVFP4: two four-bit floats a byte, the first column lowest, `weight_scale[n, k / 16]` in E4M3, and for the matrix ModelOpt's factor
  `weight_scale_2` or compressed-tensors' divisor `weight_global_scale`.
- compressed-tensors: `weight_packed[n, k / 8]`, codes above -8 or -128, `weight_zero_point` packed along the outputs.
"""
import json
import math
import os
import numpy as np
from safetensors.numpy import save_file

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 47, 0]
VOCAB = 48


def bf16(x):
    """Rounded to bfloat16, to nearest even."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def write_safetensors(path, tensors):
    """As the safetensors library does, with types that numpy lacks: {name: (dtype, shape, bytes)}."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + b"".join(d for _, _, d in tensors.values()))


class Folder:
    def __init__(self, name, seed, dtype, **config):
        self.name, self.dtype, self.rng = name, dtype, np.random.default_rng(seed)
        self.stored, self.w, self.config = {}, {}, dict(vocab_size=VOCAB, max_position_embeddings=64, rms_norm_eps=1e-6) | config

    def store(self, name, array, dtype=None):
        """As it is stored; for calculation, what was stored."""
        dtype, array = dtype or self.dtype, np.asarray(array)
        if dtype == "BF16":
            array = bf16(array)
            data = (array.view(np.uint32) >> 16).astype("<u2").tobytes()
        else:
            array = array.astype({"F32": "<f4", "F16": "<f2", "I32": "<i4", "I64": "<i8", "U8": "u1"}[dtype])
            data = array.tobytes()
        self.stored[name] = (dtype, array.shape, data)
        self.w[name] = array.astype(np.float64)

    def bits8(self, name, dtype, array):
        self.stored[name] = (dtype, array.shape, array.astype(np.uint8).tobytes())

    def norm(self, name, n):
        gemma = self.config["model_type"].startswith("gemma")
        self.store(name + ".weight", (0 if gemma else 1) + 0.1 * self.rng.standard_normal(n))

    def linear(self, name, rows, cols, gain=1.0):
        self.store(name + ".weight", gain / math.sqrt(cols) * self.rng.standard_normal((rows, cols)))

    def write(self, shards=1, library=False):
        os.makedirs(f"folders/{self.name}", exist_ok=True)
        with open(f"folders/{self.name}/config.json", "w") as f:
            json.dump(self.config, f, indent=1)
        if shards == 1:
            path = f"folders/{self.name}/model.safetensors"
            if library:
                kinds = {"F32": "<f4", "F16": "<f2", "I32": "<i4"}
                save_file({n: np.frombuffer(d, kinds[t]).reshape(s) for n, (t, s, d) in self.stored.items()}, path)
            else:
                write_safetensors(path, self.stored)
            return
        names, index = list(self.stored), {}
        for i in range(shards):
            file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
            own = names[i::shards]
            write_safetensors(f"folders/{self.name}/{file}", {n: self.stored[n] for n in own})
            index |= {n: file for n in own}
        with open(f"folders/{self.name}/model.safetensors.index.json", "w") as f:
            json.dump({"metadata": {}, "weight_map": index}, f, indent=1)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def frequencies(c, dims, base, context):
    """Inverse frequencies and the factor of cosines and sines."""
    inverse = base ** (-2.0 * np.arange(dims // 2) / dims)
    s = c.get("rope_scaling") or c.get("rope_parameters") or {}
    kind = s.get("rope_type", s.get("type", "default"))
    if kind == "linear":
        return inverse / s["factor"], 1.0
    if kind == "llama3":
        wave, original = 2 * math.pi / inverse, s["original_max_position_embeddings"]
        smooth = (original / wave - s["low_freq_factor"]) / (s["high_freq_factor"] - s["low_freq_factor"])
        mixed = (1 - smooth) * inverse / s["factor"] + smooth * inverse
        slow, fast = wave > original / s["low_freq_factor"], wave < original / s["high_freq_factor"]
        return np.where(slow, inverse / s["factor"], np.where(fast, inverse, mixed)), 1.0
    if kind == "yarn":
        original = s["original_max_position_embeddings"]
        turns = lambda n: dims * math.log(original / (n * 2 * math.pi)) / (2 * math.log(base))
        low, high = max(math.floor(turns(s.get("beta_fast", 32))), 0), min(math.ceil(turns(s.get("beta_slow", 1))), dims - 1)
        ramp = np.clip((np.arange(dims // 2) - low) / max(high - low, 1e-3), 0, 1)
        return inverse / s["factor"] * ramp + inverse * (1 - ramp), s.get("attention_factor", 0.1 * math.log(s["factor"]) + 1)
    if kind == "longrope":
        original = c["original_max_position_embeddings"]
        factors = s["long_factor" if context > original else "short_factor"]
        scale = c["max_position_embeddings"] / original
        return inverse / np.array(factors), math.sqrt(1 + math.log(scale) / math.log(original))
    assert kind == "default"
    return inverse, 1.0


def rotate(x, inverse, stretch):
    """[position, head, dim]: element i with i + n / 2 of the first n = 2 * len(inverse)."""
    theta = np.arange(len(x))[:, None, None] * inverse
    cos, sin, n = np.cos(theta) * stretch, np.sin(theta) * stretch, len(inverse)
    a, b = x[..., :n], x[..., n:2 * n]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, x[..., 2 * n:]], -1)


def forward(f, context=64):
    c, w, kind = f.config, f.w, f.config["model_type"]
    gemma, eps = kind.startswith("gemma"), float(np.float32(c["rms_norm_eps"]))
    heads, kv, dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    one = 1.0 if gemma else 0.0

    def rms(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * (one + w[name + ".weight"])

    def linear(x, name):
        return x @ w[name + ".weight"].T + w.get(name + ".bias", 0.0)

    dims = int(dim * c.get("partial_rotary_factor", 1.0))
    base = c.get("rope_theta") or c["rope_parameters"]["rope_theta"]
    whole = frequencies(c, dims, base, context)
    local = (c["rope_local_base_freq"] ** (-2.0 * np.arange(dims // 2) / dims), 1.0) if kind == "gemma3_text" else whole
    act = (lambda g: 0.5 * g * (1 + np.tanh(math.sqrt(2 / math.pi) * (g + 0.044715 * g**3)))) if gemma else (lambda g: g / (1 + np.exp(-g)))
    x = w["model.embed_tokens.weight"][TOKENS]
    x = x * math.sqrt(c["hidden_size"]) if gemma else x
    n = len(x)
    for l in range(c["num_hidden_layers"]):
        p = f"model.layers.{l}."
        sliding = {"gemma2": l % 2 == 0, "gemma3_text": l % 6 != 5, "mistral": True, "phi3": True}.get(kind, False)
        window = c.get("sliding_window") if sliding else None
        h = rms(x, p + "input_layernorm")
        if kind == "phi3":
            q, k, v = np.split(linear(h, p + "self_attn.qkv_proj"), [heads * dim, (heads + kv) * dim], -1)
        else:
            q, k, v = (linear(h, p + f"self_attn.{m}_proj") for m in "qkv")
        q, k, v = q.reshape(n, heads, dim), k.reshape(n, kv, dim), v.reshape(n, kv, dim)
        if p + "self_attn.q_norm.weight" in w:
            q, k = rms(q, p + "self_attn.q_norm"), rms(k, p + "self_attn.k_norm")
        if not (kind == "smollm3" and l % 4 == 3):
            which = local if kind == "gemma3_text" and sliding else whole
            q, k = rotate(q, *which), rotate(k, *which)
        k, v = np.repeat(k, heads // kv, 1), np.repeat(v, heads // kv, 1)
        scores = np.einsum("ihd,jhd->hij", q, k) * c.get("query_pre_attn_scalar", dim) ** -0.5
        if c.get("attn_logit_softcapping"):
            scores = c["attn_logit_softcapping"] * np.tanh(scores / c["attn_logit_softcapping"])
        i, j = np.arange(n)[:, None], np.arange(n)
        seen = (j <= i) & ((j > i - window) if window else True)
        out = np.einsum("hij,jhd->ihd", softmax(np.where(seen, scores, -np.inf)), v).reshape(n, heads * dim)
        out = linear(out, p + "self_attn.o_proj")
        x = x + (rms(out, p + "post_attention_layernorm") if gemma else out)
        h = rms(x, p + ("pre_feedforward_layernorm" if gemma else "post_attention_layernorm"))
        if kind in ("qwen3_moe", "mixtral"):
            out = experts(f, h, p, linear, act)
        elif kind == "phi3":
            gate, up = np.split(linear(h, p + "mlp.gate_up_proj"), 2, -1)
            out = linear(up * act(gate), p + "mlp.down_proj")
        else:
            out = linear(act(linear(h, p + "mlp.gate_proj")) * linear(h, p + "mlp.up_proj"), p + "mlp.down_proj")
        x = x + (rms(out, p + "post_feedforward_layernorm") if gemma else out)
    head = "model.embed_tokens" if c["tie_word_embeddings"] else "lm_head"
    logits = linear(rms(x, "model.norm"), head)
    cap = c.get("final_logit_softcapping")
    return cap * np.tanh(logits / cap) if cap else logits


def experts(f, h, p, linear, act):
    mixtral = f.config["model_type"] == "mixtral"
    block, (gate, up, down) = ("block_sparse_moe", ("w1", "w3", "w2")) if mixtral else ("mlp", ("gate_proj", "up_proj", "down_proj"))
    shares, out = softmax(linear(h, p + block + ".gate")), np.zeros_like(h)
    for t in range(len(h)):
        best = np.argsort(-shares[t])[: f.config["num_experts_per_tok"]]
        total = shares[t][best].sum() if mixtral or f.config["norm_topk_prob"] else 1.0
        for e in best:
            q = f"{p}{block}.experts.{e}."
            out[t] += shares[t][e] / total * linear(act(linear(h[t], q + gate)) * linear(h[t], q + up), q + down)
    return out


def fill(f, linear):
    """Random weights for the configuration; `linear(name, rows, cols, gain)` makes those that may be quantised."""
    c, kind = f.config, f.config["model_type"]
    hidden, ffn, heads, kv, dim = (c[k] for k in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim"))
    f.store("model.embed_tokens.weight", f.rng.standard_normal((VOCAB, hidden)) * (0.3 if kind.startswith("gemma") else 1.0))
    f.norm("model.norm", hidden)
    if not c["tie_word_embeddings"]:
        f.linear("lm_head", VOCAB, hidden, 3)
    for p in (f"model.layers.{l}." for l in range(c["num_hidden_layers"])):
        norms = ["input_layernorm", "post_attention_layernorm"]
        if kind.startswith("gemma"):
            norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
        for norm in norms:
            f.norm(p + norm, hidden)
        if kind in ("qwen3", "qwen3_moe", "gemma3_text"):
            f.norm(p + "self_attn.q_norm", dim)
            f.norm(p + "self_attn.k_norm", dim)
        if kind == "phi3":
            linear(p + "self_attn.qkv_proj", (heads + 2 * kv) * dim, hidden, 1.5)
        else:
            for m, count in (("q", heads), ("k", kv), ("v", kv)):
                linear(p + f"self_attn.{m}_proj", count * dim, hidden, 1.5)
                if kind == "qwen2":
                    f.store(p + f"self_attn.{m}_proj.bias", 0.7 * f.rng.standard_normal(count * dim))
        linear(p + "self_attn.o_proj", hidden, heads * dim, 1.0)
        if kind == "phi3":
            linear(p + "mlp.gate_up_proj", 2 * ffn, hidden, 1.5)
            linear(p + "mlp.down_proj", hidden, ffn, 1.5)
        elif kind == "qwen3_moe":
            f.linear(p + "mlp.gate", c["num_experts"], hidden, 2)
            for q in (f"{p}mlp.experts.{e}." for e in range(c["num_experts"])):
                for m, (rows, cols) in dict(gate=(c["moe_intermediate_size"], hidden), up=(c["moe_intermediate_size"], hidden), down=(hidden, c["moe_intermediate_size"])).items():
                    linear(q + m + "_proj", rows, cols, 1.5)
        elif kind == "mixtral":
            f.linear(p + "block_sparse_moe.gate", c["num_local_experts"], hidden, 2)
            for q in (f"{p}block_sparse_moe.experts.{e}." for e in range(c["num_local_experts"])):
                for m, (rows, cols) in dict(w1=(ffn, hidden), w2=(hidden, ffn), w3=(ffn, hidden)).items():
                    linear(q + m, rows, cols, 1.5)
        else:
            linear(p + "mlp.gate_proj", ffn, hidden, 1.5)
            linear(p + "mlp.up_proj", ffn, hidden, 1.0)
            linear(p + "mlp.down_proj", hidden, ffn, 1.5)


def finish(f, suffix="", context=64):
    logits = forward(f, context)
    logits.astype("<f8").tofile(f"folders/{f.name}{suffix}.logits.f64")
    print(f.name + suffix, "logits std", logits.std())


def shape(layers=2, hidden=32, ffn=48, heads=4, kv=2, dim=16, tied=False):
    return dict(num_hidden_layers=layers, hidden_size=hidden, intermediate_size=ffn, num_attention_heads=heads,
                num_key_value_heads=kv, head_dim=dim, tie_word_embeddings=tied)


def dense():
    llama3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
    f = Folder("llama", 1, "BF16", model_type="llama", rope_theta=10000.0, rope_scaling=llama3, hidden_act="silu", **shape())
    fill(f, f.linear)
    f.write(shards=3)
    finish(f)
    yarn = dict(type="yarn", factor=4.0, original_max_position_embeddings=16, attention_factor=1.3)
    f = Folder("qwen2", 2, "F16", model_type="qwen2", rope_theta=1000000.0, rope_scaling=yarn, hidden_act="silu", use_sliding_window=False,
               sliding_window=4, max_window_layers=2, **shape(tied=True))
    fill(f, f.linear)
    f.write(library=True)
    finish(f)
    f = Folder("qwen3", 3, "F32", model_type="qwen3", rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=10000.0), hidden_act="silu",
               layer_types=["full_attention"] * 2, **shape())
    fill(f, f.linear)
    f.write(library=True)
    finish(f)
    f = Folder("mistral", 4, "BF16", model_type="mistral", rope_theta=10000.0, sliding_window=3, hidden_act="silu", **shape())
    fill(f, f.linear)
    f.write()
    finish(f)
    f = Folder("phi3", 5, "BF16", model_type="phi3", rope_theta=10000.0, hidden_act="silu", partial_rotary_factor=0.75, sliding_window=None,
               original_max_position_embeddings=16, rope_scaling=dict(type="longrope", short_factor=[1 + 0.02 * i for i in range(6)],
               long_factor=[1 + 1.5 * i for i in range(6)]), **shape())
    fill(f, f.linear)
    f.write()
    # GGUF has them in f32.
    f.config["rope_scaling"] = {k: [float(np.float32(x)) for x in v] if isinstance(v, list) else v for k, v in f.config["rope_scaling"].items()}
    finish(f)
    finish(f, "-short", 16)
    f = Folder("smollm3", 6, "BF16", model_type="smollm3", rope_theta=10000.0, hidden_act="silu", no_rope_layer_interval=4, no_rope_layers=[1, 1, 1, 0, 1],
               use_sliding_window=False, sliding_window=None, layer_types=["full_attention"] * 5, **shape(layers=5, tied=True))
    fill(f, f.linear)
    f.write()
    finish(f)
    f = Folder("gemma2", 7, "F32", model_type="gemma2", rope_theta=10000.0, hidden_act="gelu_pytorch_tanh", hidden_activation="gelu_pytorch_tanh",
               sliding_window=4, query_pre_attn_scalar=16, attn_logit_softcapping=5.0, final_logit_softcapping=3.0, **shape(layers=3, tied=True))
    fill(f, f.linear)
    f.write()
    finish(f)
    f = Folder("gemma3", 8, "F32", model_type="gemma3_text", rope_theta=1000000.0, rope_local_base_freq=10000.0, hidden_activation="gelu_pytorch_tanh",
               sliding_window=3, sliding_window_pattern=6, query_pre_attn_scalar=16, attn_logit_softcapping=None, final_logit_softcapping=None,
               rope_scaling=dict(rope_type="linear", factor=8.0), **shape(layers=7, tied=True))
    fill(f, f.linear)
    f.write()
    finish(f)
    f = Folder("qwen3_moe", 9, "F16", model_type="qwen3_moe", rope_theta=10000.0, hidden_act="silu", num_experts=4, num_experts_per_tok=2,
               moe_intermediate_size=32, norm_topk_prob=False, decoder_sparse_step=1, mlp_only_layers=[], **shape())
    fill(f, f.linear)
    f.write()
    finish(f)
    f = Folder("mixtral", 10, "BF16", model_type="mixtral", rope_theta=10000.0, hidden_act="silu", num_local_experts=4, num_experts_per_tok=2,
               sliding_window=None, **shape())
    fill(f, f.linear)
    f.write()
    finish(f)


def words(codes, bits):
    """[.., n * 32 / bits] codes as int32, the first lowest."""
    if bits == 3:
        c = codes.astype(np.uint64).reshape(*codes.shape[:-1], -1, 32)
        ten = lambda first, shift: (c[..., first:first + 10] << (shift + 3 * np.arange(10, dtype=np.uint64))).sum(-1)
        one, two = ten(0, 0) | c[..., 10] << 30, c[..., 10] >> 2 | ten(11, 1) | c[..., 21] << 31
        three = c[..., 21] >> 1 | ten(22, 2)
        return np.stack([one, two, three], -1).reshape(*codes.shape[:-1], -1).astype(np.uint32).view(np.int32)
    per = 32 // bits
    codes = codes.astype(np.uint64).reshape(*codes.shape[:-1], -1, per)
    return (codes << (bits * np.arange(per, dtype=np.uint64))).sum(-1).astype(np.uint32).view(np.int32)


def short(f, shape, size, bits=4):
    """Scales of so few bits that a weight is an f16."""
    low = 1 << (bits - 1)
    return f.rng.integers(low, 2 * low, shape) / low * 2.0 ** math.floor(math.log2(size))


def gptq(f, name, rows, cols, gain, bits, group, zeros, less=1, order=False):
    """`order`: whether inputs are in random groups, or the group of each."""
    groups = 1 if group == -1 else cols // group
    half = 1 << (bits - 1)
    size = gain / math.sqrt(cols) / (half * 0.6)
    exact = order is not False or (bits == 8 and zeros is None)
    scales = short(f, (groups, rows), size, 3) if exact else (size * (0.7 + 0.6 * f.rng.random((groups, rows)))).astype(np.float16)
    z = f.rng.integers(max(half - 2, less), min(half + 3, 2 * half + less), (groups, rows)) if zeros is None else np.full((groups, rows), zeros)
    if zeros is None and less:
        z[0, 0], z[-1, -1] = half * 2, 1  # What is stored is 15 and 0.
    codes = f.rng.integers(0, 2 * half, (cols, rows))
    index = np.arange(cols) // (cols if group == -1 else group)
    index = index if order is False else f.rng.permutation(index) if order is True else order
    f.w[name + ".weight"] = ((codes - z[index]) * scales.astype(np.float64)[index]).T
    w = dict(f.w)
    f.store(name + ".qweight", words(codes.T, bits).T, "I32")
    f.store(name + ".qzeros", words(z - less, bits), "I32")
    f.store(name + ".scales", scales, "F16")
    f.store(name + ".g_idx", index, "I32")
    f.w = w


def awq(f, name, rows, cols, gain, group):
    scales = (gain / math.sqrt(cols) / 5 * (0.7 + 0.6 * f.rng.random((cols // group, rows)))).astype(np.float16)
    z, codes = f.rng.integers(0, 16, (cols // group, rows)), f.rng.integers(0, 16, (cols, rows))
    index = np.arange(cols) // group
    f.w[name + ".weight"] = ((codes - z[index]) * scales.astype(np.float64)[index]).T
    w = dict(f.w)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    shuffled = lambda a: a.reshape(len(a), -1, 8)[:, :, order].reshape(len(a), -1)
    f.store(name + ".qweight", words(shuffled(codes), 4), "I32")
    f.store(name + ".qzeros", words(shuffled(z), 4), "I32")
    f.store(name + ".scales", scales, "F16")
    f.w = w


def e4m3(b):
    e, m = (b >> 3) & 15, b & 7
    return np.where(b >> 7, -1.0, 1.0) * np.where(e == 0, m * 2.0**-9, (1 + m / 8) * 2.0 ** (e - 7.0))


def e5m2(b):
    return (b.astype(np.uint16) << 8).view(np.float16).astype(np.float64)


def float8(f, name, rows, cols, gain, kind, block, suffix, exact=True):
    """Bytes of values between about 2^-6 and 2, and scales for blocks of this size (0: all); so that weights are f16s, or not."""
    values = f.rng.standard_normal((rows, cols))
    every = np.array([b for b in range(256) if (b & 127) < (127 if kind == "F8_E4M3" else 124)], np.uint8)
    table = (e4m3 if kind == "F8_E4M3" else e5m2)(every)
    order = np.argsort(table, kind="stable")
    bits = every[order][np.clip(np.searchsorted(table[order], values), 0, len(every) - 1)]
    high, wide = (block[0] or rows), (block[1] or cols)
    scales = short(f, (-(-rows // high), -(-cols // wide)), gain / math.sqrt(cols), 7)
    if not exact:
        scales = (scales * (0.7 + 0.6 * f.rng.random(scales.shape))).astype(np.float32)
    f.bits8(name + ".weight", kind, bits)
    f.w[name + ".weight"] = (e4m3 if kind == "F8_E4M3" else e5m2)(bits) * np.repeat(np.repeat(scales, high, 0), wide, 1)[:rows, :cols]
    w = dict(f.w)
    f.store(name + "." + suffix, scales.reshape(()) if block == (0, 0) else scales, "BF16" if suffix == "weight_scale" else "F32")
    f.w = w


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def float4(f, name, rows, cols, gain, packed):
    """Codes of values about 3, scales for 16 columns, and one for all: as ModelOpt has them, or, packed, as compressed-tensors."""
    codes = f.rng.integers(0, 16, (rows, cols))
    scales = f.rng.integers(0x50, 0x70, (rows, cols // 16)).astype(np.uint8)
    whole = np.float32(gain / math.sqrt(cols) / 3 / 80)
    # What is divided by is a power of two, so that no rounding tells one way from the other.
    whole = np.float32(2.0 ** round(math.log2(whole))) if packed else whole
    values = np.where(codes >> 3, -1, 1) * E2M1[codes & 7]
    w = f.w | {name + ".weight": values * np.repeat(e4m3(scales) * float(whole), 16, 1)}
    f.bits8(name + (".weight_packed" if packed else ".weight"), "U8", codes[:, ::2] | codes[:, 1::2] << 4)
    f.bits8(name + ".weight_scale", "F8_E4M3", scales)
    f.store(name + (".weight_global_scale" if packed else ".weight_scale_2"), [1 / whole] if packed else whole, "F32")
    f.store(name + (".input_global_scale" if packed else ".input_scale"), [1.0], "F32")
    f.w = w


def packed(f, name, rows, cols, gain, bits, group, symmetric):
    groups, half = cols // group if group else 1, 1 << (bits - 1)
    scales = bf16(gain / math.sqrt(cols) / (half * 0.6) * (0.7 + 0.6 * f.rng.random((rows, groups))))
    codes = f.rng.integers(-half, half, (rows, cols))
    z = np.zeros((rows, groups), np.int64) if symmetric else f.rng.integers(-half, half, (rows, groups))
    index = np.arange(cols) // (group or cols)
    f.w[name + ".weight"] = (codes - z[:, index]) * scales.astype(np.float64)[:, index]
    w = dict(f.w)
    f.store(name + ".weight_packed", words(codes + half, bits), "I32")
    f.store(name + ".weight_scale", scales, "BF16")
    f.store(name + ".weight_shape", [rows, cols], "I64")
    if not symmetric:
        f.store(name + ".weight_zero_point", words((z + half).T, bits).T, "I32")
    f.w = w


def compressed(**weights):
    return dict(quant_method="compressed-tensors", format="pack-quantized", config_groups=dict(group_0=dict(targets=["Linear"], weights=weights)), ignore=["lm_head"])


def ordered():
    """Act-order in every way: one order for queries, keys and values, and one for gates and ups; others for each, groups that are no multiple of
    32 inputs, one for all, and some of no input."""
    f = Folder("gptq-order", 34, "F16", model_type="llama", rope_theta=10000.0, hidden_act="silu", **shape(hidden=64, ffn=128, heads=2, kv=1, dim=32),
               quantization_config=dict(quant_method="gptq", bits=4, group_size=32, desc_act=True, sym=False))
    two = np.arange(64) // 32
    alike = dict(attention=f.rng.permutation(two), mlp=f.rng.permutation(two))
    some = f.rng.permutation(np.repeat([0, 2, 3], [64, 32, 32]))
    orders = {"0.q": alike["attention"], "0.k": alike["attention"], "0.v": alike["attention"], "0.gate": alike["mlp"], "0.up": alike["mlp"],
              "1.v": False, "1.o": f.rng.permutation(np.repeat([0, 1], [20, 44])), "1.up": np.ones(64, np.int64), "1.down": some}
    symmetric = ("0.v", "0.gate", "0.up", "1.v", "1.gate", "1.o")

    def linear(name, rows, cols, gain):
        part = name.split(".")[2] + "." + name.split(".")[-1].removesuffix("_proj")
        gptq(f, name, rows, cols, gain, 4, 32, 8 if part in symmetric else None, order=orders.get(part, True))

    fill(f, linear)
    f.write()
    finish(f)
    # Experts, each in orders of its own; ups in none.
    f = Folder("gptq-experts", 35, "F16", model_type="mixtral", rope_theta=10000.0, hidden_act="silu", num_local_experts=4, num_experts_per_tok=2,
               sliding_window=None, **shape(layers=1, hidden=64, ffn=64, heads=2, kv=1, dim=32),
               quantization_config=dict(quant_method="gptq", bits=4, group_size=32, desc_act=True, sym=True))
    fill(f, lambda name, rows, cols, gain: gptq(f, name, rows, cols, gain, 4, 32, 8, order=".w3" not in name))
    f.write()
    finish(f)


def quantised():
    small = shape(hidden=64, ffn=96, heads=2, kv=1, dim=32)
    plain = dict(rope_theta=10000.0, hidden_act="silu") | small

    def make(name, seed, linear, quantization, kind):
        f = Folder(name, seed, "F16", model_type=kind, quantization_config=quantization, **plain)
        fill(f, lambda *a: linear(f, *a))
        return f

    def mixed(f, name, rows, cols, gain):
        layer, part = name.split(".")[2], name.split(".")[-1]
        symmetric = part in ("gate_proj", "v_proj")
        gptq(f, name, rows, cols, gain, 4, 32, 8 if symmetric else None, order=part == "down_proj" or (layer, part) == ("1", "q_proj"))

    f = make("gptq", 21, mixed, dict(quant_method="gptq", bits=4, group_size=32, desc_act=True, sym=False, damp_percent=0.01), "llama")
    f.store("model.layers.0.mlp.down_proj.bias", np.zeros(64))
    f.write()
    finish(f)
    f = make("gptq8", 22, lambda f, name, r, c, g: gptq(f, name, r, c, g, 8, -1, None if "up_proj" in name else 128, 0),
             dict(quant_method="gptq", bits=8, group_size=-1, desc_act=False, sym=True, checkpoint_format="gptq_v2"), "qwen3")
    f.write()
    finish(f)
    for bits, seed in ((3, 32), (2, 33)):
        def few(f, name, rows, cols, gain):
            gptq(f, name, rows, cols, gain, bits, 32, 1 << (bits - 1) if "v_proj" in name else None, order=name.endswith("0.mlp.down_proj"))

        f = make(f"gptq{bits}", seed, few, dict(quant_method="gptq", bits=bits, group_size=32, desc_act=True, sym=False), "llama")
        f.write()
        finish(f)
    ordered()
    f = make("awq", 23, lambda f, *a: awq(f, *a, 32), dict(quant_method="awq", bits=4, group_size=32, version="gemm", zero_point=True), "qwen2")
    f.write()
    finish(f)
    f = make("fp8-block", 24, lambda f, *a: float8(f, *a, "F8_E4M3", (32, 40), "weight_scale_inv"),
             dict(quant_method="fp8", fmt="e4m3", weight_block_size=[32, 40], activation_scheme="dynamic"), "qwen3")
    f.write()
    finish(f)
    f = make("fp8-channel", 25, lambda f, *a: float8(f, *a, "F8_E4M3", (1, 0), "weight_scale"), compressed(num_bits=8, type="float", strategy="channel", symmetric=True), "llama")
    f.store("model.layers.0.self_attn.k_scale", [1.0])
    f.write()
    finish(f)
    f = make("fp8-tensor", 26, lambda f, *a: float8(f, *a, "F8_E5M2", (0, 0), "weight_scale"), dict(quant_method="fp8", activation_scheme="static"), "llama")
    f.store("model.layers.0.self_attn.q_proj.input_scale", 1.0)
    f.write()
    finish(f)
    f = make("packed4", 27, lambda f, *a: packed(f, *a, 4, 32, False), compressed(num_bits=4, type="int", strategy="group", group_size=32, symmetric=False), "llama")
    f.write()
    finish(f)
    f = make("packed8", 28, lambda f, *a: packed(f, *a, 8, None, True), compressed(num_bits=8, type="int", strategy="channel", symmetric=True), "qwen3")
    f.write()
    finish(f)

    # Columns of whole blocks of 128.
    wide = dict(rope_theta=10000.0, hidden_act="silu") | shape(layers=1, hidden=128, ffn=256, heads=4, kv=2, dim=32)
    f = Folder("fp8-wide", 29, "F16", model_type="qwen3", quantization_config=dict(quant_method="fp8", weight_block_size=[32, 128]), **wide)
    fill(f, lambda name, r, c, g: float8(f, name, r, c, g, "F8_E5M2" if "v_proj" in name else "F8_E4M3", (32, 128), "weight_scale_inv", False))
    f.write()
    finish(f)
    for name, seed, is_packed, stated in [
        ("nvfp4", 30, False, dict(quant_method="modelopt", quant_algo="NVFP4", group_size=16)),
        ("nvfp4-packed", 31, True, compressed(num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True)),
    ]:
        f = Folder(name, seed, "F16", model_type="llama", quantization_config=stated, **plain | dict(intermediate_size=128))
        fill(f, lambda *a: float4(f, *a, is_packed))
        f.write()
        finish(f)


if __name__ == "__main__":
    quantised()
    dense()
