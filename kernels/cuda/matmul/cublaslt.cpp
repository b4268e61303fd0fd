#include "kernels/cuda/matmul/cublaslt.h"

#include <mutex>
#include <set>

#include "kernels/cuda/library.h"

namespace axle::kernels {
namespace {

struct Opened {
    Library library{"cuBLASLt", "libcublasLt", CUBLAS_VER_MAJOR};
    CublasLt functions = {};
    std::string error;

    Opened() : error(library.error()) {
        if (!library.found()) return;
        CublasLt& f = functions;
        try {
            library.bind("cublasLtGetVersion", f.version);
            library.bind("cublasLtGetStatusName", f.status_name);
            library.bind("cublasLtCreate", f.create);
            library.bind("cublasLtMatrixLayoutInit_internal", f.init_layout);
            library.bind("cublasLtMatrixLayoutSetAttribute", f.set_layout);
            library.bind("cublasLtMatmulDescInit_internal", f.init_operation);
            library.bind("cublasLtMatmulDescSetAttribute", f.set_operation);
            library.bind("cublasLtMatmulPreferenceInit_internal", f.init_preference);
            library.bind("cublasLtMatmulPreferenceSetAttribute", f.set_preference);
            library.bind("cublasLtMatmulAlgoGetHeuristic", f.heuristic);
            library.bind("cublasLtMatmulAlgoCheck", f.check_algo);
            library.bind("cublasLtMatmul", f.matmul);
        } catch (const CudaError& failure) {
            error = failure.what();
        }
    }
};

const Opened& opened() {
    static const auto* const instance = new Opened;
    return *instance;
}

}  // namespace

const CublasLt* cublaslt() { return opened().error.empty() ? &opened().functions : nullptr; }

const std::string& cublaslt_error() { return opened().error; }

void report_no_algorithm() {
    static std::mutex mutex;
    static auto* const reported = new std::set<std::string>;
    const std::lock_guard lock(mutex);
    if (reported->insert(current_op).second)
        add_library_warning(str(current_op,
                                ": cuBLASLt has no algorithm for some calls; using Axle's own "
                                "kernels"));
}

void CublasLt::check(cublasStatus_t status, const char* what, std::source_location at) const {
    if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
        throw CudaError(str(current_op, ": ", what, " failed: ", status_name(status), ", at ",
                            at.file_name(), ":", at.line()));
}

cudaDataType_t cuda_type(DType t) {
    switch (t) {
        case DType::f64:
            return CUDA_R_64F;
        case DType::f16:
            return CUDA_R_16F;
        case DType::bf16:
            return CUDA_R_16BF;
        case DType::f8_e4m3:
            return CUDA_R_8F_E4M3;
        case DType::f8_e5m2:
            return CUDA_R_8F_E5M2;
        default:
            return CUDA_R_32F;
    }
}

}  // namespace axle::kernels
