"""Writes small models of the architectures with layer norms, and their logits in f64.

Needs numpy and gguf 0.19: python3 make_layer_norms.py. Written after the public descriptions of the models, not after any loader:
StarCoder2 (arXiv 2402.19173), Command R and R7B (their model cards: both parts of a layer read one norm, logits are scaled; in R7B
every fourth layer has neither window nor rotation), Phi-1.5 (arXiv 2309.05463), Nemotron-4 (arXiv 2402.16819), GPT-2 (Radford et
al., 2019), StableLM 2 (arXiv 2402.17834), GPT-NeoX (arXiv 2204.06745, section 2.1) with the activation of Pythia (arXiv 2304.01373),
OLMo (arXiv 2402.00838), Orion (arXiv 2401.12246), StarCoder (arXiv 2305.06161), CodeShell (arXiv 2403.15747), and Falcon (arXiv 2311.16867:
both parts of a layer read one residual stream, by one norm or by one each, which then has the name of the one). Matrices are float16 in the files, and what is computed here is of these values.
"""
import math
import numpy as np
from make_dense import CONTEXT, VOCAB, File, attention, gelu_tanh, inverse, logits, rotate, silu
from make_small import TOKENS

EPS, DIM = 1e-5, 32


def gelu_erf(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def squared_relu(x):
    return np.maximum(x, 0) ** 2


def layer_norm(x, w, b):
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + float(np.float32(EPS))) * w + b


class Model(File):
    """A file of an architecture, by what tells it from the others."""

    def __init__(self, name, arch, seed, layers=2, hidden=64, ffn=80, heads=2, kv=2, rot=DIM, neox=True, weights=True, biases=True,
                 norm_biases=True, fused=False, gates=False, act=gelu_tanh, one_norm=False, parallel=False, tied=True,
                 head_bias=False, learned=False, window=0, every=0, scale=1.0, norms=("attn_norm", "ffn_norm"), **keys):
        keys |= {"attention.layer_norm_epsilon": EPS, "block_count": layers, "embedding_length": hidden,
                 "feed_forward_length": ffn, "attention.head_count": heads, "attention.head_count_kv": kv}
        if not learned:
            keys |= {"rope.dimension_count": rot, "rope.freq_base": 10000.0}
        super().__init__(name, arch, seed, eps="attention.layer_norm_epsilon", **keys)
        self.__dict__ |= {k: v for k, v in locals().items() if k not in ("self", "keys", "__class__")}
        self.build()
        self.write()
        logits(name, self.forward())

    def matrix(self, name, rows, cols, gain=1.0):
        values = (gain / math.sqrt(cols) * self.rng.standard_normal((rows, cols))).astype(np.float16)
        self.tensors[name + ".weight"] = values.astype(np.float64)
        self.w.add_tensor(name + ".weight", values)

    def bias(self, name, n, there):
        if there:
            self.add(name + ".bias", 0.5 * self.rng.standard_normal(n))

    def norm_of(self, name):
        if self.weights:
            self.norm(name, self.hidden)
        self.bias(name, self.hidden, self.norm_biases)

    def linear(self, name, rows, cols, gain=1.0):
        self.matrix(name, rows, cols, gain)
        self.bias(name, rows, self.biases)

    def build(self):
        hidden, ffn, q, kv = self.hidden, self.ffn, self.heads * DIM, self.kv * DIM
        self.matrix("token_embd", VOCAB, hidden, math.sqrt(hidden) * (0.3 if self.tied else 1))
        if self.learned:
            self.add("position_embd.weight", 0.7 * self.rng.standard_normal((CONTEXT, hidden)))
        self.norm_of("output_norm")
        if not self.tied:
            self.matrix("output", VOCAB, hidden, 3)
            self.bias("output", VOCAB, self.head_bias)
        for p in (f"blk.{l}." for l in range(self.layers)):
            self.norm_of(p + self.norms[0])
            if self.fused:
                self.linear(p + "attn_qkv", q + 2 * kv, hidden, 1.5)
            else:
                for c, rows in (("q", q), ("k", kv), ("v", kv)):
                    self.linear(p + f"attn_{c}", rows, hidden, 1.5)
            self.linear(p + "attn_output", hidden, q)
            if not self.one_norm:
                self.norm_of(p + self.norms[1])
            if self.gates:
                self.linear(p + "ffn_gate", ffn, hidden, 1.5)
            self.linear(p + "ffn_up", ffn, hidden, 1.5)
            self.linear(p + "ffn_down", hidden, ffn, 1.5)

    def normed(self, x, name):
        return layer_norm(x, self.tensors.get(name + ".weight", 1.0), self.tensors.get(name + ".bias", 0.0))

    def times(self, x, name):
        return x @ self.tensors[name + ".weight"].T + self.tensors.get(name + ".bias", 0.0)

    def attend(self, h, p, l):
        n, heads, kv = len(h), self.heads, self.kv
        if self.fused:
            q, k, v = np.split(self.times(h, p + "attn_qkv"), [heads * DIM, (heads + kv) * DIM], axis=-1)
        else:
            q, k, v = (self.times(h, p + f"attn_{c}") for c in "qkv")
        q, k, v = q.reshape(n, heads, DIM), k.reshape(n, kv, DIM), v.reshape(n, kv, DIM)
        full = self.every and l % self.every == self.every - 1
        if not self.learned and not full:
            q, k = (rotate(a, inverse(self.rot, 10000.0), self.neox) for a in (q, k))
        return self.times(attention(q, k, v, 1 / math.sqrt(DIM), 0 if full else self.window), p + "attn_output")

    def forward(self):
        x = self.tensors["token_embd.weight"][TOKENS]
        if self.learned:
            x = x + self.tensors["position_embd.weight"][: len(TOKENS)]
        for l in range(self.layers):
            p = f"blk.{l}."
            h = self.normed(x, p + self.norms[0])
            after = x + self.attend(h, p, l)
            if not self.one_norm:
                h = self.normed(x if self.parallel else after, p + self.norms[1])
            up = self.times(h, p + "ffn_up")
            inner = silu(self.times(h, p + "ffn_gate")) * up if self.gates else self.act(up)
            x = after + self.times(inner, p + "ffn_down")
        head = "token_embd" if self.tied else "output"
        return self.scale * (self.normed(x, "output_norm") @ self.tensors[head + ".weight"].T) + self.tensors.get("output.bias", 0.0)


