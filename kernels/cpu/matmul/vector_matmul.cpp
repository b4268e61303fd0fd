// Products that use each matrix element once (M or N is 1), so that reading the matrix limits their
// speed. The matrix is read without packing, in memory order. If its elements are closer together
// along the depth than along the output, each output is the dot product of a line and the vector.
// Otherwise, each line along the output is multiplied by an element of the vector, and the products
// are added, four lines at a time.
#include <algorithm>
#include <cstdlib>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/matmul/gemm.h"
#include "kernels/walk.h"

namespace axle::kernels {
namespace {

// A task computes a range of outputs. kTaskElements is the approximate number of matrix elements
// that a task reads, and kMaxOutputs is the maximum number of outputs in a range.
constexpr std::int64_t kTaskElements = 65536;
constexpr std::int64_t kMaxOutputs = 1024;
// The maximum number of terms per call of dot(). The buffer for the converted lines of dot products
// has at least this size.
constexpr std::int64_t kDepth = 2048;

// Computes out[o] = sum over p < depth of matrix[o, p] x[p], for a range of outputs.
template <class T>
void dot_products(const Lines& matrix, const T* x, std::int64_t outputs, std::int64_t depth, T* out,
                  T* buffer) {
    for (std::int64_t o = 0; o < outputs; ++o) {
        T sum = 0;
        for (std::int64_t p = 0; p < depth; p += kDepth) {
            const std::int64_t n = std::min(kDepth, depth - p);
            const T* line = load_lanes<T>(
                at(matrix.data, matrix.dtype, o * matrix.stride + p * matrix.depth_stride),
                matrix.dtype, matrix.depth_stride, n, buffer);
            sum += gemm_kernels<T>().dot(line, x + p, n);
        }
        out[o] = sum;
    }
}

template <class T>
void sum_lines(const Lines& matrix, const T* x, std::int64_t outputs, std::int64_t depth, T* out,
               T* buffer) {
    std::fill(out, out + outputs, T(0));
    const auto line = [&](std::int64_t p, std::int64_t r) {
        return load_lanes<T>(at(matrix.data, matrix.dtype, (p + r) * matrix.depth_stride),
                             matrix.dtype, matrix.stride, outputs, buffer + r * outputs);
    };
    std::int64_t p = 0;
    for (; p + 4 <= depth; p += 4) {
        const T* const lines[] = {line(p, 0), line(p, 1), line(p, 2), line(p, 3)};
        gemm_kernels<T>().add_rows(lines, x + p, out, outputs);
    }
    for (; p < depth; ++p) {
        const T* rest = line(p, 0);
        for (std::int64_t o = 0; o < outputs; ++o) out[o] += x[p] * rest[o];
    }
}

// Applies the epilogue, except for slope_of, to a range of sums and stores the results. c_stride
// and pre_stride are the distances between adjacent outputs, in elements.
template <class T>
void finish_range(T* sums, std::int64_t n, const T* bias, const MatmulEpilogue& epilogue,
                  const View& c, void* c_data, std::int64_t c_stride, void* pre_data,
                  std::int64_t pre_stride, T* buffer) {
    TileFinish<T> how;
    if (epilogue.accumulate) how.add = load_lanes<T>(c_data, c.dtype, c_stride, n, buffer);
    how.bias = bias;
    if (epilogue.slope_of.data == nullptr) how.activation = epilogue.activation;
    if (pre_data != nullptr) how.pre = buffer;
    how.out = sums;
    finish_tile<T>(sums, n, 1, n, how);
    if (pre_data != nullptr) store_lanes(buffer, pre_data, c.dtype, pre_stride, n);
    store_lanes(sums, c_data, c.dtype, c_stride, n);
}

template <class T>
void run(Cpu& on, const ConstView& a, const ConstView& b, const View& c,
         const MatmulEpilogue& epilogue) {
    const bool is_row = c.back(2) == 1;
    const ConstView& matrix = is_row ? b : a;
    const ConstView& vector = is_row ? a : b;
    const View& pre = epilogue.pre;
    const int out_dim = is_row ? 1 : 2;  // dimension of c along the output, counted from the end
    const std::int64_t depth = a.back(1), outputs = c.back(out_dim);
    const std::int64_t stride = matrix.back_stride(out_dim);
    const std::int64_t depth_stride = matrix.back_stride(3 - out_dim);
    const std::int64_t vector_stride = vector.back_stride(out_dim);
    const bool along = std::abs(depth_stride) < std::abs(stride);
    std::int64_t batches = 1;
    for (int d = 0; d + 2 < c.ndim; ++d) batches *= c.shape[d];

    const std::int64_t range =
        std::min(outputs, std::clamp<std::int64_t>(kTaskElements / std::max<std::int64_t>(depth, 1),
                                                   along ? 64 : 256, kMaxOutputs));
    const std::int64_t ranges = divide_up(outputs, range);
    const std::int64_t group =
        std::max<std::int64_t>(1, kTaskElements / 2 / (range * std::max<std::int64_t>(depth, 1)));
    const std::int64_t slots = slots_for(batches * ranges, group);

    Scratch scratch(on);
    const std::int64_t buffer_size = std::max(along ? kDepth : 4 * range, range);
    const std::int64_t slot_size = round_up(depth, 16) + round_up(range, 16) + buffer_size;
    T* const memory = scratch.take<T>(slots * slot_size);
    // If c has a single column, all its elements have the same bias.
    const T* bias = nullptr;
    if (epilogue.bias.data != nullptr) {
        T* values = scratch.take<T>(outputs);
        bias = load_lanes<T>(epilogue.bias.data, epilogue.bias.dtype,
                             is_row ? epilogue.bias.back_stride(1) : 0, outputs, values);
    }
    parallel_slots(batches * ranges, group, slots, [&](std::int64_t task, std::int64_t slot) {
        const std::int64_t batch = task / ranges;
        const std::int64_t begin = task % ranges * range;
        const std::int64_t n = std::min(range, outputs - begin);
        T* const x_buffer = memory + slot * slot_size;
        T* const sums = x_buffer + round_up(depth, 16);
        T* const buffer = sums + round_up(range, 16);
        const T* x = load_lanes<T>(at(vector.data, vector.dtype, matrix_offset(vector, c, batch)),
                                   vector.dtype, vector_stride, depth, x_buffer);
        const std::int64_t start = matrix_offset(matrix, c, batch) + begin * stride;
        const Lines lines = {at(matrix.data, matrix.dtype, start), matrix.dtype, stride,
                             depth_stride};
        (along ? dot_products<T> : sum_lines<T>)(lines, x, n, depth, sums, buffer);
        const std::int64_t c_stride = c.back_stride(out_dim);
        void* c_data = at(c.data, c.dtype, matrix_offset(c, c, batch) + begin * c_stride);
        const std::int64_t pre_stride = pre.data == nullptr ? 0 : pre.back_stride(out_dim);
        void* pre_data =
            pre.data == nullptr
                ? nullptr
                : at(pre.data, pre.dtype, matrix_offset(pre, c, batch) + begin * pre_stride);
        finish_range(sums, n, bias == nullptr ? nullptr : bias + begin, epilogue, c, c_data,
                     c_stride, pre_data, pre_stride, buffer);
        const ConstView& s = epilogue.slope_of;
        if (s.data == nullptr) return;
        const std::int64_t s_stride = s.back_stride(out_dim);
        multiply_slopes(epilogue.activation, c.dtype, c_data, c_stride,
                        at(s.data, s.dtype, matrix_offset(s, c, batch) + begin * s_stride),
                        s_stride, n);
    });
}

}  // namespace

void vector_matmul(Cpu& on, const ConstView& a, const ConstView& b, const View& c,
                   const MatmulEpilogue& epilogue) {
    if (a.dtype == DType::f64 || c.dtype == DType::f64) return run<double>(on, a, b, c, epilogue);
    run<float>(on, a, b, c, epilogue);
}

}  // namespace axle::kernels
