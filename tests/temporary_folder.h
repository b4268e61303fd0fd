// A temporary folder that is deleted by the destructor.
#pragma once

#include <filesystem>
#include <string>

#include <stdlib.h>
#include <unistd.h>

namespace axle::tests {

enum class FolderStorage { on_disk, in_memory };

class TemporaryFolder {
  public:
    // `in_memory` uses shared memory if it is available, because syncing files is faster there.
    explicit TemporaryFolder(FolderStorage storage = FolderStorage::on_disk) {
        const bool shared_memory =
            storage == FolderStorage::in_memory && ::access("/dev/shm", W_OK) == 0;
        const std::filesystem::path above =
            shared_memory ? "/dev/shm" : std::filesystem::temp_directory_path();
        path_ = (above / "axle-test-XXXXXX").string();
        if (::mkdtemp(path_.data()) == nullptr) path_ = "/no/temporary/folder";
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    const std::string& path() const { return path_; }
    std::string operator/(const std::string& name) const { return path_ + "/" + name; }
    // Returns the number of entries in the folder.
    std::size_t count() const {
        const std::filesystem::directory_iterator files(path_);
        return static_cast<std::size_t>(std::distance(begin(files), end(files)));
    }

  private:
    std::string path_;
};

}  // namespace axle::tests
