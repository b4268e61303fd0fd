// A file that data is appended to, atomically with respect to full disks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace axle::accel {

// Opens a file for appending, and creates it if it is missing. Data is passed to the system
// immediately. Failures throw FileError with path and reason.
class AppendFile {
  public:
    explicit AppendFile(const std::string& path);
    ~AppendFile();
    AppendFile(const AppendFile&) = delete;
    AppendFile& operator=(const AppendFile&) = delete;

    const std::string& path() const { return path_; }
    // Appends all of `piece` or nothing: if the disk is full, a partial write is cut off again.
    void append(std::string_view piece);

  private:
    std::string path_;
    int descriptor_ = -1;
    std::int64_t size_ = 0;  // without a partial write
};

}  // namespace axle::accel
