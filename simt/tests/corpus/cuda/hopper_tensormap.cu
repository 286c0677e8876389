// Copies through a tensor map: a named load error for now.
// arch: 90
struct alignas(64) TensorMap { unsigned long long words[16]; };
extern "C" __global__ void tensor_copy(const __grid_constant__ TensorMap map, int *y) {
    __shared__ __align__(128) int tile[256];
    __shared__ unsigned long long bar;
    unsigned b = (unsigned)__cvta_generic_to_shared(&bar), p = (unsigned)__cvta_generic_to_shared(tile);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(b));
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(p),
                     "l"(&map), "r"(0), "r"(0), "r"(b) : "memory");
    }
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x];
}
