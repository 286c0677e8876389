"""Weights of each format: random bytes as a peer stores them, and the numbers in f64 that they stand for.

Formats are GGUF's unless a peer has its own order of the same bits. Every decoder is written from the format's description, not
from the kernels that it judges.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Format:
    """`decode` takes blocks, one a row of `size` bytes, to rows of `weights` numbers in f64. `scales` are the offsets of f16;
    `exponent` is the offset of a byte that is one, and its range in a model."""

    name: str
    weights: int
    size: int
    scales: tuple[int, ...]
    decode: Callable[[np.ndarray], np.ndarray]
    exponent: tuple[int, int, int] | None = None

    def random(self, rng: np.random.Generator, rows: int, cols: int) -> np.ndarray:
        """Blocks of a matrix: random codes, and scales of a model's size."""
        blocks = rng.integers(0, 256, (rows * cols // self.weights, self.size), dtype=np.uint8)
        for at in self.scales:
            scale = rng.uniform(0.002, 0.01, len(blocks)).astype("<f2")
            blocks[:, at : at + 2] = scale.view(np.uint8).reshape(-1, 2)
        if self.exponent:
            at, low, high = self.exponent
            blocks[:, at] = rng.integers(low, high, len(blocks), dtype=np.uint8)
        return blocks


def half(blocks: np.ndarray, at: int) -> np.ndarray:
    """The f16 at an offset of each block, as a column."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float64)


def signed(codes: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(codes).view(np.int8).astype(np.float64)


def bits(codes: np.ndarray, width: int) -> np.ndarray:
    """Codes of `width` bits out of bytes, the lowest first."""
    each = [(codes >> shift) & (2**width - 1) for shift in range(0, 8, width)]
    return np.stack(each, -1).reshape(*codes.shape[:-1], -1).astype(np.float64)


def halves(codes: np.ndarray) -> np.ndarray:
    """The low nibbles of all bytes, then the high ones."""
    return np.concatenate([codes & 15, codes >> 4], -1).astype(np.float64)


def q1_0(blocks: np.ndarray) -> np.ndarray:
    return half(blocks, 0) * (2 * bits(blocks[:, 2:], 1) - 1)


def tq2(blocks: np.ndarray) -> np.ndarray:
    """OxiBonsai's ternary codes: 0 is -1, 2 is 1, the others are 0."""
    return half(blocks, 0) * np.array([-1.0, 0.0, 1.0, 0.0])[bits(blocks[:, 2:], 2).astype(int)]


def q4_0(blocks: np.ndarray) -> np.ndarray:
    return half(blocks, 0) * (halves(blocks[:, 2:]) - 8)


def q4_1(blocks: np.ndarray) -> np.ndarray:
    return half(blocks, 0) * halves(blocks[:, 4:]) + half(blocks, 2)


def q5_0(blocks: np.ndarray) -> np.ndarray:
    """The fifth bits of all weights are in four bytes, in order."""
    return half(blocks, 0) * (halves(blocks[:, 6:]) + 16 * bits(blocks[:, 2:6], 1) - 16)


def q8_0(blocks: np.ndarray) -> np.ndarray:
    return half(blocks, 0) * signed(blocks[:, 2:])


def scaled(d: np.ndarray, scales: np.ndarray, codes: np.ndarray, least: np.ndarray | float = 0.0) -> np.ndarray:
    """`d * scale * code - least`, with a scale and a least number for each group of codes."""
    groups = codes.reshape(len(codes), scales.shape[1], -1)
    least = least if isinstance(least, float) else least[:, :, None]
    return (d[:, :, None] * scales[:, :, None] * groups - least).reshape(len(codes), -1)


def q4_k(blocks: np.ndarray) -> np.ndarray:
    """Scales and least numbers of 6 bits: of the first four groups in bytes of their own, of the others in what is left there."""
    s = blocks[:, 4:16]
    low, high, rest = s[:, 0:4], s[:, 4:8], s[:, 8:12]
    scales = np.concatenate([low & 63, (rest & 15) | ((low >> 6) << 4)], 1).astype(np.float64)
    least = np.concatenate([high & 63, (rest >> 4) | ((high >> 6) << 4)], 1).astype(np.float64)
    codes = halves(blocks[:, 16:].reshape(-1, 4, 32)).reshape(-1, 256)
    return scaled(half(blocks, 0), scales, codes, half(blocks, 2) * least)


def q4_k_in_order(blocks: np.ndarray) -> np.ndarray:
    """OxiBonsai's: codes in the order of weights, scales by 4 low bits and then 2 high ones."""
    s = blocks[:, 4:16]
    scales = bits(s[:, 0:4], 4) + 16 * bits(s[:, 8:10], 2)
    least = bits(s[:, 4:8], 4) + 16 * bits(s[:, 10:12], 2)
    return scaled(half(blocks, 0), scales, bits(blocks[:, 16:], 4), half(blocks, 2) * least)


def q6_k(blocks: np.ndarray) -> np.ndarray:
    """Of each 128 weights, 32 by 32: low nibbles of 64 bytes, their high nibbles, and two high bits each out of 32 bytes."""
    low = halves(blocks[:, 0:128].reshape(-1, 2, 64))
    high = blocks[:, 128:192].reshape(-1, 2, 32)
    high = np.concatenate([(high >> shift) & 3 for shift in (0, 2, 4, 6)], -1)
    codes = (low + 16 * high - 32).reshape(-1, 256)
    return scaled(half(blocks, 208), signed(blocks[:, 192:208]), codes)


def q6_k_in_order(blocks: np.ndarray) -> np.ndarray:
    """OxiBonsai's: nibbles and pairs of high bits in the order of weights."""
    codes = bits(blocks[:, 0:128], 4) + 16 * bits(blocks[:, 128:192], 2) - 32
    return scaled(half(blocks, 208), signed(blocks[:, 192:208]), codes)


def mxfp4(blocks: np.ndarray) -> np.ndarray:
    """A power of two for 32 floats of four bits: a sign, two bits of exponent, one of mantissa. Its values are halves of these."""
    values = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float64)
    scale = np.exp2(blocks[:, 0:1].astype(np.float64) - 128)
    return scale * values[halves(blocks[:, 1:]).astype(int)]


Q1_0 = Format("Q1_0", 128, 18, (0,), q1_0)
TQ2 = Format("TQ2", 128, 34, (0,), tq2)
Q4_0 = Format("Q4_0", 32, 18, (0,), q4_0)
Q4_1 = Format("Q4_1", 32, 20, (0, 2), q4_1)
Q5_0 = Format("Q5_0", 32, 22, (0,), q5_0)
Q8_0 = Format("Q8_0", 32, 34, (0,), q8_0)
Q4_K = Format("Q4_K", 256, 144, (0, 2), q4_k)
Q6_K = Format("Q6_K", 256, 210, (208,), q6_k)
Q4_K_IN_ORDER = Format("Q4_K", 256, 144, (0, 2), q4_k_in_order)
Q6_K_IN_ORDER = Format("Q6_K", 256, 210, (208,), q6_k_in_order)
MXFP4 = Format("MXFP4", 32, 17, (), mxfp4, (0, 117, 123))
F16 = Format("F16", 1, 2, (0,), lambda blocks: half(blocks, 0))
