// Tensor cores: mma and ldmatrix in assembly.
// arch: 80
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void mma_bf16(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c) {
    __shared__ __align__(16) __nv_bfloat16 sa[16 * 16], sb[8 * 16];
    int lane = threadIdx.x;
    for (int i = lane; i < 256; i += 32) sa[i] = a[i];
    for (int i = lane; i < 128; i += 32) sb[i] = b[i];
    __syncwarp();
    unsigned ra[4], rb[2];
    float d[4] = {0, 0, 0, 0};
    unsigned pa = (unsigned)__cvta_generic_to_shared(sa + (lane & 15) * 16 + (lane >> 4) * 8);
    unsigned pb = (unsigned)__cvta_generic_to_shared(sb + (lane & 7) * 16 + (lane >> 3 & 1) * 8);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]) : "r"(pa));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(rb[0]), "=r"(rb[1]) : "r"(pb));
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
    int row = lane >> 2, col = (lane & 3) * 2;
    c[row * 8 + col] = d[0];
    c[row * 8 + col + 1] = d[1];
    c[(row + 8) * 8 + col] = d[2];
    c[(row + 8) * 8 + col + 1] = d[3];
}

extern "C" __global__ void mma_s8(const int *a, const int *b, int *c) {
    int lane = threadIdx.x, row = lane >> 2, q = lane & 3;
    int d0 = 0, d1 = 0, d2 = 0, d3 = 0;
    int a0 = a[row * 8 + q], a1 = a[(row + 8) * 8 + q], a2 = a[row * 8 + q + 4], a3 = a[(row + 8) * 8 + q + 4];
    int b0 = b[row * 8 + q], b1 = b[row * 8 + q + 4];
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(d0), "+r"(d1), "+r"(d2), "+r"(d3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    c[row * 8 + 2 * q] = d0;
    c[row * 8 + 2 * q + 1] = d1;
    c[(row + 8) * 8 + 2 * q] = d2;
    c[(row + 8) * 8 + 2 * q + 1] = d3;
}
