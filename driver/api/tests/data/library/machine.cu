// What libcudadevrt has, as machine code: the barrier of a grid, and a function that the driver does not have. None of it can run.
extern "C" __device__ unsigned long long cudaCGGetIntrinsicHandle(enum cudaCGScope) { __trap(); return 1; }
extern "C" __device__ cudaError_t cudaCGSynchronize(unsigned long long, unsigned int) { __trap(); return cudaSuccess; }
extern "C" __device__ cudaError_t cudaCGSynchronizeGrid(unsigned long long, unsigned int) { __trap(); return cudaSuccess; }
extern "C" __device__ int only_machine_code(int x) { return x + 1; }
