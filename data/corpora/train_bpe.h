// Trains byte-level BPE tokenizers, such as the tokenizer of GPT-2.
//
// The merges equal those of BpeTrainer of the tokenizers library with the pre-tokenizer ByteLevel
// (add_prefix_space=False) and initial_alphabet=ByteLevel.alphabet(), with this limit: characters
// have the properties of the Unicode version of PCRE2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tables/text_reader.h"

namespace axle::data {

struct BpeTrainerOptions {
    // The number of tokens, which includes the special tokens and 256 tokens of single bytes. The
    // result has fewer tokens if no more pairs can be merged.
    std::int64_t vocab_size = 30000;
    // Pairs that occur less often are not merged.
    std::int64_t min_frequency = 0;
    // The tokens with the first ids. Repeated tokens are ignored.
    std::vector<std::string> special_tokens = {};
};

// Counts the words of texts, then merges the most frequent pair of neighboring tokens repeatedly.
// If pairs are equally frequent, the pair with the smallest ids is merged. Memory depends on the
// number of distinct words, not on the length of the texts. The result does not depend on the order
// of the texts. Used by one thread; other trainers can be used by other threads.
class BpeTrainer {
  public:
    // Throws ValueError unless vocab_size is at least 256 plus the number of special tokens and
    // less than 2^31 - 1, min_frequency is not negative, and the special tokens are not empty and
    // valid UTF-8.
    explicit BpeTrainer(BpeTrainerOptions options = {});
    ~BpeTrainer();
    BpeTrainer(BpeTrainer&& other) noexcept;
    BpeTrainer& operator=(BpeTrainer&& other) noexcept;

    // Counts the words of a text. Special tokens in the text are not treated differently. Throws
    // ValueError if the text is not valid UTF-8 or has 1 GiB or more.
    void add(std::string_view text);
    // Adds the counts of another trainer.
    void add(const BpeTrainer& other);
    // Returns the number of distinct words.
    std::int64_t num_words() const;
    // Returns the contents of a tokenizer.json for PretrainedTokenizer and for the tokenizers
    // library. Calls on_token(number of tokens) after each merge.
    std::string train(const std::function<void(std::int64_t)>& on_token = {}) const;

  private:
    struct Words;
    BpeTrainerOptions options_;
    std::unique_ptr<Words> words_;
};

struct TrainBpeOptions {
    BpeTrainerOptions trainer = {};
    // The column with the texts, of JSON lines and CSV files.
    std::string column = "text";
    int num_threads = 1;  // for counting words, from 1 to 1024; the result does not depend on it
    // Called at the beginning and when a part of the files was read, by one thread at a time.
    std::function<void(std::int64_t read_bytes, std::int64_t total_bytes)> on_read = {};
    // Called after each merge, with the number of tokens.
    std::function<void(std::int64_t tokens)> on_token = {};
};

// Trains on files, which TextReader reads, and returns the contents of a tokenizer.json. The lines
// of a text file, with their line ends, are texts, as in Tokenizer.train(files) of the tokenizers
// library. Throws the errors of BpeTrainer and TextReader, and ValueError if num_threads is
// invalid.
std::string train_bpe(const std::vector<std::string>& paths, const TrainBpeOptions& options = {});

}  // namespace axle::data
