// Tests folders that are created, listed, replaced, removed and locked, and files that are opened
// within a folder.
#include "core/files/folder.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "gtest/gtest.h"
#include "tests/close.h"
#include "tests/core/files/faulty_file_system.h"
#include "tests/core/files/memory_file_system.h"
#include "tests/fork.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

namespace fs = std::filesystem;
using tests::expect_error;
using tests::TemporaryFolder;
using Names = std::vector<std::string>;

void put(const std::string& path) {
    create_directories(folder_of(path));
    std::ofstream(path) << "text";
}

TEST(Folder, ListsFoldersBeforeTheirContentsFollowsNoLinksAndRejectsMissingFolders) {
    const TemporaryFolder folder, elsewhere;
    put(folder / "b/c/file");
    put(folder / "a");
    put(elsewhere / "secret");
    fs::create_directory_symlink(elsewhere.path(), folder / "link");
    EXPECT_EQ(list_folder(folder.path()), (Names{"a", "b", "link"}));
    const FolderContents contents = contents_of(folder.path());
    EXPECT_EQ(contents.folders, (Names{"b", "b/c"}));
    EXPECT_EQ(contents.files, (Names{"a", "b/c/file"}));
    EXPECT_EQ(contents.others, Names{"link"});
    EXPECT_EQ(kind_of(folder / "link"), FileKind::link);
    EXPECT_EQ(kind_of(folder / "none"), std::nullopt);
    expect_error<FileError>({(folder / "none").c_str()}, [&] { list_folder(folder / "none"); });
}

TEST(Folder, RemovesContentsButNotTheTargetsOfLinks) {
    const TemporaryFolder folder, elsewhere;
    put(folder / "a/b/file");
    put(elsewhere / "kept");
    fs::create_directory_symlink(elsewhere.path(), folder / "a/link");
    fs::create_symlink(elsewhere / "kept", folder / "a/b/link");
    remove_all(folder / "a");
    EXPECT_EQ(folder.count(), 0u);
    EXPECT_TRUE(fs::exists(elsewhere / "kept"));
    EXPECT_NO_THROW(remove_all(folder / "a"));
}

TEST(Folder, CanBeReplacedByAFolderWithContents) {
    const TemporaryFolder folder;
    put(folder / "new/x");
    put(folder / "old/y");
    const std::string rest = put_in_place(folder / "new", folder / "old", Durability::full);
    EXPECT_TRUE(fs::exists(folder / "old/x"));
    EXPECT_TRUE(fs::exists(rest + "/y"));
    put(folder / "third/z");
    EXPECT_EQ(put_in_place(folder / "third", folder / "fourth", Durability::full), "");
    EXPECT_TRUE(fs::exists(folder / "fourth/z"));
}

TEST(CreateDirectories, SyncsTheParentOfEachNewFolder) {
    tests::MemoryFileSystem memory;
    const tests::ReplacedFileSystem replaced(memory);
    create_directories("/a/b/c", Durability::full);
    EXPECT_EQ(memory.syncs(), 3u);
    create_directories("/a/b/d", Durability::full);
    EXPECT_EQ(memory.syncs(), 4u);
    create_directories("/a/b/d", Durability::full);
    EXPECT_EQ(memory.syncs(), 4u);
}

TEST(PathLock, ExcludesOtherOwnersUntilItIsReleasedOrItsProcessEnds) {
    const TemporaryFolder folder;
    {
        const auto lock = PathLock::try_folder(folder.path());
        ASSERT_TRUE(lock.has_value());
        EXPECT_FALSE(PathLock::try_folder(folder.path()).has_value());
    }
    EXPECT_TRUE(PathLock::try_folder(folder.path()).has_value());
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = tests::fork_process();
    if (child == 0) {
        const auto lock = PathLock::try_file(folder / "file");
        const char taken = lock.has_value() ? 1 : 0;
        if (::write(ready[1], &taken, 1) != 1) _exit(1);
        pause();
        _exit(0);
    }
    char taken = 0;
    ASSERT_EQ(read(ready[0], &taken, 1), 1);
    EXPECT_EQ(taken, 1);
    EXPECT_FALSE(PathLock::try_file(folder / "file").has_value());
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    EXPECT_TRUE(PathLock::try_file(folder / "file").has_value());
    close(ready[0]);
    close(ready[1]);
}

TEST(PathLock, ReportsThePathIfWriteFails) {
    const TemporaryFolder folder;
    // Operation 0 creates the file, and operation 1 locks it.
    tests::FaultyFileSystem full(file_system(), 2, ENOSPC);
    const tests::ReplacedFileSystem replaced(full);
    const std::string path = folder / "owner";
    const auto lock = PathLock::try_file(path);
    ASSERT_TRUE(lock.has_value());
    expect_error<FileError>({path.c_str(), "can't be written", "No space left"},
                            [&] { lock->write("text"); });
}

TEST(PathLock, DoesNotFollowALinkOrLockAMissingFolder) {
    const TemporaryFolder folder, elsewhere;
    fs::create_symlink(elsewhere / "victim", folder / "file");
    expect_error<FileError>({(folder / "file").c_str()},
                            [&] { PathLock::try_file(folder / "file"); });
    EXPECT_FALSE(fs::exists(elsewhere / "victim"));
    EXPECT_EQ(PathLock::try_folder(folder / "none"), std::nullopt);
}

TEST(InputFile, RejectsLinksPathsOutsideOfItsFolderAndFilesAboveTheLimit) {
    const TemporaryFolder folder, elsewhere;
    put(folder / "a/b/file");
    put(elsewhere / "secret");
    EXPECT_EQ(InputFile(folder.path(), "a/b/file").read(), "text");
    fs::create_symlink(elsewhere / "secret", folder / "link");
    fs::create_directory_symlink(elsewhere.path(), folder / "a/linked");
    expect_error<FileError>({(folder / "link").c_str(), "a symbolic link is not followed here"},
                            [&] { InputFile(folder.path(), "link"); });
    expect_error<FileError>({(folder / "a/linked/secret").c_str()},
                            [&] { InputFile(folder.path(), "a/linked/secret"); });
    for (const char* outside : {"../x", "a/../../x", "", "a//b", "/etc/hostname"})
        EXPECT_THROW(InputFile(folder.path(), outside), FileError) << outside;
    expect_error<FileError>({(folder / "a/b/file").c_str(), "has 4 bytes", "at most 3"},
                            [&] { InputFile(folder.path(), "a/b/file").read(3); });
}

}  // namespace
}  // namespace axle
