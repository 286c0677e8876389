"""Writes golden vectors of weight formats, and the tables of the grids that the IQ formats index.

Needs numpy and gguf (0.19 or later): python3 make_vectors.py. What `gguf` has a decoder for is decoded by it, and for a second time by
what is written here after the descriptions of the formats; both have to agree to the bit. With the path of ggml's library behind it
(`libggml-base.so`), ggml's own decoders have to agree too. Eight-bit floats are decoded by what is here alone.

Of each format: `NAME.q`, blocks of 4 rows of 512; `NAME.f32`, the weights; `NAME.x.f32`, a vector of at most 8 significant bits;
`NAME.y.f64`, the products, correctly rounded; `NAME.yabs.f64`, the sums of the magnitudes of their terms. Row 0 has random codes; row 1 too,
and blocks of zero bytes; row 2 large scales, extreme codes, and negative scales; row 3 subnormal scales and those at the edges.
"""
import ctypes
import math
import pathlib
import struct
import sys
import zlib

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import quants

HERE = pathlib.Path(__file__).resolve().parent
ROWS, COLS = 4, 512
KINDS = [["random", "random"], ["random", "zero"], ["large", "negative"], ["subnormal", "edge"]]
SUBNORMAL, EDGE = [0x0001, 0x03FF, 0x8001, 0x0200], [0x8000, 0x0400, 0x83FF, 0x3C00, 0x8400, 0x0000, 0x3555, 0xBC00]
# Of bits 8 and 7 and so on of an index of signs the last is what makes the number of minuses even.
PARITY = [i | (bin(i).count("1") & 1) << 7 for i in range(128)]


def f16(b, at):
    return struct.unpack_from("<e", bytes(b), at)[0]


def word(b, at, size):
    return int.from_bytes(bytes(b[at:at + size]), "little")


def grid(name):
    c = getattr(quants, name)
    c.init_grid()
    return c.grid.reshape(c.grid_shape).astype(int)


def signed(values, signs):
    return [-v if signs >> i & 1 else v for i, v in enumerate(values)]


def iq2_xxs(b):
    out, table = [], grid("IQ2_XXS")
    for k in range(8):
        high = word(b, 2 + 8 * k + 4, 4)
        scale = f16(b, 0) * (0.5 + (high >> 28)) * 0.25
        for j in range(4):
            out += [scale * v for v in signed(table[b[2 + 8 * k + j]], PARITY[high >> 7 * j & 127])]
    return out


