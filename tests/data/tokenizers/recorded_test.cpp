// Compares tokenizers with the results that tests/golden/record_tokenizers.py and
// record_sentences.py have recorded.
#include <algorithm>
#include <iterator>

#include <gtest/gtest.h>

#include "core/files/file.h"
#include "data/tokenizers/pretrained_tokenizer.h"
#include "tests/data/tokenizers/golden.h"

namespace axle::data {
namespace {

using nlohmann::json;
using tests::golden_tokenizer;

json offsets_of(const Encoding& encoding) {
    json numbers = json::array();
    for (const auto& [begin, end] : encoding.offsets) {
        numbers.push_back(begin);
        numbers.push_back(end);
    }
    return numbers;
}

json json_of(const Encoding& e) {
    return {e.ids,    e.type_ids,    e.attention_mask, e.special_tokens_mask,
            e.tokens, offsets_of(e), e.word_ids};
}

json json_with_overflow(const Encoding& encoding) {
    json row = json_of(encoding);
    json overflow = json::array();
    for (const Encoding& part : encoding.overflow) overflow.push_back(json_of(part));
    row.push_back(overflow);
    return row;
}

Side side_of(const json& options) {
    return options["direction"] == "left" ? Side::left : Side::right;
}

std::int64_t number_or_zero(const json& value) {
    return value.is_null() ? 0 : value.get<std::int64_t>();
}

EncodeOptions options_of(const json& row) {
    EncodeOptions options{.add_special_tokens = row["add_special_tokens"]};
    if (row.contains("truncation")) {
        const json& t = row["truncation"];
        options.truncation = Truncation{
            .max_length = t["max_length"],
            .strategy = t["strategy"] == "longest_first" ? TruncationStrategy::longest_first
                        : t["strategy"] == "only_first"  ? TruncationStrategy::only_first
                                                         : TruncationStrategy::only_second,
            .stride = t["stride"],
            .side = side_of(t)};
    }
    if (row.contains("padding")) {
        const json& p = row["padding"];
        options.padding = Padding{.length = number_or_zero(p["length"]),
                                  .multiple_of = number_or_zero(p["pad_to_multiple_of"]),
                                  .side = side_of(p),
                                  .id = p["pad_id"],
                                  .type_id = p["pad_type_id"],
                                  .token = p["pad_token"]};
    }
    return options;
}

// Compares ids, offsets and decoded text of all lines of a recorded tokenizer.
void expect_lines(const std::string& name) {
    const json recorded = golden_tokenizer(name);
    const PretrainedTokenizer tokenizer =
        PretrainedTokenizer::from_json(recorded["tokenizer"].dump());
    EXPECT_GE(recorded["lines"].size(), 1000u);
    for (const json& line : recorded["lines"]) {
        const std::string text = line[0];
        SCOPED_TRACE(in_quotes(text));
        const Encoding encoding = tokenizer.encode(text, EncodeOptions{});
        ASSERT_EQ(json(encoding.ids), line[1]);
        ASSERT_EQ(tokenizer.encode(text), encoding.ids);
        ASSERT_EQ(offsets_of(encoding), line[2]);
        ASSERT_EQ(json(tokenizer.decode(encoding.ids)), line[3]);
        ASSERT_EQ(json(tokenizer.decode(encoding.ids, false)), line.size() > 4 ? line[4] : line[3]);
        DecodeStream stream(tokenizer);
        std::string streamed;
        for (const std::int64_t id : encoding.ids) streamed += stream.next(id);
        ASSERT_EQ(json(streamed + stream.finish()), line[3]);
    }
}

void expect_options(const std::string& name) {
    const json recorded = golden_tokenizer(name);
    const PretrainedTokenizer tokenizer =
        PretrainedTokenizer::from_json(recorded["tokenizer"].dump());
    for (const json& row : recorded["options"]) {
        SCOPED_TRACE(row[0].dump() + row[1].dump() + row[2].dump());
        const std::string text = row[0], pair = row[1].is_null() ? "" : row[1];
        const EncodeOptions options = options_of(row[2]);
        const auto encode = [&] {
            return row[1].is_null() ? tokenizer.encode(text, options)
                                    : tokenizer.encode(text, pair, options);
        };
        if (row[3].is_string()) {
            EXPECT_THROW(encode(), ValueError);
        } else {
            EXPECT_EQ(json_with_overflow(encode()), row[3]);
        }
    }
}

TEST(PretrainedTokenizer, MatchesUncasedBert) { expect_lines("bert_uncased"); }
TEST(PretrainedTokenizer, MatchesTheVocabularyOfMiniLm) { expect_lines("minilm"); }
TEST(PretrainedTokenizer, MatchesCasedBert) { expect_lines("bert_cased"); }
TEST(PretrainedTokenizer, MatchesByteLevelBpeOfGpt2) { expect_lines("gpt2"); }
TEST(PretrainedTokenizer, MatchesByteLevelBpeOfRoberta) { expect_lines("roberta"); }
TEST(PretrainedTokenizer, MatchesByteLevelBpeOfLlama3) { expect_lines("llama3"); }
TEST(PretrainedTokenizer, MatchesBpeWithByteFallbackOfLlama2) { expect_lines("llama2"); }
TEST(PretrainedTokenizer, MatchesUnigramOfT5) { expect_lines("t5"); }
TEST(PretrainedTokenizer, MatchesUnigramWithByteFallbackOfAlbert) { expect_lines("albert"); }
TEST(PretrainedTokenizer, MatchesBpeWithWordSuffixOfClip) { expect_lines("clip"); }
TEST(PretrainedTokenizer, MatchesWordLevel) { expect_lines("words"); }

TEST(PretrainedTokenizer, HandlesPairsTruncationAndPaddingAsHuggingFace) {
    for (const char* name : {"bert_uncased", "minilm", "bert_cased", "gpt2", "roberta", "llama3",
                             "llama2", "t5", "albert", "clip", "words"}) {
        SCOPED_TRACE(name);
        expect_options(name);
    }
}

}  // namespace
}  // namespace axle::data
