// Tests save_state and load_state: a run resumes exactly, files have the names of Accelerate, and
// missing, damaged or unsuitable checkpoints change nothing.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <sys/resource.h>

#include "accel/state/checkpoint.h"
#include "accel/state/checkpoint_folder.h"
#include "core/files/file.h"
#include "core/files/safetensors.h"
#include "tests/accel/training.h"
#include "tests/dist/ranks.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

namespace fs = std::filesystem;
using tests::expect_error;
using tests::expect_same;
using tests::snapshot;
using tests::TemporaryFolder;
using tests::Training;

constexpr std::int64_t kEpochs = 2;

void expect_same_course_from_every_batch(int saving_workers, int resuming_workers) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    std::vector<std::vector<Tensor>> at_save;
    Training whole(7, saving_workers);
    const auto losses = whole.run(kEpochs, [&] {
        whole.accelerator.save_state(folder / str("after_", whole.counter.batches));
        at_save.push_back(snapshot(whole));
    });
    const auto end = snapshot(whole);
    ASSERT_EQ(losses.size(), static_cast<std::size_t>(kEpochs * Training::kBatches));

    for (std::size_t done = 1; done <= losses.size(); ++done) {
        SCOPED_TRACE(str("after ", done, " batches"));
        Training resumed(99, resuming_workers);
        resumed.accelerator.load_state(folder / str("after_", done));
        if (done % Training::kBatches != 0)  // after the last batch, the next epoch has begun
            expect_same(snapshot(resumed), at_save[done - 1]);
        const auto rest = resumed.run(kEpochs);
        EXPECT_EQ(rest, std::vector<double>(losses.begin() + static_cast<std::ptrdiff_t>(done),
                                            losses.end()));
        expect_same(snapshot(resumed), end);
    }
}

// Covers 3.save_state, 3.load_state, 10.random_states_<process_index>.pkl, 23.saved, 30.1.
TEST(LoadState, ResumesExactlyFromEveryBatch) { expect_same_course_from_every_batch(0, 0); }

TEST(LoadState, ResumesExactlyWithLoaderWorkers) {
    expect_same_course_from_every_batch(2, 2);
    expect_same_course_from_every_batch(2, 0);
}

TEST(SaveState, DoesNotChangeTraining) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    Training quiet;
    const auto losses = quiet.run(kEpochs);
    const auto end = snapshot(quiet);
    Training saving;
    EXPECT_EQ(saving.run(kEpochs, [&] { saving.accelerator.save_state(folder / "s"); }), losses);
    expect_same(snapshot(saving), end);
}

TEST(LoadState, RestoresAnEarlierStateOfTheSameObjects) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    Training training;
    std::vector<Tensor> saved;
    std::vector<double> losses = training.run(1, [&] {
        if (training.counter.batches != 3) return;  // batch 3 is between two updates
        training.accelerator.save_state(folder / "s");
        saved = snapshot(training);
    });
    training.run(kEpochs);
    training.accelerator.load_state(folder / "s");
    expect_same(snapshot(training), saved);
    EXPECT_EQ(training.run(1), std::vector<double>(losses.begin() + 3, losses.end()));
}

TEST(SaveState, WritesGradientsOnlyBetweenUpdatesAndLoadStateClearsLaterGradients) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    Training training;
    training.run(1, [&] {
        training.accelerator.save_state(folder / "s");
        EXPECT_EQ(fs::exists(folder / "s/gradients.safetensors"),
                  !training.accelerator.sync_gradients());
    });
    // A state saved at an update contains no gradients. Loading it removes gradients that were
    // accumulated after the save.
    training.net(ones({1, 4})).sum().backward();
    training.accelerator.load_state(folder / "s");
    EXPECT_FALSE(training.net.in.weight.grad().defined());
}

