// Checkpoints and other files that tests write into folders.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <utility>

#include "accel/state/checkpoint.h"
#include "core/files/folder.h"

namespace axle::tests {

// Writes a small checkpoint and returns its path.
inline std::string write(const std::string& path, accel::CheckpointLabel label) {
    accel::CheckpointWriter writer(path);
    writer.write("state", Tree{{"iteration", label.iteration}});
    writer.commit(std::move(label));
    return path;
}
inline std::string write(const std::string& path, std::int64_t iteration) {
    return write(path, accel::CheckpointLabel{.iteration = iteration});
}

inline void put(const std::string& path, const std::string& text) {
    create_directories(folder_of(path));
    std::ofstream(path) << text;
}

// The contents of a manifest.json written by another program.
inline constexpr const char* kForeign = R"({"name": "a web page", "icons": []})";

}  // namespace axle::tests
