"""llama.cpp's products of several columns: up to eight by the kernels of one column (mmvq.cu), more on tensor cores (mmq.cuh)."""

import ctypes
import pathlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import formats
from formats import Format
from gpu import Gpu
from llama import LANES, PADDING, QUANTIZE_THREADS, X_BLOCK, X_BYTES, divided_by, kernel, strides
from product import Kernel, Matrix

COLUMNS = [2, 4, 8, 16, 64, 512]
# Of each format: its number and name in ggml.h, and whether activations bring their sums along (`mmq_get_q8_1_ds_layout`).
FORMATS: list[tuple[Format, int, str, int]] = [
    (formats.Q4_0, 2, "Q4_0", 1),
    (formats.Q4_1, 3, "Q4_1", 1),
    (formats.Q5_0, 6, "Q5_0", 0),
    (formats.Q8_0, 8, "Q8_0", 0),
    (formats.Q4_K, 12, "Q4_K", 1),
    (formats.Q6_K, 14, "Q6_K", 0),
    (formats.MXFP4, 39, "MXFP4", 0),
]
# The most columns of the kernels of one column (`MMVQ_MAX_BATCH_SIZE`), and their rows of a block.
MOST_OF_ONE, ROWS_OF_ONE = 8, 2
# A tile on tensor cores: rows, columns at most, words of a row in shared memory (`ggml_cuda_mmq_get_sram_stride`, 76 for all of
# these), warps; blocks of 128 activations, of 144 bytes, and the threads that write them.
ROWS, MOST, STRIDE, WARPS = 128, 128, 76, 8
MMQ_BLOCK, MMQ_BYTES, MMQ_THREADS = 128, 144, 128
FILE = "mmq_kernels"


@dataclass(frozen=True)
class Batch:
    """A product of `columns` columns: `kernels` are launched by `run`, which answers y as `[columns, rows]`. It is counted over `rows`
    rows: those of its tile, where they are more than others'."""

    peer: str
    format: Format
    activations: str
    columns: int
    kernels: list[Kernel]
    run: Callable[[Gpu, Matrix, np.ndarray], np.ndarray]
    rows: int = 128


