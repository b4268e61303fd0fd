// Private to Axle: lists, syncs, renames, replaces, removes and locks folders and files, and
// returns facts about paths. No function follows a symbolic link inside a folder. Failures throw
// FileError with the path and the reason, unless a comment states otherwise.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/files/file.h"
#include "core/files/file_system.h"

namespace axle {

// Returns the folder of a path: "a" for "a/b", "." for "b" and "/" for "/b".
std::string folder_of(const std::string& path);

// Returns the absolute path, without ".", ".." and a slash at its end. Symbolic links are not
// resolved. Throws FileError for a relative path if the working directory was deleted.
std::string absolute_path(const std::string& path);

// Returns whether a folder is or contains the working directory. Returns false if the folder does
// not exist, or if the path is a symbolic link.
bool contains_working_directory(const std::string& folder);

// Returns the kind of a path, or nullopt if the path does not exist. A symbolic link is
// FileKind::link.
std::optional<FileKind> kind_of(const std::string& path);

// Returns the device and inode of a folder, which identify it independently of its path.
std::pair<std::uint64_t, std::uint64_t> identity_of_folder(const std::string& path);

// Returns the names in a folder, sorted, without "." and "..".
std::vector<std::string> list_folder(const std::string& path);

// The paths in a folder and its subfolders, relative to the folder. Each folder is listed in the
// order of its names, and a subfolder precedes its contents. `others` contains everything else,
// such as symbolic links and devices.
struct FolderContents {
    std::vector<std::string> folders, files, others;
};
FolderContents contents_of(const std::string& path);

// Writes the names in a folder to disk. Does nothing if the file system cannot sync folders.
void sync_folder(const std::string& path);

// Returns the bytes that this user can still write to the disk of a folder, or INT64_MAX if the
// number is unknown.
std::int64_t free_space(const std::string& folder);

// Renames a path. A file or empty folder at `to` is replaced.
void rename_path(const std::string& from, const std::string& to);

// Moves the folder `from` to `to` and, with Durability::full, writes the change to disk. If `to` is
// a folder with contents, exchanges the two folders atomically, and returns the path of the old
// folder, which the caller should remove. If the file system cannot exchange folders, `to` is
// missing for a moment. Returns "" if no old folder is left.
std::string put_in_place(const std::string& from, const std::string& to, Durability durability);

// Removes a file, or a folder with its contents. Does nothing if the path does not exist.
void remove_all(const std::string& path);
// Removes a file. Does nothing if it is missing.
void remove_file(const std::string& path);
// Remove a file, or a folder if it is empty, given by its path in `folder`. Symbolic links in the
// path and at `folder` are not followed, even if another process creates them during the call. Do
// nothing if the file is missing or a part of its path is not a folder.
void remove_file(const std::string& folder, const std::string& name);
void remove_if_empty(const std::string& folder, const std::string& name);

// An exclusive lock of a file or folder, which also excludes other PathLocks of this process. The
// destructor and the end of the process (also by SIGKILL) release the lock. Some file systems do
// not support locks, or locks of folders (NFS). On such a file system an object has no effect, and
// excludes_others() returns false.
class PathLock {
  public:
    // Take the lock of a folder or a file without waiting. try_file() creates a missing file.
    // Return nullopt if another PathLock has the lock, or if the folder (of the file) does not
    // exist. Also return nullopt if the path was removed or replaced during the call. Throw
    // FileError for a symbolic link, and if the path cannot be opened or locked.
    static std::optional<PathLock> try_folder(const std::string& path);
    static std::optional<PathLock> try_file(const std::string& path);

    ~PathLock();
    // Returns whether the file system supports this kind of lock.
    bool excludes_others() const { return excludes_others_; }
    // Writes text at the beginning of a file whose lock was just taken. Throws FileError if writing
    // fails.
    void write(std::string_view text) const;

    PathLock(PathLock&& other) noexcept;
    PathLock& operator=(PathLock&& other) noexcept;

  private:
    PathLock(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
    static std::optional<PathLock> try_lock(const std::string& path, int flags);
    std::string path_;
    int descriptor_ = -1;
    bool excludes_others_ = true;
};

}  // namespace axle
