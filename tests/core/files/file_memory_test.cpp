#include "core/files/file_memory.h"

#include <fstream>

#include <sys/statvfs.h>

#include "core/ops.h"
#include "gtest/gtest.h"
#include "tests/close.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using tests::expect_error;
using tests::TemporaryFolder;

std::int64_t free_blocks(const std::string& folder) {
    struct statvfs disk = {};
    EXPECT_EQ(::statvfs(folder.c_str(), &disk), 0);
    return static_cast<std::int64_t>(disk.f_bfree);
}

// Returns whether a file of the folder is mapped into this process.
bool has_mapping(const std::string& folder) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
        if (line.find(folder) != std::string::npos) return true;
    return false;
}

TEST(ZerosInFile, StoresATensorInAnUnnamedFile) {
    const TemporaryFolder folder;
    {
        Tensor x = zeros_in_file(folder.path(), {3, 1000}, f64);
        EXPECT_EQ(sum(x).item(), 0);
        x.fill_(2);
        EXPECT_EQ(sum(x).item(), 6000);
        EXPECT_TRUE(has_mapping(folder.path()));
        EXPECT_EQ(folder.count(), 0U);
    }
    EXPECT_FALSE(has_mapping(folder.path()));
    EXPECT_EQ(zeros_in_file(folder.path(), {0, 4}, f32).numel(), 0);
}

TEST(ZerosInFile, ReportsADiskThatIsTooSmall) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    const std::int64_t before = free_blocks(folder.path());
    expect_error<FileError>({folder.path().c_str(), "can't reserve space"}, [&] {
        static_cast<void>(zeros_in_file(folder.path(), {std::int64_t{1} << 50}, f32));
    });
    EXPECT_NEAR(static_cast<double>(free_blocks(folder.path())), static_cast<double>(before), 1e4);
}

TEST(ZerosInFile, RejectsMissingFoldersAndInvalidShapes) {
    expect_error<FileError>({"/no/folder: can't create a temporary file: No such file"},
                            [] { static_cast<void>(zeros_in_file("/no/folder", {2}, f32)); });
    EXPECT_THROW(static_cast<void>(zeros_in_file("/tmp", {-1}, f32)), ShapeError);
    EXPECT_THROW(static_cast<void>(zeros_in_file("/tmp", {INT64_MAX, 8}, f32)), ShapeError);
}

}  // namespace
}  // namespace axle
