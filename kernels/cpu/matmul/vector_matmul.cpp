// Products of a matrix with one vector (M or N is 1) or a few vectors (rows of a), so that reading
// the matrix limits their speed. The matrix is read once, without packing, in memory order. If its
// elements are closer together along the depth than along the output, each output is the dot
// product of a line and a vector. Otherwise, each line along the output is multiplied by an element
// of a vector, and the products are added, four lines at a time. The bits of a row of the result do
// not depend on the number of vectors.
#include <algorithm>
#include <cstdlib>
#include <type_traits>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/matmul/gemm.h"
#include "kernels/thread_pool.h"
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
// The number of elements from a line in bf16 to the elements that are prefetched.
constexpr std::int64_t kPrefetch = 2048;
// The same along the output, in lines.
constexpr std::int64_t kPrefetchedLines = 8;

// The vectors of a product, and the sums of a range of outputs for each of them.
template <class T>
struct Vectors {
    const T* x;  // [count][step]
    std::int64_t count, step;
    T* sums;  // [count][sums_step]
    std::int64_t sums_step;
};

// Calls call(kernel, m) for groups of vectors from m. `kernels` are for 1 to kMaxVectors vectors.
template <class T, class Kernel, class Call>
void for_vectors(const Kernel* kernels, const Vectors<T>& v, Call call) {
    constexpr std::int64_t kMax = GemmKernels<T>::kMaxVectors;
    for (std::int64_t m = 0; m < v.count; m += kMax)
        call(kernels[std::min(kMax, v.count - m) - 1], m);
}

// Computes sums[m][o] = sum over p < depth of matrix[o, p] x[m][p], for a range of outputs. load(o,
// p, n) returns n elements of line o, as a pointer to Stored.
template <class T, class Stored, class Load>
void dot_products(const typename GemmKernels<T>::template Dots<Stored>* dots, const Load& load,
                  std::int64_t ahead, const Vectors<T>& v, std::int64_t outputs,
                  std::int64_t depth) {
    for (std::int64_t o = 0; o < outputs; ++o) {
        T sum[kFewRows] = {};
        for (std::int64_t p = 0; p < depth; p += kDepth) {
            const std::int64_t n = std::min(kDepth, depth - p);
            const Stored* line = load(o, p, n);
            for_vectors(dots, v, [&](auto kernel, std::int64_t m) {
                kernel(line, ahead, v.x + m * v.step + p, v.step, n, sum + m);
            });
        }
        for (std::int64_t m = 0; m < v.count; ++m) v.sums[m * v.sums_step + o] = sum[m];
    }
}

// Computes the same. load(p, r) returns the line of the outputs at depth p + r, for r < 4.
template <class T, class Stored, class Load>
void sum_lines(const typename GemmKernels<T>::template AddRows<Stored>* add_rows, const Load& load,
               std::int64_t ahead, const Vectors<T>& v, std::int64_t outputs, std::int64_t depth) {
    for (std::int64_t m = 0; m < v.count; ++m)
        std::fill(v.sums + m * v.sums_step, v.sums + m * v.sums_step + outputs, T(0));
    std::int64_t p = 0;
    for (; p + 4 <= depth; p += 4) {
        const Stored* const lines[] = {load(p, 0), load(p, 1), load(p, 2), load(p, 3)};
        for_vectors(add_rows, v, [&](auto kernel, std::int64_t m) {
            kernel(lines, ahead, v.x + m * v.step + p, v.step, outputs, v.sums + m * v.sums_step,
                   v.sums_step);
        });
    }
    for (; p < depth; ++p) {
        const Stored* rest = load(p, 0);
        for (std::int64_t m = 0; m < v.count; ++m) {
            T* const sums = v.sums + m * v.sums_step;
            for (std::int64_t o = 0; o < outputs; ++o) sums[o] += v.x[m * v.step + p] * T(rest[o]);
        }
    }
}

