// A replacement for cuBLASLt on the simulated GPU: a shared library of the same name in a folder
// that AXLE_LIBRARY_PATH lists. It implements the documentation in cublasLt.h with plain loops on
// the simulated stream, and rejects the calls that NVIDIA's library rejects. The program that opens
// this library must export the simulator's functions (-rdynamic).
//
// It has three "algorithms", which differ only in the size of their workspace. The bits that
// describe them are valid for one version of the library only. AXLE_CUBLASLT_REFUSE is a mask of
// epilogues for which no algorithm is returned, to test how a program handles this case.
#include "tests/simulator/device.h"
// The header above must be first, because it redefines the keywords of CUDA.
#include <cstdint>
#include <cstring>

#include <cublasLt.h>

#include "tests/simulator/cublaslt_matmul.h"
#include "tests/simulator/runtime_state.h"

namespace {

using namespace axle::kernels::simulator::cublaslt;  // NOLINT(google-build-using-namespace)

constexpr std::uint64_t kAlgo = 0xa190'0001'0000'0000u + CUBLAS_VERSION;

template <class T>
cublasStatus_t assign(T& to, const void* from, std::size_t size) {
    if (from == nullptr || size != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&to, from, size);
    return CUBLAS_STATUS_SUCCESS;
}

Shapes shapes_of(const cublasLtMatmulDescOpaque_t* operation, const cublasLtMatrixLayoutOpaque_t* a,
                 const cublasLtMatrixLayoutOpaque_t* b, const cublasLtMatrixLayoutOpaque_t* c,
                 const cublasLtMatrixLayoutOpaque_t* d) {
    return {state<Operation>(operation, kOperation), state<Layout>(a, kLayout),
            state<Layout>(b, kLayout), state<Layout>(c, kLayout), state<Layout>(d, kLayout)};
}

// Returns the name under which calls_of() counts the calls of cublasLtMatmul with this compute
// type.
const char* counted_as(std::int32_t compute) {
    switch (compute) {
        case CUBLAS_COMPUTE_32F:
            return "cublasLtMatmul CUBLAS_COMPUTE_32F";
        case CUBLAS_COMPUTE_32F_FAST_TF32:
            return "cublasLtMatmul CUBLAS_COMPUTE_32F_FAST_TF32";
        case CUBLAS_COMPUTE_64F:
            return "cublasLtMatmul CUBLAS_COMPUTE_64F";
        default:
            return "cublasLtMatmul";
    }
}

constexpr std::uint64_t kAlgos = 3;
std::size_t workspace_of(std::uint64_t id) { return id * 4096; }

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

// The bits of each algorithm contain the alignments in the preference. cublasLtMatmul() compares
// them with the addresses of the matrices.
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
    // The heuristic ignores the alignment of the bias, but kernels access it 16 bytes at a time.
    if (s.operation->bias != nullptr && !is_aligned(s.operation->bias, 16))
        return CUBLAS_STATUS_INVALID_VALUE;
    // For an in-place product, both layouts must be the same.
    if (c == d && (s.c->ld != s.d->ld || s.c->stride != s.d->stride))
        return CUBLAS_STATUS_INVALID_VALUE;

    axle::kernels::simulator::count_call(counted_as(s.operation->compute));

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
