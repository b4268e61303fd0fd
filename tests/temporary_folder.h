// A folder of one test, gone with it.
#pragma once

#include <filesystem>
#include <string>

#include <stdlib.h>

namespace axle::tests {

class TemporaryFolder {
  public:
    TemporaryFolder() {
        path_ = (std::filesystem::temp_directory_path() / "axle-test-XXXXXX").string();
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
    // Names in the folder.
    std::size_t count() const {
        const std::filesystem::directory_iterator files(path_);
        return static_cast<std::size_t>(std::distance(begin(files), end(files)));
    }

  private:
    std::string path_;
};

}  // namespace axle::tests