def tile(columns: int) -> int:
    """Columns of a block: the fewest, in steps of 8, with the fewest tiles (`mul_mat_q_switch_J`; sizes that some formats lack are none
    of these)."""
    return min(range(8, MOST + 1, 8), key=lambda n: -(-columns // n))


def source() -> str:
    """CUDA that asks for the kernels that are launched, and no others: compiling all of them takes an hour."""
    tiles = sorted({tile(n) for n in COLUMNS if n > MOST_OF_ONE})
    each = (f"(void *) mul_mat_q<GGML_TYPE_{name}, {n}, false>" for _, _, name, _ in FORMATS for n in tiles)
    return '#include "mmq.cuh"\nvoid * kernels[] = {\n    ' + ",\n    ".join(each) + "\n};\n"


def products(folder: pathlib.Path) -> list[Batch]:
    found = []
    for format, number, _, sums in FORMATS:
        for columns in COLUMNS:
            few = columns <= MOST_OF_ONE
            if few:
                quantize = kernel(folder / "quantize.ptx", "_Z13quantize_q8_1P", once=True)
                product = kernel(folder / "mmvq.ptx", rf"_Z13mul_mat_vec_qIL9ggml_type{number}ELi{columns}ELb0ELb0ELb0EE")
            else:
                quantize = kernel(folder / "quantize.ptx", rf"_Z17quantize_mmq_q8_1IL18mmq_q8_1_ds_layout{sums}ELb0EE", once=True)
                product = kernel(folder / f"{FILE}.ptx", rf"_Z9mul_mat_qIL9ggml_type{number}ELi{tile(columns)}ELb0E")
            multiply = multiply_few if few else multiply_many

            def run(gpu: Gpu, m: Matrix, x: np.ndarray, of=(quantize, product), format=format, multiply=multiply) -> np.ndarray:
                return multiply(gpu, m, x.astype(np.float32), format, *of)

            found.append(Batch("llama.cpp", format, "f32, made int8 in blocks of 32", columns, [quantize, product], run))
    return found


def multiply_few(gpu: Gpu, m: Matrix, x: np.ndarray, format: Format, quantize: Kernel, product: Kernel) -> np.ndarray:
    """As `llama.multiply`, with two rows a block: four warps for up to four columns, else two (`calc_nwarps`)."""
    u32, i64, columns = ctypes.c_uint32, ctypes.c_int64, len(x)
    padded = -(-m.cols // PADDING) * PADDING
    codes, y = gpu.memory(columns * padded // X_BLOCK * X_BYTES), gpu.memory(4 * columns * m.rows)
    size = [i64(m.cols), i64(m.cols), i64(columns * m.cols), i64(columns * m.cols), i64(padded), u32(columns), divided_by(1)]
    grid = (padded // QUANTIZE_THREADS, columns, 1)
    gpu.launch(quantize.ptx, quantize.name, grid, (QUANTIZE_THREADS, 1), 0, [gpu.upload(x), codes, *size])
    nothing, fusion = ctypes.c_uint64(0), (ctypes.c_uint64 * 6)()
    row, per_column = m.cols // format.weights, padded // X_BLOCK
    arguments = [gpu.upload(m.blocks), codes, nothing, fusion, y, u32(m.cols), (u32 * 3)(), u32(row), u32(per_column), u32(m.rows)]
    arguments += strides(row, per_column, m.rows)
    warps = 4 if columns <= 4 else 2
    gpu.launch(product.ptx, product.name, (-(-m.rows // ROWS_OF_ONE), 1, 1), (LANES, warps), 0, arguments)
    return gpu.download(y, columns * m.rows).reshape(columns, m.rows)


def multiply_many(gpu: Gpu, m: Matrix, x: np.ndarray, format: Format, quantize: Kernel, product: Kernel) -> np.ndarray:
    """A block of threads for each tile of outputs, as the host launches it where tiles fill the multiprocessors."""
    i32, i64, columns = ctypes.c_int32, ctypes.c_int64, len(x)
    padded, of_tile = -(-m.cols // PADDING) * PADDING, tile(columns)
    codes, y = gpu.memory((columns * padded // MMQ_BLOCK + MOST) * MMQ_BYTES), gpu.memory(4 * columns * m.rows)
    nothing = ctypes.c_uint64(0)
    size = [i64(m.cols), i64(m.cols), i64(columns * m.cols), i64(columns * m.cols), i64(padded), i32(columns), i32(1), i32(0)]
    grid = (columns, -(-padded // (4 * MMQ_THREADS)), 1)
    gpu.launch(quantize.ptx, quantize.name, grid, (MMQ_THREADS, 1), 0, [gpu.upload(x), nothing, codes, *size])
    blocks, tiles = m.cols // format.weights, -(-columns // of_tile)
    one = [divided_by(1), divided_by(1), i32(blocks * m.rows), i32(columns * padded * X_BYTES // X_BLOCK // 4), i32(m.rows * columns)]
    arguments = [gpu.upload(m.blocks), codes, nothing, nothing, y, nothing, nothing, divided_by(blocks)]
    arguments += [i32(m.rows), i32(columns), i32(blocks), i32(columns), i32(m.rows), *one, *one, divided_by(tiles)]
    of_y = -(-of_tile * MMQ_BYTES // (4 * LANES * WARPS)) * 4 * LANES * WARPS
    shared = 4 * of_tile + 4 * ROWS * STRIDE + of_y
    gpu.launch(product.ptx, product.name, (-(-m.rows // ROWS) * tiles, 1, 1), (LANES, WARPS), shared, arguments)
    return gpu.download(y, columns * m.rows).reshape(columns, m.rows)
