"""The same products as one writes them in Triton: a tile of rows and columns a program, codes and scales in planes, sums in f32.

Triton has no such kernels of its own, so these are ours, after the pattern of its tutorials. Each is compiled for several tiles;
the one with the fewest instructions stands for it. Sizes are multiples of the tiles, so that nothing is masked.
"""

import ctypes
import json
import pathlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

import formats
from formats import Format
from gpu import Gpu
from product import Kernel, Matrix, Product

GROUP = 32
# Rows, columns and warps of a program.
TILES = [(4, 512, 4), (8, 256, 4), (16, 256, 4), (16, 512, 4), (32, 128, 4), (32, 256, 4)]
POINTERS = {"gemv_f16": ["*fp16"], "gemv_q4_0": ["*u8", "*fp16"], "gemv_q8_0": ["*i8", "*fp16"]}
FORMATS = {"gemv_f16": formats.F16, "gemv_q4_0": formats.Q4_0, "gemv_q8_0": formats.Q8_0}


@dataclass(frozen=True)
class Compiled:
    """How an entry of `NAME.ptx` is launched. Its last arguments are memory that it does not use."""

    kernel: str
    name: str
    rows: int
    warps: int
    shared: int
    unused: int


def kernels() -> dict:
    """The kernels; only who compiles them needs Triton."""
    import triton
    import triton.language as tl

    globals()["tl"] = tl

    @triton.jit
    def gemv_f16(w, x, y, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        sums = tl.zeros((ROWS, COLS), dtype=tl.float32)
        for first in range(0, cols, COLS):
            col = first + tl.arange(0, COLS)
            weights = tl.load(w + row[:, None] * cols + col[None, :])
            sums += weights.to(tl.float32) * tl.load(x + col).to(tl.float32)[None, :]
        tl.store(y + row, tl.sum(sums, 1))

    @triton.jit
    def gemv_q8_0(codes, scales, x, y, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        sums = tl.zeros((ROWS, COLS // 32, 32), dtype=tl.float32)
        for first in range(0, cols, COLS):
            group = first // 32 + tl.arange(0, COLS // 32)
            col = group[:, None] * 32 + tl.arange(0, 32)[None, :]
            code = tl.load(codes + row[:, None, None] * cols + col[None, :, :]).to(tl.float32)
            scale = tl.load(scales + row[:, None] * (cols // 32) + group[None, :]).to(tl.float32)
            sums += code * scale[:, :, None] * tl.load(x + col).to(tl.float32)[None, :, :]
        tl.store(y + row, tl.sum(tl.sum(sums, 2), 1))

    @triton.jit
    def gemv_q4_0(codes, scales, x, y, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        sums = tl.zeros((ROWS, COLS // 32, 16), dtype=tl.float32)
        for first in range(0, cols, COLS):
            group = first // 32 + tl.arange(0, COLS // 32)
            byte = group[:, None] * 16 + tl.arange(0, 16)[None, :]
            col = group[:, None] * 32 + tl.arange(0, 16)[None, :]
            code = tl.load(codes + row[:, None, None] * (cols // 2) + byte[None, :, :])
            low = ((code & 15).to(tl.int8) - 8).to(tl.float32)
            high = ((code >> 4).to(tl.int8) - 8).to(tl.float32)
            scale = tl.load(scales + row[:, None] * (cols // 32) + group[None, :]).to(tl.float32)
            both = low * tl.load(x + col).to(tl.float32)[None, :, :] + high * tl.load(x + col + 16).to(tl.float32)[None, :, :]
            sums += both * scale[:, :, None]
        tl.store(y + row, tl.sum(tl.sum(sums, 2), 1))

    return {"gemv_f16": gemv_f16, "gemv_q4_0": gemv_q4_0, "gemv_q8_0": gemv_q8_0}


def compile_all(folder: pathlib.Path) -> None:
    """Writes `NAME.ptx` for each kernel and tile, and `triton.json` with how they are launched."""
    import triton
    from triton.backends.compiler import GPUTarget

    found = []
    for kernel, function in kernels().items():
        pointers = [*POINTERS[kernel], "*fp16", "*fp32"]
        names = function.arg_names
        signature = dict(zip(names, [*pointers, "i32", "constexpr", "constexpr"]))
        divisible = {(at,): [["tt.divisibility", 16]] for at in range(len(pointers) + 1)}
        for rows, cols, warps in TILES:
            source = triton.compiler.ASTSource(function, signature, {"ROWS": rows, "COLS": cols}, divisible)
            built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
            name = f"triton_{kernel}_{rows}x{cols}x{warps}"
            # Nothing in it needs what `sm_90a` has beyond `sm_90`; ptxas would say so.
            text = built.asm["ptx"].replace(built.metadata.name, name).replace(".target sm_90a", ".target sm_90")
            (folder / f"{name}.ptx").write_text(text)
            unused = text.split(")")[0].count(".param") - len(pointers) - 1
            found.append(asdict(Compiled(kernel, name, rows, warps, built.metadata.shared, unused)))
    (folder / "triton.json").write_text(json.dumps(found, indent=1))


def planes(format: Format, m: Matrix) -> list[np.ndarray]:
    """Codes, and scales if it has some."""
    if format is formats.F16:
        return [m.blocks]
    return [m.blocks[:, 2:], m.blocks[:, :2]]


def products(folder: pathlib.Path) -> Iterator[Product]:
    for entry in json.loads((folder / "triton.json").read_text()):
        c = Compiled(**entry)

        def run(gpu: Gpu, m: Matrix, x: np.ndarray, c=c) -> np.ndarray:
            y = gpu.memory(4 * m.rows)
            arguments = [gpu.upload(part) for part in planes(FORMATS[c.kernel], m)]
            arguments += [gpu.upload(x.astype(np.float16)), y, ctypes.c_int32(m.cols)]
            arguments += [ctypes.c_uint64(0) for _ in range(c.unused)]
            gpu.launch(folder / f"{c.name}.ptx", c.name, (m.rows // c.rows, 1, 1), (32 * c.warps, 1), c.shared, arguments)
            return gpu.download(y, m.rows)

        kernel = Kernel(folder / f"{c.name}.ptx", c.name)
        yield Product("Triton", FORMATS[c.kernel], "f16", lambda cols, kernel=kernel: [kernel], run)
