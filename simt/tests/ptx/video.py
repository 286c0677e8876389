"""Writes video.tsv: video instructions and what they give, by the pseudocode of the PTX ISA (sections "Scalar Video
Instructions" and "SIMD Video Instructions"), done on Python's integers.

    python3 video.py > video.tsv
"""

import random

random.seed(90)
BITS = {"b": 8, "h": 16}


def sext(value, bits):
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def part_select_sign_extend(word, kind, selector):
    if selector is None:
        bits, at = 32, 0
    else:
        bits = BITS[selector[0]]
        at = bits * int(selector[1])
    value = word >> at & (1 << bits) - 1
    return sext(value, bits) if kind == "s32" else value


def clamp(value, bits, signed):
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return max(low, min(high, value))


COMPARE = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def scalar(op, words, selectors, a, b, c):
    dsel, asel, bsel = selectors
    types = [w for w in words if w in ("s32", "u32")]
    if op == "vset":
        dtype, (atype, btype) = "u32", types
    else:
        dtype, atype, btype = types
    ta, tb = part_select_sign_extend(a, atype, asel), part_select_sign_extend(b, btype, bsel)
    if op == "vadd":
        tmp = ta + tb
    elif op == "vsub":
        tmp = ta - tb
    elif op == "vabsdiff":
        tmp = abs(ta - tb)
    elif op == "vmin":
        tmp = min(ta, tb)
    elif op == "vmax":
        tmp = max(ta, tb)
    elif op == "vset":
        tmp = int(COMPARE[[w for w in words if w in COMPARE][0]](ta, tb))
    else:
        tb = tb & 0x1F if "wrap" in words else min(tb, 32)
        tmp = ta << tb if op == "vshl" else ta >> tb
    if "sat" in words:
        bits = 32 if dsel is None else BITS[dsel[0]]
        tmp = clamp(tmp, bits, dtype == "s32")
    tmp = sext(tmp, 33)
    if dsel is not None:
        bits = BITS[dsel[0]]
        mask = (1 << bits) - 1 << bits * int(dsel[1])
        return c & ~mask | tmp << bits * int(dsel[1]) & mask
    c = sext(c, 32) if dtype == "s32" else c
    if "add" in words:
        tmp += c
    elif "min" in words:
        tmp = min(tmp, c)
    elif "max" in words:
        tmp = max(tmp, c)
    return tmp & 0xFFFFFFFF


def vmad(words, selectors, negate, a, b, c):
    _, asel, bsel = selectors
    _, atype, btype = [w for w in words if w in ("s32", "u32")]
    ta, tb = part_select_sign_extend(a, atype, asel), part_select_sign_extend(b, btype, bsel)
    na, nb, nc = negate
    signed = atype == "s32" or btype == "s32" or na != nb or nc
    tmp, lsb = ta * tb, 0
    if "po" in words:
        lsb = 1
    elif na != nb:
        tmp, lsb = ~tmp, 1
    elif nc:
        c, lsb = ~c & 0xFFFFFFFF, 1
    tmp += (sext(c, 32) if signed else c) + lsb
    tmp >>= 7 if "shr7" in words else 15 if "shr15" in words else 0
    tmp = sext(tmp, 64) if signed else tmp & (1 << 64) - 1
    if "sat" in words:
        tmp = clamp(tmp, 32, signed)
    return tmp & 0xFFFFFFFF


def simd(op, words, selectors, a, b, c):
    n, width = (2, 16) if op.endswith("2") else (4, 8)
    name = op[:-1]
    types = [w for w in words if w in ("s32", "u32")]
    if name == "vset":
        dtype, (atype, btype) = "u32", types
    else:
        dtype, atype, btype = types
    mask, asel, bsel = selectors
    mask = mask or ("h10" if n == 2 else "b3210")
    asel = asel or ("h10" if n == 2 else "b3210")
    bsel = bsel or ("h32" if n == 2 else "b7654")
    parts = [(b << 32 | a) >> width * i & (1 << width) - 1 for i in range(2 * n)]

    def extract(selector, kind):
        values = [parts[int(digit)] for digit in reversed(selector[1:])]
        return [sext(v, width) if kind == "s32" else v for v in values]

    t = []
    for x, y in zip(extract(asel, atype), extract(bsel, btype)):
        if name == "vadd":
            r = x + y
        elif name == "vsub":
            r = x - y
        elif name == "vavrg":
            r = x + y + 1 >> 1 if x + y >= 0 else x + y >> 1
        elif name == "vabsdiff":
            r = abs(x - y)
        elif name == "vmin":
            r = min(x, y)
        elif name == "vmax":
            r = max(x, y)
        else:
            r = int(COMPARE[[w for w in words if w in COMPARE][0]](x, y))
        t.append(clamp(r, width, dtype == "s32") if "sat" in words else r)
    d = c
    for i in range(n):
        if str(i) not in mask[1:]:
            continue
        if "add" in words:
            d += t[i]
        else:
            ones = (1 << width) - 1 << width * i
            d = d & ~ones | t[i] << width * i & ones
    return d & 0xFFFFFFFF


