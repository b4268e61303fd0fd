// Size2: a height and a width, for windows, strides and paddings.
#pragma once

#include <cstdint>
#include <ostream>

namespace axle {

// A height and a width. A single integer sets both, as in PyTorch: `stride = 2`.
struct Size2 {
    std::int64_t h = 0, w = 0;

    constexpr Size2() = default;
    constexpr Size2(std::int64_t both) : h(both), w(both) {}  // NOLINT: 2 means 2 x 2
    constexpr Size2(std::int64_t height, std::int64_t width) : h(height), w(width) {}

    bool operator==(const Size2&) const = default;
};

// Prints the size as "[h, w]".
inline std::ostream& operator<<(std::ostream& out, const Size2& size) {
    return out << '[' << size.h << ", " << size.w << ']';
}

}  // namespace axle
