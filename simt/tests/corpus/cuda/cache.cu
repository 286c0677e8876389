// Cache operators and hints, volatile, read-only and vector accesses.
// arch: 80
#include <cuda_fp16.h>

extern "C" __global__ void cache_ops(const float *a, const int4 *b, const double2 *c, const short *d,
                                     const unsigned char *e, float *f, int4 *g, double *h) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float s = __ldg(a + i) + __ldcg(a + i + 1) + __ldca(a + i + 2) + __ldcs(a + i + 3) + __ldlu(a + i + 4) + __ldcv(a + i + 5);
    int4 v = __ldg(b + i), w = __ldcs(b + i);
    double2 u = __ldg(c + i), t = __ldcg(c + i);
    s += __ldg(d + i) + __ldcs(e + i);
    __stcs(f + i, s);
    __stwt(f + i + 1024, s + 1);
    __stcg(g + i, make_int4(v.x + w.y, v.y - w.x, v.z ^ w.w, v.w | w.z));
    __stwb(h + i, u.x * t.y + u.y * t.x);
}

extern "C" __global__ void hints(const uint4 *x, uint4 *y) {
    int i = threadIdx.x;
    unsigned a, b, c, d;
    asm volatile("prefetch.global.L2 [%0];" ::"l"(x + i + 64));
    asm volatile("prefetch.global.L1 [%0];" ::"l"(x + i + 32));
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "l"(x + i));
    asm volatile("st.global.L1::evict_last.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(y + i), "r"(d), "r"(c), "r"(b), "r"(a));
    unsigned long long policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("ld.global.L2::cache_hint.v2.u32 {%0, %1}, [%2], %3;" : "=r"(a), "=r"(b) : "l"(x + i), "l"(policy));
    asm volatile("st.global.L2::cache_hint.u32 [%0], %1, %2;" ::"l"((unsigned *)(y + 64) + i), "r"(a + b), "l"(policy));
}

extern "C" __global__ void volatile_acquire(volatile int *flag, int *data, int *out) {
    int v;
    if (threadIdx.x == 0) {
        data[0] = 42;
        __threadfence();
        flag[0] = 1;
        asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"((int *)flag + 1), "r"(2) : "memory");
        asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"((int *)flag + 2), "r"(3) : "memory");
    }
    __syncthreads();
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"((int *)flag + 1) : "memory");
    int r;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(r) : "l"((int *)flag + 2) : "memory");
    out[threadIdx.x] = flag[0] + v * 10 + r * 100 + data[0] * 1000;
    __threadfence_block();
    __threadfence_system();
}
