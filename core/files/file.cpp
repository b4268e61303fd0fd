#include "core/files/file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/files/file_system.h"
#include "core/files/folder.h"
#include "core/text/text.h"
#include "kernels/error.h"

namespace axle {
namespace {

[[noreturn]] void fail_on(const std::string& path, const char* what, int error) {
    throw FileError(str(printable(path), ": ", what, ": ", std::generic_category().message(error)));
}

// Returns a file name that differs between processes and calls. If a file of this name exists,
// O_EXCL detects it.
std::string temporary_name() {
    static constinit std::atomic<std::uint64_t> count = 0;
    const auto now = std::chrono::system_clock::now().time_since_epoch().count();
    return str("/.axle-", ::getpid(), "-", static_cast<std::uint64_t>(now) % 1'000'000'007, "-",
               count.fetch_add(1), ".tmp");
}

}  // namespace

std::string printable(std::string_view text, std::size_t limit) {
    static constexpr char kHex[] = "0123456789abcdef";
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
        if (out.size() >= limit) return out + "...";
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

namespace {

// With these flags, opening a pipe does not wait, and a terminal does not become the controlling
// terminal.
constexpr int kReadFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

int open_for_reading(int folder, const std::string& name, int flags) {
    return retry([&] { return file_system().open(folder, name, flags, 0); });
}

}  // namespace

InputFile::InputFile(const std::string& path) : path_(path) {
    if (path.find('\0') != std::string::npos) fail_on(path, "can't open", EINVAL);
    descriptor_ = open_for_reading(kWorkingFolder, path, kReadFlags);
    check();
}

InputFile::InputFile(const std::string& folder, const std::string& name)
    : path_(folder + "/" + name) {
    if (path_.find('\0') != std::string::npos) fail_on(path_, "can't open", EINVAL);
    int at = open_for_reading(kWorkingFolder, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (std::size_t begin = 0; at >= 0;) {
        const std::size_t slash = name.find('/', begin);
        const std::string part = name.substr(begin, slash - begin);
        const bool is_last = slash == std::string::npos;
        const int flags = is_last ? kReadFlags : O_RDONLY | O_DIRECTORY | O_CLOEXEC;
        const int next =
            part.empty() || part == ".." ? -EXDEV : open_for_reading(at, part, flags | O_NOFOLLOW);
        file_system().close(at);
        at = descriptor_ = next;
        if (is_last) break;
        descriptor_ = -1;
        begin = slash + 1;
    }
    if (at < 0) descriptor_ = at;
    check();
}

// Throws FileError unless the descriptor refers to a regular file. Sets the size.
void InputFile::check() {
    if (descriptor_ < 0) {
        const int error = -std::exchange(descriptor_, -1);
        if (error == ELOOP)
            throw FileError(str(printable(path_),
                                ": can't open: a symbolic link is not followed here; replace it by "
                                "the file"));
        fail_on(path_, "can't open", error);
    }
    FileStatus status;
    const int result = file_system().status(descriptor_, status);
    size_ = status.size;
    if (result == 0 && status.kind == FileKind::file) return;
    file_system().close(std::exchange(descriptor_, -1));
    if (result != 0) fail_on(path_, "can't open", -result);
    throw FileError(str(printable(path_), ": can't open: not a regular file"));
}

InputFile::~InputFile() {
    if (descriptor_ >= 0) file_system().close(descriptor_);
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
        const auto at = offset + static_cast<std::int64_t>(done);
        const std::int64_t n =
            retry([&] { return file_system().read(descriptor_, at, bytes.subspan(done)); });
        if (n < 0) fail_on(path_, "can't read", static_cast<int>(-n));
        if (n == 0)
            throw FileError(str(printable(path_), ": can't read: the file ends after ", at, " of ",
                                std::max(size_, offset + std::ssize(bytes)), " bytes"));
        done += static_cast<std::size_t>(n);
    }
}

std::string InputFile::read(std::int64_t max_bytes) const {
    if (size_ > max_bytes)
        throw FileError(str(printable(path_), ": has ", size_,
                            " bytes; files of this kind have at most ", max_bytes));
    std::string bytes;
    try {
        bytes.resize(static_cast<std::size_t>(size_));
    } catch (const std::exception&) {  // std::bad_alloc or std::length_error
        throw FileError(str(printable(path_), ": not enough memory to read ", size_, " bytes"));
    }
    read_at(0, std::as_writable_bytes(std::span(bytes)));
    return bytes;
}

void InputFile::sync() const {
    const int result = retry([&] { return file_system().sync(descriptor_); });
    if (result < 0) fail_on(path_, "can't sync", -result);
}

std::string read_file(const std::string& path, std::int64_t max_bytes) {
    return InputFile(path).read(max_bytes);
}

MappedFile::MappedFile(const InputFile& file) {
    const auto size = static_cast<std::size_t>(file.size());
    if (size == 0) return;
    void* memory = nullptr;
    const int result = retry([&] { return file_system().map(file.descriptor_, size, memory); });
    if (result < 0) fail_on(file.path(), "can't map", -result);
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

AtomicFile::AtomicFile(const std::string& path, Durability durability)
    : path_(path), folder_(folder_of(path)), durability_(durability) {
    if (path.empty() || path.back() == '/' || path.find('\0') != std::string::npos)
        fail_on(path, "can't write", path.empty() ? ENOENT : EINVAL);
    static constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    int result = 0;
    do {
        temporary_ = folder_ + temporary_name();
        result = file_system().open(kWorkingFolder, temporary_, kFlags, 0666);
    } while (result == -EEXIST || result == -EINTR);
    if (result < 0) {
        temporary_.clear();
        fail_on(path_, "can't create", -result);
    }
    descriptor_ = result;
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicFile::write(std::span<const std::byte> bytes) {
    if (descriptor_ < 0)
        throw UsageError(
            str(printable(path_),
                ": write() must not be called after sync(), replace(), commit() or an error"));
    while (!bytes.empty()) {
        const std::int64_t n = retry([&] { return file_system().write(descriptor_, bytes); });
        if (n <= 0) fail("can't write", n < 0 ? static_cast<int>(-n) : EIO);
        bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
}

void AtomicFile::sync() {
    if (descriptor_ < 0)
        throw UsageError(
            str(printable(path_),
                ": sync() must not be called after sync(), replace(), commit() or an error"));
    if (durability_ == Durability::full)
        if (const int result = retry([&] { return file_system().sync(descriptor_); }); result < 0)
            fail("can't sync", -result);
    // EINTR is not an error here, because Linux has then freed the descriptor. Other errors, such
    // as EIO or EDQUOT of a network file system, mean that data are lost.
    if (const int result = file_system().close(std::exchange(descriptor_, -1));
        result < 0 && result != -EINTR)
        fail("can't close", -result);
}

void AtomicFile::commit() {
    replace();
    if (durability_ == Durability::full) sync_folder(folder_);
}

void AtomicFile::replace() {
    if (temporary_.empty())
        throw UsageError(str(
            printable(path_),
            ": replace() and commit() must not be called after replace(), commit() or an error"));
    if (descriptor_ >= 0) sync();
    if (const int result = retry([&] { return file_system().rename(temporary_, path_); });
        result < 0)
        fail("can't replace", -result);
    temporary_.clear();
}

void AtomicFile::fail(const char* what, int error) {
    discard();
    fail_on(path_, what, error);
}

void AtomicFile::discard() noexcept {
    if (descriptor_ >= 0) file_system().close(std::exchange(descriptor_, -1));
    if (!temporary_.empty()) file_system().remove_file(kWorkingFolder, temporary_);
    temporary_.clear();
}

void write_file_atomically(const std::string& path, std::string_view bytes, Durability durability) {
    write_file_atomically(
        path, [&](AtomicFile& file) { file.write(bytes); }, durability);
}

void write_file_atomically(const std::string& path, const std::function<void(AtomicFile&)>& writer,
                           Durability durability) {
    AtomicFile file(path, durability);
    writer(file);
    file.commit();
}

}  // namespace axle
