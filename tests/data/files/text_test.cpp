#include "data/files/text.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "core/ops.h"
#include "data/files/tokens.h"
#include "data/loading/loader.h"
#include "tests/temporary_folder.h"

namespace axle::data {
namespace {

using Ids = std::vector<std::int64_t>;

template <class E, class F>
std::string error_message(F&& f) {
    try {
        f();
    } catch (const E& error) {
        return error.what();
    }
    return "no error";
}

void write_file(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
}

TEST(ReadText, ReturnsContentsAndRejectsMissingAndEmptyFiles) {
    const tests::TemporaryFolder folder;
    write_file(folder / "a.txt", "two\nlines");
    write_file(folder / "c.txt", "");
    EXPECT_EQ(read_text(folder / "a.txt"), "two\nlines");
    EXPECT_NE(error_message<FileError>([&] { read_text(folder / "b.txt"); }).find("b.txt"),
              std::string::npos);
    EXPECT_NE(error_message<FileError>([&] { read_text(folder / "c.txt"); }).find("empty"),
              std::string::npos);
    EXPECT_THROW(read_text(folder.path()), FileError);
}

TEST(ByteTokenizer, EncodesEachByteAsOneTokenAndRejectsInvalidIds) {
    const ByteTokenizer bytes;
    EXPECT_EQ(bytes.encode("a\xff"), (Ids{97, 255}));
    EXPECT_EQ(bytes.decode(Ids{97, 255, 0}), std::string("a\xff\0", 3));
    EXPECT_THROW(bytes.decode(Ids{256}), IndexError);
    EXPECT_THROW(bytes.decode(Ids{-1}), IndexError);
}

TEST(CharTokenizer, AssignsIdsToCodePointsInOrderAndRejectsUnknownIds) {
    const std::string text =
        "z\xc3\xa9"
        "a\xe2\x82\xac\xf0\x9f\x98\x80"
        "a\n";
    const CharTokenizer chars = CharTokenizer::from_text(text);
    EXPECT_EQ(chars.vocab_size(), 6);
    EXPECT_EQ(chars.encode(text), (Ids{2, 3, 1, 4, 5, 1, 0}));
    EXPECT_EQ(chars.decode(chars.encode(text)), text);
    const CharTokenizer copy = chars;
    EXPECT_EQ(copy.encode("\xe2\x82\xac"), Ids{4});
    EXPECT_THROW(chars.decode(Ids{6}), IndexError);
}

TEST(CharTokenizer, ReportsUnknownCharactersAndTheirPosition) {
    const CharTokenizer chars = CharTokenizer::from_text("abc");
    EXPECT_EQ(error_message<ValueError>([&] { chars.encode("ab\xc3\xa9"); }),
              "encode: the character is not in the vocabulary: '\xc3\xa9' (U+00E9) at byte 2");
    EXPECT_EQ(
        error_message<ValueError>([&] { chars.encode("\xf0\x9f\x98\x80"); }),
        "encode: the character is not in the vocabulary: '\xf0\x9f\x98\x80' (U+1F600) at byte 0");
}

TEST(CharTokenizer, RejectsInvalidUtf8) {
    for (const char* bad : {"\xff", "\x80", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80",
                            "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xe2\x82", "\xc3("})
        EXPECT_EQ(
            error_message<ValueError>([&] { CharTokenizer::from_text(std::string("ab") + bad); }),
            "CharTokenizer: the text must be UTF-8: invalid at byte 2");
}

TEST(CharTokenizer, RestoresVocabularyFromJsonAndRejectsInvalidJson) {
    const CharTokenizer chars = CharTokenizer::from_text("the \"quick\"\n\xe2\x82\xac");
    const CharTokenizer back = CharTokenizer::from_json(chars.to_json());
    EXPECT_EQ(back.vocab_size(), chars.vocab_size());
    EXPECT_EQ(back.encode("\xe2\x82\xac\""), chars.encode("\xe2\x82\xac\""));
    EXPECT_THROW(CharTokenizer::from_json(R"({"type": "bpe", "vocab": "ab"})"), ValueError);
    EXPECT_THROW(CharTokenizer::from_json(R"({"type": "char", "vocab": "aba"})"), ValueError);
    EXPECT_THROW(CharTokenizer::from_json(R"({"type": "char"})"), IndexError);
}

TEST(TokenFile, StoresTokensInTwoOrFourBytesAndRejectsTokensThatDoNotFit) {
    const tests::TemporaryFolder folder;
    const Ids ids = {0, 1, 65535, 7};
    Tokens(ids).save(folder / "a.bin");
    Tokens(ids).save(folder / "a.u32.bin");
    EXPECT_EQ(std::filesystem::file_size(folder / "a.bin"), 8u);
    EXPECT_EQ(std::filesystem::file_size(folder / "a.u32.bin"), 16u);
    for (const char* name : {"a.bin", "a.u32.bin"}) {
        const Tokens back = Tokens::open(folder / name, {.vocab_size = 65536});
        ASSERT_EQ(back.size(), 4);
        Ids copied(3);
        back.copy(1, copied);
        EXPECT_EQ(copied, (Ids{1, 65535, 7}));
        EXPECT_EQ(back[2], 65535);
    }
    EXPECT_EQ(Tokens::open(folder / "a.u32.bin", {.bytes = 2}).size(), 8);
    const Tokens wide(Ids{65536});
    EXPECT_EQ(wide[0], 65536);
    EXPECT_NE(error_message<ValueError>([&] { wide.save(folder / "w.bin"); }).find("2 bytes"),
              std::string::npos);
    wide.save(folder / "w.bin", 4);
    EXPECT_EQ(Tokens::open(folder / "w.bin", {.bytes = 4})[0], 65536);
}

TEST(TokenFile, RejectsInvalidFilesAndTokens) {
    const tests::TemporaryFolder folder;
    const auto open = [&](const std::string& name, const std::string& bytes,
                          TokenFileOptions options = {}) {
        write_file(folder / name, bytes);
        return error_message<FileError>([&] { Tokens::open(folder / name, options); });
    };
    EXPECT_THROW(Tokens::open(folder / "missing.bin"), FileError);
    EXPECT_NE(open("empty.bin", "").find("empty"), std::string::npos);
    EXPECT_NE(open("odd.bin", "abc").find("3 bytes, 2 per token"), std::string::npos);
    EXPECT_NE(open("six.u32", "abcdef").find("6 bytes, 4 per token"), std::string::npos);
    const std::string big("\x05\x00\x10\x00", 4);
    EXPECT_EQ(open("big.bin", big, {.vocab_size = 17}), "no error");
    EXPECT_NE(open("big.bin", big, {.vocab_size = 16})
                  .find("token 16 is out of range for a vocabulary of 16"),
              std::string::npos);
    EXPECT_THROW(Tokens::open(folder / "big.bin", {.bytes = 3}), ValueError);
    EXPECT_THROW(Tokens(Ids{-1}), ValueError);
    EXPECT_THROW(Tokens(Ids{std::int64_t{1} << 32}), ValueError);
}

TEST(UnigramEntropy, ReturnsEntropyOfTokenFrequencies) {
    EXPECT_NEAR(unigram_entropy(Tokens(Ids{0, 1, 2, 3})), std::log(4.0), 1e-15);
    EXPECT_NEAR(unigram_entropy(Tokens(Ids{5, 5, 5, 9})),
                -0.75 * std::log(0.75) - 0.25 * std::log(0.25), 1e-15);
    EXPECT_NEAR(unigram_entropy(Tokens(Ids{1u << 31, 1})), std::log(2.0), 1e-15);
    EXPECT_EQ(unigram_entropy(Tokens(Ids{3, 3})), 0);
    EXPECT_EQ(unigram_entropy(Tokens(Ids{})), 0);
}

Ids counting(std::int64_t n) {
    Ids ids;
    for (std::int64_t i = 0; i < n; ++i) ids.push_back(i);
    return ids;
}

TEST(BlockDataset, YieldsBlocksWithLabelsShiftedByOneAndRejectsInvalidSizesAndIndices) {
    const BlockDataset blocks(Tokens(counting(12)), 4);
    ASSERT_EQ(blocks.size(), 2);
    EXPECT_EQ(BlockDataset(Tokens(counting(13)), 4).size(), 3);
    const Tree sample = blocks.get(1);
    EXPECT_EQ(sample["input_ids"].tensor().to_vector(), (std::vector<double>{4, 5, 6, 7}));
    EXPECT_EQ(sample["labels"].tensor().to_vector(), (std::vector<double>{5, 6, 7, 8}));
    const Tree batch = blocks.get_batch(Ids{1, 0});
    EXPECT_EQ(batch["labels"].tensor().shape(), (Shape{2, 4}));
    EXPECT_EQ(batch["labels"].tensor().to_vector(), (std::vector<double>{5, 6, 7, 8, 1, 2, 3, 4}));
    EXPECT_THROW(blocks.get(2), IndexError);
    EXPECT_THROW(BlockDataset(Tokens(counting(4)), 4), ValueError);
    EXPECT_THROW(BlockDataset(Tokens(Ids{}), 1), ValueError);
    EXPECT_THROW(BlockDataset(Tokens(counting(4)), 0), ValueError);
}

TEST(RandomBlockDataset, DrawsEveryStartEquallyOftenAndReproducibly) {
    const RandomBlockDataset blocks(Tokens(counting(14)), 4, 20000, 3);
    EXPECT_EQ(blocks.size(), 20000);
    const auto first = [](const Tree& sample) {
        return sample["input_ids"].tensor()[0].item_int();
    };
    EXPECT_EQ(first(blocks.get(77)), first(blocks.get(77)));
    std::vector<int> hits(10);
    Ids all(20000);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
    const Tree batch = blocks.get_batch(all);
    const Tensor starts = batch["input_ids"].tensor().select(1, 0);
    for (const double start : starts.to_vector()) ++hits.at(static_cast<std::size_t>(start));
    for (const int n : hits) EXPECT_NEAR(n, 2000, 200);
    const Tensor labels = batch["labels"].tensor(), ids = batch["input_ids"].tensor();
    EXPECT_EQ(sum(labels - ids).item_int(), 80000);
    const RandomBlockDataset other(Tokens(counting(14)), 4, 20000, 4);
    EXPECT_NE(other.get_batch(all)["input_ids"].tensor().to_vector(), ids.to_vector());
}

TEST(TokenFile, CanBeReadByLoaderWorkers) {
    const tests::TemporaryFolder folder;
    Tokens(counting(1000)).save(folder / "train.bin");
    const BlockDataset blocks(Tokens::open(folder / "train.bin", {.vocab_size = 1000}), 9);
    double total = 0;
    DataLoader loader(blocks, {.batch_size = 4, .num_workers = 2});
    for (const auto& batch : loader) total += sum(batch["input_ids"]).item();
    EXPECT_EQ(total, 998.0 * 999 / 2);
}

}  // namespace
}  // namespace axle::data
