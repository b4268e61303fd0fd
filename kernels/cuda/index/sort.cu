// Top-k and sorting. Rows of up to kSelectCapacity elements are sorted in a block's shared memory,
// several at a time. For longer rows and k up to kMaxSelected, one block per row selects the best
// elements while it reads the row (select.cuh). If there are too few rows to fill the GPU, they are
// split into parts. The result is then selected from the best elements of all parts. For larger k,
// including complete sorts, CUB's radix sort is used (cub.cu). CUB has no selection that reads a
// row only once, and no sort of short rows that never waits for the GPU.
//
// Results contain the elements themselves, read by index, because a key does not preserve the sign
// of a zero or the bits of a NaN.
#include <algorithm>
#include <bit>
#include <cstdlib>

#include "kernels/cuda/index/cub.h"
#include "kernels/cuda/index/select.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/start.cuh"
#include "kernels/ops/sort.h"

namespace axle::kernels {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMinPart = 16384;            // minimum elements per part of a row
constexpr std::int64_t kMaxSortedAtOnce = 1 << 24;  // elements that CUB sorts at a time, or one row

// The rows of x, values and indices, and the strides of their last dimensions.
struct Task {
    DeviceRows<3> rows;
    std::int64_t n, k;
    std::int64_t x_step, values_step, indices_step;
    bool largest;
};

template <class T>
__device__ inline void write_best(const Task& task, const typename DeviceRows<3>::Place& place,
                                  std::int64_t j, std::int64_t index, const T* x, T* values,
                                  std::int64_t* indices) {
    values[place.at[1] + j * task.values_step] = x[place.at[0] + index * task.x_step];
    indices[place.at[2] + j * task.indices_step] = index;
}

template <class T>
struct Elements {
    const T* row;
    std::int64_t step, first;
    bool largest;
    __device__ Ranked operator()(std::int64_t i) const {
        return {key_of(row[(first + i) * step], largest), first + i};
    }
};

struct Candidates {
    const Ranked* row;
    __device__ Ranked operator()(std::int64_t i) const { return row[i]; }
};

template <class T>
__global__ void __launch_bounds__(kSelectThreads)
    select_rows(Task task, const T* x, T* values, std::int64_t* indices) {
    for (std::int64_t row = blockIdx.x; row < task.rows.count; row += gridDim.x) {
        const auto place = task.rows.place(row);
        const Elements<T> elements{x + place.at[0], task.x_step, 0, task.largest};
        int found = 0;
        const Ranked* best = select_best(elements, task.n, static_cast<int>(task.k), found);
        for (int j = static_cast<int>(threadIdx.x); j < found; j += kSelectThreads)
            write_best(task, place, j, best[j].index, x, values, indices);
    }
}

// Selects the best elements of each part of a row. candidates is [rows][parts][k].
template <class T>
__global__ void __launch_bounds__(kSelectThreads)
    select_parts(Task task, std::int64_t part, std::int64_t parts, const T* x, Ranked* candidates) {
    const std::int64_t row = blockIdx.x / parts, first = blockIdx.x % parts * part;
    const Elements<T> elements{x + task.rows.place(row).at[0], task.x_step, first, task.largest};
    const std::int64_t n = first + part < task.n ? part : task.n - first;
    int found = 0;
    const Ranked* best = select_best(elements, n, static_cast<int>(task.k), found);
    Ranked* const to = candidates + std::int64_t{blockIdx.x} * task.k;
    for (int j = static_cast<int>(threadIdx.x); j < task.k; j += kSelectThreads)
        to[j] = j < found ? best[j] : no_element();
}

template <class T>
__global__ void __launch_bounds__(kSelectThreads)
    select_candidates(Task task, std::int64_t parts, const Ranked* candidates, const T* x,
                      T* values, std::int64_t* indices) {
    const std::int64_t row = blockIdx.x, n = parts * task.k;
    const auto place = task.rows.place(row);
    int found = 0;
    const Ranked* best =
        select_best(Candidates{candidates + row * n}, n, static_cast<int>(task.k), found);
    for (int j = static_cast<int>(threadIdx.x); j < found; j += kSelectThreads)
        write_best(task, place, j, best[j].index, x, values, indices);
}

// The rows that a block sorts in its shared memory, each in a group of `size` elements (a power of
// two).
struct ShortRows {
    int size, together;
    bool across;  // if true, adjacent threads load from adjacent rows

    explicit ShortRows(const Task& task)
        : size(static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(task.n)))),
          together(kSelectCapacity / size),
          across(std::abs(task.rows.stride[0][task.rows.ndim - 1]) < std::abs(task.x_step)) {}
};

