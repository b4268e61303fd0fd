// Private to kernels: cuBLASLt, called through function pointers.
#pragma once

#include <source_location>
#include <string>

#include <cublasLt.h>

#include "kernels/dtype.h"
#include "kernels/error.h"

namespace axle::kernels {

struct CublasLt {
    decltype(cublasLtGetVersion)* version;
    decltype(cublasLtGetStatusName)* status_name;
    decltype(cublasLtCreate)* create;
    decltype(cublasLtMatrixLayoutInit_internal)* init_layout;
    decltype(cublasLtMatrixLayoutSetAttribute)* set_layout;
    decltype(cublasLtMatmulDescInit_internal)* init_operation;
    decltype(cublasLtMatmulDescSetAttribute)* set_operation;
    decltype(cublasLtMatmulPreferenceInit_internal)* init_preference;
    decltype(cublasLtMatmulPreferenceSetAttribute)* set_preference;
    decltype(cublasLtMatmulAlgoGetHeuristic)* heuristic;
    decltype(cublasLtMatmulAlgoCheck)* check_algo;
    decltype(cublasLtMatmul)* matmul;

    // Throws CudaError with the message "op: what failed: CUBLAS_STATUS_..., at file:line" unless
    // status is success.
    void check(cublasStatus_t status, const char* what,
               std::source_location at = std::source_location::current()) const;
};

// Returns cuBLASLt, or null if it cannot be used. cublaslt_error() returns the reason why it cannot
// be used, or an empty string.
const CublasLt* cublaslt();
const std::string& cublaslt_error();

// Adds a library warning, once per op, that cuBLASLt has no algorithm for a call.
void report_no_algorithm();

// Returns the CUDA type of a floating dtype, f8_e4m3 or f8_e5m2.
cudaDataType_t cuda_type(DType t);

}  // namespace axle::kernels
