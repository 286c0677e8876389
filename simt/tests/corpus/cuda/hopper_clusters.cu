// Clusters: a named load error for now.
// arch: 90
extern "C" __global__ void __cluster_dims__(2, 1, 1) cluster_exchange(const int *x, int *y) {
    __shared__ int mine;
    unsigned rank, other;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) mine = x[blockIdx.x];
    asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
    unsigned p = (unsigned)__cvta_generic_to_shared(&mine);
    int v;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(p), "r"(rank ^ 1));
    asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(v) : "r"(other));
    asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
    y[blockIdx.x * blockDim.x + threadIdx.x] = v;
}
