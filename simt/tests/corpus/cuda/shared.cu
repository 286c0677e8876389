// Shared memory: static tiles, dynamic, demoted, bank padding, unions, double buffers.
// arch: 80
#define T 16
extern "C" __global__ void matmul_tile(const float *a, const float *b, float *c, int n) {
    __shared__ float as[T][T + 1], bs[T][T];
    int row = blockIdx.y * T + threadIdx.y, col = blockIdx.x * T + threadIdx.x;
    float acc = 0;
    for (int k = 0; k < n; k += T) {
        as[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
        bs[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + col];
        __syncthreads();
#pragma unroll
        for (int j = 0; j < T; j++) acc += as[threadIdx.y][j] * bs[j][threadIdx.x];
        __syncthreads();
    }
    c[row * n + col] = acc;
}

extern __shared__ __align__(16) unsigned char dyn[];

extern "C" __global__ void reverse_dyn(const int *x, int *y, int n) {
    int *tile = (int *)dyn;
    short *tail = (short *)(tile + n);
    int i = threadIdx.x;
    tile[i] = x[i];
    tail[i] = (short)i;
    __syncthreads();
    y[i] = tile[n - 1 - i] + tail[(i + 1) % n];
}

__device__ __noinline__ int scan_step(int v) {
    __shared__ int buf[2][64];
    int in = 0;
    buf[0][threadIdx.x] = v;
    __syncthreads();
    for (int d = 1; d < 64; d *= 2, in ^= 1) {
        int s = buf[in][threadIdx.x];
        if (threadIdx.x >= d) s += buf[in][threadIdx.x - d];
        buf[in ^ 1][threadIdx.x] = s;
        __syncthreads();
    }
    int r = buf[in][threadIdx.x];
    __syncthreads();
    return r;
}

extern "C" __global__ void scan_demoted(const int *x, int *y) {
    int i = blockIdx.x * 64 + threadIdx.x;
    y[i] = scan_step(x[i]) - scan_step(1);
}

__shared__ unsigned hist_all[256];

extern "C" __global__ void histogram(const unsigned char *x, unsigned *h, int n) {
    for (int i = threadIdx.x; i < 256; i += blockDim.x) hist_all[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&hist_all[x[i]], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&h[i], hist_all[i]);
}

extern "C" __global__ void generic_pointer(const int *x, int *y, int which) {
    __shared__ int s[64];
    int l[4] = {1, 2, 3, (int)threadIdx.x};
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    const int *p = which == 0 ? s : which == 1 ? x : l;
    y[threadIdx.x] = p[threadIdx.x & 3] + __isShared(p) * 100 + __isGlobal(p) * 200 + __isLocal(p) * 400;
}
