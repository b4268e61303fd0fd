// Token sequences, in memory or memory-mapped, and language modeling datasets over them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "data/dataset.h"

namespace axle::data {

struct TokenFileOptions {
    // Bytes per token: 2, 4, or 0, which selects 4 for file names *.u32 and *.u32.bin, otherwise 2.
    int bytes = 0;
    // If positive, open() reads all tokens and throws FileError unless all ids are below this
    // number.
    std::int64_t vocab_size = 0;
};

// The interface of objects that store, read or compute token ids. Several threads may call the
// functions.
class TokenSource {
  public:
    virtual ~TokenSource() = default;
    virtual std::int64_t size() const = 0;
    // Writes the ids at positions [start, start + out.size()), which must exist, to `out`.
    virtual void copy(std::int64_t start, std::span<std::int64_t> out) const = 0;
};

// An immutable token sequence. Copies and slices share the memory. Ids are stored in 2 or 4 bytes
// each, in memory or in a mapped file, or a source computes them when they are read, for example
// from a text (Tokenizer::encode_file()). Several threads can read the same object. Only slice()
// checks positions.
class Tokens {
  public:
    // Copies the ids: in 2 bytes each if all ids fit, otherwise in 4 bytes each. Throws ValueError
    // for ids that are negative or need more than 32 bits.
    explicit Tokens(std::span<const std::int64_t> ids);
    // Reads the ids from a source, which must not be null, when they are used.
    explicit Tokens(std::shared_ptr<const TokenSource> source);
    // Maps a file of raw little-endian integers without a header, such as nanoGPT's train.bin. Only
    // accessed pages are read. max(), save() and unigram_entropy() read the file in parts and do
    // not map its pages. Throws FileError if the file is missing or empty, its size is not a
    // multiple of the token size, or an id is >= vocab_size, and ValueError if `bytes` is not 0, 2
    // or 4. The file must not be truncated while it is mapped (MappedFile in core/files/file.h).
    //
    // The path can also be a folder of such files: the result has the tokens of all files *.bin in
    // it, in the order of their names. The tokens are then copied when they are used, so
    // is_stored() is false. Throws FileError if the folder has no file *.bin.
    static Tokens open(const std::string& path, TokenFileOptions options = {});
    // Writes the tokens to a file, atomically. open() can read it unless there are no tokens.
    // `bytes` is as in TokenFileOptions. Throws ValueError if `bytes` is invalid or an id does not
    // fit into this number of bytes, and FileError if the file cannot be written. TokenWriter
    // (token_writer.h) writes tokens piece by piece.
    void save(const std::string& path, int bytes = 0) const;

    std::int64_t size() const { return size_; }
    // Returns the id at position i. Use copy() for many ids: a source may take microseconds for
    // one.
    std::int64_t operator[](std::int64_t i) const {
        if (data_ == nullptr) return computed(i);
        return bytes_ == 2 ? std::int64_t{as<std::uint16_t>()[i]}
                           : std::int64_t{as<std::uint32_t>()[i]};
    }
    // Returns whether the ids are in memory or in a mapped file.
    bool is_stored() const { return data_ != nullptr || size_ == 0; }
    // Returns the tokens at positions [begin, end). Throws IndexError unless
    // 0 <= begin <= end <= size().
    Tokens slice(std::int64_t begin, std::int64_t end) const;
    // Copies the tokens at positions [start, start + out.size()) to `out`.
    void copy(std::int64_t start, std::span<std::int64_t> out) const;
    // Starts to load the tokens at positions [start, start + n), at most 4 KiB, into the cache of
    // the CPU. Does nothing unless is_stored().
    void prefetch(std::int64_t start, std::int64_t n) const;
    // Returns the largest id, or -1 if there are no tokens. Reads all tokens.
    std::int64_t max() const;
    // Calls f for all ids in order, in parts of at most 65536 ids.
    void for_each_part(const std::function<void(std::span<const std::int64_t> ids)>& f) const;

  private:
    Tokens() = default;
    template <class T>
    const T* as() const {
        return static_cast<const T*>(data_);
    }
    std::int64_t computed(std::int64_t i) const;

    std::shared_ptr<const TokenSource> source_;
    const void* data_ = nullptr;  // null if the source computes the ids
    std::int64_t begin_ = 0;      // position of the first token in the source
    std::int64_t size_ = 0;
    int bytes_ = 2;
};

// Returns the entropy of the token frequencies in nats, or 0 if there are no tokens. This entropy
// is the loss of the best model that ignores the context; a useful model has a lower loss.
double unigram_entropy(const Tokens& tokens);

// A dataset of consecutive blocks of tokens, for evaluation. A sample is {"input_ids": [block],
// "labels": [block]} in i64; the labels are the input ids shifted by one token. Sample i starts at
// token i * block. The incomplete block at the end is dropped.
class BlockDataset : public Dataset {
  public:
    // Throws ValueError unless block is positive and there are at least block + 1 tokens.
    BlockDataset(Tokens tokens, std::int64_t block);
    std::int64_t size() const override { return (tokens_.size() - 1) / block_; }
    // get() and get_batch() throw IndexError unless 0 <= index < size().
    Tree get(std::int64_t index) const override;
    Tree get_batch(std::span<const std::int64_t> indices) const override;

  protected:
    // Returns the position of the first token of sample `index`.
    virtual std::int64_t start(std::int64_t index) const { return index * block_; }
    // Returns the number of positions where a block can start.
    std::int64_t starts() const { return tokens_.size() - block_; }

  private:
    Tokens tokens_;
    std::int64_t block_;
};

// A dataset of blocks at uniformly random positions, as in get_batch of nanoGPT. The position of
// sample i depends only on the seed and i. Set `size` to the number of samples of the run (steps
// times batch size) and read them in order; no shuffling is needed.
class RandomBlockDataset : public BlockDataset {
  public:
    // Throws ValueError for the same errors as BlockDataset, and if size is negative.
    RandomBlockDataset(Tokens tokens, std::int64_t block, std::int64_t size,
                       std::uint64_t seed = 0);
    std::int64_t size() const override { return size_; }

  protected:
    std::int64_t start(std::int64_t index) const override;

  private:
    std::int64_t size_;
    std::uint64_t seed_;
};

}  // namespace axle::data
