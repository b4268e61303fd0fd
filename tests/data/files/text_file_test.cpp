// Tests the tokens of text files, which are encoded when they are read, slices of tokens, and
// RandomBlockDataset.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "data/files/text.h"
#include "data/files/tokens.h"
#include "tests/close.h"
#include "tests/peak_memory.h"
#include "tests/temporary_folder.h"

namespace axle::data {
namespace {

using tests::expect_error;
using tests::FolderStorage;
using tests::peak_memory;
using tests::TemporaryFolder;
using Ids = std::vector<std::int64_t>;

constexpr std::int64_t kMiB = 1 << 20;

std::string written(const TemporaryFolder& folder, const std::string& text) {
    std::ofstream(folder / "text", std::ios::binary) << text;
    return folder / "text";
}

// Returns at least `bytes` bytes of text. If `is_ascii` is true, each character has one byte, else
// one to four bytes.
std::string sample_text(std::int64_t bytes, bool is_ascii) {
    const std::string characters[] = {"a", "\n", "z", "é", "漢", "\xf0\x9f\x98\x80"};
    std::string text;
    std::uint32_t state = 1;
    while (std::ssize(text) < bytes) {
        state = state * 1664525 + 1013904223;
        text += characters[(state >> 16) % (is_ascii ? 3 : 6)];
    }
    return text;
}

void expect_same_tokens(const Tokens& actual, const Ids& expected) {
    ASSERT_EQ(actual.size(), std::ssize(expected));
    Ids copied(expected.size());
    actual.copy(0, copied);
    EXPECT_EQ(copied, expected);
    EXPECT_EQ(actual.max(), *std::ranges::max_element(expected));
    EXPECT_EQ(unigram_entropy(actual), unigram_entropy(Tokens(expected)));
    for (std::int64_t start = 0; start < actual.size(); start += 997) {
        Ids part(static_cast<std::size_t>(std::min<std::int64_t>(50, actual.size() - start)));
        actual.copy(start, part);
        ASSERT_TRUE(std::equal(part.begin(), part.end(), expected.begin() + start)) << start;
        ASSERT_EQ(actual[start], expected[static_cast<std::size_t>(start)]);
    }
}

TEST(EncodeFile, ReturnsTheSameTokensAsEncode) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    for (const bool is_ascii : {true, false})
        for (const std::int64_t bytes : {1, 5000, 20'000, 100'000}) {
            const std::string text = sample_text(bytes, is_ascii), path = written(folder, text);
            const auto chars = CharTokenizer::from_file(path);
            EXPECT_EQ(chars.to_json(), CharTokenizer::from_text(text).to_json());
            expect_same_tokens(chars.encode_file(path), chars.encode(text));
            expect_same_tokens(ByteTokenizer().encode_file(path), ByteTokenizer().encode(text));
        }
}

// A text file is read in parts of 1 MiB.
TEST(EncodeFile, ReadsCharactersThatCrossTheEndOfAPart) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    for (int before = 0; before < 4; ++before) {
        std::string text =
            sample_text(kMiB, true).substr(0, kMiB - static_cast<std::size_t>(before));
        text += "\xf0\x9f\x98\x80" + sample_text(100, false);
        const std::string path = written(folder, text);
        const auto chars = CharTokenizer::from_file(path);
        Ids ids(static_cast<std::size_t>(chars.encode_file(path).size()));
        chars.encode_file(path).copy(0, ids);
        EXPECT_EQ(chars.decode(ids), text);
    }
}

TEST(EncodeFile, CallsEncodeOfUserDefinedTokenizersAndReportsTheFileInErrors) {
    struct Words : Tokenizer {
        std::int64_t vocab_size() const override { return 10; }
        Ids encode(std::string_view text) const override {
            if (text == "bad") throw ValueError("encode: bad");
            return {3, std::ssize(text)};
        }
        std::string decode(std::span<const std::int64_t>) const override { return ""; }
    };
    const TemporaryFolder folder(FolderStorage::in_memory);
    expect_same_tokens(Words().encode_file(written(folder, "seven..")), {3, 7});
    expect_error<FileError>({(folder / "text").c_str(), "encode: bad"},
                            [&] { Words().encode_file(written(folder, "bad")); });
}

