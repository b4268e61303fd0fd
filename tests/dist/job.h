// ControlJob, a job within one program whose ranks are threads or child processes, and helpers that
// run its ranks in threads and wait for its failure.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dist/launch/launch.h"
#include "dist/rendezvous/control.h"
#include "kernels/error.h"

namespace axle::tests {

struct ControlJob {
    explicit ControlJob(int size_) : size(size_) {}

    dist::Environment environment(int rank) const {
        dist::Environment e;
        e.rank = e.local_rank = rank;
        e.world_size = e.local_world_size = size;
        e.master_port = port;
        e.token = "a token";
        return e;
    }
    std::unique_ptr<dist::Control> join(int rank) const {
        return dist::Control::join(environment(rank), options);
    }

    int size;
    std::shared_ptr<dist::ReservedPort> reserved = std::make_shared<dist::ReservedPort>();
    int port = reserved->port();
    dist::ControlOptions options{.timeout = std::chrono::seconds(20),
                                 .join_timeout = std::chrono::seconds(20),
                                 .heartbeat_timeout = std::chrono::seconds(8)};
};

// Runs f(0), ..., f(count - 1), each on a thread. Returns the text of each call's exception, or "".
inline std::vector<std::string> run_threads(int count, const std::function<void(int)>& f) {
    std::vector<std::string> errors(static_cast<std::size_t>(count));
    std::vector<std::thread> threads;
    threads.reserve(errors.size());
    for (int i = 0; i < count; ++i) {
        threads.emplace_back([&, i] {
            try {
                f(i);
            } catch (const std::exception& error) {
                errors[static_cast<std::size_t>(i)] = error.what();
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
}
inline std::vector<std::string> run_job(const ControlJob& job,
                                        const std::function<void(dist::Control&)>& f) {
    return run_threads(job.size, [&](int rank) { f(*job.join(rank)); });
}

// Returns a future that becomes ready when the job fails.
inline std::future<void> failure_of(dist::Control& control) {
    const auto failed = std::make_shared<std::promise<void>>();
    control.on_failure([failed] { failed->set_value(); });
    return failed->get_future();
}

}  // namespace axle::tests
