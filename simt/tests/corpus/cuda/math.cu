// Math: approximate intrinsics, rounding modes, and the library's accurate functions with their slow paths.
// arch: 80
extern "C" __global__ void math_fast(const float *x, float *y) {
    int i = threadIdx.x;
    float v = x[i];
    float *o = y + 16 * i;
    o[0] = __sinf(v);
    o[1] = __cosf(v);
    o[2] = __expf(v);
    o[3] = __logf(v);
    o[4] = __powf(v, 1.5f);
    o[5] = __fdividef(v, 3.0f);
    o[6] = rsqrtf(v);
    o[7] = __frcp_rn(v);
    o[8] = __fsqrt_rz(v);
    o[9] = __fmaf_ru(v, v, 1.0f);
    o[10] = __saturatef(v);
    o[11] = __fadd_rd(v, 1e-8f);
    o[12] = __fdiv_rn(v, 7.0f);
    o[13] = __log2f(v) + exp2f(v);
    o[14] = __fmul_rz(v, 1.1f);
    o[15] = __tanf(v);
}

extern "C" __global__ void math_accurate(const float *x, float *y) {
    int i = threadIdx.x;
    float v = x[i];
    float *o = y + 8 * i;
    o[0] = sinf(v);
    o[1] = expf(v);
    o[2] = logf(v);
    o[3] = tanhf(v);
    o[4] = erff(v);
    o[5] = fmodf(v, 1.7f);
    o[6] = cbrtf(v) + log1pf(v);
    o[7] = atan2f(v, 0.3f);
}

extern "C" __global__ void math_pow(const float *x, float *y) {
    y[threadIdx.x] = powf(x[threadIdx.x], 2.2f);
}

extern "C" __global__ void math_f64(const double *x, double *y) {
    int i = threadIdx.x;
    double v = x[i];
    double *o = y + 8 * i;
    o[0] = exp(v);
    o[1] = log(v);
    o[2] = sqrt(v);
    o[3] = 1.0 / v;
    o[4] = v / 3.0;
    o[5] = rsqrt(v);
    o[6] = __fma_rz(v, v, -1.0) + __dadd_ru(v, 1e-20) + __dmul_rd(v, 1.1);
    o[7] = floor(v) + rint(v) * ceil(v) + trunc(v);
}

extern "C" __global__ void compare(const float *x, const float *w, const double *d, int *y) {
    int i = threadIdx.x;
    float a = x[i], b = w[i];
    double c = d[i];
    int r = isnan(a) | isinf(a) << 1 | signbit(b) << 2 | (a < b) << 3 | (a != b) << 4 | (c >= (double)a) << 5;
    r |= (!(a > b)) << 6 | isfinite(c) << 7;
    r += (int)fminf(a, b) + (int)fmaxf(a, 2.0f) + (int)copysignf(3.0f, b) + (int)fabsf(b) + (int)fmin(c, 3.0);
    y[i] = r;
}

extern "C" __global__ void math_asm(const float *x, float *y) {
    float v = x[threadIdx.x], t, c;
    asm("tanh.approx.f32 %0, %1;" : "=f"(t) : "f"(v));
    asm("{\n\t.reg .pred p;\n\ttestp.normal.f32 p, %1;\n\tslct.f32.f32 %0, %1, 0f3F800000, %1;\n\t@p neg.f32 %0, %0;\n\t}" : "=f"(c) : "f"(v));
    y[threadIdx.x] = t + c;
}
