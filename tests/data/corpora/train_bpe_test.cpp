// Compares trained tokenizers with the ones that tests/golden/record_bpe_training.py has recorded.
#include "data/corpora/train_bpe.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/tokenizers/pretrained_tokenizer.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/data/corpora/text_file.h"
#include "tests/data/tokenizers/golden.h"
#include "tests/temporary_folder.h"

namespace axle::data {
namespace {

using nlohmann::json;
using tests::expect_error;
using tests::FolderStorage;
using tests::TemporaryFolder;
using tests::text_file;
using Strings = std::vector<std::string>;

TrainBpeOptions training_options(const json& row, int num_threads = 1) {
    return {.trainer = {.vocab_size = row[0], .min_frequency = row[1], .special_tokens = row[2]},
            .num_threads = num_threads};
}

// Expects the recorded tokenizer.json, and shows only the first merge that differs.
void expect_trained(const std::string& file, const json& row) {
    SCOPED_TRACE(str("vocab_size ", row[0], ", min_frequency ", row[1]));
    const json trained = json::parse(file);
    const json &merges = trained["model"]["merges"], &expected = row[3]["model"]["merges"];
    const auto [at, other] =
        std::mismatch(merges.begin(), merges.end(), expected.begin(), expected.end());
    ASSERT_TRUE(at == merges.end() && other == expected.end())
        << "merge " << at - merges.begin() << " of " << expected.size();
    EXPECT_TRUE(trained == row[3]);
}

TEST(TrainBpe, WritesTheTokenizerOfTheTokenizersLibraryForTextFiles) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const json recorded = tests::golden_tokenizer("bpe_training");
    const std::string path = text_file(folder, recorded["text"].get<std::string>(), "text.txt");
    ASSERT_GE(recorded["files"].size(), 6u);
    for (const json& row : recorded["files"]) {
        expect_trained(train_bpe({path}, training_options(row)), row);
        expect_trained(train_bpe({path}, training_options(row, 3)), row);
    }
}

TEST(TrainBpe, WritesTheTokenizerOfTheTokenizersLibraryForRows) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const json recorded = tests::golden_tokenizer("bpe_training");
    const std::string text = recorded["text"];
    std::ofstream lines(folder / "rows.jsonl");
    std::vector<std::string> rows;
    for (std::size_t at = 0, end = 0; end != std::string::npos; at = end + 1) {
        end = text.find('\0', at);
        rows.push_back(text.substr(at, end - at));
        lines << json{{"body", rows.back()}, {"other", 1}} << '\n';
    }
    lines.close();
    ASSERT_GE(recorded["rows"].size(), 2u);
    for (const json& row : recorded["rows"]) {
        TrainBpeOptions options = training_options(row, 2);
        options.column = "body";
        expect_trained(train_bpe({folder / "rows.jsonl"}, options), row);
        // The order of the texts and the trainers that count their words make no difference.
        std::ranges::reverse(rows);
        BpeTrainer first(options.trainer), second(options.trainer);
        for (std::size_t i = 0; i < rows.size(); ++i) (i % 3 == 0 ? first : second).add(rows[i]);
        first.add(second);
        expect_trained(first.train(), row);
    }
}

TEST(TrainBpe, WritesTheTokenizerOfTheTokenizersLibraryForALargerText) {
    const char* const data = std::getenv("AXLE_DATA");
    const std::string path = std::string(data == nullptr ? "" : data) + "/tinyshakespeare.txt";
    if (!std::filesystem::exists(path))
        GTEST_SKIP() << "set AXLE_DATA to a folder that contains tinyshakespeare.txt";
    const json row = tests::golden_tokenizer("bpe_training")["shakespeare"];
    const json trained =
        json::parse(train_bpe({path}, {.trainer = {.vocab_size = row[0]}, .num_threads = 2}));
    const json& merges = trained["model"]["merges"];
    std::uint64_t hash = 0;
    for (const json& merge : merges)
        for (const json& token : merge)
            for (const char c : token.get<std::string>())
                hash = hash * 31 + static_cast<unsigned char>(c);
    EXPECT_EQ(merges.size(), row[1]);
    EXPECT_EQ(hash, row[2]);
}

