#include "accel/state/file_checksums.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <span>
#include <system_error>

#include <zlib.h>

namespace axle::accel {
namespace {

constexpr std::int64_t kBlock = std::int64_t{1} << 20;
constexpr const char* kBlocks = "blocks";
constexpr std::size_t kDigits = 8;

// Returns the checksum of the block that begins at byte `begin`. `buffer` has kBlock bytes.
std::uint32_t checksum_of_block(const InputFile& file, std::int64_t begin,
                                std::span<std::byte> buffer) {
    const auto n = static_cast<std::size_t>(std::min(file.size() - begin, kBlock));
    file.read_at(begin, buffer.first(n));
    return static_cast<std::uint32_t>(
        crc32(0, reinterpret_cast<const Bytef*>(buffer.data()), static_cast<uInt>(n)));
}

}  // namespace

Tree describe_file(const InputFile& file) {
    std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(file.size(), kBlock)));
    uLong whole = crc32(0, nullptr, 0);
    std::string blocks;
    for (std::int64_t begin = 0; begin < file.size(); begin += kBlock) {
        const std::uint32_t block = checksum_of_block(file, begin, buffer);
        whole = crc32_combine(whole, block,
                              static_cast<z_off_t>(std::min(file.size() - begin, kBlock)));
        char digits[kDigits + 1];
        std::snprintf(digits, sizeof digits, "%08x", block);
        blocks += digits;
    }
    Tree description{{"size", file.size()}, {"crc32", static_cast<std::int64_t>(whole)}};
    if (file.size() > kBlock) description.set(kBlocks, blocks);
    return description;
}

std::vector<std::uint32_t> block_checksums(const Tree& description) {
    const std::int64_t size = description["size"].integer();
    const auto whole = static_cast<std::uint32_t>(description["crc32"].integer());
    if (size <= kBlock) return {whole};
    const Tree* const blocks = description.find(kBlocks);
    if (blocks == nullptr) return {};
    const std::string& text = blocks->string();
    const auto count = static_cast<std::size_t>(size / kBlock + (size % kBlock == 0 ? 0 : 1));
    bool is_valid = text.size() % kDigits == 0 && text.size() / kDigits == count;
    std::vector<std::uint32_t> checksums(is_valid ? count : 0);
    for (std::size_t i = 0; i < checksums.size(); ++i) {
        const char* const begin = text.data() + i * kDigits;
        const auto [end, error] = std::from_chars(begin, begin + kDigits, checksums[i], 16);
        is_valid = is_valid && error == std::errc() && end == begin + kDigits;
    }
    if (!is_valid) throw ValueError(str("blocks must have ", count, " checksums of 8 digits"));
    return checksums;
}

void FileBlocks::check(std::int64_t begin, std::int64_t end) {
    if (!file_) file_.emplace(folder_, name_);
    const InputFile& file = *file_;
    std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(file.size(), kBlock)));
    for (std::int64_t at = begin / kBlock * kBlock; at < std::min(end, file.size()); at += kBlock) {
        const auto block = static_cast<std::size_t>(at / kBlock);
        if (block >= checksums_.size()) throw_changed(file.path());
        if (is_verified_[block]) continue;
        if (checksum_of_block(file, at, buffer) != checksums_[block]) throw_changed(file.path());
        is_verified_[block] = true;
    }
}

void throw_changed(const std::string& path) {
    throw FileError(str(printable(path), ": has changed since it was saved: the checksum differs"));
}

}  // namespace axle::accel
