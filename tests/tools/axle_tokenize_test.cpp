// Tests `axle tokenize encode` and `axle tokenize train`, and training on their output.
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include <protozero/pbf_writer.hpp>

#include "data/files/tokens.h"
#include "data/tokenizers/pretrained_tokenizer.h"
#include "gmock/gmock.h"
#include "tests/tools/axle_launch.h"

namespace axle::tests {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<std::int64_t>;

Ids ids_of(const data::Tokens& tokens) {
    Ids ids(static_cast<std::size_t>(tokens.size()));
    tokens.copy(0, ids);
    return ids;
}

// A folder with a text and rows with the same text, and a tokenizer that is trained on it.
class AxleTokenize : public AxleLaunch {
  protected:
    void SetUp() override {
        AxleLaunch::SetUp();
        write_words(text_);
        std::string text = read_file(text_);
        std::ofstream(rows_) << json{{"body", text}} << '\n' << json{{"body", "abc"}} << '\n';
        const Ended ended =  // also creates the folder "model"
            run({"tokenize", "train", "--data", text_, "--vocab-size", "300", "--out", tokenizer_,
                 "--special", "<|endoftext|>", "--special", "<pad>", "--threads", "2"});
        ASSERT_EQ(ended.code, 0) << ended.text();
        EXPECT_THAT(ended.out,
                    ElementsAre("Wrote a tokenizer with 300 tokens to " + tokenizer_ + "."));
        EXPECT_THAT(ended.text(),
                    AllOf(HasSubstr("read 100% 4/4 ["), HasSubstr("merge 100% 300/300 [")));
    }
    Ended encode(const Arguments& flags) {
        Arguments all = {"tokenize", "encode"};
        all.insert(all.end(), flags.begin(), flags.end());
        return run(all);
    }

    // Trains a tiny model with the tokenizer.
    Ended train(const std::string& data, const std::string& out, const Arguments& more) {
        Arguments all = {"--preset",        "tiny",  "--data",      data,        "--tokenizer",
                         folder_ / "model", "--out", folder_ / out, "--threads", "1"};
        all.insert(all.end(), more.begin(), more.end());
        const std::string axle = std::exchange(program_, AXLE_BIN_DIR "/train_gpt");
        Ended ended = run(all);
        program_ = axle;
        return ended;
    }

