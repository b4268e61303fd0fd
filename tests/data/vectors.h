// Cases recorded from Accelerate: tests/vectors/, or a folder with files of the same names.
#pragma once

#include <cstdlib>
#include <fstream>
#include <string>

#include "nlohmann/json.hpp"

namespace axle::tests {

inline nlohmann::json vectors(const std::string& file) {
    const char* folder = std::getenv("AXLE_VECTORS");
    const std::string path =
        (folder != nullptr ? std::string(folder) : AXLE_TESTS_DIR "/vectors") + "/" + file;
    std::ifstream stream(path);
    return nlohmann::json::parse(stream);
}

}  // namespace axle::tests
