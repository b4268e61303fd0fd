// Checksums of the files of a checkpoint: the CRC-32 of a file and, for a file that is larger than
// a block, of each of its blocks, so that a process that needs a part of the file can verify this
// part alone. Blocks have 1 MiB. Very large checkpoints have larger blocks, so that the size of the
// manifest is bounded.
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

// Returns the size of blocks for a checkpoint with files of these sizes, in bytes: the smallest
// power of two of at least kSmallestBlock with which the files have at most 2^20 blocks together.
// Their checksums need 8 MiB of the manifest.
std::int64_t block_size_for(const std::vector<std::int64_t>& sizes);

// The checksums of the blocks of a file. The list is empty if the manifest has none, as for large
// files in checkpoints of earlier versions.
struct BlockChecksums {
    std::int64_t block_size = kSmallestBlock;
    std::vector<std::uint32_t> checksums;
};

// Returns {"size": bytes, "crc32": checksum} and, for a file that is larger than a block, also
// {"blocks": the checksums of all blocks, with 8 hexadecimal digits each}. A file of more than
// kSmallestBlock bytes has {"block_size": bytes} if blocks have another size. `block_size` must be
// a multiple of kSmallestBlock.
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

    // Throws FileError, with the number of the block, if the blocks that contain the bytes [begin,
    // end) do not have their checksums. Reads each block at most once.
    void check(std::int64_t begin, std::int64_t end);

  private:
    std::string folder_, name_;
    BlockChecksums blocks_;
    std::vector<bool> is_verified_;
    std::optional<InputFile> file_;
};

// Throws FileError: the contents of the file differ from their checksum. `part` describes the part
// of the file that differs, such as "block 3", or is empty for the whole file.
[[noreturn]] void throw_changed(const std::string& path, const std::string& part = "");

}  // namespace axle::accel
