#include "core/files/file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/text/text.h"
#include "kernels/error.h"

namespace axle {
namespace {

[[noreturn]] void fail_on(const std::string& path, const char* what, int error) {
    throw FileError(str(printable(path), ": ", what, ": ", std::generic_category().message(error)));
}

std::string folder_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos) return ".";
    return path.substr(0, std::max<std::size_t>(slash, 1));
}

// Returns a file name that differs between processes and calls. If a file of this name exists,
// O_EXCL detects it.
std::string temporary_name() {
    static constinit std::atomic<std::uint64_t> count = 0;
    const auto now = std::chrono::system_clock::now().time_since_epoch().count();
    return str("/.axle-", ::getpid(), "-", static_cast<std::uint64_t>(now) % 1'000'000'007, "-",
               count.fetch_add(1), ".tmp");
}

// Makes a rename in the folder durable. Some file systems cannot sync a folder and return EINVAL.
int sync_folder(const std::string& folder) {
    const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return errno;
    const int error = ::fsync(descriptor) == 0 ? 0 : errno;
    ::close(descriptor);
    return error == EINVAL || error == ENOTSUP ? 0 : error;
}

}  // namespace

std::string printable(std::string_view text) {
    static constexpr std::size_t kLongest = 200;
    static constexpr char kHex[] = "0123456789abcdef";
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
        if (out.size() >= kLongest) return out + "...";
        const auto byte = static_cast<unsigned char>(text[i]);
        const bool ascii = byte >= 0x20 && byte < 0x7f;
        const std::size_t length = ascii ? 1 : utf8_length(text.substr(i));
        if (length == 0)
            out.append({'\\', 'x', kHex[byte >> 4], kHex[byte & 15]});
        else
            out.append(text.substr(i, length));
        i += std::max<std::size_t>(length, 1);
    }
    return out;
}

std::string in_quotes(std::string_view name) { return "'" + printable(name) + "'"; }

// --- reading

InputFile::InputFile(const std::string& path) : path_(path) {
    if (path.find('\0') != std::string::npos) fail_on(path, "can't open", EINVAL);
    // With these flags, opening a pipe does not wait, and a terminal does not become the
    // controlling terminal.
    do {
        descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    } while (descriptor_ < 0 && errno == EINTR);
    if (descriptor_ < 0) fail_on(path_, "can't open", errno);
    struct stat status = {};
    const int error = ::fstat(descriptor_, &status) == 0 ? 0 : errno;
    if (error == 0 && S_ISREG(status.st_mode)) {
        size_ = status.st_size;
        return;
    }
    ::close(descriptor_);
    if (error != 0) fail_on(path_, "can't open", error);
    throw FileError(str(printable(path_), ": not a regular file"));
}

InputFile::~InputFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(descriptor_, other.descriptor_);
    std::swap(size_, other.size_);
    return *this;
}

void InputFile::read_at(std::int64_t offset, std::span<std::byte> bytes) const {
    std::size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t n = ::pread(descriptor_, bytes.data() + done, bytes.size() - done,
                                  offset + static_cast<std::int64_t>(done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail_on(path_, "can't read", errno);
        if (n == 0)
            throw FileError(str(printable(path_), ": can't read: the file ends after ",
                                offset + static_cast<std::int64_t>(done), " of ",
                                std::max(size_, offset + std::ssize(bytes)), " bytes"));
        done += static_cast<std::size_t>(n);
    }
}

std::string read_file(const std::string& path) {
    const InputFile file(path);
    std::string bytes(static_cast<std::size_t>(file.size()), '\0');
    file.read_at(0, std::as_writable_bytes(std::span(bytes)));
    return bytes;
}

MappedFile::MappedFile(const InputFile& file) {
    const auto size = static_cast<std::size_t>(file.size());
    if (size == 0) return;
    void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE,
                          file.descriptor_, 0);
    if (memory == MAP_FAILED) fail_on(file.path(), "can't map", errno);
    bytes_ = {static_cast<std::byte*>(memory), size};
}

MappedFile::~MappedFile() {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
}

// --- writing

AtomicFile::AtomicFile(const std::string& path) : path_(path), folder_(folder_of(path)) {
    if (path.empty() || path.back() == '/' || path.find('\0') != std::string::npos)
        fail_on(path, "can't write", path.empty() ? ENOENT : EINVAL);
    static constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    do {
        temporary_ = folder_ + temporary_name();
        descriptor_ = ::open(temporary_.c_str(), kFlags, 0666);
    } while (descriptor_ < 0 && (errno == EEXIST || errno == EINTR));
    if (descriptor_ >= 0) return;
    const int error = errno;
    temporary_.clear();
    fail_on(path_, "can't create", error);
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicFile::write(std::span<const std::byte> bytes) {
    if (descriptor_ < 0)
        throw UsageError(str(printable(path_), ": write() was called after sync() or commit()"));
    while (!bytes.empty()) {
        const ssize_t n = ::write(descriptor_, bytes.data(), bytes.size());
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) fail("can't write", n < 0 ? errno : EIO);
        bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
}

void AtomicFile::sync() {
    if (descriptor_ < 0) throw UsageError(str(printable(path_), ": sync() was called twice"));
    while (::fsync(descriptor_) != 0)
        if (errno != EINTR) fail("can't sync", errno);
    // EINTR is not an error here: Linux also frees the descriptor, and the data are synced already.
    if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) fail("can't close", errno);
}

void AtomicFile::commit() {
    if (temporary_.empty()) throw UsageError(str(printable(path_), ": commit() was called twice"));
    if (descriptor_ >= 0) sync();
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("can't replace", errno);
    temporary_.clear();
    if (const int error = sync_folder(folder_); error != 0)
        fail_on(path_, "was written, but its folder can't be synced", error);
}

void AtomicFile::fail(const char* what, int error) {
    discard();
    fail_on(path_, what, error);
}

void AtomicFile::discard() noexcept {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
    temporary_.clear();
}

void write_file_atomically(const std::string& path, std::string_view bytes) {
    AtomicFile file(path);
    file.write(bytes);
    file.commit();
}

void write_file_atomically(const std::string& path,
                           const std::function<void(AtomicFile&)>& writer) {
    AtomicFile file(path);
    writer(file);
    file.commit();
}

void create_directories(const std::string& path) {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (!error && !std::filesystem::is_directory(path, error) && !error)
        error = std::make_error_code(std::errc::not_a_directory);
    if (error)
        throw FileError(str(printable(path), ": can't create the folder: ", error.message()));
}

}  // namespace axle
