// Tests how shared libraries are opened. tools/check_consumers tests programs linked with -static.
#include "kernels/shared_library.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/temporary_folder.h"

namespace axle::kernels {
namespace {

using testing::HasSubstr;

TEST(SharedLibrary, OpensALibraryByNameInADynamicProgram) {
    EXPECT_FALSE(is_static_program());
    const OpenedLibrary opened = open_library("libc.so.6");
    EXPECT_NE(opened.handle, nullptr);
    EXPECT_EQ(opened.error, "");
}

TEST(SharedLibrary, ReturnsNullHandleAndNoErrorWhenTheFileDoesNotExist) {
    for (const char* file : {"libaxle_no_such_library.so", "/nowhere/libaxle.so"}) {
        const OpenedLibrary opened = open_library(file);
        EXPECT_EQ(opened.handle, nullptr) << file;
        EXPECT_EQ(opened.error, "") << file;
    }
}

TEST(SharedLibrary, ReturnsTheReasonWhenTheFileIsNotALibrary) {
    const tests::TemporaryFolder folder;
    std::ofstream(folder / "libtext.so") << "text";
    const OpenedLibrary opened = open_library(folder / "libtext.so");
    EXPECT_EQ(opened.handle, nullptr);
    EXPECT_THAT(opened.error, HasSubstr("libtext.so"));
}

TEST(OwnLibraryFolders, IncludeTheProgramsFolderAndTheLibFolderOfItsPrefix) {
    const auto program = std::filesystem::read_symlink("/proc/self/exe");
    const std::vector<std::string> folders = own_library_folders();
    EXPECT_EQ(folders.at(0), program.parent_path().string());
    EXPECT_THAT(folders, testing::Contains((program.parent_path().parent_path() / "lib").string()));
    EXPECT_THAT(folders, testing::Each(testing::StartsWith("/")));
}

}  // namespace
}  // namespace axle::kernels
