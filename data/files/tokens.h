// Token sequences, in memory or mapped from a file, and the language modelling datasets over them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "data/dataset.h"

namespace axle::inline v0::data {

struct TokenFileOptions {
    // Bytes of one token, 2 or 4. 0 goes by the name: 4 for *.u32 and *.u32.bin, else 2.
    int bytes = 0;
    // If given, every token of the file is checked against it.
    std::int64_t vocab_size = 0;
};

// An immutable sequence of tokens; copies share it. Ids are kept in 2 bytes where all of them fit,
// else in 4.
class Tokens {
  public:
    // ValueError for ids that are negative or beyond 32 bits.
    explicit Tokens(std::span<const std::int64_t> ids);
    // Maps a file of raw little-endian integers and nothing else, as nanoGPT's train.bin: only what
    // is touched is read. FileError if it is missing, empty, not a whole number of tokens, or has
    // an id beyond vocab_size. The file must not be truncated while it is mapped (MappedFile).
    static Tokens open(const std::string& path, TokenFileOptions options = {});
    // Writes such a file, whole or not at all. `bytes` is that of the options; ValueError if an id
    // doesn't fit.
    void save(const std::string& path, int bytes = 0) const;

    std::int64_t size() const { return size_; }
    std::int64_t operator[](std::int64_t i) const {
        return bytes_ == 2 ? std::int64_t{as<std::uint16_t>()[i]}
                           : std::int64_t{as<std::uint32_t>()[i]};
    }
    // Tokens start to start + out.size() - 1.
    void copy(std::int64_t start, std::span<std::int64_t> out) const;
    // A hint: these are copied soon.
    void prefetch(std::int64_t start, std::int64_t n) const;
    // -1 if there is none. Reads all tokens.
    std::int64_t max() const;

  private:
    Tokens() = default;
    template <class T>
    const T* as() const {
        return static_cast<const T*>(data_);
    }

    std::shared_ptr<const void> owner_;
    const void* data_ = nullptr;
    std::int64_t size_ = 0;
    int bytes_ = 2;
};

// Entropy of the tokens' frequencies in nats: the loss of the best model that ignores context, and
// so the least that training must get below. 0 for no tokens.
double unigram_entropy(const Tokens& tokens);

// Samples {"input_ids": [block], "labels": [block]}, i64: the tokens from a start on, and those one
// later. Sample i starts at i * block: all blocks in order, for evaluation; what is left at the end
// is dropped.
class BlockDataset : public Dataset {
  public:
    // ValueError if there are fewer than block + 1 tokens.
    BlockDataset(Tokens tokens, std::int64_t block);
    std::int64_t size() const override { return (tokens_.size() - 1) / block_; }
    Tree get(std::int64_t index) const override;
    Tree get_batch(std::span<const std::int64_t> indices) const override;

  protected:
    virtual std::int64_t start(std::int64_t index) const { return index * block_; }
    // Where a block may start: [0, starts()).
    std::int64_t starts() const { return tokens_.size() - block_; }

  private:
    Tokens tokens_;
    std::int64_t block_;
};

// Blocks that start anywhere, each start as likely (nanoGPT's get_batch). The start of sample i is
// a pure function of seed and i: read it in order, with as many samples as the run will take (steps
// times batch size), and nothing needs shuffling.
class RandomBlockDataset : public BlockDataset {
  public:
    RandomBlockDataset(Tokens tokens, std::int64_t block, std::int64_t size,
                       std::uint64_t seed = 0);
    std::int64_t size() const override { return size_; }

  protected:
    std::int64_t start(std::int64_t index) const override;

  private:
    std::int64_t size_;
    std::uint64_t seed_;
};

}  // namespace axle::inline v0::data
