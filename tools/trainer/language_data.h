// Private to tools: the training data of a language model, read from a text, a file or folder of
// tokens, or JSON lines.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/files/text.h"
#include "data/files/tokens.h"
#include "data/instructions/documents.h"
#include "data/loading/loader.h"
#include "tools/trainer/run.h"

namespace axle::trainer {

struct LanguageDataOptions {
    // "char", "byte" or a folder with a tokenizer.json, for models that start with random weights
    // or without a tokenizer.json. Files of tokens do not need "char" and "byte".
    std::string tokenizer = "char";
    // The options for JSON lines (data::DocumentOptions).
    std::string text = "text", chat = "chatml", train_on = "answers", packing = "none";

    // Declares the options, except `tokenizer`, with their current values as defaults.
    void add_to(CommandLine& line);
};

// The sizes of a model on which its data depend.
struct LanguageModelSizes {
    std::int64_t vocab_size = 0;         // 0: the size of the tokenizer's vocabulary
    std::int64_t block = 0;              // the number of tokens of a sample
    std::vector<std::int64_t> eos = {};  // the tokens that end a text
};

// A tokenized text, or tokenized documents. A tenth is used for validation: the last tenth of the
// tokens, or random documents, which depend on Options::split_seed.
class LanguageData {
  public:
    // Opens the file of --data. A text stays in the file, which can be larger than the memory.
    // Throws UsageError for invalid options, and FileError if a file is missing or invalid or if
    // the text is too short.
    LanguageData(const Options& run, const LanguageDataOptions& options,
                 const LanguageModelSizes& sizes);

    bool has_documents() const { return train_documents_.has_value(); }
    // The number of tokens of the vocabulary: of the tokenizer, or of the model without one.
    std::int64_t vocab_size() const { return vocab_size_; }
    // The entropy of the token frequencies of a text.
    double unigram_entropy() const { return unigram_entropy_; }
    // The number of tokens for training without padding, and of samples: blocks or packed rows.
    double train_tokens() const;
    double train_samples() const;
    std::string description() const;  // such as "text: 900 tokens of 256"

    // Returns loaders of {"input_ids", "labels"} and, for packed documents, "position_ids". The
    // training loader of a text does not end; samples depend only on their index and the seed.
    data::DataLoader train_loader(std::int64_t batch_size, std::uint64_t seed) const;
    data::DataLoader validation_loader(std::int64_t batch_size) const;

    // Returns prompts for samples, as token ids: a line break (or the first token of the training
    // data) of a text, or the prompts of up to `count` documents for validation.
    std::vector<std::vector<std::int64_t>> prompts(std::int64_t count) const;
    // Returns the text of ids with special tokens or, without a tokenizer, the ids.
    std::string text_of(const std::vector<std::int64_t>& ids) const;
    // Returns the ids that end a generated answer of documents.
    std::vector<std::int64_t> end_ids() const;
    // Returns whether a generated text ends with the token that ends a message of a chat.
    bool is_end(const std::vector<std::int64_t>& ids) const;

  private:
    void open_documents(const Options& run, const LanguageDataOptions& options);
    data::DataLoader loader_of(const data::DocumentDataset& documents,
                               data::LoaderOptions options) const;

    LanguageModelSizes sizes_;
    std::string chat_;                            // the name of the template; "" for texts
    std::unique_ptr<data::Tokenizer> tokenizer_;  // can be null for a file of tokens
    std::int64_t vocab_size_ = 0;
    double unigram_entropy_ = 0;
    std::optional<data::Tokens> train_, validation_;
    std::optional<data::DocumentDataset> train_documents_, validation_documents_;
};

}  // namespace axle::trainer
