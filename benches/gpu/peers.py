#!/usr/bin/env python3
"""Times what others do for the shapes of our benchmarks, the way ours are timed: graphs of launches over rotated weights (cold
L2) between two events, median and p10 to p90. A result that is not close to PyTorch's own is an error, not a row.

Peers: PyTorch (products, attention, norm, argmax), a product written in Triton, and GemLite (weights of 1, 2, 4 and 8 bits in
groups of 128). One that is not installed, or fails, is named in `notes`. Prints one JSON object.

    peers.py [--seconds N]        no new shape is begun after N seconds; 100 unless told
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

# Rows and columns of Qwen3's products (docs/benchmarks.md).
SHAPES = [
    ("8b-qkv", 6144, 4096),
    ("8b-o", 4096, 4096),
    ("8b-gate-up", 24576, 4096),
    ("8b-down", 4096, 12288),
    ("0.6b-qkv", 4096, 1024),
    ("0.6b-down", 1024, 3072),
]
# GemLite tries many variants of each shape first, which takes seconds.
TUNED_SHAPES = [s for s in SHAPES if s[0] in ("8b-gate-up", "8b-down")]
CONTEXTS = [1024, 4096, 16384]
LAUNCHES, SAMPLES = 20, 60
GROUP = 128


class Bench:
    """Rows so far, and how they are timed."""

    def __init__(self, torch, seconds):
        self.torch, self.rows, self.notes = torch, [], []
        self.l2 = torch.cuda.get_device_properties(0).L2_cache_size
        self.end = time.monotonic() + seconds

    def copies(self, count):
        """Sets of weights of so many bytes that do not fit into the L2 cache together."""
        return min(LAUNCHES, max(2, -(-3 * self.l2 // count)))

    def time(self, launch, copies):
        """Microseconds of one of LAUNCHES launches in a graph, over rotated copies."""
        torch = self.torch
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for i in range(3):
                launch(i % copies)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(LAUNCHES):
                launch(i % copies)
        samples = []
        for _ in range(SAMPLES + 1):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            samples.append(1e3 * start.elapsed_time(end) / LAUNCHES)
        return sorted(samples[1:])

    def add(self, name, shape, count, samples):
        """A row, of a launch that has to move `count` bytes."""
        middle = statistics.median(samples)
        self.rows.append({
            "name": name, "shape": shape, "us": middle, "p10": samples[len(samples) // 10],
            "p90": samples[len(samples) * 9 // 10], "gb_s": count / middle / 1e3,
        })

    def close(self, name, got, want):
        """Ends the peer if its result is wrong."""
        off = ((got.float() - want.float()).abs().max() / want.float().abs().max()).item()
        if not off < 2e-2:
            raise ArithmeticError(f"{name} is off by {off:.1e} of the largest result")

    def late(self, what):
        """Whether the time is over; says what was left out."""
        if time.monotonic() < self.end:
            return False
        self.notes.append(f"{what}: left out, the time is over")
        return True


def products(b):
    torch = b.torch
    for shape, m, k in SHAPES:
        count = 2 * m * k
        copies = b.copies(count)
        weights = [torch.randn(m, k, dtype=torch.float16, device="cuda") for _ in range(copies)]
        x = torch.randn(k, dtype=torch.float16, device="cuda")
        y = torch.empty(m, dtype=torch.float16, device="cuda")
        b.add("torch.mv f16", f"{shape} {m}x{k}", count, b.time(lambda i: torch.mv(weights[i], x, out=y), copies))


def attention(b):
    torch = b.torch
    for context in CONTEXTS:
        heads, kv_heads, dim = 32, 8, 128
        count = 2 * 2 * context * kv_heads * dim
        copies = b.copies(count)
        q = torch.randn(1, heads, 1, dim, dtype=torch.float16, device="cuda")
        caches = [torch.randn(2, 1, kv_heads, context, dim, dtype=torch.float16, device="cuda") for _ in range(copies)]

        def attend(i):
            torch.nn.functional.scaled_dot_product_attention(q, caches[i][0], caches[i][1], enable_gqa=True)

        b.add("torch SDPA f16", f"32q8kv-d128-ctx{context}", count, b.time(attend, copies))


def small(b):
    torch = b.torch
    x = torch.randn(1, 4096, device="cuda")
    w = torch.randn(4096, device="cuda")
    norm = lambda _: torch.nn.functional.rms_norm(x, (4096,), w)
    b.add("torch rms_norm f32", "4096", 3 * 4 * 4096, b.time(norm, 1))
    logits = torch.randn(151936, device="cuda")
    b.add("torch argmax f32", "151936", 4 * 151936, b.time(lambda _: torch.argmax(logits), 1))


if triton is not None:

    @triton.jit
    def product(weights, x, y, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        sums = tl.zeros((ROWS, COLS), dtype=tl.float32)
        for first in range(0, cols, COLS):
            col = first + tl.arange(0, COLS)
            inside = col < cols
            w = tl.load(weights + row[:, None] * cols + col[None, :], (row < rows)[:, None] & inside[None, :], other=0.0)
            v = tl.load(x + col, inside, other=0.0)
            sums += w.to(tl.float32) * v.to(tl.float32)[None, :]
        tl.store(y + row, tl.sum(sums, 1).to(tl.float16), row < rows)


def triton_products(b):
    if triton is None:
        raise ImportError("Triton is not installed")
    torch = b.torch
    for shape, m, k in SHAPES:
        if b.late(f"Triton f16 {shape}"):
            return
        count = 2 * m * k
        copies = b.copies(count)
        weights = [torch.randn(m, k, dtype=torch.float16, device="cuda") for _ in range(copies)]
        x = torch.randn(k, dtype=torch.float16, device="cuda")
        y = torch.empty(m, dtype=torch.float16, device="cuda")
        best = None
        # The fastest of some variants, as an autotuner would choose.
        for rows, cols, warps in [(1, 2048, 4), (2, 1024, 4), (4, 512, 4), (4, 1024, 8), (8, 512, 8)]:
            launch = lambda i: product[(triton.cdiv(m, rows),)](weights[i], x, y, m, k, rows, cols, num_warps=warps)
            launch(0)
            b.close("the product in Triton", y, torch.mv(weights[0], x))
            samples = b.time(launch, copies)
            if best is None or statistics.median(samples) < statistics.median(best):
                best = samples
        b.add("Triton f16", f"{shape} {m}x{k}", count, best)


def gemlite(b):
    # The bundle carries it, since it is Python alone.
    carried = pathlib.Path(__file__).resolve().parent / "peers"
    if carried.is_dir():
        sys.path.insert(0, str(carried))
    from gemlite import DType, GemLiteLinear

    torch = b.torch
    for bits in [1, 2, 4, 8]:
        for shape, m, k in TUNED_SHAPES:
            if b.late(f"GemLite of {bits} bits {shape}"):
                return
            count = m * k * bits // 8 + 2 * 2 * m * k // GROUP
            copies = b.copies(count)
            x = torch.randn(1, k, dtype=torch.float16, device="cuda")
            layers = []
            for n in range(copies):
                codes = torch.randint(0, 1 << bits, (m, k), dtype=torch.uint8, device="cuda")
                scales = torch.rand(m * k // GROUP, 1, dtype=torch.float16, device="cuda") / 16 + 0.01
                zeros = torch.full_like(scales, ((1 << bits) - 1) / 2)
                layer = GemLiteLinear(
                    bits, group_size=GROUP, in_features=k, out_features=m, input_dtype=DType.FP16, output_dtype=DType.FP16
                )
                layer.pack(codes, scales, zeros, None)
                layers.append(layer)
                if n == 0:
                    dense = (codes.view(-1, GROUP).float() - zeros.float()) * scales.float()
                    want = dense.view(m, k) @ x[0].float()
                    b.close(f"GemLite of {bits} bits", layer(x)[0], want)
                    del dense
            b.add(f"GemLite {bits} bit f16", f"{shape} {m}x{k}", count, b.time(lambda i: layers[i](x), copies))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=100, metavar="N")
    args = parser.parse_args()
    try:
        import torch
    except ImportError:
        print(json.dumps({"rows": [], "notes": ["PyTorch is not installed, which all peers need"]}))
        return
    if not torch.cuda.is_available():
        print(json.dumps({"rows": [], "notes": ["PyTorch finds no GPU"]}))
        return
    b = Bench(torch, args.seconds)
    with torch.inference_mode():
        for peer in [products, attention, small, triton_products, gemlite]:
            try:
                peer(b)
            # Whatever it is: a peer's failure is its own.
            except Exception as error:
                b.notes.append(f"{peer.__name__}: {type(error).__name__}: {error}")
    print(json.dumps({"rows": b.rows, "notes": b.notes, "torch": torch.__version__, "cuda": torch.version.cuda}))


if __name__ == "__main__":
    sys.exit(main())
