"""Counts what a weight costs in llama.cpp's, OxiBonsai's and Triton's products of a column, what a multiply-add costs in llama.cpp's
and Marlin's of several columns, what a byte of keys and values does in its attention, and all of that in ours: `run` starts it.

Each kernel runs on the software driver, under its counters, and has to be right; then `warpsmith inspect` weighs the machine
code of its kernels by what ran, as `warpsmith budget` weighs ours.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import llama
import llama_attention
import llama_many
import marlin
import oxibonsai
import sources
import table
import triton_products
from gpu import Gpu
from llama_many import Batch
from product import Kernel, Matrix, Product, error

# A product is counted over these rows: each block of rows costs what every other does.
ROWS = 128
WIDTHS = table.WIDTHS
# What activations in int8 may be off by, and what those in f16 and f32 may: as a share of `sum |w * x|`.
TOLERANCE = {"f32": 1e-5, "f16": 1e-3}
INT8_TOLERANCE = 1e-2
POSITIONS = [1024, 4096]
# Columns of weights of the products of several columns of activations.
MANY_COLS = 4096
# Bytes that a launch loads from global memory.
LOADED = "smsp__sass_data_bytes_mem_global_op_ld.sum"


@dataclass(frozen=True)
class Count:
    """Of a product in rows of one length, for a weight: issue slots of its loops and of all of the product, both of machine
    code, and instructions of PTX. `once` are slots of a launch that does not grow with the rows, for a column."""

    peer: str
    format: str
    activations: str
    cols: int
    kernel: str
    error: float
    launches: int
    loop: float
    slots: float
    counted: float
    once: float
    bytes_of_x: float


@dataclass(frozen=True)
class Attention:
    """Of attention of one position over caches in f16: the same for a byte of keys and values."""

    peer: str
    kernel: str
    positions: int
    error: float | None
    launches: int
    loop: float
    slots: float


@dataclass(frozen=True)
class Many:
    """Of a product of several columns of activations: issue slots of machine code for a multiply-add, of its loops and of all of it;
    `once` are those of a launch that does not grow with the rows, for an activation."""

    peer: str
    format: str
    activations: str
    columns: int
    kernel: str
    error: float | None
    loop: float
    slots: float
    once: float


def products(ptx: pathlib.Path) -> list[Product]:
    return [*llama.products(ptx), *oxibonsai.products(ptx), *triton_products.products(ptx)]


def random_x(rng: np.random.Generator, cols: int) -> np.ndarray:
    """Activations of which one is 26 times the root mean square of the others, as in `warpsmith budget`."""
    x = rng.uniform(-1, 1, cols).astype(np.float32)
    x[cols // 3] = 15
    return x


def attend(ptx: pathlib.Path, positions: int, resident: int) -> None:
    """Runs attention as `launch` runs products, with so many blocks resident on a multiprocessor."""
    off = llama_attention.run(Gpu(), ptx, positions, resident, np.random.default_rng(positions))
    if not off <= TOLERANCE["f16"]:
        sys.exit(f"llama.cpp's attention over {positions} positions is off by {off:.1e}")
    print(json.dumps(off))


def products_of_many(ptx: pathlib.Path, columns: int) -> list[Batch]:
    return [p for p in [*llama_many.products(ptx), *marlin.products(ptx)] if p.columns == columns]


def launch_many(ptx: pathlib.Path, columns: int) -> None:
    """Runs products of several columns as `launch` runs those of one."""
    gpu, errors = Gpu(), {}
    for product in products_of_many(ptx, columns):
        rng = np.random.default_rng(columns)
        blocks = product.format.random(rng, product.rows, MANY_COLS)
        matrix = Matrix(product.rows, MANY_COLS, blocks, product.format.decode(blocks).reshape(product.rows, MANY_COLS))
        x = np.stack([random_x(rng, MANY_COLS) for _ in range(columns)])
        y, name = product.run(gpu, matrix, x), product.kernels[-1].name
        off = max(error(of_column, matrix.weights, column) for of_column, column in zip(y, x))
        if not off <= TOLERANCE.get(product.activations, INT8_TOLERANCE):
            sys.exit(f"{product.peer} {product.format.name} of {columns} columns: {name} is off by {off:.1e}")
        errors[name] = off
    print(json.dumps(errors))


def launch(ptx: pathlib.Path, cols: int) -> None:
    """Runs all products, in a process of its own whose environment asks for counters. Prints how far off each is."""
    gpu, rng = Gpu(), np.random.default_rng(cols)
    errors = {}
    for product in products(ptx):
        matrix, x = product.random(rng, ROWS, cols), random_x(rng, cols)
        off = error(product.run(gpu, matrix, x), matrix.weights, x)
        name = product.kernels(cols)[-1].name
        if not off <= TOLERANCE.get(product.activations, INT8_TOLERANCE):
            sys.exit(f"{product.name} at {cols} columns: {name} is off by {off:.1e}")
        errors[name] = off
    print(json.dumps(errors))


def counters(args: argparse.Namespace, report: pathlib.Path, *what: object) -> Any:
    """Has this file called with `what` write its counters into a report; answers what it prints."""
    driver = args.warpsmith.with_name("software-cuda").resolve()
    report.unlink(missing_ok=True)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WARPSMITH_")}
    path = os.pathsep.join(filter(None, [str(driver), environment.get("LD_LIBRARY_PATH")]))
    environment |= {"LD_LIBRARY_PATH": path, "WARPSMITH_DRIVER": "software", "WARPSMITH_SM": "90"}
    environment |= {"WARPSMITH_PROFILE": "1", "WARPSMITH_REPORT": str(report)}
    command = [sys.executable, __file__, "--out", str(args.out), *map(str, what)]
    return json.loads(sources.run(*command, env=environment))


def weigh(warpsmith: pathlib.Path, kernel: Kernel, report: pathlib.Path) -> tuple[float, float, float]:
    """Lanes' slots in loops and in all, and instructions of PTX, of one launch."""
    return slots(inspect(warpsmith, kernel, "--counters", report, "--sass"))


