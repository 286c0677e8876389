// What needs the driver at run time: printf, the device heap, stack allocation.
// arch: 80
#include <stdio.h>

extern "C" __global__ void print_values(const float *x, int n) {
    int i = threadIdx.x;
    if (i < n) printf("lane %d has %f of %s, %lld\n", i, x[i], "floats", (long long)i << 40);
    if (i == 0) printf("done\n");
}

extern "C" __global__ void device_heap(int *y, int n) {
    int *p = (int *)malloc(n * sizeof(int));
    if (p) {
        for (int i = 0; i < n; i++) p[i] = i * (int)threadIdx.x;
        int s = 0;
        for (int i = 0; i < n; i++) s += p[n - 1 - i];
        y[threadIdx.x] = s;
        free(p);
    }
    int *q = new int(7);
    y[threadIdx.x] += *q;
    delete q;
}

extern "C" __global__ void stack_allocation(const int *x, int *y, int n) {
    int *p = (int *)__builtin_alloca(n * sizeof(int));
    for (int i = 0; i < n; i++) p[i] = x[i] * (int)threadIdx.x;
    int s = 0;
    for (int i = n - 1; i >= 0; i--) s = 3 * s + p[i];
    y[threadIdx.x] = s;
}
