// A stand-in for cuBLASLt on the simulated GPU: a shared library of its name, for a folder that
// AXLE_LIBRARY_PATH lists. It does what the comments of cublasLt.h say, with plain loops on the
// simulated stream, and refuses what NVIDIA's library refuses. The program that opens it exports
// the simulator's functions (-rdynamic).
//
// There are three "algorithms", alike but for their workspace and their time, and their bits are
// valid for a library of this version only. AXLE_CUBLASLT_REFUSE is a mask of epilogues that have
// no algorithm: what a program does then can be tested.
#include "tests/simulator/device.h"
//
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include <cublasLt.h>

#include "kernels/float8.h"
#include "kernels/half.h"

namespace {

using axle::BFloat16;
using axle::Float8E4M3;
using axle::Float8E5M2;
using axle::Half;

struct Layout {
    std::uint32_t magic, type;
    std::int32_t order, batches;
    std::uint64_t rows, columns;
    std::int64_t ld, stride;
};
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));
constexpr std::uint32_t kLayout = 0x4c41594fu, kOperation = 0x4f504552u, kPreference = 0x50524546u;
constexpr std::uint64_t kAlgo = 0xa190'0001'0000'0000u + CUBLAS_VERSION;

struct Operation {
    std::uint32_t magic;
    std::int32_t compute, scale, pointer_mode, transpose_a, transpose_b;
    std::uint32_t epilogue;
    void* bias;
    std::int64_t bias_stride;
    void* aux;
    std::int64_t aux_ld, aux_stride;
    const float *a_scale, *b_scale;
    std::int8_t fast_accumulation;
};
static_assert(sizeof(Operation) <= sizeof(cublasLtMatmulDescOpaque_t));

struct Preference {
    std::uint32_t magic, schemes;
    std::uint64_t workspace;
    std::uint32_t alignment[4];
};
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t));

template <class State, class Opaque>
State* state(Opaque* opaque, std::uint32_t magic) {
    auto* const result = reinterpret_cast<State*>(opaque);
    return result != nullptr && result->magic == magic ? result : nullptr;
}
template <class State, class Opaque>
const State* state(const Opaque* opaque, std::uint32_t magic) {
    return state<State>(const_cast<Opaque*>(opaque), magic);
}

template <class T>
cublasStatus_t assign(T& to, const void* from, std::size_t size) {
    if (from == nullptr || size != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&to, from, size);
    return CUBLAS_STATUS_SUCCESS;
}

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

bool is_aligned(const void* p, std::size_t bytes) {
    return reinterpret_cast<std::uintptr_t>(p) % bytes == 0;
}

struct Shapes {
    const Operation* operation;
    const Layout *a, *b, *c, *d;
};

// As on Hopper: the first operand transposed, the second not.
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

// What makes a configuration impossible, or one that the library has no kernel for.
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

Shapes shapes_of(const cublasLtMatmulDescOpaque_t* operation, const cublasLtMatrixLayoutOpaque_t* a,
                 const cublasLtMatrixLayoutOpaque_t* b, const cublasLtMatrixLayoutOpaque_t* c,
                 const cublasLtMatrixLayoutOpaque_t* d) {
    return {state<Operation>(operation, kOperation), state<Layout>(a, kLayout),
            state<Layout>(b, kLayout), state<Layout>(c, kLayout), state<Layout>(d, kLayout)};
}

constexpr std::uint64_t kAlgos = 3;
std::size_t workspace_of(std::uint64_t id) { return id * 4096; }

double gelu(double x) {
    return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
    const double t = std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
    const double inner_slope = 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner_slope;
}

// A matmul as it is queued: everything by value.
struct Job {
    Operation operation;
    Layout a_layout, b_layout, c_layout, d_layout;
    const char *a, *b, *c;
    char* d;
    double alpha, beta;

    void operator()() const {
        for (std::int64_t batch = 0; batch < d_layout.batches; ++batch) multiply(batch);
    }

  private:
    static const char* matrix(const char* data, const Layout& layout, std::int64_t batch) {
        return data + batch * layout.stride * static_cast<std::int64_t>(size_of(layout.type));
    }
    static double element(const char* data, const Layout& layout, std::int32_t transpose,
                          std::int64_t row, std::int64_t column) {
        if (transpose != CUBLAS_OP_N) std::swap(row, column);
        return load(data, layout.type, row + column * layout.ld);
    }

    void multiply(std::int64_t batch) const {
        const auto m = static_cast<std::int64_t>(d_layout.rows);
        const auto n = static_cast<std::int64_t>(d_layout.columns);
        const auto k = static_cast<std::int64_t>(
            operation.transpose_a == CUBLAS_OP_N ? a_layout.columns : a_layout.rows);
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
};

}  // namespace

