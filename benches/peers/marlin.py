"""Marlin's products of several columns: weights of four and eight bits with a scale in f16 for a group, and activations in f16."""

import ctypes
import pathlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import formats
from formats import Format
from gpu import Gpu
from llama import kernel
from llama_many import COLUMNS, Batch
from product import Kernel, Matrix

FILE = "marlin_kernels"
# Of what gptqmodel and PyTorch give nvcc for it, what its code needs or is changed by.
FLAGS = ["-O3", "--expt-relaxed-constexpr"]
GROUPS = [32, 128]
# Weights lie in tiles of 64 rows by 16 of a row.
TILE_ROWS, TILE_COLS = 64, 16
# Stages of its pipeline (`pipe_stages`), and dynamic shared memory of a launch: all that a block can have on sm_90.
STAGES, SHARED = 4, 227 * 1024


@dataclass(frozen=True)
class Weights:
    """Weights of one kind: blocks of a row, a group each, before they are packed; what scalar_type.hpp calls them, their bits, and
    what is taken from unsigned codes; the codes and, if groups have any, the zero points of blocks."""

    format: Format
    name: str
    bits: int
    bias: int
    codes: Callable[[np.ndarray], np.ndarray]
    zeros: Callable[[np.ndarray], np.ndarray] | None = None

    @property
    def group(self) -> int:
        return self.format.weights

    @property
    def id(self) -> int:
        """As a template argument: bits, bias, and the 1 of what keeps to IEEE 754 (scalar_type.hpp, `id`)."""
        return self.bits << 8 | self.bias << 17 | 1 << 50


