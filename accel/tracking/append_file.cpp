#include "accel/tracking/append_file.h"

#include <cerrno>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/system/log.h"
#include "kernels/error.h"

namespace axle::accel {
namespace {

[[noreturn]] void fail(const std::string& path, const char* what, int error) {
    throw FileError(str(printable(path), ": ", what, ": ", std::generic_category().message(error)));
}

}  // namespace

AppendFile::AppendFile(const std::string& path) : path_(path) {
    if (path.find('\0') != std::string::npos) fail(path, "can't open for writing", EINVAL);
    static constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW;
    do {
        descriptor_ = ::open(path.c_str(), kFlags, 0666);
    } while (descriptor_ < 0 && errno == EINTR);
    if (descriptor_ < 0) fail(path_, "can't open for writing", errno);
    struct stat status = {};
    if (::fstat(descriptor_, &status) == 0) size_ = status.st_size;
}

AppendFile::~AppendFile() { ::close(descriptor_); }

void AppendFile::append(std::string_view piece) {
    std::string_view rest = piece;
    while (!rest.empty()) {
        const ssize_t n = ::write(descriptor_, rest.data(), rest.size());
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            const int error = n < 0 ? errno : EIO;
            // EINVAL is ignored: ftruncate() fails with it for devices such as /dev/full, which do
            // not store partial writes.
            if (::ftruncate(descriptor_, size_) != 0 && errno != EINVAL)
                fail(path_, "is damaged: a partial write can't be undone", errno);
            fail(path_, "can't write", error);
        }
        rest.remove_prefix(static_cast<std::size_t>(n));
    }
    size_ += static_cast<std::int64_t>(piece.size());
}

std::string_view text_of(const MappedFile& file) {
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

void move_aside(const std::string& path) {
    namespace fs = std::filesystem;
    std::error_code error;
    if (!fs::exists(path, error) || fs::file_size(path, error) == 0 || error) return;
    const fs::path old(path);
    fs::path free;
    int number = 0;
    do {
        free =
            old.parent_path() / str(old.stem().string(), '.', ++number, old.extension().string());
    } while (fs::exists(fs::symlink_status(free, error)));
    fs::rename(old, free, error);
    if (error)
        throw FileError(str(printable(path), ": the file of an earlier run can't be renamed to ",
                            printable(free.string()), ": ", error.message()));
    log(LogLevel::info, printable(path), ": the file of an earlier run was renamed to ",
        printable(free.string()));
}

}  // namespace axle::accel
