// Tests the program train_mlm with the recorded model in tests/golden/bert_masked_lm.
#include <filesystem>
#include <fstream>
#include <string>

#include "core/tree/tree.h"
#include "gmock/gmock.h"
#include "nn/models/bert.h"
#include "tests/tools/trainer_program.h"

namespace axle {
namespace {

using namespace tests;  // NOLINT: the test helpers of this folder
using testing::HasSubstr;

class TrainMlm : public TrainerTest {
  protected:
    TrainMlm() : TrainerTest("train_mlm") {}

    // Writes the model, a tokenizer whose tokens are words, and 200 texts. A text repeats one of
    // eight words, so that the other words of a text show which word is masked.
    void SetUp() override {
        TrainerTest::SetUp();
        fs::copy(AXLE_TESTS_DIR "/golden/bert_masked_lm", folder_ / "bert");
        write_tokenizer("[MASK]");
        std::ofstream lines(folder_ / "texts.txt"), csv(folder_ / "texts.csv");
        csv << "id,body\n";
        for (int i = 0; i < 200; ++i) {
            std::string text;
            for (int n = 0; n < 8; ++n) text += (n == 0 ? "w" : " w") + std::to_string(10 + i % 8);
            lines << text << '\n';
            csv << i << ',' << text << '\n';
        }
    }
    void write_tokenizer(const std::string& mask) {
        Tree words{{"[PAD]", 0}, {"[UNK]", 1}, {"[CLS]", 2}, {"[SEP]", 3}, {mask, 4}};
        for (int i = 5; i < 53; ++i) words.set("w" + std::to_string(i), i);
        const Tree tokenizer{
            {"added_tokens", Tree::list()},
            {"normalizer", {}},
            {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
            {"post_processor",
             {{"type", "BertProcessing"},
              {"sep", Tree::list({"[SEP]", 3})},
              {"cls", Tree::list({"[CLS]", 2})}}},
            {"decoder", {}},
            {"model", {{"type", "WordLevel"}, {"vocab", words}, {"unk_token", "[UNK]"}}}};
        write_file_atomically(folder_ / "bert/tokenizer.json", to_json(tokenizer));
    }
    Arguments tiny(const std::string& out, const Arguments& more = {}) {
        Arguments all = {
            "--preset",       "tiny",  "--data",      folder_ / "texts.txt", "--init-from",
            folder_ / "bert", "--out", folder_ / out, "--threads",           "1",
            "--workers",      "0"};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
};

TEST_F(TrainMlm, PredictsMaskedTokensAndWritesAModelThatLoads) {
    const Ended ended = run(tiny("a", {"--steps", "120"}));
    ASSERT_EQ(ended.code, 0) << ended.text();
    EXPECT_EQ(ended.result()["steps"], 120);
    EXPECT_GT(ended.result()["accuracy"], 0.9);
    EXPECT_LT(ended.result()["perplexity"], 2);
    const auto model = nn::BertForMaskedLM::from_pretrained(folder_ / "a");
    EXPECT_EQ(model.config.vocab_size, 53);
    EXPECT_EQ(read_file(folder_ / "a/tokenizer.json"), read_file(folder_ / "bert/tokenizer.json"));
    EXPECT_THAT(read_file(folder_ / "a/report.html"), HasSubstr("    predicted: w1"));
}

TEST_F(TrainMlm, EvaluatesTheSameMasksAgainWithAnyOtherSeed) {
    const Ended trained = run(tiny("a", {"--seed", "3", "--steps", "2"}));
    ASSERT_EQ(trained.code, 0) << trained.text();
    const Ended evaluated = run(tiny("a", {"--eval-only", "--seed", "4"}));
    ASSERT_EQ(evaluated.code, 0) << evaluated.text();
    EXPECT_EQ(evaluated.result()["val_loss"], trained.result()["val_loss"]);
}

TEST_F(TrainMlm, ReadsAColumnOfACsvFileLikeTheLinesOfAText) {
    const Ended lines = run(tiny("a", {"--steps", "2"}));
    ASSERT_EQ(lines.code, 0) << lines.text();
    Arguments flags = tiny("b", {"--steps", "2", "--text", "body"});
    flags[3] = folder_ / "texts.csv";
    const Ended csv = run(flags);
    ASSERT_EQ(csv.code, 0) << csv.text();
    EXPECT_EQ(csv.result()["val_loss"], lines.result()["val_loss"]);
}

TEST_F(TrainMlm, RejectsATokenizerWithoutAMaskAndFilesThatItCannotUse) {
    Arguments flags = tiny("a");
    flags[3] = folder_ / "texts.bin";
    const Ended file = run(flags);
    EXPECT_NE(file.code, 0);
    EXPECT_THAT(file.text(), HasSubstr(".csv, .tsv, .jsonl or .json"));
    write_tokenizer("w4");
    const Ended mask = run(tiny("a"));
    EXPECT_NE(mask.code, 0);
    EXPECT_THAT(mask.text(), HasSubstr("the tokenizer has no token [MASK]"));
}

}  // namespace
}  // namespace axle
