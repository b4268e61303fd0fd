// Checksums of the files of a checkpoint: the CRC-32 of each file and, for a file that is larger
// than a block, of each block. With the checksums of blocks, a process that needs a part of a file
// can verify this part alone. Blocks have 1 MiB. Very large checkpoints have larger blocks, because
// the size of the manifest is limited.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/files/file.h"
#include "core/tree/tree.h"

namespace axle::accel {

inline constexpr std::int64_t kSmallestBlock = std::int64_t{1} << 20;

// Returns the size of blocks in bytes for a checkpoint with files of these sizes. It is the
// smallest power of two, at least kSmallestBlock, with which all files that are larger than a block
// have at most 2^20 blocks together. The checksums of 2^20 blocks need 8 MiB of the manifest.
std::int64_t block_size_for(const std::vector<std::int64_t>& sizes);

// The checksums of the blocks of a file. A file that is not larger than a block has one checksum,
// that of the whole file. For a larger file, the list is empty if the manifest has none;
// checkpoints of earlier versions have none.
struct BlockChecksums {
    std::int64_t block_size = kSmallestBlock;
    std::vector<std::uint32_t> checksums;
};

// Returns {"size": bytes, "crc32": checksum}. For a file that is larger than a block, adds
// {"blocks": the checksums of all blocks, with 8 hexadecimal digits each}. If the file is larger
// than kSmallestBlock and `block_size` is not kSmallestBlock, adds {"block_size": bytes}.
// `block_size` must be a multiple of kSmallestBlock. Throws FileError if the file cannot be read.
Tree describe_file(const InputFile& file, std::int64_t block_size = kSmallestBlock);
// Returns the checksums in the result of describe_file(). Throws ValueError or IndexError if the
// description is invalid.
BlockChecksums block_checksums(const Tree& description);

// A file that is opened and verified when it is used. Not thread-safe.
class FileBlocks {
  public:
    // The file is `name` in `folder`, as for InputFile.
    FileBlocks(std::string folder, std::string name, BlockChecksums blocks)
        : folder_(std::move(folder)),
          name_(std::move(name)),
          blocks_(std::move(blocks)),
          is_verified_(blocks_.checksums.size()) {}

    // Verifies the blocks that contain the bytes [begin, end). Throws FileError if the file cannot
    // be read, or with the number of a block that does not match its checksum. Reads each block at
    // most once.
    void check(std::int64_t begin, std::int64_t end);

  private:
    std::string folder_, name_;
    BlockChecksums blocks_;
    std::vector<char> is_verified_;  // a boolean for each block
    std::optional<InputFile> file_;
};

// Throws FileError, because the contents of a file do not match its checksum. `part` describes the
// part of the file that differs, such as "block 3", or is empty for the whole file.
[[noreturn]] void throw_changed(const std::string& path, const std::string& part = "");

}  // namespace axle::accel
