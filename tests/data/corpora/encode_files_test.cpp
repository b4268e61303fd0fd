// Compares token files with the results of PretrainedTokenizer::encode().
#include "data/corpora/encode_files.h"

#include <filesystem>
#include <fstream>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/files/tokens.h"
#include "data/tokenizers/pretrained_tokenizer.h"
#include "kernels/error.h"
#include "tests/close.h"
#include "tests/data/corpora/text_file.h"
#include "tests/data/tokenizers/golden.h"
#include "tests/temporary_folder.h"

namespace axle::data {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using tests::expect_error;
using tests::FolderStorage;
using tests::TemporaryFolder;
using tests::text_file;
using Ids = std::vector<std::int64_t>;

Ids token_ids(const Tokens& tokens) {
    Ids ids(static_cast<std::size_t>(tokens.size()));
    tokens.copy(0, ids);
    return ids;
}

// Returns a tokenizer of words with spaces between them: "a" is 1, "b" is 2, "</s>" is 3, and other
// words are 0. The post-processor adds "<s>", which is 4.
PretrainedTokenizer word_tokenizer(std::int64_t largest = 4) {
    json file = {
        {"model",
         {{"type", "WordLevel"},
          {"unk_token", "?"},
          {"vocab", {{"?", 0}, {"a", 1}, {"b", 2}, {"</s>", 3}, {"<s>", 4}, {"z", largest}}}}},
        {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
        {"post_processor", {{"type", "TemplateProcessing"}}}};
    if (largest == 4) file["model"]["vocab"].erase("z");
    file["post_processor"]["single"] = {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
                                        {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}};
    file["post_processor"]["pair"] = file["post_processor"]["single"];
    file["post_processor"]["special_tokens"]["<s>"] = {
        {"id", "<s>"}, {"ids", {4}}, {"tokens", {"<s>"}}};
    return PretrainedTokenizer::from_json(file.dump());
}

// Returns 300 to 400 KiB of the texts of a recording, with the white space of `line_ends` after
// each of them.
std::string long_text(const json& recorded, const std::vector<std::string>& line_ends) {
    std::mt19937 random(3);
    std::string text;
    while (text.size() < 300'000)
        for (const json& line : recorded["lines"])
            text += line[0].get<std::string>() + line_ends[random() % line_ends.size()];
    return text;
}

TEST(EncodeFiles, WritesTheTokensOfTheCompleteTextForEachNumberOfThreads) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    for (const char* name : {"gpt2", "llama3", "bert_cased"}) {
        SCOPED_TRACE(name);
        const json recorded = tests::golden_tokenizer(name);
        const auto tokenizer = PretrainedTokenizer::from_json(recorded["tokenizer"].dump());
        for (const std::vector<std::string>& line_ends :
             {std::vector<std::string>{"\n"}, {"\r\n"}, {"\n", " \n", "\n\n", "\n \n", "\n\t"}}) {
            const std::string text = long_text(recorded, line_ends);
            const std::string path = text_file(folder, text, "text.txt");
            const Ids expected = tokenizer.encode_ids(text, false);
            for (const int threads : {1, 3}) {
                const EncodedFiles result =
                    encode_files(tokenizer, {path}, folder / "out.bin", {.num_threads = threads});
                EXPECT_EQ(result.tokens, std::ssize(expected));
                EXPECT_EQ(result.documents, 1);
                // A comparison with EXPECT_EQ would print all ids.
                EXPECT_TRUE(token_ids(Tokens::open(folder / "out.bin")) == expected);
            }
        }
    }
}

TEST(EncodeFiles, EncodesFilesOfAllFormatsInSequence) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    std::filesystem::create_directory(folder / "data");
    text_file(folder, "a a\nb\n", "data/1.txt");
    text_file(folder, "{\"text\": \"b\", \"n\": 1}\n\n{\"n\": 2, \"text\": \"a a\"}\n",
              "data/2.jsonl");
    text_file(folder, "id,text\n1,a\n2,\"a\nb\"\n3,\n4,NA\n", "data/3.csv");
    text_file(folder, "text\tid\nb b\t1\n", "data/4.tsv");
    text_file(folder, "", "data/5.txt");
    std::vector<EncodeProgress> progress;
    EncodeFilesOptions options{
        .end_id = 3, .on_progress = [&](const EncodeProgress& now) { progress.push_back(now); }};
    const auto encoded = [&](const std::vector<std::string>& paths) {
        encode_files(word_tokenizer(), paths, folder / "out.bin", options);
        return token_ids(Tokens::open(folder / "out.bin"));
    };
    EXPECT_THAT(encoded({folder / "data"}),
                ElementsAre(1, 1, 2, 3, 2, 3, 1, 1, 3, 1, 3, 1, 2, 3, 3, 0, 3, 2, 2, 3));
    ASSERT_GE(progress.size(), 2u);
    EXPECT_EQ(progress.front().read_bytes, 0);
    EXPECT_EQ(progress.front().total_bytes, progress.back().total_bytes);
    EXPECT_EQ(progress.back().tokens, 20);
    EXPECT_EQ(progress.back().read_bytes, progress.back().total_bytes);
    EXPECT_THAT(encoded({folder / "data/4.tsv", folder / "data/1.txt"}),
                ElementsAre(2, 2, 3, 1, 1, 2, 3));
    options.texts.column = "id";
    EXPECT_THAT(encoded({folder / "data/4.tsv"}), ElementsAre(0, 3));
    options.texts.sample_by = SampleBy::line;
    EXPECT_THAT(encoded({folder / "data/1.txt"}), ElementsAre(1, 1, 3, 2, 3));
    options.add_special_tokens = true;
    EXPECT_THAT(encoded({folder / "data/1.txt"}), ElementsAre(4, 1, 1, 3, 4, 2, 3));
    options.end_id.reset();
    EXPECT_THAT(encoded({folder / "data/1.txt"}), ElementsAre(4, 1, 1, 4, 2));
}

TEST(EncodeFiles, CountsDocumentsThatAreEncodedInSeveralSteps) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    std::string lines;
    for (int i = 0; i < 10'000; ++i) lines += "a b\n";
    const std::string path = text_file(folder, lines, "text.txt");
    for (const int threads : {1, 2}) {
        const EncodedFiles result =
            encode_files(word_tokenizer(), {path}, folder / "out.bin",
                         {.texts = {.sample_by = SampleBy::line}, .num_threads = threads});
        EXPECT_EQ(result.documents, 10'000);
        EXPECT_EQ(result.tokens, 20'000);
    }
}

TEST(EncodeFiles, AcceptsOtherTokenizers) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string path = text_file(folder, "a\nb", "text.txt");
    encode_files(ByteTokenizer(), {path}, folder / "out.bin", {.end_id = 0});
    EXPECT_THAT(token_ids(Tokens::open(folder / "out.bin")), ElementsAre('a', '\n', 'b', 0));
    expect_error<ValueError>({"encode_files: add_special_tokens needs a tokenizer.json"}, [&] {
        encode_files(ByteTokenizer(), {path}, folder / "out.bin", {.add_special_tokens = true});
    });
}

TEST(EncodeFiles, WritesShardsAndChoosesTheBytesOfTheirTokens) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string path = text_file(folder, "a b b a a", "text.txt");
    encode_files(word_tokenizer(), {path}, folder / "shards", {.shard_tokens = 2});
    EXPECT_EQ(std::filesystem::file_size(folder / "shards/00001.bin"), 4u);
    EXPECT_THAT(token_ids(Tokens::open(folder / "shards")), ElementsAre(1, 2, 2, 1, 1));
    encode_files(word_tokenizer(65536), {path}, folder / "shards", {.shard_tokens = 4});
    EXPECT_EQ(std::filesystem::file_size(folder / "shards/00000.u32.bin"), 16u);
    EXPECT_THAT(token_ids(Tokens::open(folder / "shards")), ElementsAre(1, 2, 2, 1, 1));
    encode_files(word_tokenizer(65536), {path}, folder / "a.u32.bin");
    EXPECT_EQ(std::filesystem::file_size(folder / "a.u32.bin"), 20u);
    encode_files(word_tokenizer(65535), {path}, folder / "a.bin");
    EXPECT_EQ(std::filesystem::file_size(folder / "a.bin"), 10u);
    expect_error<ValueError>(
        {"encode_files: the 65537 tokens of the vocabulary do not fit in 2 "
         "bytes: ",
         "a name that ends in .u32.bin"},
        [&] { encode_files(word_tokenizer(65536), {path}, folder / "a.bin"); });
}

TEST(EncodeFiles, ReportsTheFirstErrorWithFileAndLineAndKeepsTheOutput) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string out = text_file(folder, "kept", "out.bin");
    const auto expect_rejected = [&](const std::string& name, const std::string& text,
                                     const std::string& message, EncodeFilesOptions options = {}) {
        const std::string path = text_file(folder, text, name);
        for (options.num_threads = 1; options.num_threads < 5; ++options.num_threads)
            expect_error<FileError>({(path + message).c_str()},
                                    [&] { encode_files(word_tokenizer(), {path}, out, options); });
        std::filesystem::remove(path);
        EXPECT_EQ(read_file(out), "kept");
        EXPECT_EQ(folder.count(), 1u);  // no temporary file is left
    };
    std::string lines;
    for (int i = 0; i < 200'000; ++i) lines += "a b\n";
    expect_rejected("a.txt", lines + "b\xe9\n" + lines + "\xff\n",
                    ": line 200001: byte 800001: the text is not valid UTF-8");
    expect_rejected("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"\xff\"}\n",
                    ": line 2: byte 24: the text is not valid UTF-8");
    expect_rejected("a.jsonl", "{\"text\": \"a\"}\n\n{\"text\": 1}\n",
                    ": line 3: column 'text': expected text, found integer");
    expect_rejected("a.jsonl", "{\"text\": \"a\"}\n{\"n\": 1}\n",
                    ": line 2: the column 'text' is missing");
    expect_rejected("a.csv", "text,n\na,1\nb\n", ": line 3: expected 2 fields, found 1");
    expect_rejected("a.csv", "n\n1\n", ": the file does not have the column 'text'");
    // A text that the tokenizer rejects.
    const auto strict = PretrainedTokenizer::from_json(
        R"({"model": {"type": "WordLevel", "vocab": {"a": 0}},
            "pre_tokenizer": {"type": "WhitespaceSplit"}})");
    const std::string path = text_file(folder, "a a\n\na q\n", "a.txt");
    expect_error<FileError>({(path + ": line 3: encode: the word 'q' is unknown").c_str()}, [&] {
        encode_files(strict, {path}, out, {.texts = {.sample_by = SampleBy::line}});
    });
    const std::string empty = text_file(folder, " \n", "b.txt");
    expect_error<FileError>({"encode_files: the texts have no tokens: ", "b.txt"},
                            [&] { encode_files(word_tokenizer(), {empty}, out); });
    expect_error<FileError>({(folder / "missing").c_str()},
                            [&] { encode_files(word_tokenizer(), {folder / "missing"}, out); });
    EXPECT_EQ(read_file(out), "kept");
}

TEST(EncodeFiles, RejectsInvalidOptions) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    const std::string path = text_file(folder, "a", "text.txt");
    const auto expect_rejected = [&](const EncodeFilesOptions& options, const char* message) {
        expect_error<ValueError>(
            {message}, [&] { encode_files(word_tokenizer(), {path}, folder / "a.bin", options); });
    };
    expect_rejected({.num_threads = 0},
                    "encode_files: num_threads must be from 1 to 1024: it is 0");
    expect_rejected({.end_id = 5},
                    "encode_files: end_id must be an id of the vocabulary, which "
                    "has 5 tokens: it is 5");
    expect_rejected({.shard_tokens = -1}, "TokenWriter: shard_tokens must not be negative");
    expect_rejected({.add_special_tokens = true},
                    "encode_files: add_special_tokens cannot be used for text files that are read "
                    "in parts");
    expect_error<ValueError>({"TextReader: needs at least one path"},
                             [&] { encode_files(word_tokenizer(), {}, folder / "a.bin"); });
    EXPECT_EQ(folder.count(), 1u);
}

}  // namespace
}  // namespace axle::data
