// Runs ranks as threads of this process, each with its own process group. Under mpirun, each rank
// is a process instead (mpi/mpi_world.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dist/group/process_group.h"
#include "gtest/gtest.h"
#include "tests/dist/mpi/mpi_world.h"
#include "tests/free_port.h"

namespace axle::tests {

inline dist::Environment environment_of(int rank, int size, int port) {
    dist::Environment environment;
    environment.rank = environment.local_rank = rank;
    environment.world_size = environment.local_world_size = size;
    environment.master_port = port;
    environment.launcher = "axle";
    environment.token = "a token of this test";
    environment.token_is_secret = true;
    return environment;
}

inline dist::ProcessGroupOptions short_options(int timeout_ms = 30000) {
    return {.timeout = std::chrono::milliseconds(timeout_ms),
            .join_timeout = std::chrono::milliseconds(30000)};
}

// Returns the index of this rank in an array with one element for each rank.
inline std::size_t at(const std::shared_ptr<dist::ProcessGroup>& group) {
    return static_cast<std::size_t>(group->rank());
}

// Runs f(group) on every rank and returns the exceptions, by rank.
template <class F>
std::vector<std::exception_ptr> outcomes(
    int size, F&& f, const dist::ProcessGroupOptions& options = short_options()) {
    if (MpiWorld* const world = MpiWorld::get()) {
        dist::ProcessGroupOptions over_mpi = options;
        if (options.backend.empty()) over_mpi.backend = "mpi";
        return world->run(size, [&](int port) {
            f(dist::ProcessGroup::create(environment_of(world->rank(), size, port), over_mpi));
        });
    }
    const int port = size == 1 ? 0 : free_port();
    std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
    std::vector<std::thread> threads;
    threads.reserve(errors.size());
    for (int rank = 0; rank < size; ++rank)
        threads.emplace_back([&, rank] {
            try {
                f(dist::ProcessGroup::create(environment_of(rank, size, port), options));
            } catch (...) {
                errors[static_cast<std::size_t>(rank)] = std::current_exception();
            }
        });
    for (std::thread& thread : threads) thread.join();
    return errors;
}

inline std::string text_of(const std::exception_ptr& error) {
    if (error == nullptr) return {};
    try {
        std::rethrow_exception(error);
    } catch (const std::exception& e) {
        return e.what();
    }
}

// Runs f(group) on every rank and returns the text of each rank's CommError, or "". Other
// exceptions fail the test.
template <class F>
std::vector<std::string> run_ranks(int size, F&& f,
                                   const dist::ProcessGroupOptions& options = short_options()) {
    std::vector<std::string> texts;
    for (const std::exception_ptr& error : outcomes(size, f, options)) {
        texts.push_back(text_of(error));
        try {
            if (error != nullptr) std::rethrow_exception(error);
        } catch (const CommError&) {
            continue;
        } catch (...) {
            ADD_FAILURE() << "rank " << texts.size() - 1 << ": " << texts.back();
        }
    }
    return texts;
}

// Runs f(group) on every rank and expects no exceptions.
template <class F>
void on_ranks(int size, F&& f) {
    const std::vector<std::exception_ptr> errors = outcomes(size, f);
    for (int rank = 0; rank < size; ++rank)
        EXPECT_EQ(text_of(errors[static_cast<std::size_t>(rank)]), "") << "on rank " << rank;
}

}  // namespace axle::tests
