// Tests the program train_text with the recorded model in tests/golden/bert_masked_lm.
#include <filesystem>
#include <fstream>
#include <string>

#include "core/files/safetensors.h"
#include "core/tree/tree.h"
#include "gmock/gmock.h"
#include "nn/adapters/lora.h"
#include "nn/models/bert.h"
#include "tests/tools/trainer_program.h"

namespace axle {
namespace {

using namespace tests;  // NOLINT: the test helpers of this folder
using testing::HasSubstr;

class TrainText : public TrainerTest {
  protected:
    TrainText() : TrainerTest("train_text") {}

    // Writes the model, a tokenizer whose tokens are words, and 120 reviews, each with the word
    // good or the word bad. The class of a review is this word in the CSV file, and whether it is
    // the word good in the JSON lines.
    void SetUp() override {
        TrainerTest::SetUp();
        fs::copy(AXLE_TESTS_DIR "/golden/bert_masked_lm", folder_ / "bert");
        Tree words{{"[PAD]", 0}, {"[UNK]", 1}, {"[CLS]", 2}, {"[SEP]", 3}, {"good", 4}, {"bad", 5}};
        for (int i = 6; i < 53; ++i) words.set("w" + std::to_string(i), i);
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
        std::ofstream csv(folder_ / "reviews.csv"), lines(folder_ / "reviews.jsonl");
        csv << "text,label\n";
        for (int i = 0; i < 120; ++i) {
            const std::string word = i % 3 == 0 ? "good" : "bad";
            const std::string text =
                "w" + std::to_string(6 + i % 7) + " " + word + " w" + std::to_string(20 + i % 11);
            csv << text << ',' << word << '\n';
            lines << to_json(Tree{{"first", word}, {"second", text}, {"kind", i % 3 == 0}}, -1)
                  << '\n';
        }
    }
    Arguments tiny(const std::string& out, const Arguments& more = {}) {
        Arguments all = {"--preset",    "tiny",
                         "--data",      folder_ / "reviews.csv",
                         "--init-from", folder_ / "bert",
                         "--out",       folder_ / out,
                         "--threads",   "1",
                         "--workers",   "0"};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
};

TEST_F(TrainText, ClassifiesTheTextsAndWritesAModelThatLoads) {
    const Ended ended = run(tiny("a"));
    ASSERT_EQ(ended.code, 0) << ended.text();
    EXPECT_EQ(ended.result()["steps"], 40);
    EXPECT_EQ(ended.result()["accuracy"], 1);
    const auto model = nn::BertForSequenceClassification::from_pretrained(folder_ / "a");
    EXPECT_EQ(model.config.labels, std::vector<std::string>({"bad", "good"}));
    EXPECT_EQ(read_file(folder_ / "a/tokenizer.json"), read_file(folder_ / "bert/tokenizer.json"));
}

TEST_F(TrainText, ShowsTheConfusionMatrixInTheReport) {
    const Ended ended = run(tiny("a"));
    ASSERT_EQ(ended.code, 0) << ended.text();
    // A tenth of the 80 bad and 40 good texts are in the validation set, all classified correctly.
    const std::string report = read_file(folder_ / "a/report.html");
    EXPECT_THAT(report, HasSubstr("           bad             8             0\n"));
    EXPECT_THAT(report, HasSubstr("          good             0             4\n"));
}

TEST_F(TrainText, TrainsAnAdapterOnTextPairsFromJsonLines) {
    Arguments flags =
        tiny("a", {"--text", "first", "--pair", "second", "--label", "kind", "--lora-r", "4",
                   "--workers", "2", "--steps", "120", "--lr", "0.03"});
    flags[3] = folder_ / "reviews.jsonl";
    const Ended ended = run(flags);
    ASSERT_EQ(ended.code, 0) << ended.text();
    EXPECT_EQ(ended.result()["accuracy"], 1);
    auto model = nn::BertForSequenceClassification::from_pretrained(folder_ / "bert", 2);
    const nn::LoraConfig config = nn::load_adapter(model, folder_ / "a");
    EXPECT_EQ(config.r, 4);
    EXPECT_EQ(config.task_type, "SEQ_CLS");
    // The base model has no pooler, so the adapter has one.
    EXPECT_NO_THROW(SafetensorsFile(folder_ / "a/adapter_model.safetensors")
                        .tensor("base_model.model.bert.pooler.dense.weight"));
}

TEST_F(TrainText, TrainsAnAdapterOverQuantizedWeights) {
    const Arguments flags = tiny("a", {"--lora-r", "4", "--quantize", "nf4", "--lr", "0.03"});
    const Ended ended = run(flags);
    ASSERT_EQ(ended.code, 0) << ended.text();
    EXPECT_EQ(ended.result()["accuracy"], 1);
    auto model = nn::BertForSequenceClassification::from_pretrained(folder_ / "bert", 2);
    EXPECT_EQ(nn::load_adapter(model, folder_ / "a").r, 4);
}

TEST_F(TrainText, EvaluatesItsCheckpointOnAnotherFile) {
    ASSERT_EQ(run(tiny("a")).code, 0);
    std::ofstream(folder_ / "dev.csv") << "text,label\nw6 good,good\nw7 bad,bad\nw9 bad,good\n";
    const Ended ended = run(tiny("a", {"--eval-only", "--validation", folder_ / "dev.csv"}));
    ASSERT_EQ(ended.code, 0) << ended.text();
    EXPECT_NEAR(ended.result()["accuracy"], 2.0 / 3, 1e-6);
}

TEST_F(TrainText, EvaluatesOnTheSplitOfItsRunWithAnyOtherSeed) {
    // With one update, the loss depends on the texts of the split.
    const Ended trained = run(tiny("a", {"--seed", "3", "--steps", "1"}));
    ASSERT_EQ(trained.code, 0) << trained.text();
    const Ended evaluated = run(tiny("a", {"--eval-only", "--seed", "4"}));
    ASSERT_EQ(evaluated.code, 0) << evaluated.text();
    EXPECT_EQ(evaluated.result()["val_loss"], trained.result()["val_loss"]);
}

TEST_F(TrainText, RejectsDataWithOtherClassesAndTheFolderOfTheBaseModelAsOutput) {
    ASSERT_EQ(run(tiny("a")).code, 0);
    std::ofstream(folder_ / "other.csv") << "text,label\nw6 good,yes\nw7 bad,no\nw8 good,yes\n";
    Arguments flags = tiny("a", {"--eval-only", "--validation", folder_ / "other.csv"});
    flags[3] = folder_ / "other.csv";
    const Ended other = run(flags);
    EXPECT_NE(other.code, 0);
    EXPECT_THAT(other.text(), HasSubstr("bad, good; the column 'label' has no, yes"));
    const Ended base = run(tiny("bert"));
    EXPECT_NE(base.code, 0);
    EXPECT_THAT(base.text(), HasSubstr("--out must be another folder than --init-from"));
}

TEST_F(TrainText, RejectsColumnsAndFilesThatItCannotUse) {
    const auto rejects = [&](const Arguments& flags, const std::string& words) {
        const Ended ended = run(tiny("a", flags));
        EXPECT_NE(ended.code, 0);
        EXPECT_THAT(ended.text(), HasSubstr(words));
    };
    rejects({"--label", "kind"}, "kind");
    rejects({"--validation", folder_ / "bert/config.txt"}, ".csv, .tsv, .jsonl or .json");
    std::ofstream(folder_ / "one.csv") << "text,label\na,x\nb,x\n";
    Arguments one = tiny("b");
    one[3] = folder_ / "one.csv";
    const Ended ended = run(one);
    EXPECT_NE(ended.code, 0);
    EXPECT_THAT(ended.text(), HasSubstr("'label'"));
}

}  // namespace
}  // namespace axle
