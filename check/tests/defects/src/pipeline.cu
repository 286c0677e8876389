//: grid 1
//: block 32
//: buffer in 2048 iota
//: buffer out 512 poison
//: expect async::missing-wait error
#include <cuda_pipeline.h>
template <int LEFT>
__device__ __forceinline__ void stages(const float4 *in, float4 *out) {
    __shared__ float4 tile[2][32];
    unsigned t = threadIdx.x;
    float4 sum = make_float4(0, 0, 0, 0);
    __pipeline_memcpy_async(&tile[0][t], &in[t], 16); // <- also
    __pipeline_commit();
    for (int s = 0; s < 4; s++) {
        if (s < 3) __pipeline_memcpy_async(&tile[(s + 1) % 2][t], &in[(s + 1) * 32 + t], 16); // <- also
        __pipeline_commit();
        __pipeline_wait_prior(LEFT);
        float4 v = tile[s % 2][t]; // <- here
        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    out[t] = sum;
}
extern "C" __global__ void defect(const float4 *in, float4 *out) { stages<2>(in, out); }
extern "C" __global__ void clean(const float4 *in, float4 *out) { stages<1>(in, out); }
