// The fixture of tests of supervise(), with /bin/sh as the program of each rank.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "core/tree/tree.h"
#include "dist/launch/launch.h"
#include "gtest/gtest.h"
#include "tests/dist/launch/launched.h"

namespace axle::tests {

class SuperviseTest : public testing::Test {
  protected:
    // Returns one command for each rank. The command runs the script of the rank.
    static std::vector<dist::Command> ranks(const std::vector<std::string>& scripts) {
        std::vector<dist::Command> commands;
        for (std::size_t i = 0; i < scripts.size(); ++i)
            commands.push_back(
                {.arguments = {"sh", "-c", scripts[i]},
                 .environment = {{"RANK", std::to_string(i)}, {"LOCAL_RANK", std::to_string(i)}}});
        return commands;
    }
    pid_t start(const std::vector<std::string>& scripts, dist::SuperviseOptions options = {}) {
        options.on_failure = [](const dist::JobFailure& failure) {
            dprintf(STDERR_FILENO, "%s\n", failure.to_json().c_str());
        };
        return start_process(folder_.path(),
                             [&] { return dist::supervise(ranks(scripts), options); });
    }
    int run(const std::vector<std::string>& scripts, const dist::SuperviseOptions& options = {}) {
        return wait_for_process(start(scripts, options));
    }
    std::vector<std::string> out() const { return lines_in(folder_ / "out"); }
    std::vector<std::string> err() const { return lines_in(folder_ / "err"); }
    Tree failure() const { return err().empty() ? Tree() : from_json(err().back()); }
    std::string file(const std::string& name) const { return folder_ / name; }

    TemporaryFolder folder_{FolderStorage::in_memory};
};

}  // namespace axle::tests
