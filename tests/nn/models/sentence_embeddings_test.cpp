// Compares all-MiniLM-L6-v2 with sentence-transformers, whose results
// tests/golden/record_sentences.py has recorded.
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "data/tokenizers/pretrained_tokenizer.h"
#include "nn/models/bert.h"
#include "tests/data/tokenizers/golden.h"
#include "tests/nn/golden.h"

namespace axle {
namespace {

using data::PretrainedTokenizer;
using nlohmann::json;

// The options of sentence-transformers for this model, except that it pads each batch.
constexpr data::Truncation kTruncation = {.max_length = 256};

TEST(SentenceEmbeddings, HaveTheTokenIdsOfSentenceTransformers) {
    const json recorded = tests::golden_tokenizer("minilm");
    const auto tokenizer = PretrainedTokenizer::from_json(recorded["tokenizer"].dump());
    ASSERT_EQ(recorded["sentences"].size(), 104u);
    for (const json& row : recorded["sentences"]) {
        const std::string text = row[0];
        EXPECT_EQ(json(tokenizer.encode(text, {.truncation = kTruncation}).ids), row[1]) << text;
    }
}

// Returns the [B, T] tensor of a list of each encoding.
Tensor rows_of(const std::vector<data::Encoding>& batch,
               std::vector<std::int64_t> data::Encoding::*list) {
    std::vector<std::int64_t> all;
    for (const data::Encoding& encoding : batch)
        all.insert(all.end(), (encoding.*list).begin(), (encoding.*list).end());
    const auto size = std::ssize(batch);
    return tensor(all, {size, std::ssize(all) / size});
}

TEST(SentenceEmbeddings, EqualThoseOfSentenceTransformers) {
    const char* const models = std::getenv("AXLE_MODELS");
    const std::string folder = std::string(models == nullptr ? "" : models) + "/all-MiniLM-L6-v2";
    if (!std::filesystem::exists(folder))
        GTEST_SKIP() << "set AXLE_MODELS to a folder that contains all-MiniLM-L6-v2/";
    const auto tokenizer = PretrainedTokenizer::from_pretrained(folder);
    nn::Bert encoder = nn::Bert::from_pretrained(folder);
    const json rows = tests::golden_tokenizer("minilm")["sentences"];
    const Tensor expected = tests::golden("embeddings", "sentences.safetensors");
    const NoGrad no_grad;
    constexpr std::size_t kBatch = 16;
    for (std::size_t first = 0; first < rows.size(); first += kBatch) {
        std::vector<data::TextPair> texts;
        for (std::size_t i = first; i < std::min(first + kBatch, rows.size()); ++i)
            texts.emplace_back(rows[i][0].get<std::string>());
        const auto batch =
            tokenizer.encode_batch(texts, {.truncation = kTruncation, .padding = data::Padding{}});
        const Tensor mask = rows_of(batch, &data::Encoding::attention_mask);
        const Tensor hidden = encoder(rows_of(batch, &data::Encoding::ids), mask);
        const Tensor weights = mask.to(f32).unsqueeze(-1);
        const Tensor found = normalize(sum(hidden * weights, {1}) / sum(weights, {1}));
        const auto begin = static_cast<std::int64_t>(first);
        const Tensor difference = found - expected.narrow(0, begin, std::ssize(texts));
        EXPECT_LT(abs(difference).max().item(), 1e-5) << "batch of sentence " << first;
    }
}

}  // namespace
}  // namespace axle
