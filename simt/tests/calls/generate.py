#!/usr/bin/env python3
"""Random programs of calls that diverge: virtual functions, recursion, function pointers, structures by value.

Each seed gives one program in the common part of C++ and CUDA. g++ runs it for 64 threads, which is what is expected;
nvcc makes PTX of it, with and without optimisation.

    generate.py NVCC                  writes calls_SEED_LEVEL.ptx of the seeds below into this folder
    generate.py NVCC --try LIB FROM TO [DICE]
                                      compiles the seeds FROM..TO and runs them on the libcuda.so.1 LIB, under the reference
                                      schedule and, with DICE, under that many shuffled ones (WARPSMITH_SEED)

The first lines of a file are comments: where it is from, and the 64 results. `tests/calls.rs` runs the files.
"""
import os
import random
import re
import subprocess
import sys
import tempfile

# The seeds whose programs are kept.
KEPT = [1, 2, 3, 4]
THREADS = 64
LEVELS = {"O0": ["-Xcicc", "-O0"], "O3": []}

HEAD = """\
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
#ifdef __CUDACC__
#define DEV __device__ __noinline__
#define MEMBER __device__
#else
#define DEV __attribute__((noinline))
#define MEMBER
#include <cstdio>
#endif
MEMBER inline u64 mix(u64 z) { z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull; z = (z ^ (z >> 27)) * 0x94d049bb133111ebull; return z ^ (z >> 31); }
struct Pair { u32 a; u64 b; u16 c; };
struct Wide { u64 v[3]; u32 w; };
struct Base { u64 k; u32 n; MEMBER Base(u64 k, u32 n) : k(k), n(n) {} MEMBER virtual u64 go(u32 d, u64 x) = 0; MEMBER virtual u32 less(u32 x) { return x * 3 + n; } };
typedef u64 (*Fn)(u32, u64);
"""

TAIL = """\
#ifdef __CUDACC__
extern "C" __global__ void k(u64 *out) { out[threadIdx.x] = top(threadIdx.x); }
#else
int main() { for (u32 t = 0; t < %d; t++) printf("%%016llx\\n", top(t)); }
#endif
""" % THREADS


