// Fuzzes parse_idx(), including gzip.
#include <string>

#include "data/files/gzip.h"
#include "data/files/idx.h"
#include "tests/fuzz/fuzz.h"

namespace axle::tests {
namespace {

char type_of(DType dtype) {
    switch (dtype) {
        case DType::u8:
            return 0x08;
        case DType::i8:
            return 0x09;
        case DType::i16:
            return 0x0b;
        case DType::i32:
            return 0x0c;
        case DType::f32:
            return 0x0d;
        default:
            return 0x0e;
    }
}

std::string encoded(const Tensor& x) {
    std::string text = {0, 0, type_of(x.dtype()), static_cast<char>(x.dim())};
    for (const std::int64_t size : x.shape())
        for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(size >> shift);
    const std::string_view elements = text_of(bytes_of(x));
    const auto width = static_cast<std::size_t>(size_of(x.dtype()));
    for (std::size_t at = 0; at < elements.size(); at += width)
        text.append(elements.substr(at, width).rbegin(), elements.substr(at, width).rend());
    return text;
}

}  // namespace

void fuzz(Bytes input) {
    constexpr std::int64_t kMaxInflated = 1 << 20;
    Tensor x;
    if (!accepts([&] { x = data::parse_idx(input, kHostileName, {.max_inflated = kMaxInflated}); }))
        return;
    const std::string again = encoded(x);
    require_same(data::parse_idx(bytes_of(again), kHostileName), x);
    if (data::is_gzip(input))
        require(bytes_of(x).size() <= kMaxInflated, "max_inflated is respected");
    else
        require(again == text_of(input), "uncompressed files are read completely");
}

}  // namespace axle::tests
