// Tests the program train_gpt with answers and chats in JSON lines, and with LoRA adapters.
#include <fstream>
#include <string>

#include "core/tree/tree.h"
#include "data/tokenizers/pretrained_tokenizer.h"
#include "gmock/gmock.h"
#include "nn/adapters/lora.h"
#include "nn/models/gpt.h"
#include "nn/models/llama.h"
#include "tests/tools/trainer_program.h"

namespace axle {
namespace {

using namespace tests;  // NOLINT: the test helpers of this folder
using testing::HasSubstr;

class TrainGptDocuments : public TrainerTest {
  protected:
    TrainGptDocuments() : TrainerTest("train_gpt") {}

    // Writes 80 questions with answers and 80 chats, in which the answer is the letter of the
    // question in upper case.
    void SetUp() override {
        TrainerTest::SetUp();
        std::ofstream answers(folder_ / "answers.jsonl"), chats(folder_ / "chats.jsonl");
        for (int i = 0; i < 80; ++i) {
            const std::string letter(1, static_cast<char>('a' + i % 5));
            const std::string answer(1, static_cast<char>('A' + i % 5));
            answers << to_json(Tree{{"prompt", "?" + letter + "="}, {"completion", answer + "\n"}},
                               -1)
                    << '\n';
            const Tree::List messages = {Tree{{"role", "user"}, {"content", letter}},
                                         Tree{{"role", "assistant"}, {"content", answer}}};
            chats << to_json(Tree{{"messages", Tree::list(messages)}}, -1) << '\n';
        }
    }
    Arguments tiny(const std::string& data, const std::string& out, const Arguments& more = {}) {
        Arguments all = {"--preset", "tiny",        "--data",       folder_ / data,
                         "--out",    folder_ / out, "--threads",    "1",
                         "--lr",     "0.02",        "--steps",      "300",
                         "--warmup", "10",          "--eval-every", "0"};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
};

TEST_F(TrainGptDocuments, LearnsTheAnswersWithEachPacking) {
    for (const char* packing : {"none", "best-fit", "wrapped"}) {
        const Ended ended = run(tiny("answers.jsonl", packing, {"--packing", packing}));
        ASSERT_EQ(ended.code, 0) << ended.text();
        EXPECT_LT(ended.result()["val_loss"], 0.7) << packing;
        EXPECT_FALSE(ended.result().contains("unigram_entropy"));
        auto model = nn::Gpt::from_pretrained(folder_ / packing);
        EXPECT_EQ(model.generate({'?', 'c', '='}, 1, {.temperature = 0}).back(), 'C') << packing;
    }
}

// The loss of all tokens includes the letter of the question, which nothing determines.
TEST_F(TrainGptDocuments, TrainsOnAnswersOrOnAllTokens) {
    const Ended answers = run(tiny("answers.jsonl", "a"));
    const Ended all = run(tiny("answers.jsonl", "b", {"--train-on", "all"}));
    ASSERT_EQ(answers.code, 0) << answers.text();
    ASSERT_EQ(all.code, 0) << all.text();
    EXPECT_LT(answers.result()["val_loss"], 0.2);
    EXPECT_GT(all.result()["val_loss"], 0.3);  // log(5) for one of 4 tokens
}

TEST_F(TrainGptDocuments, GivesTheSameLossForPackedAndSeparateDocuments) {
    const auto loss = [&](const std::string& packing) {
        const Ended ended = run(
            tiny("answers.jsonl", packing, {"--packing", packing, "--steps", "1", "--lr", "0"}));
        EXPECT_EQ(ended.code, 0) << ended.text();
        return ended.result()["val_loss"].get<double>();
    };
    EXPECT_NEAR(loss("best-fit"), loss("none"), 1e-6);
}

TEST_F(TrainGptDocuments, TunesAnAdapterOnChatsAndWritesAnswersToTheReport) {
    ASSERT_EQ(run(tiny("answers.jsonl", "base", {"--block-size", "80"})).code, 0);
    const Arguments lora = {"--init-from", folder_ / "base", "--lora-r", "8",       "--packing",
                            "best-fit",    "--sample",       "30",       "--steps", "200"};
    const Ended ended = run(tiny("chats.jsonl", "a", lora));
    ASSERT_EQ(ended.code, 0) << ended.text();
    EXPECT_FALSE(fs::exists(folder_ / "a/model.safetensors"));
    auto model = nn::Gpt::from_pretrained(folder_ / "base");
    const nn::LoraConfig config = nn::load_adapter(model, folder_ / "a");
    EXPECT_EQ(config.r, 8);
    EXPECT_EQ(config.lora_alpha, 16);
    EXPECT_EQ(config.task_type, "CAUSAL_LM");
    EXPECT_EQ(config.base_model_name_or_path, folder_ / "base");
    EXPECT_LT(ended.result()["val_loss"], metrics("a")[0]["loss"].get<double>() - 1);
    const std::string report = read_file(folder_ / "a/report.html");
    EXPECT_THAT(report, HasSubstr("&lt;|im_start|&gt;assistant\n"));

    Arguments evaluation = tiny("chats.jsonl", "a", lora);
    evaluation.insert(evaluation.end(), {"--eval-only", "--seed", "5"});
    const Ended evaluated = run(evaluation);
    ASSERT_EQ(evaluated.code, 0) << evaluated.text();
    EXPECT_EQ(evaluated.result()["val_loss"], ended.result()["val_loss"]);
}

TEST_F(TrainGptDocuments, TunesAnAdapterOverQuantizedWeights) {
    ASSERT_EQ(run(tiny("answers.jsonl", "base", {"--block-size", "80"})).code, 0);
    for (const char* format : {"nf4", "int8", "llm-int8"}) {
        const Arguments lora = {"--init-from", folder_ / "base", "--lora-r", "8",
                                "--quantize",  format,           "--steps",  "60"};
        const Ended ended = run(tiny("chats.jsonl", format, lora));
        ASSERT_EQ(ended.code, 0) << ended.text();
        EXPECT_LT(ended.result()["val_loss"], metrics(format)[0]["loss"].get<double>() - 1);
        auto model = nn::Gpt::from_pretrained(folder_ / "base");
        EXPECT_EQ(nn::load_adapter(model, folder_ / format).r, 8);

        Arguments evaluation = tiny("chats.jsonl", format, lora);
        evaluation.insert(evaluation.end(), {"--eval-only"});
        EXPECT_EQ(run(evaluation).result()["val_loss"], ended.result()["val_loss"]);
    }
}

TEST_F(TrainGptDocuments, TunesALlamaOfBytesAndResumes) {
    const nn::Llama base({.vocab_size = 256,
                          .hidden_size = 16,
                          .intermediate_size = 32,
                          .num_hidden_layers = 1,
                          .num_attention_heads = 2,
                          .max_position_embeddings = 64,
                          .eos_token_id = {0}});
    base.save_pretrained(folder_ / "llama");
    const Arguments from = {"--init-from", folder_ / "llama", "--packing", "best-fit"};
    Arguments half = tiny("answers.jsonl", "b", from);
    half.insert(half.end(), {"--epochs", "0", "--save-every", "60"});
    const Ended whole = run(tiny("answers.jsonl", "a", from));
    ASSERT_EQ(whole.code, 0) << whole.text();
    EXPECT_LT(whole.result()["val_loss"], 0.2);
    auto model = nn::Llama::from_pretrained(folder_ / "a");
    // The token that ends a text was added to the answers.
    const auto ids = model.generate({'?', 'b', '='}, 5, {.temperature = 0, .eos_token_id = {0}});
    EXPECT_EQ(ids, (std::vector<std::int64_t>{'?', 'b', '=', 'B', '\n', 0}));

    const pid_t child = start(half);
    const bool runs = wait_for_rows(child, 65, "b");
    kill(child, SIGKILL);
    finish(child);
    ASSERT_TRUE(runs);
    half.insert(half.end(), {"--resume", "latest"});
    const Ended resumed = run(half);
    ASSERT_EQ(resumed.code, 0) << resumed.text();
    EXPECT_TRUE(TrainerTest::model("b") == TrainerTest::model("a"));
}

TEST_F(TrainGptDocuments, EvaluatesTheCheckpointAndNotTheModelThatItStartedFrom) {
    ASSERT_EQ(run(tiny("answers.jsonl", "base", {"--steps", "5"})).code, 0);
    const Arguments from = tiny("answers.jsonl", "a", {"--init-from", folder_ / "base"});
    const Ended tuned = run(from);
    ASSERT_EQ(tuned.code, 0) << tuned.text();
    Arguments evaluation = from;
    evaluation.insert(evaluation.end(), {"--eval-only"});
    const Ended evaluated = run(evaluation);
    ASSERT_EQ(evaluated.code, 0) << evaluated.text();
    EXPECT_EQ(evaluated.result()["val_loss"], tuned.result()["val_loss"]);
}

// The preset selects bytes for models without a tokenizer.
TEST_F(TrainGptDocuments, EvaluatesWithTheTokenizerOfTheModelThatItStartedFrom) {
    const std::string tokenizer =
        to_json(from_json(read_file(AXLE_TESTS_DIR "/golden/instructions.json"))["tokenizer"]);
    const nn::Llama base(
        {.vocab_size = data::PretrainedTokenizer::from_json(tokenizer).vocab_size(),
         .hidden_size = 16,
         .intermediate_size = 32,
         .num_hidden_layers = 1,
         .num_attention_heads = 2,
         .max_position_embeddings = 64});
    base.save_pretrained(folder_ / "words");
    write_file_atomically(folder_ / "words/tokenizer.json", tokenizer);
    Arguments flags =
        tiny("answers.jsonl", "a", {"--init-from", folder_ / "words", "--steps", "20"});
    const Ended tuned = run(flags);
    ASSERT_EQ(tuned.code, 0) << tuned.text();
    flags.emplace_back("--eval-only");
    const Ended evaluated = run(flags);
    ASSERT_EQ(evaluated.code, 0) << evaluated.text();
    EXPECT_EQ(evaluated.result()["val_loss"], tuned.result()["val_loss"]);
}

TEST_F(TrainGptDocuments, RejectsOtherOptionsOfDocumentsWhenItResumes) {
    Arguments flags = tiny("answers.jsonl", "a", {"--steps", "5"});
    ASSERT_EQ(run(flags).code, 0);
    flags.insert(flags.end(), {"--resume", "latest", "--train-on", "all"});
    const Ended ended = run(flags);
    EXPECT_EQ(ended.code, 1);
    EXPECT_THAT(ended.text(), HasSubstr("documents: saved 'column text, chat chatml, train on "
                                        "answers, packing none', now 'column text"));
}

// With more rows, rows of the validation data would become training data.
TEST_F(TrainGptDocuments, RejectsDataThatHaveGrownWhenItResumes) {
    Arguments flags = tiny("answers.jsonl", "a", {"--steps", "5"});
    ASSERT_EQ(run(flags).code, 0);
    std::ofstream(folder_ / "answers.jsonl", std::ios::app)
        << R"({"prompt": "?a=", "completion": "A"})" << '\n';
    flags.insert(flags.end(), {"--resume", "latest"});
    const Ended ended = run(flags);
    EXPECT_EQ(ended.code, 1);
    EXPECT_THAT(ended.text(), HasSubstr("data: saved '"));
}

TEST_F(TrainGptDocuments, RejectsRowsAndOptionsThatItCannotUse) {
    const auto rejects = [&](const Arguments& flags, const Arguments& words) {
        expect_refused(flags, words);
    };
    rejects(tiny("answers.jsonl", "a", {"--packing", "best"}), {"--packing", "best-fit"});
    rejects(tiny("answers.jsonl", "a", {"--train-on", "answer"}), {"did you mean answers?"});
    rejects(tiny("chats.jsonl", "a", {"--chat", "alpaca"}), {"chatml or llama3: 'alpaca'"});
    rejects(tiny("answers.jsonl", "a", {"--lora-r", "4"}), {"--lora-r needs --init-from"});
    rejects(tiny("answers.jsonl", "a", {"--quantize", "nf4"}), {"--quantize needs --lora-r"});
    rejects(tiny("answers.jsonl", "a", {"--lora-r", "4", "--quantize", "nf3"}),
            {"unknown format of --quantize 'nf3'; did you mean nf4?"});
    rejects(tiny("answers.jsonl", "a", {"--preset", "shakespeare-char-cpu"}),
            {"JSON lines need --tokenizer byte"});
    std::ofstream(folder_ / "bad.jsonl") << R"({"text": "abc"})"
                                         << "\n{\"text\": 3}\n";
    rejects(tiny("bad.jsonl", "a"), {folder_ / "bad.jsonl", "line 2"});
    rejects(tiny("answers.jsonl", "a", {"--block-size", "2"}), {"none of the"});
}

}  // namespace
}  // namespace axle
