// Tests how the engine library of MPI is found and opened.
#include "dist/mpi/library.h"

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/shared_library.h"
#include "tests/dist/ranks.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using dist::MpiLibrary;
using dist::open_mpi_library;
using testing::HasSubstr;

dist::Variables variables(std::map<std::string, std::string> values) {
    return [values = std::move(values)](const std::string& name) -> std::optional<std::string> {
        const auto found = values.find(name);
        if (found == values.end()) return {};
        return found->second;
    };
}

constexpr const char* kOpenMpi = "libaxle_mpi_openmpi.so";
constexpr const char* kMpich = "libaxle_mpi_mpich.so";

TEST(MpiLibrary, ReportsSearchedFoldersAndTheFixWhenNoneIsFound) {
    const MpiLibrary library = open_mpi_library({"/nowhere", "/nor/here"}, variables({}));
    EXPECT_EQ(library.functions, nullptr);
    EXPECT_EQ(library.error,
              "no engine library was found: libaxle_mpi_openmpi.so, libaxle_mpi_mpich.so in "
              "/nowhere, /nor/here; install a build of Axle with MPI (AXLE_MPI=ON), or set "
              "AXLE_MPI_LIBRARY to the path of the library");
}

// The files are not libraries, so the error names the file that was chosen.
TEST(MpiLibrary, IsChosenByTheVariablesOfTheLauncher) {
    const tests::TemporaryFolder folder;
    std::ofstream(folder / kOpenMpi) << "text";
    std::ofstream(folder / kMpich) << "text";
    const auto error_with = [&](std::map<std::string, std::string> values) {
        return open_mpi_library({folder.path()}, variables(std::move(values))).error;
    };
    EXPECT_THAT(error_with({{"OMPI_COMM_WORLD_RANK", "0"}}), HasSubstr(folder / kOpenMpi));
    EXPECT_THAT(error_with({{"PMI_RANK", "0"}}), HasSubstr(folder / kMpich));
    EXPECT_THAT(error_with({{"MPI_LOCALRANKID", "0"}}), HasSubstr(folder / kMpich));
    for (const std::string& error :
         {error_with({}), error_with({{"PMI_RANK", "0"}, {"SLURM_PROCID", "0"}})})
        EXPECT_THAT(error, HasSubstr("AXLE_MPI_LIBRARY must name one of " + folder / kOpenMpi +
                                     ", " + folder / kMpich));
    std::filesystem::remove(folder / kMpich);
    EXPECT_THAT(error_with({}), HasSubstr("was not opened: "));
    EXPECT_THAT(error_with({{"PMI_RANK", "0"}}), HasSubstr("no engine library was found: "));
}

TEST(MpiLibrary, IsOpenedOnlyAtTheAbsolutePathInAxleMpiLibraryIfItIsSet) {
    const tests::TemporaryFolder folder;
    std::ofstream(folder / kOpenMpi) << "text";
    const auto error_with = [&](const std::string& path) {
        return open_mpi_library({folder.path()}, variables({{"AXLE_MPI_LIBRARY", path}})).error;
    };
    EXPECT_EQ(error_with("libaxle_mpi_openmpi.so"),
              "AXLE_MPI_LIBRARY must be an absolute path: 'libaxle_mpi_openmpi.so'");
    EXPECT_THAT(error_with("/nowhere/lib.so"),
                testing::StartsWith("no engine library was found: /nowhere/lib.so; install "));
    EXPECT_THAT(error_with(folder / kOpenMpi), HasSubstr("was not opened: "));
}

TEST(MpiLibrary, MustHaveTheFunctionOfAnEngineLibrary) {
    // The test finds a library that is not an engine library through the address of std::terminate.
    // It does not use a function of the C library, because sanitizers replace such functions.
    Dl_info library_of_cpp = {};
    ASSERT_NE(dladdr(reinterpret_cast<void*>(&std::terminate), &library_of_cpp), 0);
    const std::string path = std::filesystem::canonical(library_of_cpp.dli_fname);
    const MpiLibrary library = open_mpi_library({}, variables({{"AXLE_MPI_LIBRARY", path}}));
    EXPECT_EQ(library.functions, nullptr);
    EXPECT_EQ(library.error, path +
                                 " is not an engine library of Axle: it has no function "
                                 "axle_mpi_functions");
}

// Opening an engine library does not initialize MPI.
TEST(MpiLibrary, MustHaveTheVersionOfThisProgram) {
    for (const char* name : {kOpenMpi, kMpich}) {
        for (const std::string& folder : kernels::own_library_folders()) {
            const std::string path = folder + "/" + name;
            if (!std::filesystem::exists(path)) continue;
            const dist::Variables chosen = variables({{"AXLE_MPI_LIBRARY", path}});
            EXPECT_NE(open_mpi_library({}, chosen).functions, nullptr);
            const MpiLibrary other = open_mpi_library({}, chosen, dist::kMpiVersion + 1);
            EXPECT_EQ(other.functions, nullptr);
            EXPECT_THAT(other.error, HasSubstr("was built for another version of Axle"));
            return;
        }
    }
    GTEST_SKIP() << "no engine library was built: install libopenmpi-dev or libmpich-dev";
}

TEST(MpiLibrary, IsReportedAsMissingOnAllRanksIfTheBackendIsRequested) {
    ::setenv("AXLE_MPI_LIBRARY", "/nowhere/libaxle_mpi_openmpi.so", 1);
    dist::ProcessGroupOptions options = tests::short_options();
    options.backend = "mpi";
    const auto errors = tests::run_ranks(
        2, [](const std::shared_ptr<dist::ProcessGroup>&) {}, options);
    ::unsetenv("AXLE_MPI_LIBRARY");
    EXPECT_THAT(errors,
                testing::Each("ProcessGroup: backend mpi: rank 0: no engine library was found: "
                              "/nowhere/libaxle_mpi_openmpi.so; install a build of Axle with MPI "
                              "(AXLE_MPI=ON), or set AXLE_MPI_LIBRARY to the path of the library"));
}

}  // namespace
}  // namespace axle
