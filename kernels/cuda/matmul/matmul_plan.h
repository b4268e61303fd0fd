// Private to kernels: products by cuBLASLt, with one plan for all products of the same shapes,
// layouts and options.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/cuda/matmul/cublaslt.h"
#include "kernels/exec.h"

namespace axle::kernels {

// A matrix of cuBLASLt's product D = f(A B + beta C), stored by columns. Columns are `ld` elements
// apart. The matrices of a batch are `batch` elements apart (0 if all products use the same
// matrix).
struct LtMatrix {
    const void* data = nullptr;
    std::int64_t ld = 0, batch = 0;
    bool transposed = false;     // if true, the transpose is stored; for A and B only
    std::int64_t alignment = 0;  // alignment of every matrix of the batch in bytes
};

struct LtProduct {
    std::int64_t rows = 0, columns = 0, depth = 0, batches = 1;
    DType in = DType::f32, out = DType::f32;  // dtypes of A and B, and of all other matrices
    LtMatrix a, b, d;                         // d is the output
    LtMatrix c;                               // if c has no data, beta is 0, else 1
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    LtMatrix vector;  // bias, or output for the bias gradient
    LtMatrix aux;     // output for GELU's argument, or input of GELU's slope
    // The parameters of a product of 8-bit floats. If set, `in` is the dtype of A only.
    struct Float8 {
        DType b;
        const float *a_factor, *b_factor;  // pointers to device memory
        bool fast;                         // if true, sums may be less exact
    };
    std::optional<Float8> float8 = {};
};

// Queues the product. cublaslt() must not be null. Returns false, without queueing the product, if
// cuBLASLt has no algorithm for it. Throws CudaError if cuBLASLt fails. If a large product is used
// again, the call can measure algorithms, which waits for the stream (matmul_tuning.h).
bool lt_matmul(Cuda& on, const LtProduct& product);

}  // namespace axle::kernels
