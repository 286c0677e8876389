//: order-dependent
//: grid 2
//: block 96
//: buffer in 768 iota
//: buffer out 64 zeros
//: expect init::address error
// Bins that were never set to zero decide where to store.
template <bool ZERO>
__device__ __forceinline__ void ranks(const unsigned *in, unsigned *out) {
    __shared__ unsigned bins[16];
    unsigned t = threadIdx.x;
    if (ZERO && t < 16) bins[t] = 0;
    __syncthreads();
    unsigned x = in[blockIdx.x * 96 + t] & 15;
    unsigned rank = atomicAdd(&bins[x], 1); // <- also
    if (t < 16) atomicAdd(&out[(rank + t) & 15], 1); // <- here
}
extern "C" __global__ void defect(const unsigned *in, unsigned *out) { ranks<false>(in, out); }
extern "C" __global__ void clean(const unsigned *in, unsigned *out) { ranks<true>(in, out); }
