// sm_90: bulk copies with transaction counts, stmatrix, elect, dependent launches, cluster-free barriers.
// arch: 90
#include <cuda_fp16.h>

extern "C" __global__ void bulk_copy(const int *x, int *y) {
    __shared__ __align__(128) int buf[256];
    __shared__ unsigned long long bar;
    unsigned b = (unsigned)__cvta_generic_to_shared(&bar), p = (unsigned)__cvta_generic_to_shared(buf);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(b));
        asm volatile("fence.mbarrier_init.release.cluster;");
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(1024) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(p),
                     "l"(x), "r"(1024), "r"(b) : "memory");
    }
    asm volatile("{\n\t.reg .pred P1;\n\tWAIT:\n\tmbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n\t@P1 bra.uni DONE;\n\tbra.uni WAIT;\n\tDONE:\n\t}" ::"r"(b), "r"(0) : "memory");
    buf[threadIdx.x] += 1;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(y), "r"(p), "r"(1024) : "memory");
        asm volatile("cp.async.bulk.commit_group;");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

extern "C" __global__ void store_matrix(const unsigned *x, unsigned *y) {
    __shared__ __align__(16) unsigned tile[64];
    unsigned p = (unsigned)__cvta_generic_to_shared(tile + (threadIdx.x & 15) * 4);
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(p), "r"(x[threadIdx.x]), "r"(x[threadIdx.x + 32]) : "memory");
    __syncwarp();
    y[threadIdx.x] = tile[threadIdx.x];
    y[threadIdx.x + 32] = tile[threadIdx.x + 32];
}

extern "C" __global__ void elected(int *y) {
    unsigned leader, first;  // only whether this lane is it counts
    asm volatile("{\n\t.reg .pred p;\n\telect.sync %0|p, 0xffffffff;\n\tselp.b32 %1, 1, 0, p;\n\t}" : "=r"(leader), "=r"(first));
    y[threadIdx.x] = first * 10 + leader * 0;
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;");
}

extern "C" __global__ void packed_minmax(const unsigned *x, unsigned *y) {
    unsigned a = x[threadIdx.x], b = x[threadIdx.x ^ 1];
    y[4 * threadIdx.x] = __vmaxs2(a, b);
    y[4 * threadIdx.x + 1] = __viaddmax_s16x2(a, b, 0x00050005u);
    y[4 * threadIdx.x + 2] = __vimax3_s32(a, b, 7);
    y[4 * threadIdx.x + 3] = (unsigned)__vimin_s32_relu(a, b);
}

extern "C" __global__ void vector_atomics(float4 *x, float2 *y) {
    atomicAdd(x, make_float4(1, 2, 3, 4));
    atomicAdd(y, make_float2(5, 6));
}
