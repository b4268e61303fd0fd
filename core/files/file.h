// Files: read whole or memory-mapped, written atomically. Every failure throws FileError with the
// path and the reason. Paths are in the encoding of std::filesystem::path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace axle {

// Makes external text (a path, a name in a file) safe for a message: control characters and bytes
// that are not printable ASCII or UTF-8 become \xNN; text over 200 bytes is truncated.
std::string printable(std::string_view text);
// Returns printable(name) in quotes: 'weight'.
std::string in_quotes(std::string_view name);

// A regular file, open for reading. Directories, pipes and devices are refused. A moved-from object
// can only be destroyed or assigned to.
class InputFile {
  public:
    explicit InputFile(const std::string& path);
    ~InputFile();
    InputFile(InputFile&& other) noexcept;
    InputFile& operator=(InputFile&& other) noexcept;

    const std::string& path() const { return path_; }
    // Returns the size in bytes at the time of opening.
    std::int64_t size() const { return size_; }
    // Reads bytes.size() bytes at offset. Throws FileError if the file has become shorter. Several
    // threads can read at the same time.
    void read_at(std::int64_t offset, std::span<std::byte> bytes) const;

  private:
    friend class MappedFile;
    std::string path_;
    int descriptor_ = -1;
    std::int64_t size_ = 0;
};

// Returns the contents of the file.
std::string read_file(const std::string& path);

// A memory-mapped file; pages are read on first access. Writes to the memory are private to this
// process and never reach the file. Replacing the file by rename is safe. If another process
// truncates it, access to the missing part raises SIGBUS, so use read_file for files that others
// may be writing.
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

// A file that appears complete or not at all. It is written to a temporary file in the same folder;
// commit() forces that to disk and renames it. Without commit(), or after a failure, the temporary
// file is removed and the old file is unchanged. New files have permissions rw-rw-rw- minus umask.
// A symbolic link at the path is replaced, not followed.
class AtomicFile {
  public:
    explicit AtomicFile(const std::string& path);
    ~AtomicFile();
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;

    void write(std::span<const std::byte> bytes);
    void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
    // Ends writing and forces the bytes to disk. The old file is still in place.
    void sync();
    // Calls sync() if needed, then replaces the old file.
    void commit();

  private:
    [[noreturn]] void fail(const char* what, int error);
    void discard() noexcept;

    std::string path_;
    std::string folder_;
    std::string temporary_;  // empty after it was renamed or removed
    int descriptor_ = -1;
};

void write_file_atomically(const std::string& path, std::string_view bytes);
// Calls writer(file) and commits. If the writer throws, the old file is unchanged.
void write_file_atomically(const std::string& path, const std::function<void(AtomicFile&)>& writer);

// Creates the folder and its missing parents.
void create_directories(const std::string& path);

}  // namespace axle
