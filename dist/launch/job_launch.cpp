#include "dist/launch/job_launch.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <poll.h>
#include <signal.h>

#include "dist/transport/socket.h"

namespace axle::dist {
namespace {

JobFailure failure_of(const Child& child) {
    return {.rank = child.rank(),
            .pid = child.pid(),
            .host = host_name(),
            .signal = child.signal(),
            .exit_code = child.signal() != 0 ? -child.signal() : child.exit_code(),
            .op = {},
            .sequence = 0};
}

}  // namespace

JobLaunch::JobLaunch(JobLaunchOptions options, const std::vector<ChildPlan>& plans)
    : options_(std::move(options)),
      plans_(plans),
      guard_(plans.size()),
      output_(options_.log_folder, options_.tee) {}

JobLaunch::~JobLaunch() {
    for (const Child& child : children_) child.signal_group(SIGKILL);
    for (Child& child : children_) {
        if (child.is_reaped()) continue;
        guard_.remove(child.pid());
        child.reap();
    }
}

JobLaunchResult JobLaunch::run() {
    for (const ChildPlan& plan : plans_) start(plan);
    while (!is_over()) {
        wait();
        forward_signals();
        for (Child& child : children_) child.receive_lines();
        output_.forward_output();
        collect_ended();
        kill_overdue();
        kill_leftovers();
    }
    output_.finish();
    return result();
}

void JobLaunch::start(const ChildPlan& plan) {
    auto [out, err] = output_.open(plan.rank, plan.local_rank);
    children_.emplace_back(plan, Child::Surroundings{.mask = signals_.mask_before(),
                                                     .out = std::move(out),
                                                     .err = std::move(err),
                                                     .close = private_fds(),
                                                     .guard = guard_});
}

std::vector<int> JobLaunch::private_fds() const {
    std::vector<int> fds = {signals_.fd(), guard_.fd()};
    output_.append_fds(fds);
    for (const Child& child : children_) child.append_fds(fds);
    return fds;
}

bool JobLaunch::is_over() const {
    return std::all_of(children_.begin(), children_.end(),
                       [](const Child& child) { return child.is_reaped(); });
}

void JobLaunch::wait() const {
    std::vector<pollfd> waited = {{signals_.fd(), POLLIN, 0}};
    for (const Child& child : children_) {
        if (child.is_alive() && child.pidfd() >= 0) waited.push_back({child.pidfd(), POLLIN, 0});
        if (child.channel() >= 0) waited.push_back({child.channel(), POLLIN, 0});
    }
    output_.add_poll_entries(waited);
    ::poll(waited.data(), waited.size(), milliseconds_to_wait());
}

int JobLaunch::milliseconds_to_wait() const {
    auto next = patience_ends_;
    bool look_often = false;
    for (const Child& child : children_) {
        if (child.is_reaped()) continue;
        next = std::min(next, child.kill_at);
        look_often = look_often || !child.is_alive() || child.pidfd() < 0;
    }
    if (look_often) next = std::min(next, Clock::now() + options_.monitor_interval);
    if (next == Clock::time_point::max()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
    return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
}

// Forwards signals that the launcher has received to all processes of the job.
void JobLaunch::forward_signals() {
    for (const int signal : signals_.take()) {
        was_stopped_ = true;
        patience_ends_ = Clock::time_point::max();
        for (Child& child : children_) {
            child.signal_group(signal);
            child.signal_group(SIGCONT);
            child.was_asked_to_end = true;
            child.kill_at = std::min(child.kill_at, Clock::now() + options_.grace);
        }
    }
}

void JobLaunch::collect_ended() {
    std::vector<std::size_t> failed;
    for (std::size_t i = 0; i < children_.size(); ++i) {
        Child& child = children_[i];
        if (!child.has_just_ended()) continue;
        child.receive_lines();
        if (child.failed()) failed.push_back(i);
    }
    if (!failed.empty()) record_failures(failed);
}

// Records failures and the process that failed first. If several processes have ended since the
// last check, a process that was killed by a signal is assumed to be the first.
void JobLaunch::record_failures(const std::vector<std::size_t>& failed) {
    if (!first_failed_) {
        first_failed_ =
            *std::max_element(failed.begin(), failed.end(), [&](std::size_t a, std::size_t b) {
                return (children_[a].signal() != 0) < (children_[b].signal() != 0);
            });
        if (!was_stopped_) patience_ends_ = Clock::now() + options_.patience;
    }
    for (const std::size_t i : failed) {
        const Child& ended = children_[i];
        const std::string line = to_line(ChildEnd{.rank = ended.rank(),
                                                  .pid = ended.pid(),
                                                  .signal = ended.signal(),
                                                  .exit_code = ended.exit_code()});
        for (const Child& child : children_)
            if (child.is_alive()) child.send_line(line);
    }
}

void JobLaunch::kill_overdue() {
    const auto now = Clock::now();
    if (now >= patience_ends_) {
        patience_ends_ = Clock::time_point::max();
        for (Child& child : children_)
            if (child.is_alive()) terminate(child);
    }
    for (Child& child : children_) {
        if (child.is_reaped() || now < child.kill_at) continue;
        child.signal_group(SIGKILL);
        child.kill_at = Clock::time_point::max();
    }
}

// Ends the processes that still run in the process group of a child that has ended, with SIGTERM
// and after the grace time with SIGKILL. Reaps the child when its group has no
// more processes or was sent SIGKILL.
void JobLaunch::kill_leftovers() {
    const auto waits = [](const Child& child) { return !child.is_alive() && !child.is_reaped(); };
    if (std::none_of(children_.begin(), children_.end(), waits)) return;
    const std::set<pid_t> living = living_groups();
    for (Child& child : children_) {
        if (!waits(child)) continue;
        const bool killed = child.was_asked_to_end && child.kill_at == Clock::time_point::max();
        if (living.contains(child.pid()) && !killed) {
            if (!child.was_asked_to_end) terminate(child);
            continue;
        }
        child.signal_group(SIGKILL);
        guard_.remove(child.pid());
        child.reap();
    }
}

// Sends SIGTERM to a child, and SIGCONT, because a stopped process does not handle SIGTERM.
void JobLaunch::terminate(Child& child) {
    child.signal_group(SIGTERM);
    child.signal_group(SIGCONT);
    child.was_asked_to_end = true;
    child.kill_at = std::min(child.kill_at, Clock::now() + options_.grace);
}

// Returns the result of this launch. If a process has reported the collective that the failed
// process had called last, the result has this collective.
JobLaunchResult JobLaunch::result() {
    JobLaunchResult result;
    result.was_stopped = was_stopped_;
    if (!first_failed_) return result;
    const Child& first = children_[*first_failed_];
    result.failed = true;
    result.failure = failure_of(first);
    result.place = *first_failed_;
    result.reason = first.reason();
    for (const Child& child : children_) {
        const auto& reported_failure = child.reported_failure();
        if (!reported_failure || reported_failure->op.empty()) continue;
        if ((reported_failure->failed < 0 ? reported_failure->rank : reported_failure->failed) !=
            first.rank())
            continue;
        result.failure.op = reported_failure->op;
        result.failure.sequence = reported_failure->sequence;
        break;
    }
    return result;
}

}  // namespace axle::dist
