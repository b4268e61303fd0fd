// Writes token files piece by piece, for token sequences that are larger than memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace axle {
class AtomicFile;
}

namespace axle::data {

// Returns the number of bytes of a token in a file: `bytes`, or, if it is 0, 4 for file names *.u32
// and *.u32.bin and otherwise 2. Throws ValueError unless bytes is 0, 2 or 4.
int token_bytes(const std::string& path, int bytes);

struct TokenWriterOptions {
    int bytes = 0;  // bytes per token, as in TokenFileOptions; 0 means 2 for a folder of shards
    // If positive, the path is a folder of files with this number of tokens, and fewer in the last
    // file. Their names are 00000.bin, 00001.bin and so on, or 00000.u32.bin for 4 bytes.
    std::int64_t shard_tokens = 0;
};

// Writes a file, or a folder of shards, that Tokens::open() reads. The file or folder appears when
// commit() returns; before, and if commit() is not called, the path is unchanged. Used by one
// thread. Functions throw FileError if the disk cannot be written.
class TokenWriter {
  public:
    // Throws ValueError for invalid options. If shard_tokens is positive and the path exists, it
    // must be a folder that contains only shards, otherwise the constructor throws FileError.
    explicit TokenWriter(const std::string& path, TokenWriterOptions options = {});
    ~TokenWriter();
    TokenWriter(const TokenWriter&) = delete;
    TokenWriter& operator=(const TokenWriter&) = delete;

    // Appends ids. Throws ValueError if one of them is negative or does not fit into the bytes of a
    // token, and for more than 100,000 shards.
    void write(std::span<const std::int64_t> ids);
    // Returns the number of tokens that were written.
    std::int64_t size() const { return size_; }
    // Writes the tokens to disk and replaces the file or folder at the path. Called once.
    void commit();

  private:
    void append(std::span<const std::int64_t> ids);

    std::string path_;
    int bytes_;
    std::int64_t shard_tokens_;
    std::string temporary_;             // the folder of the shards until commit()
    std::unique_ptr<AtomicFile> file_;  // null between two shards
    std::int64_t size_ = 0, shards_ = 0;
    std::vector<std::byte> buffer_;
};

// Returns whether a name is the name of a shard, as TokenWriter names them.
bool is_shard_name(const std::string& name);

}  // namespace axle::data