class Program:
    """The text of one program: functions, classes that call them, and `top`."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.functions = self.r.randint(3, 4)
        self.classes = self.r.randint(2, 3)

    def const(self, ty):
        """A literal."""
        bits = self.r.choice([3, 8, 16, 31]) if ty == "u32" else self.r.choice([5, 32, 63])
        return f"{self.r.getrandbits(bits)}{'u' if ty == 'u32' else 'ull'}"

    def expression(self, ty, names, depth=0):
        """An expression of u32 or u64 without undefined behaviour, over (type, name) pairs."""
        r = self.r
        pool = [n for t, n in names if t == ty]
        if depth > 3 or r.random() < 0.2:
            return r.choice(pool) if pool and r.random() < 0.8 else self.const(ty)
        sub = lambda t=ty: self.expression(t, names, depth + 1)
        bits = 31 if ty == "u32" else 63
        kind = r.randrange(9)
        if kind == 0:
            return f"({sub()} * ({sub()} | 1))"
        if kind == 1:
            return f"({sub()} << ({sub('u32')} & {bits}) | {sub()} >> ({sub('u32')} & {bits}))"
        if kind == 2:
            return f"({sub()} {r.choice('/%')} ({sub()} | {r.randint(1, 9)}))"
        if kind == 3:
            return f"({sub()} {r.choice(['<', '==', '>='])} {sub()} ? {sub()} : {sub()})"
        if kind == 4:
            return f"(u32)({sub('u64')} >> {r.randint(0, 32)})" if ty == "u32" else f"(u64){sub('u32')} * {sub('u32')}"
        if kind == 5:
            return f"(u{r.choice([8, 16])}){sub()}" if ty == "u32" else f"mix({sub()})"
        return f"({sub()} {r.choice('+-^&|')} {sub()})"

    def callee(self, own, names):
        """A call that gets nearer to the end: `d` falls with each."""
        r = self.r
        d, x = "d - 1", self.expression("u64", names)
        kind = r.randrange(7)
        n = r.randrange(self.functions)
        if kind == 0:
            return f"table({self.expression('u32', names)})({d}, {x})"
        if kind == 1:
            return f"made({self.expression('u32', names)}, {d}, {x})"
        if kind == 2:
            return f"pair{n}({d}, {x}).b"
        if kind == 3:
            return f"wide{n}(d, Wide{{{{{x}, {self.expression('u64', names)}, 7}}, {self.expression('u32', names)}}}).v[{r.randrange(3)}]"
        return f"f{n if r.random() < 0.7 else own}({d}, {x})"

    def statements(self, own, names, room):
        """Statements over the variables in `names`, of which `x` (u64) and `y` (u32) may be written."""
        r, out = self.r, []
        for _ in range(r.randint(1, 3)):
            kind = r.randrange(6)
            if kind == 0 and room:
                inner = self.statements(own, names, room - 1)
                other = self.statements(own, names, room - 1)
                out.append(f"if ({self.expression('u32', names)} & {r.choice([1, 2, 4, 3])}) {{ {inner} }} else {{ {other} }}")
            elif kind == 1 and room:
                i = f"i{room}"
                inner = self.statements(own, names + [("u32", i)], room - 1)
                stop = f"if ({self.expression('u64', names)} % 7 == 3) break;" if r.random() < 0.5 else ""
                out.append(f"for (u32 {i} = 0; {i} < ({self.expression('u32', names)} & 3); {i}++) {{ {inner} {stop} }}")
            elif kind == 2:
                out.append(f"y = {self.expression('u32', names)};")
            elif kind == 3 and own is not None and r.random() < 0.3:
                out.append(f"if ({self.expression('u32', names)} % 5 == 1) return {self.expression('u64', names)};")
            elif kind in (4, 5) and own is not None and r.random() < 0.6:
                out.append(f"if (d > 0) x += {self.callee(own, names)};")
            else:
                out.append(f"x = {self.expression('u64', names)};")
        return " ".join(out)

    def text(self):
        r = self.r
        names = [("u32", "d"), ("u64", "x"), ("u32", "y")]
        lines = [HEAD]
        for n in range(self.functions):
            lines.append(f"DEV u64 f{n}(u32 d, u64 x); DEV Pair pair{n}(u32 d, u64 x); DEV Wide wide{n}(u32 d, Wide w);")
        lines.append("DEV u64 made(u32 which, u32 d, u64 x); DEV Fn table(u32 which);")
        for n in range(self.functions):
            body = self.statements(n, names, 2)
            lines.append(f"DEV u64 f{n}(u32 d, u64 x) {{ u32 y = (u32)x ^ {self.const('u32')}; {body} if (d == 0) return x ^ y; return x + {self.callee(n, names)}; }}")
            body = self.statements(None, names, 1)
            lines.append(f"DEV Pair pair{n}(u32 d, u64 x) {{ u32 y = d * 77u; {body} Pair p; p.a = y; p.b = x + (d > 0 ? f{r.randrange(self.functions)}(d - 1, x ^ y) : y); p.c = (u16)x; return p; }}")
            lines.append(f"DEV Wide wide{n}(u32 d, Wide w) {{ u64 x = w.v[{r.randrange(3)}]; u32 y = w.w; {self.statements(None, names, 1)} w.v[{r.randrange(3)}] ^= x; w.w += y; if (d > 1) w.v[1] += pair{r.randrange(self.functions)}(d - 2, x).b; return w; }}")
        for n in range(self.classes):
            base = f"C{r.randrange(n)}" if n and r.random() < 0.5 else "Base"
            less = f" MEMBER u32 less(u32 x) {{ return x ^ n * {r.randint(2, 99)}u; }}" if r.random() < 0.6 else ""
            go = f"u32 y = less((u32)x); {self.statements(n % self.functions, names, 1)} return x + y * k;"
            lines.append(f"struct C{n} : {base} {{ MEMBER C{n}(u64 k, u32 n) : {base}(k + {n}, n) {{}} MEMBER u64 go(u32 d, u64 x) {{ {go} }}{less} }};")
        picks = " ".join(f"case {n}: b = &c{n}; break;" for n in range(1, self.classes))
        objects = " ".join(f"C{n} c{n}(x >> {n}, d + {n});" for n in range(self.classes))
        lines.append(f"DEV u64 made(u32 which, u32 d, u64 x) {{ {objects} Base *b = &c0; switch (which % {self.classes}) {{ {picks} default: break; }} return b->go(d, x) + b->less(which); }}")
        picks = " ".join(f"case {n}: return f{n};" for n in range(1, self.functions))
        lines.append(f"DEV Fn table(u32 which) {{ switch (which % {self.functions}) {{ {picks} default: return f0; }} }}")
        depth = r.randint(3, 5)
        lines.append(f"DEV u64 top(u32 t) {{ u64 x = mix(t * 0x9e3779b97f4a7c15ull + {self.const('u64')}); u64 s = 0; "
                     f"for (u32 i = 0; i < 1 + (t & 1); i++) {{ u32 d = {depth} + (x >> 60 & 1); "
                     f"if (x & 1) s ^= made((u32)(x >> 5), d, x); else if (x & 2) s += table((u32)(x >> 7))(d, x); else s -= f{r.randrange(self.functions)}(d, x); x = mix(x + i); }} return s; }}")
        lines.append(TAIL)
        return "\n".join(lines)


def compiled(nvcc, seed, folder):
    """The expected results, and the PTX by level; None if the program takes too long."""
    source = os.path.join(folder, "p.cu")
    with open(source, "w") as f:
        f.write(Program(seed).text())
    binary = os.path.join(folder, "p")
    subprocess.run(["g++", "-x", "c++", "-O1", "-w", "-o", binary, source], check=True)
    try:
        out = subprocess.run([binary], check=True, capture_output=True, text=True, timeout=0.2).stdout.split()
    except subprocess.TimeoutExpired:
        return None
    texts = {}
    for level, options in LEVELS.items():
        ptx = os.path.join(folder, f"{level}.ptx")
        subprocess.run([nvcc, "-ptx", "-w", "-arch=sm_80", *options, "-o", ptx, source], check=True)
        with open(ptx) as f:
            texts[level] = f.read()
    return out, texts


def keep(nvcc):
    here = os.path.dirname(os.path.abspath(__file__))
    for seed in KEPT:
        with tempfile.TemporaryDirectory() as folder:
            made = compiled(nvcc, seed, folder)
        if made is None:
            continue
        for level, text in made[1].items():
            text = re.sub(r"(?m)^//.*\n", "", text).lstrip("\n")
            with open(os.path.join(here, f"calls_{seed}_{level}.ptx"), "w") as f:
                f.write(f"// generate.py, seed {seed}, {level}\n// {' '.join(made[0])}\n{text}")


RUN = """
import ctypes as c, sys
lib = c.CDLL(sys.argv[1]); P = c.c_void_p
def ck(r):
    if r: print('code', r); sys.exit()
