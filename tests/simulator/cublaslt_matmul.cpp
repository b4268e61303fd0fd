// Checks the configurations of the simulated cuBLASLt, and computes its matrix product with plain
// loops.
#include "tests/simulator/cublaslt_matmul.h"

#include <cmath>
#include <cstdlib>
#include <utility>

#include "kernels/float8.h"
#include "kernels/half.h"

namespace axle::kernels::simulator::cublaslt {
namespace {

bool is_float8(std::uint32_t type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }
std::size_t size_of(std::uint32_t type) {
    if (is_float8(type)) return 1;
    return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}
double load(const void* data, std::uint32_t type, std::int64_t i) {
    switch (type) {
        case CUDA_R_64F:
            return static_cast<const double*>(data)[i];
        case CUDA_R_16F:
            return static_cast<const Half*>(data)[i];
        case CUDA_R_16BF:
            return static_cast<const BFloat16*>(data)[i];
        case CUDA_R_8F_E4M3:
            return static_cast<const Float8E4M3*>(data)[i];
        case CUDA_R_8F_E5M2:
            return static_cast<const Float8E5M2*>(data)[i];
        default:
            return static_cast<const float*>(data)[i];
    }
}
void store(void* data, std::uint32_t type, std::int64_t i, double x) {
    switch (type) {
        case CUDA_R_64F:
            static_cast<double*>(data)[i] = x;
            return;
        case CUDA_R_16F:
            static_cast<Half*>(data)[i] = Half(static_cast<float>(x));
            return;
        case CUDA_R_16BF:
            static_cast<BFloat16*>(data)[i] = BFloat16(static_cast<float>(x));
            return;
        default:
            static_cast<float*>(data)[i] = static_cast<float>(x);
    }
}

bool has_bias(std::uint32_t epilogue) { return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
bool has_aux(std::uint32_t epilogue) { return (epilogue & 128u) != 0; }
bool is_bias_gradient(std::uint32_t epilogue) {
    return epilogue == CUBLASLT_EPILOGUE_BGRADA || epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

// Checks Hopper's restrictions on float8 products. For example, the first operand must be
// transposed, and the second must not.
cublasStatus_t check_float8(const Shapes& s, std::uint64_t m, std::uint64_t k) {
    const Operation* const op = s.operation;
    const bool types =
        is_float8(s.b->type) && (s.a->type == CUDA_R_8F_E4M3 || s.b->type == CUDA_R_8F_E4M3) &&
        s.c->type == s.d->type && (s.d->type == CUDA_R_32F || s.d->type == CUDA_R_16BF);
    const bool layouts = op->transpose_a == CUBLAS_OP_T && op->transpose_b == CUBLAS_OP_N &&
                         m % 16 == 0 && k % 16 == 0 && s.a->ld % 16 == 0 && s.b->ld % 16 == 0;
    const bool plain = op->compute == CUBLAS_COMPUTE_32F && op->scale == CUDA_R_32F &&
                       op->epilogue == CUBLASLT_EPILOGUE_DEFAULT && op->a_scale != nullptr &&
                       op->b_scale != nullptr;
    return types && layouts && plain ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

}  // namespace

cublasStatus_t check(const Shapes& s) {
    const Operation* const op = s.operation;
    if (op == nullptr || s.a == nullptr || s.b == nullptr || s.c == nullptr || s.d == nullptr)
        return CUBLAS_STATUS_INVALID_VALUE;
    for (const Layout* layout : {s.a, s.b, s.c, s.d}) {
        if (layout->ld < static_cast<std::int64_t>(layout->rows) || layout->rows == 0 ||
            layout->columns == 0)
            return CUBLAS_STATUS_INVALID_VALUE;
        if (layout->batches != s.d->batches || layout->batches < 1)
            return CUBLAS_STATUS_INVALID_VALUE;
        if (layout->rows > 0x7fffffff || layout->columns > 0x7fffffff || layout->stride < 0 ||
            layout->batches > 65535)
            return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    const auto shape = [](const Layout* x, std::int32_t transpose) {
        return transpose == CUBLAS_OP_N ? std::pair(x->rows, x->columns)
                                        : std::pair(x->columns, x->rows);
    };
    const auto [m, k] = shape(s.a, op->transpose_a);
    const auto [k_too, n] = shape(s.b, op->transpose_b);
    if (k != k_too || m != s.d->rows || n != s.d->columns || s.c->rows != m || s.c->columns != n)
        return CUBLAS_STATUS_INVALID_VALUE;

    if (is_float8(s.a->type)) return check_float8(s, m, k);
    if (s.a->type != s.b->type || s.c->type != s.d->type) return CUBLAS_STATUS_NOT_SUPPORTED;
    const std::uint32_t in = s.a->type, out = s.d->type;
    const bool wide = in == CUDA_R_64F, half = in == CUDA_R_16F || in == CUDA_R_16BF;
    const bool types = (out == in || (half && out == CUDA_R_32F)) &&
                       (wide ? op->compute == CUBLAS_COMPUTE_64F && op->scale == CUDA_R_64F
                             : op->scale == CUDA_R_32F &&
                                   (op->compute == CUBLAS_COMPUTE_32F ||
                                    (op->compute == CUBLAS_COMPUTE_32F_FAST_TF32 && !half)));
    if (!types || op->pointer_mode != CUBLASLT_POINTER_MODE_HOST)
        return CUBLAS_STATUS_NOT_SUPPORTED;

    const std::uint32_t epilogue = op->epilogue;
    switch (epilogue) {
        case CUBLASLT_EPILOGUE_DEFAULT:
        case CUBLASLT_EPILOGUE_RELU:
        case CUBLASLT_EPILOGUE_BIAS:
        case CUBLASLT_EPILOGUE_RELU_BIAS:
        case CUBLASLT_EPILOGUE_GELU:
        case CUBLASLT_EPILOGUE_GELU_BIAS:
        case CUBLASLT_EPILOGUE_GELU_AUX:
        case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
        case CUBLASLT_EPILOGUE_DGELU:
        case CUBLASLT_EPILOGUE_BGRADA:
        case CUBLASLT_EPILOGUE_BGRADB:
            break;
        default:
            return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (wide && epilogue != CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (is_bias_gradient(epilogue) && s.d->batches > 1) return CUBLAS_STATUS_NOT_SUPPORTED;
    if ((has_bias(epilogue) || is_bias_gradient(epilogue)) &&
        (op->bias == nullptr || !is_aligned(op->bias, size_of(out))))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (has_aux(epilogue) &&
        (op->aux == nullptr || !is_aligned(op->aux, 16) || op->aux_ld % 8 != 0 ||
         op->aux_ld < static_cast<std::int64_t>(m) || op->aux_stride % 8 != 0))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (const char* refused = std::getenv("AXLE_CUBLASLT_REFUSE"))
        if ((std::strtoul(refused, nullptr, 0) & epilogue) != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

namespace {

double gelu(double x) {
    return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
    const double t = std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
    const double inner_slope = 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner_slope;
}

const char* matrix(const char* data, const Layout& layout, std::int64_t batch) {
    return data + batch * layout.stride * static_cast<std::int64_t>(size_of(layout.type));
}
double element(const char* data, const Layout& layout, std::int32_t transpose, std::int64_t row,
               std::int64_t column) {
    if (transpose != CUBLAS_OP_N) std::swap(row, column);
    return load(data, layout.type, row + column * layout.ld);
}

}  // namespace

void Job::multiply(std::int64_t batch) const {
    const auto m = static_cast<std::int64_t>(d_layout.rows);
    const auto n = static_cast<std::int64_t>(d_layout.columns);
    const auto k = static_cast<std::int64_t>(operation.transpose_a == CUBLAS_OP_N ? a_layout.columns
                                                                                  : a_layout.rows);
    const char* const left = matrix(a, a_layout, batch);
    const char* const right = matrix(b, b_layout, batch);
    const char* const added = matrix(c, c_layout, batch);
    char* const out = const_cast<char*>(matrix(d, d_layout, batch));
    const std::uint32_t epilogue = operation.epilogue;

    const auto left_at = [&](std::int64_t i, std::int64_t p) {
        return element(left, a_layout, operation.transpose_a, i, p);
    };
    const auto right_at = [&](std::int64_t p, std::int64_t j) {
        return element(right, b_layout, operation.transpose_b, p, j);
    };
    for (std::int64_t j = 0; j < n; ++j) {
        for (std::int64_t i = 0; i < m; ++i) {
            double x = 0;
            for (std::int64_t p = 0; p < k; ++p) x += left_at(i, p) * right_at(p, j);
            x *= alpha;
            if (operation.a_scale != nullptr) x *= *operation.a_scale;
            if (operation.b_scale != nullptr) x *= *operation.b_scale;
            if (beta != 0) x += beta * load(added, c_layout.type, i + j * c_layout.ld);
            if (has_bias(epilogue))
                x += load(operation.bias, d_layout.type, i + batch * operation.bias_stride);
            const std::int64_t aux_at = i + j * operation.aux_ld + batch * operation.aux_stride;
            if (epilogue == CUBLASLT_EPILOGUE_DGELU)
                x *= gelu_slope(load(operation.aux, d_layout.type, aux_at));
            else if (has_aux(epilogue))
                store(operation.aux, d_layout.type, aux_at, x);
            if ((epilogue & CUBLASLT_EPILOGUE_RELU) != 0) x = x < 0 ? 0 : x;
            if ((epilogue & CUBLASLT_EPILOGUE_GELU) != 0) x = gelu(x);
            store(out, d_layout.type, i + j * d_layout.ld, x);
        }
    }
    if (epilogue == CUBLASLT_EPILOGUE_BGRADA)
        for (std::int64_t i = 0; i < m; ++i) {
            double sum = 0;
            for (std::int64_t p = 0; p < k; ++p) sum += left_at(i, p);
            store(operation.bias, d_layout.type, i, sum);
        }
    if (epilogue == CUBLASLT_EPILOGUE_BGRADB)
        for (std::int64_t j = 0; j < n; ++j) {
            double sum = 0;
            for (std::int64_t p = 0; p < k; ++p) sum += right_at(p, j);
            store(operation.bias, d_layout.type, j, sum);
        }
}

}  // namespace axle::kernels::simulator::cublaslt
