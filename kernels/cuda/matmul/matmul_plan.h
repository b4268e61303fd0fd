// Private to kernels: products by cuBLASLt, planned once per shape.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/cuda/matmul/cublaslt.h"
#include "kernels/exec.h"

namespace axle::kernels {

// A matrix of D = f(A B + beta C) in cuBLASLt's terms. Columns are `ld` elements apart, and the
// matrices of a batch are `batch` elements apart (0 if there is one for all).
struct LtMatrix {
    const void* data = nullptr;
    std::int64_t ld = 0, batch = 0;
    bool transposed = false;     // A and B only: stored as the transpose
    std::int64_t alignment = 0;  // in bytes, of every matrix of the batch
};

struct LtProduct {
    std::int64_t rows = 0, columns = 0, depth = 0, batches = 1;
    DType in = DType::f32, out = DType::f32;  // `in` is for A and B, `out` for all other matrices
    LtMatrix a, b, d;                         // d is the output
    LtMatrix c;                               // without data, beta is 0, else 1
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    LtMatrix vector;  // bias, or output for its gradient
    LtMatrix aux;     // output for GELU's argument, or input of its slope
    // Set for 8-bit floats; `in` is then the dtype of A only.
    struct Float8 {
        DType b;
        const float *a_factor, *b_factor;  // in device memory
        bool fast;                         // sums can be less exact
    };
    std::optional<Float8> float8 = {};
};

// Returns false, without queueing anything, if cuBLASLt has no algorithm for the product. Throws
// CudaError if it fails.
bool lt_matmul(Cuda& on, const LtProduct& product);

}  // namespace axle::kernels