// Computes the sums of a range of outputs. Stored is BFloat16 if the lines of the matrix are
// contiguous and in bf16. Otherwise, it is T, and other elements are converted in `buffer`.
template <class T, class Stored>
void compute_sums(const Lines& matrix, bool along, const Vectors<T>& v, std::int64_t outputs,
                  std::int64_t depth, T* buffer,
                  const typename GemmKernels<T>::template Dots<Stored>* dots,
                  const typename GemmKernels<T>::template AddRows<Stored>* add_rows) {
    const std::int64_t step = along ? matrix.depth_stride : matrix.stride;  // within a line
    const bool in_place = step == 1 && matrix.dtype == dtype_of<Stored>;
    const auto load = [&](std::int64_t o, std::int64_t p, std::int64_t n, T* to) {
        const void* data =
            at(matrix.data, matrix.dtype, o * matrix.stride + p * matrix.depth_stride);
        if constexpr (std::is_same_v<T, Stored>)
            return load_lanes<T>(data, matrix.dtype, step, n, to);
        else
            return static_cast<const Stored*>(data);
    };
    if (along) {
        const std::int64_t lines = divide_up(kPrefetch, std::max<std::int64_t>(depth, 1));
        dot_products<T, Stored>(
            dots,
            [&](std::int64_t o, std::int64_t p, std::int64_t n) { return load(o, p, n, buffer); },
            in_place ? lines * matrix.stride : 0, v, outputs, depth);
    } else {
        sum_lines<T, Stored>(
            add_rows,
            [&](std::int64_t p, std::int64_t r) {
                return load(0, p + r, outputs, buffer + r * outputs);
            },
            in_place ? kPrefetchedLines * matrix.depth_stride : 0, v, outputs, depth);
    }
}

// Computes the sums of a range of outputs with the kernels for the elements of the matrix.
template <class T>
void compute_sums(const Lines& matrix, bool along, const Vectors<T>& v, std::int64_t outputs,
                  std::int64_t depth, T* buffer) {
    const GemmKernels<T>& kernels = gemm_kernels<T>();
    const std::int64_t step = along ? matrix.depth_stride : matrix.stride;
    if (step == 1 && matrix.dtype == DType::bf16 && kernels.dots_bf16 != nullptr)
        compute_sums<T, BFloat16>(matrix, along, v, outputs, depth, buffer, kernels.dots_bf16,
                                  kernels.add_rows_bf16);
    else
        compute_sums<T, T>(matrix, along, v, outputs, depth, buffer, kernels.dots,
                           kernels.add_rows);
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
    how.stores_slopes = epilogue.stores_slopes;
    how.out = sums;
    finish_tile<T>(sums, n, 1, n, how);
    if (pre_data != nullptr) store_lanes(buffer, pre_data, c.dtype, pre_stride, n);
    store_lanes(sums, c_data, c.dtype, c_stride, n);
}