TEST(EncodeFile, ReportsMissingEmptyAndInvalidFiles) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string path = folder / "text";
    const auto chars = CharTokenizer::from_text("ab");
    const ByteTokenizer bytes;
    expect_error<FileError>({path.c_str()}, [&] { CharTokenizer::from_file(path); });
    expect_error<FileError>({path.c_str()}, [&] { bytes.encode_file(path); });
    written(folder, "");
    expect_error<FileError>({path.c_str(), "the file is empty"},
                            [&] { CharTokenizer::from_file(path); });
    expect_error<FileError>({path.c_str(), "the file is empty"}, [&] { bytes.encode_file(path); });
    const std::string text = sample_text(kMiB, true) + "b\xff" + "a";
    const std::string at = str("the text must be UTF-8: invalid at byte ", text.size() - 2);
    written(folder, text);
    expect_error<FileError>({path.c_str(), at.c_str()}, [&] { CharTokenizer::from_file(path); });
    written(folder, "ab\xc3");
    expect_error<FileError>({path.c_str(), "the text must be UTF-8: invalid at byte 2"},
                            [&] { chars.encode_file(path); });
    written(folder, "abc");
    expect_error<FileError>({path.c_str(), "the character is not in the vocabulary: 'c'", "byte 2"},
                            [&] { chars.encode_file(path); });
}

TEST(EncodeFile, ReportsAFileThatBecomesShorter) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    for (const bool is_ascii : {true, false}) {
        const std::string path = written(folder, sample_text(20'000, is_ascii));
        const auto chars = CharTokenizer::from_file(path);
        for (const Tokens& tokens : {chars.encode_file(path), ByteTokenizer().encode_file(path)}) {
            written(folder, sample_text(20'000, is_ascii));
            std::filesystem::resize_file(path, 100);
            expect_error<FileError>({path.c_str(), "the file ends after"},
                                    [&] { return tokens[9000]; });
        }
    }
}

TEST(Tokens, ReturnSlicesAndRejectInvalidRanges) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    Ids ids;
    for (std::int64_t i = 0; i < 100'000; ++i) ids.push_back(i * 7919 % 60'000);
    const Tokens stored(ids);
    stored.save(folder / "t.bin");
    const std::string text = sample_text(200'000, false), path = written(folder, text);
    const auto chars = CharTokenizer::from_text(text);
    const Ids encoded = chars.encode(text);
    for (const auto& [tokens, expected] :
         {std::pair(stored, ids), std::pair(Tokens::open(folder / "t.bin"), ids),
          std::pair(chars.encode_file(path), encoded)}) {
        const std::int64_t n = tokens.size(), begin = n / 10, end = n / 2;
        const Ids part(expected.begin() + begin, expected.begin() + end);
        expect_same_tokens(tokens.slice(begin, end), part);
        expect_same_tokens(tokens.slice(5, n).slice(begin - 5, end - 5), part);
        EXPECT_EQ(tokens.slice(n, n).size(), 0);
        EXPECT_EQ(tokens.slice(7, 7).max(), -1);
        tokens.slice(begin, end).save(folder / "part.bin");
        expect_same_tokens(Tokens::open(folder / "part.bin"), part);
        for (const auto& [first, last] :
             {std::pair<std::int64_t, std::int64_t>(-1, 5), {5, 4}, {0, n + 1}})
            expect_error<IndexError>({"Tokens: slice: the positions must satisfy"},
                                     [&] { return tokens.slice(first, last); });
    }
}

TEST(RandomBlockDataset, GivesTheSameSamplesForTextFilesAndTokens) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string text = sample_text(50'000, false), path = written(folder, text);
    const auto chars = CharTokenizer::from_text(text);
    const RandomBlockDataset stored(Tokens(chars.encode(text)), 33, 20, 5);
    const RandomBlockDataset encoded(chars.encode_file(path), 33, 20, 5);
    for (std::int64_t i = 0; i < 20; ++i)
        for (const char* name : {"input_ids", "labels"})
            tests::expect_same_bits(encoded.get(i)[name], stored.get(i)[name]);
}

// A trainer that reads text or tokens needs memory for only a part of the file.
TEST(TextFile, IsReadWithAtMostAQuarterOfItsSizeInMemory) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string part = sample_text(kMiB, false);
    {
        std::ofstream file(folder / "text", std::ios::binary);
        for (int i = 0; i < 64; ++i) file << part;
    }
    const auto read = [](const Tokens& all) {
        unigram_entropy(all);
        const Tokens train = all.slice(0, all.size() * 9 / 10);
        const RandomBlockDataset blocks(train, 256, 64);
        for (std::int64_t i = 0; i < blocks.size(); ++i) blocks.get(i);
    };
    EXPECT_LE(peak_memory([&] {
                  const auto chars = CharTokenizer::from_file(folder / "text");
                  read(chars.encode_file(folder / "text"));
              }),
              8 * kMiB);
    EXPECT_LE(peak_memory([&] { read(ByteTokenizer().encode_file(folder / "text")); }), 8 * kMiB);
    // When a random block is read, the operating system also maps the pages next to it.
    EXPECT_LE(peak_memory(
                  [&] { read(Tokens::open(folder / "text", {.bytes = 2, .vocab_size = 65'536})); }),
              16 * kMiB);
}

}  // namespace
}  // namespace axle::data
