// Nobody calls it, so that what it needs is not looked for.
extern "C" __device__ int nobody_has(int x);
extern "C" __device__ int unused(int x) { return nobody_has(x); }
