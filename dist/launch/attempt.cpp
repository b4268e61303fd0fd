#include "dist/launch/attempt.h"

#include <algorithm>
#include <utility>

#include <poll.h>
#include <signal.h>

#include "dist/transport/socket.h"

namespace axle::inline v0::dist {
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

Attempt::Attempt(AttemptOptions options, const std::vector<ChildPlan>& plans)
    : options_(std::move(options)),
      plans_(plans),
      keeper_(plans.size()),
      output_(options_.log_folder, options_.tee) {}

Attempt::~Attempt() {
    for (const Child& child : children_) child.signal_group(SIGKILL);
    for (Child& child : children_) {
        if (child.is_reaped()) continue;
        keeper_.remove(child.pid());
        child.reap();
    }
}

AttemptResult Attempt::run() {
    for (const ChildPlan& plan : plans_) start(plan);
    while (!is_over()) {
        wait();
        forward_signals();
        for (Child& child : children_) child.hear();
        output_.pass_on();
        note_ends();
        end_what_is_due();
        end_leftovers();
    }
    output_.finish();
    return result();
}

void Attempt::start(const ChildPlan& plan) {
    auto [out, err] = output_.open(plan.rank, plan.local_rank);
    children_.emplace_back(plan, Child::Surroundings{.mask = signals_.mask_before(),
                                                     .out = std::move(out),
                                                     .err = std::move(err),
                                                     .close = private_fds()});
    keeper_.add(children_.back().pid());
}

std::vector<int> Attempt::private_fds() const {
    std::vector<int> fds = {signals_.fd(), keeper_.fd()};
    output_.list(fds);
    for (const Child& child : children_) child.list(fds);
    return fds;
}

bool Attempt::is_over() const {
    return std::all_of(children_.begin(), children_.end(),
                       [](const Child& child) { return child.is_reaped(); });
}

void Attempt::wait() const {
    std::vector<pollfd> waited = {{signals_.fd(), POLLIN, 0}};
    for (const Child& child : children_) {
        if (child.is_alive() && child.pidfd() >= 0) waited.push_back({child.pidfd(), POLLIN, 0});
        if (child.channel() >= 0) waited.push_back({child.channel(), POLLIN, 0});
    }
    output_.add_to(waited);
    ::poll(waited.data(), waited.size(), milliseconds_to_wait());
}

int Attempt::milliseconds_to_wait() const {
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

// Whoever sends a signal to the launcher means the job.
void Attempt::forward_signals() {
    for (const int signal : signals_.take()) {
        was_stopped_ = true;
        patience_ends_ = Clock::time_point::max();
        for (Child& child : children_) {
            child.signal_group(signal);
            child.signal_group(SIGCONT);
            child.was_told_to_end = true;
            child.kill_at = std::min(child.kill_at, Clock::now() + options_.grace);
        }
    }
}

void Attempt::note_ends() {
    std::vector<std::size_t> failed;
    for (std::size_t i = 0; i < children_.size(); ++i) {
        Child& child = children_[i];
        if (!child.has_just_ended()) continue;
        child.hear();
        if (child.failed()) failed.push_back(i);
    }
    if (!failed.empty()) note_failures(failed);
}

// Of several that have ended since the last look, one that was killed is the cause.
void Attempt::note_failures(const std::vector<std::size_t>& failed) {
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
            if (child.is_alive()) child.tell(line);
    }
}

void Attempt::end_what_is_due() {
    const auto now = Clock::now();
    if (now >= patience_ends_) {
        patience_ends_ = Clock::time_point::max();
        for (Child& child : children_)
            if (child.is_alive()) ask_to_end(child);
    }
    for (Child& child : children_) {
        if (child.is_reaped() || now < child.kill_at) continue;
        child.signal_group(SIGKILL);
        child.kill_at = Clock::time_point::max();
    }
}

// What a child has started and left behind in its group ends with it.
void Attempt::end_leftovers() {
    const auto waits = [](const Child& child) { return !child.is_alive() && !child.is_reaped(); };
    if (std::none_of(children_.begin(), children_.end(), waits)) return;
    const std::set<pid_t> living = living_groups();
    for (Child& child : children_) {
        if (!waits(child)) continue;
        const bool killed = child.was_told_to_end && child.kill_at == Clock::time_point::max();
        if (living.contains(child.pid()) && !killed) {
            if (!child.was_told_to_end) ask_to_end(child);
            continue;
        }
        child.signal_group(SIGKILL);
        keeper_.remove(child.pid());
        child.reap();
    }
}

// SIGCONT, for a process that is stopped hears nothing else.
void Attempt::ask_to_end(Child& child) {
    child.signal_group(SIGTERM);
    child.signal_group(SIGCONT);
    child.was_told_to_end = true;
    child.kill_at = std::min(child.kill_at, Clock::now() + options_.grace);
}

// What the failed one was in, others may know.
AttemptResult Attempt::result() {
    AttemptResult result;
    result.was_stopped = was_stopped_;
    if (!first_failed_) return result;
    const Child& first = children_[*first_failed_];
    result.failed = true;
    result.failure = failure_of(first);
    result.place = *first_failed_;
    result.reason = first.reason();
    for (const Child& child : children_) {
        const auto& heard = child.heard();
        if (!heard || heard->op.empty()) continue;
        if ((heard->failed < 0 ? heard->rank : heard->failed) != first.rank()) continue;
        result.failure.op = heard->op;
        result.failure.sequence = heard->sequence;
        break;
    }
    return result;
}

}  // namespace axle::inline v0::dist
