"""numba-cuda: vectors, a reduction in shared memory, atomics, warp shuffles, streams and events, two dimensions, the barrier of a
grid (linked with libcudadevrt.a), functions of CUDA C++."""

import math

import numpy as np
from numba import cuda, float32, int32


@cuda.jit
def add(a, b, c):
    i = cuda.grid(1)
    if i < c.size:
        c[i] = a[i] + b[i]


@cuda.jit
def block_sums(x, sums):
    tile = cuda.shared.array(128, int32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    tile[t] = x[i] if i < x.size else 0
    step = 64
    while step > 0:
        cuda.syncthreads()
        if t < step:
            tile[t] += tile[t + step]
        step //= 2
    if t == 0:
        sums[cuda.blockIdx.x] = tile[0]


@cuda.jit
def histogram(x, bins):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(bins, x[i], 1)


@cuda.jit
def extremes(x, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.max(out, 0, x[i])
        cuda.atomic.min(out, 1, x[i])


@cuda.jit
def warp_sums(x, out):
    value = x[cuda.grid(1)]
    for offset in (16, 8, 4, 2, 1):
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, offset)
    if cuda.laneid == 0:
        out[cuda.grid(1) // 32] = value


@cuda.jit
def matmul(a, b, c):
    ta = cuda.shared.array((16, 16), float32)
    tb = cuda.shared.array((16, 16), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for k in range(a.shape[1] // 16):
        ta[ty, tx] = a[y, k * 16 + tx]
        tb[ty, tx] = b[k * 16 + ty, x]
        cuda.syncthreads()
        for j in range(16):
            total += ta[ty, j] * tb[j, tx]
        cuda.syncthreads()
    c[y, x] = total


@cuda.jit
def roots(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = math.sqrt(x[i])


@cuda.jit
def turn(x, rounds):
    """Every number moves on by one place in each round; all blocks wait between reading and writing."""
    i = cuda.grid(1)
    grid = cuda.cg.this_grid()
    for _ in range(rounds):
        value = x[(i + 1) % x.size]
        grid.sync()
        x[i] = value
        grid.sync()


# numba declares functions that return nothing as if they returned 64 bits.
source = cuda.CUSource('extern "C" __device__ void positive(int value) { if (value <= 0) __trap(); }')
positive = cuda.declare_device("positive", "void(int32)", link=source, abi="c")


@cuda.jit
def doubles(x):
    i = cuda.grid(1)
    if i < x.size:
        positive(x[i])
        x[i] *= 2


rng = np.random.default_rng(7)

a, b = rng.random(1000, dtype=np.float32), rng.random(1000, dtype=np.float32)
c = cuda.device_array(1000, np.float32)
add[8, 128](cuda.to_device(a), cuda.to_device(b), c)
assert np.array_equal(c.copy_to_host(), a + b)
# Arrays of the host are copied there and back.
c = np.zeros_like(a)
add[8, 128](a, b, c)
assert np.array_equal(c, a + b)

x = rng.integers(-1000, 1000, 1000, dtype=np.int32)
sums = cuda.device_array(8, np.int32)
block_sums[8, 128](cuda.to_device(x), sums)
padded = np.concatenate([x, np.zeros(24, np.int32)])
assert np.array_equal(sums.copy_to_host(), padded.reshape(8, 128).sum(1))

bins = cuda.to_device(np.zeros(16, np.int32))
values = rng.integers(0, 16, 2000, dtype=np.int32)
histogram[16, 128](cuda.to_device(values), bins)
assert np.array_equal(bins.copy_to_host(), np.bincount(values, minlength=16))

out = cuda.to_device(np.array([-(10**9), 10**9], np.int32))
extremes[8, 128](cuda.to_device(x), out)
assert out.copy_to_host().tolist() == [x.max(), x.min()]

y = rng.integers(0, 100, 256, dtype=np.int32)
out = cuda.device_array(8, np.int32)
warp_sums[2, 128](cuda.to_device(y), out)
assert np.array_equal(out.copy_to_host(), y.reshape(8, 32).sum(1))

# Small integers: float sums of any order are exact.
m, k = rng.integers(-8, 8, (32, 48)).astype(np.float32), rng.integers(-8, 8, (48, 64)).astype(np.float32)
product = cuda.device_array((32, 64), np.float32)
matmul[(4, 2), (16, 16)](cuda.to_device(m), cuda.to_device(k), product)
assert np.array_equal(product.copy_to_host(), m @ k)

stream = cuda.stream()
start, end = cuda.event(), cuda.event()
with cuda.pinned(a):
    start.record(stream)
    d = cuda.to_device(a.astype(np.float64), stream=stream)
    roots[8, 128, stream](d)
    back = d.copy_to_host(stream=stream)
    end.record(stream)
    stream.synchronize()
assert np.array_equal(back, np.sqrt(a.astype(np.float64)))
assert cuda.event_elapsed_time(start, end) > 0

managed = cuda.managed_array(4, np.float64)
managed[:] = [1, 4, 9, 16]
roots[1, 32](managed)
cuda.synchronize()
assert managed.tolist() == [1, 2, 3, 4]
places = np.arange(6 * 64, dtype=np.int32)
moved = cuda.to_device(places)
turn[6, 64](moved, 5)
assert np.array_equal(moved.copy_to_host(), np.roll(places, -5))

doubled = cuda.to_device(places + 1)
doubles[6, 64](doubled)
assert np.array_equal(doubled.copy_to_host(), 2 * (places + 1))
print("ok: numba-cuda")
