// Barriers in shared memory.
// arch: 80
#include <cuda/barrier>

extern "C" __global__ void mbarriers(const int *x, int *y) {
    __shared__ unsigned long long bar;
    __shared__ int data[64];
    unsigned b = (unsigned)__cvta_generic_to_shared(&bar);
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(b), "r"(blockDim.x));
    __syncthreads();
    for (int round = 0; round < 3; round++) {
        data[threadIdx.x] = x[threadIdx.x] + round;
        unsigned long long token;
        unsigned done = 0;
        asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(token) : "r"(b) : "memory");
        while (!done)
            asm volatile("{\n\t.reg .pred p;\n\tmbarrier.test_wait.shared.b64 p, [%1], %2;\n\tselp.b32 %0, 1, 0, p;\n\t}"
                         : "=r"(done) : "r"(b), "l"(token) : "memory");
        y[64 * round + threadIdx.x] = data[63 - threadIdx.x];
        __syncthreads();
    }
    if (threadIdx.x == 0) asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(b));
}

#pragma nv_diag_suppress static_var_with_dynamic_init
extern "C" __global__ void cuda_barrier(const int *x, int *y) {
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    __shared__ int data[64];
    if (threadIdx.x == 0) init(&bar, blockDim.x);
    __syncthreads();
    data[threadIdx.x] = x[threadIdx.x] * 2;
    bar.arrive_and_wait();
    y[threadIdx.x] = data[(threadIdx.x + 1) % 64];
}
