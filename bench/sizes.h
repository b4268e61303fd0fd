// The product of sizes, for bytes and operations, and sizes as text for the reports.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

namespace axle::bench {

inline double product(std::initializer_list<std::int64_t> sizes) {
    double n = 1;
    for (const std::int64_t size : sizes) n *= static_cast<double>(size);
    return n;
}
// Returns a text such as "4x64x64".
inline std::string size_text(std::initializer_list<std::int64_t> sizes) {
    std::string text;
    for (const std::int64_t size : sizes) text += (text.empty() ? "" : "x") + std::to_string(size);
    return text;
}

}  // namespace axle::bench
