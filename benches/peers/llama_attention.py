"""llama.cpp's attention of one position over caches in f16: a block a query head and part of the positions, and a merge.

Its own choice for one query of 4 heads a key head, from Ada on, is the kernel without tensor cores
(`ggml_cuda_get_best_fattn_kernel`), whose every query head reads the keys and values again.
"""

import ctypes
import pathlib

import numpy as np

from gpu import Gpu
from llama import LANES, WARPS, divided_by, kernel
from product import Kernel

HEADS, KEY_HEADS, SIZE = 32, 8, 128
# Positions of a block's step.
TILE = 128
MULTIPROCESSORS = 132
FILE = "fattn-vec-instance-f16-f16"


def kernels(folder: pathlib.Path) -> list[Kernel]:
    ptx = folder / f"{FILE}.ptx"
    attend = kernel(ptx, rf"_Z18flash_attn_ext_vecILi{SIZE}ELi1EL9ggml_type1ELS0_1ELb0EE")
    return [attend, kernel(ptx, rf"_Z26flash_attn_combine_resultsILi{SIZE}EE")]


def parts(resident: int, tiles: int) -> int:
    """In how many parts positions are taken, with so many blocks resident on a multiprocessor (`launch_fattn`): at least as many
    as these, and then as many as fill waves of blocks best, as long as that needs no wave more for less than 5 %."""
    wave, chosen, best, waves_of_best = MULTIPROCESSORS * resident, min(resident, tiles), 0, 0
    for n in range(chosen, tiles + 1):
        waves = -(-HEADS * n // wave)
        full = 100 * HEADS * n // (waves * wave)
        if best >= 95 and waves > waves_of_best:
            break
        if full > best:
            chosen, best, waves_of_best = n, full, waves
    return chosen


def bytes_of(positions: int) -> int:
    """Of keys and values that have to be read."""
    return 2 * 2 * positions * KEY_HEADS * SIZE


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """In f64. `q` is heads by elements, `k` and `v` are positions by key heads by elements."""
    k, v = (np.repeat(part.astype(np.float64), HEADS // KEY_HEADS, 1) for part in (k, v))
    scores = np.einsum("hd,phd->hp", q.astype(np.float64), k) / np.sqrt(SIZE)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return np.einsum("hp,phd->hd", weights / weights.sum(1, keepdims=True), v)


def run(gpu: Gpu, folder: pathlib.Path, positions: int, resident: int, rng: np.random.Generator) -> float:
    """Attends to random keys and values; how far off it is, as a share of the largest value."""
    q = rng.uniform(-1, 1, (HEADS, SIZE)).astype(np.float32)
    k, v = (rng.uniform(-1, 1, (positions, KEY_HEADS, SIZE)).astype(np.float16) for _ in range(2))
    attend, merge = kernels(folder)
    n = parts(resident, -(-positions // TILE))
    y, partial, sums = (gpu.memory(4 * HEADS * size) for size in (SIZE, n * SIZE, 2 * n))
    i32, i64, f32 = ctypes.c_int32, ctypes.c_int64, ctypes.c_float
    # Nothing is masked, as far as a step has positions, but llama.cpp always has a mask.
    mask, nothing = gpu.upload(np.zeros(positions, np.float16)), ctypes.c_uint64(0)
    arguments = [gpu.upload(q), gpu.upload(k), gpu.upload(v), mask, nothing, nothing, partial if n > 1 else y, sums]
    arguments += [f32(SIZE**-0.5), f32(0), f32(1), f32(1), ctypes.c_uint32(HEADS), f32(0)]
    whole = 4 * HEADS * SIZE
    arguments += [i32(SIZE), divided_by(1), i32(HEADS), i32(1), i32(whole), i32(4 * SIZE), i32(whole)]
    position, head, all_of_them = 2 * KEY_HEADS * SIZE, 2 * SIZE, 2 * KEY_HEADS * SIZE * positions
    arguments += [i32(SIZE), i32(positions), i32(KEY_HEADS), i32(1)]
    arguments += 2 * [i32(position), i32(head), i64(all_of_them)]
    arguments += [i32(1), i32(1), i32(1), i32(2 * positions), i32(2 * positions), i64(2 * positions)]
    gpu.launch(attend.ptx, attend.name, (1, n, HEADS), (LANES, WARPS), 0, arguments)
    if n > 1:
        gpu.launch(merge.ptx, merge.name, (1, HEADS, 1), (SIZE, 1), 8 * n, [partial, sums, y, i32(n)])
    got = gpu.download(y, HEADS * SIZE).reshape(HEADS, SIZE)
    return float(np.max(np.abs(got - reference(q, k, v))) / np.max(np.abs(v)))
