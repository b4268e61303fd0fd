#include "core/files/folder.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include <fcntl.h>

#include "kernels/error.h"

namespace axle {
namespace {

constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

[[noreturn]] void fail_with(const std::string& path, const char* what, int result) {
    throw FileError(
        str(printable(path), ": ", what, ": ", std::generic_category().message(-result)));
}

// A descriptor of a folder.
class OpenFolder {
  public:
    OpenFolder(int parent, const std::string& name, int flags = kFolderFlags)
        : descriptor_(retry([&] { return file_system().open(parent, name, flags, 0); })) {}
    ~OpenFolder() {
        if (descriptor_ >= 0) file_system().close(descriptor_);
    }
    OpenFolder(const OpenFolder&) = delete;
    OpenFolder& operator=(const OpenFolder&) = delete;

    // Returns the descriptor, or -errno if the folder can't be opened.
    int get() const { return descriptor_; }

  private:
    int descriptor_;
};

std::vector<std::string> sorted_names(int folder, const std::string& path) {
    std::vector<std::string> names;
    const int result = retry([&] { return file_system().list(folder, names); });
    if (result < 0) fail_with(path, "can't be read", result);
    std::sort(names.begin(), names.end());
    return names;
}

void add_contents(int parent, const std::string& name, const std::string& path,
                  const std::string& prefix, FolderContents& found) {
    const OpenFolder folder(parent, name,
                            prefix.empty() ? kFolderFlags : kFolderFlags | O_NOFOLLOW);
    if (folder.get() < 0) fail_with(path + "/" + prefix, "can't be read", folder.get());
    for (const std::string& entry : sorted_names(folder.get(), path)) {
        FileStatus status;
        const int result = file_system().status(folder.get(), entry, status);
        if (result == -ENOENT) continue;  // another process has removed it
        if (result < 0) fail_with(str(path, "/", prefix, entry), "can't be read", result);
        auto& list = status.kind == FileKind::folder ? found.folders
                     : status.kind == FileKind::file ? found.files
                                                     : found.others;
        list.push_back(prefix + entry);
        if (status.kind == FileKind::folder)
            add_contents(folder.get(), entry, path, prefix + entry + "/", found);
    }
}

// Removes a file, or a folder with its contents, from an open folder. Returns 0, also if nothing
// has the name, or -errno. Throws FileError if a folder cannot be listed.
int remove_below(int parent, const std::string& name, const std::string& path) {
    FileStatus status;
    int result = file_system().status(parent, name, status);
    if (result == 0 && status.kind != FileKind::folder)
        result = retry([&] { return file_system().remove_file(parent, name); });
    else if (result == 0) {
        {
            const OpenFolder folder(parent, name, kFolderFlags | O_NOFOLLOW);
            result = folder.get();
            if (folder.get() >= 0)
                for (const std::string& entry : sorted_names(folder.get(), path))
                    if (result = remove_below(folder.get(), entry, path); result < 0) break;
        }
        if (result >= 0) result = retry([&] { return file_system().remove_folder(parent, name); });
    }
    return result == -ENOENT ? 0 : result;
}

// Opens the folder that contains `name`, a path below `folder`, without following links. Calls
// operation(descriptor, last part of the path) and returns the result. Returns 0 if there is
// nothing at the path or a part of the path is a link, and -errno if a folder cannot be opened.
template <class Operation>
int in_folder_of(const std::string& name, int parent, const std::string& folder,
                 const Operation& operation) {
    const OpenFolder open(parent, folder, kFolderFlags | O_NOFOLLOW);
    const std::size_t slash = name.find('/');
    int result = open.get();
    if (result >= 0)
        result = slash == std::string::npos ? retry([&] { return operation(open.get(), name); })
                                            : in_folder_of(name.substr(slash + 1), open.get(),
                                                           name.substr(0, slash), operation);
    return result == -ENOENT || result == -ENOTDIR || result == -ELOOP ? 0 : result;
}

}  // namespace

std::string folder_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos) return ".";
    return path.substr(0, std::max<std::size_t>(slash, 1));
}

