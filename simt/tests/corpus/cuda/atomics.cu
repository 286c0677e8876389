// Atomics of every kind, global and shared, scoped, 16 to 64 bits, and CAS loops.
// arch: 80 90
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void atomics_i32(int *a, unsigned *u, int *old) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int r = atomicAdd(&a[0], i);
    atomicSub(&a[1], i);
    atomicMin(&a[2], -i);
    atomicMax(&a[3], i);
    atomicAnd(&u[0], ~(1u << (i & 31)));
    atomicOr(&u[1], 1u << (i & 31));
    atomicXor(&u[2], (unsigned)i);
    atomicInc(&u[3], 7u);
    atomicDec(&u[4], 9u);
    r += atomicExch(&a[4], i) * 0;
    atomicCAS(&a[5], 0, 1);
    atomicMin(&u[5], (unsigned)i + 3);
    atomicMax(&u[6], (unsigned)i + 3);
    old[i] = r;
}

extern "C" __global__ void atomics_64(unsigned long long *u, long long *s, double *d, float *f, unsigned long long *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&u[0], (unsigned long long)i << 33);
    atomicAnd(&u[1], ~(1ull << (i & 63)));
    atomicOr(&u[2], 1ull << (i & 63));
    atomicXor(&u[3], (unsigned long long)i * 0x100000001ull);
    atomicMin(&s[0], (long long)-i);
    atomicMax(&s[1], (long long)i);
    atomicMin(&u[4], (unsigned long long)i + 5);
    atomicMax(&u[5], (unsigned long long)i + 5);
    out[2 * i] = atomicExch(&u[6], (unsigned long long)i);
    out[2 * i + 1] = atomicCAS(&u[7], 0ull, (unsigned long long)i + 1);
    atomicAdd(&d[0], (double)i);
    atomicAdd(&f[0], (float)i);
    atomicExch(&f[1], 1.0f);
}

extern "C" __global__ void atomics_scoped(int *a, unsigned *u, float *f, double *d) {
    __shared__ int s[4];
    if (threadIdx.x < 4) s[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd_block(&a[0], 1);
    atomicAdd_system(&a[1], 1);
    atomicMax_block(&a[2], (int)threadIdx.x);
    atomicCAS_system(&a[3], 0, 7);
    atomicOr_block(&u[0], 1u << (threadIdx.x & 31));
    atomicExch_system(&u[1], 5u);
    atomicAdd_block(&f[0], 1.0f);
    atomicAdd_system(&d[0], 1.0);
    atomicAdd(&s[0], 1);
    atomicMin(&s[1], -(int)threadIdx.x);
    atomicCAS(&s[2], 0, 9);
    atomicAdd_block(&s[3], 2);
    __syncthreads();
    if (threadIdx.x == 0)
        for (int k = 0; k < 4; k++) a[4 + k] = s[k];
}

extern "C" __global__ void atomics_half(__half *h, __half2 *h2, __nv_bfloat16 *b, __nv_bfloat162 *b2, unsigned short *c) {
    atomicAdd(h, __float2half(1.0f));
    atomicAdd(h2, __floats2half2_rn(1.0f, 2.0f));
    atomicAdd(b, __float2bfloat16(1.0f));
    atomicAdd(b2, __floats2bfloat162_rn(1.0f, 2.0f));
    unsigned short old = *c, seen;
    do {
        seen = old;
        old = atomicCAS(c, seen, (unsigned short)(seen + 3));
    } while (old != seen);
}

// No instruction multiplies atomically: a loop of compare-and-swap.
extern "C" __global__ void atomic_mul_f64(double *x, double f) {
    unsigned long long *p = (unsigned long long *)x;
    unsigned long long old = *p, seen;
    do {
        seen = old;
        old = atomicCAS(p, seen, __double_as_longlong(__longlong_as_double(seen) * f));
    } while (old != seen);
}
