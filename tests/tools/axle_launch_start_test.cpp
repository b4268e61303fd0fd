// Tests what `axle launch` does before the program runs: it looks for the program, lists default
// values, and passes its library folder on.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "tests/tools/axle_launch.h"

namespace axle {
namespace {

using namespace tests;  // NOLINT: the harness of this folder
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

using AxleLaunchStart = AxleLaunch;

TEST_F(AxleLaunchStart, StartsNothingWhenTheProgramIsMissing) {
    const std::string text = folder_ / "notes.txt";
    std::ofstream(text) << "text";
    const std::string script = folder_ / "train.py";
    struct Case {
        Arguments program;
        std::string words;
    };
    for (const auto& [program, words] : std::vector<Case>{
             {{"no-such-program-anywhere"}, "'no-such-program-anywhere' was not found in PATH"},
             {{folder_ / "nothing"}, "does not exist"},
             {{folder_.path() + "/"}, "is a folder"},
             {{text}, "is not executable; run chmod +x on it"},
             {{script, "--lr", "1"}, "the Python script '" + script + "' does not exist"},
             {{"no_such_script.py"}, "'no_such_script.py' does not exist in "},
             {{"--no_python", script}, "does not exist"}}) {
        const Ended ended = run(with({"--num_processes", "2"}, program));
        EXPECT_EQ(ended.code, 1) << ended.text();
        EXPECT_EQ(ended.err.size(), 1u) << ended.text();
        EXPECT_THAT(ended.text(), HasSubstr(words));
        EXPECT_THAT(ended.text(), testing::StartsWith("axle: launch: the "));
    }
}

// Covers 26.launch.
TEST_F(AxleLaunchStart, ListsDefaultValuesOnce) {
    const auto listed = [&](const Arguments& flags) {
        return launch(flags, "exit 0").text().find("--num_machines is 1") != std::string::npos;
    };
    EXPECT_FALSE(listed({"--quiet"}));
    EXPECT_TRUE(listed({"--num_processes", "1"}));
    EXPECT_FALSE(listed({"--num_processes", "1"}));

    // Only values that earlier lists do not contain are printed.
    const std::string all = launch({"--cpu"}, "exit 0").text();
    EXPECT_THAT(all, AllOf(HasSubstr("--num_processes is 1"), Not(HasSubstr("--num_machines"))));
    EXPECT_THAT(launch({"--cpu"}, "exit 0").err, IsEmpty());
}

// Covers 26.launch.
TEST_F(AxleLaunchStart, PassesItsLibraryFolderToPrograms) {
    if (!fs::exists(AXLE_BIN_DIR "/libaxle_gloo.so")) GTEST_SKIP() << "no Gloo was built";
    const std::string folder = fs::canonical(AXLE_BIN_DIR);
    const Arguments two = {"--num_processes", "2"};
    EXPECT_THAT(values(two, "AXLE_LAUNCHER_LIBRARIES"), ElementsAre("0 " + folder, "1 " + folder));
    EXPECT_EQ(value({"--env", "AXLE_LAUNCHER_LIBRARIES=/mine"}, "AXLE_LAUNCHER_LIBRARIES"),
              "/mine");
    const char* const before = std::getenv("AXLE_LIBRARY_PATH");
    EXPECT_EQ(value({}, "AXLE_LIBRARY_PATH"), before == nullptr ? "unset" : before);
}

}  // namespace
}  // namespace axle