ck(lib.cuInit(0)); x = P(); ck(lib.cuDevicePrimaryCtxRetain(c.byref(x), 0)); ck(lib.cuCtxSetCurrent(x))
m = P(); ck(lib.cuModuleLoadData(c.byref(m), open(sys.argv[2], 'rb').read() + b'\\0'))
f = P(); ck(lib.cuModuleGetFunction(c.byref(f), m, b'k'))
d = c.c_uint64(); n = int(sys.argv[3]); ck(lib.cuMemAlloc_v2(c.byref(d), c.c_size_t(8 * n)))
ck(lib.cuLaunchKernel(f, 1, 1, 1, n, 1, 1, 0, None, (P * 1)(c.addressof(d)), None)); ck(lib.cuCtxSynchronize())
h = (c.c_uint64 * n)(); ck(lib.cuMemcpyDtoH_v2(h, d, c.c_size_t(8 * n))); print(*('%016x' % v for v in h))
"""


def attempt(nvcc, library, first, last, dice):
    tried = wrong = long = 0
    for seed in range(first, last):
        with tempfile.TemporaryDirectory() as folder:
            made = compiled(nvcc, seed, folder)
            if made is None:
                long += 1
                continue
            for level in made[1]:
                for roll in range(dice + 1):
                    env = dict(os.environ, WARPSMITH_DRIVER="software")
                    if roll:
                        env["WARPSMITH_SEED"] = str(roll)
                    arguments = [sys.executable, "-c", RUN, library, os.path.join(folder, f"{level}.ptx"), str(THREADS)]
                    run = subprocess.run(arguments, env=env, capture_output=True, text=True)
                    tried += 1
                    got = run.stdout.split()
                    if got != made[0]:
                        wrong += 1
                        count = sum(a != b for a, b in zip(got, made[0])) if len(got) == THREADS else run.stdout.strip()
                        print(f"seed {seed} {level} schedule {roll}: {count} wrong {run.stderr[:300]}", flush=True)
    print(f"{tried} runs, {wrong} wrong, {long} programs too long")
    return wrong


if __name__ == "__main__":
    if len(sys.argv) > 2:
        _, nvcc, _, library, first, last, *dice = sys.argv
        sys.exit(attempt(nvcc, library, int(first), int(last), int(dice[0]) if dice else 0) != 0)
    keep(sys.argv[1])
