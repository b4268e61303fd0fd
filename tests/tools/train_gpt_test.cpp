// Tests the program train_gpt with files, options and signals.
#include <chrono>
#include <fstream>
#include <random>
#include <string>

#include "core/cuda.h"
#include "gmock/gmock.h"
#include "tests/environment_variable.h"
#include "tests/sanitized.h"
#include "tests/tools/trainer_program.h"

namespace axle {
namespace {

using namespace tests;  // NOLINT: the test helpers of this folder

class TrainGpt : public TrainerTest {
  protected:
    TrainGpt() : TrainerTest("train_gpt") {}

    void SetUp() override {
        TrainerTest::SetUp();
        write_words(folder_ / "text.txt");
    }

    // Returns the options of a run with the tiny model and its own output folder.
    Arguments tiny(const std::string& out, const Arguments& more = {}) {
        Arguments all = {"--preset", "tiny",        "--data",    folder_ / "text.txt",
                         "--out",    folder_ / out, "--threads", "1"};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
    void expect_kills_to_leave_no_trace(int kills, int steps);
};

TEST_F(TrainGpt, PrintsItsResultAsJsonAndWritesMetricsAndTheConfiguration) {
    const Ended ended = run(tiny("a"));
    ASSERT_EQ(ended.code, 0) << ended.text();
    const json result = ended.result();
    for (const char* key :
         {"val_loss", "steps", "seconds", "tokens_per_s", "threads", "device", "checkpoint"})
        EXPECT_TRUE(result.contains(key)) << key << " in " << result;
    EXPECT_EQ(result["steps"], 20);
    EXPECT_EQ(result["threads"], 1);
    EXPECT_EQ(result["device"], "cpu");
    EXPECT_EQ(result["checkpoint"], folder_ / "a/checkpoints/checkpoint_20");
    EXPECT_TRUE(fs::exists(result["checkpoint"].get<std::string>() + "/manifest.json"));
    EXPECT_GT(result["tokens_per_s"], 0);
    const auto rows = metrics("a");
    ASSERT_EQ(rows.size(), 20u);
    EXPECT_LT(rows.back()["loss"], rows.front()["loss"]);
    EXPECT_EQ(rows.back()["val_loss"], result["val_loss"]);
    EXPECT_TRUE(fs::exists(folder_ / "a/config.json"));
    EXPECT_EQ(ended.text().find('\r'), std::string::npos);
}

TEST_F(TrainGpt, GivesTheSameResultWithOneTwoOrThreeThreads) {
    Arguments more = {"--dropout", "0.1", "--block-size", "32", "--batch-size", "16"};
    ASSERT_EQ(run(tiny("t1", more)).code, 0);
    for (const char* threads : {"2", "3"}) {
        Arguments options = more;
        options.insert(options.end(), {"--threads", threads});
        const Ended ended = run(tiny("t", options));
        ASSERT_EQ(ended.code, 0) << ended.text();
        EXPECT_EQ(ended.result()["threads"], std::stoi(threads));
        EXPECT_EQ(metrics("t"), metrics("t1"));
        EXPECT_TRUE(model("t") == model("t1")) << threads << " threads";
    }
}

// As in Accelerate, the environment variable takes precedence over the option.
TEST_F(TrainGpt, TakesAccumulationStepsFromTheEnvironment) {
    const Ended option = run(tiny("option", {"--gradient-accumulation-steps", "2"}));
    ASSERT_EQ(option.code, 0) << option.text();
    const EnvironmentVariable steps("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "2");
    const Ended variable = run(tiny("variable", {"--gradient-accumulation-steps", "3"}));
    ASSERT_EQ(variable.code, 0) << variable.text();
    EXPECT_EQ(metrics("variable"), metrics("option"));
    EXPECT_TRUE(model("variable") == model("option"));
}

TEST_F(TrainGpt, GivesTheSameResultForTheSameSeed) {
    ASSERT_EQ(run(tiny("a")).code, 0);
    ASSERT_EQ(run(tiny("b")).code, 0);
    ASSERT_EQ(run(tiny("c", {"--seed", "2"})).code, 0);
    EXPECT_TRUE(model("a") == model("b"));
    EXPECT_FALSE(model("a") == model("c"));
}

// Kills and resumes a run several times, and compares it with an uninterrupted run.
void TrainGpt::expect_kills_to_leave_no_trace(int kills, int steps) {
    const Arguments options = {"--steps",
                               std::to_string(steps),
                               "--save-every",
                               "5",
                               "--eval-every",
                               "7",
                               "--dropout",
                               "0.1",
                               "--gradient-accumulation-steps",
                               "2"};
    const Ended whole = run(tiny("whole", options));
    ASSERT_EQ(whole.code, 0) << whole.text();

    Arguments resumed = options;
    std::mt19937 random(std::random_device{}());
    int killed = 0;
    for (int i = 0; i < kills; ++i) {
        const std::size_t rows = 5 + random() % static_cast<unsigned>(steps / 2);
        const std::chrono::microseconds later(random() % 4000);
        killed += killed_at(rows, later, "killed", tiny("killed", resumed)) ? 1 : 0;
        if (i == 0) resumed.insert(resumed.end(), {"--resume", "latest"});
    }
    EXPECT_GT(killed, 0);
    const Ended last = run(tiny("killed", resumed));
    ASSERT_EQ(last.code, 0) << last.text();
    EXPECT_EQ(metrics("killed"), metrics("whole"));
    EXPECT_TRUE(model("killed") == model("whole"));
    EXPECT_EQ(last.result()["val_loss"], whole.result()["val_loss"]);
    EXPECT_EQ(last.result()["steps"], steps);
}

TEST_F(TrainGpt, ResumesAKilledRunExactly) { expect_kills_to_leave_no_trace(2, 400); }

TEST_F(TrainGpt, ResumesExactlyAfterKillsInALongRun) {
    for (int i = 0; i < 20; ++i) {
        fs::remove_all(folder_ / "whole");
        fs::remove_all(folder_ / "killed");
        expect_kills_to_leave_no_trace(8, 400);
    }
}

TEST_F(TrainGpt, TrainsTheWeightsOfLayersWithMuonAndResumesExactly) {
    // AdamW, which trains the other parameters, changes nothing at this rate.
    const Arguments muon = {"--muon-lr", "0.02", "--lr", "1e-12"};
    const Ended whole = run(tiny("whole", muon));
    ASSERT_EQ(whole.code, 0) << whole.text();
    const auto rows = metrics("whole");
    EXPECT_LT(rows.back()["val_loss"], rows.front()["loss"].get<double>() - 0.1);

    Arguments resumed = muon;
    resumed.insert(resumed.end(), {"--resume", folder_ / "whole/checkpoints/checkpoint_10"});
    const Ended ended = run(tiny("resumed", resumed));
    ASSERT_EQ(ended.code, 0) << ended.text();
    EXPECT_TRUE(model("resumed") == model("whole"));
    resumed[1] = "0";
    const Ended other = run(tiny("other", resumed));
    EXPECT_EQ(other.code, 1);
    EXPECT_THAT(other.text(), AllOf(HasSubstr("muon"), HasSubstr("--allow-changed")));
}

TEST_F(TrainGpt, EvaluatesWithoutRepeatingTrainingOptions) {
    const Ended trained =
        run(tiny("a", {"--steps", "30", "--gradient-accumulation-steps", "2", "--seed", "3"}));
    ASSERT_EQ(trained.code, 0) << trained.text();
    const Ended evaluated = run(tiny("a", {"--eval-only", "--steps", "3"}));
    ASSERT_EQ(evaluated.code, 0) << evaluated.text();
    EXPECT_EQ(evaluated.result()["val_loss"], trained.result()["val_loss"]);
    EXPECT_EQ(evaluated.result()["steps"], 30);
    EXPECT_EQ(evaluated.result()["checkpoint"], trained.result()["checkpoint"]);
    EXPECT_EQ(metrics("a").size(), 30u);
}

TEST_F(TrainGpt, DoesNotTrainWhenItResumesAFinishedRun) {
    const Ended trained = run(tiny("a"));
    ASSERT_EQ(trained.code, 0) << trained.text();
    const Ended again = run(tiny("a", {"--resume", "latest"}));
    ASSERT_EQ(again.code, 0) << again.text();
    EXPECT_EQ(again.result()["val_loss"], trained.result()["val_loss"]);
    EXPECT_EQ(metrics("a").size(), 20u);
    const Ended elsewhere = run(tiny("b", {"--resume", folder_ / "a/checkpoints/checkpoint_20"}));
    EXPECT_EQ(elsewhere.code, 0) << elsewhere.text();
}

TEST_F(TrainGpt, InitializesFromASavedModelFolder) {
    const Ended first = run(tiny("a", {"--steps", "60"}));
    ASSERT_EQ(first.code, 0) << first.text();
    const Ended evaluated = run(tiny("b", {"--init-from", folder_ / "a", "--eval-only"}));
    ASSERT_EQ(evaluated.code, 0) << evaluated.text();
    EXPECT_EQ(evaluated.result()["val_loss"], first.result()["val_loss"]);
    const Ended tuned = run(tiny("b", {"--init-from", folder_ / "a", "--steps", "2"}));
    ASSERT_EQ(tuned.code, 0) << tuned.text();
    EXPECT_LT(metrics("b")[0]["loss"], metrics("a")[0]["loss"]);
}

TEST_F(TrainGpt, KeepsTheVocabularyOfTheModelThatItStartsFrom) {
    const std::string narrow = folder_ / "narrow.txt";
    std::string text;
    for (int i = 0; i < 300; ++i) text += i % 7 == 3 ? "el " : "an ";
    std::ofstream(narrow) << text;
    const auto small = [&](const std::string& data, const std::string& out, Arguments more) {
        more.insert(more.begin(), {"--data", data, "--out", folder_ / out, "--steps", "3",
                                   "--block-size", "8", "--batch-size", "2", "--threads", "1"});
        return run(more);
    };
    ASSERT_EQ(small(folder_ / "text.txt", "a", {}).code, 0);
    const Ended tuned = small(narrow, "b", {"--init-from", folder_ / "a"});
    ASSERT_EQ(tuned.code, 0) << tuned.text();
    EXPECT_EQ(read_file(folder_ / "b/tokenizer.json"), read_file(folder_ / "a/tokenizer.json"));
    EXPECT_EQ(small(narrow, "b", {"--resume", "latest"}).code, 0);
}

TEST_F(TrainGpt, ReadsTheConfigurationAndPrefersFlagsToIt) {
    std::ofstream(folder_ / "c.yaml") << "preset: tiny\nsteps: 7\nseed: 9\neval-only: false\n"
                                      << "data: " << folder_ / "text.txt"
                                      << "\n";
    const Ended both =
        run({"--config", folder_ / "c.yaml", "--out", folder_ / "a", "--steps", "4"});
    ASSERT_EQ(both.code, 0) << both.text();
    EXPECT_EQ(both.result()["steps"], 4);
    const Ended file = run({"--out=" + folder_ / "b", "--config=" + folder_ / "c.yaml"});
    ASSERT_EQ(file.code, 0) << file.text();
    EXPECT_EQ(file.result()["steps"], 7);
    ASSERT_EQ(run(tiny("c", {"--steps", "7", "--seed", "9"})).code, 0);
    EXPECT_TRUE(model("b") == model("c"));
}

TEST_F(TrainGpt, RejectsUnknownNamesAndSuggestsTheNearest) {
    expect_refused(tiny("a", {"--batchsize", "3"}), {"--batchsize", "did you mean --batch-size?"});
    expect_refused(tiny("a", {"--stepps=3"}), {"--stepps", "did you mean --steps?"});
    expect_refused(tiny("a", {"--quite-something-else"}), {"--quite-something-else", "--help"});
    expect_refused(tiny("a", {"--preset", "tinny"}), {"tinny", "did you mean tiny?"});
    std::ofstream(folder_ / "c.yaml") << "batchsise: 3\n";
    expect_refused(tiny("a", {"--config", folder_ / "c.yaml"}),
                   {"batchsise", "did you mean --batch-size?"});
    std::ofstream(folder_ / "c.yaml") << "steps: 3\nsteps: 4\n";
    expect_refused(tiny("a", {"--config", folder_ / "c.yaml"}),
                   {folder_ / "c.yaml", "'steps' is repeated"});
}

TEST_F(TrainGpt, RejectsInvalidAndMissingValues) {
    expect_refused(tiny("a", {"--steps", "0"}), {"--steps"});
    expect_refused(tiny("a", {"--steps", "many"}), {"--steps", "many"});
    expect_refused(tiny("a", {"--dropout", "1.5"}), {"--dropout"});
    expect_refused(tiny("a", {"--mixed-precision", "fp4"}), {"mixed_precision", "fp4"});
    expect_refused({"--preset", "tiny"}, {"--data"});
}

TEST_F(TrainGpt, EndsWithTheStepAndTheLossWhenTheLossIsNotFinite) {
    const Ended ended = run(tiny("a", {"--lr", "1e30"}));
    EXPECT_EQ(ended.code, 1);
    EXPECT_THAT(ended.text(), testing::ContainsRegex("the loss of step [0-9]+ is (NaN|-?inf): "));
    EXPECT_THAT(ended.text(), testing::HasSubstr("lower --lr"));
    EXPECT_FALSE(fs::exists(folder_ / "a/model.safetensors"));
}

// The gradient scaler skips updates with infinite gradients, which can have such a loss.
TEST_F(TrainGpt, EndsInFp16AfterSixteenSkippedUpdatesWithALossThatIsNotFinite) {
    const Ended ended = run(tiny(
        "a", {"--lr", "1e30", "--mixed-precision", "fp16", "--eval-every", "0", "--steps", "100"}));
    EXPECT_EQ(ended.code, 1);
    EXPECT_THAT(ended.text(), testing::ContainsRegex("the loss of step (1[6-9]|2[0-9]) is NaN: "));
    EXPECT_THAT(ended.text(), testing::HasSubstr("--mixed-precision no"));
    // Checkpoints are due every ten updates, but the parameters are NaN.
    EXPECT_FALSE(has_checkpoint("a"));
}

TEST_F(TrainGpt, RejectsStepsTogetherWithEpochs) {
    expect_refused(tiny("a", {"--steps", "3", "--epochs", "2"}),
                   {"--steps and --epochs exclude each other: --steps is 3, --epochs is 2"});
}

TEST_F(TrainGpt, DoesNotCreateTheFolderThatItShouldEvaluate) {
    expect_refused(tiny("none", {"--eval-only"}),
                   {"--eval-only evaluates a checkpoint", folder_ / "none/checkpoints"});
    EXPECT_FALSE(fs::exists(folder_ / "none"));
    expect_refused(tiny("none", {"--eval-only", "--resume", "auto"}),
                   {"--eval-only evaluates a checkpoint", folder_ / "none/checkpoints"});
}

TEST_F(TrainGpt, TrainsOnTheGivenDeviceOrReportsWhyNot) {
    const auto on = [&](const std::string& device) { return tiny("a", {"--device", device}); };
    EXPECT_EQ(run(on("cpu")).result()["device"], "cpu");
    expect_refused(on("meta"), {"device: ", "must be cpu or cuda, not 'meta'"});
    for (const std::string odd : {"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:0x", ""})
        expect_refused(on(odd), {"device: expected cpu, cuda", "'" + odd + "'"});
    const std::string why = cuda::why_unavailable();
    EXPECT_EQ(why.empty(), cuda::is_available());
    for (const std::string gpu : {"cuda", "cuda:0", "cuda:1", "cuda:99"}) {
        if (!cuda::is_available()) {
            expect_refused(on(gpu), {"device: " + why, "'" + gpu + "'", "use cpu"});
        } else if (gpu == "cuda" || gpu == "cuda:0") {
            const Ended ended = run(on(gpu));
            EXPECT_EQ(ended.code, 0) << ended.text();
            EXPECT_EQ(ended.result()["device"], gpu);
        } else if (gpu == "cuda:1" && cuda::device_count() > 1) {
            expect_refused(on(gpu), {"'cuda:1'", "CUDA_VISIBLE_DEVICES"});
        } else {
            expect_refused(on(gpu), {"the GPU does not exist", "'" + gpu + "'",
                                     "has " + std::to_string(cuda::device_count())});
        }
    }
}

TEST_F(TrainGpt, ReportsMissingAndInvalidFiles) {
    const auto with_data = [&](const std::string& data) {
        return Arguments{"--preset", "tiny", "--out", folder_ / "a", "--data", data};
    };
    expect_refused(with_data(folder_ / "none.txt"), {folder_ / "none.txt"});
    std::ofstream(folder_ / "empty.txt").flush();
    expect_refused(with_data(folder_ / "empty.txt"), {folder_ / "empty.txt", "empty"});
    std::ofstream(folder_ / "short.txt") << "too short";
    expect_refused(with_data(folder_ / "short.txt"), {folder_ / "short.txt"});
    std::ofstream(folder_ / "latin.txt") << std::string(400, 'a') << "\xe9";
    expect_refused({"--out", folder_ / "a", "--data", folder_ / "latin.txt"},
                   {folder_ / "latin.txt", "UTF-8"});
    std::ofstream(folder_ / "odd.bin") << "odd";
    expect_refused(with_data(folder_ / "odd.bin"), {folder_ / "odd.bin"});
    expect_refused(with_data(folder_.path()), {folder_.path()});
    expect_refused(tiny("a", {"--config", folder_ / "none.yaml"}), {folder_ / "none.yaml"});
    expect_refused(tiny("a", {"--init-from", folder_ / "none"}), {folder_ / "none"});
    expect_refused(tiny("new", {"--resume", "latest"}), {folder_ / "new/checkpoints"});
    expect_refused(tiny("new", {"--eval-only"}), {folder_ / "new/checkpoints"});
    expect_refused(tiny("a", {"--resume", folder_ / "none"}), {folder_ / "none"});
}

// The text is larger than the memory that the program may allocate.
TEST_F(TrainGpt, TrainsOnATextThatIsLargerThanItsMemory) {
    if (kSanitized) GTEST_SKIP() << "a sanitizer reserves memory";
    const std::string words = read_file(folder_ / "text.txt");
    {
        std::ofstream text(folder_ / "large.txt", std::ios::binary);
        for (int i = 0; i < 40'000; ++i) text << words;  // 132 MB
    }
    max_memory_ = std::uint64_t{100} << 20;
    for (const char* preset : {"tiny", "shakespeare-char-cpu"}) {
        // The test ends training before the evaluation, because the evaluation would read a tenth
        // of the text.
        const pid_t child = start({"--preset", preset, "--data", folder_ / "large.txt", "--out",
                                   folder_ / preset, "--steps", "1000000", "--eval-every", "0",
                                   "--save-every", "0", "--threads", "1"});
        const std::string rows = (folder_ / preset) + "/metrics.jsonl";
        bool runs = true;
        while (runs && lines_of(rows).size() < 5) {
            int status = 0;
            runs = waitpid(child, &status, WNOHANG) == 0;
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        if (runs) {
            kill(child, SIGKILL);
            waitpid(child, nullptr, 0);
        }
        std::string errors;
        for (const std::string& line : lines_of(stderr_of(child))) errors += line + "\n";
        EXPECT_TRUE(runs) << preset << ": " << errors;
    }
}

TEST_F(TrainGpt, ReportsAnInvalidCheckpoint) {
    ASSERT_EQ(run(tiny("a")).code, 0);
    const std::string checkpoint = folder_ / "a/checkpoints/checkpoint_20";
    for (const char* name : {"/optimizer.safetensors", "/manifest.json"}) {
        const std::string whole = read_file(checkpoint + name);
        std::ofstream(checkpoint + name) << whole.substr(0, whole.size() / 2);
        expect_refused(tiny("a", {"--resume", "latest"}), {checkpoint + name});
        expect_refused(tiny("a", {"--resume", checkpoint}), {checkpoint + name});
        std::ofstream(checkpoint + name) << whole;
    }
    EXPECT_EQ(run(tiny("a", {"--resume", "latest"})).code, 0);
}

TEST_F(TrainGpt, WritesASampleOfTheGivenLength) {
    const pid_t child = start(tiny("a", {"--sample", "50"}));
    const Ended ended = finish(child);
    ASSERT_EQ(ended.code, 0) << ended.text();
    EXPECT_EQ(ended.result()["steps"], 20);
    // The sample is a line break and 50 bytes. Another line break ends it.
    const std::string text = read_file(stdout_of(child));
    const std::size_t begin = text.find('\n', text.find("report: ")) + 1;
    EXPECT_EQ(text.find("validation loss ", begin) - begin, 52u);
}

TEST_F(TrainGpt, ExitsWithZeroAfterHelpAndVersion) {
    const Ended help = run({"--help"});
    EXPECT_EQ(help.code, 0);
    EXPECT_GT(help.out.size(), 20u);
    EXPECT_EQ(run({"--version"}).code, 0);
}

}  // namespace
}  // namespace axle
