// Tests that checkpoints and weights survive a power failure at any moment, and that checkpoints
// survive failures of any file operation. The production code writes to a file system in memory.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "accel/state/checkpoint.h"
#include "accel/state/checkpoint_folder.h"
#include "core/files/folder.h"
#include "core/ops.h"
#include "core/system/log.h"
#include "gtest/gtest.h"
#include "nn/files/weight_files.h"
#include "tests/accel/training.h"
#include "tests/close.h"
#include "tests/core/files/faulty_file_system.h"
#include "tests/core/files/memory_file_system.h"
#include "tests/figures.h"
#include "tests/log_capture.h"

namespace axle {
namespace {

using accel::CheckpointReader;
using accel::CheckpointWriter;
using accel::latest_checkpoint;
using tests::FaultyFileSystem;
using tests::MemoryFileSystem;
using tests::ReplacedFileSystem;

constexpr const char* kFolder = "/runs/checkpoints";

std::string checkpoint(std::int64_t iteration) { return str(kFolder, "/checkpoint_", iteration); }

void save(const std::string& path, std::int64_t iteration,
          Durability durability = Durability::full) {
    CheckpointWriter writer(path, durability);
    writer.write("state", Tree{{"iteration", iteration}, {"weights", full({3}, iteration)}});
    writer.commit({.iteration = iteration, .run = "run"});
}

// Returns the iteration of a checkpoint. Expects weights with the same value.
std::int64_t load(const std::string& path) {
    const Tree state = CheckpointReader(path).read("state");
    EXPECT_EQ(state["weights"].tensor()[0].item(), state["iteration"].number());
    return state["iteration"].integer();
}

// Returns the iteration of the latest checkpoint, or -1 if there is none.
std::int64_t latest_iteration() {
    const auto latest = latest_checkpoint(kFolder);
    return latest ? load(*latest) : -1;
}

// A training run that saves checkpoints and keeps at most `total_limit` of them.
class SavedRun {
  public:
    SavedRun(int total_limit, bool asynchronous) : limit_(total_limit) {
        const ReplacedFileSystem replaced(memory_);
        tests::Training training(7, 0, true, nullptr, project());
        training.run(1, [&] {
            if (states_.size() == 4) return;
            states_.push_back(tests::snapshot(training));
            began_.push_back(memory_.operations());
            training.accelerator.save_state({}, {.asynchronous = asynchronous});
            training.accelerator.wait_for_saves();
            acknowledged_.push_back(memory_.operations());
        });
    }
    const MemoryFileSystem& memory() const { return memory_; }

    // Expects that a new process resumes exactly from a crash image, and that its next save removes
    // older checkpoints. If no save was acknowledged before the power failure, there may be no
    // checkpoint.
    void expect_to_resume(MemoryFileSystem& image, std::size_t operations) const {
        const ReplacedFileSystem crashed(image);
        const std::int64_t acknowledged = count(acknowledged_, operations);
        tests::Training resumed(99, 0, true, nullptr, project());
        std::string path;
        try {
            path = resumed.accelerator.load_state();
        } catch (const FileError& error) {
            EXPECT_EQ(acknowledged, 0) << error.what();
            return;
        }
        const std::int64_t found = accel::checkpoint_number(path).value();
        EXPECT_GE(found, acknowledged - 1);
        ASSERT_LT(found, count(began_, operations));
        tests::expect_same(tests::snapshot(resumed), states_[static_cast<std::size_t>(found)]);
        // The next save removes older checkpoints and the remains of interrupted operations.
        resumed.accelerator.save_state();
        const std::vector<std::string> names = list_folder("/run/checkpoints");
        EXPECT_EQ(std::ranges::count(names, str("checkpoint_", found + 1)), 1);
        EXPECT_LE(std::ssize(names), limit_);
    }

  private:
    accel::ProjectConfiguration project() const {
        return {.project_dir = "/run", .automatic_checkpoint_naming = true, .total_limit = limit_};
    }
    // Returns how many of the events happened in the first `operations` operations.
    static std::int64_t count(const std::vector<std::size_t>& events, std::size_t operations) {
        return std::ranges::count_if(events, [&](std::size_t at) { return at <= operations; });
    }

