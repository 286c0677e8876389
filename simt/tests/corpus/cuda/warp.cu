// Warp collectives: shuffles in all modes and widths, votes, matches, reductions.
// arch: 80
extern "C" __global__ void reduce_sum(const float *x, float *out, int n) {
    __shared__ float part[32];
    float s = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += x[i];
    for (int o = 16; o > 0; o >>= 1) s += __shfl_down_sync(0xffffffff, s, o);
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if (lane == 0) part[warp] = s;
    __syncthreads();
    if (warp == 0) {
        s = lane < (int)(blockDim.x >> 5) ? part[lane] : 0.0f;
        for (int o = 16; o > 0; o >>= 1) s += __shfl_xor_sync(0xffffffff, s, o);
        if (lane == 0) out[blockIdx.x] = s;
    }
}

extern "C" __global__ void shuffles(const int *x, const long long *w, int *y, long long *z, int delta) {
    int i = threadIdx.x;
    int v = x[i];
    int r = __shfl_sync(0xffffffff, v, delta);
    r = r * 31 + __shfl_sync(0xffffffff, v, i + 1, 8);
    r = r * 31 + __shfl_up_sync(0xffffffff, v, 1);
    r = r * 31 + __shfl_up_sync(0xffffffff, v, delta & 3, 16);
    r = r * 31 + __shfl_down_sync(0xffffffff, v, 3, 4);
    r = r * 31 + __shfl_xor_sync(0xffffffff, v, 5);
    r = r * 31 + __shfl_xor_sync(0xffffffff, v, 3, 2);
    y[i] = r;
    z[i] = __shfl_down_sync(0xffffffff, w[i], 2);
}

extern "C" __global__ void votes(const int *x, unsigned *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int v = x[i];
    unsigned b = __ballot_sync(0xffffffff, v & 1);
    int all = __all_sync(0xffffffff, v > 0), any = __any_sync(0xffffffff, v > 100);
    int uni = __all_sync(0xffffffff, v == 7);
    unsigned m = __match_any_sync(0xffffffff, v);
    int p;
    unsigned a = __match_all_sync(0xffffffff, (unsigned long long)v >> 40, &p);
    unsigned active = 0;
    if (v & 2) active = __activemask();
    __syncwarp();
    y[7 * i] = b;
    y[7 * i + 1] = all | any << 1 | uni << 2 | p << 3;
    y[7 * i + 2] = m;
    y[7 * i + 3] = a;
    y[7 * i + 4] = __popc(active) > 0;
    y[7 * i + 5] = __reduce_add_sync(0xffffffff, (unsigned)v);
    y[7 * i + 6] = __reduce_max_sync(0xffffffff, v) ^ __reduce_and_sync(0xffffffff, (unsigned)v) ^
                   __reduce_or_sync(0xffffffff, (unsigned)v) ^ __reduce_xor_sync(0xffffffff, (unsigned)v) ^
                   __reduce_min_sync(0xffffffff, (unsigned)v);
}

extern "C" __global__ void block_votes(const int *x, int *y) {
    int v = x[threadIdx.x];
    int c = __syncthreads_count(v > 3);
    int a = __syncthreads_and(v < 1000);
    int o = __syncthreads_or(v == 5);
    y[threadIdx.x] = c * 4 + (a != 0) * 2 + (o != 0);
}

extern "C" __global__ void lanemasks(unsigned *y, int *w) {
    unsigned eq, lt, le, gt, ge, lane, wid, nw, sm, nsm;
    asm("mov.u32 %0, %%lanemask_eq;" : "=r"(eq));
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(lt));
    asm("mov.u32 %0, %%lanemask_le;" : "=r"(le));
    asm("mov.u32 %0, %%lanemask_gt;" : "=r"(gt));
    asm("mov.u32 %0, %%lanemask_ge;" : "=r"(ge));
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm volatile("mov.u32 %0, %%warpid;" : "=r"(wid));
    asm volatile("mov.u32 %0, %%nwarpid;" : "=r"(nw));
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    asm volatile("mov.u32 %0, %%nsmid;" : "=r"(nsm));
    y[threadIdx.x] = (eq ^ lt) + (le ^ gt) + ge + lane;
    w[threadIdx.x] = (wid < nw) && (sm < nsm);
}
