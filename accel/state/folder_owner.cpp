#include "accel/state/folder_owner.h"

#include <climits>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>

#include <unistd.h>

#include "core/text/text.h"
#include "kernels/error.h"

namespace axle::accel {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestOwner = 256;  // the size of a lock file in bytes

std::string description_of_this_process() {
    char host[HOST_NAME_MAX + 1] = {};
    gethostname(host, sizeof host - 1);
    std::string text = str("process ", getpid(), " on ", host);
    text.resize(kLongestOwner - 1, ' ');
    return text + "\n";
}

std::string read_owner(const std::string& file) {
    try {
        const std::string text = read_file(file, kLongestOwner);
        return printable(text.substr(0, text.find_last_not_of(" \n") + 1));
    } catch (const FileError&) {
        return "another process";
    }
}

}  // namespace

void check_no_link(const std::string& folder) {
    if (kind_of(absolute_path(folder)) == FileKind::link)
        throw FileError(
            str(printable(folder),
                ": is a symbolic link, which is not followed, because checkpoints are "
                "written and removed there; replace it with a folder, or let the project "
                "folder be a link"));
}

std::string new_run_id() { return random_hex(32); }

std::shared_ptr<const FolderOwner> FolderOwner::claim(const std::string& folder) {
    static std::mutex mutex;
    static std::map<std::pair<std::uint64_t, std::uint64_t>, std::weak_ptr<const FolderOwner>>
        owners;
    check_no_link(folder);
    // The new folder is synced here, because CheckpointWriter syncs only folders that it creates.
    create_directories(folder, Durability::full);
    const std::lock_guard lock(mutex);
    auto& known = owners[identity_of_folder(folder)];
    if (auto owner = known.lock()) return owner;
    const fs::path named = absolute_path(folder);
    const std::string file =
        (named.parent_path() / ("." + named.filename().string() + ".lock")).string();
    auto taken = PathLock::try_file(file);
    if (!taken)
        throw FileError(str(printable(folder), ": is in use by ", read_owner(file),
                            ", which writes checkpoints there; use another folder"));
    taken->write(description_of_this_process());
    auto owner = std::make_shared<const FolderOwner>(std::move(*taken));
    known = owner;
    return owner;
}

}  // namespace axle::accel
