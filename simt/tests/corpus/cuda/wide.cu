// Integers of 128 and 256 bits, as nvcc divides, multiplies and shifts them: chains of carries that it mixes itself.
// arch: 80
typedef unsigned __int128 u128;
typedef __int128 i128;
typedef unsigned long long u64;

extern "C" __global__ void divide_u128(const u128 *a, const u128 *b, u128 *q, u128 *r) {
    int i = threadIdx.x;
    q[i] = a[i] / b[i];
    r[i] = a[i] % b[i];
}

extern "C" __global__ void divide_i128(const i128 *a, const i128 *b, i128 *q, i128 *r) {
    int i = threadIdx.x;
    q[i] = a[i] / b[i];
    r[i] = a[i] % b[i];
}

extern "C" __global__ void by_word(const u128 *a, const u64 *b, u128 *q) { int i = threadIdx.x; q[i] = a[i] / b[i]; }

extern "C" __global__ void mixed(const u128 *a, const u128 *b, u128 *o) {
    int i = threadIdx.x;
    u128 x = a[i], y = b[i];
    int by = (int)(y & 127);
    u128 s = x * y + (x >> by) - (y << by);
    s ^= (u128)((i128)x >> by);
    o[2 * i] = x < y ? s - y : s + y;
    o[2 * i + 1] = (i128)x > (i128)y ? -s : s - x;
}

// The product of two numbers of 256 bits in words of 64, and their sum and difference.
extern "C" __global__ void wide256(const u64 *a, const u64 *b, u64 *product, u64 *sum, u64 *difference) {
    int i = threadIdx.x;
    const u64 *x = a + 4 * i, *y = b + 4 * i;
    u64 p[8] = {};
    for (int j = 0; j < 4; j++) {
        u64 carry = 0;
        for (int k = 0; k < 4; k++) {
            u128 t = (u128)x[j] * y[k] + p[j + k] + carry;
            p[j + k] = (u64)t;
            carry = (u64)(t >> 64);
        }
        p[j + 4] = carry;
    }
    for (int k = 0; k < 8; k++) product[8 * i + k] = p[k];
    u64 carry = 0, borrow = 0;
    for (int k = 0; k < 4; k++) {
        u128 s = (u128)x[k] + y[k] + carry, d = (u128)x[k] - y[k] - borrow;
        sum[4 * i + k] = (u64)s;
        difference[4 * i + k] = (u64)d;
        carry = (u64)(s >> 64);
        borrow = (u64)(d >> 64) & 1;
    }
}
