// Integer intrinsics: bit counting, permutes, funnel shifts, dot products, SIMD in a word, wide arithmetic.
// arch: 80
extern "C" __global__ void bit_ops(const unsigned *x, const unsigned long long *w, unsigned *y) {
    int i = threadIdx.x;
    unsigned v = x[i], u = x[i ^ 1];
    unsigned long long q = w[i];
    unsigned *o = y + 16 * i;
    o[0] = __clz(v) + 100 * __clzll(q);
    o[1] = __brev(v) ^ (unsigned)__brevll(q);
    o[2] = __popc(v) + 100 * __popcll(q);
    o[3] = __ffs(v) + 100 * __ffsll(q);
    o[4] = __byte_perm(v, u, 0x3715);
    o[5] = __funnelshift_l(v, u, 7) ^ __funnelshift_r(v, u, u);
    o[6] = __funnelshift_lc(v, u, v) ^ __funnelshift_rc(v, u, 40);
    o[7] = (v & 0xff00ff) | (u & ~0xff00ff);
    o[8] = (v << (u & 31)) ^ (v >> (u & 15)) ^ ((int)v >> 3);
    o[9] = (v >> 5 & 0x7f) + ((int)(u << 12) >> 20);
    o[10] = (unsigned)(q >> (v & 63)) ^ (unsigned)((long long)q >> 7) ^ (unsigned)(q << (u & 63));
    o[11] = __fns(v, 0, 3);
    o[12] = (v ^ u) & 0x0f0f0f0f ^ (v | ~u);
    o[13] = v == u ? 5 : v > u ? 6 : 7;
    o[14] = (unsigned short)v * (unsigned short)u + (unsigned char)(v >> 8);
    o[15] = __byte_perm(v, 0, 0x0123);
}

extern "C" __global__ void mul_ops(const int *x, const long long *w, int *y, long long *z) {
    int i = threadIdx.x;
    int v = x[i], u = x[i ^ 1];
    long long p = w[i], q = w[i ^ 1];
    int *o = y + 8 * i;
    o[0] = __mulhi(v, u);
    o[1] = (int)__umulhi(v, u);
    o[2] = __mul24(v, u);
    o[3] = (int)__umul24(v, u);
    o[4] = __sad(v, u, 5) + (int)__usad(v, u, 7u);
    o[5] = v / ((u & 1023) + 1) + v % 17;
    o[6] = (int)((unsigned)v / ((unsigned)u | 1)) + (int)((unsigned)v % 10);
    o[7] = __hadd(v, u) + __rhadd(v, u) + abs(v) + min(v, u) - max(v, 3);
    z[4 * i] = __mul64hi(p, q);
    z[4 * i + 1] = (long long)__umul64hi(p, q);
    z[4 * i + 2] = (long long)v * u + (long long)((unsigned long long)(unsigned)v * (unsigned)u);
    __int128 wide = (__int128)p * q + q - v;
    z[4 * i + 3] = (long long)(wide >> 64) ^ (long long)wide;
}

extern "C" __global__ void simd_ops(const unsigned *x, unsigned *y) {
    int i = threadIdx.x;
    unsigned a = x[i], b = x[i ^ 1];
    unsigned *o = y + 12 * i;
    o[0] = __vadd2(a, b);
    o[1] = __vsub4(a, b);
    o[2] = __vabsdiffu4(a, b);
    o[3] = __vmaxs2(a, b);
    o[4] = __vminu4(a, b);
    o[5] = __vavgu4(a, b);
    o[6] = __vcmpgtu4(a, b);
    o[7] = __vaddss2(a, b);
    o[8] = (unsigned)__dp4a((int)a, (int)b, 11);
    o[9] = __dp4a(a, b, 13u);
    o[10] = (unsigned)__dp2a_lo((int)a, (int)b, 3) + (unsigned)__dp2a_hi((int)a, (int)b, 4);
    o[11] = __vsetltu2(a, b) + __vsadu4(a, b);
}

extern "C" __global__ void carry_chain(const unsigned *a, const unsigned *b, unsigned *s, unsigned *d, unsigned *m) {
    int i = threadIdx.x;
    const unsigned *p = a + 4 * i, *q = b + 4 * i;
    asm("add.cc.u32 %0, %4, %8;\n\taddc.cc.u32 %1, %5, %9;\n\taddc.cc.u32 %2, %6, %10;\n\taddc.u32 %3, %7, %11;"
        : "=r"(s[4 * i]), "=r"(s[4 * i + 1]), "=r"(s[4 * i + 2]), "=r"(s[4 * i + 3])
        : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "r"(q[0]), "r"(q[1]), "r"(q[2]), "r"(q[3]));
    asm("sub.cc.u32 %0, %4, %8;\n\tsubc.cc.u32 %1, %5, %9;\n\tsubc.cc.u32 %2, %6, %10;\n\tsubc.u32 %3, %7, %11;"
        : "=r"(d[4 * i]), "=r"(d[4 * i + 1]), "=r"(d[4 * i + 2]), "=r"(d[4 * i + 3])
        : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "r"(q[0]), "r"(q[1]), "r"(q[2]), "r"(q[3]));
    asm("mul.lo.u32 %0, %2, %3;\n\tmul.hi.u32 %1, %2, %3;\n\tmad.lo.cc.u32 %0, %4, %5, %0;\n\tmadc.hi.u32 %1, %4, %5, %1;"
        : "=&r"(m[2 * i]), "=&r"(m[2 * i + 1])
        : "r"(p[0]), "r"(q[0]), "r"(p[1]), "r"(q[1]));
}
