// Files that are read or memory-mapped, files that are written atomically, folders that are
// created, and printable(), which makes text from outside safe for messages. Every failure of the
// file system throws FileError with the path and the reason. Paths have the encoding of
// std::filesystem::path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "core/files/durability.h"

namespace axle {

// Returns external text (a path, a name in a file) in a form that is safe in a message. Control
// characters, and bytes that are not printable ASCII or UTF-8, become \xNN. The result is truncated
// after about `limit` bytes.
std::string printable(std::string_view text, std::size_t limit = 200);
// Returns printable(name) in single quotes, such as 'weight'.
std::string in_quotes(std::string_view name);

// A regular file, open for reading. The constructors throw FileError if the file cannot be opened,
// and for directories, pipes and devices. A moved-from object must only be destroyed or assigned
// to.
class InputFile {
  public:
    explicit InputFile(const std::string& path);
    // Opens the file `name` in `folder`, for example "unet/config.json". Throws FileError if a
    // component of the name is empty, a symbolic link or "..".
    InputFile(const std::string& folder, const std::string& name);
    ~InputFile();
    InputFile(InputFile&& other) noexcept;
    InputFile& operator=(InputFile&& other) noexcept;

    const std::string& path() const { return path_; }
    // Returns the size in bytes that the file had when it was opened.
    std::int64_t size() const { return size_; }
    // Reads bytes.size() bytes, beginning at byte `offset`. Throws FileError if the file does not
    // contain all of these bytes. Several threads may call this function concurrently.
    void read_at(std::int64_t offset, std::span<std::byte> bytes) const;
    // Returns the contents. Throws FileError if the file has more than `max_bytes` bytes, or if
    // there is not enough memory.
    std::string read(std::int64_t max_bytes = INT64_MAX) const;
    // Writes the file's data to disk.
    void sync() const;

  private:
    friend class MappedFile;
    void check();
    std::string path_;
    int descriptor_ = -1;
    std::int64_t size_ = 0;
};

// Returns the contents of a file. Throws FileError if it has more than `max_bytes` bytes, or if
// there is not enough memory.
std::string read_file(const std::string& path, std::int64_t max_bytes = INT64_MAX);

// A memory-mapped file, whose pages are read on first access. Writes to the memory are private to
// this process and do not change the file. Replacing the file by rename is safe. If another process
// truncates the file, access to the missing part raises SIGBUS. Use read_file for files that other
// processes may be writing.
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

// A file that is either written completely or not at all. The data are written to a temporary file
// in the same folder; commit() writes them to disk, unless durability is `none`, and renames the
// file. If the temporary file is not renamed, for example because of an error, it is removed and
// the old file is unchanged. New files have permissions rw-rw-rw- minus umask. A symbolic link at
// the path is replaced, not followed.
class AtomicFile {
  public:
    // Creates the temporary file. Throws FileError if this fails.
    explicit AtomicFile(const std::string& path, Durability durability = Durability::full);
    ~AtomicFile();
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;

    // Append to the temporary file. Throw FileError if the data cannot be written.
    void write(std::span<const std::byte> bytes);
    void write(std::string_view text);
    // Writes the data to disk, unless durability is `none`, and closes the temporary file. Does not
    // replace the old file. After this call or an error, write() and sync() throw UsageError.
    void sync();
    // Calls sync() if it was not called, then replaces the old file by the temporary file. Throws
    // UsageError if it is called twice or after an error. The new name may get lost in a power
    // failure, unless the caller syncs the folder (folder.h).
    void replace();
    // Calls replace() and writes the new name to disk, unless durability is `none`.
    void commit();

  private:
    [[noreturn]] void fail(const char* what, int error);
    void discard() noexcept;

    std::string path_;
    std::string folder_;
    std::string temporary_;  // empty after the file was renamed or removed
    Durability durability_;
    int descriptor_ = -1;
};

// Writes the bytes to a new AtomicFile and commits it.
void write_file_atomically(const std::string& path, std::string_view bytes,
                           Durability durability = Durability::full);
// Calls writer(file) on a new AtomicFile and commits it. If the writer throws, the old file is
// unchanged.
void write_file_atomically(const std::string& path, const std::function<void(AtomicFile&)>& writer,
                           Durability durability = Durability::full);

// Creates the folder and its missing parents. With Durability::full, the folders survive a power
// failure.
void create_directories(const std::string& path, Durability durability = Durability::none);

}  // namespace axle
