"""tinygrad's kernels, as its PTX renderer writes them, on the driver: each operation against NumPy."""
import sys

import numpy as np
from tinygrad import Tensor, dtypes

rng = np.random.default_rng(1)
a, b = rng.standard_normal((32, 48), np.float32), rng.standard_normal((48, 24), np.float32)
c = rng.integers(-1000, 1000, (64, 33)).astype(np.int32)
image, kernel = rng.standard_normal((2, 3, 12, 12), np.float32), rng.standard_normal((4, 3, 3, 3), np.float32)


def t(x):
    return Tensor(x)


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def convolved(x, k):
    out = np.zeros((2, 4, 10, 10), np.float32)
    for i in range(3):
        for j in range(3):
            out += np.einsum("nchw,oc->nohw", x[:, :, i : i + 10, j : j + 10], k[:, :, i, j])
    return out


def gradient():
    x = t(a)
    return x.matmul(t(b)).relu().sum().gradient(x)[0]


OPERATIONS = {
    "add": (lambda: t(a) + 1.5, lambda: a + 1.5),
    "matmul": (lambda: t(a).matmul(t(b)), lambda: a @ b),
    "sum": (lambda: t(a).sum(1), lambda: a.sum(1)),
    "max": (lambda: t(c).max(0), lambda: c.max(0)),
    "softmax": (lambda: t(a).softmax(1), lambda: softmax(a)),
    "convolution": (lambda: t(image).conv2d(t(kernel)), lambda: convolved(image, kernel)),
    "gradient": (gradient, lambda: (a @ b > 0).astype(np.float32) @ b.T),
    "argmax": (lambda: t(a).argmax(1), lambda: a.argmax(1)),
    "cumsum": (lambda: t(c).cumsum(1), lambda: c.cumsum(1)),
    "sort": (lambda: t(c[0]).sort()[0], lambda: np.sort(c[0])),
    "gather": (lambda: t(c)[:, Tensor([5, 0, 32])], lambda: c[:, [5, 0, 32]]),
    "integers": (lambda: (t(c) * 7 % 13) // 2 ^ t(c) & 255, lambda: (c * 7 % 13) // 2 ^ c & 255),
    "halves": (lambda: (t(a).cast(dtypes.half).matmul(t(b).cast(dtypes.half))).float(), lambda: a @ b),
    "exponentials": (lambda: t(a).exp() + t(a).sin() * t(a).sigmoid() + t(np.abs(a)).log(), lambda: np.exp(a) + np.sin(a) / (1 + np.exp(-a)) + np.log(np.abs(a))),
    "doubles": (lambda: (t(a).double() * 3).sum(), lambda: (a.astype(np.float64) * 3).sum()),
    "random": (lambda: Tensor.rand(1000).max() < 1, lambda: np.array(True)),
}

failed = 0
for name, (run, wanted) in OPERATIONS.items():
    try:
        found, expected = run().numpy(), wanted()
        bound = {"rtol": 2e-2, "atol": 5e-2} if name == "halves" else {"rtol": 1e-4, "atol": 1e-5}
        np.testing.assert_allclose(found, expected, **bound)
        print('ok', name)
    except Exception as e:
        failed += 1
        print(f"{name}: {type(e).__name__}: {str(e)[:1500]}")
print(f"{len(OPERATIONS) - failed} of {len(OPERATIONS)} operations")
sys.exit(failed != 0)
