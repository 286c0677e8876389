"""Matrix products and attention: tensor cores and asynchronous copies as Triton uses them."""

import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i = tl.program_id(0) * M + tl.arange(0, M)
    j = tl.program_id(1) * N + tl.arange(0, N)
    r = tl.arange(0, K)
    pa = a + i[:, None] * k + r[None, :]
    pb = b + r[:, None] * n + j[None, :]
    acc = tl.zeros((M, N), dtype=tl.float32)
    for at in range(0, k, K):
        x = tl.load(pa, mask=(i[:, None] < m) & (r[None, :] + at < k), other=0.0)
        y = tl.load(pb, mask=(r[:, None] + at < k) & (j[None, :] < n), other=0.0)
        acc = tl.dot(x, y, acc)
        pa += K
        pb += K * n
    tl.store(c + i[:, None] * n + j[None, :], acc.to(tl.float16), mask=(i[:, None] < m) & (j[None, :] < n))


@triton.jit
def tile_f16(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, r = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + i[:, None] * K + r[None, :])
    y = tl.load(b + r[:, None] * N + j[None, :])
    tl.store(c + i[:, None] * N + j[None, :], tl.dot(x, y))


@triton.jit
def tile_i8(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, r = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + i[:, None] * K + r[None, :])
    y = tl.load(b + j[None, :] * K + r[:, None])
    tl.store(c + i[:, None] * N + j[None, :], tl.dot(x, y, out_dtype=tl.int32))


@triton.jit
def tile_tf32(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, r = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + i[:, None] * K + r[None, :])
    y = tl.load(b + r[:, None] * N + j[None, :])
    tl.store(c + i[:, None] * N + j[None, :], tl.dot(x, y, input_precision="tf32"))


@triton.jit
def tile_ieee(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, r = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + i[:, None] * K + r[None, :])
    y = tl.load(b + r[:, None] * N + j[None, :])
    tl.store(c + i[:, None] * N + j[None, :], tl.dot(x, y, input_precision="ieee"))


@triton.jit
def attention(q, k, v, o, length, scale, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    i = tl.program_id(0) * M + tl.arange(0, M)
    j, d = tl.arange(0, N), tl.arange(0, D)
    query = tl.load(q + i[:, None] * D + d[None, :], mask=i[:, None] < length, other=0.0)
    best = tl.full((M,), -float("inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    acc = tl.zeros((M, D), tl.float32)
    for at in range(0, length, N):
        here = at + j
        key = tl.load(k + here[None, :] * D + d[:, None], mask=here[None, :] < length, other=0.0)
        s = tl.dot(query, key) * scale
        s = tl.where((i[:, None] >= here[None, :]) & (here[None, :] < length), s, -float("inf"))
        new = tl.maximum(best, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        shrink = tl.exp2(best - new)
        total = total * shrink + tl.sum(p, 1)
        value = tl.load(v + here[:, None] * D + d[None, :], mask=here[:, None] < length, other=0.0)
        acc = tl.dot(p.to(tl.float16), value, acc * shrink[:, None])
        best = new
    tl.store(o + i[:, None] * D + d[None, :], (acc / total[:, None]).to(tl.float16), mask=i[:, None] < length)


F32, F16, I32, I8 = "*fp32", "*fp16", "*i32", "*i8"
DIMS = {"m": "i32", "n": "i32", "k": "i32"}
KERNELS = {
    "matmul": ({"a": F16, "b": F16, "c": F16, **DIMS}, {"M": 32, "N": 32, "K": 32}, 80, {"num_warps": 4, "num_stages": 3}),
    "tile_f16": ({"a": F16, "b": F16, "c": F32}, {"M": 16, "N": 16, "K": 32}, 80, {"num_warps": 1}),
    "tile_i8": ({"a": I8, "b": I8, "c": I32}, {"M": 16, "N": 16, "K": 32}, 80, {"num_warps": 1}),
    "tile_tf32": ({"a": F32, "b": F32, "c": F32}, {"M": 16, "N": 16, "K": 16}, 80, {"num_warps": 1}),
    "tile_ieee": ({"a": F32, "b": F32, "c": F32}, {"M": 16, "N": 16, "K": 16}, 80, {"num_warps": 1}),
    "attention": (
        {"q": F16, "k": F16, "v": F16, "o": F16, "length": "i32", "scale": "fp32"},
        {"M": 16, "N": 32, "D": 32}, 80, {"num_warps": 2, "num_stages": 2}),
}
