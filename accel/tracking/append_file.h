// AppendFile: a file to which data is appended completely or not at all. Also declares helpers of
// the trackers that continue or replace a file of an earlier run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/files/file.h"

namespace axle::accel {

// A file that is open for appending, and created if it is missing. It must not be a symbolic link.
// Data is written without a buffer. Methods throw FileError with the path and the reason.
class AppendFile {
  public:
    explicit AppendFile(const std::string& path);
    ~AppendFile();
    AppendFile(const AppendFile&) = delete;
    AppendFile& operator=(const AppendFile&) = delete;

    const std::string& path() const { return path_; }
    // Appends `piece`. If this fails, for example because the disk is full, removes the partial
    // write, so that the file is unchanged, and throws FileError. If the partial write cannot be
    // removed, the message states that the file is damaged.
    void append(std::string_view piece);

  private:
    std::string path_;
    int descriptor_ = -1;
    std::int64_t size_ = 0;  // size of the file without a partial write
};

// Returns the bytes of a mapped file as text, valid as long as the file is mapped.
std::string_view text_of(const MappedFile& file);

// Renames a file of an earlier run, so that a new run can use its path. metrics.csv becomes
// metrics.1.csv, or metrics.2.csv if metrics.1.csv exists, and so on. Does nothing if the file is
// missing or empty. Throws FileError if the file can't be renamed.
void move_aside(const std::string& path);

}  // namespace axle::accel