def inspect(warpsmith: pathlib.Path, kernel: Kernel, *options: str | pathlib.Path) -> dict:
    return json.loads(sources.run(warpsmith, "inspect", kernel.name, "--ptx-file", kernel.ptx, *options, "--json"))


def slots(shown: dict) -> tuple[float, float, float]:
    """The same, of what `inspect --json` prints. Compilers move whole steps of a loop out of it, so what is left stands for all
    steps by the bytes that it loads. Where loops load less than half of them, the kernel is one step. Where nothing is loaded to
    registers, loads are copies to shared memory some steps ahead, and say nothing of steps: all of these are in loops."""
    issue, each = shown["issue"], 32 / shown["launches"]
    loops, loaded = issue["loops"] or {"global_load_bytes": 0}, shown["metrics"][LOADED]
    most = 2 * loops["global_load_bytes"] >= loaded
    share = loaded / loops["global_load_bytes"] if loaded and most else 1.0
    step = loops["slots"] * share if most and issue["loops"] else issue["kernel"]
    return each * step, each * issue["kernel"], each * shown["metrics"]["smsp__inst_executed.sum"]


def count(warpsmith: pathlib.Path, product: Product, cols: int, report: pathlib.Path, off: float) -> Count:
    kernels = product.kernels(cols)
    weighed = {k: weigh(warpsmith, k, report) for k in kernels}
    rows = [weighed[k] for k in kernels if not k.once]
    loop, all_slots, counted = (sum(part) / (ROWS * cols) for part in zip(*rows))
    once = sum(weighed[k][1] for k in kernels if k.once) / cols
    common = (product.peer, product.format.name, product.activations, cols, kernels[-1].name, off, len(kernels))
    return Count(*common, loop, all_slots, counted, once, product.bytes_of_x)


def ours(warpsmith: pathlib.Path, cols: int) -> Iterator[Count]:
    """Our products that have a budget."""
    for k in budget(warpsmith, "--rows", ROWS, "--cols", cols)["kernels"]:
        yield ours_of(k, cols)


def budget(warpsmith: pathlib.Path, *options: object) -> dict:
    """What `warpsmith budget` prints; it ends with 8 if a budget is missed, which is not what is asked here."""
    command = [warpsmith, "budget", *map(str, options), "--json"]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if result.returncode not in (0, 8):
        sys.exit(result.stderr)
    return json.loads(result.stdout)


def ours_of(k: dict, cols: int) -> Count:
    names = ("loop_slots_per_weight", "kernel_slots_per_weight", "counted_instructions_per_weight")
    figures = (k[name] for name in names)
    return Count("warpsmith", k["format"], k["activations"], cols, k["kernel"], k["error"], 1, *figures, 0.0, 0.0)


def attention(args: argparse.Namespace, ptx: pathlib.Path) -> Iterator[Attention]:
    """llama.cpp's, and ours over about as many positions."""
    kernels = llama_attention.kernels(ptx)
    resident = inspect(args.warpsmith, kernels[0])["blocks_per_multiprocessor"]
    for positions in POSITIONS:
        report = args.out / f"counters-attention-{positions}.jsonl"
        off = counters(args, report, "--positions", positions, "--resident", resident)
        each = [weigh(args.warpsmith, k, report) for k in kernels]
        loop, all_slots = (sum(w[at] for w in each) / llama_attention.bytes_of(positions) for at in (0, 1))
        yield Attention("llama.cpp", kernels[0].name, positions, off, len(kernels), loop, all_slots)
    for k in budget(args.warpsmith, "attention")["attention"]:
        if k["kernel"] == "attn_step_f16":
            yield ours_attention(k)


