// MpiWorld: the processes in which mpirun runs this test program (mpirun_test.cpp). Tests whose
// ranks are threads then run one rank in each process, with the backend "mpi".
#pragma once

#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/tree/tree.h"
#include "dist/environment/environment.h"
#include "dist/group/process_group.h"
#include "dist/mpi/library.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "kernels/shared_library.h"
#include "tests/free_port.h"

namespace axle::tests {

// The variable with the port through which the processes of mpirun exchange the results of a test.
inline constexpr const char* kMpiWorldPort = "AXLE_TEST_MPI_PORT";

class MpiWorld {
  public:
    // Returns null unless mpirun_test.cpp has started this process with mpirun.
    static MpiWorld* get() {
        static const std::unique_ptr<MpiWorld> world(
            std::getenv(kMpiWorldPort) == nullptr ? nullptr : new MpiWorld);
        return world.get();
    }
    int rank() const { return group_->rank(); }
    int size() const { return group_->size(); }

    // Calls f(port), with the same free port, in each of the first `ranks` processes. Returns their
    // exceptions, by rank. An exception of another process is a CommError or a std::runtime_error
    // with its text.
    template <class F>
    std::vector<std::exception_ptr> run(int ranks, F&& f) {
        if (ranks > size()) {
            ADD_FAILURE() << "the test needs " << ranks << " ranks, but mpirun has " << size();
            return {};
        }
        const int free = rank() == 0 ? free_port() : 0;
        const int port = static_cast<int>(group_->broadcast_object(Tree(free)).integer());
        std::exception_ptr own;
        std::string text;
        bool is_comm_error = false;
        try {
            if (rank() < ranks) f(port);
        } catch (const CommError& e) {
            own = std::current_exception();
            text = e.what();
            is_comm_error = true;
        } catch (const std::exception& e) {
            own = std::current_exception();
            text = e.what();
        }
        const bool failed = own != nullptr;
        std::vector<std::exception_ptr> errors;
        for (const Tree& each : group_->all_gather_object(
                 Tree{{"failed", failed}, {"text", text}, {"is_comm_error", is_comm_error}})) {
            if (errors.size() == static_cast<std::size_t>(ranks)) break;
            const std::string theirs = each["text"].string();
            if (static_cast<int>(errors.size()) == rank())
                errors.push_back(own);
            else if (!each["failed"].boolean())
                errors.emplace_back(nullptr);
            else if (each["is_comm_error"].boolean())
                errors.push_back(std::make_exception_ptr(CommError(theirs)));
            else
                errors.push_back(std::make_exception_ptr(std::runtime_error(theirs)));
        }
        return errors;
    }

  private:
    MpiWorld() {
        dist::Environment environment = dist::read_environment();
        environment.master_port = std::atoi(std::getenv(kMpiWorldPort));
        environment.token = "a token of this test program";
        environment.token_is_secret = true;
        group_ = dist::ProcessGroup::create(
            environment, {.backend = "tcp", .timeout = std::chrono::seconds(60)});
        // All processes must initialize MPI, even if they do not take part in the first test.
        const dist::MpiLibrary library = dist::open_mpi_library(kernels::own_library_folders());
        dist::MpiError error = {};
        int rank = 0, size = 0, last_tag = 0;
        if (library.functions == nullptr) throw CommError(library.error);
        if (!library.functions->init(&rank, &size, &last_tag, &error)) throw CommError(error.text);
    }

    std::shared_ptr<dist::ProcessGroup> group_;
};

}  // namespace axle::tests
