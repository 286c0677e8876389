#pragma once
// The names of cuBLAS that llama.cpp's common header mentions. No kernel that is counted calls one of them, and the library has
// half a gigabyte.
typedef struct cublasContext *cublasHandle_t;
typedef int cublasStatus_t;
enum { CUBLAS_STATUS_SUCCESS, CUBLAS_TF32_TENSOR_OP_MATH };
const char *cublasGetStatusString(cublasStatus_t status);
cublasStatus_t cublasCreate(cublasHandle_t *handle);
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, int mode);
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream);