template <class T>
void run(Cpu& on, const ConstView& a, const ConstView& b, const View& c,
         const MatmulEpilogue& epilogue) {
    const bool is_row = c.back(2) == 1 || c.back(1) > 1;  // the vectors are rows of a
    const ConstView& matrix = is_row ? b : a;
    const ConstView& vector = is_row ? a : b;
    const View& pre = epilogue.pre;
    const int out_dim = is_row ? 1 : 2;  // dimension of c along the output, counted from the end
    const std::int64_t depth = a.back(1), outputs = c.back(out_dim);
    const std::int64_t stride = matrix.back_stride(out_dim);
    const std::int64_t depth_stride = matrix.back_stride(3 - out_dim);
    const std::int64_t vector_stride = vector.back_stride(out_dim);
    const bool along = std::abs(depth_stride) < std::abs(stride);
    const std::int64_t rows = is_row ? c.back(2) : 1;  // the number of vectors
    std::int64_t batches = 1;
    for (int d = 0; d + 2 < c.ndim; ++d) batches *= c.shape[d];

    const std::int64_t largest =
        std::min(outputs, std::clamp<std::int64_t>(kTaskElements / std::max<std::int64_t>(depth, 1),
                                                   along ? 64 : 256, kMaxOutputs));
    // If there are few ranges, all threads get the same number.
    std::int64_t ranges = divide_up(outputs, largest);
    if (ranges > 1 && batches == 1) ranges = round_up(ranges, num_threads());
    const std::int64_t range = round_up(divide_up(outputs, ranges), 32);
    ranges = divide_up(outputs, range);
    const std::int64_t group =
        std::max<std::int64_t>(1, kTaskElements / 2 / (range * std::max<std::int64_t>(depth, 1)));
    const std::int64_t slots = slots_for(batches * ranges, group);

    Scratch scratch(on);
    const std::int64_t buffer_size = std::max(along ? kDepth : 4 * range, range);
    const bool x_in_place = is_lanes<T>(vector.dtype, vector_stride, depth);
    const std::int64_t row_stride = is_row ? vector.back_stride(2) : 0;  // between vectors
    const std::int64_t x_step = round_up(depth, 16), sums_step = round_up(range, 16);
    const std::int64_t x_size = x_in_place ? 0 : rows * x_step;
    const std::int64_t slot_size = x_size + rows * sums_step + buffer_size;
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
        T* const sums = x_buffer + x_size;
        T* const buffer = sums + rows * sums_step;
        const void* x = at(vector.data, vector.dtype, matrix_offset(vector, c, batch));
        Vectors<T> v{static_cast<const T*>(x), rows, row_stride, sums, sums_step};
        if (!x_in_place) {
            v.x = x_buffer, v.step = x_step;
            for (std::int64_t m = 0; m < rows; ++m)
                load_lanes<T>(at(x, vector.dtype, m * row_stride), vector.dtype, vector_stride,
                              depth, x_buffer + m * x_step);
        }
        const std::int64_t start = matrix_offset(matrix, c, batch) + begin * stride;
        const Lines lines = {at(matrix.data, matrix.dtype, start), matrix.dtype, stride,
                             depth_stride};
        compute_sums(lines, along, v, n, depth, buffer);
        // Returns the address of row m of the range in v, which has c's shape.
        const auto row_of = [&](const auto& view, std::int64_t m) {
            return at(view.data, view.dtype,
                      matrix_offset(view, c, batch) + (is_row ? m * view.back_stride(2) : 0) +
                          begin * view.back_stride(out_dim));
        };
        const ConstView& s = epilogue.slope_of;
        for (std::int64_t m = 0; m < rows; ++m) {
            const bool has_pre = pre.data != nullptr;
            finish_range(sums + m * sums_step, n, bias == nullptr ? nullptr : bias + begin,
                         epilogue, c, row_of(c, m), c.back_stride(out_dim),
                         has_pre ? row_of(pre, m) : nullptr, has_pre ? pre.back_stride(out_dim) : 0,
                         buffer);
            if (s.data != nullptr)
                multiply_slopes(epilogue, c.dtype, row_of(c, m), c.back_stride(out_dim),
                                row_of(s, m), s.back_stride(out_dim), n);
        }
    });
}

}  // namespace

bool is_few_rows(const ConstView& a, const ConstView& b, const View& c) {
    constexpr std::int64_t kLarge = std::int64_t{1} << 18;  // elements
    // Dot products are slower than sums of lines, and bf16 instructions make larger products
    // faster than the conversion of b.
    const bool along = std::abs(b.back_stride(2)) < std::abs(b.back_stride(1));
    const std::int64_t most = kFewRows / (along ? 2 : 1) / (b.dtype == DType::bf16 ? 2 : 1);
    return c.ndim == 2 && c.back(2) <= most && a.back(1) * c.back(1) >= kLarge;
}

void vector_matmul(Cpu& on, const ConstView& a, const ConstView& b, const View& c,
                   const MatmulEpilogue& epilogue) {
    if (a.dtype == DType::f64 || c.dtype == DType::f64) return run<double>(on, a, b, c, epilogue);
    run<float>(on, a, b, c, epilogue);
}

}  // namespace axle::kernels