// Covers 10.return, 10.iteration.
TEST(SaveState, ReturnsThePathAndCountsIterations) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    Training training;
    EXPECT_EQ(training.accelerator.save_state(folder / "b"), folder / "b");
    training.accelerator.save_state(folder / "a");
    EXPECT_EQ(accel::latest_checkpoint(folder.path()), folder / "a");
    Training resumed;
    resumed.accelerator.load_state(folder / "b");
    resumed.accelerator.save_state(folder / "0");
    EXPECT_EQ(accel::CheckpointReader(folder / "0").label().iteration, 1);
}

// Covers 10.dl_state_dict.bin, 10.sampler.bin.
TEST(SaveState, UsesFileStemsOfAccelerate) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    Training training;
    training.accelerator.save_state(folder / "s");
    for (const char* name :
         {"model.safetensors", "optimizer.json", "scheduler.json", "dl_state_dict.json",
          "random_states_0.json", "custom_checkpoint_0.json", "manifest.json"})
        EXPECT_TRUE(fs::exists(folder / "s/" + name)) << name;
}

// Covers 2.optimizer.
TEST(SaveState, NumbersFilesInOrderOfPreparation) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    nn::Linear first(2, 3), second(4, 5);
    optim::AdamW of_first(first.parameters(), {.lr = 0.1}), of_second(second.parameters());
    Accelerator accelerator({.cpu = true});
    accelerator.prepare(of_second, second, of_first);
    accelerator.prepare(first);
    accelerator.save_state(folder / "s");
    const auto width = [&](const char* name) {
        return load_safetensors(folder / "s/" + name).tensors.at("weight").size(1);
    };
    EXPECT_EQ(width("model.safetensors"), 4);
    EXPECT_EQ(width("model_1.safetensors"), 2);
    const auto rate = [&](const char* name) {
        return from_json(read_file(folder / "s/" + name))["param_groups"][0]["lr"].number();
    };
    EXPECT_EQ(rate("optimizer.json"), 1e-3);
    EXPECT_EQ(rate("optimizer_1.json"), 0.1);
}

// Expects that loading fails with `name` in the error, and that the training state is unchanged.
void expect_refused(Training& training, const std::string& directory, const std::string& name) {
    const auto before = snapshot(training);
    try {
        training.accelerator.load_state(directory);
        ADD_FAILURE() << "a damaged " << name << " was loaded";
    } catch (const FileError& error) {
        EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
    expect_same(snapshot(training), before);
}

void overwrite(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// Covers 10.order, 10.order-load.
TEST(LoadState, ReportsMissingTruncatedOrChangedFilesAndChangesNothing) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    Training training;
    training.run(1, [&] {
        if (training.counter.batches == 3) training.accelerator.save_state(folder / "s");
    });
    int files = 0;
    for (const auto& entry : fs::directory_iterator(folder / "s")) {
        ++files;
        const std::string path = entry.path().string();
        const std::string name = entry.path().filename().string();
        const std::string whole = read_file(path);
        fs::remove(path);
        expect_refused(training, folder / "s", name);
        for (const std::size_t size : {std::size_t{0}, whole.size() / 2, whole.size() - 1}) {
            overwrite(path, whole.substr(0, size));
            // A manifest without its last line break is valid. All other truncated files are
            // rejected.
            if (name != "manifest.json" || size != whole.size() - 1)
                expect_refused(training, folder / "s", name);
        }
        for (const std::size_t at : {std::size_t{0}, whole.size() / 3, whole.size() - 2}) {
            std::string changed = whole;
            changed[at] = static_cast<char>(changed[at] ^ 4);
            overwrite(path, changed);
            expect_refused(training, folder / "s", name);
        }
        overwrite(path, whole);
    }
    EXPECT_EQ(files, 9);
    EXPECT_NO_THROW(training.accelerator.load_state(folder / "s"));
}

TEST(SaveState, ThrowsOnAllProcessesIfDirectoriesDiffer) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    tests::on_ranks(2, [&](const std::shared_ptr<dist::ProcessGroup>& group) {
        Accelerator accelerator({.process_group = group});
        const std::string own = folder / str("rank", group->rank());
        expect_error<ValueError>(
            {"save_state: all processes must pass the same directory", "process 0 passes '",
             (folder / "rank0'").c_str(), "process 1 passes '", (folder / "rank1'").c_str()},
            [&] { accelerator.save_state(own); });
        const bool is_main = group->rank() == 0;
        accelerator.save_state(folder / (is_main ? "both" : "./both/"));
    });
    EXPECT_EQ(folder.count(), 1u);
    EXPECT_TRUE(accel::is_checkpoint(folder / "both"));
}

