"""Writes small models of families that are Llama but for a few facts, and their logits in f64.

Needs numpy and gguf 0.19: python3 make_families.py. Written after the public descriptions of the models, not after any loader: EXAONE 3.5
(arXiv 2412.04862), InternLM2 (arXiv 2403.17297), XVERSE and ERNIE 4.5 (their model cards), Seed-OSS (its model card: biases on queries, keys
and values), Qwen2-VL (arXiv 2409.12191, whose rotations of text are those of Qwen2), Gemma (arXiv 2403.08295), GLM-4 (arXiv 2406.12793) and its
successor of April 2025 (norms behind both parts), Granite 3 (its model card: factors of embeddings, of what layers add, of scores, and what logits
are divided by), MiniCPM (arXiv 2404.06395, section 3.3), AFM (its model card: the squared ReLU without gates), Hunyuan (arXiv 2411.02265 and its successors' modelling
code: norms of heads behind the rotation), Llama 4 (its model card and modelling code: every fourth layer without rotation, heads of the others
divided by their root mean square, a token times a sigmoid to its experts, one more of all tokens). Matrices are float16 in the
files, and what is computed here is of these values.

python3 make_families.py greedy also needs llama-cpp-python 0.3.36, and prints what llama.cpp continues the first three tokens with, and how far
its logits are from these: tests/families.rs has the tokens.
"""
import math
import sys
import numpy as np
from make_dense import VOCAB, File, attention, gelu_tanh, inverse, logits, rotate, silu
from make_small import TOKENS, rms

EPS, DIM, EXPERTS, USED, INNER, SHARED = 1e-5, 32, 6, 2, 32, 48
NAMES = []


