"""OxiBonsai's products of one column: CUDA C in strings of its Rust sources, a warp a row, activations in f32."""

import ctypes
import pathlib
import re
from collections.abc import Iterator

import numpy as np

import formats
from formats import Format
from gpu import Gpu
from product import Kernel, Matrix, Product

FOLDER = pathlib.Path("src/gpu_backend")
# Files, and the constants in them that are CUDA C.
SOURCES = {
    "cuda_kernels": "CUDA_V7_KERNELS_SRC",
    "cuda_q_std_kernels": "CUDA_Q_STD_KERNELS_SRC",
    "cuda_k_quant_kernels": "CUDA_K_QUANT_KERNELS_SRC",
}
ROWS, THREADS = 8, 256
# `gemv_q1_g128_v8` keeps activations in shared memory where they fit, 129 floats for 128; `v9` is for longer rows.
SHARED = 48 * 1024


def cuda(rust: str, constant: str) -> str:
    """The text of a raw string of Rust."""
    found = re.search(rf'pub const {constant}: &str = r#"(.*?)"#;', rust, re.DOTALL)
    if not found:
        raise LookupError(f"no {constant}: are these other sources?")
    return found[1]


def shared_bytes(cols: int) -> int:
    return cols // 128 * 129 * 4


def in_planes(m: Matrix) -> np.ndarray:
    """All scales, then all codes: how it stores formats of blocks of 128."""
    return np.concatenate([m.blocks[:, :2].ravel(), m.blocks[:, 2:].ravel()])


def products(folder: pathlib.Path) -> Iterator[Product]:
    def product(format: Format, file: str, name: str, planes: bool = False) -> Product:
        def kernels(cols: int) -> list[Kernel]:
            short = name == "gemv_q1_g128" and shared_bytes(cols) <= SHARED
            suffix = ("_v8" if short else "_v9") if name == "gemv_q1_g128" else ""
            return [Kernel(folder / f"{file}.ptx", name + suffix)]

        def run(gpu: Gpu, m: Matrix, x: np.ndarray) -> np.ndarray:
            (kernel,) = kernels(m.cols)
            y = gpu.memory(4 * m.rows)
            weights = gpu.upload(in_planes(m) if planes else m.blocks)
            arguments = [weights, gpu.upload(x.astype(np.float32)), y, ctypes.c_uint32(m.rows), ctypes.c_uint32(m.cols)]
            shared = shared_bytes(m.cols) if kernel.name.endswith("_v8") else 0
            gpu.launch(kernel.ptx, kernel.name, (-(-m.rows // ROWS), 1, 1), (THREADS, 1), shared, arguments)
            return gpu.download(y, m.rows)

        return Product("OxiBonsai", format, "f32", kernels, run)

    yield product(formats.Q1_0, "cuda_kernels", "gemv_q1_g128", planes=True)
    yield product(formats.TQ2, "cuda_kernels", "gemv_tq2_g128_v1", planes=True)
    yield product(formats.Q4_0, "cuda_q_std_kernels", "gemv_q4_0")
    yield product(formats.Q8_0, "cuda_q_std_kernels", "gemv_q8_0")
    yield product(formats.Q4_K_IN_ORDER, "cuda_k_quant_kernels", "gemv_q4k")
    yield product(formats.Q6_K_IN_ORDER, "cuda_k_quant_kernels", "gemv_q6k")
