// A file that grows by whole pieces.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace axle::accel {

// Opened for appending, created if it is missing. Each piece is handed to the system at once. Every
// failure is a FileError with path and reason.
class AppendFile {
  public:
    explicit AppendFile(const std::string& path);
    ~AppendFile();
    AppendFile(const AppendFile&) = delete;
    AppendFile& operator=(const AppendFile&) = delete;

    const std::string& path() const { return path_; }
    // The whole piece, or none of it: of a disk that was full in the midst of it nothing stays, so
    // that later pieces follow the last whole one.
    void append(std::string_view piece);

  private:
    std::string path_;
    int descriptor_ = -1;
    std::int64_t size_ = 0;  // of the whole pieces
};

}  // namespace axle::accel
