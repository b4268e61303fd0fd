// The fixture of tests that run a trainer program with files, options and signals.
#pragma once

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/files/file.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "nlohmann/json.hpp"
#include "tests/fork.h"
#include "tests/temporary_folder.h"

namespace axle::tests {

namespace fs = std::filesystem;
using nlohmann::json;
using Arguments = std::vector<std::string>;

// Returns the lines of a file, without a last line that has no line break yet.
inline std::vector<std::string> lines_of(const std::string& path) {
    std::vector<std::string> lines;
    std::ifstream stream(path);
    for (std::string line; std::getline(stream, line) && !stream.eof();) lines.push_back(line);
    return lines;
}

// Writes 800 random words of three letters in lines of nine words. All calls write the same words.
inline void write_words(const std::string& path) {
    std::mt19937 random(5);
    std::ofstream text(path);
    for (int i = 0; i < 800; ++i)
        text << (i % 9 == 8 ? "\n" : "") << "abcdefgh"[random() % 8] << "aeiou"[random() % 5]
             << "lmnr"[random() % 4] << ' ';
}

struct Ended {
    int code = -1;  // exit code, or minus the signal that ended the program
    std::vector<std::string> out, err;

    std::string text() const {
        std::string all;
        for (const auto& line : err) all += line + "\n";
        return all;
    }
    json result() const { return out.empty() ? json() : json::parse(out.back()); }
};

class TrainerTest : public testing::Test {
  protected:
    explicit TrainerTest(std::string program)
        : name_(std::move(program)), program_(AXLE_BIN_DIR "/" + name_) {}

    void SetUp() override {
        if (!fs::exists(program_)) GTEST_SKIP() << program_ << " was not built";
    }

    // Each process has its own output files, because programs may run at the same time.
    std::string stdout_of(pid_t child) const { return folder_ / str("stdout.", child); }
    std::string stderr_of(pid_t child) const { return folder_ / str("stderr.", child); }

    pid_t start(const Arguments& arguments) {
        std::vector<char*> argv;
        for (const std::string& argument : wrapper_)
            argv.push_back(const_cast<char*>(argument.c_str()));
        argv.push_back(const_cast<char*>(program_.c_str()));
        for (const std::string& argument : arguments)
            argv.push_back(const_cast<char*>(argument.c_str()));
        argv.push_back(nullptr);
        const pid_t child = tests::fork_process();
        if (child != 0) return child;
        const std::string out = stdout_of(getpid()), err = stderr_of(getpid());
        if (max_memory_ != 0) {
            const rlimit limit{max_memory_, max_memory_};
            setrlimit(RLIMIT_DATA, &limit);
        }
        dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), STDOUT_FILENO);
        dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), STDERR_FILENO);
        execv(argv[0], argv.data());
        _exit(127);
    }
    Ended finish(pid_t child) {
        int status = 0;
        waitpid(child, &status, 0);
        return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status),
                lines_of(stdout_of(child)), lines_of(stderr_of(child))};
    }
    Ended run(const Arguments& arguments) { return finish(start(arguments)); }

    // Expects exit code 1 and one line on stderr with these words.
    void expect_refused(const Arguments& arguments, const Arguments& words) {
        const Ended ended = run(arguments);
        EXPECT_EQ(ended.code, 1) << ended.text();
        EXPECT_EQ(ended.err.size(), 1u) << ended.text();
        EXPECT_EQ(ended.text().rfind(name_ + ": ", 0), 0u) << ended.text();
        for (const std::string& word : words)
            EXPECT_NE(ended.text().find(word), std::string::npos)
                << "'" << word << "' is not in: " << ended.text();
    }
    std::string model(const std::string& out) {
        return read_file(folder_ / out + "/model.safetensors");
    }
    // Returns the metrics of a run without its speed and memory. Runs with the same result have the
    // same metrics.
    std::vector<json> metrics(const std::string& out) {
        std::vector<json> rows;
        for (const std::string& line : lines_of(folder_ / out + "/metrics.jsonl")) {
            rows.push_back(json::parse(line));
            for (const char* timed : {"tokens_per_s", "samples_per_s", "memory_bytes"})
                rows.back().erase(timed);
        }
        return rows;
    }
    bool has_checkpoint(const std::string& out) {
        std::error_code missing;
        for (const auto& entry : fs::directory_iterator(folder_ / out + "/checkpoints", missing))
            if (entry.path().filename().string().starts_with("checkpoint_")) return true;
        return false;
    }
    // Waits until the metrics of a run have `rows` rows. Returns false if the run ends earlier.
    bool wait_for_rows(pid_t child, std::size_t rows, const std::string& out) {
        while (lines_of(folder_ / out + "/metrics.jsonl").size() < rows) {
            siginfo_t ended = {};
            waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT);
            if (ended.si_pid == child) return false;
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
        return true;
    }
    // Waits until the metrics of a run have `rows` rows and a checkpoint exists, waits for the time
    // `later`, and kills the run. Returns false if the run ends earlier.
    bool killed_at(std::size_t rows, std::chrono::microseconds later, const std::string& out,
                   const Arguments& arguments) {
        const pid_t child = start(arguments);
        for (int status = 0;;) {
            if (waitpid(child, &status, WNOHANG) == child) {
                EXPECT_EQ(status, 0) << "it failed by itself";
                return false;
            }
            if (lines_of(folder_ / out + "/metrics.jsonl").size() >= rows && has_checkpoint(out))
                break;
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
        std::this_thread::sleep_for(later);
        kill(child, SIGKILL);
        return finish(child).code == -SIGKILL;
    }

    std::string name_, program_;
    Arguments wrapper_;  // a program that runs the trainer, with its arguments
    TemporaryFolder folder_{FolderStorage::in_memory};
    // If not 0, the memory in bytes that programs may allocate, without pages of mapped files.
    std::uint64_t max_memory_ = 0;
};

}  // namespace axle::tests
