// The calling convention: assert, structs by value and returned.
// arch: 80
#include <assert.h>

struct Pair { int a; double b; };
struct Big { float v[7]; char tag; };

__device__ __noinline__ Pair swap_scale(Pair p, float f) { return Pair{(int)p.b, p.a * (double)f}; }
__device__ __noinline__ float sum_big(const Big b, long long skip) {
    float s = 0;
    for (int i = 0; i < 7; i++)
        if (i != skip) s += b.v[i];
    return s + b.tag;
}
__device__ __noinline__ void store_byte(unsigned char *p, unsigned char v, bool really) {
    if (really) *p = v;
}
__device__ __noinline__ short narrow(short a, signed char b) { return a * b; }

extern "C" __global__ void struct_params(Pair p, Big b, const __grid_constant__ Big g, int n, float *y, unsigned char *z) {
    int i = threadIdx.x;
    Pair q = swap_scale(p, (float)i);
    const float *v = g.v;
    y[i] = q.a + (float)q.b + sum_big(b, i) + v[i % 7] + narrow((short)n, (signed char)i);
    store_byte(z + i, (unsigned char)(i * 3), i & 1);
}

extern "C" __global__ void checked(const int *x, int *y, int n) {
    int i = threadIdx.x;
    assert(i < n && "more threads than elements");
    if (x[i] == -12345) __trap();
    if (x[i] == -12346) asm volatile("brkpt;");
    y[i] = x[i] + 1;
}
