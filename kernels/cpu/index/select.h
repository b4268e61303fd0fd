// Selection of the best k elements of a sequence.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace axle::kernels {

// An element's key and index. Elements are ordered by key (larger is better), then by index (lower
// is better). No two elements are equal, so the selection is unique.
struct Keyed {
    std::uint64_t key;
    std::int64_t index;
    friend bool operator<(const Keyed& a, const Keyed& b) {  // true if a is better than b
        return a.key != b.key ? a.key > b.key : a.index < b.index;
    }
};

template <class T>
inline constexpr int kKeyBits = 8 * static_cast<int>(sizeof(T));
template <class T>
using BitsOf = std::conditional_t<
    sizeof(T) == 8, std::uint64_t,
    std::conditional_t<sizeof(T) == 4, std::uint32_t,
                       std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint8_t>>>;

// Converts a number to an unsigned key of the same size. Keys compare like the numbers; -0 and +0
// have the same key, and NaN has the largest key.
template <class T>
BitsOf<T> rising_key(T x) {
    using Bits = BitsOf<T>;
    constexpr auto kSign = static_cast<Bits>(Bits{1} << (kKeyBits<T> - 1));
    const auto bits = std::bit_cast<Bits>(x);
    if constexpr (std::is_unsigned_v<T>) {
        return bits;
    } else if constexpr (std::is_integral_v<T>) {
        return bits ^ kSign;
    } else {
        constexpr bool kWide = std::is_same_v<T, double>;
        const auto value = static_cast<std::conditional_t<kWide, double, float>>(x);
        if (value != value) return static_cast<Bits>(~Bits{0});
        if (value == 0) return kSign;
        return static_cast<Bits>((bits & kSign) != 0 ? ~bits : bits | kSign);
    }
}

// Returns the key of x, widened to 64 bits.
template <class T>
std::uint64_t key_of(T x) {
    return std::uint64_t{rising_key(x)};
}

// Selects the best k elements of a sequence, which are the first k in the order of Keyed. Buffers
// the elements that are better than the current k-th best. When the buffer is full, discards all
// elements except the best k. Most elements need one comparison.
class BestK {
  public:
    static std::int64_t buffer_size(std::int64_t k) { return std::max<std::int64_t>(2 * k, 64); }

    // `buffer` must have buffer_size(k) elements, and k must be at least 1.
    BestK(std::int64_t k, Keyed* buffer) : k_(k), buffer_(buffer) {}

    // Adds an element. Indices must be added in ascending order.
    void push(std::uint64_t key, std::int64_t index) {
        if (full_ && key <= threshold_) return;
        buffer_[size_++] = {key, index};
        if (size_ == buffer_size(k_)) cut();
    }
    // Returns the best k elements, best first. At least k elements must have been added.
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

}  // namespace axle::kernels
