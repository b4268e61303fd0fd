#include "tools/trainer/fingerprint.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <span>
#include <system_error>
#include <vector>

#include <zlib.h>

#include "core/files/file.h"
#include "core/files/folder.h"
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
    std::error_code ignored;
    if (!std::filesystem::is_directory(path, ignored))
        return fingerprint(path, InputFile(path).size());
    std::int64_t count = 0;
    uLong crc = crc32(0, nullptr, 0);
    for (const std::string& name : list_folder(path + "/.")) {
        if (!name.ends_with(".bin")) continue;
        const std::string line = str(name, ": ", fingerprint(path + "/" + name), "\n");
        crc =
            crc32(crc, reinterpret_cast<const Bytef*>(line.data()), static_cast<uInt>(line.size()));
        ++count;
    }
    return str(count, " files, checksum ", static_cast<std::uint64_t>(crc));
}

bool has_grown(const std::string& path, const std::string& saved) {
    std::int64_t bytes = 0;
    const auto [end, error] = std::from_chars(saved.data(), saved.data() + saved.size(), bytes);
    return error == std::errc() && bytes >= 0 && bytes < InputFile(path).size() &&
           fingerprint(path, bytes) == saved;
}

}  // namespace axle::trainer
