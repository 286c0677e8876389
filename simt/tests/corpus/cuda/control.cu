// Control flow: switch tables, loops with breaks, recursion, function pointers, virtual calls.
// arch: 80
__device__ __noinline__ int step_a(int x) { return x * 3 + 1; }
__device__ __noinline__ int step_b(int x) { return x ^ 0x55; }
__device__ __noinline__ int step_c(int x) { return x - (x >> 2); }

extern "C" __global__ void switch_table(const int *ops, const int *x, int *y, int n) {
    int v = x[threadIdx.x];
    for (int i = 0; i < n; i++) {
        switch (ops[i]) {
        case 0: v = step_a(v); break;
        case 1: v = step_b(v); break;
        case 2: v = step_c(v); break;
        case 3: v += y[threadIdx.x]; y[threadIdx.x] = v; break;
        case 4: v = v / 3; __syncwarp(); break;
        case 5: v = __popc(v); break;
        case 6: v = ~v; y[threadIdx.x] ^= v; break;
        case 7: v <<= 1; atomicAdd(y + 64, 1); break;
        case 8: v = step_a(step_b(v)); break;
        case 9: v |= 0x100; y[threadIdx.x] -= 1; break;
        case 10: v %= 1000; break;
        default: v = -v; break;
        }
    }
    y[threadIdx.x] += v;
}

__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__device__ int is_odd(int n);
__device__ __noinline__ int is_even(int n) { return n == 0 ? 1 : is_odd(n - 1) + 0 * clock(); }
__device__ __noinline__ int is_odd(int n) { return n == 0 ? 0 : is_even(n - 1) + 0 * clock(); }

extern "C" __global__ void recursion(const int *x, int *y) {
    y[threadIdx.x] = fib(x[threadIdx.x]) * 2 + is_even(x[threadIdx.x]);
}

typedef int (*Op)(int);
__device__ Op table[4] = {step_a, step_b, step_c, fib};

extern "C" __global__ void function_pointers(const int *which, const int *x, int *y, Op *given) {
    int i = threadIdx.x;
    int r = table[which[i] & 3](x[i]);
    if (given) r += given[0](x[i]);
    y[i] = r;
}

struct Shape {
    float a;
    __device__ Shape(float a) : a(a) {}
    __device__ virtual float area() const { return a * a; }
    __device__ virtual int sides(int k) const = 0;
};
struct Square : Shape {
    __device__ Square(float a) : Shape(a) {}
    __device__ int sides(int k) const override { return 4 * k; }
};
struct Disc : Shape {
    __device__ Disc(float a) : Shape(a) {}
    __device__ float area() const override { return 3.0f * a * a; }
    __device__ int sides(int k) const override { return k; }
};

extern "C" __global__ void virtual_calls(const float *x, float *y) {
    Square s(x[threadIdx.x]);
    Disc d(x[threadIdx.x]);
    const Shape *p = threadIdx.x % 3 ? (const Shape *)&s : (const Shape *)&d;
    y[threadIdx.x] = p->area() + p->sides(threadIdx.x);
}

extern "C" __global__ void collatz(const unsigned *x, unsigned *y, unsigned limit) {
    unsigned v = x[threadIdx.x], steps = 0;
    while (v != 1) {
        if (v & 1) {
            if (v > 0x55555554u) goto over;
            v = 3 * v + 1;
        } else {
            v >>= 1;
            if (steps == 7) continue;
        }
        if (++steps == limit) break;
    }
    y[threadIdx.x] = steps;
    return;
over:
    y[threadIdx.x] = 0xffffffffu;
}

// A byte code: enough dense cases for a jump table.
extern "C" __global__ void byte_code(const unsigned char *code, int n, const int *x, int *y) {
    int a = x[threadIdx.x], b = 1, t;
    for (int pc = 0; pc < n; pc++) {
        switch (code[pc]) {
        case 0: a += b; break;
        case 1: a -= b; break;
        case 2: a *= b; break;
        case 3: a ^= b; break;
        case 4: a |= b; break;
        case 5: a &= b; break;
        case 6: t = a; a = b; b = t; break;
        case 7: b = a; break;
        case 8: b++; break;
        case 9: a = a / (b | 1); break;
        case 10: a = __popc(a); break;
        case 11: a = __clz(a); break;
        case 12: b = min(a, b); break;
        case 13: b = max(a, b); break;
        case 14: a = __brev(a); break;
        case 15: y[threadIdx.x] = a; break;
        case 16: a = y[threadIdx.x]; break;
        case 17: a <<= b & 7; break;
        case 18: a >>= b & 7; break;
        case 19: if (a > b) pc++; break;
        case 20: a = __shfl_xor_sync(0xffffffff, a, 1); break;
        case 21: b = 3; break;
        case 22: b = 1000; break;
        case 23: a = ~a; break;
        case 24: __syncthreads(); break;
        case 25: a = a % (b | 1); break;
        case 26: return;
        }
    }
    y[threadIdx.x] = a + b;
}

// nvcc turns these switches into trees of comparisons; a table of targets by hand.
extern "C" __global__ void jump_table(const unsigned *which, const int *x, int *y) {
    int v = x[threadIdx.x], r;
    asm volatile("{\n\t.reg .pred p;\n\tsetp.gt.u32 p, %2, 2;\n\t@p bra OTHER;\n\t"
                 "CASES: .branchtargets ONE, TWO, ONE;\n\tbrx.idx %2, CASES;\n\t"
                 "ONE:\n\tadd.s32 %0, %1, 1;\n\tbra END;\n\t"
                 "TWO:\n\tmul.lo.s32 %0, %1, 2;\n\tbra END;\n\t"
                 "OTHER:\n\tneg.s32 %0, %1;\n\tEND:\n\t}"
                 : "=r"(r) : "r"(v), "r"(which[threadIdx.x]));
    y[threadIdx.x] = r;
}
