"""Elementwise kernels, reductions, scans, atomics, gathers: small Triton kernels of one idea each."""

import triton
import triton.language as tl


@triton.jit
def add(x, y, z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(z + i, tl.load(x + i, mask=m) + tl.load(y + i, mask=m), mask=m)


@triton.jit
def softmax(x, y, cols, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + i, mask=i < cols, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + row * stride + i, e / tl.sum(e, 0), mask=i < cols)


@triton.jit
def layer_norm(x, w, b, y, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    m = i < cols
    v = tl.load(x + row * cols + i, mask=m, other=0.0).to(tl.float32)
    mean = tl.sum(v, 0) / cols
    c = tl.where(m, v - mean, 0.0)
    r = tl.rsqrt(tl.sum(c * c, 0) / cols + eps)
    out = c * r * tl.load(w + i, mask=m) + tl.load(b + i, mask=m)
    tl.store(y + row * cols + i, out.to(tl.float16), mask=m)


@triton.jit
def atomics(x, add_to, max_to, min_to, bits, swap, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    v = tl.load(x + i, mask=m, other=0)
    tl.atomic_add(add_to + v % 8, v, mask=m)
    tl.atomic_max(max_to + v % 8, v, mask=m, sem="relaxed")
    tl.atomic_min(min_to + v % 8, v, mask=m, sem="release", scope="cta")
    tl.atomic_or(bits + i % 4, v, mask=m, sem="acquire")
    tl.atomic_xor(bits + 4 + i % 4, v, mask=m, scope="sys")
    tl.atomic_and(bits + 8 + i % 4, v, mask=m)
    tl.atomic_xchg(swap + i, v, mask=m)
    tl.atomic_cas(swap + tl.program_id(0) + n, 0, 1)


@triton.jit
def atomics_float(x, sum32, sum16, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    v = tl.load(x + i, mask=m, other=0.0)
    tl.atomic_add(sum32 + i % 4, v, mask=m)
    tl.atomic_max(sum32 + 4 + i % 4, v, mask=m)
    tl.atomic_add(sum16 + i, v.to(tl.float16), mask=m)


@triton.jit
def histogram(x, h, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0)
    tl.atomic_add(h + tl.arange(0, BINS), tl.histogram(v, BINS))


@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def first_order(a0, b0, a1, b1):
    return a0 * a1, a1 * b0 + b1


@triton.jit
def scan_sum(x, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.associative_scan(tl.load(x + i), 0, plus))


@triton.jit
def scan_linear(a, b, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    _, r = tl.associative_scan((tl.load(a + i), tl.load(b + i)), 0, first_order, reverse=True)
    tl.store(y + i, r)


@triton.jit
def argmax(x, at, top, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * cols + i, mask=i < cols, other=-float("inf"))
    m, k = tl.max(v, 0, return_indices=True)
    tl.store(at + row, k)
    tl.store(top + row, m)


@triton.jit
def gather(x, index, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    k = tl.load(index + i)
    far = tl.load(x + k, mask=(k >= 0) & (k < n), other=-1.0)
    near = tl.gather(far, (i * 7 + 3) % BLOCK, 0)
    tl.store(y + i, tl.where(i % 3 == 0, near, far + near))


@triton.jit
def sort_rows(x, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + tl.program_id(0) * BLOCK + i, tl.sort(tl.load(x + tl.program_id(0) * BLOCK + i)))


@triton.jit
def math(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=1.0)
    r = tl.exp(v) + tl.log(v) * tl.exp2(v) - tl.log2(v)
    r += tl.sin(v) * tl.cos(v) + tl.sqrt(v) + tl.rsqrt(v) + tl.erf(v) + tl.sqrt_rn(v) * tl.div_rn(v, 3.0)
    r = tl.fma(r, v, tl.abs(tl.floor(v) - tl.ceil(v))) + tl.sigmoid(v)
    tl.store(y + i, tl.clamp(r, -1e6, 1e6), mask=i < n)


@triton.jit
def integers(x, y, z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    v = tl.load(x + i, mask=m, other=1)
    w = tl.load(y + i, mask=m, other=1)
    r = v // (w | 1) + v % (w | 1) + tl.umulhi(v.to(tl.uint32), w.to(tl.uint32)).to(tl.int32)
    r = tl.minimum(r, w << 3) ^ tl.maximum(v >> 2, w)
    tl.store(z + i, r.to(tl.int64) * v * w - tl.cdiv(v, 7), mask=m)


@triton.jit
def bytes_and_halves(x, h, b, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    v = tl.load(x + i, mask=m, other=0).to(tl.float32) * 0.125
    p = tl.load(h + i, mask=m, other=0.0)
    q = tl.load(b + i, mask=m, other=0.0)
    r = v * p.to(tl.float32) + q.to(tl.float32)
    tl.store(b + i, (q * 2).to(tl.bfloat16), mask=m)
    tl.store(h + i, p * p + r.to(tl.float16), mask=m)
    tl.store(y + i, r.to(tl.int8), mask=m)


@triton.jit
def fp8(x, e5, e4, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    v = tl.load(x + i, mask=m, other=0.0)
    a = v.to(tl.float8e5)
    b = v.to(tl.float8e4nv)
    tl.store(e5 + i, a, mask=m)
    tl.store(e4 + i, b, mask=m)
    tl.store(y + i, a.to(tl.float32) + b.to(tl.float32), mask=m)


@triton.jit
def hints(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.device_assert(n > 0)
    a = tl.load(x + i, mask=m, other=0.0, cache_modifier=".cg")
    b = tl.load(x + n + i, mask=m, other=0.0, eviction_policy="evict_last")
    c = tl.load(x + 2 * n + i, mask=m, other=0.0, volatile=True)
    tl.store(y + i, a + b * c, mask=m, eviction_policy="evict_first")
    tl.store(y + n + i, c, mask=m, cache_modifier=".wt")


@triton.jit
def printing(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.device_print("value", v)


@triton.jit
def transpose(x, y, rows, cols, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.program_id(1) * C + tl.arange(0, C)
    m = (r[:, None] < rows) & (c[None, :] < cols)
    v = tl.load(x + r[:, None] * cols + c[None, :], mask=m)
    tl.store(y + c[:, None] * rows + r[None, :], tl.trans(v), mask=tl.trans(m))


F32, F16, I32, I8, I64, BF = "*fp32", "*fp16", "*i32", "*i8", "*i64", "*bf16"
WARPS = {"num_warps": 4}
KERNELS = {
    "add": ({"x": F32, "y": F32, "z": F32, "n": "i32"}, {"BLOCK": 1024}, 80, WARPS),
    "softmax": ({"x": F32, "y": F32, "cols": "i32", "stride": "i32"}, {"BLOCK": 1024}, 80, WARPS),
    "layer_norm": ({"x": F16, "w": F32, "b": F32, "y": F16, "cols": "i32", "eps": "fp32"}, {"BLOCK": 512}, 80, WARPS),
    "atomics": (
        {"x": I32, "add_to": I32, "max_to": I32, "min_to": I32, "bits": I32, "swap": I32, "n": "i32"},
        {"BLOCK": 256}, 80, WARPS),
    "atomics_float": ({"x": F32, "sum32": F32, "sum16": F16, "n": "i32"}, {"BLOCK": 256}, 80, WARPS),
    "histogram": ({"x": I32, "h": I32, "n": "i32"}, {"BLOCK": 512, "BINS": 64}, 80, WARPS),
    "scan_sum": ({"x": I32, "y": I32}, {"BLOCK": 512}, 80, WARPS),
    "scan_linear": ({"a": F32, "b": F32, "y": F32}, {"BLOCK": 256}, 80, WARPS),
    "argmax": ({"x": F32, "at": I32, "top": F32, "cols": "i32"}, {"BLOCK": 512}, 80, WARPS),
    "gather": ({"x": F32, "index": I32, "y": F32, "n": "i32"}, {"BLOCK": 128}, 80, WARPS),
    "sort_rows": ({"x": I32, "y": I32}, {"BLOCK": 64}, 80, {"num_warps": 1}),
    "math": ({"x": F32, "y": F32, "n": "i32"}, {"BLOCK": 128}, 80, WARPS),
    "integers": ({"x": I32, "y": I32, "z": I64, "n": "i32"}, {"BLOCK": 256}, 80, WARPS),
    "bytes_and_halves": ({"x": I8, "h": F16, "b": BF, "y": I8, "n": "i32"}, {"BLOCK": 512}, 80, WARPS),
    "fp8": ({"x": F32, "e5": "*fp8e5", "e4": "*fp8e4nv", "y": F32, "n": "i32"}, {"BLOCK": 256}, 90, WARPS),
    "hints": ({"x": F32, "y": F32, "n": "i32"}, {"BLOCK": 256}, 80, {"num_warps": 2, "debug": True}),
    "printing": ({"x": F32}, {"BLOCK": 32}, 80, {"num_warps": 1}),
    "transpose": ({"x": F32, "y": F32, "rows": "i32", "cols": "i32"}, {"R": 32, "C": 32}, 80, WARPS),
}
