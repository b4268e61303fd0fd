// Products of 8-bit floats by cuBLASLt. cuBLASLt requires operands that are contiguous along the
// inner dimension, so the first operand is transposed and the second operand is not.
#include "kernels/cuda/matmul/matmul_plan.h"
#include "kernels/ops/quantize.h"

namespace axle::kernels {
namespace {

constexpr std::int64_t kMultiple = 16;

bool is_aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }

}  // namespace

bool float8_matmul(Cuda& on, ConstView a, ConstView b, const float* a_inverse,
                   const float* b_inverse, bool fast, View c) {
    const std::int64_t rows = a.shape[0], columns = b.shape[0], depth = a.shape[1];
    if (c.numel() == 0) return true;
    if (depth == 0 || depth % kMultiple != 0 || columns % kMultiple != 0) return false;
    if (a.dtype == DType::f8_e5m2 && b.dtype == DType::f8_e5m2) return false;
    if (!is_aligned(a.data) || !is_aligned(b.data) || !is_aligned(c.data)) return false;
    if (cublaslt() == nullptr) return false;

    // cuBLASLt stores matrices by columns. So it computes the transpose c^T = b a^T.
    LtProduct lt;
    lt.rows = columns, lt.columns = rows, lt.depth = depth;
    lt.in = b.dtype, lt.out = c.dtype;
    lt.a = {.data = b.data, .ld = depth, .transposed = true, .alignment = kMultiple};
    lt.b = {.data = a.data, .ld = depth, .alignment = kMultiple};
    lt.d = {.data = c.data, .ld = columns, .alignment = kMultiple};
    lt.float8 = {.b = a.dtype, .a_factor = b_inverse, .b_factor = a_inverse, .fast = fast};
    if (lt_matmul(on, lt)) return true;
    report_no_algorithm();
    return false;
}

}  // namespace axle::kernels
