"""cuda.bindings.driver: NVRTC's PTX, launches, events, pools, graphs by hand and by capture."""

import ctypes

import numpy as np
from cuda.bindings import driver, nvrtc

SOURCE = rb"""
extern "C" __global__ void saxpy(float a, const float *x, float *y, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaf(a, x[i], y[i]);
}

extern "C" __global__ void histogram(const unsigned char *x, unsigned *bins, unsigned n) {
    __shared__ unsigned local[256];
    for (unsigned b = threadIdx.x; b < 256; b += blockDim.x) local[b] = 0;
    __syncthreads();
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&local[x[i]], 1u);
    __syncthreads();
    for (unsigned b = threadIdx.x; b < 256; b += blockDim.x) atomicAdd(&bins[b], local[b]);
}

__device__ int answers[3] = {40, 41, 42};
extern "C" __global__ void ask(int *out) { out[threadIdx.x] = answers[threadIdx.x]; }
"""


def ok(result):
    code, *rest = result
    assert int(code) == 0, code
    return rest[0] if len(rest) == 1 else tuple(rest)


def compile_ptx(capability):
    program = ok(nvrtc.nvrtcCreateProgram(SOURCE, b"kernels.cu", 0, [], []))
    ok(nvrtc.nvrtcCompileProgram(program, 1, [f"--gpu-architecture=compute_{capability}".encode()]))
    ptx = b" " * ok(nvrtc.nvrtcGetPTXSize(program))
    ok(nvrtc.nvrtcGetPTX(program, ptx))
    return ptx


ok(driver.cuInit(0))
device = ok(driver.cuDeviceGet(0))
attribute = driver.CUdevice_attribute
major = ok(driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device))
minor = ok(driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device))
name = ok(driver.cuDeviceGetName(128, device))
assert b"warpsmith software driver" in name, name
context = ok(driver.cuDevicePrimaryCtxRetain(device))
ok(driver.cuCtxSetCurrent(context))
module = ok(driver.cuModuleLoadData(compile_ptx(f"{major}{minor}")))
stream = ok(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))


def kernel(name):
    return ok(driver.cuModuleGetFunction(module, name))


def launch(function, grid, block, values, types):
    ok(driver.cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, stream, (values, types), 0))


