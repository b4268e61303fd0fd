#include "tools/trainer/fingerprint.h"

#include <algorithm>
#include <charconv>
#include <span>
#include <vector>

#include <zlib.h>

#include "core/files/file.h"
#include "kernels/error.h"

namespace axle::trainer {

std::string fingerprint(const std::string& path, std::int64_t bytes) {
    constexpr std::int64_t kParts = 64, kPart = 64 << 10;
    const InputFile file(path);
    std::vector<std::byte> part;
    uLong crc = crc32(0, nullptr, 0);
    const bool is_whole = bytes <= kParts * kPart;
    for (std::int64_t i = 0; i < kParts; ++i) {
        const std::int64_t begin = is_whole ? i * kPart : (bytes - kPart) / (kParts - 1) * i;
        const std::int64_t size = std::min(kPart, bytes - begin);
        if (size <= 0) break;
        part.resize(static_cast<std::size_t>(size));
        file.read_at(begin, part);
        crc = crc32(crc, reinterpret_cast<const Bytef*>(part.data()), static_cast<uInt>(size));
    }
    return str(bytes, " bytes, checksum ", static_cast<std::uint64_t>(crc));
}

std::string fingerprint(const std::string& path) {
    return fingerprint(path, InputFile(path).size());
}

bool has_grown(const std::string& path, const std::string& saved) {
    std::int64_t bytes = 0;
    const auto [end, error] = std::from_chars(saved.data(), saved.data() + saved.size(), bytes);
    return error == std::errc() && bytes >= 0 && bytes < InputFile(path).size() &&
           fingerprint(path, bytes) == saved;
}

}  // namespace axle::trainer
