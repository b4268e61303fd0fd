// Private to core: the operations of the operating system on files and folders. All code that reads
// or writes checkpoints uses them through file.h and folder.h. So a test can use another file
// system, for example one that records operations, fails, or is in memory.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace axle {

enum class FileKind : std::uint8_t { file, folder, link, other };

struct FileStatus {
    FileKind kind = FileKind::other;
    std::int64_t size = 0;     // in bytes
    std::uint64_t device = 0;  // device and inode, which identify a file independently of its path
    std::uint64_t inode = 0;
};

// Passed as `folder` for a path that is absolute or relative to the working directory.
inline constexpr int kWorkingFolder = -100;

// Functions return a value of at least 0, or -errno, for example -ENOENT. They may return -EINTR,
// in which case the caller tries again (see retry()). A name that is passed with the descriptor of
// a folder is relative to this folder. Thread-safe.
class FileSystem {
  public:
    virtual ~FileSystem() = default;

    // Opens a file or folder. `flags` and `mode` have the same meaning as in open(2). Returns a
    // descriptor.
    virtual int open(int folder, const std::string& name, int flags, unsigned mode) = 0;
    virtual std::int64_t read(int file, std::int64_t offset, std::span<std::byte> bytes) = 0;
    virtual std::int64_t write(int file, std::span<const std::byte> bytes) = 0;
    virtual int sync(int file) = 0;
    // Closes a descriptor and frees it, even if the call fails.
    virtual int close(int file) = 0;
    // Takes the exclusive lock of an open file or folder without waiting. Returns -EWOULDBLOCK if
    // another descriptor holds the lock. close() and the end of the process release the lock.
    virtual int lock(int file) = 0;
    // Maps a file into memory as private, writable pages. Sets `memory`, which munmap(2) unmaps.
    virtual int map(int file, std::size_t size, void*& memory) = 0;

    virtual int status(int file, FileStatus& status) = 0;
    // Returns the status of a name. Does not follow a symbolic link at its end.
    virtual int status(int folder, const std::string& name, FileStatus& status) = 0;
    // Returns the names in an open folder, in any order, without "." and "..".
    virtual int list(int folder, std::vector<std::string>& names) = 0;
    virtual int make_folder(int folder, const std::string& name) = 0;
    virtual int remove_file(int folder, const std::string& name) = 0;
    virtual int remove_folder(int folder, const std::string& name) = 0;
    virtual int rename(const std::string& from, const std::string& to) = 0;
    // Exchanges two paths atomically.
    virtual int exchange(const std::string& a, const std::string& b) = 0;
    // Returns the number of bytes that this user can still write to the folder's file system.
    virtual std::int64_t free_bytes(const std::string& folder) = 0;
};

// Returns the file system of this process: the operating system's, unless a test has replaced it.
FileSystem& file_system();
// Replaces the file system, or restores the operating system's if `replacement` is null. Returns
// the previous replacement. Only for tests: no thread may use files during this call.
FileSystem* replace_file_system(FileSystem* replacement);

// Calls an operation until it does not return -EINTR. Returns its result.
template <class Operation>
auto retry(Operation&& operation) {
    for (;;)
        if (const auto result = operation(); result != -EINTR) return result;
}

}  // namespace axle