def ours_attention(k: dict) -> Attention:
    """Slots of loops are given for an iteration of the hot one."""
    loops = 32 * k["hot_loop"]["iterations"] * sum(k["loops"]["slots"].values()) / k["cache_bytes"]
    slots = k["kernel_slots_per_cache_byte"]
    return Attention("warpsmith", k["kernel"], int(k["shape"].split(", ")[1]), None, k["launches"], loops, slots)


def many(args: argparse.Namespace, ptx: pathlib.Path) -> Iterator[Many]:
    """llama.cpp's and Marlin's products of several columns, and ours."""
    for columns in llama_many.COLUMNS:
        print(f"counting {columns} columns of activations", file=sys.stderr, flush=True)
        report = args.out / f"counters-many-{columns}.jsonl"
        errors = counters(args, report, "--many", columns)
        for product in products_of_many(ptx, columns):
            *before, multiply = product.kernels
            weighed = weigh(args.warpsmith, multiply, report)
            loop, all_slots, _ = (part / (product.rows * MANY_COLS * columns) for part in weighed)
            once = sum(weigh(args.warpsmith, k, report)[1] for k in before) / (MANY_COLS * columns)
            of = (product.peer, product.format.name, product.activations, columns, multiply.name, errors[multiply.name])
            yield Many(*of, loop, all_slots, once)
    for k in budget(args.warpsmith, "gemm")["many_columns"]:
        figures = (k["loop_slots_per_product"], k["kernel_slots_per_product"])
        yield Many("warpsmith", k["format"], k["activations"], k["columns"], k["kernel"], None, *figures, 0.0)


def executed(report: pathlib.Path) -> dict[str, int]:
    """Instructions of warps that a report has of each kernel."""
    lines = (json.loads(text) for text in report.read_text().splitlines())
    return {r["kernel"]: r["metrics"]["smsp__inst_executed.sum"] for r in lines if r["type"] == "profile"}


def fewest(found: list[Product], cols: int, executed: dict[str, int]) -> list[Product]:
    """Of the tiles of a product in Triton, the one with the fewest instructions."""
    best: dict[tuple[str, str], Product] = {}
    for product in sorted(found, key=lambda p: executed[p.kernels(cols)[-1].name]):
        best.setdefault((product.peer, product.format.name), product)
    return [p for p in found if p in best.values()]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benches/peers/run", description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default="target/peers", help="where sources, code and counts go")
    parser.add_argument("--llama", type=pathlib.Path, help="a checkout of llama.cpp, else the sources that llama-cpp-python has")
    parser.add_argument("--marlin", type=pathlib.Path, help="a folder of Marlin's sources, else those that gptqmodel has")
    parser.add_argument("--oxibonsai", type=pathlib.Path, help="a folder of the crate oxibonsai-kernels, else cargo's")
    parser.add_argument("--write", type=pathlib.Path, metavar="PAGE", help="put the tables into docs/benchmarks.md")
    parser.add_argument("--warpsmith", type=pathlib.Path, default="target/release/warpsmith")
    for hidden in ("--cols", "--many", "--positions", "--resident"):
        parser.add_argument(hidden, type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def count_all(args: argparse.Namespace, ptx: pathlib.Path) -> list[Count]:
    counts: list[Count] = []
    for cols in WIDTHS:
        print(f"counting at {cols} columns", file=sys.stderr, flush=True)
        report = args.out / f"counters-{cols}.jsonl"
        errors = counters(args, report, "--cols", cols)
        for product in fewest(products(ptx), cols, executed(report)):
            counts.append(count(args.warpsmith, product, cols, report, errors[product.kernels(cols)[-1].name]))
        counts += ours(args.warpsmith, cols)
    return counts


def main(args: argparse.Namespace) -> None:
    ptx = args.out / "ptx"
    if args.cols:
        return launch(ptx, args.cols)
    if args.many:
        return launch_many(ptx, args.many)
    if args.positions:
        return attend(ptx, args.positions, args.resident)
    ptx.mkdir(parents=True, exist_ok=True)
    sources.compile_llama(args.llama or sources.llama_sources(args.out), ptx)
    sources.compile_marlin(args.marlin or sources.marlin_sources(args.out), ptx)
    sources.compile_oxibonsai(args.oxibonsai or sources.oxibonsai_sources(), ptx)
    sources.compile_triton(ptx)
    found = {"products": count_all(args, ptx), "many": list(many(args, ptx)), "attention": list(attention(args, ptx))}
    as_json = {name: [asdict(c) for c in all_of_them] for name, all_of_them in found.items()}
    (args.out / "counts.json").write_text(json.dumps(as_json, indent=1) + "\n")
    tables = {"products": table.products(found["products"]), "attention": table.attention(found["attention"])}
    tables["many"] = table.many(found["many"])
    print(*tables.values(), sep="\n\n")
    if args.write:
        args.write.write_text(table.written(args.write.read_text(), tables))


if __name__ == "__main__":
    main(arguments())