    int limit_;
    MemoryFileSystem memory_;
    std::vector<std::vector<Tensor>> states_;        // the state of the training at each save
    std::vector<std::size_t> began_, acknowledged_;  // the number of operations at each event
};

// A fixture that counts the crash images of all tests.
class PowerFailure : public testing::Test {
  protected:
    // Calls f with every crash image (see MemoryFileSystem::for_each_crash_image()).
    template <class F>
    static void for_each_image(const MemoryFileSystem& memory, F&& f, std::size_t exhaustive = 8) {
        memory.for_each_crash_image(
            [&](MemoryFileSystem& image, std::size_t operations) {
                ++images_;
                f(image, operations);
            },
            exhaustive);
    }
    // Runs trainings that save checkpoints. Expects that each training can be resumed from each of
    // its crash images.
    static void expect_runs_to_resume(const std::vector<int>& total_limits,
                                      std::size_t exhaustive) {
        for (const bool asynchronous : {false, true})
            for (const int total_limit : total_limits) {
                SCOPED_TRACE(str("limit ", total_limit, asynchronous ? ", asynchronous" : ""));
                const SavedRun run(total_limit, asynchronous);
                const auto check = [&](MemoryFileSystem& image, std::size_t operations) {
                    if (!HasFailure()) run.expect_to_resume(image, operations);
                };
                for_each_image(run.memory(), check, exhaustive);
            }
    }
    void TearDown() override { failed_cases_ += HasFailure(); }
    static void TearDownTestSuite() {
        tests::record_figure("crash_images",
                             {{"images", images_}, {"failed_cases", failed_cases_}});
    }

