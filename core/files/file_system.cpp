#include "core/files/file_system.h"

#include <atomic>
#include <memory>

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace axle {
namespace {

template <class Result>
Result checked(Result result) {
    return result < 0 ? static_cast<Result>(-errno) : result;
}

FileStatus status_of(const struct stat& found) {
    FileStatus status{.size = found.st_size, .device = found.st_dev, .inode = found.st_ino};
    if (S_ISREG(found.st_mode)) status.kind = FileKind::file;
    if (S_ISDIR(found.st_mode)) status.kind = FileKind::folder;
    if (S_ISLNK(found.st_mode)) status.kind = FileKind::link;
    return status;
}

class OperatingSystem final : public FileSystem {
  public:
    int open(int folder, const std::string& name, int flags, unsigned mode) override {
        return checked(::openat(folder, name.c_str(), flags, mode));
    }
    std::int64_t read(int file, std::int64_t offset, std::span<std::byte> bytes) override {
        return checked(std::int64_t{::pread(file, bytes.data(), bytes.size(), offset)});
    }
    std::int64_t write(int file, std::span<const std::byte> bytes) override {
        return checked(std::int64_t{::write(file, bytes.data(), bytes.size())});
    }
    int sync(int file) override { return checked(::fsync(file)); }
    int close(int file) override { return checked(::close(file)); }
    int lock(int file) override { return checked(::flock(file, LOCK_EX | LOCK_NB)); }
    int map(int file, std::size_t size, void*& memory) override {
        memory =
            ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file, 0);
        return memory == MAP_FAILED ? -errno : 0;
    }
    int status(int file, FileStatus& status) override {
        struct stat found = {};
        const int result = checked(::fstat(file, &found));
        if (result == 0) status = status_of(found);
        return result;
    }
    int status(int folder, const std::string& name, FileStatus& status) override {
        struct stat found = {};
        const int result = checked(::fstatat(folder, name.c_str(), &found, AT_SYMLINK_NOFOLLOW));
        if (result == 0) status = status_of(found);
        return result;
    }
    int list(int folder, std::vector<std::string>& names) override {
        const int copy = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (copy < 0) return -errno;
        const std::unique_ptr<DIR, int (*)(DIR*)> open(::fdopendir(copy), ::closedir);
        if (open == nullptr) {
            const int error = errno;
            ::close(copy);
            return -error;
        }
        names.clear();
        for (;;) {
            errno = 0;
            const dirent* const entry = ::readdir(open.get());
            if (entry == nullptr) return -errno;
            const std::string name = entry->d_name;
            if (name != "." && name != "..") names.push_back(name);
        }
    }
    int make_folder(int folder, const std::string& name) override {
        return checked(::mkdirat(folder, name.c_str(), 0777));
    }
    int remove_file(int folder, const std::string& name) override {
        return checked(::unlinkat(folder, name.c_str(), 0));
    }
    int remove_folder(int folder, const std::string& name) override {
        return checked(::unlinkat(folder, name.c_str(), AT_REMOVEDIR));
    }
    int rename(const std::string& from, const std::string& to) override {
        return checked(::rename(from.c_str(), to.c_str()));
    }
    int exchange(const std::string& a, const std::string& b) override {
        return checked(::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE));
    }
    std::int64_t free_bytes(const std::string& folder) override {
        struct statvfs found = {};
        if (::statvfs(folder.c_str(), &found) != 0) return -errno;
        return static_cast<std::int64_t>(found.f_bavail) *
               static_cast<std::int64_t>(found.f_frsize);
    }
};

static_assert(kWorkingFolder == AT_FDCWD);

constinit std::atomic<FileSystem*> replaced = nullptr;

}  // namespace

FileSystem& file_system() {
    static OperatingSystem system;
    FileSystem* const replacement = replaced.load(std::memory_order_acquire);
    return replacement != nullptr ? *replacement : system;
}

FileSystem* replace_file_system(FileSystem* replacement) { return replaced.exchange(replacement); }

}  // namespace axle
