"""Writes small checkpoints of families with layer norms in the form of Hugging Face's folders, and their logits in f64.

Needs numpy and safetensors: python3 make_layer_norm_folders.py. Names and conventions are those of `transformers`: halves of heads are rotated
together, but neighbours of Cohere's; Nemotron's norms multiply with 1 + w. Which family computes what, `make_layer_norms.py` says.
"""
import math
import numpy as np
from make_dense import attention, gelu_tanh, inverse, silu
from make_folders import TOKENS, VOCAB, Folder
from make_small import turn

HIDDEN, FFN, HEADS, DIM = 32, 48, 2, 16


class Family(Folder):
    def __init__(self, name, seed, kv=2, layers=2, tied=False, eps="layer_norm_eps", norm_biases=True, biases=False, qkv_biases=False,
                 weights=True, parts=("mlp.up_proj", "mlp.down_proj"), output="self_attn.o_proj", last="model.norm", gates=False,
                 act=gelu_tanh, one_norm=False, plus=0.0, share=1.0, neighbours=False, window=0, every=0, head_bias=False, **config):
        config |= dict(hidden_size=HIDDEN, intermediate_size=FFN, num_attention_heads=HEADS, num_key_value_heads=kv,
                       num_hidden_layers=layers, tie_word_embeddings=tied, rope_theta=10000.0)
        if eps:
            config[eps] = 1e-5
        if share != 1.0:
            config["partial_rotary_factor"] = share
        super().__init__(name, seed, "F16", **config)
        del self.config["rms_norm_eps"]
        self.__dict__ |= {k: v for k, v in locals().items() if k not in ("self", "config", "__class__")}
        self.fill()
        self.write()
        values = self.forward()
        values.astype("<f8").tofile(f"folders/{name}.logits.f64")
        print(name, "logits std", values.std())

    def bias(self, name, n):
        self.store(name + ".bias", 0.4 * self.rng.standard_normal(n))

    def norm(self, name, n):
        if self.weights:
            self.store(name + ".weight", 1 - self.plus + 0.1 * self.rng.standard_normal(n))
        if self.norm_biases:
            self.bias(name, n)

    def product(self, name, rows, cols, gain, biased):
        self.linear(name, rows, cols, gain)
        if biased:
            self.bias(name, rows)

    def fill(self):
        self.store("model.embed_tokens.weight", 0.5 * self.rng.standard_normal((VOCAB, HIDDEN)))
        self.norm(self.last, HIDDEN)
        if not self.tied:
            self.product("lm_head", VOCAB, HIDDEN, 3, self.head_bias)
        for p in (f"model.layers.{l}." for l in range(self.layers)):
            self.norm(p + "input_layernorm", HIDDEN)
            if not self.one_norm:
                self.norm(p + "post_attention_layernorm", HIDDEN)
            for m, heads in (("q", HEADS), ("k", self.kv), ("v", self.kv)):
                self.product(p + f"self_attn.{m}_proj", heads * DIM, HIDDEN, 1.5, self.biases or self.qkv_biases)
            self.product(p + self.output, HIDDEN, HEADS * DIM, 1, self.biases)
            if self.gates:
                self.product(p + "mlp.gate_proj", FFN, HIDDEN, 1.5, self.biases)
            self.product(p + self.parts[0], FFN, HIDDEN, 1.5, self.biases)
            self.product(p + self.parts[1], HIDDEN, FFN, 1.5, self.biases)

    def normed(self, x, name):
        d = x - x.mean(-1, keepdims=True)
        weight = self.w[name + ".weight"] + self.plus if self.weights else 1.0
        return d / np.sqrt((d * d).mean(-1, keepdims=True) + float(np.float32(1e-5))) * weight + self.w.get(name + ".bias", 0.0)

    def times(self, x, name):
        return x @ self.w[name + ".weight"].T + self.w.get(name + ".bias", 0.0)

    def rotate(self, x):
        n = int(DIM * self.share)
        theta = np.arange(len(x))[:, None] * inverse(n, 10000.0)
        return np.concatenate([turn(x[..., :n], theta, 1.0, not self.neighbours), x[..., n:]], -1)

    def forward(self):
        x = self.w["model.embed_tokens.weight"][TOKENS]
        n = len(x)
        for l in range(self.layers):
            p = f"model.layers.{l}."
            h = self.normed(x, p + "input_layernorm")
            q, k, v = (self.times(h, p + f"self_attn.{m}_proj").reshape(n, -1, DIM) for m in "qkv")
            full = self.every and l % self.every == self.every - 1
            if not full:
                q, k = self.rotate(q), self.rotate(k)
            x = x + self.times(attention(q, k, v, 1 / math.sqrt(DIM), 0 if full else self.window), p + self.output)
            if not self.one_norm:
                h = self.normed(x, p + "post_attention_layernorm")
            up = self.times(h, p + self.parts[0])
            inner = silu(self.times(h, p + "mlp.gate_proj")) * up if self.gates else self.act(up)
            x = x + self.times(inner, p + self.parts[1])
        head = "model.embed_tokens" if self.tied else "lm_head"
        return self.config.get("logit_scale", 1.0) * self.times(self.normed(x, self.last), head)


if __name__ == "__main__":
    Family("starcoder2", 21, kv=1, tied=True, eps="norm_epsilon", biases=True, parts=("mlp.c_fc", "mlp.c_proj"), window=4,
           model_type="starcoder2", hidden_act="gelu_pytorch_tanh", use_bias=True, sliding_window=4)
    Family("phi", 22, biases=True, parts=("mlp.fc1", "mlp.fc2"), output="self_attn.dense", last="model.final_layernorm", one_norm=True,
           share=0.5, head_bias=True, model_type="phi", hidden_act="gelu_new", qk_layernorm=False)
    cohere = dict(kv=1, tied=True, norm_biases=False, gates=True, one_norm=True, neighbours=True, hidden_act="silu", logit_scale=0.5)
    Family("cohere", 23, model_type="cohere", use_qk_norm=False, **cohere)
    Family("cohere2", 24, layers=4, window=3, every=4, model_type="cohere2", sliding_window=3, sliding_window_pattern=4, **cohere)
    Family("nemotron", 25, kv=1, eps="norm_eps", act=lambda x: np.maximum(x, 0) ** 2, plus=1.0, share=0.5, model_type="nemotron",
           hidden_act="relu2", attention_bias=False, mlp_bias=False)
    Family("stablelm", 26, qkv_biases=True, gates=True, share=0.25, model_type="stablelm", hidden_act="silu", use_parallel_residual=False)
    Family("stablelm-parallel", 27, gates=True, one_norm=True, share=0.25, model_type="stablelm", hidden_act="silu", use_parallel_residual=True)
    Family("olmo", 28, eps=None, norm_biases=False, weights=False, gates=True, model_type="olmo", hidden_act="silu", clip_qkv=None)
