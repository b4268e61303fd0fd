// Private to Axle: exclusive ownership of a folder of checkpoints, and the ids of runs.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "core/files/folder.h"

namespace axle::accel {

// Returns an id for a new run: 32 random hexadecimal digits.
std::string new_run_id();

// Throws FileError if the path of a folder is a symbolic link. Links among the parent folders are
// followed.
void check_no_link(const std::string& folder);

// The exclusive right to write checkpoints in a folder. It ends when the object is destroyed or the
// process exits.
class FolderOwner {
  public:
    // Returns the owner of a folder. Creates the folder if it is missing. Takes the lock of a file
    // next to the folder: "a/.checkpoints.lock" for "a/checkpoints". Calls for the same folder in
    // one process share the owner. Throws FileError if the folder is a symbolic link, or if another
    // process owns it; the message names the process and its host.
    static std::shared_ptr<const FolderOwner> claim(const std::string& folder);

    explicit FolderOwner(PathLock lock) : lock_(std::move(lock)) {}

  private:
    PathLock lock_;
};

}  // namespace axle::accel
