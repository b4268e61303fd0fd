// Calls CUB's radix sorts. A few long rows, or a single row, are sorted one after another by all
// blocks of the GPU; otherwise, each row is sorted by one block. CUB's DeviceSegmentedSort is
// designed for rows of different lengths, but it waits for the GPU. Kernels must not wait, and a
// captured graph cannot.
//
// By default, CUB annotates its calls for NVIDIA's profilers, with a library that an environment
// variable selects. CCCL_DISABLE_NVTX disables the annotations.
#define CCCL_DISABLE_NVTX
//
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_segmented_radix_sort.cuh>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include "kernels/cuda/check.h"
#include "kernels/cuda/index/cub.h"

namespace axle::kernels {
namespace {

constexpr std::int64_t kLongRow = 16384;  // a row of this length uses a large part of the GPU
constexpr int kMaxRowsInTurn = 16;        // maximum number of long rows sorted in turn

struct Start {
    std::int64_t n;
    __host__ __device__ std::int64_t operator()(std::int64_t row) const { return row * n; }
};

// Calls call(memory, size) twice: first to get the size, then to run the sort.
template <class Call>
void run_cub(DeviceScratch& scratch, const char* name, Call call) {
    std::size_t size = 0;
    check_cuda(call(nullptr, size), name);
    check_cuda(call(scratch.take<char>(static_cast<std::int64_t>(size)), size), name);
}

}  // namespace

template <class Key>
Ranks<Key> sort_by_keys(Cuda& on, DeviceScratch& scratch, Ranks<Key> a, std::int64_t rows,
                        std::int64_t n, int bits) {
    if (rows == 0 || n <= 1) return a;
    const Ranks<Key> b = take_ranks<Key>(scratch, rows * n);
    if (rows > 1 && (n < kLongRow || rows > kMaxRowsInTurn)) {
        const auto starts =
            thrust::make_transform_iterator(thrust::counting_iterator<std::int64_t>(0), Start{n});
        cub::DoubleBuffer<Key> keys(a.keys, b.keys);
        cub::DoubleBuffer<std::uint32_t> indices(a.indices, b.indices);
        run_cub(scratch, "cub::DeviceSegmentedRadixSort", [&](void* memory, std::size_t& size) {
            return cub::DeviceSegmentedRadixSort::SortPairs(
                memory, size, keys, indices, static_cast<int>(rows * n), static_cast<int>(rows),
                starts, starts + 1, 0, bits, on.stream());
        });
        return {keys.Current(), indices.Current()};
    }
    Ranks<Key> result = {};
    for (std::int64_t row = 0; row < rows; ++row) {
        cub::DoubleBuffer<Key> keys(a.keys + row * n, b.keys + row * n);
        cub::DoubleBuffer<std::uint32_t> indices(a.indices + row * n, b.indices + row * n);
        DeviceScratch memory_of_row(on);
        run_cub(memory_of_row, "cub::DeviceRadixSort", [&](void* memory, std::size_t& size) {
            return cub::DeviceRadixSort::SortPairs(memory, size, keys, indices, n, 0, bits,
                                                   on.stream());
        });
        // The number of passes depends only on `bits`, so the results of all rows are in the same
        // buffer.
        if (row == 0) result = {keys.Current(), indices.Current()};
    }
    return result;
}

template Ranks<std::uint32_t> sort_by_keys(Cuda&, DeviceScratch&, Ranks<std::uint32_t>,
                                           std::int64_t, std::int64_t, int);
template Ranks<std::uint64_t> sort_by_keys(Cuda&, DeviceScratch&, Ranks<std::uint64_t>,
                                           std::int64_t, std::int64_t, int);

}  // namespace axle::kernels
