"""llama.cpp's products of one column: activations to blocks of int8 in a launch, and a product that reads those."""

import ctypes
import functools
import pathlib
import re
from collections.abc import Iterator

import numpy as np

import formats
from formats import Format
from gpu import Argument, Gpu
from product import Kernel, Matrix, Product

# Of each format: its number in ggml.h, and of mmvq.cu's tables the weights and codes of a block and the codes of a step.
FORMATS: list[tuple[Format, int, int, int]] = [
    (formats.Q1_0, 41, 4, 1),
    (formats.Q4_0, 2, 4, 2),
    (formats.Q8_0, 8, 8, 2),
    (formats.Q4_K, 12, 32, 2),
    (formats.Q6_K, 14, 32, 1),
]
WARPS, LANES = 4, 32
# Blocks of 32 activations: a scale and a sum in f16, and 32 codes.
X_BLOCK, X_BYTES = 32, 36
# Activations are padded to a multiple of it.
PADDING = 512
QUANTIZE_THREADS = 256
# Files of kernels, and what they are compiled with in a release build (ggml-cuda/CMakeLists.txt).
FLAGS = ["-O3", "-use_fast_math", "-extended-lambda"]
FOLDER = pathlib.Path("ggml/src/ggml-cuda")
FILES = ["mmvq", "quantize", "mmvf"]


@functools.cache
def kernel(ptx: pathlib.Path, pattern: str, once: bool = False) -> Kernel:
    """The one entry whose mangled name begins like this, in a file of its own: nvcc's has hundreds."""
    text = ptx.read_text()
    found = set(re.findall(rf"\.entry\s+({pattern}\w*)", text))
    if len(found) != 1:
        raise LookupError(f"{ptx.name} has {len(found)} entries like {pattern}: are these other sources?")
    name = found.pop()
    own = ptx.with_name(f"{name}.ptx")
    if not own.exists():
        own.write_text(only(text, name))
    return Kernel(own, name, once)


def only(ptx: str, name: str) -> str:
    """A text without its other entries, each from its name to the brace that closes it."""
    kept, depth, skips = [], 0, False
    for line in ptx.splitlines(keepends=True):
        entry = re.match(r"(?:\.\w+ )*\.entry\s+(\w+)", line)
        skips = entry[1] != name if entry else skips
        if not skips:
            kept.append(line)
        opened, depth = depth, depth + line.count("{") - line.count("}")
        if depth == 0 and opened:
            skips = False
    return "".join(kept)


def small_k(cols: int, block: int, codes: int, step: int) -> bool:
    """Whether blocks take four rows, a warp each: where one step of four warps would go over a row's end (mmvq.cu,
    `should_use_small_k`)."""
    return cols // block < WARPS * (step * LANES // codes)


def divided_by(n: int) -> ctypes.Array:
    """What its kernels divide by: `init_fastdiv_values` of common.cuh."""
    shift = (n - 1).bit_length()
    return (ctypes.c_uint32 * 3)(2**32 * (2**shift - n) // n + 1, shift, n)


def half_threads(cols: int) -> int:
    """Threads of a block of the product in f16: the fewest that take the fewest steps (mmvf.cu, `launch_mul_mat_vec_f_cuda`)."""
    return min(range(LANES, 257, LANES), key=lambda threads: -(-cols // (2 * threads)))


def products(folder: pathlib.Path) -> Iterator[Product]:
    mmvq, quantize = folder / "mmvq.ptx", folder / "quantize.ptx"
    quantizer = kernel(quantize, "_Z13quantize_q8_1P", once=True)
    for format, number, codes, step in FORMATS:

        def kernels(cols: int, format=format, number=number, codes=codes, step=step) -> list[Kernel]:
            small = int(small_k(cols, format.weights, codes, step))
            pattern = rf"_Z13mul_mat_vec_qIL9ggml_type{number}ELi1ELb0ELb{small}ELb0EE"
            return [quantizer, kernel(mmvq, pattern)]

        def run(gpu: Gpu, m: Matrix, x: np.ndarray, format=format, kernels=kernels) -> np.ndarray:
            return multiply(gpu, m, x, format, kernels(m.cols))

        yield Product("llama.cpp", format, "f32, made int8 in blocks of 32", kernels, run, X_BYTES / X_BLOCK)

    mmvf = folder / "mmvf.ptx"

    def halves(cols: int) -> list[Kernel]:
        return [kernel(mmvf, rf"_Z13mul_mat_vec_fI6__halfS0_Li1ELi{half_threads(cols)}ELb0ELb0EE")]

    def run(gpu: Gpu, m: Matrix, x: np.ndarray) -> np.ndarray:
        return multiply_halves(gpu, m, x, halves(m.cols)[0])

    yield Product("llama.cpp", formats.F16, "f32, sums in f16", halves, run)


def strides(row: int, x: int, rows: int) -> list[Argument]:
    """The last arguments of a product: one channel and one sample, and no experts."""
    u32 = ctypes.c_uint32
    return 2 * [divided_by(1), u32(row * rows), u32(x), u32(rows)] + [u32(0)]


def multiply_halves(gpu: Gpu, m: Matrix, x: np.ndarray, product: Kernel) -> np.ndarray:
    u32, y = ctypes.c_uint32, gpu.memory(4 * m.rows)
    nothing, fusion = ctypes.c_uint64(0), (ctypes.c_uint64 * 6)()
    arguments = [gpu.upload(m.blocks), gpu.upload(x.astype(np.float32)), nothing, fusion, y, u32(m.cols // 2), (u32 * 3)()]
    arguments += [u32(m.cols), u32(m.cols // 2), u32(m.rows), *strides(m.cols, m.cols, m.rows)]
    gpu.launch(product.ptx, product.name, (m.rows, 1, 1), (half_threads(m.cols), 1), 4 * LANES, arguments)
    return gpu.download(y, m.rows)


def multiply(gpu: Gpu, m: Matrix, x: np.ndarray, format: Format, kernels: list[Kernel]) -> np.ndarray:
    u32, i64 = ctypes.c_uint32, ctypes.c_int64
    padded = -(-m.cols // PADDING) * PADDING
    codes, y = gpu.memory(padded // X_BLOCK * X_BYTES), gpu.memory(4 * m.rows)
    quantizer, product = kernels
    arguments = [gpu.upload(x.astype(np.float32)), codes, i64(m.cols), i64(m.cols), i64(m.cols), i64(m.cols), i64(padded)]
    arguments += [u32(1), divided_by(1)]
    gpu.launch(quantizer.ptx, quantizer.name, (padded // QUANTIZE_THREADS, 1, 1), (QUANTIZE_THREADS, 1), 0, arguments)
    nothing, fusion = ctypes.c_uint64(0), (ctypes.c_uint64 * 6)()
    row, per_row = m.cols // format.weights, padded // X_BLOCK
    arguments = [gpu.upload(m.blocks), codes, nothing, fusion, y, u32(m.cols), (u32 * 3)(), u32(row), u32(per_row), u32(m.rows)]
    arguments += strides(row, per_row, m.rows)
    rows = WARPS if "ELb0ELb1ELb0EE" in product.name else 1
    gpu.launch(product.ptx, product.name, (-(-m.rows // rows), 1, 1), (LANES, WARPS), 0, arguments)
    return gpu.download(y, m.rows)
