// Runs tests of this program in the processes of mpirun, with the engine library of each
// implementation of MPI. These are the suite MpiBackend, and tests of the host engine, of process
// groups and of collective operations. In the long runs, they include tests of data parallelism.
// Tests whose ranks share memory or die are left out.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include <sys/wait.h>

#include "dist/mpi/library.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "kernels/shared_library.h"
#include "tests/dist/mpi/mpi_world.h"
#include "tests/free_port.h"

namespace axle {
namespace {

struct Implementation {
    const char *name, *library, *program, *options;
};

// Open MPI does not start processes for the user root unless two variables allow it. Processes are
// not bound to cores, because there may be more processes than cores.
constexpr Implementation kOpenMpi{
    "Open MPI", "libaxle_mpi_openmpi.so", "mpirun.openmpi",
    "--oversubscribe --bind-to none --mca btl_vader_single_copy_mechanism none "
    "--mca btl vader,self"};
constexpr Implementation kMpich{"MPICH", "libaxle_mpi_mpich.so", "mpirun.mpich", ""};

struct Ended {
    int code = -1;
    std::string output;
};

Ended run(const std::string& command) {
    Ended ended;
    FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
    if (pipe == nullptr) return ended;
    char buffer[4096];
    for (std::size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
        ended.output.append(buffer, n);
    const int status = ::pclose(pipe);
    ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
    return ended;
}

// Returns the reason why the implementation cannot be tested here, or "" if it can.
std::string missing(const Implementation& mpi) {
    for (const std::string& folder : kernels::own_library_folders())
        if (std::filesystem::exists(folder + "/" + mpi.library))
            return run(std::string("command -v ") + mpi.program).code == 0
                       ? ""
                       : std::string(mpi.program) + " is not installed";
    return std::string(mpi.library) + " was not built: install libopenmpi-dev or libmpich-dev";
}

std::string program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

// GoogleTest patterns of the tests that mpirun runs. If the number of ranks is a parameter of a
// test, kTests selects one number. The tests after the minus sign take seconds, or cannot run under
// mpirun because they expect another backend, share memory or types of exceptions between ranks,
// fork, or leave a send in progress. After such a send, MPI is not finalized and mpirun reports a
// failure.
constexpr const char* kTests =
    "MpiBackend.*:Ranks/HostEngineCollectives.*/0:HostEngine.MatchesMessagesByTag:"
    "Ranks/Collectives.*/1:Operations/CollectiveMismatch.*_3:ProcessGroup.*:DeviceMesh.*:"
    "TreeCollectives.*:Reduce.*:Broadcast.*:BroadcastObjectList.*:PadAcrossProcesses.*:Gather.*:"
    "GatherObject.*:GatherOrThrow.*"
    "-ProcessGroup.UsesTcpIfTheBackendIsGlooOrNotGiven:ProcessGroup.ReportsTheMissingRank*:"
    "ProcessGroup.EndsCollectivesOfOtherRanksIfARankLeaves:"
    "GatherOrThrow.ConvertsStandardExceptions*:"
    "GatherOrThrow.KeepsTheByteCountsOfOutOfMemory:"
    "ProcessGroup.AllowsRanksToLeaveAfterTheLastCollective:"
    "ProcessGroup.ThrowsCommErrorOnBothSidesIfShapesOfAMessageDiffer:"
    "Ranks/Collectives.ScatterReducedPartsToRanks/1:"
    "Ranks/Collectives.AddInputsInPairsInDeterministicMode/1";
constexpr const char* kLongTests =
    "MpiBackend.*:Ranks/HostEngineCollectives.*:HostEngine.MatchesMessagesByTag:"
    "Ranks/Collectives.*:Operations/CollectiveMismatch.*:UnevenInputs.*:DataParallel/*:Reducer.*:"
    "ProcessGroup.EndsCollectivesOfOtherRanksIfARankLeaves";

void run_tests(const Implementation& mpi, const char* patterns, int seconds) {
    if (tests::MpiWorld::get() != nullptr) GTEST_SKIP() << "runs mpirun, and not under mpirun";
    if (const std::string why = missing(mpi); !why.empty()) GTEST_SKIP() << why;
    const std::string command =
        str("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 AXLE_NUM_THREADS=1 ",
            tests::kMpiWorldPort, '=', tests::free_port(), " timeout ", seconds, ' ', mpi.program,
            " -n 4 ", mpi.options, ' ', program(),
            " --gtest_brief=1 --gtest_color=no '--gtest_filter=", patterns, "'");
    const Ended ended = run(command);
    EXPECT_EQ(ended.code, 0) << command << '\n' << ended.output;
    // Each process ends with a line such as "[  PASSED  ] 120 tests."
    std::size_t passed = 0;
    for (std::size_t at = 0; (at = ended.output.find("[  PASSED  ]", at)) != std::string::npos;
         ++at)
        ++passed;
    EXPECT_EQ(passed, 4U) << ended.output;
    EXPECT_EQ(ended.output.find("[  PASSED  ] 0 tests"), std::string::npos) << ended.output;
}

// Covers 30.21.
TEST(Mpirun, RunsTestsOfTheMpiEngineWithOpenMpi) { run_tests(kOpenMpi, kTests, 200); }

// Covers 30.21.
TEST(Mpirun, RunsTestsOfTheMpiEngineWithMpich) { run_tests(kMpich, kTests, 200); }

TEST(Mpirun, RunsTestsOfTheMpiEngineWithOpenMpiInALongRun) {
    run_tests(kOpenMpi, kLongTests, 1500);
}

TEST(Mpirun, RunsTestsOfTheMpiEngineWithMpichInALongRun) { run_tests(kMpich, kLongTests, 1500); }

}  // namespace
}  // namespace axle
