// Warp-group matrix products: a named load error for now.
// arch: 90a
extern "C" __global__ void wgmma_f16(unsigned long long da, unsigned long long db, float *y) {
    float d[4] = {0, 0, 0, 0};
    asm volatile("wgmma.fence.sync.aligned;");
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, 1, 0;\n\twgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0;\n\t}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(da), "l"(db));
    asm volatile("wgmma.commit_group.sync.aligned;");
    asm volatile("wgmma.wait_group.sync.aligned 0;");
    for (int k = 0; k < 4; k++) y[4 * threadIdx.x + k] = d[k];
}

extern "C" __global__ void set_registers(int *y) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 64;");
    y[threadIdx.x] = 1;
}
