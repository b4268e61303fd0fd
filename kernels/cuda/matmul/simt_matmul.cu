// Computes c = a b without tensor cores or libraries. Used if cuBLASLt is missing or does not
// support the product, for example of integers or with an empty depth. Also applies epilogues to
// sums.
//
// A block computes 64 x 64 elements of c, and each thread computes 4 x 4 of them in registers.
// Tiles of a and b, 16 deep, are stored in shared memory in the type of the sums. Memory is read in
// the direction in which an operand is contiguous. Every element of a is read once per 64 columns
// of c, and every element of b once per 64 rows. The terms of an element are added one after
// another.
#include <algorithm>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/matmul/simt_matmul.h"
#include "kernels/cuda/start.cuh"
#include "kernels/cuda/visit.cuh"
#include "kernels/ops/pointwise.h"

namespace axle::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = 64;   // rows and columns per block
constexpr int kDepth = 16;  // depth of the tiles in shared memory
constexpr int kEach = 4;    // rows and columns per thread
constexpr int kAcross = kTile / kEach;
constexpr int kMaxBatchDims = kMaxDims - 2;

// An operand with its strides in elements: from row to row, from column to column, and along each
// batch dimension.
struct Operand {
    char* data = nullptr;
    DType dtype = DType::f32;
    std::int64_t row = 0, column = 0, batch[kMaxBatchDims] = {};

    Operand() = default;
    template <class V>
    explicit Operand(const V& v)
        : data(static_cast<char*>(const_cast<void*>(static_cast<const void*>(v.data)))),
          dtype(v.dtype) {
        if (data == nullptr) return;
        row = v.back_stride(2), column = v.back_stride(1);
        for (int d = 0; d + 2 < v.ndim; ++d) batch[d] = v.stride[d];
    }
};

struct Problem {
    Operand a, b, c, bias, addend;
    Operand aux;  // the operand pre or slope_of
    std::int64_t rows = 0, columns = 0, depth = 0, row_tiles = 0;
    std::int64_t batches = 1, batch_shape[kMaxBatchDims] = {};
    int batch_dims = 0;
    Activation activation = Activation::none;
    bool slopes = false;  // true if aux is slope_of

    __device__ std::int64_t batch_start(const Operand& operand, std::int64_t batch) const {
        std::int64_t start = 0;
        for (int d = batch_dims - 1; d >= 0; --d) {
            start += batch % batch_shape[d] * operand.batch[d];
            batch /= batch_shape[d];
        }
        return start;
    }
};

// Returns element i of an operand, converted to Sum. In is the type of integer elements; for
// floating elements, In is ignored and the type is from.dtype.
template <class In, class Sum>
__device__ inline Sum load_as(const Operand& from, std::int64_t i) {
    if constexpr (std::is_integral_v<Sum>) {
        return static_cast<Sum>(reinterpret_cast<const In*>(from.data)[i]);
    } else {
        switch (from.dtype) {
            case DType::f64:
                return static_cast<Sum>(reinterpret_cast<const double*>(from.data)[i]);
            case DType::f16:
                return static_cast<float>(reinterpret_cast<const Half*>(from.data)[i]);
            case DType::bf16:
                return static_cast<float>(reinterpret_cast<const BFloat16*>(from.data)[i]);
            default:
                return reinterpret_cast<const float*>(from.data)[i];
        }
    }
}
template <class In, class Sum>
__device__ inline void store_as(const Operand& to, std::int64_t i, Sum x) {
    if constexpr (std::is_integral_v<Sum>) {
        reinterpret_cast<In*>(to.data)[i] = static_cast<In>(x);
    } else {
        switch (to.dtype) {
            case DType::f64:
                reinterpret_cast<double*>(to.data)[i] = x;
                return;
            case DType::f16:
                reinterpret_cast<Half*>(to.data)[i] = convert<Half>(x);
                return;
            case DType::bf16:
                reinterpret_cast<BFloat16*>(to.data)[i] = convert<BFloat16>(x);
                return;
            default:
                reinterpret_cast<float*>(to.data)[i] = static_cast<float>(x);
        }
    }
}

