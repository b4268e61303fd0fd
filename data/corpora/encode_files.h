// Encodes text files to token files, for training on texts that are larger than memory.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/files/text.h"
#include "data/tables/text_reader.h"

namespace axle::data {

struct EncodeProgress {
    std::int64_t read_bytes = 0, total_bytes = 0;  // of the files
    std::int64_t tokens = 0;
};

struct EncodeFilesOptions {
    TextReaderOptions texts = {};
    // Adds the special tokens of the post-processor of a PretrainedTokenizer, such as <s>, to each
    // text. Throws ValueError for other tokenizers, and if a text file is read in parts, because
    // each part would get them.
    bool add_special_tokens = false;
    // The id that is appended to each document: a row, a file that is read in parts, or a text.
    std::optional<std::int64_t> end_id = std::nullopt;
    int num_threads = 1;            // from 1 to 1024; the result does not depend on it
    std::int64_t shard_tokens = 0;  // as in TokenWriterOptions
    // Called at the beginning and when tokens were written, by one thread at a time.
    std::function<void(const EncodeProgress&)> on_progress = {};
};

struct EncodedFiles {
    std::int64_t documents = 0, tokens = 0;
};

// Encodes the texts of files, which TextReader reads, and writes their tokens in sequence to `out`,
// which Tokens::open() reads: a file, or a folder if options.shard_tokens is positive. Tokens have
// 2 bytes if the vocabulary has at most 65,536 tokens; otherwise they need 4, and the name of a
// file must end in .u32 or .u32.bin. Memory: about 256 KiB of texts per thread and their tokens, or
// the longest text. `out` is replaced when all texts are encoded.
//
// Throws ValueError for invalid options and for a name that implies too few bytes, and FileError,
// with the file and the line, if a text cannot be read or encoded. Also throws FileError if there
// are no tokens or `out` cannot be written.
EncodedFiles encode_files(const Tokenizer& tokenizer, const std::vector<std::string>& paths,
                          const std::string& out, const EncodeFilesOptions& options = {});

}  // namespace axle::data
