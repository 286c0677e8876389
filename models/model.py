"""The qwen3 architecture at a small size, with linear layers that can train for 1-bit and ternary weights."""

import torch
import torch.nn.functional as F
from torch import nn

# Every row length (hidden, heads * head_dim, feed_forward) is a multiple of 256, the block of the K-quants and TQ2_0.
CONFIG = {
    "vocab": 1024,
    "hidden": 256,
    "feed_forward": 512,
    "layers": 3,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 64,
    "context": 512,
    "rope_base": 10000.0,
    "epsilon": 1e-6,
}


def one_bit(w: torch.Tensor) -> torch.Tensor:
    """Q1_0: a group of 128 is a sign times the mean magnitude."""
    groups = w.view(-1, 128)
    scale = groups.abs().mean(1, keepdim=True).half().float()
    return torch.where(groups >= 0, scale, -scale).view_as(w)


def ternary(w: torch.Tensor) -> torch.Tensor:
    """TQ2_0: a group of 256 is -1, 0 or 1 times a scale; here the mean magnitude, as in BitNet b1.58."""
    groups = w.view(-1, 256)
    scale = groups.abs().mean(1, keepdim=True).clamp_min(2.0**-14).half().float()
    return ((groups / scale).round().clamp(-1, 1) * scale).view_as(w)


SCHEMES = {"f32": None, "q1_0": one_bit, "tq2_0": ternary}


class Linear(nn.Module):
    def __init__(self, inputs, outputs, scheme):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) * inputs**-0.5)
        self.quantise = SCHEMES[scheme]

    def effective(self):
        """The weights that the model computes with; gradients pass straight through the rounding."""
        if self.quantise is None:
            return self.weight
        return self.weight + (self.quantise(self.weight.detach()) - self.weight).detach()

    def forward(self, x):
        return F.linear(x, self.effective())


class RmsNorm(nn.Module):
    def __init__(self, width, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, self.epsilon)


def rotate(x, cos, sin):
    """RoPE on halves (NEOX)."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Layer(nn.Module):
    def __init__(self, c, scheme):
        super().__init__()
        self.c = c
        q, kv = c["heads"] * c["head_dim"], c["kv_heads"] * c["head_dim"]
        self.attn_norm = RmsNorm(c["hidden"], c["epsilon"])
        self.attn_qkv = Linear(c["hidden"], q + 2 * kv, scheme)
        self.attn_q_norm = RmsNorm(c["head_dim"], c["epsilon"])
        self.attn_k_norm = RmsNorm(c["head_dim"], c["epsilon"])
        self.attn_output = Linear(q, c["hidden"], scheme)
        self.ffn_norm = RmsNorm(c["hidden"], c["epsilon"])
        self.ffn_gate_up = Linear(c["hidden"], 2 * c["feed_forward"], scheme)
        self.ffn_down = Linear(c["feed_forward"], c["hidden"], scheme)

    def forward(self, x, cos, sin):
        c = self.c
        batch, length, _ = x.shape
        heads = self.attn_qkv(self.attn_norm(x)).view(batch, length, -1, c["head_dim"]).transpose(1, 2)
        q, k, v = heads.split((c["heads"], c["kv_heads"], c["kv_heads"]), 1)
        q, k = rotate(self.attn_q_norm(q), cos, sin), rotate(self.attn_k_norm(k), cos, sin)
        group = c["heads"] // c["kv_heads"]
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_output(y.transpose(1, 2).reshape(batch, length, -1))
        gate, up = self.ffn_gate_up(self.ffn_norm(x)).chunk(2, -1)
        return x + self.ffn_down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, scheme="f32", c=CONFIG):
        super().__init__()
        self.token_embd = nn.Parameter(torch.randn(c["vocab"], c["hidden"]) * 0.02)
        self.layers = nn.ModuleList(Layer(c, scheme) for _ in range(c["layers"]))
        self.output_norm = RmsNorm(c["hidden"], c["epsilon"])
        with torch.no_grad():
            # The layers start as the identity.
            for layer in self.layers:
                if scheme == "f32":
                    layer.attn_output.weight.zero_()
                    layer.ffn_down.weight.zero_()
        half = c["head_dim"] // 2
        angles = torch.arange(c["context"])[:, None] * c["rope_base"] ** (-torch.arange(half) / half)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens):
        """Logits; the embedding is the output matrix too."""
        x = F.embedding(tokens, self.token_embd)
        n = tokens.shape[1]
        for layer in self.layers:
            x = layer(x, self.cos[:n], self.sin[:n])
        return F.linear(self.output_norm(x), self.token_embd)
