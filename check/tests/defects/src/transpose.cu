//: grid 1
//: block 32 8
//: buffer in 4096 iota
//: buffer out 4096 poison
//: expect race::shared error
template <bool SYNC>
__device__ __forceinline__ void transpose(const float *in, float *out) {
    __shared__ float tile[32][33];
    for (int i = threadIdx.y; i < 32; i += 8) tile[i][threadIdx.x] = in[i * 32 + threadIdx.x]; // <- write
    if (SYNC) __syncthreads();
    for (int i = threadIdx.y; i < 32; i += 8) out[i * 32 + threadIdx.x] = tile[threadIdx.x][i]; // <- read
}
extern "C" __global__ void defect(const float *in, float *out) { transpose<false>(in, out); }
extern "C" __global__ void clean(const float *in, float *out) { transpose<true>(in, out); }