  private:
    static inline int images_ = 0, failed_cases_ = 0;
};

TEST_F(PowerFailure, LeavesTheEarlierOrTheNewCheckpointDuringASave) {
    for (const bool is_first : {true, false}) {
        MemoryFileSystem memory;
        const ReplacedFileSystem replaced(memory);
        if (!is_first) save(checkpoint(1), 1);
        memory.forget();
        save(checkpoint(2), 2);
        const std::size_t end = memory.operations();
        std::size_t images = 0;
        for_each_image(memory, [&](MemoryFileSystem& image, std::size_t operations) {
            ++images;
            const ReplacedFileSystem crashed(image);
            const std::int64_t latest = latest_iteration();
            // An acknowledged save must not be lost.
            const std::int64_t earlier = is_first ? -1 : 1;
            EXPECT_TRUE(latest == 2 || (latest == earlier && operations < end)) << latest;
            save(checkpoint(3), 3);  // the folder can be used, and has no temporary folders
            EXPECT_EQ(latest_iteration(), 3);
            for (const std::string& name : list_folder(kFolder))
                EXPECT_TRUE(name.starts_with("checkpoint_")) << name;
        });
        EXPECT_GT(images, 100u);
        if (HasFailure()) return;
    }
}

TEST_F(PowerFailure, LeavesTheOldOrTheNewCheckpointDuringAReplacement) {
    MemoryFileSystem memory;
    const ReplacedFileSystem replaced(memory);
    save(checkpoint(0), 1);
    memory.forget();
    save(checkpoint(0), 2);
    const std::size_t end = memory.operations();
    for_each_image(memory, [&](MemoryFileSystem& image, std::size_t operations) {
        const ReplacedFileSystem crashed(image);
        const std::int64_t found = load(checkpoint(0));
        EXPECT_TRUE(found == 2 || (found == 1 && operations < end)) << found;
    });
}

TEST_F(PowerFailure, LeavesTheNewestCheckpointsDuringARotation) {
    MemoryFileSystem memory;
    const ReplacedFileSystem replaced(memory);
    for (int i = 0; i < 4; ++i) save(checkpoint(i), i);
    memory.forget();
    accel::rotate_checkpoints(kFolder, 2);
    for_each_image(memory, [&](MemoryFileSystem& image, std::size_t) {
        const ReplacedFileSystem crashed(image);
        EXPECT_EQ(latest_iteration(), 3);
        EXPECT_EQ(load(checkpoint(2)), 2);
        // A checkpoint that is partly removed is not counted.
        for (const auto& entry : accel::list_checkpoints(kFolder).entries) load(entry.path);
        EXPECT_TRUE(accel::list_checkpoints(kFolder).damaged.empty());
    });
}

// If a power failure interrupts a save or a removal, the newest acknowledged state must not be
// lost.
TEST_F(PowerFailure, LetsARunWithACheckpointLimitResumeFromTheNewestCheckpoint) {
    expect_runs_to_resume({1}, 2);
}

TEST_F(PowerFailure, LetsARunWithACheckpointLimitResumeFromTheNewestCheckpointInALongRun) {
    expect_runs_to_resume({1, 2, 3}, 6);
}

// Saves a model of two shards, in which all weights are `value`.
void save_shards(double value) {
    nn::save_weights({{"a", full({8}, value)}, {"b", full({8}, value)}}, "/model",
                     nn::ShardSize(40));
}

TEST_F(PowerFailure, NeverLeavesWeightsOfTwoModels) {
    for (const bool is_first : {true, false}) {
        MemoryFileSystem memory;
        const ReplacedFileSystem replaced(memory);
        if (!is_first) save_shards(1);
        memory.forget();
        save_shards(2);
        const std::size_t end = memory.operations();
        for_each_image(memory, [&](MemoryFileSystem& image, std::size_t operations) {
            const ReplacedFileSystem crashed(image);
            const std::string index = "/model/model.safetensors.index.json";
            if (!kind_of(index)) {
                EXPECT_LT(operations, end);
                return;
            }
            const nn::WeightFiles files(index);
            const double a = files.weights().at("a").read()[0].item();
            const double b = files.weights().at("b").read()[0].item();
            EXPECT_EQ(a, b);
            EXPECT_TRUE(a == 2 || operations < end) << a;
        });
        if (HasFailure()) return;
    }
}

TEST(CheckpointWriter, NeedsAboutOneSyncPerFileAndFolderAndNoneWithoutDurability) {
    MemoryFileSystem memory;
    const ReplacedFileSystem replaced(memory);
    {
        CheckpointWriter writer(checkpoint(1));
        for (const char* stem : {"a", "b", "c"}) writer.write(stem, Tree{{"x", ones({2})}});
        create_directories(writer.directory() + "/sub");
        write_file_atomically(writer.directory() + "/sub/file", "text", Durability::none);
        writer.commit({.iteration = 1});
    }
    // The writer syncs 8 files, including the manifest, and 4 new folders: /runs, checkpoints,
    // checkpoint_1 and sub. The limit allows two further syncs.
    EXPECT_LE(memory.syncs(), 8u + 4u + 2u);
    memory.forget();
    save(checkpoint(2), 2, Durability::none);
    EXPECT_EQ(memory.syncs(), 0u);
    EXPECT_EQ(latest_iteration(), 2);
}

// Saves checkpoint 2 with each operation failing in turn, and checks the folder afterwards.
TEST(CheckpointWriter, KeepsTheEarlierCheckpointIfAnyOperationFails) {
    const tests::LogCapture log;
    for (const int error : {ENOSPC, EIO, EACCES, EROFS, EDQUOT, EINTR, 0}) {
        for (std::size_t failing = 0;; ++failing) {
            SCOPED_TRACE(str("error ", error, " in operation ", failing));
            MemoryFileSystem memory;
            const ReplacedFileSystem replaced(memory);
            save(checkpoint(1), 1);
            FaultyFileSystem faulty(memory, failing, error);
            bool is_saved = false;
            {
                const ReplacedFileSystem failure(faulty);
                try {
                    save(checkpoint(2), 2);
                    is_saved = true;
                } catch (const FileError& thrown) {
                    EXPECT_NE(std::string(thrown.what()).find(kFolder), std::string::npos)
                        << thrown.what();
                }
            }
            const bool is_harmless = error == EINTR || error == 0 || failing >= faulty.operations();
            EXPECT_TRUE(is_saved || !is_harmless);
            EXPECT_EQ(load(checkpoint(1)), 1);
            const std::int64_t latest = latest_iteration();
            EXPECT_TRUE(latest == 2 || (latest == 1 && !is_saved)) << latest;
            save(checkpoint(3), 3);
            EXPECT_EQ(latest_iteration(), 3);
            if (HasFailure()) return;
            if (failing >= faulty.operations()) break;
        }
    }
}

}  // namespace
}  // namespace axle