template <class Sum>
__device__ inline Sum activate(Activation activation, Sum x) {
    if constexpr (std::is_floating_point_v<Sum>) {
        if (activation != Activation::none)
            return formula::visit_activation(activation, [x](auto f) { return f.value(x); });
    }
    return x;
}
template <class Sum>
__device__ inline Sum slope(Activation activation, Sum x) {
    if constexpr (std::is_floating_point_v<Sum>) {
        if (activation != Activation::none)
            return formula::visit_activation(activation, [x](auto f) { return f.slope(x); });
    }
    return Sum(1);
}

// A tile in shared memory. Its lines are two elements longer than the tile, so that threads that
// write along the depth use different banks.
template <class Sum>
using SharedTile = Sum[kDepth][kTile + 2];

// Loads lines [line, line + kTile) of an operand (rows of a, or columns of b), starting at position
// `depth` of each line. Elements outside of the operand are zero.
template <class In, class Sum>
__device__ inline void load_tile(const In* from, std::int64_t line_stride,
                                 std::int64_t depth_stride, std::int64_t line, std::int64_t lines,
                                 std::int64_t depth, std::int64_t depths, SharedTile<Sum>& to) {
    const int thread = static_cast<int>(threadIdx.x);
    const bool along_depth = depth_stride == 1;
#pragma unroll
    for (int i = 0; i < kTile * kDepth / kThreads; ++i) {
        const int at = thread + i * kThreads;
        const int p = along_depth ? at % kDepth : at / kTile;
        const int q = along_depth ? at / kDepth : at % kTile;
        Sum x = 0;
        if (line + q < lines && depth + p < depths)
            x = static_cast<Sum>(from[(line + q) * line_stride + (depth + p) * depth_stride]);
        to[p][q] = x;
    }
}

template <class In, class Sum>
__global__ void __launch_bounds__(kThreads) multiply(Problem problem) {
    __shared__ SharedTile<Sum> a_tile, b_tile;
    const std::int64_t row = blockIdx.x % problem.row_tiles * kTile;
    const std::int64_t column = blockIdx.x / problem.row_tiles * kTile;
    const int x = static_cast<int>(threadIdx.x) % kAcross;
    const int y = static_cast<int>(threadIdx.x) / kAcross;
    for (std::int64_t batch = blockIdx.z; batch < problem.batches; batch += gridDim.z) {
        const In* const a =
            reinterpret_cast<const In*>(problem.a.data) + problem.batch_start(problem.a, batch);
        const In* const b =
            reinterpret_cast<const In*>(problem.b.data) + problem.batch_start(problem.b, batch);
        Sum sums[kEach][kEach] = {};
        for (std::int64_t depth = 0; depth < problem.depth; depth += kDepth) {
            load_tile<In, Sum>(a, problem.a.row, problem.a.column, row, problem.rows, depth,
                               problem.depth, a_tile);
            load_tile<In, Sum>(b, problem.b.column, problem.b.row, column, problem.columns, depth,
                               problem.depth, b_tile);
            __syncthreads();
#pragma unroll
            for (int p = 0; p < kDepth; ++p) {
                Sum left[kEach], right[kEach];
#pragma unroll
                for (int i = 0; i < kEach; ++i) left[i] = a_tile[p][y + i * kAcross];
#pragma unroll
                for (int j = 0; j < kEach; ++j) right[j] = b_tile[p][x + j * kAcross];
#pragma unroll
                for (int i = 0; i < kEach; ++i)
#pragma unroll
                    for (int j = 0; j < kEach; ++j) sums[i][j] += left[i] * right[j];
            }
            __syncthreads();
        }

        const std::int64_t c_start = problem.batch_start(problem.c, batch);
        const std::int64_t aux_start = problem.batch_start(problem.aux, batch);
        const std::int64_t addend_start = problem.batch_start(problem.addend, batch);
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
#pragma unroll
            for (int j = 0; j < kEach; ++j) {
                const std::int64_t r = row + y + i * kAcross, q = column + x + j * kAcross;
                if (r >= problem.rows || q >= problem.columns) continue;
                const auto place = [&](const Operand& operand) {
                    return r * operand.row + q * operand.column;
                };
                Sum sum = sums[i][j];
                if (problem.addend.data != nullptr)
                    sum += load_as<In, Sum>(problem.addend, addend_start + place(problem.addend));
                if (problem.bias.data != nullptr)
                    sum += load_as<In, Sum>(problem.bias, place(problem.bias));
                const std::int64_t aux_at = aux_start + place(problem.aux);
                if (problem.slopes) {
                    sum *= slope(problem.activation, load_as<In, Sum>(problem.aux, aux_at));
                } else {
                    if (problem.aux.data != nullptr) store_as<In>(problem.aux, aux_at, sum);
                    sum = activate(problem.activation, sum);
                }
                store_as<In>(problem.c, c_start + place(problem.c), sum);
            }
        }
    }
}

