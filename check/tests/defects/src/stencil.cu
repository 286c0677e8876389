//: grid 2
//: block 64
//: buffer in 512 iota
//: buffer out 512 poison
//: scalar n u32 128
//: expect fault out of bounds
template <bool GUARD>
__device__ __forceinline__ void stencil(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float right = !GUARD || i + 1 < n ? in[i + 1] : 0; // <- here
    out[i] = 0.5f * (in[i] + right);
}
extern "C" __global__ void defect(const float *in, float *out, int n) { stencil<false>(in, out, n); }
extern "C" __global__ void clean(const float *in, float *out, int n) { stencil<true>(in, out, n); }