template <class T>
__global__ void __launch_bounds__(kSelectThreads)
    sort_short_rows(Task task, ShortRows cut, const T* x, T* values, std::int64_t* indices) {
    __shared__ Ranked elements[kSelectCapacity];
    const int n = static_cast<int>(task.n), k = static_cast<int>(task.k);
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * cut.together;
    for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * cut.together;
         first < task.rows.count; first += step) {
        const std::int64_t left = task.rows.count - first;
        const int rows = left < cut.together ? static_cast<int>(left) : cut.together;
        const int count = rows * cut.size;
        for (int t = static_cast<int>(threadIdx.x); t < count; t += kSelectThreads) {
            const int row = cut.across ? t % rows : t / cut.size;
            const int column = cut.across ? t / rows : t - row * cut.size;
            Ranked element = no_element();
            if (column < n) {
                const T* const from = x + task.rows.place(first + row).at[0];
                element = {key_of(from[column * task.x_step], task.largest), column};
            }
            elements[row * cut.size + column] = element;
        }
        __syncthreads();
        sort_pieces(elements, count, cut.size);
        for (int t = static_cast<int>(threadIdx.x); t < rows * k; t += kSelectThreads) {
            const int row = cut.across ? t % rows : t / k;
            const int j = cut.across ? t / rows : t - row * k;
            write_best(task, task.rows.place(first + row), j, elements[row * cut.size + j].index, x,
                       values, indices);
        }
        __syncthreads();  // wait before the elements are overwritten
    }
}

template <class T>
__global__ void rank_elements(Task task, std::int64_t first_row, std::int64_t rows, const T* x,
                              Ranks<KeyOf<T>> ranked) {
    for (std::int64_t i = thread_in_grid(); i < rows * task.n; i += threads_in_grid()) {
        const std::int64_t row = i / task.n, column = i - row * task.n;
        const T value = x[task.rows.place(first_row + row).at[0] + column * task.x_step];
        ranked.keys[i] = key_of(value, task.largest);
        ranked.indices[i] = static_cast<std::uint32_t>(column);
    }
}

template <class T>
__global__ void write_sorted(Task task, std::int64_t first_row, std::int64_t rows,
                             const std::uint32_t* sorted, const T* x, T* values,
                             std::int64_t* indices) {
    for (std::int64_t i = thread_in_grid(); i < rows * task.k; i += threads_in_grid()) {
        const std::int64_t row = i / task.k, j = i - row * task.k;
        write_best(task, task.rows.place(first_row + row), j, sorted[row * task.n + j], x, values,
                   indices);
    }
}

template <class T>
void sort_long_rows(Cuda& on, const Task& task, const T* x, T* values, std::int64_t* indices) {
    const std::int64_t group =
        std::clamp<std::int64_t>(kMaxSortedAtOnce / task.n, 1, task.rows.count);
    for (std::int64_t first = 0; first < task.rows.count; first += group) {
        const std::int64_t rows = std::min(group, task.rows.count - first);
        DeviceScratch scratch(on);
        const auto ranked = take_ranks<KeyOf<T>>(scratch, rows * task.n);
        start(on, {grid_for(on, rows * task.n, kThreads), kThreads}, &rank_elements<T>, task, first,
              rows, x, ranked);
        const std::uint32_t* const sorted =
            sort_by_keys(on, scratch, ranked, rows, task.n, kKeyBits<T>).indices;
        start(on, {grid_for(on, rows * task.k, kThreads), kThreads}, &write_sorted<T>, task, first,
              rows, sorted, x, values, indices);
    }
}

template <class T>
void best_of_rows(Cuda& on, const Task& task, const T* x, T* values, std::int64_t* indices) {
    const std::int64_t rows = task.rows.count;
    if (task.n <= kSelectCapacity) {
        const ShortRows cut(task);
        const std::int64_t blocks = (rows + cut.together - 1) / cut.together;
        start(on, {{std::min<std::int64_t>(blocks, 0x7fffffff)}, kSelectThreads},
              &sort_short_rows<T>, task, cut, x, values, indices);
        return;
    }
    if (task.k > kMaxSelected) return sort_long_rows(on, task, x, values, indices);
    const std::int64_t parts = std::min(2 * on.multiprocessors() / rows, task.n / kMinPart);
    if (parts <= 1) {
        const std::int64_t blocks = std::min<std::int64_t>(rows, 0x7fffffff);
        start(on, {{blocks}, kSelectThreads}, &select_rows<T>, task, x, values, indices);
        return;
    }
    const std::int64_t part = (task.n + parts - 1) / parts;
    DeviceScratch scratch(on);
    Ranked* const candidates = scratch.take<Ranked>(rows * parts * task.k);
    start(on, {{rows * parts}, kSelectThreads}, &select_parts<T>, task, part, parts, x, candidates);
    start(on, {{rows}, kSelectThreads}, &select_candidates<T>, task, parts, candidates, x, values,
          indices);
}

}  // namespace

void topk(Cuda& on, bool largest, ConstView x, View values, View indices) {
    if (values.numel() == 0) return;
    const Task task{DeviceRows<3>({x, values, indices}),
                    x.back(1),
                    values.back(1),
                    x.back_stride(1),
                    values.back_stride(1),
                    indices.back_stride(1),
                    largest};
    const auto run = [&]<class T>() {
        best_of_rows(on, task, x.as<T>(), values.as<T>(), indices.as<std::int64_t>());
    };
    if (x.dtype == DType::boolean) return run.template operator()<std::uint8_t>();
    visit_compute(x.dtype, [&]<class T>() {
        if constexpr (!std::is_same_v<T, bool>) run.template operator()<T>();
    });
}

void sort(Cuda& on, bool descending, ConstView x, View values, View indices) {
    topk(on, descending, x, values, indices);
}

}  // namespace axle::kernels
