// Constants, device variables with initialisers, local arrays, block copies.
// arch: 80
__constant__ float coeff[8] = {1, 2, 0.5f, -1, 0.25f, 3, -2, 4};
__constant__ struct { int n; double scale; } setup = {3, 1.5};
__device__ int counter = 5;
__device__ unsigned char bytes[5] = {1, 2, 255, 4};
__device__ const double grid_step[3] = {0.1, 0.2, 0.4};
__device__ float *chain = (float *)0;
__device__ int target[4] = {10, 20, 30, 40};
__device__ int *middle = target + 2;
__device__ __managed__ int shared_with_host = 9;
static __device__ const char *names[2] = {"alpha", "beta"};

extern "C" __global__ void constants(const float *x, float *y) {
    int i = threadIdx.x;
    float v = x[i], r = 0;
    for (int k = 0; k < 8; k++) r = r * v + coeff[k];
    y[i] = r * (float)setup.scale + coeff[i & 7] + setup.n;
}

extern "C" __global__ void globals(int *y) {
    int i = threadIdx.x;
    y[i] = counter + bytes[i % 5] + (int)(10 * grid_step[i % 3]) + middle[i & 1] + names[i & 1][i & 3] + (chain != 0) + shared_with_host;
    if (i == 0) counter = 6;
}

extern "C" __global__ void local_array(const int *x, int *y, int n) {
    int a[16];
    char c[12];
    for (int i = 0; i < 16; i++) a[i] = x[16 * threadIdx.x + i];
    for (int i = 0; i < 12; i++) c[i] = (char)(a[i] >> 3);
    // Insertion sort, so that the indices stay dynamic.
    for (int i = 1; i < n; i++) {
        int v = a[i], j = i;
        while (j > 0 && a[j - 1] > v) {
            a[j] = a[j - 1];
            j--;
        }
        a[j] = v;
    }
    for (int i = 0; i < 16; i++) y[16 * threadIdx.x + i] = a[i] + c[a[i] & 7];
}

extern "C" __global__ void copies(const char *x, char *y, int n) {
    char *to = y + 64 * threadIdx.x;
    memset(to, 0x5a, 64);
    memcpy(to + 3, x + 5, 20);
    memcpy(to + 32, x + 8 * threadIdx.x, n);
}

template <typename V, int N> __device__ V dot(const V *a, const V *b) {
    V s = 0;
#pragma unroll
    for (int i = 0; i < N; i++) s += a[i] * b[i];
    return s;
}
template <typename V, int N> __global__ void __launch_bounds__(128, 4) dots(const V *a, const V *b, V *c) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    c[i] = dot<V, N>(a + N * i, b + N * i);
}
template __global__ void dots<float, 3>(const float *, const float *, float *);
template __global__ void dots<long long, 2>(const long long *, const long long *, long long *);
template __global__ void dots<short, 5>(const short *, const short *, short *);

extern "C" __global__ void __launch_bounds__(256, 2) bounded(int *y) { y[threadIdx.x] = gridDim.x * 100 + blockDim.y; }
extern "C" __global__ void __maxnreg__(64) limited(int *y) { y[threadIdx.x] = gridDim.z; }
