// Patterns across blocks: decoupled look-back, a grid barrier from atomics, spin locks, last block.
// arch: 80
struct Tile { unsigned long long state[64]; };
__device__ Tile tiles;
__device__ unsigned next_tile;

// Chained scan with look-back: one 64-bit word holds a flag (1 aggregate, 2 prefix) and a value.
extern "C" __global__ void lookback_scan(const unsigned *x, unsigned *y) {
    __shared__ unsigned tile, before, warp_sums[4];
    if (threadIdx.x == 0) tile = atomicAdd(&next_tile, 1u);
    __syncthreads();
    unsigned i = tile * 128 + threadIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    unsigned v = x[i];
    for (int d = 1; d < 32; d *= 2) {
        unsigned o = __shfl_up_sync(0xffffffff, v, d);
        if (lane >= d) v += o;
    }
    if (lane == 31) warp_sums[warp] = v;
    __syncthreads();
    for (unsigned w = 0; w < warp; w++) v += warp_sums[w];
    if (threadIdx.x == 127) {
        volatile unsigned long long *s = tiles.state;
        unsigned sum = 0;
        if (tile == 0) {
            s[0] = 2ull << 32 | v;
        } else {
            s[tile] = 1ull << 32 | v;
            for (int t = (int)tile - 1; t >= 0;) {
                unsigned long long w = s[t];
                unsigned flag = (unsigned)(w >> 32);
                if (flag == 0) continue;
                sum += (unsigned)w;
                if (flag == 2) break;
                t--;
            }
            __threadfence();
            s[tile] = 2ull << 32 | (sum + v);
        }
        before = sum;
    }
    __syncthreads();
    y[i] = v + before;
}

__device__ unsigned arrived;
__device__ volatile unsigned generation;

extern "C" __global__ void grid_sync(int *x, int *y, int rounds) {
    int n = gridDim.x * blockDim.x, i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int r = 0; r < rounds; r++) {
        int v = x[(i + 1) % n] + r;
        for (int phase = 0; phase < 2; phase++) {
            __syncthreads();
            if (threadIdx.x == 0) {
                unsigned g = generation;
                __threadfence();
                if (atomicAdd(&arrived, 1) == gridDim.x - 1) {
                    arrived = 0;
                    __threadfence();
                    generation = g + 1;
                } else {
                    while (generation == g) __nanosleep(20);
                }
                __threadfence();
            }
            __syncthreads();
            if (phase == 0) x[i] = v;
        }
    }
    y[i] = x[i];
}

extern "C" __global__ void spin_lock(int *lock, volatile int *total) {
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            *total = *total + 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}

__device__ unsigned finished;
extern "C" __global__ void last_block(const int *x, volatile int *part, int *out) {
    __shared__ bool last;
    int s = 0;
    for (int k = 0; k < 64; k++) s += x[blockIdx.x * 64 + k];
    if (threadIdx.x == 0) {
        part[blockIdx.x] = s;
        __threadfence();
        last = atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        int t = 0;
        for (int b = 0; b < gridDim.x; b++) t += part[b];
        *out = t;
    }
}
