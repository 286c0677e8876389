//: grid 2
//: block 128
//: buffer in 1024 iota
//: buffer out 8 poison
//: expect race::shared error
template <bool SYNC>
__device__ __forceinline__ void reduce(const unsigned *in, unsigned *out) {
    __shared__ unsigned part[128];
    unsigned t = threadIdx.x;
    part[t] = in[blockIdx.x * 128 + t]; // <- write
    if (SYNC) __syncthreads();
    for (unsigned step = 64; step > 0; step /= 2) {
        if (t < step) part[t] += part[t + step]; // <- read
        if (SYNC) __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = part[0]; // <- also
}
extern "C" __global__ void defect(const unsigned *in, unsigned *out) { reduce<false>(in, out); }
extern "C" __global__ void clean(const unsigned *in, unsigned *out) { reduce<true>(in, out); }
