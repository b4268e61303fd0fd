// Files: read whole or mapped, written whole or not at all. Every failure is a FileError with the
// path and the reason. Paths are as std::filesystem::path gives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace axle::inline v0 {

// Text that somebody else wrote (a path, a name in a file), fit for a message: control characters
// and bytes that are not printable ASCII or UTF-8 become \xNN; more than 200 bytes are cut.
std::string printable(std::string_view text);
// The same as a name: 'weight'.
std::string in_quotes(std::string_view name);

// A regular file, open for reading. Directories, pipes and devices are refused. Moving leaves an
// object that can only be destroyed or assigned to.
class InputFile {
  public:
    explicit InputFile(const std::string& path);
    ~InputFile();
    InputFile(InputFile&& other) noexcept;
    InputFile& operator=(InputFile&& other) noexcept;

    const std::string& path() const { return path_; }
    // Bytes at the time of opening.
    std::int64_t size() const { return size_; }
    // The bytes from offset on; a file that has become shorter is an error. Several threads may
    // read.
    void read_at(std::int64_t offset, std::span<std::byte> bytes) const;

  private:
    friend class MappedFile;
    std::string path_;
    int descriptor_ = -1;
    std::int64_t size_ = 0;
};

// The whole file as a string of bytes.
std::string read_file(const std::string& path);

// A file in memory, read as it is touched. Writes to the memory stay private to this process and
// are never written to the file. Replacing the file by rename is safe; if somebody truncates it,
// touching what is gone is a SIGBUS, so read files that others may be writing with read_file
// instead.
class MappedFile {
  public:
    explicit MappedFile(const InputFile& file);
    explicit MappedFile(const std::string& path) : MappedFile(InputFile(path)) {}
    ~MappedFile();
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;

    std::span<std::byte> bytes() const { return bytes_; }

  private:
    std::span<std::byte> bytes_;
};

// A file that appears complete or not at all: written beside its place under another name, forced
// to disk and renamed in commit(). Without a commit, or after a failure, nothing is left of it and
// the old file is what it was. New files have the permissions that umask leaves of rw-rw-rw-; a
// symbolic link at the path is replaced, not followed.
class AtomicFile {
  public:
    explicit AtomicFile(const std::string& path);
    ~AtomicFile();
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;

    void write(std::span<const std::byte> bytes);
    void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
    // Ends writing: the bytes are on the disk, and the old file is still in its place.
    void sync();
    // sync(), if that has not been called, and takes the old file's place.
    void commit();

  private:
    [[noreturn]] void fail(const char* what, int error);
    void discard() noexcept;

    std::string path_;
    std::string folder_;
    std::string temporary_;  // empty once it is gone or renamed
    int descriptor_ = -1;
};

void write_file_atomically(const std::string& path, std::string_view bytes);
// writer(file) writes; an exception of it leaves the old file.
void write_file_atomically(const std::string& path, const std::function<void(AtomicFile&)>& writer);

// The folder and those above it that are missing.
void create_directories(const std::string& path);

}  // namespace axle::inline v0
