// Private to kernels: products by cuBLASLt, each shape planned once.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/cuda/matmul/cublaslt.h"
#include "kernels/exec.h"

namespace axle::inline v0::kernels {

// D = f(A B + beta C) in cuBLASLt's words: matrices are stored column by column, `ld` elements
// apart, those of a batch `batch` elements apart (0: one for all).
struct LtMatrix {
    const void* data = nullptr;
    std::int64_t ld = 0, batch = 0;
    bool transposed = false;     // of A and B: stored as its transpose
    std::int64_t alignment = 0;  // in bytes, of every matrix of the batch
};

struct LtProduct {
    std::int64_t rows = 0, columns = 0, depth = 0, batches = 1;
    DType in = DType::f32, out = DType::f32;  // of A and B, of the others
    LtMatrix a, b, d;                         // d is written
    LtMatrix c;                               // without data: beta is 0, else 1
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    LtMatrix vector;  // bias, or where its gradient goes
    LtMatrix aux;     // where the argument of GELU goes, or that of its slope comes from
    // Of 8-bit floats, where `in` is A's type alone.
    struct Float8 {
        DType b;
        const float *a_factor, *b_factor;  // on the device
        bool fast;                         // sums may be less exact
    };
    std::optional<Float8> float8 = {};
};

// False if cuBLASLt has no algorithm for it; nothing has been queued then. CudaError if it fails.
bool lt_matmul(Cuda& on, const LtProduct& product);

}  // namespace axle::inline v0::kernels
