"""cuda.bindings.driver in two processes: memory and an event by their handles, kernels that take turns and count together."""

import ctypes
import subprocess
import sys

import numpy as np
from cuda.bindings import driver, nvrtc

SOURCE = rb"""
// Turn `who`, `who` + 2, ...: reads what the other has written, and writes more.
extern "C" __global__ void turns(volatile unsigned *flag, unsigned *data, unsigned who, unsigned rounds) {
    for (unsigned r = 0; r < rounds; r++) {
        while (*flag != 2 * r + who) {}
        __threadfence_system();
        data[0] = data[0] * 3 + who + 1;
        __threadfence_system();
        *flag = 2 * r + who + 1;
    }
}

extern "C" __global__ void count(unsigned *sum, unsigned long long *most, unsigned times) {
    for (unsigned i = 0; i < times; i++) {
        atomicAdd_system(sum, 1u);
        atomicMax_system(most, (unsigned long long)(blockIdx.x * blockDim.x + threadIdx.x + i));
    }
}
"""
ROUNDS, TIMES, BYTES = 50, 300, 4096


def ok(result):
    code, *rest = result
    assert int(code) == 0, code
    return rest[0] if len(rest) == 1 else tuple(rest)


def kernels(device):
    major = ok(driver.cuDeviceGetAttribute(driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device))
    program = ok(nvrtc.nvrtcCreateProgram(SOURCE, b"kernels.cu", 0, [], []))
    ok(nvrtc.nvrtcCompileProgram(program, 1, [f"--gpu-architecture=compute_{major}0".encode()]))
    ptx = b" " * ok(nvrtc.nvrtcGetPTXSize(program))
    ok(nvrtc.nvrtcGetPTX(program, ptx))
    module = ok(driver.cuModuleLoadData(ptx))
    return [ok(driver.cuModuleGetFunction(module, name)) for name in (b"turns", b"count")]


def launch(kernel, blocks, threads, *arguments):
    values, types = zip(*arguments)
    ok(driver.cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, 0, (values, types), 0))


def work(functions, address, who):
    p, u, q = ctypes.c_void_p, ctypes.c_uint, int(address)
    launch(functions[0], 1, 1, (q, p), (q + 4, p), (who, u), (ROUNDS, u))
    launch(functions[1], 4, 64, (q + 64, p), (q + 128, p), (TIMES, u))


def handle(call, argument):
    # The 64 bytes: what the bindings call them differs between versions.
    made = ok(call(argument))
    return ctypes.string_at(int(made.getPtr()), 64)


def from_bytes(kind, data):
    made = kind()
    ctypes.memmove(int(made.getPtr()), data, 64)
    return made


def begin():
    ok(driver.cuInit(0))
    device = ok(driver.cuDeviceGet(0))
    ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(device))))
    return device


def other(memory, event):
    functions = kernels(begin())
    memory = from_bytes(driver.CUipcMemHandle, bytes.fromhex(memory))
    address = ok(driver.cuIpcOpenMemHandle(memory, 1))
    event = ok(driver.cuIpcOpenEventHandle(from_bytes(driver.CUipcEventHandle, bytes.fromhex(event))))
    work(functions, address, 1)
    ok(driver.cuEventRecord(event, 0))
    ok(driver.cuCtxSynchronize())
    ok(driver.cuIpcCloseMemHandle(address))


def main():
    device = begin()
    supported = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED
    assert ok(driver.cuDeviceGetAttribute(supported, device)) == 1
    functions = kernels(device)
    address = ok(driver.cuMemAlloc(BYTES))
    ok(driver.cuMemsetD8(address, 0, BYTES))
    memory = handle(driver.cuIpcGetMemHandle, address)
    code, _ = driver.cuIpcOpenMemHandle(from_bytes(driver.CUipcMemHandle, memory), 1)
    assert code == driver.CUresult.CUDA_ERROR_INVALID_CONTEXT, code
    event = ok(driver.cuEventCreate(6))
    of_event = handle(driver.cuIpcGetEventHandle, event)
    child = subprocess.Popen([sys.executable, __file__, memory.hex(), of_event.hex()])
    work(functions, address, 0)
    ok(driver.cuCtxSynchronize())
    assert child.wait(timeout=300) == 0
    ok(driver.cuEventSynchronize(event))
    got = np.zeros(BYTES // 4, dtype=np.uint32)
    ok(driver.cuMemcpyDtoH(got.ctypes.data, address, BYTES))
    expected = np.uint32(0)
    with np.errstate(over="ignore"):
        for turn in range(2 * ROUNDS):
            expected = expected * np.uint32(3) + np.uint32(turn % 2 + 1)
    assert got[0] == 2 * ROUNDS and got[1] == expected, got[:2]
    assert got[16] == 2 * 256 * TIMES and got[32] == 255 + TIMES - 1, got[[16, 32]]
    ok(driver.cuMemFree(address))
    print("ok: two processes")


if len(sys.argv) == 3:
    other(*sys.argv[1:])
else:
    main()
