//: grid 4
//: block 64
//: buffer part 16 poison
//: buffer ticket 4 zeros
//: buffer out 4 poison
//: expect race::global error
template <bool FENCE>
__device__ __forceinline__ void sum(unsigned *part, unsigned *ticket, unsigned *out) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        part[blockIdx.x] = blockIdx.x * 10; // <- write
        if (FENCE) __threadfence();
        last = atomicAdd(ticket, 1) == gridDim.x - 1;
        if (FENCE) __threadfence();
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        unsigned sum = 0;
        for (unsigned i = 0; i < gridDim.x; i++) sum += part[i]; // <- read
        *out = sum;
    }
}
extern "C" __global__ void defect(unsigned *part, unsigned *ticket, unsigned *out) { sum<false>(part, ticket, out); }
extern "C" __global__ void clean(unsigned *part, unsigned *ticket, unsigned *out) { sum<true>(part, ticket, out); }