def cohere(name, arch, seed, **more):
    Model(name, arch, seed, kv=1, neox=False, biases=False, norm_biases=False, gates=True, one_norm=True, scale=0.25, logit_scale=0.25,
          **more)


if __name__ == "__main__":
    Model("starcoder2-small", "starcoder2", 109, kv=1, tied=False)
    cohere("command-r-small", "command-r", 202)
    cohere("cohere2-small", "cohere2", 316, layers=5, window=3, every=4, **{"attention.sliding_window": 3})
    Model("phi2-small", "phi2", 417, rot=16, fused=True, one_norm=True, tied=False, head_bias=True)
    Model("nemotron-small", "nemotron", 505, kv=1, rot=16, biases=False, act=squared_relu, tied=False)
    Model("gpt2-small", "gpt2", 628, fused=True, learned=True)
    Model("stablelm-small", "stablelm", 723, rot=8, biases=False, gates=True, tied=False)
    Model("stablelm-parallel-small", "stablelm", 826, rot=8, biases=False, gates=True, one_norm=True, tied=False)
    Model("gptneox-small", "gptneox", 909, rot=8, fused=True, act=gelu_erf, parallel=True, tied=False, use_parallel_residual=True)
    Model("gptneox-sequential-small", "gptneox", 1039, rot=8, fused=True, act=gelu_erf, tied=False, use_parallel_residual=False)
    Model("olmo-small", "olmo", 1119, neox=False, weights=False, biases=False, norm_biases=False, gates=True)
    Model("orion-small", "orion", 1206, biases=False, gates=True, tied=False)
    Model("starcoder-small", "starcoder", 1314, kv=1, fused=True, learned=True)
    Model("codeshell-small", "codeshell", 1424, kv=1, fused=True, tied=False)
    Model("falcon-small", "falcon", 1519, kv=1, fused=True, biases=False, act=gelu_erf, one_norm=True)
    Model("falcon-norms-small", "falcon", 1615, fused=True, biases=False, act=gelu_erf, parallel=True, norms=("attn_norm_2", "attn_norm"))
