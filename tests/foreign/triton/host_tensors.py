"""Runs Triton's tutorials on the software driver through Triton's own compiler and launcher.

PyTorch has no CUDA device here: its CUDA runtime asks for tables that are private to NVIDIA's driver. So tensors stay on the
host, and their memory is registered with the driver (`cuMemHostRegister`) while a kernel runs, as a CUDA program does with
memory of its own that kernels are to reach. Everything between `kernel[grid](...)` and the result is Triton's.

    python host_tensors.py FOLDER 01-vector-add 06-fused-attention ...

What a tutorial asserts decides whether it is right. Benchmarks are left out, and tuning takes the first configuration.
"""

import ctypes
import importlib.util
import itertools
import os
import pathlib
import sys
import time

import torch
import triton
from triton.backends.nvidia import driver as backend

# In a process without PyTorch, Triton asks the driver for devices and streams; only while it looks, there is none here.
hidden = sys.modules.pop("torch")
if not backend.CudaDriver.is_active():
    sys.exit("no CUDA driver")
active = backend.CudaDriver()
sys.modules["torch"] = hidden
triton.runtime.driver.set_active(active)

CUDA = ctypes.CDLL(os.path.join(os.environ["TRITON_LIBCUDA_PATH"], "libcuda.so.1"))
CUDA.cuMemHostRegister_v2.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint]
CUDA.cuMemHostUnregister.argtypes = [ctypes.c_void_p]
LAUNCHES = []


def check(code, call):
    if code:
        raise RuntimeError(f"{call}: {code}")


def bases(arguments):
    """The tensors among the arguments of a launch, those of descriptors included."""
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            yield argument
        elif isinstance(getattr(argument, "base", None), torch.Tensor):
            yield argument.base
        elif isinstance(argument, (tuple, list)):
            yield from bases(argument)


class Launcher(backend.CudaLauncher):
    def __call__(self, x, y, z, stream, function, *arguments):
        ranges = {}
        for tensor in itertools.chain(bases(arguments), SCRATCH):
            memory = tensor.untyped_storage()
            ranges[memory.data_ptr()] = memory.nbytes()
        ranges = {address: size for address, size in ranges.items() if size}
        for address, size in ranges.items():
            check(CUDA.cuMemHostRegister_v2(address, size, 0), "cuMemHostRegister")
        try:
            super().__call__(x, y, z, stream, function, *arguments)
            check(CUDA.cuCtxSynchronize(), "cuCtxSynchronize")
            LAUNCHES.append((x, y, z))
        finally:
            for address in ranges:
                check(CUDA.cuMemHostUnregister(address), "cuMemHostUnregister")
            SCRATCH.clear()


# Memory that a kernel asks for; Triton allocates it in the launch itself, before this knows of it.
SCRATCH = []


def scratch(size, alignment, stream):
    memory = torch.empty(size + alignment, dtype=torch.int8)
    SCRATCH.append(memory)
    address = memory.data_ptr()
    check(CUDA.cuMemHostRegister_v2(address, memory.numel(), 0), "cuMemHostRegister")
    KEPT.append(memory)
    SCRATCH.clear()
    return memory[-address % alignment:]


KEPT = []


class Benchmarks:
    """In the place of `triton.testing.perf_report`: nothing is measured."""

    def __init__(self, _):
        pass

    def __call__(self, _):
        return self

    def run(self, **_):
        pass


def autotune(configs, key, **options):
    return ORIGINAL_AUTOTUNE(configs[:1], key, **{k: v for k, v in options.items() if k != "prune_configs_by"})


def layer_norm(x, shape, weight, bias, eps):
    """The reference in f32: PyTorch on a CPU adds gradients of f16 in f16, and is then 0.07 off where the tutorial allows 0.01."""
    return ORIGINAL_LAYER_NORM(x.float(), shape, weight.float(), bias.float(), eps)


ORIGINAL_LAYER_NORM = torch.nn.functional.layer_norm
torch.nn.functional.layer_norm = layer_norm
ORIGINAL_AUTOTUNE = triton.autotune
triton.autotune = autotune
triton.testing.perf_report = Benchmarks
triton.set_allocator(scratch)
TAKE_ALLOCATOR = triton.set_allocator
triton.set_allocator = lambda _: TAKE_ALLOCATOR(scratch)
active.launcher_cls = Launcher
active.get_active_torch_device = lambda: torch.device("cpu")
torch.cuda.get_device_capability = lambda *_: active.get_device_capability(0)
properties = active.utils.get_device_properties
active.utils.get_device_properties = lambda index: properties(index or 0)


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem.replace("-", "_"), path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def vector_add(module):
    assert torch.equal(module.output_triton, module.output_torch)


def matmul(module):
    """The tutorial only prints whether they match; with 8-bit floats it leaves its last result."""
    a, b = (torch.rand((512, 512), dtype=torch.float16) - 0.5 for _ in range(2))
    for activation, reference in (("", lambda x: x), ("leaky_relu", lambda x: torch.where(x >= 0, x, 0.01 * x))):
        got = module.matmul(a, b, activation=activation)
        torch.testing.assert_close(got, reference(a.float() @ b.float()).half(), atol=1e-2, rtol=0)


def dropout(module):
    x, p = torch.randn(3000), 0.25
    keep = (torch.rand(3000) > p).to(torch.int32)
    assert torch.equal(module.dropout(x, keep, p), torch.where(keep.bool(), x / (1 - p), 0.0))
    one, same, other = (module.seeded_dropout(x, p, seed) for seed in (123, 123, 512))
    assert torch.equal(one, same) and not torch.equal(one, other)
    for y in (one, other):
        kept = y != 0
        assert torch.equal(y, torch.where(kept, x / (1 - p), 0.0)) and abs(kept.float().mean() - (1 - p)) < 0.05


def attention(module):
    """Its test, in shapes that an interpreter gets through: forwards and backwards in one, causal and not."""
    for causal in (False, True):
        module.test_op(1, 2, 128, 64, causal, False, "bwd", "triton-fp16")


# Checks of tutorials that print what they computed, or that leave them to a test runner.
TESTS = {
    "01-vector-add": vector_add,
    "03-matrix-multiplication": matmul,
    "04-low-memory-dropout": dropout,
    "06-fused-attention": attention,
}


def main(folder, *names):
    wrong = 0
    for name in names:
        start, before = time.monotonic(), len(LAUNCHES)
        try:
            module = load(pathlib.Path(folder) / f"{name}.py")
            TESTS.get(name, lambda _: None)(module)
            assert len(LAUNCHES) > before, "no kernel ran"
            print(f"ok: {name}: {len(LAUNCHES) - before} launches", flush=True)
        except Exception as error:  # one tutorial's failure is not the next one's
            wrong += 1
            print(f"FAILED: {name}: {type(error).__name__}: {str(error)[:2000]}", flush=True)
        print(f"{name}: {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
