// A replacement for CUB's sorts on the simulated GPU. Like CUB, it runs on the stream, needs a
// second buffer, and leaves undefined values in the first buffer.
#include "tests/simulator/device.h"
// The header above must be first, because it redefines the keywords of CUDA.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/cuda/index/cub.h"

namespace axle::kernels {

template <class Key>
Ranks<Key> sort_by_keys(Cuda& on, DeviceScratch& scratch, Ranks<Key> a, std::int64_t rows,
                        std::int64_t n, int bits) {
    if (rows == 0 || n <= 1) return a;
    const Ranks<Key> b = take_ranks<Key>(scratch, rows * n);
    const Key mask = static_cast<Key>(~Key{0}) >> (8 * static_cast<int>(sizeof(Key)) - bits);
    simulator::start(on.stream(), {1, 1, 1}, 1, 0, std::source_location::current(), [=] {
        std::vector<std::pair<Key, std::uint32_t>> row(static_cast<std::size_t>(n));
        for (std::int64_t first = 0; first < rows * n; first += n) {
            for (std::size_t i = 0; i < row.size(); ++i)
                row[i] = {a.keys[first + static_cast<std::int64_t>(i)],
                          a.indices[first + static_cast<std::int64_t>(i)]};
            std::stable_sort(row.begin(), row.end(), [mask](const auto& left, const auto& right) {
                return (left.first & mask) < (right.first & mask);
            });
            for (std::size_t i = 0; i < row.size(); ++i) {
                b.keys[first + static_cast<std::int64_t>(i)] = row[i].first;
                b.indices[first + static_cast<std::int64_t>(i)] = row[i].second;
            }
        }
        const auto count = static_cast<std::size_t>(rows * n);
        std::memset(a.keys, 0xff, count * sizeof(Key));
        std::memset(a.indices, 0xff, count * sizeof(std::uint32_t));
    });
    return b;
}

template Ranks<std::uint32_t> sort_by_keys(Cuda&, DeviceScratch&, Ranks<std::uint32_t>,
                                           std::int64_t, std::int64_t, int);
template Ranks<std::uint64_t> sort_by_keys(Cuda&, DeviceScratch&, Ranks<std::uint64_t>,
                                           std::int64_t, std::int64_t, int);

}  // namespace axle::kernels
