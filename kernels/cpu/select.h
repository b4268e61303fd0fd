// The best k of a stream of keyed elements.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace axle::inline v0::kernels {

// An element's rank is its key (larger is better), then its index (lower is better), so that no two
// are equal and the choice is unique.
struct Keyed {
    std::uint64_t key;
    std::int64_t index;
    friend bool operator<(const Keyed& a, const Keyed& b) {  // a comes before b
        return a.key != b.key ? a.key > b.key : a.index < b.index;
    }
};

// Numbers to keys that compare as they do; both zeros are one key, and NaN is the largest.
template <class T>
std::uint64_t key_of(T x) {
    if constexpr (std::is_floating_point_v<T>) {
        if (std::isnan(x)) return UINT64_MAX;
        if (x == T(0)) return std::uint64_t{1} << 63;
        const auto bits = std::bit_cast<std::uint64_t>(static_cast<double>(x));
        return bits >> 63 ? ~bits : bits | std::uint64_t{1} << 63;
    } else {
        return static_cast<std::uint64_t>(static_cast<std::int64_t>(x)) ^ std::uint64_t{1} << 63;
    }
}

// Keeps a buffer of candidates that are better than the k-th best so far; a full buffer is cut to
// k. One comparison for most elements.
class BestK {
  public:
    static std::int64_t buffer_size(std::int64_t k) { return std::max<std::int64_t>(2 * k, 64); }

    // buffer: buffer_size(k) elements. k >= 1.
    BestK(std::int64_t k, Keyed* buffer) : k_(k), buffer_(buffer) {}

    // In order of index.
    void push(std::uint64_t key, std::int64_t index) {
        if (full_ && key <= threshold_) return;
        buffer_[size_++] = {key, index};
        if (size_ == buffer_size(k_)) cut();
    }
    // The best k of at least k elements, best first.
    const Keyed* finish() {
        if (size_ > k_) cut();
        std::sort(buffer_, buffer_ + k_);
        return buffer_;
    }

  private:
    void cut() {
        std::nth_element(buffer_, buffer_ + k_ - 1, buffer_ + size_);
        size_ = k_;
        full_ = true;
        threshold_ = buffer_[k_ - 1].key;
    }

    std::int64_t k_;
    Keyed* buffer_;
    std::int64_t size_ = 0;
    bool full_ = false;
    std::uint64_t threshold_ = 0;
};

}  // namespace axle::inline v0::kernels
