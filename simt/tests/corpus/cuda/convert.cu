// Conversions between every pair of widths, with rounding and saturation; packed and 8-bit floats.
// arch: 90
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

extern "C" __global__ void convert_int(const float *x, const double *d, int *y, long long *z) {
    int i = threadIdx.x;
    float v = x[i];
    double w = d[i];
    int *o = y + 12 * i;
    o[0] = __float2int_rn(v);
    o[1] = __float2int_rz(v);
    o[2] = __float2int_ru(v);
    o[3] = __float2int_rd(v);
    o[4] = (int)__float2uint_rn(v);
    o[5] = __double2int_rn(w);
    o[6] = (int)(short)v;
    o[7] = (int)(unsigned char)w;
    o[8] = __double2hiint(w) ^ __double2loint(w);
    o[9] = __float_as_int(__int2float_rz(o[0]));
    o[10] = __float_as_int(__uint2float_ru((unsigned)o[4]));
    o[11] = __float_as_int(__double2float_rd(w));
    z[4 * i] = __float2ll_rz(v);
    z[4 * i + 1] = (long long)__double2ull_ru(w);
    z[4 * i + 2] = __double_as_longlong(__ll2double_rn(z[4 * i]));
    z[4 * i + 3] = __double_as_longlong(__hiloint2double(o[0], o[1]) + (double)v) ^ (long long)__float_as_int(__ull2float_rn((unsigned long long)o[4]));
}

extern "C" __global__ void convert_half(const float *x, unsigned short *y, float *z) {
    int i = threadIdx.x;
    float v = x[i];
    unsigned short *o = y + 8 * i;
    o[0] = __half_as_ushort(__float2half_rn(v));
    o[1] = __half_as_ushort(__float2half_rz(v));
    o[2] = __half_as_ushort(__float2half_ru(v));
    o[3] = __bfloat16_as_ushort(__float2bfloat16_rn(v));
    o[4] = __half_as_ushort(__double2half((double)v));
    o[5] = __half_as_ushort(__int2half_rn((int)v));
    o[6] = (unsigned short)__half2int_rz(__ushort_as_half(o[0]));
    o[7] = __bfloat16_as_ushort(__ushort_as_bfloat16(o[3]));
    __half2 p = __floats2half2_rn(v, -v);
    z[2 * i] = __low2float(p) + __half2float(hfloor(__ushort_as_half(o[0])));
    z[2 * i + 1] = __bfloat162float(__ushort_as_bfloat16(o[3])) + __half2float(hrint(__ushort_as_half(o[1])));
}

extern "C" __global__ void convert_fp8(const float2 *x, unsigned short *y, float2 *z) {
    int i = threadIdx.x;
    __nv_fp8x2_storage_t a = __nv_cvt_float2_to_fp8x2(x[i], __NV_SATFINITE, __NV_E4M3);
    __nv_fp8x2_storage_t b = __nv_cvt_float2_to_fp8x2(x[i], __NV_SATFINITE, __NV_E5M2);
    y[2 * i] = a;
    y[2 * i + 1] = b;
    __half2_raw r = __nv_cvt_fp8x2_to_halfraw2(a, __NV_E4M3);
    __half2 h = __half2(r);
    z[i] = __half22float2(h);
}