std::string absolute_path(const std::string& path) {
    std::error_code error;
    std::string absolute = std::filesystem::absolute(path, error).lexically_normal().string();
    if (error)
        throw FileError(
            str(printable(path), ": the absolute path can't be determined: ", error.message(),
                "; the working directory may have been deleted: pass an absolute path"));
    while (absolute.size() > 1 && absolute.back() == '/') absolute.pop_back();
    return absolute;
}

bool contains_working_directory(const std::string& folder) {
    FileStatus wanted, status;
    if (file_system().status(kWorkingFolder, folder, wanted) < 0) return false;
    const auto is_same = [](const FileStatus& a, const FileStatus& b) {
        return a.device == b.device && a.inode == b.inode;
    };
    FileStatus child;
    // Stops at the root, which is its own parent.
    for (std::string at = "."; file_system().status(kWorkingFolder, at, status) == 0; at += "/..") {
        if (is_same(status, wanted)) return true;
        if (at != "." && is_same(status, child)) return false;
        child = status;
    }
    return false;
}

std::optional<FileKind> kind_of(const std::string& path) {
    FileStatus status;
    const int result = file_system().status(kWorkingFolder, path, status);
    if (result == -ENOENT || result == -ENOTDIR) return std::nullopt;
    if (result < 0) fail_with(path, "can't be read", result);
    return status.kind;
}

std::pair<std::uint64_t, std::uint64_t> identity_of_folder(const std::string& path) {
    const OpenFolder folder(kWorkingFolder, path);
    FileStatus status;
    const int result = folder.get() < 0 ? folder.get() : file_system().status(folder.get(), status);
    if (result < 0) fail_with(path, "can't be read", result);
    return {status.device, status.inode};
}

std::vector<std::string> list_folder(const std::string& path) {
    const OpenFolder folder(kWorkingFolder, path);
    if (folder.get() < 0) fail_with(path, "can't be read", folder.get());
    return sorted_names(folder.get(), path);
}

FolderContents contents_of(const std::string& path) {
    FolderContents found;
    add_contents(kWorkingFolder, path, path, "", found);
    return found;
}

void sync_folder(const std::string& path) {
    const OpenFolder folder(kWorkingFolder, path);
    int result = folder.get();
    if (result >= 0) result = retry([&] { return file_system().sync(folder.get()); });
    if (result < 0 && result != -EINVAL && result != -ENOTSUP)
        fail_with(path, "can't be synced to disk", result);
}

std::int64_t free_space(const std::string& folder) {
    const std::int64_t bytes = file_system().free_bytes(folder);
    return bytes < 0 ? INT64_MAX : bytes;
}

void rename_path(const std::string& from, const std::string& to) {
    if (const int result = retry([&] { return file_system().rename(from, to); }); result < 0)
        fail_with(to, str("can't be renamed from ", printable(from)).c_str(), result);
}

std::string put_in_place(const std::string& from, const std::string& to, Durability durability) {
    const auto sync = [&] {
        if (durability == Durability::full) sync_folder(folder_of(to));
    };
    const int renamed = retry([&] { return file_system().rename(from, to); });
    if (renamed == 0) {
        sync();
        return "";
    }
    if (renamed != -ENOTEMPTY && renamed != -EEXIST)
        fail_with(to, str("can't be renamed from ", printable(from)).c_str(), renamed);
    std::string old = from;
    if (retry([&] { return file_system().exchange(from, to); }) < 0) {
        old = from + ".old";
        rename_path(to, old);
        try {
            rename_path(from, to);
        } catch (const FileError&) {
            file_system().rename(old, to);  // restores the old folder
            throw;
        }
    }
    sync();
    return old;
}

