#include "tests/job.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <exception>
#include <stdexcept>
#include <thread>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gtest/gtest.h"
#include "tests/fork.h"
#include "tests/free_port.h"

namespace axle::tests {
namespace {

constexpr int kFailedExpectation = 77;  // exit code of a rank with failed expectations

double* shared_clock = nullptr;  // the clock of this rank's job

double now() {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(since).count();
}

// Writes the time of the report, then the text.
void report(int file, const std::string& text) {
    std::string bytes(sizeof(double), '\0');
    const double at = now();
    std::copy_n(reinterpret_cast<const char*>(&at), sizeof at, bytes.begin());
    bytes += text;
    for (std::size_t done = 0; done < bytes.size();) {
        const ssize_t n = write(file, bytes.data() + done, bytes.size() - done);
        if (n <= 0) return;
        done += static_cast<std::size_t>(n);
    }
}

}  // namespace

Job::Job(int size, const Rank& rank) {
    clock_start_ = static_cast<double*>(
        mmap(nullptr, sizeof(double), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    *clock_start_ = now();
    dist::Environment environment;
    environment.world_size = environment.local_world_size = size;
    environment.master_port = free_port();
    environment.token = "test" + std::to_string(environment.master_port);
    environment.token_is_secret = true;
    for (int r = 0; r < size; ++r) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("Job: cannot create a pipe");
        environment.rank = environment.local_rank = r;
        const int pid = fork_process();
        if (pid == 0) {
            close(ends[0]);
            shared_clock = clock_start_;
            std::string text;
            try {
                text = rank(environment);
            } catch (const std::exception& error) {
                text = std::string("threw: ") + error.what();
            }
            report(ends[1], text);
            _exit(testing::Test::HasFailure() ? kFailedExpectation : 0);
        }
        close(ends[1]);
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
        children_.push_back({.pid = pid, .report = ends[0], .bytes = {}, .outcome = {}});
    }
}

Job::~Job() {
    for (Child& child : children_) {
        if (!child.ended) {
            kill(child.pid, SIGKILL);
            waitpid(child.pid, nullptr, 0);
        }
        close(child.report);
    }
    munmap(clock_start_, sizeof(double));
}

void Job::start_clock() { *shared_clock = now(); }

// Reads the available part of a child's report, because a large report fills the pipe while the
// child still writes.
void Job::read_report(Child& child) {
    char buffer[1 << 16];
    for (ssize_t n; (n = read(child.report, buffer, sizeof buffer)) > 0;)
        child.bytes.append(buffer, static_cast<std::size_t>(n));
}

void Job::reap(Child& child) const {
    child.ended = true;
    const int status = child.outcome.status;
    if (WIFEXITED(status) && WEXITSTATUS(status) == kFailedExpectation)
        ADD_FAILURE() << "an expectation failed in the process of rank " << &child - &children_[0];
    read_report(child);
    if (child.bytes.size() < sizeof(double)) return;
    double at = 0;
    std::copy_n(child.bytes.begin(), sizeof at, reinterpret_cast<char*>(&at));
    child.outcome.reported = true;
    child.outcome.seconds = at - *clock_start_;
    child.outcome.text = child.bytes.substr(sizeof at);
}

std::vector<RankOutcome> Job::wait(std::chrono::milliseconds limit,
                                   const std::vector<int>& except) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    const auto waits_for = [&](std::size_t r) {
        return !children_[r].ended &&
               std::find(except.begin(), except.end(), static_cast<int>(r)) == except.end();
    };
    for (bool waiting = true; waiting && std::chrono::steady_clock::now() < deadline;) {
        waiting = false;
        for (std::size_t r = 0; r < children_.size(); ++r) {
            Child& child = children_[r];
            if (!waits_for(r)) continue;
            read_report(child);
            if (waitpid(child.pid, &child.outcome.status, WNOHANG) == child.pid)
                reap(child);
            else
                waiting = true;
        }
        if (waiting) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    std::vector<RankOutcome> outcomes;
    for (Child& child : children_) {
        if (!child.ended) {
            kill(child.pid, SIGKILL);
            waitpid(child.pid, &child.outcome.status, 0);
            child.ended = true;
        }
        outcomes.push_back(child.outcome);
    }
    return outcomes;
}

}  // namespace axle::tests
