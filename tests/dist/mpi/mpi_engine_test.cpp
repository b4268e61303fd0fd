// Tests errors of the MPI engine with a stand-in library. Its operations either fail or never end.
// The tests of the host engine run with real libraries (mpirun_test.cpp).
#include "dist/mpi/mpi_engine.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/error.h"
#include "kernels/thread.h"
#include "tests/close.h"

namespace axle {
namespace {

using dist::HostEngine;
using dist::MpiComm;
using dist::MpiError;
using dist::MpiFunctions;
using dist::MpiRequest;
using dist::MpiState;
using dist::ReduceOp;
using std::chrono::milliseconds;

// The behavior of the stand-in library, and counts of its calls.
struct Behavior {
    bool starts = true;
    MpiState state = MpiState::pending;
    int closed = 0, canceled = 0;
};
Behavior behavior;
int dummy = 0;

MpiRequest* begin(MpiError* error) {
    std::snprintf(error->text, sizeof error->text, "MPI_Ix: the link is down");
    return behavior.starts ? reinterpret_cast<MpiRequest*>(&dummy) : nullptr;
}

MpiFunctions fake() {
    MpiFunctions f = {};
    f.implementation = "Fake MPI";
    f.close = [](MpiComm*) { ++behavior.closed; };
    f.broadcast = [](MpiComm*, void*, int, int, MpiError* e) { return begin(e); };
    f.all_gather = [](MpiComm*, const void*, int, void*, const int*, const int*, MpiError* e) {
        return begin(e);
    };
    f.all_to_all = [](MpiComm*, const void*, const int*, const int*, void*, const int*, const int*,
                      MpiError* e) { return begin(e); };
    f.gather = [](MpiComm*, const void*, int, void*, const int*, const int*, int, MpiError* e) {
        return begin(e);
    };
    f.scatter = [](MpiComm*, const void*, const int*, const int*, void*, int, int, MpiError* e) {
        return begin(e);
    };
    f.maximum = [](MpiComm*, std::int64_t*, MpiError* e) { return begin(e); };
    f.barrier = [](MpiComm*, MpiError* e) { return begin(e); };
    f.send = [](MpiComm*, const void*, int, int, int, MpiError* e) { return begin(e); };
    f.receive = [](MpiComm*, void*, int, int, int, MpiError* e) { return begin(e); };
    f.test = [](MpiRequest*, MpiError* e) {
        std::snprintf(e->text, sizeof e->text, "MPI_Test: the link is down");
        return behavior.state;
    };
    f.cancel = [](MpiRequest*) { ++behavior.canceled; };
    return f;
}

struct Call {
    std::string text;  // the beginning of the error
    std::function<void(HostEngine&)> run;
};

// Returns calls of all functions of the engine, on rank 0 of 2.
std::vector<Call> calls() {
    static std::vector<std::uint8_t> in(1 << 20), out(1 << 20);
    static const std::vector<std::int64_t> sizes = {1000, 1000};
    return {
        {"all_reduce of 1048576 bytes",
         [](HostEngine& e) { e.all_reduce(in.data(), 1 << 18, f32, ReduceOp::sum); }},
        {"all_reduce of 400 bytes",
         [](HostEngine& e) { e.all_reduce(in.data(), 100, f32, ReduceOp::sum); }},
        {"broadcast of 1000 bytes", [](HostEngine& e) { e.broadcast(in.data(), 1000, 1); }},
        {"all_gather of 1000 bytes",
         [](HostEngine& e) { e.all_gather(out.data(), in.data(), sizes); }},
        {"reduce_scatter of 800 bytes",
         [](HostEngine& e) { e.reduce_scatter(out.data(), in.data(), 100, f32, ReduceOp::sum); }},
        {"all_to_all of 2000 bytes",
         [](HostEngine& e) { e.all_to_all(out.data(), sizes, in.data(), sizes); }},
        {"gather of 1000 bytes", [](HostEngine& e) { e.gather(out.data(), in.data(), sizes, 0); }},
        {"scatter of 1000 bytes",
         [](HostEngine& e) { e.scatter(out.data(), in.data(), sizes, 0); }},
        {"send of 5 bytes", [](HostEngine& e) { e.send(in.data(), 5, 1, 0); }},
        {"recv of 6 bytes", [](HostEngine& e) { e.recv(in.data(), 6, 1, 0); }},
        {"barrier of 0 bytes", [](HostEngine& e) { e.barrier(); }},
    };
}

class MpiEngine : public testing::Test {
  protected:
    void SetUp() override { behavior = {}; }

    std::unique_ptr<HostEngine> open(milliseconds timeout = milliseconds(20)) {
        return dist::make_mpi_engine(functions_, nullptr, 0, 2, 32767, timeout);
    }

    const MpiFunctions functions_ = fake();
};

TEST_F(MpiEngine, ReportsTheCallAndItsSizeIfMpiFails) {
    behavior.starts = false;
    for (const Call& call : calls())
        tests::expect_error<CommError>(
            {call.text.c_str(), " over Fake MPI: MPI_Ix: the link is down"},
            [&] { call.run(*open()); });
    behavior = {.state = MpiState::failed};
    for (const Call& call : calls())
        tests::expect_error<CommError>(
            {call.text.c_str(), " over Fake MPI: MPI_Test: the link is down"},
            [&] { call.run(*open()); });
    EXPECT_EQ(behavior.closed, static_cast<int>(calls().size()));
}

TEST_F(MpiEngine, ThrowsCommErrorAfterTheTimeout) {
    for (const Call& call : calls())
        tests::expect_error<CommError>({call.text.c_str(), ": timed out after 20 ms"},
                                       [&] { call.run(*open()); });
    // A communicator with an operation in progress cannot be freed.
    EXPECT_EQ(behavior.closed, 0);
    EXPECT_GE(behavior.canceled, static_cast<int>(calls().size()));
}

TEST_F(MpiEngine, EndsAllCallsAfterAbort) {
    const auto engine = open(std::chrono::seconds(30));
    std::thread aborts = kernels::start_thread("aborts", [&] {
        std::this_thread::sleep_for(milliseconds(20));
        engine->abort();
    });
    tests::expect_error<CommError>({"barrier", "closed after an error"},
                                   [&] { engine->barrier(); });
    aborts.join();
    for (const Call& call : calls())
        tests::expect_error<CommError>({call.text.c_str(), "closed after an error"},
                                       [&] { call.run(*engine); });
}

}  // namespace
}  // namespace axle