def iq2_xs(b):
    out, table = [], grid("IQ2_XS")
    for j in range(32):
        code, nibbles = word(b, 2 + 2 * j, 2), b[66 + j // 4]
        scale = f16(b, 0) * (0.5 + (nibbles >> 4 * (j // 2 % 2) & 15)) * 0.25
        out += [scale * v for v in signed(table[code & 511], PARITY[code >> 9])]
    return out


def iq2_s(b):
    out, table = [], grid("IQ2_S")
    for j in range(32):
        index = b[2 + j] | (b[66 + j // 4] >> 2 * (j % 4) & 3) << 8
        scale = f16(b, 0) * (0.5 + (b[74 + j // 4] >> 4 * (j // 2 % 2) & 15)) * 0.25
        out += [scale * v for v in signed(table[index], b[34 + j])]
    return out


def iq3_xxs(b):
    out, table = [], grid("IQ3_XXS")
    for k in range(8):
        high = word(b, 66 + 4 * k, 4)
        scale = f16(b, 0) * (0.5 + (high >> 28)) * 0.5
        for j in range(8):
            signs = PARITY[high >> 7 * (j // 2) & 127] >> 4 * (j % 2)
            out += [scale * v for v in signed(table[b[2 + 8 * k + j]], signs)]
    return out


def iq3_s(b):
    out, table = [], grid("IQ3_S")
    for j in range(64):
        index = b[2 + j] | (b[66 + j // 8] >> j % 8 & 1) << 8
        scale = f16(b, 0) * (1 + 2 * (b[106 + j // 16] >> 4 * (j // 8 % 2) & 15))
        out += [scale * v for v in signed(table[index], b[74 + j // 2] >> 4 * (j % 2))]
    return out


def iq1_s(b):
    out, table = [], grid("IQ1_S")
    for j in range(32):
        high = word(b, 34 + j // 4 * 2, 2)
        scale = f16(b, 0) * (2 * (high >> 12 & 7) + 1)
        delta = -0.125 if high >> 15 else 0.125
        out += [scale * (v + delta) for v in table[b[2 + j] | (high >> 3 * (j % 4) & 7) << 8]]
    return out


def iq1_m(b):
    out, table = [], grid("IQ1_M")
    words = [word(b, 48 + 2 * i, 2) for i in range(4)]
    d = f16(sum((w >> 12) << 4 * i for i, w in enumerate(words)).to_bytes(2, "little"), 0)
    for j in range(32):
        high = b[32 + j // 2] >> 4 * (j % 2) & 15
        scale = d * (2 * (words[j // 8] >> 3 * (j // 2 % 4) & 7) + 1)
        delta = -0.125 if high >> 3 else 0.125
        out += [scale * (v + delta) for v in table[b[j] | (high & 7) << 8]]
    return out


def e4m3(c):
    exponent, fraction = c >> 3 & 15, c & 7
    size = fraction * 2.0 ** -9 if exponent == 0 else (1 + fraction / 8) * 2.0 ** (exponent - 7)
    return -size if c >> 7 else size


def e5m2(c):
    return f16(bytes([0, c]), 0)


def float8(value):
    def decode(b):
        d = struct.unpack_from("<f", bytes(b), 128)[0]
        return [float(np.float32(value(c) * d)) for c in b[:128]]
    return decode


def nvfp4(b):
    e2m1 = [0, 1, 2, 3, 4, 6, 8, 12]
    value = lambda c: -e2m1[c & 7] if c >> 3 else e2m1[c]
    return [0.5 * e4m3(b[i // 16]) * value(b[4 + i // 16 * 8 + i % 8] >> (4 if i % 16 >= 8 else 0) & 15) for i in range(64)]


def put_f16(*places):
    def put(b, kind, k, rng):
        for at in places:
            if kind == "large":
                b[at:at + 2] = (0x7BFF).to_bytes(2, "little")
            elif kind in ("subnormal", "edge"):
                b[at:at + 2] = ([*SUBNORMAL, *SUBNORMAL] if kind == "subnormal" else EDGE)[k % 8].to_bytes(2, "little")
            else:
                b[at:at + 2] = struct.pack("<e", 10 ** rng.uniform(-3, -1) * (-1 if kind == "negative" else 1))
    return put


def put_iq1_m(b, kind, k, rng):
    two = bytearray(2)
    put_f16(0)(two, kind, k, rng)
    d = int.from_bytes(two, "little")
    for i in range(4):
        b[49 + 2 * i] = b[49 + 2 * i] & 15 | (d >> 4 * i & 15) << 4


def put_float8(nan):
    def put(b, kind, k, rng):
        for i, c in enumerate(b[:128]):
            b[i] = c if c & 127 < nan else c & 128 | (nan - 1)
        scale = {"large": 1e30, "negative": -0.013, "subnormal": 2.0 ** -133, "edge": [0.0, -0.0, 1.0, 2.0 ** -126][k % 4]}
        b[128:132] = struct.pack("<f", scale.get(kind, 10 ** rng.uniform(-3, -1)))
    return put


def put_nvfp4(b, kind, k, rng):
    of = {"large": [0x7E], "subnormal": list(range(1, 8)), "edge": [0, 0x08, 0x07, 0x38, 0x0F, 0x7D, 0x01, 0x40]}
    for s in range(4):
        b[s] = int(rng.choice(of.get(kind, range(0x20, 0x48))))


# Name: type id, weights and bytes of a block, decoder, what sets scales, bytes of codes.
FORMATS = {
    "F8_E4M3": (None, 128, 132, float8(e4m3), put_float8(0x7F)),
    "F8_E5M2": (None, 128, 132, float8(e5m2), put_float8(0x7C)),
    "NVFP4": (40, 64, 36, nvfp4, put_nvfp4),
    "IQ2_XXS": (16, 256, 66, iq2_xxs, put_f16(0)),
    "IQ2_XS": (17, 256, 74, iq2_xs, put_f16(0)),
    "IQ2_S": (22, 256, 82, iq2_s, put_f16(0)),
    "IQ3_XXS": (18, 256, 98, iq3_xxs, put_f16(0)),
    "IQ3_S": (21, 256, 110, iq3_s, put_f16(0)),
    "IQ1_S": (19, 256, 50, iq1_s, put_f16(0)),
    "IQ1_M": (29, 256, 56, iq1_m, put_iq1_m),
}


def blocks(size, elems, put, rng):
    rows = []
    for kinds in KINDS:
        for kind in kinds:
            for k in range(COLS // 2 // elems):
                b = bytearray(rng.integers(0, 256, size, dtype=np.uint8).tobytes())
                if kind == "large":
                    b = bytearray(int(c) for c in rng.choice([0, 255], size))
                put(b, kind, k, rng)
                rows.append(bytes(size) if kind == "zero" and k == 0 else bytes(b))
    return np.frombuffer(b"".join(rows), np.uint8).reshape(ROWS, -1)


def by_ggml(library, name, raw):
    out = np.empty(ROWS * COLS, np.float32)
    run = getattr(library, "dequantize_row_" + name.lower())
    run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    run(raw.ctypes.data, out.ctypes.data, out.size)
    return out.reshape(ROWS, COLS)


def same(name, who, a, b):
    if not np.array_equal((a + 0).view(np.uint32), (b + 0).view(np.uint32)):
        raise SystemExit(f"{name}: {who} disagrees at {np.argwhere((a + 0).view(np.uint32) != (b + 0).view(np.uint32))[0]}")


def vectors(library):
    for name, (kind, elems, size, decode, put) in FORMATS.items():
        rng = np.random.default_rng([20261126, zlib.crc32(name.encode())])
        raw = blocks(size, elems, put, rng)
        w = np.array([decode([int(c) for c in b]) for b in raw.reshape(-1, size)], np.float64).astype(np.float32).reshape(ROWS, COLS)
        assert np.isfinite(w).all(), name
        if kind is not None:
            same(name, "gguf", w, quants.dequantize(raw.copy(), Type(kind)).reshape(ROWS, COLS))
        if kind is not None and library:
            same(name, "ggml", w, by_ggml(library, name, raw.copy()))
        x = rng.standard_normal(COLS)
        m, e = np.frexp(x)
        x = np.ldexp(np.round(m * 256) / 256, e).astype("<f4")
        terms = [[float(a) * float(b) for a, b in zip(row, x)] for row in w]
        for ending, data in {
            "q": raw, "f32": w.astype("<f4"), "x.f32": x, "y.f64": np.array([math.fsum(t) for t in terms], "<f8"),
            "yabs.f64": np.array([math.fsum(map(abs, t)) for t in terms], "<f8"),
        }.items():
            (HERE / "vectors" / f"{name}.{ending}").write_bytes(data.tobytes())
        print(name, "by gguf" if kind is not None else "", "and ggml" if kind is not None and library else "")


def codes(name, levels, bits):
    order = {v: i for i, v in enumerate(levels)}
    return [sum(order[int(v)] << bits * j for j, v in enumerate(row)) for row in grid(name)]


def tables():
    parts = [
        ("IQ3", "Four of eight levels, three bits each: the grid of IQ3_XXS, then that of IQ3_S.",
         codes("IQ3_XXS", [4, 12, 20, 28, 36, 44, 52, 62], 3) + codes("IQ3_S", range(1, 16, 2), 3)),
        ("IQ2", "Eight of three levels, two bits each: the grids of IQ2_XXS, IQ2_XS and IQ2_S.",
         sum((codes(n, [8, 25, 43], 2) for n in ("IQ2_XXS", "IQ2_XS", "IQ2_S")), [])),
        ("IQ1", "Eight of three levels, two bits each: the grid of IQ1_S and IQ1_M.", codes("IQ1_S", [-1, 0, 1], 2)),
    ]
    text = ["//! The grids of the IQ formats as llama.cpp publishes them (ggml-common.h, and gguf/quants.py): which levels stand at a place, the",
            "//! first lowest. `tests/make_vectors.py` writes this file from the package `gguf`.", ""]
    for name, what, all_codes in parts:
        text += [f"/// {what}", "#[rustfmt::skip]", f"pub const {name}: [u16; {len(all_codes)}] = ["]
        text += ["    " + " ".join(f"{c:#06x}," for c in all_codes[i:i + 16]) for i in range(0, len(all_codes), 16)]
        text += ["];", ""]
    (HERE.parent / "src/format/grid/tables.rs").write_text("\n".join(text).rstrip("\n") + "\n")


if __name__ == "__main__":
    (HERE.parent / "src/format/grid").mkdir(exist_ok=True)
    tables()
    vectors(ctypes.CDLL(sys.argv[1]) if len(sys.argv) > 1 else None)
