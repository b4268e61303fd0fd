#include "accel/state/file_checksums.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <span>
#include <system_error>

#include <zlib.h>

namespace axle::accel {
namespace {

constexpr const char* kBlocks = "blocks";
constexpr const char* kBlockSize = "block_size";
constexpr std::size_t kDigits = 8;
constexpr std::int64_t kMostBlocks = std::int64_t{1} << 20;
// The maximum number of bytes that are read at a time.
constexpr std::int64_t kPiece = kSmallestBlock;

std::int64_t count_blocks(std::int64_t size, std::int64_t block_size) {
    return size / block_size + (size % block_size == 0 ? 0 : 1);
}

// Returns a buffer with which checksum_of() can read any part of the file.
std::vector<std::byte> buffer_for(const InputFile& file) {
    return std::vector<std::byte>(static_cast<std::size_t>(std::min(file.size(), kPiece)));
}

// Returns the CRC-32 of the bytes [begin, end) of a file. `buffer` is from buffer_for().
std::uint32_t checksum_of(const InputFile& file, std::int64_t begin, std::int64_t end,
                          std::span<std::byte> buffer) {
    uLong checksum = crc32(0, nullptr, 0);
    for (; begin < end; begin += kPiece) {
        const auto n = static_cast<std::size_t>(std::min(end - begin, kPiece));
        file.read_at(begin, buffer.first(n));
        checksum =
            crc32(checksum, reinterpret_cast<const Bytef*>(buffer.data()), static_cast<uInt>(n));
    }
    return static_cast<std::uint32_t>(checksum);
}

}  // namespace

std::int64_t block_size_for(const std::vector<std::int64_t>& sizes) {
    for (std::int64_t block_size = kSmallestBlock;; block_size *= 2) {
        std::int64_t blocks = 0;
        for (const std::int64_t size : sizes)
            if (size > block_size) blocks += count_blocks(size, block_size);
        if (blocks <= kMostBlocks) return block_size;
    }
}

Tree describe_file(const InputFile& file, std::int64_t block_size) {
    std::vector<std::byte> buffer = buffer_for(file);
    uLong whole = crc32(0, nullptr, 0);
    std::string blocks;
    for (std::int64_t begin = 0; begin < file.size();) {
        const std::int64_t length = std::min(file.size() - begin, block_size);
        const std::uint32_t block = checksum_of(file, begin, begin + length, buffer);
        whole = crc32_combine(whole, block, static_cast<z_off_t>(length));
        char digits[kDigits + 1];
        std::snprintf(digits, sizeof digits, "%08x", block);
        blocks += digits;
        begin += length;
    }
    Tree description{{"size", file.size()}, {"crc32", static_cast<std::int64_t>(whole)}};
    if (file.size() > kSmallestBlock && block_size != kSmallestBlock)
        description.set(kBlockSize, block_size);
    if (file.size() > block_size) description.set(kBlocks, blocks);
    return description;
}

BlockChecksums block_checksums(const Tree& description) {
    const std::int64_t size = description["size"].integer();
    const auto whole = static_cast<std::uint32_t>(description["crc32"].integer());
    const Tree* const blocks = description.find(kBlocks);
    const Tree* const given = description.find(kBlockSize);
    const std::int64_t block_size = given == nullptr ? kSmallestBlock : given->integer();
    if (block_size < kSmallestBlock || block_size % kSmallestBlock != 0)
        throw ValueError(
            str(kBlockSize, " must be a positive multiple of ", kSmallestBlock, ": ", block_size));
    if (size <= block_size) return {block_size, {whole}};
    if (blocks == nullptr) return {block_size, {}};
    const std::string& text = blocks->string();
    const auto count = static_cast<std::size_t>(count_blocks(size, block_size));
    bool is_valid = text.size() % kDigits == 0 && text.size() / kDigits == count;
    std::vector<std::uint32_t> checksums(is_valid ? count : 0);
    for (std::size_t i = 0; i < checksums.size(); ++i) {
        const char* const begin = text.data() + i * kDigits;
        const auto [end, error] = std::from_chars(begin, begin + kDigits, checksums[i], 16);
        is_valid = is_valid && error == std::errc() && end == begin + kDigits;
    }
    if (!is_valid)
        throw ValueError(str("blocks must have ", count,
                             " checksums of 8 hexadecimal digits: the text has ", text.size(),
                             " characters"));
    return {block_size, std::move(checksums)};
}

void FileBlocks::check(std::int64_t begin, std::int64_t end) {
    if (!file_) file_.emplace(folder_, name_);
    const InputFile& file = *file_;
    const std::int64_t size = blocks_.block_size;
    std::vector<std::byte> buffer = buffer_for(file);
    end = std::min(end, file.size());
    for (std::int64_t block = begin / size; block * size < end; ++block) {
        const auto i = static_cast<std::size_t>(block);
        const bool is_known = i < blocks_.checksums.size();
        if (is_known && is_verified_[i]) continue;
        const std::int64_t first = block * size;
        const std::int64_t last = first + std::min(size, file.size() - first);
        if (!is_known || checksum_of(file, first, last, buffer) != blocks_.checksums[i])
            throw_changed(file.path(), str("block ", block, " (bytes [", first, ", ", last, "))"));
        is_verified_[i] = true;
    }
}

void throw_changed(const std::string& path, const std::string& part) {
    throw FileError(str(printable(path), ": has changed since it was saved: the checksum ",
                        part.empty() ? "" : str("of ", part, ' '), "differs"));
}

}  // namespace axle::accel
