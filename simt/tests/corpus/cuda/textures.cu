// Texture and surface instructions: named load errors.
// arch: 80
extern "C" __global__ void sample(cudaTextureObject_t t, cudaSurfaceObject_t s, float *y) {
    float v = tex2D<float>(t, threadIdx.x + 0.5f, 0.5f);
    surf2Dwrite(v, s, threadIdx.x * 4, 0);
    y[threadIdx.x] = v + tex1Dfetch<float>(t, 3);
}