std::int64_t magnitude(std::int64_t stride) { return stride < 0 ? -stride : stride; }

// Computes c = activation(a b + bias + addend), or (a b + bias + addend) times the activation's
// slope.
void run(Cuda& on, ConstView a, ConstView b, View c, const MatmulEpilogue& epilogue,
         ConstView addend) {
    if (c.numel() == 0) return;
    const bool slopes = epilogue.slope_of.data != nullptr;
    ConstView aux = slopes ? epilogue.slope_of : ConstView(epilogue.pre);
    Operand bias;
    if (epilogue.bias.data != nullptr) {
        ConstView row = epilogue.bias;
        row.ndim = 2;
        row.shape[1] = row.shape[0], row.stride[1] = row.stride[0], row.stride[0] = 0;
        bias = Operand(row);
    }
    // Adjacent threads write adjacent elements of a row of c, so rows should be contiguous in
    // memory.
    if (magnitude(c.back_stride(2)) < magnitude(c.back_stride(1))) {
        std::swap(a, b);
        a = transposed(a), b = transposed(b), c = transposed(c);
        if (aux.data != nullptr) aux = transposed(aux);
        if (addend.data != nullptr) addend = transposed(addend);
        std::swap(bias.row, bias.column);
    }

    Problem problem;
    problem.a = Operand(a), problem.b = Operand(b), problem.c = Operand(c);
    problem.aux = Operand(aux), problem.addend = Operand(addend), problem.bias = bias;
    problem.slopes = slopes;
    problem.rows = c.back(2), problem.columns = c.back(1), problem.depth = a.back(1);
    problem.row_tiles = (problem.rows + kTile - 1) / kTile;
    problem.batch_dims = c.ndim - 2;
    for (int d = 0; d + 2 < c.ndim; ++d) {
        problem.batch_shape[d] = c.shape[d];
        problem.batches *= c.shape[d];
    }
    problem.activation = epilogue.activation;

    const Grid grid = {problem.row_tiles * ((problem.columns + kTile - 1) / kTile), 1,
                       std::min<std::int64_t>(problem.batches, 65535)};
    switch (a.dtype) {
        case DType::f64:
            return start(on, {grid, kThreads}, &multiply<double, double>, problem);
        case DType::f32:
            return start(on, {grid, kThreads}, &multiply<float, float>, problem);
        case DType::f16:
            return start(on, {grid, kThreads}, &multiply<Half, float>, problem);
        case DType::bf16:
            return start(on, {grid, kThreads}, &multiply<BFloat16, float>, problem);
        case DType::i64:
            return start(on, {grid, kThreads}, &multiply<std::uint64_t, std::uint64_t>, problem);
        case DType::i32:
            return start(on, {grid, kThreads}, &multiply<std::uint32_t, std::uint32_t>, problem);
        default:
            return start(on, {grid, kThreads}, &multiply<std::uint8_t, std::uint32_t>, problem);
    }
}

}  // namespace

void simt_matmul(Cuda& on, ConstView a, ConstView b, View c, const MatmulEpilogue& epilogue) {
    DeviceScratch scratch(on);
    if (c.dtype == DType::f64) a = as_dtype(on, scratch, a, f64), b = as_dtype(on, scratch, b, f64);
    run(on, a, b, c, epilogue, epilogue.accumulate ? ConstView(c) : ConstView());
}

void finish_product(Cuda& on, ConstView sums, View c, const MatmulEpilogue& epilogue) {
    ConstView a = sums, b = sums;  // the product is empty, so the operands are not read
    a.shape[a.ndim - 1] = 0, b.shape[b.ndim - 2] = 0;
    run(on, a, b, c, epilogue, sums);
}

}  // namespace axle::kernels
