// Checksums of the files of a checkpoint: the CRC-32 of a file and, for a file of more than 1 MiB,
// of each MiB, so that a process that needs a part of the file can verify this part alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/files/file.h"
#include "core/tree/tree.h"

namespace axle::accel {

// Returns {"size": bytes, "crc32": checksum} and, for more than 1 MiB, also {"blocks": the
// checksums of all MiBs, with 8 hexadecimal digits each}.
Tree describe_file(const InputFile& file);
// Returns the checksums of the MiBs of a file from the result of describe_file(), or an empty list
// if it has none, as in checkpoints of earlier versions. Throws ValueError or IndexError if the
// description is invalid.
std::vector<std::uint32_t> block_checksums(const Tree& description);

// A file that is opened and verified when it is used. Not thread-safe.
class FileBlocks {
  public:
    // The file is `name` in `folder`, as for InputFile.
    FileBlocks(std::string folder, std::string name, std::vector<std::uint32_t> checksums)
        : folder_(std::move(folder)),
          name_(std::move(name)),
          checksums_(std::move(checksums)),
          is_verified_(checksums_.size()) {}

    // Throws FileError if the MiBs that contain the bytes [begin, end) do not have their checksums.
    // Reads each MiB once.
    void check(std::int64_t begin, std::int64_t end);

  private:
    std::string folder_, name_;
    std::vector<std::uint32_t> checksums_;
    std::vector<bool> is_verified_;
    std::optional<InputFile> file_;
};

// Throws FileError: the contents of the file differ from their checksum.
[[noreturn]] void throw_changed(const std::string& path);

}  // namespace axle::accel
