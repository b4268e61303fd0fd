#include "tools/axle/bench/library.h"

#include "kernels/cpu/targets.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <limits>

#include <dlfcn.h>

#include "core/autograd/autograd.h"
#include "core/files/file.h"
#include "core/ops.h"
#include "kernels/error.h"
#include "kernels/shared_library.h"

namespace axle::bench {
namespace {

namespace fs = std::filesystem;

static_assert(AXLE_F64 == static_cast<int>(DType::f64) &&
              AXLE_F32 == static_cast<int>(DType::f32) &&
              AXLE_F16 == static_cast<int>(DType::f16) &&
              AXLE_BF16 == static_cast<int>(DType::bf16) &&
              AXLE_I64 == static_cast<int>(DType::i64) && AXLE_I32 == static_cast<int>(DType::i32));
static_assert(sizeof(AxleKernelView::shape) == sizeof(ConstView::shape));

constexpr const char* kEntry = "axle_kernel_library";

AxleKernelView view_of(const Tensor& x) {
    const ConstView view = x.view();
    AxleKernelView result = {};
    result.data = const_cast<void*>(view.data);
    result.dtype = static_cast<std::int32_t>(view.dtype);
    result.ndim = view.ndim;
    std::copy_n(view.shape, view.ndim, result.shape);
    std::copy_n(view.stride, view.ndim, result.stride);
    return result;
}

// Returns a function of a library, or nullptr.
template <class F>
F function_of(void* library, const char* name) {
    return reinterpret_cast<F>(dlsym(library, name));
}

struct OpenedFile {
    void* handle = nullptr;
    std::string place;  // the name or path, or the reason why it was not opened
};
// Opens the first library that can be opened, in the folders of AXLE_LIBRARY_PATH and then in the
// folders of the system.
OpenedFile open_first(const std::vector<std::string>& names) {
    std::vector<std::string> files;
    for (const std::string& folder : kernels::library_folders())
        for (const std::string& name : names) files.push_back(folder + "/" + name);
    files.insert(files.end(), names.begin(), names.end());
    std::string reasons;
    for (const std::string& file : files) {
        const kernels::OpenedLibrary opened = kernels::open_library(file);
        if (opened.handle != nullptr) return {opened.handle, file};
        if (!opened.error.empty()) reasons += (reasons.empty() ? "" : "; ") + opened.error;
    }
    return {nullptr, reasons.empty() ? "not installed: " + names[0] : reasons};
}

// An operand of a product as BLAS describes it. valid is false if BLAS does not support its strides
// or sizes.
struct BlasMatrix {
    bool valid = false, transposed = false;
    std::int64_t leading = 0;
};
BlasMatrix blas_matrix(const AxleKernelView& view) {
    const std::int64_t rows = view.shape[0], columns = view.shape[1];
    if (view.ndim != 2 || std::max(rows, columns) > std::numeric_limits<int>::max()) return {};
    if (view.stride[1] == 1) return {true, false, std::max(view.stride[0], columns)};
    if (view.stride[0] == 1) return {true, true, std::max(view.stride[1], rows)};
    return {};
}

struct BlasProduct {
    BlasMatrix a, b;
    std::int64_t m, n, k;
    bool valid;
};
BlasProduct blas_product(const AxleKernelCall& call) {
    const BlasMatrix a = blas_matrix(call.inputs[0]), b = blas_matrix(call.inputs[1]);
    return {.a = a,
            .b = b,
            .m = call.inputs[0].shape[0],
            .n = call.inputs[1].shape[1],
            .k = call.inputs[0].shape[1],
            .valid = a.valid && b.valid};
}

template <class T>
using Gemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, T alpha, const T* a,
                      int lda, const T* b, int ldb, T beta, T* c, int ldc);

template <class T>
void multiply(Gemm<T> gemm, const BlasProduct& p, const AxleKernelCall& call) {
    constexpr int kRowMajor = 101, kNoTrans = 111, kTrans = 112;
    gemm(kRowMajor, p.a.transposed ? kTrans : kNoTrans, p.b.transposed ? kTrans : kNoTrans,
         static_cast<int>(p.m), static_cast<int>(p.n), static_cast<int>(p.k), T(1),
         static_cast<const T*>(call.inputs[0].data), static_cast<int>(p.a.leading),
         static_cast<const T*>(call.inputs[1].data), static_cast<int>(p.b.leading), T(0),
         static_cast<T*>(call.outputs[0].data), static_cast<int>(p.n));
}

void add_openblas(FoundLibraries& found) {
    const OpenedFile library = open_first({"libopenblas.so.0", "libopenblas.so"});
    found.places.emplace_back("openblas", library.place);
    if (library.handle == nullptr) return;
    const auto single = function_of<Gemm<float>>(library.handle, "cblas_sgemm");
    const auto twice = function_of<Gemm<double>>(library.handle, "cblas_dgemm");
    const auto set_threads = function_of<void (*)(int)>(library.handle, "openblas_set_num_threads");
    if (single == nullptr || twice == nullptr || set_threads == nullptr) {
        found.places.back().second += ": it has no C interface with 32-bit integers";
        return;
    }
    found.kernels.push_back({"matmul", "openblas", [=](const AxleKernelCall& call) -> std::int32_t {
                                 const BlasProduct p = blas_product(call);
                                 const std::int32_t dtype = call.inputs[0].dtype;
                                 if (!p.valid || (dtype != AXLE_F32 && dtype != AXLE_F64)) return 1;
                                 set_threads(call.threads);
                                 if (dtype == AXLE_F32)
                                     multiply(single, p, call);
                                 else
                                     multiply(twice, p, call);
                                 return 0;
                             }});
}

// dnnl_sgemm() has the same signature in versions 1 to 3 of oneDNN.
void add_onednn(FoundLibraries& found) {
    using Sgemm = int (*)(char trans_a, char trans_b, std::int64_t m, std::int64_t n,
                          std::int64_t k, float alpha, const float* a, std::int64_t lda,
                          const float* b, std::int64_t ldb, float beta, float* c, std::int64_t ldc);
    const OpenedFile library =
        open_first({"libdnnl.so.3", "libdnnl.so.2", "libdnnl.so.1", "libdnnl.so"});
    found.places.emplace_back("onednn", library.place);
    if (library.handle == nullptr) return;
    const auto sgemm = function_of<Sgemm>(library.handle, "dnnl_sgemm");
    // The library's dependencies contain this function if it was built with OpenMP.
    const auto set_threads = function_of<void (*)(int)>(library.handle, "omp_set_num_threads");
    if (sgemm == nullptr || set_threads == nullptr) {
        found.places.back().second += ": it has no dnnl_sgemm or was not built with OpenMP";
        return;
    }
    found.kernels.push_back(
        {"matmul", "onednn", [=](const AxleKernelCall& call) -> std::int32_t {
             const BlasProduct p = blas_product(call);
             if (!p.valid || call.inputs[0].dtype != AXLE_F32) return 1;
             set_threads(call.threads);
             return sgemm(p.a.transposed ? 'T' : 'N', p.b.transposed ? 'T' : 'N', p.m, p.n, p.k, 1,
                          static_cast<const float*>(call.inputs[0].data), p.a.leading,
                          static_cast<const float*>(call.inputs[1].data), p.b.leading, 0,
                          static_cast<float*>(call.outputs[0].data), p.n);
         }});
}

// Returns the kernels of a library that is open, or throws UsageError.
std::vector<OtherKernel> kernels_in(void* library, const std::string& path) {
    const auto entry = function_of<AxleKernelLibraryEntry>(library, kEntry);
    if (entry == nullptr)
        throw UsageError(
            str("bench: the library exports no function ", kEntry, ": ", in_quotes(path)));
    const AxleKernelLibrary* const table = entry(AXLE_KERNEL_LIBRARY_VERSION);
    if (table == nullptr || table->version != AXLE_KERNEL_LIBRARY_VERSION)
        throw UsageError(str("bench: expected version ", AXLE_KERNEL_LIBRARY_VERSION,
                             " of the interface: ", in_quotes(path), " has ",
                             table == nullptr ? "another version" : str("version ", table->version),
                             "; compile it with this version of Axle"));
    std::vector<OtherKernel> kernels;
    for (std::uint32_t i = 0; i < table->kernel_count; ++i) {
        const AxleKernel& kernel = table->kernels[i];
        if (kernel.kernel == nullptr || kernel.name == nullptr || kernel.run == nullptr)
            throw UsageError(
                str("bench: kernel, name and run of a kernel must not be null: kernel ", i, " of ",
                    in_quotes(path)));
        if (!kernel_named(kernel.kernel).replaceable)
            throw UsageError(str("bench: the library ", in_quotes(path), " contains a kernel for ",
                                 kernel.kernel,
                                 ", which can only be measured in Axle; remove it from the "
                                 "library"));
        kernels.push_back({kernel.kernel, printable(kernel.name),
                           [run = kernel.run](const AxleKernelCall& call) { return run(&call); }});
    }
    return kernels;
}

void add_eigen(FoundLibraries& found) {
    // The AVX-512 targets with and without bf16 products share one library.
    const std::string target = kernels::cpu_target() == 2 ? "avx512" : kernels::cpu_target_name();
    const std::string name = str("libaxle_eigen_", target, ".so");
    for (const std::string& folder : kernels::own_library_folders()) {
        const std::string path = folder + "/" + name;
        const kernels::OpenedLibrary opened = kernels::open_library(path);
        if (opened.handle == nullptr && opened.error.empty()) continue;
        found.places.emplace_back("eigen", opened.error.empty() ? path : opened.error);
        if (opened.handle == nullptr) return;
        for (OtherKernel& kernel : kernels_in(opened.handle, path))
            found.kernels.push_back(std::move(kernel));
        return;
    }
    found.places.emplace_back("eigen", "not built: Axle was built without Eigen (libeigen3-dev)");
}

}  // namespace

