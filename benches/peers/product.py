"""A matrix-vector product of a peer, as every peer describes its own."""

import pathlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from formats import Format
from gpu import Gpu


@dataclass(frozen=True)
class Matrix:
    """Weights as the peer stores them, and as numbers."""

    rows: int
    cols: int
    blocks: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True)
class Kernel:
    """An entry of a PTX file. `once`: its work does not grow with the rows."""

    ptx: pathlib.Path
    name: str
    once: bool = False


@dataclass(frozen=True)
class Product:
    """`run` launches the kernels of `kernels` for a number of columns, and answers y. `bytes_of_x` are those of its activations
    that a launch of its own writes and the product reads, a column; 0 where the product takes activations as they are."""

    peer: str
    format: Format
    activations: str
    kernels: Callable[[int], list[Kernel]]
    run: Callable[[Gpu, Matrix, np.ndarray], np.ndarray]
    bytes_of_x: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.peer} {self.format.name}"

    def random(self, rng: np.random.Generator, rows: int, cols: int) -> Matrix:
        blocks = self.format.random(rng, rows, cols)
        return Matrix(rows, cols, blocks, self.format.decode(blocks).reshape(rows, cols))


def error(y: np.ndarray, weights: np.ndarray, x: np.ndarray) -> float:
    """The largest distance from the product in f64, as a share of the row's `sum |w * x|`."""
    x = x.astype(np.float64)
    return float(np.max(np.abs(y - weights @ x) / (np.abs(weights) @ np.abs(x))))
