// Sorts complete rows. An element becomes an unsigned integer with the same order, stored with its
// index. A least-significant-byte radix sort sorts these pairs, with one pass for each byte that is
// not the same in all elements. Bytes are counted while the row is read. The keys of integer
// elements of several bytes are relative to the smallest key of the row, so that a narrow range
// needs few passes. Short rows, for which counting is slower than comparing, are sorted by
// insertion. Both sorts are stable.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/cpu/index/select.h"
#include "kernels/cpu/rows.h"
#include "kernels/ops/sort.h"

namespace axle::kernels {
namespace {

constexpr std::int64_t kTask = 32768;
constexpr std::int64_t kShort = 48;  // rows up to this length are sorted by insertion
constexpr int kDigits = 256;

template <class Key>
struct Ranked {
    Key key, index;
};

// Converts the elements of a row to keys in [0, most]. Sorting by ascending key gives the requested
// order.
template <class T>
struct Keys {
    using Bits = BitsOf<T>;
    const T* x;
    std::int64_t stride;
    Bits most = static_cast<Bits>(~Bits{0}), low = 0, flip;

    Keys(bool descending, const T* row, std::int64_t row_stride, std::int64_t n)
        : x(row), stride(row_stride), flip(descending ? most : Bits{0}) {
        if constexpr (std::is_integral_v<T> && sizeof(T) > 1) {
            Bits least = (*this)(0), largest = least;
            for (std::int64_t i = 1; i < n; ++i) {
                least = std::min(least, (*this)(i));
                largest = std::max(largest, (*this)(i));
            }
            low = least, most = largest - least;
        }
    }
    Bits operator()(std::int64_t i) const {
        return static_cast<Bits>((rising_key(x[i * stride]) ^ flip) - low);
    }
};

// Sorts a row by insertion. a has space for n elements; it is also the result.
template <class T, class Key>
const Ranked<Key>* sort_by_insertion(const Keys<T>& keys, std::int64_t n, Ranked<Key>* a) {
    for (std::int64_t i = 0; i < n; ++i) {
        const Ranked<Key> one{static_cast<Key>(keys(i)), static_cast<Key>(i)};
        std::int64_t place = i;
        for (; place > 0 && one.key < a[place - 1].key; --place) a[place] = a[place - 1];
        a[place] = one;
    }
    return a;
}

// Sorts a row by radix. a and b have space for n elements each. Returns the array that contains the
// result.
template <class T, class Key>
const Ranked<Key>* sort_by_bytes(const Keys<T>& keys, std::int64_t n, Ranked<Key>* a,
                                 Ranked<Key>* b) {
    const int bytes = (std::bit_width(keys.most) + 7) / 8;
    std::int64_t counts[sizeof(T)][kDigits] = {};
    for (std::int64_t i = 0; i < n; ++i) {
        const BitsOf<T> key = keys(i);
        a[i] = {static_cast<Key>(key), static_cast<Key>(i)};
        for (int byte = 0; byte < bytes; ++byte) ++counts[byte][key >> 8 * byte & (kDigits - 1)];
    }
    for (int byte = 0; byte < bytes; ++byte) {
        std::int64_t* const next = counts[byte];
        const auto digit = [byte](Key key) { return key >> 8 * byte & (kDigits - 1); };
        if (next[digit(a->key)] == n) continue;
        for (std::int64_t d = 0, place = 0; d < kDigits; ++d)
            place += std::exchange(next[d], place);
        for (std::int64_t i = 0; i < n; ++i) b[next[digit(a[i].key)]++] = a[i];
        std::swap(a, b);
    }
    return a;
}

// Sorts one row. `memory` has space for 2n elements.
template <class T, class Key>
void sort_row(const Keys<T>& keys, std::int64_t n, Ranked<Key>* memory, T* values,
              std::int64_t values_step, std::int64_t* indices, std::int64_t indices_step) {
    const Ranked<Key>* const sorted = n <= kShort ? sort_by_insertion(keys, n, memory)
                                                  : sort_by_bytes(keys, n, memory, memory + n);
    for (std::int64_t i = 0; i < n; ++i) {
        const auto place = static_cast<std::int64_t>(sorted[i].index);
        values[i * values_step] = keys.x[place * keys.stride];
        indices[i * indices_step] = place;
    }
}

// Sorts all rows. Rows are independent, so the split into tasks can depend on the number of
// threads. Each thread needs scratch memory for only one row.
template <class T>
void sort_rows(Cpu& on, bool descending, ConstView x, View values, View indices) {
    using Narrow = Ranked<std::uint32_t>;
    using Wide = Ranked<std::uint64_t>;
    const Rows<3> rows({x, values, indices});
    const std::int64_t n = x.back(1);
    const std::int64_t each = (rows.count() + num_threads() - 1) / num_threads();
    const std::int64_t grain = std::max(each, (kTask + n - 1) / n);
    const std::int64_t tasks = (rows.count() + grain - 1) / grain;
    const bool few = n <= UINT32_MAX;
    const std::size_t room =
        2 * static_cast<std::size_t>(n) * (sizeof(T) == 8 || !few ? sizeof(Wide) : sizeof(Narrow));
    Scratch scratch(on);
    auto* const memory = scratch.take<std::byte>(tasks * static_cast<std::int64_t>(room));
    parallel_ranges(rows.count(), grain, [&](std::int64_t first, std::int64_t last) {
        void* const mine = memory + static_cast<std::size_t>(first / grain) * room;
        for (std::int64_t row = first; row < last; ++row) {
            const auto offset = rows.offsets(row);
            const Keys<T> keys(descending, x.as<T>() + offset[0], x.back_stride(1), n);
            const auto sort_as = [&](auto* ranked) {
                sort_row(keys, n, ranked, values.as<T>() + offset[1], values.back_stride(1),
                         indices.as<std::int64_t>() + offset[2], indices.back_stride(1));
            };
            if (few && keys.most <= UINT32_MAX)
                sort_as(static_cast<Narrow*>(mine));
            else
                sort_as(static_cast<Wide*>(mine));
        }
    });
}

}  // namespace

void sort(Cpu& on, bool descending, ConstView x, View values, View indices) {
    if (x.numel() == 0) return;
    visit_compute(x.dtype, [&]<class Stored>() {
        using T = std::conditional_t<std::is_same_v<Stored, bool>, std::uint8_t, Stored>;
        sort_rows<T>(on, descending, x, values, indices);
    });
}

}  // namespace axle::kernels
