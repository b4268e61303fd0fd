// Tests how the ranks of a job agree to use MPI. The ranks are threads with a stand-in library.
#include "dist/mpi/mpi_job.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "tests/dist/job.h"
#include "tests/dist/rendezvous/fake_control.h"

namespace axle {
namespace {

using dist::MpiError;
using dist::MpiFunctions;
using dist::MpiJob;
using dist::MpiLibrary;
using testing::Each;
using testing::ElementsAre;

// The rank in MPI_COMM_WORLD that the stand-in library gives to this thread. If it is negative,
// init() fails.
thread_local int world_rank = 0;

bool init(int* rank, int* size, int* last_tag, MpiError* error) {
    *rank = world_rank;
    *size = 3;
    *last_tag = 99;
    std::snprintf(error->text, sizeof error->text, "the network is down");
    return world_rank >= 0;
}

MpiFunctions fake(const char* name) {
    MpiFunctions functions = {};
    functions.implementation = name;
    functions.init = init;
    return functions;
}

// Joins with the given library and rank of MPI_COMM_WORLD on each rank. Returns the errors.
std::vector<std::string> join(const std::vector<MpiLibrary>& libraries,
                              const std::vector<int>& world_ranks,
                              std::vector<MpiJob>* jobs = nullptr) {
    tests::FakeStore store;
    const int size = static_cast<int>(libraries.size());
    return tests::run_threads(size, [&](int rank) {
        const auto at = static_cast<std::size_t>(rank);
        world_rank = world_ranks[at];
        tests::FakeControl control(store, rank, size);
        const MpiJob job =
            dist::join_mpi(control, std::chrono::seconds(10), [&] { return libraries[at]; });
        if (jobs != nullptr) (*jobs)[at] = job;
    });
}

const MpiFunctions kMpich = fake("MPICH"), kOpenMpi = fake("Open MPI");
const MpiLibrary kLibrary{.functions = &kMpich, .error = {}};

TEST(MpiJob, ListsTheMpiRankOfEachRank) {
    std::vector<MpiJob> jobs(3);
    EXPECT_THAT(join({kLibrary, kLibrary, kLibrary}, {2, 0, 1}, &jobs), Each(""));
    for (const MpiJob& job : jobs) {
        EXPECT_THAT(job.world_ranks, ElementsAre(2, 0, 1));
        EXPECT_EQ(job.functions, &kMpich);
        EXPECT_EQ(job.last_tag, 99);
    }
}

TEST(MpiJob, ReportsOnAllRanksThatOneHasNoLibrary) {
    EXPECT_THAT(
        join({kLibrary, {.functions = nullptr, .error = "no engine library was found: x"}}, {0, 1}),
        Each("ProcessGroup: backend mpi: rank 1: no engine library was found: x"));
}

TEST(MpiJob, ReportsOnAllRanksThatImplementationsDiffer) {
    EXPECT_THAT(join({kLibrary, {.functions = &kOpenMpi, .error = {}}}, {0, 1}),
                Each("ProcessGroup: backend mpi: implementations differ: rank 0 has MPICH, rank 1 "
                     "has Open MPI"));
}

TEST(MpiJob, ReportsOnAllRanksThatOneRankCannotInitializeMpi) {
    EXPECT_THAT(join({kLibrary, kLibrary, kLibrary}, {0, 1, -1}),
                Each("ProcessGroup: backend mpi: rank 2: the network is down"));
}

TEST(MpiJob, ReportsThatProcessesWereNotStartedTogether) {
    EXPECT_THAT(join({kLibrary, kLibrary}, {0, 0}),
                Each("ProcessGroup: backend mpi: ranks 0 and 1 have the same rank 0 in "
                     "MPI_COMM_WORLD, which has 3 processes: start all processes with one mpirun, "
                     "or with srun --mpi"));
}

TEST(MpiJob, RejectsMalformedRanks) {
    std::vector<int> ranks;
    for (const char* text : {"+", "+1", "+1 1", "+-1 2", "+0 2 3", "+9999999999 2"}) {
        std::string why;
        try {
            why = dist::find_world_obstacle({text}, ranks);
        } catch (const CommError& error) {
            why = error.what();
        }
        EXPECT_NE(why, "") << text;
    }
}

}  // namespace
}  // namespace axle