# Vector arithmetic: every element by fma, as numpy cannot; the inputs are chosen so that rounding never happens.
n = 5000
x = np.arange(n, dtype=np.float32)
y = np.arange(n, dtype=np.float32)[::-1].copy()
dx, dy = ok(driver.cuMemAllocAsync(x.nbytes, stream)), ok(driver.cuMemAllocAsync(y.nbytes, stream))
ok(driver.cuMemcpyHtoDAsync(dx, x.ctypes.data, x.nbytes, stream))
ok(driver.cuMemcpyHtoDAsync(dy, y.ctypes.data, y.nbytes, stream))
begin, end = ok(driver.cuEventCreate(0)), ok(driver.cuEventCreate(0))
ok(driver.cuEventRecord(begin, stream))
launch(kernel(b"saxpy"), (n + 255) // 256, 256, (2.0, dx, dy, n), (ctypes.c_float, None, None, ctypes.c_size_t))
ok(driver.cuEventRecord(end, stream))
out = np.zeros_like(y)
ok(driver.cuMemcpyDtoHAsync(out.ctypes.data, dy, out.nbytes, stream))
ok(driver.cuStreamSynchronize(stream))
assert np.array_equal(out, 2 * x + y)
assert ok(driver.cuEventElapsedTime(begin, end)) > 0

# Shared memory, barriers, atomics.
data = np.random.default_rng(1).integers(0, 256, 20000, dtype=np.uint8)
d_data, d_bins = ok(driver.cuMemAlloc(data.nbytes)), ok(driver.cuMemAlloc(1024))
ok(driver.cuMemcpyHtoD(d_data, data.ctypes.data, data.nbytes))
ok(driver.cuMemsetD32(d_bins, 0, 256))
launch(kernel(b"histogram"), 8, 128, (d_data, d_bins, data.size), (None, None, ctypes.c_uint))
ok(driver.cuStreamSynchronize(stream))
bins = np.zeros(256, np.uint32)
ok(driver.cuMemcpyDtoH(bins.ctypes.data, d_bins, 1024))
assert np.array_equal(bins, np.bincount(data, minlength=256))

# A variable of the module.
address, size = ok(driver.cuModuleGetGlobal(module, b"answers"))
assert size == 12
ok(driver.cuMemcpyHtoD(address, np.array([7], np.int32).ctypes.data, 4))
d_out = ok(driver.cuMemAlloc(12))
launch(kernel(b"ask"), 1, 3, (d_out,), (None,))
ok(driver.cuStreamSynchronize(stream))
got = np.zeros(3, np.int32)
ok(driver.cuMemcpyDtoH(got.ctypes.data, d_out, 12))
assert got.tolist() == [7, 41, 42]

# A graph by capture, launched three times.
ok(driver.cuMemsetD32(dx, 0x3F800000, n))
ok(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
ok(driver.cuMemsetD32Async(dy, 0, n, stream))
for _ in range(4):
    launch(kernel(b"saxpy"), (n + 255) // 256, 256, (0.5, dx, dy, n), (ctypes.c_float, None, None, ctypes.c_size_t))
graph = ok(driver.cuStreamEndCapture(stream))
nodes, count = ok(driver.cuGraphGetNodes(graph))
assert count == 5, count
nodes, count = ok(driver.cuGraphGetNodes(graph, count))
edges_from, edges_to, edge_data, edges = ok(driver.cuGraphGetEdges(graph))
assert edges == 4, edges
executable = ok(driver.cuGraphInstantiate(graph, 0))
for _ in range(3):
    ok(driver.cuGraphLaunch(executable, stream))
ok(driver.cuMemcpyDtoHAsync(out.ctypes.data, dy, out.nbytes, stream))
ok(driver.cuStreamSynchronize(stream))
assert np.array_equal(out, np.full(n, 2, np.float32))

# A graph by hand: a fill, then a copy.
graph = ok(driver.cuGraphCreate(0))
fill = driver.CUDA_MEMSET_NODE_PARAMS()
fill.dst, fill.value, fill.elementSize, fill.width, fill.height = dx, 0x40400000, 4, n, 1
first = ok(driver.cuGraphAddMemsetNode(graph, None, 0, fill, context))
copy = driver.CUDA_MEMCPY3D()
copy.srcMemoryType = copy.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
copy.srcDevice, copy.dstDevice = dx, dy
copy.WidthInBytes, copy.Height, copy.Depth = 4 * n, 1, 1
ok(driver.cuGraphAddMemcpyNode(graph, [first], 1, copy, context))
ok(driver.cuGraphLaunch(ok(driver.cuGraphInstantiate(graph, 0)), stream))
ok(driver.cuStreamSynchronize(stream))
ok(driver.cuMemcpyDtoH(out.ctypes.data, dy, out.nbytes))
assert np.array_equal(out, np.full(n, 3, np.float32))

# Errors arrive as their codes.
code, _ = driver.cuModuleGetFunction(module, b"absent")
assert code == driver.CUresult.CUDA_ERROR_NOT_FOUND, code
code, _ = driver.cuModuleLoadData(b"no PTX")
assert code == driver.CUresult.CUDA_ERROR_INVALID_PTX, code
assert ok(driver.cuGetErrorName(driver.CUresult.CUDA_ERROR_INVALID_PTX)) == b"CUDA_ERROR_INVALID_PTX"
(code,) = driver.cuMemFree(12345)
assert code == driver.CUresult.CUDA_ERROR_INVALID_VALUE, code
ok(driver.cuMemFreeAsync(dx, stream))
ok(driver.cuMemFreeAsync(dy, stream))
ok(driver.cuStreamDestroy(stream))
ok(driver.cuModuleUnload(module))
ok(driver.cuDevicePrimaryCtxRelease(device))
print("ok: cuda.bindings.driver", f"sm_{major}{minor}")
