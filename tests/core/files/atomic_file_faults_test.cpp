// Tests AtomicFile while each of its file operations fails in turn.
#include <cerrno>

#include "core/files/file.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "tests/core/files/faulty_file_system.h"
#include "tests/core/files/memory_file_system.h"

namespace axle {
namespace {

void write_text(const std::string& text) {
    AtomicFile file("/file");
    file.write(text);
    file.commit();
}

// Writes a file while operation number `failing` fails. Returns whether write_text() throws.
bool throws(FileSystem& disk, std::size_t failing, int error) {
    tests::FaultyFileSystem faulty(disk, failing, error);
    FileSystem* const before = replace_file_system(&faulty);
    bool thrown = false;
    try {
        write_text("new");
    } catch (const FileError&) {
        thrown = true;
    }
    replace_file_system(before);
    return thrown;
}

// Returns the number of operations of write_text() that can fail.
std::size_t count_operations() {
    tests::MemoryFileSystem disk;
    tests::FaultyFileSystem counting(disk, SIZE_MAX, EIO);
    FileSystem* const before = replace_file_system(&counting);
    write_text("new");
    replace_file_system(before);
    return counting.operations();
}

TEST(AtomicFile, ReportsTheFailureOfEachOperationBeforeTheLast) {
    const std::size_t operations = count_operations();
    // The operations are: create, write, sync and close the file; rename it; sync and close the
    // folder. A failure of the last operation has no effect, because the changes are on the disk.
    ASSERT_EQ(operations, 7U);
    for (const int error : {ENOSPC, EDQUOT, EIO, EACCES, EROFS})
        for (std::size_t failing = 0; failing + 1 < operations; ++failing) {
            SCOPED_TRACE(testing::Message() << "operation " << failing << ", error " << error);
            tests::MemoryFileSystem disk;
            FileSystem* const before = replace_file_system(&disk);
            write_text("old");
            EXPECT_TRUE(throws(disk, failing, error));
            const std::string text = read_file("/file");
            EXPECT_TRUE(text == "old" || text == "new") << text;
            replace_file_system(before);
        }
}

TEST(AtomicFile, RepeatsInterruptedOperationsAndCompletesShortWrites) {
    const std::size_t operations = count_operations();
    for (const int error : {EINTR, 0})
        for (std::size_t failing = 0; failing < operations; ++failing) {
            SCOPED_TRACE(testing::Message() << "operation " << failing << ", error " << error);
            tests::MemoryFileSystem disk;
            FileSystem* const before = replace_file_system(&disk);
            EXPECT_FALSE(throws(disk, failing, error));
            EXPECT_EQ(read_file("/file"), "new");
            replace_file_system(before);
        }
}

}  // namespace
}  // namespace axle
