// Asynchronous copies, clocks, named barriers, sleeping.
// arch: 80
#include <cuda_pipeline.h>

extern "C" __global__ void copy_pipeline(const float4 *x, float *y, int tiles) {
    __shared__ float4 buf[2][64];
    int i = threadIdx.x;
    float s = 0;
    __pipeline_memcpy_async(&buf[0][i], &x[i], 16);
    __pipeline_commit();
    for (int t = 0; t < tiles; t++) {
        if (t + 1 < tiles) __pipeline_memcpy_async(&buf[(t + 1) & 1][i], &x[(t + 1) * 64 + i], 16);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        float4 v = buf[t & 1][63 - i];
        s += v.x + v.y * v.z - v.w;
        __syncthreads();
    }
    y[i] = s;
}

extern "C" __global__ void copy_asm(const int *x, int *y, int bytes) {
    __shared__ __align__(16) int buf[256];
    unsigned p = (unsigned)__cvta_generic_to_shared(buf + 4 * threadIdx.x);
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(p), "l"(x + 4 * threadIdx.x), "r"(bytes));
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group 0;");
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(p), "l"(x + threadIdx.x));
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    for (int k = 0; k < 4; k++) y[4 * threadIdx.x + k] = buf[4 * threadIdx.x + k];
}

extern "C" __global__ void clocks(long long *y, unsigned long long *t) {
    long long a = clock64();
    __nanosleep(100);
    int lo = clock();
    unsigned long long g;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(g));
    y[threadIdx.x] = (clock64() - a) >= 0 ? 1 + 0 * lo : 0;
    t[threadIdx.x] = g;
}

extern "C" __global__ void named_barriers(const int *x, int *y) {
    __shared__ int a[32];
    if (threadIdx.x < 32) {
        a[threadIdx.x] = x[threadIdx.x];
        asm volatile("bar.arrive 1, 64;" ::: "memory");
        asm volatile("barrier.sync 2, 64;" ::: "memory");
        y[threadIdx.x] = a[31 - threadIdx.x];
    } else {
        asm volatile("bar.sync 1, 64;" ::: "memory");
        a[threadIdx.x - 32] *= 3;
        asm volatile("barrier.arrive 2, 64;" ::: "memory");
    }
}