class Family(File):
    """A file of an architecture, by what tells it from Llama."""

    def __init__(self, name, arch, seed, layers=2, hidden=64, ffn=96, heads=4, kv=2, dim=DIM, rot=None, neox=False, biases=False, fused=False,
                 fused_gates=False, post=False, behind=False, gates=True, act=silu, embedding=1.0, residual=1.0, scores=None, divisor=1.0,
                 freqs=False, experts=False, shared=False, tied=False, heads_normed=None, every=0, step=1, weighted=False, **keys):
        rot = rot or dim
        keys |= {"block_count": layers, "embedding_length": hidden, "feed_forward_length": INNER if experts and step == 1 else ffn, "attention.head_count": heads,
                 "attention.head_count_kv": kv, "attention.key_length": dim, "attention.value_length": dim, "vocab_size": VOCAB,
                 "attention.layer_norm_rms_epsilon": EPS, "rope.dimension_count": rot, "rope.freq_base": 10000.0}
        if experts:
            keys |= {"expert_count": EXPERTS, "expert_used_count": USED}
        if shared and shared != INNER:
            keys["expert_shared_feed_forward_length"] = shared
        if step != 1:
            keys["interleave_moe_layer_step"] = step
        super().__init__(name, arch, seed, **keys)
        # llama.cpp asks for it.
        self.w.add_tokenizer_model("none")
        self.__dict__ |= {k: v for k, v in locals().items() if k not in ("self", "keys", "__class__")}
        if arch == "qwen2vl":
            self.w.add_array(arch + ".rope.dimension_sections", [4, 6, 6, 0])
        self.build()
        self.write()
        logits(name, self.forward())
        NAMES.append(name)

    def matrix(self, name, rows, cols, gain=1.0, bias=False, count=()):
        values = (gain / math.sqrt(cols) * self.rng.standard_normal((*count, rows, cols))).astype(np.float16)
        self.tensors[name + ".weight"] = values.astype(np.float64)
        self.w.add_tensor(name + ".weight", values)
        if bias:
            self.add(name + ".bias", 0.5 * self.rng.standard_normal(rows))

    def build(self):
        hidden, q, kv, biases = self.hidden, self.heads * self.dim, self.kv * self.dim, self.biases
        size = 0.5 if self.tied else 1
        self.matrix("token_embd", VOCAB, hidden, math.sqrt(hidden) * size / (math.sqrt(hidden) if self.arch == "gemma" else self.embedding))
        self.norm("output_norm", hidden)
        if not self.tied:
            self.matrix("output", VOCAB, hidden, 3 * self.divisor)
        if self.freqs:
            self.add("rope_freqs.weight", 1 + np.arange(self.rot // 2) / 4)
        for l, p in ((l, f"blk.{l}.") for l in range(self.layers)):
            self.norm(p + "attn_norm", hidden)
            if self.fused:
                self.matrix(p + "attn_qkv", q + 2 * kv, hidden, 1.5, biases)
            else:
                for c, rows in (("q", q), ("k", kv), ("v", kv)):
                    self.matrix(p + f"attn_{c}", rows, hidden, 1.5, biases)
            if self.heads_normed == "behind":
                self.norm(p + "attn_q_norm", self.dim)
                self.norm(p + "attn_k_norm", self.dim)
            self.matrix(p + "attn_output", hidden, q)
            self.norm(p + ("post_attention_norm" if self.behind else "ffn_norm"), hidden)
            if self.post:
                self.norm(p + "post_attention_norm", hidden)
                self.norm(p + "post_ffw_norm", hidden)
            self.feed_forward(p, hidden, self.experts and (l + 1) % self.step == 0)

    def feed_forward(self, p, hidden, experts):
        if experts:
            self.add(p + "ffn_gate_inp.weight", 2 / math.sqrt(hidden) * self.rng.standard_normal((EXPERTS, hidden)))
        for end, width, count in [("_exps", INNER, (EXPERTS,)), ("_shexp", self.shared, ())][:1 + bool(self.shared)] if experts else [("", self.ffn, ())]:
            if self.fused_gates:
                self.matrix(p + "ffn_up", 2 * width, hidden, 1.5)
            else:
                if self.gates:
                    self.matrix(p + "ffn_gate" + end, width, hidden, 1.5, count=count)
                self.matrix(p + "ffn_up" + end, width, hidden, 1.0 if self.gates else 1.5, count=count)
            self.matrix(p + "ffn_down" + end, hidden, width, 1.5, count=count)

    def of(self, name):
        return self.tensors[name + ".weight"]

    def times(self, x, name):
        return x @ self.of(name).T + self.tensors.get(name + ".bias", 0.0)

    def attend(self, h, p, l):
        if self.fused:
            q, k, v = np.split(self.times(h, p + "attn_qkv"), [self.heads * self.dim, (self.heads + self.kv) * self.dim], axis=-1)
        else:
            q, k, v = (self.times(h, p + f"attn_{c}") for c in "qkv")
        q, k, v = (a.reshape(len(h), -1, self.dim) for a in (q, k, v))
        frequencies = inverse(self.rot, 10000.0, self.of("rope_freqs") if self.freqs else 1.0)
        eps, turns = float(np.float32(EPS)), not self.every or (l + 1) % self.every != 0
        if turns:
            q, k = (rotate(a, frequencies, self.neox) for a in (q, k))
        if self.heads_normed == "behind":
            q, k = rms(q, self.of(p + "attn_q_norm"), eps), rms(k, self.of(p + "attn_k_norm"), eps)
        elif self.heads_normed and turns:
            q, k = rms(q, 1.0, eps), rms(k, 1.0, eps)
        return self.times(attention(q, k, v, self.scores or 1 / math.sqrt(self.dim)), p + "attn_output")

    def gated(self, x, gate, up, down):
        return (self.act(x @ gate.T) * (x @ up.T)) @ down.T

    def part(self, h, p):
        if p + "ffn_gate_inp.weight" in self.tensors:
            out = np.zeros_like(h)
            for t, x in enumerate(h):
                scores = self.of(p + "ffn_gate_inp") @ x
                chosen = np.argsort(-scores, kind="stable")[:USED]
                shares = np.exp(scores[chosen] - scores[chosen].max())
                for e, share in zip(chosen, shares / shares.sum()):
                    read, share = (x / (1 + np.exp(-scores[e])), 1.0) if self.weighted else (x, share)
                    out[t] += share * self.gated(read, *(self.of(p + f"ffn_{n}_exps")[e] for n in ("gate", "up", "down")))
            return out + (self.gated(h, *(self.of(p + f"ffn_{n}_shexp") for n in ("gate", "up", "down"))) if self.shared else 0)
        if self.fused_gates:
            gate, up = np.split(self.of(p + "ffn_up"), 2)
            return self.gated(h, gate, up, self.of(p + "ffn_down"))
        if not self.gates:
            return self.act(self.times(h, p + "ffn_up")) @ self.of(p + "ffn_down").T
        return self.gated(h, *(self.of(p + f"ffn_{n}") for n in ("gate", "up", "down")))

    def forward(self):
        eps = float(np.float32(EPS))
        normed = lambda x, name: rms(x, self.of(name), eps)
        after = (lambda x, name: normed(x, name)) if self.post else (lambda x, name: x)
        x = self.of("token_embd")[TOKENS] * self.embedding
        for l, p in ((l, f"blk.{l}.") for l in range(self.layers)):
            x = x + self.residual * after(self.attend(normed(x, p + "attn_norm"), p, l), p + "post_attention_norm")
            h = normed(x, p + ("post_attention_norm" if self.behind else "ffn_norm"))
            x = x + self.residual * after(self.part(h, p), p + "post_ffw_norm")
        return normed(x, "output_norm") @ self.of("token_embd" if self.tied else "output").T / self.divisor


def greedy(name):
    from llama_cpp import Llama
    model = Llama(model_path=f"{name}.gguf", n_ctx=64, logits_all=True, verbose=False, type_k=0, type_v=0, flash_attn=False)
    model.eval(TOKENS)
    got, want = np.array(model.scores[: len(TOKENS)]), np.fromfile(f"{name}.logits.f64").reshape(len(TOKENS), -1)
    off = abs(got - want).max() / want.std()
    model.reset()
    model.eval(TOKENS[:3])
    text, margin = [], 9.0
    for _ in range(12):
        scores = np.array(model.scores[model.n_tokens - 1])
        best = np.sort(scores)
        text.append(int(scores.argmax()))
        margin = min(margin, (best[-1] - best[-2]) / scores.std())
        model.eval(text[-1:])
    print(f'("{name}", {text}), off by {off:.1e} standard deviations, margin {margin:.3f}', flush=True)


if __name__ == "__main__":
    Family("exaone-small", "exaone", 61, neox=True, freqs=True)
    Family("internlm2-small", "internlm2", 162, heads=2, kv=1)
    Family("xverse-small", "xverse", 63, heads=2)
    Family("ernie4_5-small", "ernie4_5", 64, tied=True)
    Family("seed_oss-small", "seed_oss", 65, neox=True, biases=True, behind=True)
    Family("qwen2vl-small", "qwen2vl", 166, heads=2, neox=True, biases=True)
    Family("gemma-small", "gemma", 67, neox=True, act=gelu_tanh, embedding=8.0, tied=True)
    Family("glm4-small", "glm4", 68, rot=16, fused_gates=True, post=True)
    Family("chatglm-small", "chatglm", 69, heads=2, kv=1, rot=16, fused=True, biases=True, fused_gates=True)
    scaled = dict(embedding_scale=12.0, residual_scale=0.25, logit_scale=8.0)
    factors = dict(embedding=12.0, residual=0.25, divisor=8.0)
    Family("granite-small", "granite", 70, dim=64, heads=2, kv=1, scores=1 / 32, **factors, **scaled, **{"attention.scale": 1 / 32})
    Family("granitemoe-small", "granitemoe", 71, experts=True, shared=SHARED, **factors, **scaled)
    Family("minicpm-small", "minicpm", 172, **factors, **scaled)
    Family("arcee-small", "arcee", 73, gates=False, act=lambda x: np.maximum(x, 0) ** 2)
    Family("hunyuan-dense-small", "hunyuan-dense", 74, neox=True, heads_normed="behind")
    Family("hunyuan-moe-small", "hunyuan-moe", 75, neox=True, heads_normed="behind", experts=True, shared=SHARED, expert_feed_forward_length=INNER)
    Family("llama4-small", "llama4", 77, layers=4, heads_normed="unit", every=4, step=2, experts=True, shared=INNER, weighted=True,
           expert_feed_forward_length=INNER)
    if "greedy" in sys.argv:
        for name in NAMES:
            greedy(name)
