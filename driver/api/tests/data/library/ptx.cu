// Called from a kernel of another file.
__device__ int offset = 4;
extern "C" __device__ int three_times(int x) { return 3 * x + offset; }
