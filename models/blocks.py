"""Blocks of the formats that the `gguf` package cannot write: Q1_0 and Q4_K."""

import numpy as np


def halves(x: np.ndarray) -> np.ndarray:
    return x.astype("<f2").view(np.uint8)


def q1_0(w: np.ndarray) -> np.ndarray:
    """Rows of Q1_0: an f16 scale, the mean magnitude of 128 weights, and a bit for each, set where it is not negative."""
    groups = w.astype(np.float32).reshape(-1, 128)
    scale = np.abs(groups).mean(1, keepdims=True)
    bits = np.packbits(groups >= 0, axis=1, bitorder="little")
    return np.concatenate([halves(scale), bits], axis=1).reshape(w.shape[0], -1)


def fit_4_bits(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scale and offset, not negative, that make `scale * code - offset`, with codes of 0 to 15, close to each row of `x`."""
    low, high = np.minimum(x.min(1, keepdims=True), 0), x.max(1, keepdims=True)
    best = np.full((len(x), 1), np.inf)
    scale, offset = np.zeros_like(low), np.zeros_like(low)
    # Tries ranges a little narrower than the whole, and for the codes of each the scale and offset of least squares.
    for shrink in np.linspace(0.75, 1.0, 11):
        s = np.maximum((high - low) * shrink / 15, 1e-12)
        codes = np.clip(np.round((x - low * shrink) / s), 0, 15)
        mean_c, mean_x = codes.mean(1, keepdims=True), x.mean(1, keepdims=True)
        variance = ((codes - mean_c) ** 2).mean(1, keepdims=True)
        slope = ((codes - mean_c) * (x - mean_x)).mean(1, keepdims=True) / np.maximum(variance, 1e-12)
        s = np.where((slope > 0) & (variance > 0), slope, s)
        o = np.maximum(s * mean_c - mean_x, 0)
        error = ((s * codes - o - x) ** 2).sum(1, keepdims=True)
        better = error < best
        best, scale, offset = (np.where(better, a, b) for a, b in ((error, best), (s, scale), (o, offset)))
    return scale, offset


def q4_k(w: np.ndarray) -> np.ndarray:
    """Rows of Q4_K: 256 weights in 8 groups of 32, whose 6-bit scales and offsets share two f16 factors."""
    x = w.astype(np.float64).reshape(-1, 32)
    scale, offset = (v.reshape(-1, 8) for v in fit_4_bits(x))
    d, dmin = (np.float16(v.max(1, keepdims=True) / 63) for v in (scale, offset))
    step = lambda v, unit: np.clip(np.round(v / np.maximum(unit.astype(np.float64), 1e-30)), 0, 63).astype(np.uint8)
    scales, offsets = step(scale, d), step(offset, dmin)
    s = (d.astype(np.float64) * scales).reshape(-1, 1)
    o = (dmin.astype(np.float64) * offsets).reshape(-1, 1)
    codes = np.where(s > 0, np.clip(np.round((x + o) / np.where(s > 0, s, 1)), 0, 15), 0).astype(np.uint8)
    packed = np.empty((len(scales), 12), np.uint8)
    packed[:, 0:4] = scales[:, 0:4] | (scales[:, 4:8] >> 4) << 6
    packed[:, 4:8] = offsets[:, 0:4] | (offsets[:, 4:8] >> 4) << 6
    packed[:, 8:12] = (scales[:, 4:8] & 15) | (offsets[:, 4:8] & 15) << 4
    # Of every 64 weights, the first 32 are the low nibbles.
    pairs = codes.reshape(-1, 4, 2, 32)
    nibbles = (pairs[:, :, 0] | pairs[:, :, 1] << 4).reshape(-1, 128)
    return np.concatenate([halves(d), halves(dmin), packed, nibbles], axis=1).reshape(w.shape[0], -1)
