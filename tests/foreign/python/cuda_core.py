"""cuda.core: a program compiled and linked through the driver, a launch, a stream, an event."""

import numpy as np
from cuda.core import Device, EventOptions, LaunchConfig, Linker, LinkerOptions, Program, ProgramOptions, launch

device = Device()
device.set_current()
stream = device.create_stream()
arch = f"sm_{device.arch}"

text = r"""
template <typename T> __global__ void axpy(T a, const T *x, T *y, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""
program = Program(text, code_type="c++", options=ProgramOptions(std="c++17", arch=f"compute_{device.arch}"))
compiled = program.compile("ptx", name_expressions=("axpy<int>",))
kernel = compiled.get_kernel("axpy<int>")
n = 3000
x, y = np.arange(n, dtype=np.int32), np.ones(n, dtype=np.int32)
dx, dy = device.allocate(x.nbytes, stream=stream), device.allocate(y.nbytes, stream=stream)


def to_device(buffer, array):
    from cuda.bindings import driver

    (code,) = driver.cuMemcpyHtoDAsync(int(buffer.handle), array.ctypes.data, array.nbytes, int(stream.handle))
    assert int(code) == 0, code


def to_host(array, buffer):
    from cuda.bindings import driver

    (code,) = driver.cuMemcpyDtoHAsync(array.ctypes.data, int(buffer.handle), array.nbytes, int(stream.handle))
    assert int(code) == 0, code


to_device(dx, x)
to_device(dy, y)
before = stream.record(options=EventOptions(timing_enabled=True))
launch(stream, LaunchConfig(grid=(n + 255) // 256, block=256), kernel, np.int32(3), dx, dy, np.uint64(n))
after = stream.record(options=EventOptions(timing_enabled=True))
out = np.zeros_like(y)
to_host(out, dy)
stream.sync()
assert np.array_equal(out, 3 * x + 1)
assert after - before > 0

# Two pieces of PTX, linked: one calls what the other has.
caller = Program(
    'extern __device__ int twice(int); extern "C" __global__ void run(int *p) { p[threadIdx.x] = twice(p[threadIdx.x]); }',
    code_type="c++",
    options=ProgramOptions(arch=f"compute_{device.arch}", relocatable_device_code=True),
).compile("ptx")
callee = Program(
    "__device__ int twice(int x) { return 2 * x; }",
    code_type="c++",
    options=ProgramOptions(arch=f"compute_{device.arch}", relocatable_device_code=True),
).compile("ptx")
linked = Linker(caller, callee, options=LinkerOptions(arch=arch)).link("cubin")
run = linked.get_kernel("run")
to_device(dy, out)
launch(stream, LaunchConfig(grid=1, block=64), run, dy)
again = np.zeros_like(out)
to_host(again, dy)
stream.sync()
assert np.array_equal(again[:64], 2 * out[:64]) and np.array_equal(again[64:], out[64:])
dx.close(stream)
dy.close(stream)
print("ok: cuda.core", arch)
