#include "tests/reporting_job.h"

#include <csignal>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/dist/ranks.h"
#include "tests/fork.h"
#include "tests/free_port.h"
#include "tests/wait.h"

namespace axle::tests {

ReportingJob::ReportingJob(int size, const Rank& rank, const dist::ProcessGroupOptions& options,
                           const std::function<void(dist::Environment&)>& before_join) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("ReportingJob: cannot create a pipe");
    reports_ = ends[0];
    const int port = free_port();
    for (int r = 0; r < size; ++r) {
        const pid_t child = fork_process();
        if (child != 0) {
            pids_.push_back(child);
            continue;
        }
        close(ends[0]);
        int code = 0;
        try {
            // One system call writes a whole report, so reports of different ranks are not mixed.
            const Reporter reporter = [&](Event event, std::int64_t value) {
                const Report report{event, value};
                if (write(ends[1], &report, sizeof report) != sizeof report)
                    throw std::runtime_error("cannot report to the test");
            };
            dist::Environment environment = environment_of(r, size, port);
            if (before_join) before_join(environment);
            rank(dist::ProcessGroup::create(environment, options), reporter);
        } catch (const std::exception& error) {
            std::cerr << "rank " << r << ": " << error.what() << std::endl;
            code = 1;
        }
        _exit(code);
    }
    close(ends[1]);
    statuses_.resize(pids_.size());
}

ReportingJob::~ReportingJob() {
    wait(std::chrono::milliseconds(0));
    close(reports_);
}

std::optional<Report> ReportingJob::next(std::chrono::milliseconds limit) {
    pollfd ready = {.fd = reports_, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, static_cast<int>(limit.count())) <= 0) return {};
    Report report{};
    if (read(reports_, &report, sizeof report) != sizeof report) return {};
    return report;
}

void ReportingJob::signal(int rank, int number) const {
    const pid_t pid = pids_[static_cast<std::size_t>(rank)];
    if (pid != 0) kill(pid, number);
}

bool ReportingJob::has_ended(std::size_t rank) {
    if (pids_[rank] != 0 && waitpid(pids_[rank], &statuses_[rank], WNOHANG) == pids_[rank])
        pids_[rank] = 0;
    return pids_[rank] == 0;
}

bool ReportingJob::wait(std::chrono::milliseconds limit, int except) {
    const auto others_have_ended = [&] {
        bool all = true;
        for (std::size_t rank = 0; rank < pids_.size(); ++rank)
            all &= has_ended(rank) || std::cmp_equal(rank, except);
        return all;
    };
    const bool ended = comes_true(others_have_ended, limit);
    for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
        if (pids_[rank] == 0) continue;
        kill(pids_[rank], SIGKILL);
        waitpid(pids_[rank], &statuses_[rank], 0);
        pids_[rank] = 0;
    }
    return ended;
}

}  // namespace axle::tests
