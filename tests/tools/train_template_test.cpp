// Tests the program train_template on forty digits: five batches of eight per epoch. Some tests
// check for mistakes that are common in trainers.
#include <set>
#include <string>
#include <vector>

#include "core/files/safetensors.h"
#include "core/ops.h"
#include "gmock/gmock.h"
#include "tests/environment_variable.h"
#include "tests/tools/trainer_program.h"

namespace axle {
namespace {

using namespace tests;  // NOLINT: the test helpers of this folder
using testing::HasSubstr;
using testing::Not;

class TrainTemplate : public TrainerTest {
  protected:
    TrainTemplate() : TrainerTest("train_template") {}

    // Returns the options of a run with its own output folder.
    Arguments options(const std::string& out, const Arguments& more = {}) {
        Arguments all = {"data.data_dir=" AXLE_TESTS_DIR "/golden/images",
                         "data.batch_size=8",
                         "data.num_workers=1",
                         "training.project_name=digits",
                         "training.exp_name=" + out,
                         "training.output_dir=" + folder_.path(),
                         "training.num_epochs=3",
                         "training.mixed_precision=no",
                         "training.cpu=true",
                         "training.report_to=jsonl"};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
    Ended train(const std::string& out, const Arguments& more = {}) {
        const Ended ended = run(options(out, more));
        EXPECT_EQ(ended.code, 0) << ended.text();
        return ended;
    }
    Ended launch_on(int processes, const std::string& out, const Arguments& more = {}) {
        Arguments launch = {"launch", "--cpu", "--num_processes", std::to_string(processes),
                            program_};
        const Arguments rest = options(out, more);
        launch.insert(launch.end(), rest.begin(), rest.end());
        const std::string trainer = std::exchange(program_, AXLE_BIN_DIR "/axle");
        const Ended ended = run(launch);
        program_ = trainer;
        return ended;
    }
    Ended train_on(int processes, const std::string& out, const Arguments& more = {}) {
        const Ended ended = launch_on(processes, out, more);
        EXPECT_EQ(ended.code, 0) << ended.text();
        return ended;
    }
    std::string path(const std::string& out, const std::string& file) {
        return folder_ / ("digits/" + out + "/" + file);
    }
    bool exists(const std::string& out, const std::string& file) {
        return fs::exists(path(out, file));
    }
    // Returns the tracked rows that contain the value `with`, without the memory column. Only rows
    // of updates contain "loss".
    std::vector<json> rows(const std::string& out, const std::string& with = "loss") {
        std::vector<json> all;
        for (const std::string& line : lines_of(path(out, "digits/metrics.jsonl"))) {
            json row = json::parse(line);
            row.erase("memory_gb");
            if (row.contains(with)) all.push_back(row);
        }
        return all;
    }
    template <class T>
    std::vector<T> column(const std::string& out, const std::string& name) {
        std::vector<T> values;
        for (const json& row : rows(out)) values.push_back(row[name].get<T>());
        return values;
    }
    std::string weights(const std::string& out) {
        return read_file(path(out, "model.safetensors"));
    }
    // Expects that a resumed run logs the rows that the run that saved its checkpoint logged after
    // the checkpoint, and ends with the same weights.
    void expect_to_resume_exactly(const std::string& checkpoint, const Arguments& more) {
        train("whole", more);
        Arguments again = more;
        again.push_back("training.resume_from_checkpoint=" + path("whole", checkpoint));
        train("resumed", again);
        const auto whole = rows("whole"), resumed = rows("resumed");
        ASSERT_LT(resumed.size(), whole.size());
        ASSERT_GT(resumed.size(), 0u);
        const auto skipped = static_cast<std::ptrdiff_t>(whole.size() - resumed.size());
        EXPECT_EQ(resumed, std::vector<json>(whole.begin() + skipped, whole.end()));
        EXPECT_TRUE(weights("resumed") == weights("whole"));
    }
};

// Covers 25.structured, 25.ConfigStore.
TEST_F(TrainTemplate, ReadsOptionsFromAFileAndTheCommandLine) {
    const std::string file = folder_ / "config.yaml";
    std::ofstream(file) << "data:\n  data_dir: ???\n  batch_size: 4\n"
                           "optimizer: {learning_rate: 5e-4}\n"
                           "training:\n  project_name: digits\n  exp_name: 7\n"
                           "  num_epochs: 9\n  mixed_precision: no\n  report_to: [jsonl]\n";
    const Ended ended = run({"--config", file, "data.data_dir=" AXLE_TESTS_DIR "/golden/images",
                             "training.num_epochs=1", "training.output_dir=" + folder_.path()});
    ASSERT_EQ(ended.code, 0) << ended.text();
    const auto updates = rows("7");
    ASSERT_EQ(updates.size(), 10u);
    EXPECT_EQ(updates[0]["learning_rate"], 5e-4);

    // The resolved configuration is printed, written to the run's folder and sent to the trackers.
    // The written file can be used as a configuration file.
    EXPECT_THAT(ended.out, testing::IsSupersetOf({"  batch_size: 4", "  num_epochs: 1",
                                                  "  mixed_precision: 'no'", "  seed: 42"}));
    const json tracked = json::parse(read_file(path("7", "digits/config.json")));
    EXPECT_EQ(tracked["data"]["batch_size"], 4);
    EXPECT_EQ(tracked["optimizer"]["adam_beta2"], 0.999);
    const std::string first = weights("7");
    ASSERT_EQ(run({"--config", path("7", "config.yaml"), "training.exp_name=again"}).code, 0);
    EXPECT_TRUE(weights("again") == first);
}

// Covers 25.ConfigStore.
TEST_F(TrainTemplate, ReportsMissingUnknownAndInvalidOptions) {
    expect_refused({}, {"missing: data.data_dir, data.batch_size, training.project_name"});
    expect_refused(options("a", {"data.batchsize=3"}),
                   {"'data.batchsize'", "did you mean data.batch_size?", "pin_memory"});
    expect_refused(options("a", {"trainer.seed=3"}), {"'trainer'", "optimizer, training"});
    expect_refused(options("a", {"data.batch_size=eight"}),
                   {"data.batch_size must be an integer: 'eight'"});
    expect_refused(options("a", {"training.save_strategy=step"}), {"steps or epoch: 'step'"});
    expect_refused(options("a", {"scheduler.name=cosin"}), {"get_scheduler", "cosin"});
    expect_refused(options("a", {"training.resume_from_checkpoint=latest"}), {"no checkpoint"});
    expect_refused(options("a", {"seed"}), {"group.key=value: 'seed'"});
}

// Covers 25.log_metrics, 25.total_progress, 25.progress, 25.metrics, 25.log_model_info, 25.get_model.
TEST_F(TrainTemplate, ShowsAndTracksEveryUpdate) {
    const Ended ended = train("a", {"training.report_to=[jsonl,tensorboard]"});
    const auto updates = rows("a");
    ASSERT_EQ(updates.size(), 15u);
    for (const char* key : {"step", "loss", "learning_rate", "grad_norm"})
        EXPECT_TRUE(updates[0].contains(key)) << key;
    EXPECT_THAT(read_file(path("a", "digits/metrics.jsonl")), HasSubstr("\"memory_gb\""));
    EXPECT_LT(updates.back()["loss"], updates.front()["loss"]);
    EXPECT_THAT(ended.out,
                testing::Contains("parameters: 61,706 total, 61,706 trainable, 0 frozen"));
    EXPECT_THAT(ended.text(), HasSubstr("epoch 3/3 100% 5/5"));
    EXPECT_THAT(ended.text(), testing::ContainsRegex(
                                  "total 100% 15/15 .* loss=[0-9]+\\.[0-9]{4}, "
                                  "lr=1\\.00e-03, mem=[0-9]+\\.[0-9]GB, grad=[0-9]+\\.[0-9]{3}"));
    EXPECT_TRUE(exists("a", "digits/hparams.yml"));
}

// Covers 25.set_requires_grad, 25.log_model_info.
TEST_F(TrainTemplate, TrainsAPartlyFrozenModel) {
    const Ended ended = train("a", {"model.freeze_features=true", "training.allow_tf32=false",
                                    "training.save_strategy=epoch"});
    EXPECT_THAT(ended.out,
                testing::Contains("parameters: 61,706 total, 59,134 trainable, 2,572 frozen"));
    const auto first = load_safetensors(path("a", "epoch_1/model.safetensors")).tensors;
    const auto last = load_safetensors(path("a", "model.safetensors")).tensors;
    const auto moved = [&](const std::string& name) {
        return (first.at(name) - last.at(name)).abs().max().item() > 0;
    };
    EXPECT_FALSE(moved("conv2.weight"));
    EXPECT_TRUE(moved("fc1.weight"));
}

// Covers 25.output, 25.save_strategy.
TEST_F(TrainTemplate, SavesCheckpointsPerStepOrEpochAndTheFinalModel) {
    train("steps", {"training.checkpoint_steps=4"});
    for (const char* folder : {"step_4", "step_8", "step_12", "model.safetensors"})
        EXPECT_TRUE(exists("steps", folder)) << folder;
    EXPECT_FALSE(exists("steps", "epoch_1"));
    train("epochs", {"training.save_strategy=epoch", "training.checkpoint_steps=4"});
    for (const char* folder : {"epoch_1", "epoch_2", "epoch_3", "model.safetensors"})
        EXPECT_TRUE(exists("epochs", folder)) << folder;
    EXPECT_FALSE(exists("epochs", "step_4"));
}

// A step is a batch, and step_10 is saved after the tenth batch, not the eleventh.
// Covers 25.boilerplate, 32.more, 25.global_step, 25.CheckpointTracker.
TEST_F(TrainTemplate, PutsTheNumberOfBatchesIntoTheNamesOfCheckpoints) {
    train("a", {"training.checkpoint_steps=10"});
    const json progress = json::parse(read_file(path("a", "step_10/custom_checkpoint_0.json")));
    EXPECT_EQ(progress["global_step"], 10);
    EXPECT_EQ(progress["updates"], 10);
    EXPECT_FALSE(exists("a", "step_5"));
}

// Covers 32.more.
TEST_F(TrainTemplate, AcceptsANumberOfStepsInQuotesButNoText) {
    const std::string file = folder_ / "config.yaml";
    std::ofstream(file) << "training: {checkpoint_steps: '10'}\n";
    Arguments arguments = {"--config", file};
    for (const std::string& option : options("a")) arguments.push_back(option);
    ASSERT_EQ(run(arguments).code, 0);
    EXPECT_TRUE(exists("a", "step_10"));
    std::ofstream(file) << "training: {checkpoint_steps: ten}\n";
    expect_refused(arguments, {"training.checkpoint_steps must be an integer: 'ten'"});
}

// Loader, order, schedule and counters continue in the middle of the second epoch. The loader's
// state is needed for this, and is always saved.
// Covers 10.resume, 25.DistributedSampler, 25.boilerplate, 25.global_step, 32.more.
TEST_F(TrainTemplate, ResumesExactlyInTheMiddleOfAnEpoch) {
    expect_to_resume_exactly("step_7", {"training.checkpoint_steps=7", "scheduler.name=linear",
                                        "scheduler.num_warmup_steps=3"});
    EXPECT_EQ(column<int>("resumed", "step"), (std::vector<int>{8, 9, 10, 11, 12, 13, 14, 15}));
}

// Covers 10.resume, 25.boilerplate, 32.more.
TEST_F(TrainTemplate, ResumesFromAnEpochCheckpointWithTheNextEpoch) {
    expect_to_resume_exactly("epoch_2", {"training.save_strategy=epoch"});
    EXPECT_EQ(column<int>("resumed", "step"), (std::vector<int>{11, 12, 13, 14, 15}));
}

// Covers 25.boilerplate.
TEST_F(TrainTemplate, ResumesTheLatestCheckpointAtTheEndOfAnEpoch) {
    train("a", {"training.checkpoint_steps=5"});
    const auto whole = rows("a");
    fs::remove_all(path("a", "step_15"));
    const std::string trained = weights("a");
    const Ended ended = train("a", {"training.resume_from_checkpoint=latest"});
    EXPECT_THAT(ended.out, testing::Contains("resumed from " + path("a", "step_10")));
    EXPECT_EQ(rows("a"), whole);
    EXPECT_TRUE(weights("a") == trained);
    EXPECT_THAT(ended.text(), Not(HasSubstr("epoch 2/3")));
}

TEST_F(TrainTemplate, ResumesTheLatestCheckpointOfTheLatestRun) {
    train("a", {"training.checkpoint_steps=5"});
    train("a", {"training.checkpoint_steps=5", "training.num_epochs=1"});
    const Ended ended = train("a", {"training.resume_from_checkpoint=latest"});
    EXPECT_THAT(ended.out, testing::Contains("resumed from " + path("a", "step_5")));
}

// Covers 32.more, 25.total_progress.
TEST_F(TrainTemplate, CountsUpdatesInTheTotalProgressBarAfterResuming) {
    const Arguments two = {"training.gradient_accumulation_steps=2", "training.checkpoint_steps=7"};
    train("whole", two);
    Arguments again = two;
    again.push_back("training.resume_from_checkpoint=" + path("whole", "step_7"));
    const Ended ended = train("resumed", again);
    EXPECT_THAT(ended.text(), HasSubstr("total 100% 9/9"));
    EXPECT_THAT(ended.text(), Not(HasSubstr("10/9")));
    EXPECT_TRUE(weights("resumed") == weights("whole"));
}

// The loader is prepared, so the last batch of an epoch completes an update.
// Covers 25.boilerplate, 25.num_training_steps.
TEST_F(TrainTemplate, CompletesAnUpdateAtTheEndOfAnEpoch) {
    train("a", {"training.gradient_accumulation_steps=2", "scheduler.name=linear"});
    EXPECT_EQ(column<int>("a", "step"), (std::vector<int>{2, 4, 5, 7, 9, 10, 12, 14, 15}));
    const auto rates = column<double>("a", "learning_rate");
    for (std::size_t i = 0; i < rates.size(); ++i)
        EXPECT_NEAR(rates[i], 1e-3 * (1 - static_cast<double>(i) / 9), 1e-12);
}

// With a learning rate of zero, the loss identifies the samples of a batch.
// Covers 25.boilerplate.
TEST_F(TrainTemplate, ShufflesEveryEpochDifferentlyAfterResuming) {
    const Arguments still = {"optimizer.learning_rate=0", "training.save_strategy=epoch"};
    train("whole", still);
    const auto losses = column<double>("whole", "loss");
    ASSERT_EQ(losses.size(), 15u);
    EXPECT_EQ(std::set<double>(losses.begin(), losses.end()).size(), 15u);
    Arguments again = still;
    again.push_back("training.resume_from_checkpoint=" + path("whole", "epoch_1"));
    train("resumed", again);
    EXPECT_EQ(column<double>("resumed", "loss"),
              std::vector<double>(losses.begin() + 5, losses.end()));
}

// Covers 25.boilerplate, 25.num_training_steps.
TEST_F(TrainTemplate, AllowsSchedulesWithoutWarmup) {
    for (const char* name : {"constant", "linear", "cosine"})
        train(name, {std::string("scheduler.name=") + name, "training.num_epochs=1"});
    EXPECT_EQ(column<double>("constant", "learning_rate"), std::vector<double>(5, 1e-3));
    EXPECT_LT(column<double>("cosine", "learning_rate").back(), 1e-3 / 4);
}

// Covers 25.boilerplate.
TEST_F(TrainTemplate, TrainsInF16WithClippingByValueAndByNorm) {
    train("a", {"training.mixed_precision=fp16", "training.clip_value=1e-4",
                "training.max_grad_norm=0.01"});
    const auto updates = rows("a");
    ASSERT_EQ(updates.size(), 15u);
    // Clipping by value runs first, so there are 61,706 gradients of at most 1e-4. Their norm is at
    // most 0.0249.
    for (const json& row : updates) EXPECT_LT(row["grad_norm"].get<double>(), 0.025);
    EXPECT_LT(updates.back()["loss"], updates.front()["loss"]);
}

// Covers 32.more, 25.AdamW, 25.save_strategy.
TEST_F(TrainTemplate, EvaluatesWithoutTrackersAndWithoutChangingTraining) {
    const Ended often = train("often", {"training.report_to=null", "training.eval_steps=4"});
    for (const char* step : {"step 4: eval_loss ", "step 8: eval_loss ", "step 12: eval_loss "})
        EXPECT_THAT(often.text(), HasSubstr(step));
    EXPECT_FALSE(exists("often", "digits"));
    const Ended seldom = train("seldom");
    EXPECT_THAT(seldom.text(), HasSubstr("step 15: eval_loss "));
    EXPECT_EQ(rows("seldom", "eval_accuracy").size(), 3u);
    EXPECT_TRUE(weights("often") == weights("seldom"));
}

// One process must make the same updates as two processes with half of every batch each. The
// schedule counts updates, and only one process prints.
// Covers 25.boilerplate, 25.num_training_steps, 25.multi-node, 25.metrics, 25.log_metrics,
// 25.progress.
TEST_F(TrainTemplate, TrainsOnTwoProcessesLikeOnOneAndPrintsOnlyOnOne) {
    const Arguments more = {"scheduler.name=cosine", "scheduler.num_warmup_steps=4"};
    train("one", more);
    Arguments half = more;
    half.push_back("data.batch_size=4");
    const Ended ended = train_on(2, "two", half);
    const auto one = rows("one"), two = rows("two");
    ASSERT_EQ(two.size(), 15u);
    for (std::size_t i = 0; i < one.size(); ++i) {
        EXPECT_EQ(one[i]["step"], two[i]["step"]);
        EXPECT_EQ(one[i]["learning_rate"], two[i]["learning_rate"]);
        EXPECT_NEAR(one[i]["loss"].get<double>(), two[i]["loss"].get<double>(), 1e-4) << i;
    }
    const auto one_eval = rows("one", "eval_loss"), two_eval = rows("two", "eval_loss");
    ASSERT_EQ(two_eval.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i)
        EXPECT_NEAR(one_eval[i]["eval_loss"].get<double>(), two_eval[i]["eval_loss"].get<double>(),
                    1e-4);
    const std::string text = ended.text();
    const auto first = text.find("total 100% 15/15");
    EXPECT_NE(first, std::string::npos) << text;
    EXPECT_EQ(text.find("total 100%", first + 1), std::string::npos) << text;
}

// Covers 25.boilerplate, 25.DistributedSampler.
TEST_F(TrainTemplate, ResumesExactlyOnTwoProcesses) {
    const Arguments more = {"data.batch_size=4", "training.checkpoint_steps=7"};
    train_on(2, "whole", more);
    Arguments again = more;
    again.push_back("training.resume_from_checkpoint=" + path("whole", "step_7"));
    train_on(2, "resumed", again);
    const auto whole = rows("whole");
    EXPECT_EQ(rows("resumed"), std::vector<json>(whole.begin() + 7, whole.end()));
    EXPECT_TRUE(weights("resumed") == weights("whole"));
}

// Simulates a restart on two of four machines.
TEST_F(TrainTemplate, ResumesOnFewerMachinesWithTheSameUpdates) {
    const Arguments more = {"data.batch_size=2", "scheduler.name=cosine",
                            "training.checkpoint_steps=2"};
    train_on(4, "whole", more);
    const EnvironmentVariable all("AXLE_FULL_WORLD_SIZE", "4");
    Arguments again = more;
    again.push_back("training.resume_from_checkpoint=" + path("whole", "step_2"));
    train_on(2, "resumed", again);
    const auto whole = rows("whole"), resumed = rows("resumed");
    ASSERT_EQ(whole.size(), 15u);
    ASSERT_EQ(resumed.size(), 13u);
    for (std::size_t i = 0; i < resumed.size(); ++i) {
        EXPECT_EQ(resumed[i]["learning_rate"], whole[i + 2]["learning_rate"]);
        EXPECT_NEAR(resumed[i]["loss"].get<double>(), whole[i + 2]["loss"].get<double>(), 1e-4);
    }
}

TEST_F(TrainTemplate, ReportsAGlobalBatchThatCannotBeDivided) {
    const EnvironmentVariable all("AXLE_FULL_WORLD_SIZE", "3");
    const Ended ended = launch_on(2, "a");
    EXPECT_EQ(ended.code, 1);
    EXPECT_THAT(
        ended.text(),
        HasSubstr("train_template: elastic_accumulation_steps: the global batch of 24 samples (3 "
                  "processes x batch size 8 x 1 accumulation steps) cannot be divided among 2 "
                  "processes"));
    EXPECT_FALSE(exists("a", "config.yaml"));
}

TEST_F(TrainTemplate, RequiresOnlyDataDirIfTheExampleConfigurationIsUsed) {
    const std::string file = AXLE_TESTS_DIR "/../tools/train_template.yaml";
    expect_refused({"--config", file}, {"missing: data.data_dir;"});
    const Ended ended = run({"--config", file, "data.data_dir=" AXLE_TESTS_DIR "/golden/images",
                             "data.batch_size=20", "training.num_epochs=1",
                             "training.output_dir=" + folder_.path()});
    EXPECT_EQ(ended.code, 0) << ended.text();
    EXPECT_TRUE(exists("first", "digits/metrics.jsonl"));
}

}  // namespace
}  // namespace axle
