"""For `warpsmith check`: a kernel that leaves its array if called with `defect`. The report names the line."""

import sys

import numpy as np
from numba import cuda


@cuda.jit(lineinfo=True)
def scale(x, n):
    i = cuda.grid(1)
    if i < n:
        x[i] *= 2  # planted: threads 100 to 127


n = 128 if "defect" in sys.argv else 100
x = cuda.to_device(np.arange(100, dtype=np.float32))
scale[1, 128](x, n)
assert np.array_equal(x.copy_to_host(), 2 * np.arange(100, dtype=np.float32))
print("ok: checked")
