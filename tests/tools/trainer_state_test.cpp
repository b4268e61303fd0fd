// Tests how train_gpt stops and resumes, and that two runs cannot use one folder.
#include <csignal>
#include <fstream>
#include <string>
#include <vector>

#include "accel/state/checkpoint.h"
#include "accel/state/checkpoint_folder.h"
#include "tests/full_disk.h"
#include "tests/tools/trainer_program.h"

namespace axle {
namespace {

using namespace tests;  // NOLINT: the test helpers of this folder

class Trainer : public TrainerTest {
  protected:
    Trainer() : TrainerTest("train_gpt") {}

    void SetUp() override {
        TrainerTest::SetUp();
        write_words(folder_ / "text.txt");
    }
    // Returns the options of a run with the tiny model. The learning rate is constant, so that the
    // schedule does not depend on the number of steps.
    Arguments constant(const std::string& out, const Arguments& more = {}) {
        Arguments all = {
            "--preset", "tiny", "--data", folder_ / "text.txt", "--out", folder_ / out, "--threads",
            "1",        "--lr", "0.001",  "--min-lr",           "0.001", "--warmup",    "0"};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
    std::string checkpoints(const std::string& out) { return folder_ / out + "/checkpoints"; }
};

TEST_F(Trainer, SavesACheckpointAndExitsWith143OnSigtermAndSigint) {
    const Ended whole = run(constant("whole", {"--steps", "400"}));
    ASSERT_EQ(whole.code, 0) << whole.text();
    for (const int signal : {SIGTERM, SIGINT}) {
        const std::string out = str("stopped", signal);
        const pid_t child = start(constant(out, {"--steps", "400", "--save-every", "0"}));
        ASSERT_TRUE(wait_for_rows(child, 3, out));
        kill(child, signal);
        const Ended stopped = finish(child);
        ASSERT_EQ(stopped.code, 143) << stopped.text();
        const auto latest = accel::latest_checkpoint(checkpoints(out));
        ASSERT_TRUE(latest.has_value());
        EXPECT_NE(stopped.text().find(*latest), std::string::npos) << stopped.text();
        EXPECT_EQ(accel::CheckpointReader(*latest).label().iteration,
                  static_cast<std::int64_t>(metrics(out).size()));
        const Ended resumed = run(constant(out, {"--steps", "400", "--resume", "auto"}));
        ASSERT_EQ(resumed.code, 0) << resumed.text();
        EXPECT_EQ(metrics(out), metrics("whole"));
        EXPECT_TRUE(model(out) == model("whole"));
    }
}

// Returns the trainers that a process has started, in order.
std::vector<pid_t> trainers_of(pid_t parent) {
    std::ifstream file(str("/proc/", parent, "/task/", parent, "/children"));
    std::vector<pid_t> trainers;
    for (pid_t child = 0; file >> child;)
        if (lines_of(str("/proc/", child, "/comm")) == Arguments{"train_gpt"})
            trainers.push_back(child);
    return trainers;
}

TEST_F(Trainer, SavesOneCheckpointIfAnyProcessOfAJobGetsSigterm) {
    const Arguments options = {"--steps", "400", "--save-every", "0"};
    const Arguments launch = {AXLE_BIN_DIR "/axle", "launch", "--quiet", "--cpu",
                              "--num_processes",    "2"};
    wrapper_ = launch;
    const Ended whole = run(constant("whole", options));
    ASSERT_EQ(whole.code, 0) << whole.text();
    for (const char* target : {"launcher", "rank 0", "rank 1"}) {
        SCOPED_TRACE(target);
        const std::string out = target;
        const pid_t launcher = start(constant(out, options));
        ASSERT_TRUE(wait_for_rows(launcher, 3, out));
        const std::vector<pid_t> ranks = trainers_of(launcher);
        ASSERT_EQ(ranks.size(), 2u);
        kill(out == "launcher" ? launcher : ranks[out == "rank 1"], SIGTERM);
        const Ended stopped = finish(launcher);
        EXPECT_EQ(stopped.code, 143) << stopped.text();
        for (const pid_t rank : ranks) EXPECT_NE(kill(rank, 0), 0) << "an orphan";
        const auto list = accel::list_checkpoints(checkpoints(out));
        ASSERT_EQ(list.entries.size(), 1u);
        EXPECT_EQ(list.entries[0].iteration, static_cast<std::int64_t>(metrics(out).size()));
        Arguments more = options;
        more.insert(more.end(), {"--resume", "auto"});
        const Ended resumed = run(constant(out, more));
        ASSERT_EQ(resumed.code, 0) << resumed.text();
        EXPECT_EQ(metrics(out), metrics("whole"));
        EXPECT_TRUE(model(out) == model("whole"));
    }
}

TEST_F(Trainer, SavesACheckpointAndContinuesOnSigusr1) {
    const pid_t child = start(constant("a", {"--steps", "300", "--save-every", "0"}));
    ASSERT_TRUE(wait_for_rows(child, 3, "a"));
    kill(child, SIGUSR1);
    const Ended ended = finish(child);
    ASSERT_EQ(ended.code, 0) << ended.text();
    // The folder has the checkpoint that the signal requested, and the last checkpoint.
    const auto list = accel::list_checkpoints(checkpoints("a"));
    ASSERT_EQ(list.entries.size(), 2u);
    EXPECT_LT(list.entries[0].iteration, 300);
    EXPECT_EQ(list.entries[1].iteration, 300);
}

TEST_F(Trainer, ContinuesAFinishedRunWithMoreSteps) {
    ASSERT_EQ(run(constant("a", {"--steps", "20"})).code, 0);
    const Ended longer = run(constant("a", {"--steps", "40", "--resume", "latest"}));
    ASSERT_EQ(longer.code, 0) << longer.text();
    ASSERT_EQ(run(constant("whole", {"--steps", "40"})).code, 0);
    EXPECT_EQ(metrics("a").size(), 40u);
    EXPECT_EQ(metrics("a").back()["loss"], metrics("whole").back()["loss"]);
    EXPECT_TRUE(model("a") == model("whole"));
}

TEST_F(Trainer, RejectsChangedSettingsUnlessTheyAreAllowed) {
    ASSERT_EQ(run(constant("a", {"--steps", "20"})).code, 0);
    const auto resume = [&](Arguments more) {
        more.insert(more.end(), {"--steps", "30", "--resume", "latest"});
        return constant("a", more);
    };
    expect_refused(
        resume({"--seed", "2", "--weight-decay", "0.5"}),
        {"seed: saved '1', now '2'", "weight-decay: saved '0.1', now '0.5'", "--allow-changed"});
    const Ended allowed = run(
        resume({"--seed", "2", "--weight-decay", "0.5", "--allow-changed", "seed,weight-decay"}));
    EXPECT_EQ(allowed.code, 0) << allowed.text();
}

TEST_F(Trainer, AcceptsDataThatHasGrownAndRejectsOtherChanges) {
    const std::string file = folder_ / "text.txt";
    const std::string text = read_file(file);
    ASSERT_EQ(run(constant("a", {"--steps", "20"})).code, 0);
    const Arguments more = constant("a", {"--steps", "30", "--resume", "latest"});
    for (const std::string& other : {"X" + text.substr(1), text.substr(0, text.size() - 1)}) {
        std::ofstream(file) << other;
        expect_refused(more, {"data: saved '", "--allow-changed"});
    }
    std::ofstream(file) << text << "and more words";
    const Ended grown = run(more);
    ASSERT_EQ(grown.code, 0) << grown.text();
    EXPECT_EQ(metrics("a").size(), 30u);
}

TEST_F(Trainer, AcceptsResumeAutoInANewAndAFinishedRun) {
    const Arguments options = constant("a", {"--steps", "20", "--resume", "auto"});
    ASSERT_EQ(run(options).code, 0);
    EXPECT_EQ(metrics("a").size(), 20u);
    const Ended again = run(options);
    ASSERT_EQ(again.code, 0) << again.text();
    EXPECT_EQ(again.result()["checkpoint"], checkpoints("a") + "/checkpoint_20");
}

TEST_F(Trainer, SkipsADamagedCheckpointOnlyWithLatestGood) {
    ASSERT_EQ(run(constant("a", {"--steps", "20", "--save-every", "10"})).code, 0);
    const std::string newest = checkpoints("a") + "/checkpoint_20";
    const std::string file = newest + "/manifest.json";
    const std::string text = read_file(file);
    std::ofstream(file) << text.substr(0, text.size() / 2);
    const std::string older = checkpoints("a") + "/checkpoint_10";
    expect_refused(constant("a", {"--steps", "20", "--resume", "latest"}), {file, older});
    const Ended good = run(constant("a", {"--steps", "20", "--resume", "latest-good"}));
    ASSERT_EQ(good.code, 0) << good.text();
    EXPECT_NE(good.text().find(file), std::string::npos) << good.text();
    // A damaged checkpoint does not prevent the use of another checkpoint.
    EXPECT_EQ(run(constant("a", {"--steps", "20", "--resume", older})).code, 0);
}

TEST_F(Trainer, RejectsAFolderThatARunningTrainerUses) {
    const pid_t first = start(constant("a", {"--steps", "1000000"}));
    ASSERT_TRUE(wait_for_rows(first, 1, "a"));
    expect_refused(constant("a", {"--steps", "20"}),
                   {checkpoints("a"), str("is in use by process ", first)});
    kill(first, SIGKILL);
    EXPECT_EQ(finish(first).code, -SIGKILL);
    EXPECT_EQ(run(constant("a", {"--steps", "20"})).code, 0);  // the earlier owner has ended
}

TEST_F(Trainer, ContinuesWithoutAnOptionalOutputThatCannotBeWritten) {
    fs::create_directories(folder_ / "a/trace.json");
    fs::create_directories(folder_ / "a/report.html");
    const Ended ended = run(constant("a", {"--steps", "20"}));
    EXPECT_EQ(ended.code, 0) << ended.text();
    for (const char* name : {"trace.json", "report.html"})
        EXPECT_NE(ended.text().find(folder_ / "a/" + name), std::string::npos) << ended.text();
    EXPECT_TRUE(accel::latest_checkpoint(checkpoints("a")).has_value());
}

TEST_F(Trainer, ContinuesTrainingAfterAFailedSave) {
    const pid_t child = [&] {
        const FullDisk full(20'000);  // bytes; the weights are larger, and the metrics smaller
        return start(constant("a", {"--steps", "30", "--save-every", "10"}));
    }();
    const Ended ended = finish(child);
    EXPECT_EQ(ended.code, 1) << ended.text();  // without its last checkpoint, a run has failed
    EXPECT_EQ(metrics("a").size(), 30u);
    for (const char* failed : {"step 10 was not saved", "step 20 was not saved"})
        EXPECT_NE(ended.text().find(failed), std::string::npos) << ended.text();
    EXPECT_TRUE(accel::list_checkpoints(checkpoints("a")).entries.empty());
    EXPECT_FALSE(has_checkpoint("a"));
}

TEST_F(Trainer, RepeatsInterruptedSystemCalls) {
    if (!fs::exists("/usr/bin/strace")) GTEST_SKIP() << "strace is not installed";
    wrapper_ = {"/usr/bin/strace", "-f", "-qq", "-o", "/dev/null"};
    // From the 20th call on, every third call of each kind fails with EINTR, so that its repetition
    // succeeds.
    for (const char* call : {"fsync", "pread64", "rename", "flock", "mkdirat"})
        wrapper_.insert(wrapper_.end(), {"-e", str("inject=", call, ":error=EINTR:when=20+3")});
    const Ended ended = run(constant("a", {"--steps", "20", "--save-every", "1"}));
    if (ended.text().find("PTRACE") != std::string::npos)
        GTEST_SKIP() << "strace cannot trace here";
    ASSERT_EQ(ended.code, 0) << ended.text();
    EXPECT_EQ(ended.text().find("was not saved"), std::string::npos) << ended.text();
    wrapper_.clear();
    ASSERT_EQ(run(constant("whole", {"--steps", "20"})).code, 0);
    EXPECT_TRUE(model("a") == model("whole"));
}

}  // namespace
}  // namespace axle