TEST(TrainBpe, WritesATokenizerThatFindsItsSpecialTokensAndRestoresTexts) {
    BpeTrainer trainer({.vocab_size = 270, .special_tokens = {"<|end|>", "<|end|>"}});
    trainer.add("low lower lowest low low \xf0\x9f\x98\x80");
    EXPECT_EQ(trainer.num_words(), 5);
    std::vector<std::int64_t> sizes;
    const std::string file = trainer.train([&](std::int64_t n) { sizes.push_back(n); });
    EXPECT_EQ(sizes.front(), 258);
    const PretrainedTokenizer tokenizer = PretrainedTokenizer::from_json(file);
    EXPECT_EQ(tokenizer.vocab_size(), sizes.back());
    EXPECT_EQ(tokenizer.token_to_id("<|end|>"), 0);
    EXPECT_TRUE(tokenizer.is_special(0));
    const std::string text = "low<|end|>\nslow \xf0\x9f\x98\x80\xe4\xbd\xa0";
    const std::vector<std::int64_t> ids = tokenizer.encode(text);
    EXPECT_EQ(ids[1], 0);
    EXPECT_EQ(tokenizer.decode(ids, false), text);
    EXPECT_EQ(tokenizer.encode("low").size(), 1u);
}

TEST(TrainBpe, MergesTheSmallestIdsOfEquallyFrequentPairs) {
    const auto merges = [](const std::string& text, std::int64_t min_frequency = 0) {
        BpeTrainer trainer({.vocab_size = 300, .min_frequency = min_frequency});
        trainer.add(text);
        return json::parse(trainer.train())["model"]["merges"].dump();
    };
    EXPECT_EQ(merges("yx"), R"([["y","x"]])");
    EXPECT_EQ(merges("ba\nyx\nab"), R"([["a","b"],["b","a"],["y","x"]])");
    EXPECT_EQ(merges("aaaa"), R"([["a","a"],["aa","aa"]])");
    EXPECT_EQ(merges("ba\nyx\nyx", 2), R"([["y","x"]])");
    EXPECT_EQ(merges(""), "[]");
}

TEST(BpeTrainer, RejectsInvalidOptionsAndTexts) {
    const auto expect_rejected = [](BpeTrainerOptions options, const char* message) {
        expect_error<ValueError>({"BpeTrainer: ", message}, [&] { BpeTrainer{options}; });
    };
    expect_rejected({.vocab_size = 257, .special_tokens = {"a", "b"}},
                    "vocab_size must be from 258");
    expect_rejected({.vocab_size = std::int64_t{1} << 31}, "it is 2147483648");
    expect_rejected({.min_frequency = -1}, "min_frequency must not be negative: it is -1");
    expect_rejected({.special_tokens = {""}}, "a special token must be UTF-8 and not empty: ''");
    expect_rejected({.special_tokens = {"\xff"}}, "'\\xff'");
    BpeTrainer trainer;
    expect_error<ValueError>({"BpeTrainer: the text must be UTF-8: invalid at byte 2"},
                             [&] { trainer.add("ab\xc3"); });
    expect_error<ValueError>({"train_bpe: num_threads must be from 1 to 1024: it is 0"},
                             [&] { train_bpe({"text.txt"}, {.num_threads = 0}); });
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string path = text_file(folder, "ok\nbr\xc3(ken\n", "text.txt");
    expect_error<FileError>({path.c_str(), ": line 2: byte 5: the text is not valid UTF-8"},
                            [&] { train_bpe({path}, {.num_threads = 2}); });
}

}  // namespace
}  // namespace axle::data
