// Private to data: reads the files in a tar archive in sequence. Nothing is unpacked to the disk.
//
// Limits: an extended header has at most kMaxTarExtension bytes, and a name at most kMaxTarName.
// The reader needs no more memory than one extended header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/files/file.h"

namespace axle::data {

inline constexpr std::int64_t kMaxTarExtension = std::int64_t{1} << 20;
inline constexpr std::size_t kMaxTarName = 4096;

// A regular file in an archive.
struct TarMember {
    std::string name;         // relative and UTF-8, without ".." as a component
    std::int64_t header = 0;  // the offset of its header in the archive
    std::int64_t begin = 0;   // the offset of its contents
    std::int64_t size = 0;    // the size of its contents
};

// An open archive in the formats ustar, pax, GNU or V7, without compression. Directories are
// skipped. All errors are FileErrors with the path, an offset in the archive, the name of the
// member and the reason. Not thread-safe.
class TarReader {
  public:
    // Throws FileError if the file cannot be opened.
    explicit TarReader(const std::string& path) : file_(path) {}

    const std::string& path() const { return file_.path(); }
    // Returns the next file, or nullopt at the end of the archive. Throws FileError if the archive
    // is truncated, which includes a missing block of zeros at its end; if a header is invalid or
    // too large; if a name is absolute, contains "..", or is empty, too long or not UTF-8; and for
    // links, devices, sparse files and unknown types.
    std::optional<TarMember> next();
    // Reads the contents. `bytes` must have member.size bytes. Throws FileError if the file has
    // become shorter.
    void read(const TarMember& member, std::span<std::byte> bytes) const {
        file_.read_at(member.begin, bytes);
    }
    // Throws FileError with the path, the offset and the name of the member.
    [[noreturn]] void fail(const TarMember& member, std::string_view reason) const;

  private:
    // The fields of extended headers that apply to the next member.
    struct Extension {
        bool is_present = false;
        std::optional<std::string> name;
        std::optional<std::int64_t> size;
    };

    [[noreturn]] void fail(std::string_view reason) const;
    void read_pax(std::string_view text, bool is_global);
    void check_name(const TarMember& member) const;

    InputFile file_;
    std::int64_t at_ = 0;      // the offset of the next header
    std::int64_t header_ = 0;  // the offset of the current header, for messages
    Extension extension_;
    bool ended_ = false;
};

}  // namespace axle::data