TEST(LoadState, ReportsAMissingFolderAndAFolderWithoutACheckpoint) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    Training training;
    expect_refused(training, folder / "none", folder / "none: the folder does not exist");
    std::filesystem::create_directory(folder / "empty");
    expect_refused(training, folder / "empty", folder / "empty: not a checkpoint: manifest.json");
}

TEST(LoadState, ThrowsIfTheCheckpointDoesNotMatchTheObjects) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    Training training;
    training.accelerator.save_state(folder / "s");
    {
        nn::Linear other(4, 9);
        Accelerator accelerator;
        accelerator.prepare(other);
        expect_error<FileError>({(folder / "s/model.safetensors").c_str(), "load_state_dict"},
                                [&] { accelerator.load_state(folder / "s"); });
    }
    {
        Accelerator accelerator;
        tests::Counter first, second;
        accelerator.register_for_checkpointing(first);
        accelerator.register_for_checkpointing(second);
        expect_error<FileError>({(folder / "s").c_str(), "custom_checkpoint_1.json"},
                                [&] { accelerator.load_state(folder / "s"); });
    }
}

TEST(LoadState, ThrowsWithinALoopOverALoader) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    Training training;
    training.accelerator.save_state(folder / "s");
    for (auto& batch : training.loader) {
        training.micro_batch(batch);
        const auto before = snapshot(training);
        expect_error<UsageError>({"load_state: can't be called within the loop"},
                                 [&] { training.accelerator.load_state(folder / "s"); });
        expect_same(snapshot(training), before);
        break;
    }
}

TEST(SaveState, ReplacesAnOlderCheckpointCompletely) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    Training training;
    training.run(1, [&] { training.accelerator.save_state(folder / "s"); });
    EXPECT_EQ(folder.count(), 1u);
    const auto saved = snapshot(training);
    Training other(1);
    other.accelerator.load_state(folder / "s");
    expect_same(snapshot(other), saved);
}

// Simulates a full disk: while the object exists, this process cannot write files of more than
// `bytes` bytes.
class SmallDisk {
  public:
    explicit SmallDisk(rlim_t bytes) : before_(std::signal(SIGXFSZ, SIG_IGN)) {
        getrlimit(RLIMIT_FSIZE, &limit_);
        const rlimit small = {bytes, limit_.rlim_max};
        setrlimit(RLIMIT_FSIZE, &small);
    }
    ~SmallDisk() {
        setrlimit(RLIMIT_FSIZE, &limit_);
        std::signal(SIGXFSZ, before_);
    }
    SmallDisk(const SmallDisk&) = delete;
    SmallDisk& operator=(const SmallDisk&) = delete;

  private:
    void (*before_)(int);
    rlimit limit_ = {};
};

TEST(SaveState, KeepsThePreviousCheckpointOnAFullDisk) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    Training training;
    training.accelerator.save_state(folder / "s");
    const auto saved = snapshot(training);
    training.run(1);
    std::uintmax_t largest = 0;
    for (const auto& entry : fs::directory_iterator(folder / "s"))
        largest = std::max(largest, entry.file_size());
    for (rlim_t limit = 0; limit < largest; limit = limit * 2 + 1) {
        const SmallDisk disk(limit);
        EXPECT_THROW(training.accelerator.save_state(folder / "s"), FileError) << limit;
        EXPECT_EQ(folder.count(), 1u) << limit;
    }
    Training other(1);
    other.accelerator.load_state(folder / "s");
    expect_same(snapshot(other), saved);
    EXPECT_NO_THROW(training.accelerator.save_state(folder / "s"));
}

}  // namespace
}  // namespace axle