FoundLibraries find_libraries(const std::vector<std::string>& names) {
    // Threads of OpenMP that poll for work would disturb the measurements of other libraries.
    ::setenv("OMP_WAIT_POLICY", "passive", 0);
    FoundLibraries found;
    const auto wanted = [&](const char* name) { return std::ranges::count(names, name) > 0; };
    if (wanted("eigen")) add_eigen(found);
    if (wanted("openblas")) add_openblas(found);
    if (wanted("onednn")) add_onednn(found);
    return found;
}

std::vector<OtherKernel> open_kernel_library(const std::string& path) {
    const std::string file = fs::absolute(path).string();
    const kernels::OpenedLibrary opened = kernels::open_library(file);
    if (!opened.error.empty())
        throw FileError(str("bench: the library cannot be opened: ", printable(opened.error)));
    if (opened.handle == nullptr)
        throw FileError(str("bench: the library does not exist: ", in_quotes(path)));
    std::vector<OtherKernel> kernels = kernels_in(opened.handle, path);
    for (OtherKernel& kernel : kernels) kernel.named = true;
    return kernels;
}

OtherCall::OtherCall(const OtherKernel& kernel, const Problem& problem)
    : kernel_(kernel), problem_(problem) {
    for (const Tensor& x : problem.inputs) inputs_.push_back(view_of(x));
    for (const Tensor& x : problem.outputs) outputs_.push_back(view_of(x));
}