extern "C" {

std::size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

const char* cublasLtGetStatusName(cublasStatus_t status) {
    switch (status) {
        case CUBLAS_STATUS_SUCCESS:
            return "CUBLAS_STATUS_SUCCESS";
        case CUBLAS_STATUS_INVALID_VALUE:
            return "CUBLAS_STATUS_INVALID_VALUE";
        case CUBLAS_STATUS_NOT_SUPPORTED:
            return "CUBLAS_STATUS_NOT_SUPPORTED";
        default:
            return "CUBLAS_STATUS_INTERNAL_ERROR";
    }
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    static char context;
    *handle = reinterpret_cast<cublasLtHandle_t>(&context);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, std::size_t size,
                                                 cudaDataType type, std::uint64_t rows,
                                                 std::uint64_t columns, std::int64_t ld) {
    if (size < sizeof *layout) return CUBLAS_STATUS_ALLOC_FAILED;
    *layout = {};
    auto* const state = reinterpret_cast<Layout*>(layout);
    *state = {kLayout, static_cast<std::uint32_t>(type), CUBLASLT_ORDER_COL, 1, rows, columns, ld,
              0};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, std::size_t size) {
    auto* const to = state<Layout>(layout, kLayout);
    if (to == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    switch (attribute) {
        case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
            return assign(to->batches, value, size);
        case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
            return assign(to->stride, value, size);
        default:
            return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t operation, std::size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
    if (size < sizeof *operation) return CUBLAS_STATUS_ALLOC_FAILED;
    *operation = {};
    auto* const state = reinterpret_cast<Operation*>(operation);
    state->magic = kOperation;
    state->compute = compute, state->scale = scale;
    state->transpose_a = state->transpose_b = CUBLAS_OP_N;
    state->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t size) {
    auto* const to = state<Operation>(operation, kOperation);
    if (to == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    switch (attribute) {
        case CUBLASLT_MATMUL_DESC_TRANSA:
            return assign(to->transpose_a, value, size);
        case CUBLASLT_MATMUL_DESC_TRANSB:
            return assign(to->transpose_b, value, size);
        case CUBLASLT_MATMUL_DESC_POINTER_MODE:
            return assign(to->pointer_mode, value, size);
        case CUBLASLT_MATMUL_DESC_EPILOGUE:
            return assign(to->epilogue, value, size);
        case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
            return assign(to->a_scale, value, size);
        case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
            return assign(to->b_scale, value, size);
        case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
            return assign(to->fast_accumulation, value, size);
        case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
            return assign(to->bias, value, size);
        case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
            return assign(to->bias_stride, value, size);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
            return assign(to->aux, value, size);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
            return assign(to->aux_ld, value, size);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
            return assign(to->aux_stride, value, size);
        default:
            return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference,
                                                     std::size_t size) {
    if (size < sizeof *preference) return CUBLAS_STATUS_ALLOC_FAILED;
    *preference = {};
    auto* const state = reinterpret_cast<Preference*>(preference);
    *state = {kPreference, CUBLASLT_REDUCTION_SCHEME_MASK, 0, {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t size) {
    auto* const to = state<Preference>(preference, kPreference);
    if (to == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    switch (attribute) {
        case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
            return assign(to->workspace, value, size);
        case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
            return assign(to->schemes, value, size);
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
            return assign(to->alignment[0], value, size);
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
            return assign(to->alignment[1], value, size);
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
            return assign(to->alignment[2], value, size);
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
            return assign(to->alignment[3], value, size);
        default:
            return CUBLAS_STATUS_INVALID_VALUE;
    }
}

// Algorithms remember in their bits which alignment they count on.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* returned) {
    const auto* const wish = state<Preference>(preference, kPreference);
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (wish == nullptr || requested <= 0) return CUBLAS_STATUS_INVALID_VALUE;
    *returned = 0;
    const cublasStatus_t status = check(shapes_of(operation, a, b, c, d));
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    for (std::uint64_t id = 0; id < kAlgos && *returned < requested; ++id) {
        if (workspace_of(id) > wish->workspace) continue;
        cublasLtMatmulHeuristicResult_t& result = results[(*returned)++];
        result = {};
        result.algo.data[0] = kAlgo, result.algo.data[1] = id;
        for (int i = 0; i < 4; ++i) result.algo.data[2 + i] = wish->alignment[i];
        result.workspaceSize = workspace_of(id);
        result.state = CUBLAS_STATUS_SUCCESS;
        result.wavesCount = 1;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algo,
                                       cublasLtMatmulHeuristicResult_t* result) {
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (algo->data[0] != kAlgo || algo->data[1] >= kAlgos) return CUBLAS_STATUS_INVALID_VALUE;
    *result = {};
    result->algo = *algo;
    result->state = check(shapes_of(operation, a, b, c, d));
    result->workspaceSize = workspace_of(algo->data[1]);
    result->wavesCount = 1;
    return result->state;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, std::size_t workspace_size, cudaStream_t stream) {
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
    const Shapes s = shapes_of(operation, a_layout, b_layout, c_layout, d_layout);
    const cublasStatus_t status = check(s);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (algo == nullptr || algo->data[0] != kAlgo || algo->data[1] >= kAlgos)
        return CUBLAS_STATUS_INVALID_VALUE;
    const std::size_t needed = workspace_of(algo->data[1]);
    if (workspace_size < needed ||
        (needed > 0 && (workspace == nullptr || !is_aligned(workspace, 16))))
        return CUBLAS_STATUS_INVALID_VALUE;
    const void* const pointers[] = {a, b, c, d};
    for (int i = 0; i < 4; ++i)
        if (!is_aligned(pointers[i], static_cast<std::size_t>(algo->data[2 + i])))
            return CUBLAS_STATUS_INVALID_VALUE;
    // In place means the same matrix.
    if (c == d && (s.c->ld != s.d->ld || s.c->stride != s.d->stride))
        return CUBLAS_STATUS_INVALID_VALUE;

    const bool wide = s.operation->scale == CUDA_R_64F;
    const auto scalar = [&](const void* p) {
        return wide ? *static_cast<const double*>(p) : double{*static_cast<const float*>(p)};
    };
    const Job job = {*s.operation,
                     *s.a,
                     *s.b,
                     *s.c,
                     *s.d,
                     static_cast<const char*>(a),
                     static_cast<const char*>(b),
                     static_cast<const char*>(c),
                     static_cast<char*>(d),
                     scalar(alpha),
                     scalar(beta)};
    axle::kernels::simulator::start(stream, {1, 1, 1}, 1, 0, std::source_location::current(),
                                    [job, workspace, needed] {
                                        if (needed > 0) std::memset(workspace, 0xff, needed);
                                        job();
                                    });
    return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
