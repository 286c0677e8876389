// More shapes and types of mma, movmatrix.
// arch: 80
extern "C" __global__ void mma_others(const unsigned *x, float *y, int *z, unsigned *t) {
    int i = threadIdx.x;
    unsigned a = x[i], b = x[i + 32], r;
    float f[4] = {0, 0, 0, 0};
    int s[4] = {0, 0, 0, 0};
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %4, %5}, {%5, %4}, {%0, %1, %2, %3};"
                 : "+f"(f[0]), "+f"(f[1]), "+f"(f[2]), "+f"(f[3]) : "r"(a), "r"(b));
    asm volatile("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc {%0, %1, %2, %3}, {%4, %5, %4, %5}, {%5, %4}, {%0, %1, %2, %3};"
                 : "+r"(s[0]), "+r"(s[1]), "+r"(s[2]), "+r"(s[3]) : "r"(a), "r"(b));
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(a));
    for (int k = 0; k < 4; k++) {
        y[4 * i + k] = f[k];
        z[4 * i + k] = s[k];
    }
    t[i] = r;
}
