#include "core/files/file.h"

#include <filesystem>
#include <stdexcept>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/error.h"
#include "tests/close.h"
#include "tests/full_disk.h"
#include "tests/temporary_folder.h"

namespace axle::tests {

namespace {

std::string text_of(const MappedFile& map) {
    return {reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size()};
}

std::size_t open_descriptors() {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

TEST(ReadFile, ReturnsAllWrittenBytes) {
    const TemporaryFolder folder;
    std::string bytes(300'000, '\0');
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 + i / 251);
    write_file_atomically(folder / "a", bytes);
    EXPECT_EQ(read_file(folder / "a"), bytes);
    write_file_atomically(folder / "a", "");
    EXPECT_EQ(read_file(folder / "a"), "");
}

TEST(ReadFile, ReportsMissingFileAndReason) {
    expect_error<FileError>({"/no/such/file: can't open: No such file"},
                            [] { read_file("/no/such/file"); });
    expect_error<FileError>({"a\\x00b: can't open: Invalid"}, [] { read_file({"a\0b", 3}); });
}

TEST(ReadFile, RejectsNonRegularFiles) {
    const TemporaryFolder folder;
    expect_error<FileError>({folder.path().c_str(), "not a regular file"},
                            [&] { read_file(folder.path()); });
    expect_error<FileError>({"/dev/zero: can't open: not a regular file"},
                            [] { read_file("/dev/zero"); });
    // The pipe has no writer: opening it must not block.
    ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
    expect_error<FileError>({(folder / "pipe").c_str(), "not a regular file"},
                            [&] { read_file(folder / "pipe"); });
}

TEST(InputFile, ReportsTruncationAfterOpening) {
    const TemporaryFolder folder;
    write_file_atomically(folder / "a", "0123456789");
    const InputFile file(folder / "a");
    ASSERT_EQ(::truncate((folder / "a").c_str(), 4), 0);
    std::byte bytes[10];
    expect_error<FileError>({(folder / "a").c_str(), "the file ends after 4 of 10 bytes"},
                            [&] { file.read_at(0, bytes); });
    file.read_at(1, std::span(bytes, 3));
    EXPECT_EQ(bytes[2], std::byte{'3'});
}

TEST(MappedFile, DoesNotWriteChangesToFileAndKeepsThemWhenMoved) {
    const TemporaryFolder folder;
    write_file_atomically(folder / "a", "hello");
    MappedFile map(folder / "a");
    EXPECT_EQ(text_of(map), "hello");
    map.bytes()[0] = std::byte{'j'};
    EXPECT_EQ(text_of(map), "jello");
    EXPECT_EQ(read_file(folder / "a"), "hello");

    write_file_atomically(folder / "a", "other");
    const MappedFile moved = std::move(map);
    EXPECT_EQ(text_of(moved), "jello");
    EXPECT_TRUE(map.bytes().empty());  // NOLINT(bugprone-use-after-move)
}

TEST(MappedFile, IsEmptyForEmptyFile) {
    const TemporaryFolder folder;
    write_file_atomically(folder / "a", "");
    EXPECT_TRUE(MappedFile(folder / "a").bytes().empty());
}

TEST(AtomicFile, IsInvisibleBeforeCommitAndRejectsWritesAfterIt) {
    const TemporaryFolder folder;
    write_file_atomically(folder / "a", "old");
    {
        AtomicFile file(folder / "a");
        file.write("new");
        EXPECT_EQ(read_file(folder / "a"), "old");
        file.commit();
        EXPECT_EQ(read_file(folder / "a"), "new");
        expect_error<UsageError>({(folder / "a").c_str()}, [&] { file.write("more"); });
    }
    EXPECT_EQ(read_file(folder / "a"), "new");
    EXPECT_EQ(folder.count(), 1u);
}

TEST(AtomicFile, KeepsOldFileWithoutCommit) {
    const TemporaryFolder folder;
    write_file_atomically(folder / "a", "old");
    AtomicFile(folder / "a").write("new");
    EXPECT_THROW(write_file_atomically(folder / "a",
                                       [](AtomicFile& file) {
                                           file.write("new");
                                           throw std::runtime_error("no");
                                       }),
                 std::runtime_error);
    EXPECT_EQ(read_file(folder / "a"), "old");
    EXPECT_EQ(folder.count(), 1u);
}

TEST(AtomicFile, KeepsOldFileWhenDiskIsFull) {
    const TemporaryFolder folder;
    write_file_atomically(folder / "a", "old");
    {
        const FullDisk full(1000);
        expect_error<FileError>({(folder / "a").c_str(), "can't write: File too large"}, [&] {
            write_file_atomically(folder / "a", std::string(5000, 'x'));
        });
    }
    EXPECT_EQ(read_file(folder / "a"), "old");
    EXPECT_EQ(folder.count(), 1u);
}

TEST(AtomicFile, DoesNotCommitOnSyncAndRejectsLaterWrites) {
    const TemporaryFolder folder;
    write_file_atomically(folder / "a", "old");
    {
        AtomicFile file(folder / "a");
        file.write("never seen");
        file.sync();
    }
    EXPECT_EQ(folder.count(), 1u);
    AtomicFile file(folder / "a");
    file.write("new");
    file.sync();
    expect_error<UsageError>({(folder / "a").c_str()}, [&] { file.write("more"); });
    expect_error<UsageError>({(folder / "a").c_str()}, [&] { file.sync(); });
    EXPECT_EQ(read_file(folder / "a"), "old");
    file.commit();
    EXPECT_EQ(read_file(folder / "a"), "new");
    EXPECT_EQ(folder.count(), 1u);
    expect_error<UsageError>({(folder / "a").c_str()}, [&] { file.commit(); });
}

TEST(AtomicFile, ReportsWhyItCannotBeCreated) {
    const TemporaryFolder folder;
    expect_error<FileError>({(folder / "no/a").c_str(), "can't create: No such file"},
                            [&] { write_file_atomically(folder / "no/a", "x"); });
    expect_error<FileError>({": can't write"}, [] { write_file_atomically("", "x"); });
    create_directories(folder / "b");
    expect_error<FileError>({(folder / "b").c_str(), "can't replace"},
                            [&] { write_file_atomically(folder / "b", "x"); });
    EXPECT_EQ(folder.count(), 1u);
}

TEST(AtomicFile, AppliesUmaskToPermissions) {
    const TemporaryFolder folder;
    const mode_t before = ::umask(0027);
    write_file_atomically(folder / "a", "x");
    ::umask(before);
    struct stat status = {};
    ASSERT_EQ(::stat((folder / "a").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0640u);
}

TEST(AtomicFile, AcceptsLongAndRelativeNames) {
    const TemporaryFolder folder;
    const std::string name(255, 'n');
    write_file_atomically(folder / name, "x");
    EXPECT_EQ(read_file(folder / name), "x");

    const auto before = std::filesystem::current_path();
    std::filesystem::current_path(folder.path());
    write_file_atomically("bare", "y");
    EXPECT_EQ(read_file("bare"), "y");
    std::filesystem::current_path(before);
}

TEST(Files, DoNotLeakDescriptors) {
    const TemporaryFolder folder;
    const auto before = open_descriptors();
    for (int i = 0; i < 3; ++i) {
        write_file_atomically(folder / "a", "x");
        read_file(folder / "a");
        const MappedFile map(folder / "a");
        InputFile file(folder / "a");
        file = InputFile(folder / "a");
        EXPECT_THROW(read_file(folder.path()), FileError);
        EXPECT_THROW(write_file_atomically(folder.path(), "x"), FileError);
    }
    EXPECT_EQ(open_descriptors(), before);
}

TEST(CreateDirectories, CreatesMissingParentsAndReportsFilesInPath) {
    const TemporaryFolder folder;
    create_directories(folder / "a/b/c");
    create_directories(folder / "a/b/c");
    write_file_atomically(folder / "a/b/c/file", "x");
    expect_error<FileError>({(folder / "a/b/c/file").c_str(), "can't create the folder"},
                            [&] { create_directories(folder / "a/b/c/file"); });
    expect_error<FileError>({(folder / "a/b/c/file/d").c_str(), "can't create the folder"},
                            [&] { create_directories(folder / "a/b/c/file/d"); });
}

TEST(Printable, EscapesControlCharactersAndInvalidUtf8AndShortensLongText) {
    EXPECT_EQ(printable("weights.q é 漢"), "weights.q é 漢");
    EXPECT_EQ(printable("a\n\x1b[2J\x7f"), "a\\x0a\\x1b[2J\\x7f");
    EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
    EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b");
    EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");
    EXPECT_LT(printable(std::string(5000, 'x')).size(), 300u);
}

}  // namespace

}  // namespace axle::tests
