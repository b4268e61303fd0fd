// The library libaxle_eigen_<instruction set>.so: Eigen's products, sums, ReLU and softmax, for
// comparison in `axle bench`. Eigen chooses its instructions when it is compiled, so there is one
// library for each instruction set.
#include <cmath>
#include <cstdint>

#include <Eigen/Core>

#include "kernels/kernel_library.h"

namespace {

template <int Order>
using Map =
    Eigen::Map<Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Order>, Eigen::Aligned64>;
using Rows = Map<Eigen::RowMajor>;

// The codes of calls that are not supported. Without OpenMP, Eigen has one thread.
constexpr std::int32_t kDType = 1, kLayout = 2, kThreads = 3;

bool is_row_major(const AxleKernelView& x) { return x.stride[1] == 1 && x.stride[0] == x.shape[1]; }
bool is_column_major(const AxleKernelView& x) {
    return x.stride[0] == 1 && x.stride[1] == x.shape[0];
}

template <class Matrix>
Matrix map_of(const AxleKernelView& x) {
    return Matrix(static_cast<float*>(x.data), x.shape[0], x.shape[1]);
}

template <int OrderA, int OrderB>
void multiply(const AxleKernelCall& call) {
    map_of<Rows>(call.outputs[0]).noalias() =
        map_of<Map<OrderA>>(call.inputs[0]) * map_of<Map<OrderB>>(call.inputs[1]);
}

// Returns an error code, or sets the number of threads that products use and returns 0.
std::int32_t prepare(const AxleKernelCall& call) {
    if (call.inputs[0].dtype != AXLE_F32) return kDType;
    Eigen::setNbThreads(call.threads);
    return Eigen::nbThreads() < call.threads ? kThreads : 0;
}

std::int32_t matmul(const AxleKernelCall* call) {
    if (const std::int32_t code = prepare(*call); code != 0) return code;
    const AxleKernelView &a = call->inputs[0], &b = call->inputs[1];
    const bool rows_a = is_row_major(a), rows_b = is_row_major(b);
    if ((!rows_a && !is_column_major(a)) || (!rows_b && !is_column_major(b))) return kLayout;
    if (rows_a && rows_b)
        multiply<Eigen::RowMajor, Eigen::RowMajor>(*call);
    else if (rows_a)
        multiply<Eigen::RowMajor, Eigen::ColMajor>(*call);
    else if (rows_b)
        multiply<Eigen::ColMajor, Eigen::RowMajor>(*call);
    else
        multiply<Eigen::ColMajor, Eigen::ColMajor>(*call);
    return 0;
}

// Calls f(begin, end) for ranges of rows, on all threads.
template <class F>
void for_rows(const AxleKernelCall& call, F f) {
    const std::int64_t rows = call.inputs[0].shape[0];
#ifdef _OPENMP
#pragma omp parallel for num_threads(call.threads)
#endif
    for (std::int64_t part = 0; part < call.threads; ++part)
        f(rows * part / call.threads, rows * (part + 1) / call.threads);
}

std::int32_t check_rows(const AxleKernelCall& call) {
    for (std::int32_t i = 0; i < call.input_count; ++i)
        if (!is_row_major(call.inputs[i])) return kLayout;
    return prepare(call);
}

std::int32_t add(const AxleKernelCall* call) {
    if (const std::int32_t code = check_rows(*call); code != 0) return code;
    const auto a = map_of<Rows>(call->inputs[0]);
    const auto b = map_of<Rows>(call->inputs[1]);
    auto y = map_of<Rows>(call->outputs[0]);
    for_rows(*call, [&](std::int64_t begin, std::int64_t end) {
        y.middleRows(begin, end - begin).noalias() =
            a.middleRows(begin, end - begin) + b.middleRows(begin, end - begin);
    });
    return 0;
}

std::int32_t relu(const AxleKernelCall* call) {
    if (const std::int32_t code = check_rows(*call); code != 0) return code;
    const auto x = map_of<Rows>(call->inputs[0]);
    auto y = map_of<Rows>(call->outputs[0]);
    for_rows(*call, [&](std::int64_t begin, std::int64_t end) {
        y.middleRows(begin, end - begin).noalias() =
            x.middleRows(begin, end - begin).cwiseMax(0.0f);
    });
    return 0;
}

std::int32_t softmax(const AxleKernelCall* call) {
    if (const std::int32_t code = check_rows(*call); code != 0) return code;
    const auto x = map_of<Rows>(call->inputs[0]);
    auto y = map_of<Rows>(call->outputs[0]);
    for_rows(*call, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
            auto row = y.row(r).array();
            row = (x.row(r).array() - x.row(r).maxCoeff()).exp();
            row *= 1 / row.sum();
        }
    });
    return 0;
}

constexpr AxleKernel kKernels[] = {{"matmul", "eigen", matmul},
                                   {"add", "eigen", add},
                                   {"relu", "eigen", relu},
                                   {"softmax", "eigen", softmax}};
constexpr AxleKernelLibrary kLibrary = {AXLE_KERNEL_LIBRARY_VERSION, 4, kKernels};

}  // namespace

extern "C" [[gnu::visibility("default")]] const AxleKernelLibrary* axle_kernel_library(
    std::uint32_t version) {
    return version == AXLE_KERNEL_LIBRARY_VERSION ? &kLibrary : nullptr;
}