def of_group(group: int) -> list[Weights]:
    four = Format("Q4_0", group, 2 + group // 2, (0,), formats.q4_0)
    zero = Format("Q4_1", group, 3 + group // 2, (0,), with_zero)
    eight = Format("Q8_0", group, 2 + group, (0,), formats.q8_0)
    return [
        Weights(four, "kU4B8", 4, 8, lambda blocks: formats.halves(blocks[:, 2:])),
        Weights(zero, "kU4", 4, 0, lambda blocks: formats.halves(blocks[:, 3:]), lambda blocks: blocks[:, 2] & 15),
        Weights(eight, "kU8B128", 8, 128, lambda blocks: blocks[:, 2:] ^ 128),
    ]


def with_zero(blocks: np.ndarray) -> np.ndarray:
    """A scale, a byte of which four bits are a zero point, and nibbles."""
    return formats.half(blocks, 0) * (formats.halves(blocks[:, 3:]) - (blocks[:, 2:3] & 15).astype(np.float64))


WEIGHTS = [weights for group in GROUPS for weights in of_group(group)]


class OneScale(Format):
    """All blocks of a row have the scale and the zero point of its first: nobody can tell which of them was read."""

    def random(self, rng: np.random.Generator, rows: int, cols: int) -> np.ndarray:
        blocks = super().random(rng, rows, cols).reshape(rows, -1, self.size)
        head = 3 if self.decode is with_zero else 2
        blocks[:, :, :head] = blocks[:, :1, :head]
        return blocks.reshape(-1, self.size)


@dataclass(frozen=True)
class Tile:
    """What a block of threads multiplies at a time: columns of activations, rows, and weights of a row."""

    columns: int
    rows: int
    weights: int
    threads: int = 256

    @property
    def sizes(self) -> list[int]:
        """As template arguments: threads, and the others in steps of 16."""
        return [self.threads, -(-self.columns // 16), self.rows // 16, self.weights // 16]


def tile(columns: int) -> Tile:
    """The first that `determine_exec_config` tries, which fits where rows are a multiple of 256 (gptq_marlin.cu)."""
    if columns <= 16:
        return Tile(8 if columns <= 8 else 16, 128, 128)
    return Tile(16 * min(-(-columns // 16), 4), 256, 64)


def source() -> str:
    """CUDA that asks for the kernels that are launched."""
    each = []
    for weights in WEIGHTS:
        for of in sorted({tile(n) for n in COLUMNS}, key=lambda t: t.columns):
            types = f"half, vllm::{weights.name}.id(), vllm::kFloat16.id()"
            sizes = f"{', '.join(map(str, of.sizes))}, {str(of.columns == 8).lower()}, {STAGES}, {weights.group // 16}, false"
            each.append(f"(void *) marlin::Marlin<{types}, {sizes}>")
    return '#include "kernel.h"\n#include "marlin_template.h"\nvoid * kernels[] = {\n    ' + ",\n    ".join(each) + "\n};\n"


def entry(weights: Weights, of: Tile) -> str:
    """How the mangled name of such a kernel begins."""
    sizes = "".join(f"Li{n}E" for n in of.sizes)
    return rf"_ZN6marlin6MarlinI6__halfLl{weights.id}ELl\d+E{sizes}Lb{int(of.columns == 8)}ELi{STAGES}ELi{weights.group // 16}ELb0EE"


def products(folder: pathlib.Path) -> list[Batch]:
    found = []
    for weights in WEIGHTS:
        for columns in COLUMNS:
            of = tile(columns)
            product = kernel(folder / f"{FILE}.ptx", entry(weights, of))
            # Where a group is several steps, warps that are ahead write over scales that others have not read: README.md.
            format = OneScale(**vars(weights.format)) if weights.group > of.weights else weights.format

            def run(gpu: Gpu, m: Matrix, x: np.ndarray, weights=weights, product=product) -> np.ndarray:
                return multiply(gpu, m, x, weights, product)

            found.append(Batch(f"Marlin, groups of {weights.group}", format, "f16", columns, [product], run, of.rows))
    return found


def multiply(gpu: Gpu, m: Matrix, x: np.ndarray, weights: Weights, product: Kernel) -> np.ndarray:
    """A block of threads for each tile of rows and columns, over whole rows, so that no block waits for another."""
    i32, flag, nothing, of = ctypes.c_int32, ctypes.c_bool, ctypes.c_uint64(0), tile(len(x))
    groups = (m.rows, m.cols // weights.group)
    codes = weights.codes(m.blocks).astype(np.uint8).reshape(m.rows, m.cols)
    scales = np.ascontiguousarray(m.blocks[:, 0:2]).view("<f2").reshape(groups)
    zeros = gpu.upload(packed_zeros(weights.zeros(m.blocks).reshape(groups))) if weights.zeros else nothing
    blocks = m.rows // of.rows * -(-len(x) // of.columns)
    y, locks = gpu.memory(2 * len(x) * m.rows), gpu.memory(4 * blocks)
    arguments = [gpu.upload(x.astype("<f2")), gpu.upload(packed(codes, weights.bits)), y, nothing, nothing]
    arguments += [gpu.upload(in_eights(scales)), nothing, zeros, nothing]
    arguments += [i32(groups[1]), i32(len(x)), i32(m.rows), i32(m.cols), i32(m.cols), locks]
    arguments += [flag(False), flag(False), flag(True), i32(SHARED)]
    gpu.launch(product.ptx, product.name, (blocks, 1, 1), (of.threads, 1), SHARED, arguments)
    return gpu.download(y, len(x) * m.rows, np.float16).reshape(len(x), m.rows)


def packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes `[rows, cols]` as words in the order in which lanes take them. Of a tile, lane 4 g + t has words for each 16 rows in turn:
    weights 2 t and 2 t + 1 of both halves of a row's 16, of rows g and 8 + g, which are one word of four bits or two of eight. In a
    word the even weights come first."""
    rows, cols = codes.shape
    # By row: tile, 16, half, g. By weight: tile, half, t, odd.
    each = codes.reshape(rows // TILE_ROWS, 4, 2, 8, cols // TILE_COLS, 2, 4, 2)
    each = each.transpose((4, 0, 3, 6, 1, 7, 2, 5) if bits == 4 else (4, 0, 3, 6, 1, 2, 7, 5))
    return words(each.reshape(-1, 32 // bits), bits)


def words(codes: np.ndarray, bits: int) -> np.ndarray:
    """A word for each row of codes, the first of them lowest."""
    return np.bitwise_or.reduce(codes.astype(np.uint32) << np.arange(0, 32, bits, dtype=np.uint32), axis=-1)


def in_eights(of_groups: np.ndarray) -> np.ndarray:
    """Scales `[rows, groups]` to `[groups, rows]`, where of every 64 rows those come together that leave the same rest by 8."""
    rows, groups = of_groups.shape
    return of_groups.T.reshape(groups, -1, 8, 8).swapaxes(2, 3).reshape(groups, rows)


def packed_zeros(zeros: np.ndarray) -> np.ndarray:
    """Zero points in the order of scales, eight to a word, the even ones first."""
    return words(in_eights(zeros).reshape(-1, 8)[:, [0, 2, 4, 6, 1, 3, 5, 7]], 4)
