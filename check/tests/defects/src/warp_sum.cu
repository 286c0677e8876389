//: grid 1
//: block 32
//: buffer in 128 iota
//: buffer out 4 poison
//: scalar n u32 20
//: expect sync::inactive-source warning
template <bool ALL>
__device__ __forceinline__ void warp_sum(const unsigned *in, unsigned *out, unsigned n) {
    unsigned t = threadIdx.x;
    if (!ALL && t >= n) return;
    unsigned x = t < n ? in[t] : 0;
    for (int d = 16; d > 0; d /= 2) x += __shfl_down_sync(~0u, x, d); // <- here
    if (ALL && t == 0) *out = x;
}
extern "C" __global__ void defect(const unsigned *in, unsigned *out, unsigned n) { warp_sum<false>(in, out, n); }
extern "C" __global__ void clean(const unsigned *in, unsigned *out, unsigned n) { warp_sum<true>(in, out, n); }