std::int32_t OtherCall::operator()(int threads) {
    const AxleKernelCall call = {
        .inputs = inputs_.data(),
        .outputs = outputs_.data(),
        .integers = problem_.integers.data(),
        .numbers = problem_.numbers.data(),
        .input_count = static_cast<std::int32_t>(inputs_.size()),
        .output_count = static_cast<std::int32_t>(outputs_.size()),
        .integer_count = static_cast<std::int32_t>(problem_.integers.size()),
        .number_count = static_cast<std::int32_t>(problem_.numbers.size()),
        .threads = threads,
    };
    return kernel_.run(call);
}

std::vector<Tensor> outputs_of(const Problem& problem) {
    std::vector<Tensor> copies;
    for (const Tensor& x : problem.outputs) copies.push_back(x.clone());
    return copies;
}

void clear_outputs(Problem& problem) {
    for (Tensor& x : problem.outputs)
        x.fill_(is_floating(x.dtype()) ? std::numeric_limits<double>::quiet_NaN() : -1.0);
}

double difference(const Problem& problem, const std::vector<Tensor>& expected) {
    double largest = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const Tensor wanted = expected[i].to(f64);
        const double scale = std::max(abs(wanted).max().item(), 1e-30);
        const double found = abs(problem.outputs[i].to(f64) - wanted).max().item() / scale;
        if (std::isnan(found)) return found;
        largest = std::max(largest, found);
    }
    return largest;
}

double tolerance(DType dtype) {
    if (dtype == f64) return 1e-9;
    return is_half(dtype) ? 0.05 : 1e-3;
}

}  // namespace axle::bench