    const std::string text_ = folder_ / "text.txt", rows_ = folder_ / "rows.jsonl";
    const std::string tokenizer_ = folder_ / "model/tokenizer.json", out_ = folder_ / "out.bin";
};

TEST_F(AxleTokenize, WritesTheTokensOfATextAndOfRows) {
    const auto tokenizer = data::PretrainedTokenizer::from_file(tokenizer_);
    const Ids text = tokenizer.encode(read_file(text_));
    const Ended ended = encode({"--tokenizer", tokenizer_, "--data", text_, "--out", out_});
    ASSERT_EQ(ended.code, 0) << ended.text();
    EXPECT_THAT(ended.out, ElementsAre("Wrote " + std::to_string(text.size()) +
                                       " tokens of 1 documents to " + out_ + "."));
    EXPECT_THAT(ended.text(), AllOf(HasSubstr("encode 100% 4/4 ["), HasSubstr("kB/s]")));
    EXPECT_EQ(ids_of(data::Tokens::open(out_)), text);

    std::ofstream(folder_ / "model/tokenizer_config.json") << R"({"eos_token": "<|endoftext|>"})";
    const std::string shards = folder_ / "shards";
    ASSERT_EQ(encode({"--tokenizer", folder_ / "model", "--data", text_, rows_, "--text", "body",
                      "--out", shards, "--shard-tokens", "500", "--append-eos", "--threads", "3"})
                  .code,
              0);
    Ids expected = text;
    expected.push_back(0);
    expected.insert(expected.end(), text.begin(), text.end());
    expected.push_back(0);
    const Ids abc = tokenizer.encode("abc");
    expected.insert(expected.end(), abc.begin(), abc.end());
    expected.push_back(0);
    EXPECT_EQ(ids_of(data::Tokens::open(shards)), expected);
    EXPECT_EQ(fs::file_size(shards + "/00000.bin"), 1000u);

    ASSERT_EQ(encode({"--tokenizer", tokenizer_, "--data", text_, "--out", out_, "--overwrite",
                      "--sample-by", "line", "--append", "<pad>"})
                  .code,
              0);
    const Ids lines = ids_of(data::Tokens::open(out_));
    EXPECT_EQ(std::ranges::count(lines, 1), std::ssize(lines_of(text_)) + 1);
    EXPECT_EQ(lines.back(), 1);
}

TEST_F(AxleTokenize, ReadsSentencePieceModels) {
    std::string model;
    protozero::pbf_writer out(model);
    constexpr int kNormal = 1, kUnknown = 2, kControl = 3;
    for (const auto& [text, type] : {std::pair("<unk>", kUnknown),
                                     {"</s>", kControl},
                                     {"\xe2\x96\x81"
                                      "a",
                                      kNormal},
                                     {"b", kNormal}}) {
        protozero::pbf_writer piece(out, 1);
        piece.add_string(1, text);
        piece.add_enum(3, type);
    }
    fs::create_directory(folder_ / "pieces");
    write_file_atomically(folder_ / "pieces/tokenizer.model", model);
    write_file_atomically(text_, "ab a");
    for (const std::string& path : {folder_ / "pieces", folder_ / "pieces/tokenizer.model"}) {
        const Ended ended = encode(
            {"--tokenizer", path, "--data", text_, "--out", out_, "--append-eos", "--overwrite"});
        ASSERT_EQ(ended.code, 0) << ended.text();
        EXPECT_THAT(ids_of(data::Tokens::open(out_)), ElementsAre(2, 3, 2, 1));
    }
    write_file_atomically(folder_ / "pieces/tokenizer.model", "text");
    const Ended ended =
        encode({"--tokenizer", folder_ / "pieces", "--data", text_, "--out", folder_ / "b.bin"});
    EXPECT_EQ(ended.code, 1);
    EXPECT_THAT(ended.text(), HasSubstr("pieces/tokenizer.model: not a "));
}

TEST_F(AxleTokenize, WritesShardsOnWhichTrainGptTrains) {
    const std::string shards = folder_ / "shards";
    ASSERT_EQ(encode({"--tokenizer", tokenizer_, "--data", text_, "--out", shards, "--shard-tokens",
                      "400"})
                  .code,
              0);
    ASSERT_EQ(encode({"--tokenizer", tokenizer_, "--data", text_, "--out", out_}).code, 0);
    const auto loss_of = [&](const std::string& data, const std::string& out) {
        const Ended ended = train(data, out, {"--steps", "3"});
        EXPECT_EQ(ended.code, 0) << ended.text();
        EXPECT_EQ(read_file(folder_ / out + "/tokenizer.json"), read_file(tokenizer_));
        EXPECT_THAT(ended.out, testing::Contains(HasSubstr("tokens of 300, ")));
        return ended.result()["val_loss"];
    };
    const json loss = loss_of(shards, "a");
    EXPECT_EQ(loss_of(out_, "b"), loss);
    EXPECT_EQ(loss_of(text_, "c"), loss);
    const Ended resumed = train(shards, "a", {"--resume", "latest", "--steps", "4"});
    EXPECT_EQ(resumed.code, 0) << resumed.text();
    // A run cannot continue with the tokens of another text.
    ASSERT_EQ(encode({"--tokenizer", tokenizer_, "--data", rows_, "--text", "body", "--out", shards,
                      "--shard-tokens", "400", "--overwrite"})
                  .code,
              0);
    const Ended other = train(shards, "a", {"--resume", "latest", "--steps", "5"});
    EXPECT_EQ(other.code, 1);
    EXPECT_THAT(other.text(), HasSubstr("data: saved '"));
}

TEST_F(AxleTokenize, RefusesAnExistingOutputAndInvalidArguments) {
    const auto refused = [&](int code, const Arguments& arguments, const std::string& words) {
        Arguments all = {"tokenize"};
        all.insert(all.end(), arguments.begin(), arguments.end());
        const Ended ended = run(all);
        EXPECT_EQ(ended.code, code) << ended.text();
        EXPECT_THAT(ended.text(), HasSubstr(words));
    };
    const std::string before = read_file(tokenizer_);
    refused(1, {"train", "--data", text_, "--vocab-size", "256", "--out", tokenizer_},
            "exists and was not changed; pass --overwrite");
    EXPECT_EQ(read_file(tokenizer_), before);
    std::ofstream(out_) << "kept";
    const Arguments encode = {"encode", "--tokenizer", tokenizer_, "--data", text_, "--out"};
    const auto with = [&](const Arguments& more) {
        Arguments all = encode;
        all.insert(all.end(), more.begin(), more.end());
        return all;
    };
    refused(1, with({out_}), "exists and was not changed; pass --overwrite");
    refused(1, with({folder_ / "model", "--shard-tokens", "9"}), "exists and was not changed");
    refused(1, with({folder_ / "model", "--shard-tokens", "9", "--overwrite"}),
            "the folder has other contents than shards");
    EXPECT_EQ(read_file(out_), "kept");
    EXPECT_EQ(read_file(tokenizer_), before);
    refused(2, with({folder_ / "out"}), "--out: the name of the file must end in .bin");
    refused(2, with({folder_ / "a.bin", "--append-eos"}),
            "must be a folder whose tokenizer_config.json has an eos_token");
    refused(2, with({folder_ / "a.bin", "--append-eos", "--append", "x"}), "exclude each other");
    refused(1, with({folder_ / "a.bin", "--append", "<none>"}),
            "the tokenizer does not have the token '<none>'");
    refused(2, with({folder_ / "a.bin", "--threads", "0"}), "--threads");
    refused(2, {"train", "--data", text_, "--vocab-size", "255", "--out", folder_ / "t.json"},
            "--vocab-size");
    refused(1,
            {"train", "--data", text_, "--vocab-size", "256", "--out", folder_ / "t.json",
             "--special", "x"},
            "vocab_size must be from 257");
    refused(2, {"decode"}, "tokenize: unknown command 'decode'; expected encode or train");
    refused(2, {}, "Usage: axle tokenize");
    std::ofstream(text_) << "fine\nbroken \xff\n";
    refused(1, with({folder_ / "a.bin"}), text_ + ": line 2: byte 12: the text is not valid UTF-8");
    EXPECT_FALSE(fs::exists(folder_ / "a.bin"));
    const Ended help = run({"tokenize", "--help"});
    EXPECT_EQ(help.code, 0);
    EXPECT_THAT(help.out, testing::Contains(HasSubstr("encode   Encode texts")));
}

}  // namespace
}  // namespace axle::tests
