// The best k of each row. Up to kMostSelected of them are gathered by one block while it streams
// through the row (select.cuh): one read of x. Where there are fewer rows than the GPU has room
// for, long rows are cut into parts, and the best of the parts' best are taken. More than that, up
// to whole rows, come from a radix sort.
#include <algorithm>

#include "kernels/cuda/radix.h"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/select.cuh"
#include "kernels/cuda/start.cuh"
#include "kernels/sort.h"

namespace axle::inline v0::kernels {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kLeastPart = 16384;       // elements of a part of a row
constexpr std::int64_t kSortedAtOnce = 1 << 24;  // elements in the radix sort's memory

// Rows of x, values and indices, and their last dimension's strides.
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

// candidates [rows][parts][k].
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
        to[j] = j < found ? best[j] : nobody();
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

template <class T>
__global__ void rank_elements(Task task, std::int64_t first_row, std::int64_t rows, const T* x,
                              Ranked* ranked) {
    for (std::int64_t i = thread_in_grid(); i < rows * task.n; i += threads_in_grid()) {
        const std::int64_t row = i / task.n, column = i - row * task.n;
        const T value = x[task.rows.place(first_row + row).at[0] + column * task.x_step];
        ranked[i] = {key_of(value, task.largest), column};
    }
}

template <class T>
__global__ void write_sorted(Task task, std::int64_t first_row, std::int64_t rows,
                             const Ranked* sorted, const T* x, T* values, std::int64_t* indices) {
    for (std::int64_t i = thread_in_grid(); i < rows * task.k; i += threads_in_grid()) {
        const std::int64_t row = i / task.k, j = i - row * task.k;
        write_best(task, task.rows.place(first_row + row), j, sorted[row * task.n + j].index, x,
                   values, indices);
    }
}

template <class T>
void sort_rows(Cuda& on, const Task& task, const T* x, T* values, std::int64_t* indices) {
    const std::int64_t group = std::clamp<std::int64_t>(kSortedAtOnce / task.n, 1, task.rows.count);
    for (std::int64_t first = 0; first < task.rows.count; first += group) {
        const std::int64_t rows = std::min(group, task.rows.count - first);
        DeviceScratch scratch(on);
        Ranked* const ranked = scratch.take<Ranked>(rows * task.n);
        start(on, {grid_for(on, rows * task.n, kThreads), kThreads}, &rank_elements<T>, task, first,
              rows, x, ranked);
        const Ranked* const sorted = radix_sort(on, scratch, ranked, rows, task.n, kKeyBits<T>);
        start(on, {grid_for(on, rows * task.k, kThreads), kThreads}, &write_sorted<T>, task, first,
              rows, sorted, x, values, indices);
    }
}

template <class T>
void best_of_rows(Cuda& on, const Task& task, const T* x, T* values, std::int64_t* indices) {
    if (task.k > kMostSelected) return sort_rows(on, task, x, values, indices);
    const std::int64_t rows = task.rows.count;
    const std::int64_t parts = std::min(2 * on.multiprocessors() / rows, task.n / kLeastPart);
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

}  // namespace axle::inline v0::kernels
