#!/usr/bin/env python3
"""Times what PyTorch does for the shapes of our benchmarks, the way they are timed: graphs of launches over rotated weights
(cold L2) between two events, median and p10 to p90. Prints one JSON object; says so if there is no PyTorch or no GPU.
"""

import json
import statistics
import sys

# Rows and columns of Qwen3's products (docs/benchmarks.md).
SHAPES = [
    ("8b-qkv", 6144, 4096),
    ("8b-o", 4096, 4096),
    ("8b-gate-up", 24576, 4096),
    ("8b-down", 4096, 12288),
    ("0.6b-qkv", 4096, 1024),
    ("0.6b-down", 1024, 3072),
]
CONTEXTS = [1024, 4096, 16384]
LAUNCHES, SAMPLES = 20, 60


def main():
    try:
        import torch
    except ImportError:
        print(json.dumps({"rows": [], "note": "PyTorch is not installed"}))
        return
    if not torch.cuda.is_available():
        print(json.dumps({"rows": [], "note": "PyTorch finds no GPU"}))
        return
    l2 = torch.cuda.get_device_properties(0).L2_cache_size

    def time(launch, copies):
        """Microseconds of one of LAUNCHES launches in a graph, over rotated copies."""
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

    rows = []

    def add(name, shape, count, samples):
        middle = statistics.median(samples)
        rows.append({
            "name": name, "shape": shape, "us": middle, "p10": samples[len(samples) // 10],
            "p90": samples[len(samples) * 9 // 10], "gb_s": count / middle / 1e3,
        })

    with torch.inference_mode():
        for shape, m, k in SHAPES:
            count = 2 * m * k
            copies = min(LAUNCHES, max(2, -(-3 * l2 // count)))
            weights = [torch.randn(m, k, dtype=torch.float16, device="cuda") for _ in range(copies)]
            x = torch.randn(k, dtype=torch.float16, device="cuda")
            y = torch.empty(m, dtype=torch.float16, device="cuda")
            add("torch.mv f16", f"{shape} {m}x{k}", count, time(lambda i: torch.mv(weights[i], x, out=y), copies))
        for context in CONTEXTS:
            heads, kv_heads, dim = 32, 8, 128
            count = 2 * 2 * context * kv_heads * dim
            copies = min(LAUNCHES, max(2, -(-3 * l2 // count)))
            q = torch.randn(1, heads, 1, dim, dtype=torch.float16, device="cuda")
            caches = [torch.randn(2, 1, kv_heads, context, dim, dtype=torch.float16, device="cuda") for _ in range(copies)]

            def attend(i):
                torch.nn.functional.scaled_dot_product_attention(q, caches[i][0], caches[i][1], enable_gqa=True)

            add("torch SDPA f16", f"32q8kv-d128-ctx{context}", count, time(attend, copies))
    print(json.dumps({"rows": rows, "torch": torch.__version__, "cuda": torch.version.cuda}))


if __name__ == "__main__":
    sys.exit(main())
