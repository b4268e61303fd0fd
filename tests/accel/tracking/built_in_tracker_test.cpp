// Tests the behavior that all built-in trackers share.
#include <cmath>
#include <filesystem>

#include "accel/accelerator.h"
#include "accel/tracking/tracker.h"
#include "core/files/file.h"
#include "core/ops.h"
#include "core/system/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/accel/tracking/full_disk.h"
#include "tests/accel/tracking/recorder.h"
#include "tests/close.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using accel::Tracker;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using tests::expect_error;
using tests::FullDisk;
using tests::Messages;
using tests::Recorder;
using tests::TemporaryFolder;
using tests::with;

class BuiltInTracker : public testing::TestWithParam<const char*> {
  protected:
    static std::string name() { return GetParam(); }
    std::string folder() const { return folder_ / "run"; }
    // Returns the contents of all files of the tracker.
    std::string written() const {
        std::string all;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(folder()))
            if (entry.is_regular_file()) all += read_file(entry.path());
        return all;
    }
    template <class F>
    void run(const Tree& options, F&& f) {
        Accelerator accelerator(with({name()}, folder_.path()));
        accelerator.init_trackers("run", {{"lr", 1e-5}, {"deep", {{"flag", true}}}},
                                  {{name(), options}});
        f(accelerator);
    }

    TemporaryFolder folder_;
    Messages messages_;
};

// Covers 30.20.
TEST_P(BuiltInTracker, AcceptsNumbersTextListsMapsTensorsImagesAndTables) {
    run({}, [&](Accelerator& accelerator) {
        accelerator.log({{"i", 1},
                         {"x", 0.1},
                         {"nan", NAN},
                         {"flag", true},
                         {"text", "a,\"b\"\nc"},
                         {"none", Tree()},
                         {"list", Tree::list({1, 2})},
                         {"nested", {{"deep", {{"x", 2}}}}},
                         {"scalar", full({}, 0.5)},
                         {"weights", arange(0, 9, 1)},
                         {"nothing", zeros({0})}},
                        1);
        accelerator.log({}, 2);
        accelerator.log({{"x", 0.2}});
        Tracker& tracker = accelerator.get_tracker(name());
        tracker.log_images({{"one", ones({2, 2})}, {"two", Tree::list({ones({3, 2, 2})})}}, 3);
        tracker.log_images({{"hwc", ones({2, 2, 3})}}, 3, {{"dataformats", "HWC"}});
        tracker.log_table("table", {"a", "b"}, Tree::list({Tree::list({1, "x"})}), 3);
    });
    EXPECT_THAT(messages_.take(), IsEmpty());
}

// Covers 11.tensorboard.
TEST_P(BuiltInTracker, WritesEachLogImmediately) {
    run({}, [&](Accelerator& accelerator) {
        accelerator.log({{"first", 1}}, 1);
        EXPECT_THAT(written(), HasSubstr("first"));
        accelerator.log({{"second", 1}}, 2);
        EXPECT_THAT(written(), HasSubstr("second"));
    });
}

// Covers 11.init_kwargs.
TEST_P(BuiltInTracker, RejectsUnknownAndInvalidOptions) {
    expect_error<ValueError>({"tracker ", "'purge_steps'", "'purge_step'"}, [&] {
        run({{"purge_steps", 3}}, [](Accelerator&) {});
    });
    expect_error<ValueError>({"tracker ", "purge_step must", "-1"}, [&] {
        run({{"purge_step", -1}}, [](Accelerator&) {});
    });
}

// Covers 30.20.
TEST_P(BuiltInTracker, LogsItsErrorsOnceAndDoesNotStopTraining) {
    write_file_atomically(folder(), "a file where a folder should be");
    const auto other = std::make_shared<Recorder>("other");
    {
        Accelerator accelerator(with({name(), other}, folder_.path()));
        accelerator.init_trackers("run", {{"lr", 1}});
        for (int step = 0; step < 3; ++step) accelerator.log({{"x", 1}}, step);
    }
    EXPECT_THAT(messages_.take(),
                ElementsAre(testing::AllOf(HasSubstr("tracker '" + name() + "': start: "),
                                           HasSubstr(folder()))));
    EXPECT_THAT(other->calls, SizeIs(6));
}

TEST_P(BuiltInTracker, ContinuesWritingWhenTheDiskHasSpaceAgain) {
    run({}, [&](Accelerator& accelerator) {
        accelerator.log({{"x", 1}}, 1);
        const std::string before = written();
        {
            const FullDisk full(60);
            for (int step = 2; step < 9; ++step) accelerator.log({{"x", 0.12345678901}}, step);
        }
        EXPECT_THAT(messages_.take(), ElementsAre(HasSubstr("tracker '" + name() + "': log: ")));
        accelerator.log({{"x", 1}}, 9);
    });
    EXPECT_THAT(messages_.take(), IsEmpty());
    // The file contains no partial record, so later records can be read.
    run({{"purge_step", 100}}, [](Accelerator&) {});
    const std::string expected = name() == "jsonl" ? "{\"step\": 9, \"x\": 1}\n"
                                 : name() == "csv" ? "\n9,1\n"
                                                   : "";
    EXPECT_THAT(written(), HasSubstr(expected));
}

INSTANTIATE_TEST_SUITE_P(Trackers, BuiltInTracker, testing::Values("tensorboard", "jsonl", "csv"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace axle