EDGES = [0, 1, 7, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x80FF7F01]


def word():
    return random.choice(EDGES) if random.random() < 0.4 else random.getrandbits(32)


def triples():
    return [(word(), word(), word()) for _ in range(8)]


def row(form, values, f):
    cells = (f"{a:08x} {b:08x} {c:08x} {f(a, b, c):08x}" for a, b, c in values)
    print(form, *cells, sep="\t")


def pick(options):
    return random.choice(options)


def dot(name, selector):
    return name if selector is None else f"{name}.{selector}"


PARTS = [None, "b0", "b1", "b2", "b3", "h0", "h1"]
SIGNS = ["s32", "u32"]
for op in ["vadd", "vsub", "vabsdiff", "vmin", "vmax", "vset", "vshl", "vshr"]:
    for second in ["", "add", "min", "max", "merge", "", "add", "merge"]:
        words = [pick(SIGNS), pick(SIGNS)] if op != "vset" else [pick(SIGNS)]
        words.append("u32" if op in ("vshl", "vshr") else pick(SIGNS))
        if op == "vset":
            words.append(pick(list(COMPARE)))
        elif random.random() < 0.6:
            words.append("sat")
        if op in ("vshl", "vshr"):
            words.append(pick(["clamp", "wrap"]))
        if second and second != "merge":
            words.append(second)
        selectors = (pick(PARTS[1:]) if second == "merge" else None, pick(PARTS), pick(PARTS))
        form = f"{op}.{'.'.join(words)} {dot('%d', selectors[0])}, {dot('%a', selectors[1])}, {dot('%b', selectors[2])}"
        form += ", %c;" if second else ";"
        values = triples()
        if op in ("vshl", "vshr"):
            values = [(a, pick([b, random.randrange(0, 40), 32, 33]), c) for a, b, c in values]
        row(form, values, lambda a, b, c: scalar(op, words, selectors, a, b, c))
for scale in ["", "shr7", "shr15"]:
    for negate in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0), (0, 0, 1), "po", (0, 0, 0)]:
        words = [pick(SIGNS), pick(SIGNS), pick(SIGNS)]
        if negate == "po":
            words, negate = words + ["po"], (0, 0, 0)
        words += [pick(["sat", "sat", ""]), scale]
        words = [w for w in words if w]
        selectors = (None, pick(PARTS), pick(PARTS))
        a, b, c = ("-" * n + name for n, name in zip(negate, ["%a", "%b", "%c"]))
        form = f"vmad.{'.'.join(words)} %d, {dot(a, selectors[1])}, {dot(b, selectors[2])}, {c};"
        flags = [bool(n) for n in negate]
        row(form, triples(), lambda a, b, c: vmad(words, selectors, flags, a, b, c))
HALVES, BYTES = "0123", "01234567"
for n in "24":
    for op in ["vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax", "vset"]:
        for add in [False, True, False]:
            words = [pick(SIGNS), pick(SIGNS)] + ([pick(SIGNS)] if op != "vset" else [])
            if op == "vset":
                words.append(pick(list(COMPARE)))
            elif not add and random.random() < 0.6:
                words.append("sat")
            words += ["add"] if add else []
            if n == "2":
                mask = pick([None, "h0", "h1", "h10"])
                some = lambda: pick([None, "h" + pick(HALVES) + pick(HALVES)])
            else:
                mask = "b" + "".join(d for d in "3210" if random.random() < 0.6)
                mask = mask if len(mask) > 1 else None
                some = lambda: pick([None, "b" + "".join(pick(BYTES) for _ in range(4))])
            selectors = (mask, some(), some())
            form = f"{op}{n}.{'.'.join(words)} {dot('%d', mask)}, {dot('%a', selectors[1])}, {dot('%b', selectors[2])}, %c;"
            row(form, triples(), lambda a, b, c: simd(op + n, words, selectors, a, b, c))
