// Tests the checkpoints of a folder with random sequences of saves, crashes, failures, rotations
// and foreign files, on a file system in memory.
#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <string>

#include "accel/state/checkpoint.h"
#include "accel/state/checkpoint_folder.h"
#include "core/system/log.h"
#include "gtest/gtest.h"
#include "tests/accel/state/checkpoint_files.h"
#include "tests/core/files/faulty_file_system.h"
#include "tests/core/files/memory_file_system.h"
#include "tests/figures.h"
#include "tests/log_capture.h"
#include "tests/sanitized.h"

namespace axle {
namespace {

using accel::CheckpointReader;
using tests::MemoryFileSystem;

constexpr const char* kFolder = "/run/checkpoints";

// A folder of checkpoints, and its expected contents.
class Model {
  public:
    explicit Model(unsigned seed) : engine_(seed), memory_(std::make_unique<MemoryFileSystem>()) {
        replace_file_system(memory_.get());
        create_directories(kFolder);
        memory_->forget();
    }
    ~Model() { replace_file_system(nullptr); }
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;

    void step() {
        switch (engine_() % 8) {
            case 0:
            case 1:
                return save();
            case 2:
                return crash_while([&] { save(); });
            case 3:
                return fail_while([&] { save(); });
            case 4:
                return rotate();
            case 5:
                return crash_while([&] { rotate(); });
            case 6:
                return add_foreign_file();
            default:
                run_ = std::string(1, "abc"[engine_() % 3]);
        }
    }

    // Checks that the newest acknowledged checkpoint, or a newer one that was being saved, can be
    // loaded, that all listed checkpoints are undamaged, and that all foreign files exist.
    void check() const {
        const auto latest = accel::latest_checkpoint(kFolder);
        EXPECT_TRUE(latest || acknowledged_ == 0);
        if (latest) {
            const std::int64_t found =
                CheckpointReader(*latest).read("state")["iteration"].integer();
            EXPECT_GE(found, acknowledged_);
            EXPECT_LE(found, last_);
        }
        for (const std::string& path : foreign_) EXPECT_EQ(kind_of(path), FileKind::file) << path;
        for (const auto& entry : accel::list_checkpoints(kFolder).entries)
            EXPECT_NO_THROW(CheckpointReader{entry.path});
    }

  private:
    // Returns the iteration of the latest checkpoint, or 0 if there is none. The checkpoint must be
    // readable.
    static std::int64_t latest() {
        const auto path = accel::latest_checkpoint(kFolder);
        return path ? CheckpointReader(*path).read("state")["iteration"].integer() : 0;
    }
    void save() {
        ++last_;
        accel::CheckpointWriter writer(str(kFolder, "/checkpoint_", last_));
        writer.write("state", Tree{{"iteration", last_}});
        writer.commit({.iteration = last_, .run = run_});
        acknowledged_ = last_;
    }
    void rotate() { accel::rotate_checkpoints(kFolder, 1 + engine_() % 5, run_); }

    // Runs f, simulates a power failure at a random moment of f, and restarts.
    template <class F>
    void crash_while(F&& f) {
        memory_->forget();
        const std::int64_t before = acknowledged_;
        f();
        auto image = std::make_unique<MemoryFileSystem>();
        memory_->crash(engine_, *image);
        memory_ = std::move(image);
        replace_file_system(memory_.get());
        acknowledged_ = std::max(before, latest());
    }
    // Runs f while one random file operation fails.
    template <class F>
    void fail_while(F&& f) {
        static constexpr int kErrors[] = {ENOSPC, EIO, EACCES, EROFS, EINTR, 0};
        tests::FaultyFileSystem faulty(*memory_, engine_() % 20, kErrors[engine_() % 6]);
        replace_file_system(&faulty);
        try {
            f();
        } catch (const FileError&) {
        }
        replace_file_system(memory_.get());
    }
    void add_foreign_file() {
        std::string folder = kFolder;
        const auto list = accel::list_checkpoints(kFolder).entries;
        switch (engine_() % 4) {
            case 0:
                break;
            case 1:
                folder += "/.checkpoint-mine";
                break;
            case 2:
                folder += "/best_2026";
                break;
            default:
                if (!list.empty()) folder = list[engine_() % list.size()].path;
        }
        create_directories(folder);
        const char* const name = folder.ends_with("best_2026") ? "/manifest.json" : "/notes.txt";
        write_file_atomically(folder + name, tests::kForeign);
        foreign_.insert(folder + name);
        memory_->forget();  // treats the foreign file as written to the disk
    }

    std::mt19937 engine_;
    std::unique_ptr<MemoryFileSystem> memory_;
    std::string run_ = "a";
    std::int64_t last_ = 0, acknowledged_ = 0;
    std::set<std::string> foreign_;
};

void expect_invariants(unsigned sequences) {
    const tests::LogCapture log;  // failures to remove files are reported
    for (unsigned seed = 0; seed < sequences; ++seed) {
        SCOPED_TRACE(str("seed ", seed));
        Model model(seed);
        for (int i = 0; i < 20; ++i) {
            model.step();
            model.check();
            if (testing::Test::HasFailure()) return;
        }
    }
}

TEST(CheckpointFolder, KeepsTheNewestCheckpointAndForeignFilesInRandomOperations) {
    expect_invariants(tests::kSanitized ? 50 : 200);
}

TEST(CheckpointFolder, KeepsTheNewestCheckpointAndForeignFilesInALongRun) {
    constexpr unsigned kSequences = 100'000;
    expect_invariants(kSequences);
    tests::record_figure("random_sequences_in_memory",
                         {{"sequences", kSequences}, {"failed", HasFailure()}});
}

}  // namespace
}  // namespace axle
