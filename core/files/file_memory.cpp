#include "core/files/file_memory.h"

#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/check.h"
#include "core/files/file.h"
#include "core/ops.h"

namespace axle {
namespace {

[[noreturn]] void fail(const std::string& folder, const char* what, int error) {
    throw FileError(
        str(printable(folder), ": ", what, ": ", std::generic_category().message(error)));
}

// An open file that has no name.
struct UnnamedFile {
    explicit UnnamedFile(const std::string& folder) {
        descriptor = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (descriptor >= 0) return;
        // File systems without O_TMPFILE get a named file, which is unlinked.
        std::string path = folder + "/.axle-XXXXXX";
        descriptor = ::mkostemp(path.data(), O_CLOEXEC);
        if (descriptor < 0) fail(folder, "can't create a temporary file", errno);
        ::unlink(path.c_str());
    }
    ~UnnamedFile() { ::close(descriptor); }
    UnnamedFile(const UnnamedFile&) = delete;
    UnnamedFile& operator=(const UnnamedFile&) = delete;

    int descriptor = -1;
};

}  // namespace

Tensor zeros_in_file(const std::string& folder, const Shape& shape, DType dtype) {
    static_cast<void>(numel(shape));  // throws ShapeError for an invalid shape
    const std::int64_t bytes = checked_bytes(shape, dtype);
    if (bytes <= 0) return zeros(shape, {.dtype = dtype});
    const UnnamedFile file(folder);
    // Reserves the space now: otherwise, a write to a mapped page raises SIGBUS when the disk is
    // full.
    int error = 0;
    do {
        error = ::posix_fallocate(file.descriptor, 0, bytes);
    } while (error == EINTR);
    if (error != 0) fail(folder, "can't reserve space", error);
    const auto size = static_cast<std::size_t>(bytes);
    void* const memory =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.descriptor, 0);
    if (memory == MAP_FAILED) fail(folder, "can't map a file", errno);
    try {
        return Tensor::from_blob(memory, shape, dtype, [memory, size] { ::munmap(memory, size); });
    } catch (...) {
        ::munmap(memory, size);
        throw;
    }
}

}  // namespace axle
