"""The few functions of the CUDA driver API that a product needs, by ctypes: on whatever `libcuda.so.1` the loader finds."""

import ctypes
import pathlib

import numpy as np

Argument = ctypes._SimpleCData | ctypes.Array
# CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
MAX_DYNAMIC_SHARED = ctypes.c_int(8)


class Gpu:
    """A context on the first device, and the modules and memory in it until the process ends."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.modules: dict[pathlib.Path, ctypes.c_void_p] = {}
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *arguments) -> None:
        code = getattr(self.cuda, name)(*arguments)
        if code:
            raise RuntimeError(f"{name} answers {code}")

    def memory(self, size: int) -> ctypes.c_uint64:
        """So many bytes, all zero."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        self.call("cuMemsetD8_v2", address, ctypes.c_ubyte(0), ctypes.c_size_t(size))
        return address

    def upload(self, data: np.ndarray) -> ctypes.c_uint64:
        data = np.ascontiguousarray(data)
        address = self.memory(data.nbytes)
        self.call("cuMemcpyHtoD_v2", address, ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(data.nbytes))
        return address

    def download(self, address: ctypes.c_uint64, count: int, of: type = np.float32) -> np.ndarray:
        """So many numbers."""
        data = np.empty(count, of)
        self.call("cuMemcpyDtoH_v2", ctypes.c_void_p(data.ctypes.data), address, ctypes.c_size_t(data.nbytes))
        return data

    def kernel(self, ptx: pathlib.Path, name: str) -> ctypes.c_void_p:
        if ptx not in self.modules:
            module = ctypes.c_void_p()
            self.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(ptx.read_bytes() + b"\0"))
            self.modules[ptx] = module
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), self.modules[ptx], name.encode())
        return function

    def launch(
        self,
        ptx: pathlib.Path,
        name: str,
        grid: tuple[int, int, int],
        block: tuple[int, int],
        shared: int,
        arguments: list[Argument],
    ) -> None:
        """Launches, and waits for the end."""
        if shared > 48 * 1024:
            self.call("cuFuncSetAttribute", self.kernel(ptx, name), MAX_DYNAMIC_SHARED, ctypes.c_int(shared))
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
        sizes = [ctypes.c_uint(n) for n in (*grid, *block, 1, shared)]
        self.call("cuLaunchKernel", self.kernel(ptx, name), *sizes, None, pointers, None)
        self.call("cuCtxSynchronize")
