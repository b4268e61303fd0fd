#include "dist/launch/job_launch.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <poll.h>
#include <signal.h>

#include "core/system/log.h"
#include "dist/rendezvous/activity.h"
#include "dist/transport/socket.h"
#include "kernels/error.h"

namespace axle::dist {

JobLaunch::JobLaunch(JobLaunchOptions options, InterceptedSignals& signals,
                     const std::vector<ChildPlan>& plans)
    : options_(std::move(options)),
      signals_(signals),
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
        handle_signals();
        read_reports();
        output_.forward_output();
        collect_ended();
        follow_machines();
        kill_overdue();
        kill_leftovers();
    }
    output_.finish();
    JobLaunchResult ended = result();
    if (ended.has_ended) ended.reason = children_[ended.place].reason();
    return ended;
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
    if (options_.machines != nullptr) options_.machines->add_poll_entries(waited);
    ::poll(waited.data(), waited.size(), milliseconds_to_wait());
}

int JobLaunch::milliseconds_to_wait() const {
    auto next = patience_ends_;
    if (options_.machines != nullptr) next = std::min(next, options_.machines->next_timer());
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

void JobLaunch::handle_signals() {
    for (const int signal : signals_.take()) {
        if (signal == SIGUSR1) {
            for (const Child& child : children_) {
                if (child.is_alive() && !child.signal_if_handled(signal))
                    log(LogLevel::warning, "launch: SIGUSR1 is not forwarded to rank ",
                        child.rank(), ", because the process does not handle it");
            }
            continue;
        }
        if (signal == SIGINT && ++interrupts_ == 2) kill_all();
        if (stop_signal_ == 0) stop(signal);
    }
}

void JobLaunch::stop(int signal) {
    stop_signal_ = signal;
    patience_ends_ = Clock::time_point::max();
    for (Child& child : children_) ask_to_end(child, signal);
    if (options_.on_stop) options_.on_stop(signal);
}

void JobLaunch::kill_all() {
    for (Child& child : children_) {
        child.signal_group(SIGKILL);
        child.was_asked_to_end = true;
        child.kill_at = Clock::time_point::max();
    }
}

// Reads the messages of all processes. The first reported failure that names a failed rank is the
// cause of the job's failure, unless a process has already failed.
void JobLaunch::read_reports() {
    for (Child& child : children_) {
        child.receive_lines();
        const auto& reported = child.reported_failure();
        if (!cause_ && !first_failed_ && reported && reported->failed >= 0) cause_ = reported;
    }
}

// Exchanges messages with the other machines. After a failure on another machine, sets the time at
// which the processes of this machine are stopped.
void JobLaunch::follow_machines() {
    if (options_.machines == nullptr) return;
    options_.machines->proceed();
    if (first_failed_ || failure_elsewhere_) return;
    failure_elsewhere_ = options_.machines->failure();
    if (failure_elsewhere_ && stop_signal_ == 0 && !is_stopping_)
        patience_ends_ = Clock::now() + options_.patience;
}

void JobLaunch::collect_ended() {
    std::vector<std::size_t> failed;
    for (std::size_t i = 0; i < children_.size(); ++i) {
        Child& child = children_[i];
        if (!child.has_just_ended()) continue;
        child.ended_by_itself = !child.was_asked_to_end;
        if (is_failure(child)) failed.push_back(i);
        if (child.exit_code() != kExitAfterCheckpoint || !child.ended_by_itself) continue;
        if (!std::exchange(is_stopping_, true)) patience_ends_ = Clock::now() + options_.grace;
    }
    if (failed.empty()) return;
    read_reports();  // including the reports of the processes that have just ended
    record_failures(failed);
}

// Returns whether an ended process has failed. The exit code kExitAfterCheckpoint is not a failure.
// After a stop signal, a process that ended within the grace time has not failed if its exit code
// is 128 + the signal, or if the signal ended it. It has also not failed if SIGKILL after a second
// SIGINT ended it.
bool JobLaunch::is_failure(const Child& child) const {
    if (!child.failed() || child.exit_code() == kExitAfterCheckpoint) return false;
    if (stop_signal_ == 0 || child.was_overdue) return true;
    const bool was_killed = child.signal() == SIGKILL && interrupts_ > 1;
    return !was_killed && child.signal() != stop_signal_ && child.exit_code() != 128 + stop_signal_;
}

// Records the process that failed first, and sends the first failure to the other machines. Sends
// the exits of all failed processes to the processes that still run. If several processes have
// failed since the last check, a process that was killed by a signal is assumed to be the first.
void JobLaunch::record_failures(const std::vector<std::size_t>& failed) {
    if (!first_failed_) {
        first_failed_ =
            *std::max_element(failed.begin(), failed.end(), [&](std::size_t a, std::size_t b) {
                return (children_[a].signal() != 0) < (children_[b].signal() != 0);
            });
        if (stop_signal_ == 0 && !is_stopping_ && !failure_elsewhere_)
            patience_ends_ = Clock::now() + options_.patience;
        if (options_.machines != nullptr && stop_signal_ == 0 && !failure_elsewhere_) {
            const JobLaunchResult first = result();
            options_.machines->report(LaunchFailure{.restart = options_.restart,
                                                    .exit_code = first.exit_code,
                                                    .failure = first.failure});
        }
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
            if (child.is_alive()) ask_to_end(child, SIGTERM);
    }
    for (Child& child : children_) {
        if (child.is_reaped() || now < child.kill_at) continue;
        child.was_overdue = child.is_alive();
        child.signal_group(SIGKILL);
        child.kill_at = Clock::time_point::max();
    }
}

// Ends processes that still run in the process group of a child that has ended. Sends SIGTERM, and
// SIGKILL after the grace time. Reaps the child when its group has no more processes or SIGKILL was
// sent.
void JobLaunch::kill_leftovers() {
    const auto waits = [](const Child& child) { return !child.is_alive() && !child.is_reaped(); };
    if (std::none_of(children_.begin(), children_.end(), waits)) return;
    const std::set<pid_t> living = living_groups();
    for (Child& child : children_) {
        if (!waits(child)) continue;
        const bool killed = child.was_asked_to_end && child.kill_at == Clock::time_point::max();
        if (living.contains(child.pid()) && !killed) {
            if (!child.was_asked_to_end) ask_to_end(child, SIGTERM);
            continue;
        }
        child.signal_group(SIGKILL);
        guard_.remove(child.pid());
        child.reap();
    }
}

// Sends a signal to the process group of a child, and schedules SIGKILL after the grace time. Also
// sends SIGCONT, because a stopped process does not handle SIGTERM.
void JobLaunch::ask_to_end(Child& child, int signal) const {
    child.signal_group(signal);
    child.signal_group(SIGCONT);
    child.was_asked_to_end = true;
    child.kill_at = std::min(child.kill_at, Clock::now() + options_.grace);
}

JobLaunchResult JobLaunch::result() const {
    JobLaunchResult result;
    result.stop_signal = stop_signal_;
    result.is_stopping = is_stopping_;
    if (failure_elsewhere_) {
        result.failed = true;
        result.failure = failure_elsewhere_->failure;
        result.exit_code = failure_elsewhere_->exit_code;
    } else if (first_failed_) {
        add_failure(result);
    }
    if (stop_signal_ != 0) result.exit_code = 128 + stop_signal_;
    if (is_stopping_) result.exit_code = kExitAfterCheckpoint;
    return result;
}

// Sets the failure and the exit code of the result. Uses the failure that processes have reported,
// if any, unless the process that it names is a child that has failed by itself.
void JobLaunch::add_failure(JobLaunchResult& result) const {
    result.failed = true;
    result.place = *first_failed_;
    result.has_ended = true;
    if (cause_) {
        const auto failed = std::ranges::find(children_, cause_->failed, &Child::rank);
        result.has_ended = failed != children_.end() && failed->failed() &&
                           failed->ended_by_itself && !cause_->is_running;
        if (failed != children_.end())
            result.place = static_cast<std::size_t>(failed - children_.begin());
    }
    const Child& failed = children_[result.place];
    const Child& ended = result.has_ended ? failed : children_[*first_failed_];
    result.exit_code = ended.signal() != 0 ? 128 + ended.signal() : ended.exit_code();
    result.failure = result.has_ended ? failure_of(failed) : reported_failure(failed);
}

// Returns the failure of a process that has ended. If this or another process has reported the
// last collective of the ended process, the failure contains the collective.
JobFailure JobLaunch::failure_of(const Child& ended) const {
    const Process process{ended.rank(), ended.pid(), host_name()};
    JobFailure failure{.rank = process.rank,
                       .pid = process.pid,
                       .host = process.host,
                       .signal = ended.signal(),
                       .exit_code = ended.signal() != 0 ? -ended.signal() : ended.exit_code(),
                       .op = {}};
    for (const Child& child : children_) {
        const auto& reported = child.reported_failure();
        if (!reported || reported->op.empty()) continue;
        if ((reported->failed < 0 ? reported->rank : reported->failed) != ended.rank()) continue;
        failure.op = reported->op;
        failure.sequence = reported->sequence;
        break;
    }
    failure.text = process.text();
    if (ended.was_overdue) {
        failure.text +=
            str(" did not end within ", seconds_text(options_.grace), " and was killed");
    } else if (ended.signal() != 0) {
        failure.text += " died: " + cause_text({.signal = ended.signal()});
    } else {
        failure.text += str(" ended with exit code ", ended.exit_code());
    }
    if (!failure.op.empty()) failure.text += str(" during ", failure.op, " #", failure.sequence);
    return failure;
}

// Returns the failure that a process has reported. `failed` is the failed process if it is a child
// of this launcher, otherwise the child that failed first.
JobFailure JobLaunch::reported_failure(const Child& failed) const {
    const bool is_here = failed.rank() == cause_->failed;
    return {.rank = cause_->failed,
            .pid = is_here ? failed.pid() : cause_->pid,
            .host = is_here ? host_name() : cause_->host,
            .op = cause_->op,
            .sequence = cause_->sequence,
            .text = cause_->text};
}

}  // namespace axle::dist
