#include "data/files/token_writer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>
#include <random>
#include <system_error>

#include "core/files/file.h"
#include "core/files/folder.h"
#include "kernels/error.h"

namespace axle::data {
namespace {

static_assert(std::endian::native == std::endian::little,
              "ids are written without a change of their bytes");

// The number of ids that are converted together.
constexpr std::size_t kIdsAtOnce = std::size_t{1} << 16;

// The names of more shards would not be sorted.
constexpr std::int64_t kMaxShards = 100'000;

// Creates a folder next to `path`, with an unused name, and returns its path.
std::string new_folder_beside(const std::string& path) {
    std::random_device random;
    while (true) {
        const std::string folder = str(path, ".tmp", random());
        std::error_code error;
        if (std::filesystem::create_directory(folder, error)) return folder;
        if (error) throw FileError(str(printable(folder), ": can't be created: ", error.message()));
    }
}

void check_replaceable(const std::string& folder) {
    const auto kind = kind_of(folder);
    if (!kind) return;
    if (*kind != FileKind::folder)
        throw FileError(str(printable(folder), ": exists and is not a folder of shards"));
    for (const std::string& name : list_folder(folder))
        if (!is_shard_name(name))
            throw FileError(str(printable(folder), ": the folder has other contents than shards, ",
                                "and is not replaced: ", in_quotes(name)));
}

std::string shard_name(std::int64_t number, int bytes) {
    const std::string digits = std::to_string(number);
    return std::string(5 - digits.size(), '0') + digits + (bytes == 4 ? ".u32.bin" : ".bin");
}

}  // namespace

int token_bytes(const std::string& path, int bytes) {
    if (bytes == 2 || bytes == 4) return bytes;
    if (bytes != 0)
        throw ValueError(str("Tokens: bytes must be 2 or 4, or 0 for the size that the file name ",
                             in_quotes(path), " implies: ", bytes));
    return path.ends_with(".u32") || path.ends_with(".u32.bin") ? 4 : 2;
}

bool is_shard_name(const std::string& name) {
    const std::size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
    const std::string rest = name.substr(digits);
    return digits == 5 && (rest == ".bin" || rest == ".u32.bin");
}

TokenWriter::TokenWriter(const std::string& path, TokenWriterOptions options)
    : path_(path), bytes_(token_bytes(path, options.bytes)), shard_tokens_(options.shard_tokens) {
    if (shard_tokens_ < 0)
        throw ValueError(
            str("TokenWriter: shard_tokens must not be negative: it is ", shard_tokens_));
    if (shard_tokens_ > 0) {
        path_ = absolute_path(path);
        check_replaceable(path_);
        temporary_ = new_folder_beside(path_);
    } else {
        file_ = std::make_unique<AtomicFile>(path_);
    }
}

TokenWriter::~TokenWriter() {
    file_.reset();
    if (temporary_.empty()) return;
    std::error_code ignored;
    std::filesystem::remove_all(temporary_, ignored);
}

void TokenWriter::write(std::span<const std::int64_t> ids) {
    const std::int64_t largest = bytes_ == 2 ? std::numeric_limits<std::uint16_t>::max()
                                             : std::numeric_limits<std::uint32_t>::max();
    for (const std::int64_t id : ids)
        if (id < 0 || id > largest)
            throw ValueError(str("Tokens: token ", id, " does not fit in ", bytes_,
                                 " bytes: ", printable(path_),
                                 bytes_ == 2 ? "; use 4 bytes, for example with a file name that "
                                               "ends in .u32.bin"
                                             : ""));
    while (!ids.empty()) {
        std::size_t n = std::min(kIdsAtOnce, ids.size());
        if (shard_tokens_ > 0) {
            const std::int64_t in_shard = size_ % shard_tokens_;
            n = static_cast<std::size_t>(
                std::min(static_cast<std::int64_t>(n), shard_tokens_ - in_shard));
            if (file_ == nullptr && shards_ == kMaxShards)
                throw ValueError(str("TokenWriter: more than ", kMaxShards, " shards of ",
                                     shard_tokens_, " tokens; shard_tokens must be larger"));
            if (file_ == nullptr)
                file_ =
                    std::make_unique<AtomicFile>(temporary_ + "/" + shard_name(shards_++, bytes_));
        }
        append(ids.first(n));
        ids = ids.subspan(n);
        if (shard_tokens_ > 0 && size_ % shard_tokens_ == 0) {
            file_->commit();
            file_.reset();
        }
    }
}

void TokenWriter::append(std::span<const std::int64_t> ids) {
    const auto width = static_cast<std::size_t>(bytes_);
    buffer_.resize(ids.size() * width);
    std::byte* to = buffer_.data();
    for (const std::int64_t id : ids) {
        const auto stored = static_cast<std::uint32_t>(id);
        std::memcpy(to, &stored, width);
        to += width;
    }
    file_->write(buffer_);
    size_ += std::ssize(ids);
}

void TokenWriter::commit() {
    if (file_ != nullptr) file_->commit();
    file_.reset();
    if (temporary_.empty()) return;
    check_replaceable(path_);
    const std::string old = put_in_place(temporary_, path_, Durability::full);
    temporary_ = old;  // the destructor removes it
}

}  // namespace axle::data
