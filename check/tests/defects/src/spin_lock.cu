//: grid 4
//: block 32
//: buffer lock 4 zeros
//: buffer count 4 zeros
//: expect race::global error
template <bool FENCE>
__device__ __forceinline__ void count(int *lock, unsigned *count) {
    if (threadIdx.x != 0) return;
    while (atomicCAS(lock, 0, 1) != 0) {}
    if (FENCE) __threadfence();
    *count += blockIdx.x + 1; // <- write
    if (FENCE) __threadfence();
    atomicExch(lock, 0);
}
extern "C" __global__ void defect(int *lock, unsigned *n) { count<false>(lock, n); }
extern "C" __global__ void clean(int *lock, unsigned *n) { count<true>(lock, n); }