void remove_all(const std::string& path) {
    if (const int result = remove_below(kWorkingFolder, path, path); result < 0)
        fail_with(path, "can't be removed", result);
}

void remove_file(const std::string& path) {
    const int result = retry([&] { return file_system().remove_file(kWorkingFolder, path); });
    if (result < 0 && result != -ENOENT) fail_with(path, "can't be removed", result);
}

void remove_file(const std::string& folder, const std::string& name) {
    const int result = in_folder_of(name, kWorkingFolder, folder, [](int at, const auto& last) {
        return file_system().remove_file(at, last);
    });
    if (result < 0) fail_with(folder + "/" + name, "can't be removed", result);
}

void remove_if_empty(const std::string& folder, const std::string& name) {
    const int result = in_folder_of(name, kWorkingFolder, folder, [](int at, const auto& last) {
        return file_system().remove_folder(at, last);
    });
    if (result < 0 && result != -ENOTEMPTY && result != -EEXIST)
        fail_with(folder + "/" + name, "can't be removed", result);
}

void create_directories(const std::string& path, Durability durability) {
    std::vector<std::string> missing;
    std::string folder = path;
    while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
    for (;; folder = folder_of(folder)) {
        const OpenFolder there(kWorkingFolder, folder.empty() ? "." : folder);
        if (there.get() >= 0) break;
        if (there.get() != -ENOENT) fail_with(path, "can't create the folder", there.get());
        missing.push_back(folder);
    }
    for (auto next = missing.rbegin(); next != missing.rend(); ++next) {
        const int result = retry([&] { return file_system().make_folder(kWorkingFolder, *next); });
        if (result < 0 && result != -EEXIST) fail_with(path, "can't create the folder", result);
        if (durability == Durability::full) sync_folder(folder_of(*next));
    }
}

std::optional<PathLock> PathLock::try_folder(const std::string& path) {
    return try_lock(path, kFolderFlags | O_NOFOLLOW);
}

std::optional<PathLock> PathLock::try_file(const std::string& path) {
    return try_lock(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
}

std::optional<PathLock> PathLock::try_lock(const std::string& path, int flags) {
    const int file = retry([&] { return file_system().open(kWorkingFolder, path, flags, 0666); });
    if (file == -ENOENT) return std::nullopt;
    if (file < 0) fail_with(path, "can't be opened", file);
    PathLock lock(path, file);
    const int locked = retry([&] { return file_system().lock(file); });
    if (locked == -EWOULDBLOCK) return std::nullopt;
    static constexpr std::array kUnsupported = {-EBADF, -EINVAL, -ENOLCK, -ENOSYS, -EOPNOTSUPP};
    lock.excludes_others_ =
        std::find(kUnsupported.begin(), kUnsupported.end(), locked) == kUnsupported.end();
    if (locked < 0 && lock.excludes_others_) fail_with(path, "can't be locked", locked);
    // The path may have been removed or replaced between open() and lock().
    FileStatus of_file, of_path;
    if (file_system().status(file, of_file) < 0 ||
        file_system().status(kWorkingFolder, path, of_path) < 0 || of_file.inode != of_path.inode ||
        of_file.device != of_path.device)
        return std::nullopt;
    return lock;
}

void PathLock::write(std::string_view text) const {
    const auto bytes = std::as_bytes(std::span(text));
    const std::int64_t n = retry([&] { return file_system().write(descriptor_, bytes); });
    if (n < 0) fail_with(path_, "can't be written", static_cast<int>(n));
}

PathLock::~PathLock() {
    if (descriptor_ >= 0) file_system().close(descriptor_);
}

PathLock::PathLock(PathLock&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      excludes_others_(other.excludes_others_) {}

PathLock& PathLock::operator=(PathLock&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(descriptor_, other.descriptor_);
    std::swap(excludes_others_, other.excludes_others_);
    return *this;
}

}  // namespace axle
